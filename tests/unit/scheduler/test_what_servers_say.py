"""Values that servers and tenants write, at their edges: states, ids, times of the day, numbers in names, sizes of nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.model.kubernetes import Undecoded
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import NodeSpec, Partition, SlurmNode, holds_nodes
from scheduler.model.trace_context import parsed, trace_of
from scheduler.nodes.registration import MAX_PARTITIONS, ExternalNodes, registration
from scheduler.state.named_job import shown_id
from scheduler.translate.grouping import COMPLETION_INDEX, by_rank
from scheduler.translate.job_spec import is_extended
from tests.builders import node, pod, slurm_node

ROOT, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("states", "holds"),
    [
        ({"RUNNING"}, True),
        ({"SUSPENDED"}, True),
        ({"RUNNING", "COMPLETING"}, True),
        ({"PENDING"}, False),
        ({"CANCELLED", "RUNNING"}, False),
    ],
)
def test_a_job_that_has_ended_holds_no_nodes_whatever_else_it_shows(states: set[str], holds: bool) -> None:
    assert holds_nodes(frozenset(states)) == holds


def test_only_external_nodes_of_slurm_conf_with_devices_lose_devices() -> None:
    static = slurm_node(static=True)
    assert static.loses_devices
    assert not slurm_node().loses_devices
    assert not slurm_node(external=False).loses_devices
    assert not replace(static, gres={}).loses_devices
    assert not SlurmNode("x1", frozenset({"IDLE", "EXTERNAL"}), ("main",), (), 1, 1, {}).loses_devices


@pytest.mark.parametrize(
    ("ids", "is_span"), [((ROOT, SPAN), True), (("0" * 32, SPAN), False), ((ROOT, "0" * 16), False)]
)
def test_a_span_of_zeros_is_none(ids: tuple[str, str], is_span: bool) -> None:
    assert (parsed(f"00-{ids[0]}-{ids[1]}-01") is not None) == is_span


@pytest.mark.parametrize(
    ("said", "job_id"), [("17", 17), ("9" * 10, 9_999_999_999), ("9" * 11, None), ("²", None), ("", None)]
)
def test_a_job_id_has_at_most_ten_ascii_digits(said: str, job_id: int | None) -> None:
    assert shown_id(pod(annotations={names.JOB_ID: said})) == job_id


def test_an_object_without_a_name_may_be_any_and_one_with_a_name_is_that_one() -> None:
    def broken(namespace: str, name: str, uid: str) -> Undecoded:
        return Undecoded("pod", namespace, name, uid, "its labels are no mapping")

    assert broken("hpc", "train", "").is_it("hpc", "train", "uid-train")
    assert not broken("hpc", "train", "").is_it("hpc", "other", "uid-other")
    assert not broken("hpc", "train", "").is_it("other", "train", "uid-train")
    assert broken("", "", "").is_it("hpc", "other", "uid-other")
    assert not broken("hpc", "train", "uid-before").is_it("hpc", "train", "uid-train")


@pytest.mark.parametrize("odd", ["1x", "٣", "1234567890", ""])
def test_a_rank_that_is_no_number_counts_as_none(odd: str) -> None:
    first, second = pod("w-0", labels={COMPLETION_INDEX: odd}), pod("w-1")
    assert [each.name for each in by_rank([second, first])] == ["w-0", "w-1"]


@pytest.mark.parametrize(
    ("resource", "extended"),
    [("nvidia.com/gpu", True), ("cpu", False), ("hugepages-2Mi", False), ("attachable.kubernetes.io/x", False)],
)
def test_resources_of_kubernetes_itself_are_not_extended(resource: str, extended: bool) -> None:
    assert is_extended(resource) == extended


PARTITIONS = {"main": Partition("main", default=True)}


@pytest.mark.parametrize(
    ("cpu", "memory", "said"),
    [(2000, 1025, ""), (1999, 1025, "nothing is left for Slurm"), (2000, 1024, "nothing is left for Slurm")],
)
def test_a_node_needs_one_cpu_and_one_mib_beyond_what_is_kept_for_daemons(cpu: int, memory: int, said: str) -> None:
    found = registration(node(cpu=cpu, memory=memory, address="10.0.0.1"), ExternalNodes(), {}, PARTITIONS, "mark")
    if said:
        assert isinstance(found, Refusal)
        assert said in found.message
    else:
        assert isinstance(found, NodeSpec)
        assert (found.cpus, found.memory_mib) == (1, 1)


def test_a_node_names_at_most_so_many_partitions() -> None:
    known = {f"p{number}": Partition(f"p{number}") for number in range(MAX_PARTITIONS + 1)}
    for number, said in ((MAX_PARTITIONS, ""), (MAX_PARTITIONS + 1, f"names more than {MAX_PARTITIONS} partitions")):
        there = node(address="10.0.0.1", partitions=",".join(list(known)[:number]))
        found = registration(there, ExternalNodes(), {}, known, "mark")
        assert isinstance(found, Refusal) == bool(said)
        assert said in (found.message if isinstance(found, Refusal) else "")


def test_a_traceparent_that_is_none_leaves_the_workload_its_own_trace() -> None:
    own = f"00-{'a' * 32}-{'b' * 16}-01"
    assert trace_of(own, [own, "nonsense", f"00-{'0' * 32}-{'b' * 16}-01"]).caller is None
    assert trace_of(own, ["nonsense", f"00-{'c' * 32}-{'d' * 16}-01"]).caller == parsed(f"00-{'c' * 32}-{'d' * 16}-01")
