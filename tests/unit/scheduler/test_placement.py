"""Grants that do not cover the request (S11), and pods that do not fit their node right now (F6, V3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.model.cache import BoundedDict
from scheduler.model.kubernetes import Container, HostPort, Pod
from scheduler.model.slurm import Grant, GrantedNode, JobSpec
from scheduler.place import fit
from scheduler.place.assign import Part, lacks, places, shortfall
from scheduler.place.fit import EXTRA_WAIT_S, Blocked, NodeInfo, blocked, needs
from tests.builders import amounts, grant, node, pod

SPEC = JobSpec("job", "alice", cpus_per_task=2, memory_mib=100, gres=(("gpu:h100", 2),))


@pytest.mark.parametrize(
    ("granted", "missing"),
    [
        (GrantedNode("x1", 2, 100, {"gpu:h100": 2, "gpu": 2}), ""),
        (GrantedNode("x1", 4, 200, {"gpu:h100": 8}), ""),
        (GrantedNode("x1", 1, 100, {"gpu:h100": 2}), "2 CPUs (1 on x1)"),
        (GrantedNode("x1", 2, 99, {"gpu:h100": 2}), "100 MiB of memory (99 on x1)"),
        (GrantedNode("x1", 2, 100, {"gpu:h100": 1}), "2 gpu:h100 (1 on x1)"),
        (GrantedNode("x1", 2, 100, {"gpu:a100": 2}), "2 gpu:h100 (0 on x1)"),
        (GrantedNode("x1", 2, 100), "2 gpu:h100 (0 on x1)"),
    ],
)
def test_a_grant_is_compared_with_what_was_asked(granted: GrantedNode, missing: str) -> None:
    assert shortfall(SPEC, Grant(17, (granted,))) == missing


def test_a_grant_without_nodes_lacks_everything() -> None:
    assert shortfall(SPEC, Grant(17, ())) == "any node"


def test_every_node_of_a_grant_is_checked() -> None:
    good = GrantedNode("x1", 2, 100, {"gpu:h100": 2})
    assert shortfall(SPEC, Grant(17, (good, GrantedNode("x2", 2, 100)))) == "2 gpu:h100 (0 on x2)"


def test_every_component_of_a_grant_is_checked() -> None:
    launcher, worker = JobSpec("ring", "alice", 1, 100), JobSpec("ring", "alice", 2, 100)
    wanted, first = replace(launcher, parts=(worker,)), GrantedNode("x1", 1, 100)
    assert shortfall(wanted, Grant(17, (first,))) == "all of its 2 components"
    parts = (Grant(18, (GrantedNode("x2", 1, 100),)),)
    assert shortfall(wanted, Grant(17, (first,), parts=parts)) == "2 CPUs (1 on x2)"
    assert shortfall(wanted, Grant(17, (first,), parts=(Grant(18, (GrantedNode("x2", 2, 100),)),))) == ""


def test_a_pod_that_wants_a_node_for_itself_finds_none_in_the_place_of_one_that_shares() -> None:
    shares, alone = JobSpec("job", "alice", 1, 100), JobSpec("job", "alice", 1, 100, exclusive="exclusive")
    assert lacks(shares, alone) == "nodes for itself"
    assert lacks(alone, shares) == lacks(alone, alone) == lacks(shares, shares) == ""


def test_more_than_was_asked_is_fine() -> None:
    assert shortfall(JobSpec("job", "alice", 1, 1), grant(17, cpus=2, memory=64, gpu=8)) == ""


# --- F6 -----------------------------------------------------------------------------------------------------------


def standing(name: str, *, cpu: int = 1000, deleting_at: float | None = None, **fields: object) -> Pod:
    return pod(name, cpu=cpu, node="x1", deleting_at=deleting_at, **fields)


def on_node(pods: list[Pod]) -> list[NodeInfo]:
    """Some stood there before, the last was bound by this pass."""
    before, now = NodeInfo(), NodeInfo()
    for each in pods[:-1]:
        before.put(each)
    for each in pods[-1:]:
        now.put(each)
    return [before, now]


SMALL = node("x1", cpu=4000, memory=1000, gpu=1, pods=3)


def test_a_pod_that_needs_none_of_a_resource_is_not_blocked_where_others_have_more_of_it_than_the_node() -> None:
    """As for kube-scheduler: a request of 0 is none.  The device plugin of the node lost a device that a pod uses."""
    others = on_node([standing("other", cpu=100, gpu=1)])
    asks_for_none = pod(containers=(Container("main", amounts(cpu=100, gpu=0)),))
    assert blocked(asks_for_none, node("x1", gpu=0), "x1", others) is None
    assert blocked(pod(gpu=1), node("x1", gpu=0), "x1", others) is not None


def test_a_pod_that_fits_is_not_blocked() -> None:
    assert blocked(pod(cpu=3000), SMALL, "x1", on_node([standing("other")])) is None


def test_the_pod_itself_is_not_in_its_own_way() -> None:
    assert blocked(pod("a", cpu=3000), SMALL, "x1", on_node([standing("a", cpu=3000)])) is None


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (None, "Kubernetes has no node for Slurm's x1"),
        (node("x1", ready=False), "node x1 is not ready"),
        (node("x1", unschedulable=True), "node x1 is cordoned"),
    ],
)
def test_a_node_that_cannot_take_pods_now_is_not_waited_for(where: object, why: str) -> None:
    found = blocked(pod(), where, "x1", on_node([]))
    assert found is not None
    assert (found.why, found.until) == (why, None)


@pytest.mark.parametrize(
    ("wanted", "others", "resource"),
    [
        (pod(cpu=3001), [standing("a")], "cpu"),
        (pod(memory=901), [standing("a")], "memory"),
        (pod(gpu=1), [standing("a", gpu=1)], "nvidia.com/gpu"),
        (pod(), [standing(name, cpu=1) for name in "abc"], "place"),
        (
            pod(containers=(Container("main", requests={"ephemeral-storage": 1}),)),
            [],
            "ephemeral-storage",
        ),
        (pod(host_ports=(HostPort(80),)), [standing("a", host_ports=(HostPort(80),))], "host port"),
    ],
)
def test_a_lasting_obstacle_is_named_and_not_waited_for(wanted: Pod, others: list[Pod], resource: str) -> None:
    why = f"on node x1 other pods use the {resource} that the pod needs"
    assert blocked(wanted, SMALL, "x1", on_node(others)) == Blocked(why)


def test_terminating_pods_are_waited_for_their_grace_and_a_minute() -> None:
    going = [standing("a", cpu=2000, deleting_at=130.0), standing("b", cpu=2000, deleting_at=150.0)]
    assert blocked(pod(cpu=3000), SMALL, "x1", on_node(going)) == Blocked(
        "on node x1 hpc/a, hpc/b still terminate", until=150.0 + EXTRA_WAIT_S
    )
    assert blocked(pod(cpu=3000), SMALL, "x1", on_node(going[:1])) == Blocked(
        "on node x1 hpc/a still terminates", 190.0
    )


def test_terminating_pods_are_not_waited_for_if_other_pods_block_the_node_too() -> None:
    others = [standing("a", cpu=2000, deleting_at=130.0), standing("b", cpu=2000)]
    found = blocked(pod(cpu=3000), SMALL, "x1", on_node(others))
    assert found is not None
    assert found.until is None


def test_three_names_of_many_are_enough() -> None:
    going = [standing(name, cpu=1000, deleting_at=130.0) for name in "edcba"]
    found = blocked(pod(cpu=3000), node("x1", cpu=5000), "x1", on_node(going))
    assert found is not None
    assert found.why == "on node x1 hpc/a, hpc/b, hpc/c still terminate"


def test_what_a_node_has_taken_follows_its_pods() -> None:
    there = NodeInfo()
    assert there.put(standing("a", cpu=1000)) is None
    assert there.put(standing("b", cpu=2000)) is None
    assert there.put(standing("a", cpu=500)) == standing("a", cpu=1000)  # resized in place
    assert (there.taken["cpu"], there.taken["pods"]) == (2500, 2)
    assert there.remove("uid-b") == standing("b", cpu=2000)
    assert there.remove("uid-b") is None
    assert (there.taken["cpu"], there.needed_by("uid-a")["cpu"], there.needed_by("uid-b")) == (500, 500, {})


@pytest.mark.parametrize("part", ["containers", "init_containers", "pod_requests", "overhead"])
def test_a_pod_counts_on_its_node_by_what_it_requests_now(part: str) -> None:
    """Kubernetes resizes containers, sidecars and whole pods in place."""
    before = standing("a", cpu=1000)
    wants = amounts(cpu=5000)
    changed = (Container("main", requests=wants),) if part.endswith("containers") else wants
    now = replace(before, **{part: changed})
    there, anew = NodeInfo(), NodeInfo()
    there.put(before)
    there.put(now)
    anew.put(now)
    assert there.taken == anew.taken
    assert there.taken["cpu"] >= 5000


def test_the_requests_of_a_pod_that_are_too_many_to_be_remembered_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "_needs", BoundedDict(1))
    assert needs(pod(cpu=3000))["cpu"] == 3000


def test_bound_pods_keep_their_node_though_slurm_shows_fewer_places_there() -> None:
    grant = Grant(17, (GrantedNode("x1", 1, 100), GrantedNode("x2", 2, 200)))
    ring = [pod("w0"), pod("w1"), pod("w2")]
    found = places(
        [Part(JobSpec("job", "alice", 1, 100, tasks=3), grant.nodes, ring)], {"uid-w0": "x1", "uid-w1": "x1"}
    )
    assert found is not None
    assert [found[each.uid].node.name for each in ring] == ["x1", "x1", "x2"]


def test_a_node_with_more_places_than_there_is_memory_is_no_more_than_the_pods_need() -> None:
    """slurmrestd showed an impossible number of CPUs: a list with one entry each would fill the machine."""
    vast = Grant(17, (GrantedNode("x1", 2**40, 2**60), GrantedNode("x2", 2**40, 2**60)))
    ring = [pod("w0"), pod("w1"), pod("w2")]
    found = places([Part(JobSpec("job", "alice", 1, 1, tasks=3), vast.nodes, ring)], {"uid-w1": "x2"})
    assert found is not None
    assert [found[each.uid].node.name for each in ring] == ["x1", "x2", "x1"]
