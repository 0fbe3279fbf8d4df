"""Which nodes a workload may use at all (F1 to F3, G2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow
from scheduler.events import SlurmNodesPolled
from scheduler.model.kubernetes import ALL_PORTS, HostPort, Node, NodeTerm, Pod, Requirement, Taint, Toleration
from scheduler.model.slurm import JobSpec, Partition, SlurmNode
from scheduler.place.feasible import Feasible, feasible, slurm_name, weight
from scheduler.place.fit import NodeInfo, blocked, checks, matcher, node_requirements, untolerated
from scheduler.place.host_ports import HostPorts
from scheduler.place.host_ports import ports_conflict as ports_conflict_
from tests.builders import START, Story, amounts, node, pod, slurm_node


def ask(
    pod: Pod,
    *nodes: Node,
    slurm: tuple[SlurmNode, ...] | None = None,
    ports_taken: frozenset[str] = frozenset(),
    volumes: tuple[tuple[NodeTerm, ...], ...] = (),
    gres: tuple[tuple[str, int], ...] = (),
) -> Feasible:
    known = slurm if slurm is not None else tuple(slurm_node(slurm_name(each)) for each in nodes)
    spec = JobSpec("job", "alice", 1, 1, gres=gres)
    wanted = node_requirements(pod, spec, "main", volumes, ports_taken=ports_taken)
    return feasible(wanted, nodes, {each.name: each for each in known})


def term(*expressions: Requirement, fields: tuple[Requirement, ...] = ()) -> NodeTerm:
    return NodeTerm(expressions, fields)


def test_the_rest_of_the_partition_is_excluded_folded() -> None:
    nodes = [node(f"n{number}", ready=number != 3) for number in range(1, 6)]
    slurm = tuple(slurm_node(f"n{number}") for number in range(1, 10))
    found = ask(pod(), *nodes, slurm=slurm)
    assert found == Feasible(frozenset({"n1", "n2", "n4", "n5"}), "n[3,6-9]")


def test_only_names_of_the_jobs_partition_are_excluded() -> None:
    """F2: one unknown name refuses the call, and names of other partitions are only length."""
    slurm = (slurm_node("x1"), slurm_node("far", partitions=("other",)))
    assert ask(pod(), node("x1"), slurm=slurm).excluded == ""


def test_a_node_that_only_kubernetes_knows_does_not_count() -> None:
    found = ask(pod(), node("x1"), node("laptop"), slurm=(slurm_node("x1"),))
    assert found.nodes == {"x1"}
    assert found.excluded == ""


def test_a_nodes_slurm_name_may_differ() -> None:
    renamed = node("ip-10-0-0-7", labels={names.SLURM_NODE_LABEL: "x7"})
    assert ask(pod(), renamed, slurm=(slurm_node("x7"), slurm_node("x8"))) == Feasible(frozenset({"x7"}), "x8")


# --- each way in which a node can be unfit, and its words ---------------------------------------------------------

UNFIT: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("not ready", {}, {"ready": False}, "1 not ready"),
    ("cordoned", {}, {"unschedulable": True}, "1 cordoned"),
    ("taint", {}, {"taints": (Taint("gpu", "h100", "NoSchedule"),)}, "1 with untolerated taint {gpu: h100}"),
    ("selector", {"node_selector": {"zone": "a"}}, {"labels": {"zone": "b"}}, "1 not matching the pod's node selector"),
    (
        "affinity",
        {"node_affinity": (NodeTerm((Requirement("zone", "In", ("a",)),)),)},
        {},
        "1 not matching the pod's node affinity",
    ),
    ("cpu", {"cpu": 65000}, {}, "1 with too little cpu in all"),
    ("memory", {"memory": 600_000}, {}, "1 with too little memory in all"),
    ("devices", {"gpu": 9}, {}, "1 with too little nvidia.com/gpu in all"),
    ("pods", {}, {"pods": 0}, "1 with too little pods in all"),
]


@pytest.mark.parametrize(("pod_fields", "node_fields", "words"), [row[1:] for row in UNFIT], ids=[r[0] for r in UNFIT])
def test_an_unfit_node_is_counted_by_its_reason(
    pod_fields: dict[str, Any], node_fields: dict[str, Any], words: str
) -> None:
    found = ask(pod(**pod_fields), node("x1", **node_fields))
    assert found == Feasible(
        frozenset(), "x1", f"0/1 nodes can run this pod in Slurm partition main: {words}.", exclusive=False
    )


TAKEN_DOWN = tuple(Taint(f"node.kubernetes.io/{why}", "", "NoExecute") for why in ("not-ready", "unreachable"))


@pytest.mark.parametrize("states", [{"IDLE", "POWERED_DOWN"}, {"IDLE", "POWERING_DOWN"}, {"IDLE", "POWERING_UP"}])
def test_a_node_that_slurm_has_powered_down_need_not_be_ready_because_slurm_powers_it_up_for_a_job(
    states: set[str],
) -> None:
    asleep = replace(slurm_node("x1"), states=frozenset(states))
    assert ask(pod(), node("x1", ready=False, taints=TAKEN_DOWN), slurm=(asleep,)).nodes == {"x1"}
    assert ask(pod(), node("x1", ready=False, unschedulable=True), slurm=(asleep,)).nodes == frozenset()
    assert ask(pod(), node("x1", ready=False, taints=(Taint("gpu", "h100", "NoSchedule"),)), slurm=(asleep,)).problem
    external = replace(asleep, states=asleep.states | {"EXTERNAL"})
    assert "1 powered down by Slurm for good" in ask(pod(), node("x1"), slurm=(external,)).problem


def test_the_sentence_counts_each_reason_commonest_first() -> None:
    """F3, as kube-scheduler says it."""
    nodes = [node("a", ready=False), node("b", unschedulable=True), node("c", unschedulable=True), node("d"), node("e")]
    slurm = (*(slurm_node(name) for name in "abc"), slurm_node("d", partitions=("gpu",)))
    assert ask(pod(), *nodes, slurm=slurm).problem == (
        "0/5 nodes can run this pod in Slurm partition main: "
        "2 cordoned, 1 not in partition main, 1 not known to Slurm, 1 not ready."
    )


def test_a_cluster_without_nodes_says_so() -> None:
    assert ask(pod()).problem == "0/0 nodes can run this pod in Slurm partition main: the cluster has no nodes."


def test_resources_that_are_taken_now_do_not_exclude_a_node() -> None:
    assert ask(pod(cpu=64000), node("x1")).nodes == {"x1"}


# --- taints and tolerations ---------------------------------------------------------------------------------------

GPU = Taint("gpu", "h100", "NoSchedule")


@pytest.mark.parametrize(
    ("taint", "toleration", "stays_away"),
    [
        (GPU, None, True),
        (GPU, Toleration("gpu", "Equal", "h100", "NoSchedule"), False),
        (GPU, Toleration("gpu", "Equal", "h100"), False),
        (GPU, Toleration("gpu", "", "h100"), False),
        (GPU, Toleration("gpu", "Equal", "a100"), True),
        (GPU, Toleration("gpu", "Exists"), False),
        (GPU, Toleration("gpu", "Exists", "", "NoExecute"), True),
        (GPU, Toleration("", "Exists"), False),
        (GPU, Toleration("", "Equal", "h100"), True),
        (GPU, Toleration("", "Exists", "", "NoSchedule"), False),
        (GPU, Toleration("other", "Exists"), True),
        (GPU, Toleration("gpu", "Gt", "h100"), True),
        (Taint("gpu", "h100", "NoExecute"), None, True),
        (Taint("gpu", "h100", "PreferNoSchedule"), None, False),
        (Taint(names.MANAGED_TAINT, "true", "NoSchedule"), None, False),
    ],
)
def test_a_taint_excludes_pods_that_do_not_tolerate_it(
    taint: Taint, toleration: Toleration | None, stays_away: bool
) -> None:
    """The bridge's own taint keeps only other schedulers away (N7); preferences never block."""
    assert (untolerated([taint], [toleration] if toleration else []) == taint) is stays_away


def test_the_message_names_the_first_taint_that_is_not_tolerated() -> None:
    other = Taint("infiniband", "", "NoExecute")
    assert untolerated([GPU, other], [Toleration("gpu", "Exists")]) == other


# --- node affinity ------------------------------------------------------------------------------------------------

LABELS = {"zone": "a", "cores": "64", "empty": "", "odd": "1_0"}


@pytest.mark.parametrize(
    ("requirement", "holds"),
    [
        (Requirement("zone", "In", ("a", "b")), True),
        (Requirement("zone", "In", ("b",)), False),
        (Requirement("none", "In", ("a",)), False),
        (Requirement("empty", "In", ("",)), True),
        (Requirement("zone", "NotIn", ("b",)), True),
        (Requirement("zone", "NotIn", ("a",)), False),
        (Requirement("none", "NotIn", ("a",)), True),
        (Requirement("empty", "Exists"), True),
        (Requirement("none", "Exists"), False),
        (Requirement("none", "DoesNotExist"), True),
        (Requirement("zone", "DoesNotExist"), False),
        (Requirement("cores", "Gt", ("63",)), True),
        (Requirement("cores", "Gt", ("64",)), False),
        (Requirement("cores", "Lt", ("65",)), True),
        (Requirement("cores", "Lt", ("64",)), False),
        (Requirement("none", "Gt", ("1",)), False),
        (Requirement("none", "Lt", ("1",)), False),
        (Requirement("zone", "Gt", ("1",)), False),
        (Requirement("cores", "Gt", ("many",)), False),
        (Requirement("cores", "Gt", ()), False),
        (Requirement("odd", "Gt", ("5",)), False),
        (Requirement("cores", "Near", ("64",)), False),
    ],
)
def test_expressions_mean_what_kubernetes_says(requirement: Requirement, holds: bool) -> None:
    labelled = node("x1", labels=LABELS)
    assert matcher((term(requirement),))(labelled) is holds


def test_terms_are_alternatives_and_expressions_of_one_term_are_not() -> None:
    yes, no = Requirement("zone", "Exists"), Requirement("none", "Exists")
    labelled = node("x1", labels=LABELS)
    assert matcher((term(no), term(yes)))(labelled)
    assert not matcher((term(yes, no),))(labelled)
    assert not matcher(())(labelled)


def test_an_empty_term_matches_nothing() -> None:
    assert not matcher((term(),))(node("x1"))


def test_a_term_may_name_the_node_itself() -> None:
    by_name = (term(fields=(Requirement("metadata.name", "In", ("x2",)),)),)
    assert ask(pod(node_affinity=by_name), node("x1"), node("x2")) == Feasible(frozenset({"x2"}), "x1")


def test_fields_and_expressions_of_one_term_must_both_hold() -> None:
    both = term(Requirement("zone", "Exists"), fields=(Requirement("metadata.name", "In", ("x1",)),))
    assert matcher((both,))(node("x1", labels=LABELS))
    assert not matcher((both,))(node("x2", labels=LABELS))
    assert not matcher((both,))(node("x1"))


def test_every_bound_volume_must_be_within_reach() -> None:
    """F1: the node affinity of each of the pod's volumes: all of them count."""
    near_a, near_b = (term(Requirement("zone", "In", (zone,))) for zone in "ab")
    one, two = node("x1", labels={"zone": "a"}), node("x2", labels={"zone": "b"})
    assert ask(pod(), one, two, volumes=((near_a,),)).nodes == {"x1"}
    nowhere = ask(pod(), one, two, volumes=((near_a,), (near_b,)))
    assert nowhere.problem.endswith("2 out of reach of the pod's volumes.")


# --- host ports ---------------------------------------------------------------------------------------------------

WEB = HostPort(80)


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        (WEB, WEB, True),
        (WEB, HostPort(81), False),
        (WEB, HostPort(80, "UDP"), False),
        (WEB, HostPort(80, "TCP", "10.0.0.1"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "0.0.0.0"), True),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2"), False),
        (HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.1"), True),
    ],
)
def test_two_pods_cannot_listen_on_the_same_port_of_the_same_address(
    one: HostPort, other: HostPort, conflict: bool
) -> None:
    assert ports_conflict_([one], [other]) is conflict
    assert ports_conflict_([other], [one]) is conflict


def test_a_node_whose_host_port_is_taken_is_left_out() -> None:
    """Slurm cannot queue for ports."""
    web, ports = pod("web", host_ports=(WEB,)), HostPorts()
    ports.add(pod("there", host_ports=(WEB,)), "x1")
    found = ask(web, node("x1"), node("x2"), ports_taken=ports.taken(web))
    assert found == Feasible(frozenset({"x2"}), "x1")
    nowhere = ask(web, node("x1"), ports_taken=ports.taken(web))
    assert nowhere.problem.endswith("1 without a free port for the pod's host ports.")


def test_own_pods_take_no_host_ports_from_each_other() -> None:
    """The answers for other pods are remembered."""
    web, ports = pod("web", host_ports=(WEB,)), HostPorts()
    own = [(pod(f"own-{on}", host_ports=(WEB,)), on) for on in ("x1", "x2")]
    for each, on in own:
        ports.add(each, on)
    assert ports.taken(web) == {"x1", "x2"}
    assert [ports.taken(web, [each]) for each in own] == [{"x2"}, {"x1"}]


def test_a_node_is_compared_until_a_port_is_found_that_is_taken() -> None:
    ports = HostPorts()
    ports.add(pod("there", host_ports=tuple(HostPort(80, "TCP", f"10.0.0.{number}") for number in range(50))), "x1")
    assert ports.taken(pod(host_ports=(WEB,))) == {"x1"}
    assert ports.effort == 1


def test_a_pod_without_host_ports_may_run_where_all_ports_are_taken() -> None:
    ports = HostPorts()
    ports.add(pod("there", host_ports=(ALL_PORTS,)), "x1")
    assert ports.taken(pod()) == set()
    assert ports.taken(pod(host_ports=(WEB,))) == {"x1"}


def test_a_long_node_affinity_takes_more_of_a_pass() -> None:
    long = pod(node_affinity=tuple(term(Requirement("zone", "Exists")) for _ in range(64)))
    assert [weight(node_requirements(each, JobSpec("", "", 1, 1), "")) for each in (pod(), long)] == [1, 5]


# --- G2: devices --------------------------------------------------------------------------------------------------

EXTERNAL, NATIVE = slurm_node("x1"), slurm_node("n1", external=False)
GPU_1 = (("gpu", 1),)


def test_pods_with_devices_use_external_nodes_if_there_are_some() -> None:
    found = ask(pod(gpu=1), node("x1"), node("n1"), slurm=(EXTERNAL, NATIVE), gres=GPU_1)
    assert found == Feasible(frozenset({"x1"}), "n1")


def test_without_external_nodes_a_pod_with_devices_takes_a_whole_node() -> None:
    found = ask(pod(gpu=1), node("x1", ready=False), node("n1"), slurm=(EXTERNAL, NATIVE), gres=GPU_1)
    assert found == Feasible(frozenset({"n1"}), "x1", exclusive=True)


def test_pods_without_devices_share_the_cores_of_either() -> None:
    found = ask(pod(), node("x1"), node("n1"), slurm=(EXTERNAL, NATIVE))
    assert found == Feasible(frozenset({"x1", "n1"}), "")


def test_the_answer_depends_on_a_pod_only_through_its_node_requirements() -> None:
    spec = JobSpec("job", "alice", 1, 1)
    one, other = pod("a", node_selector={"x": "1", "y": "2"}), pod("b", node_selector={"y": "2", "x": "1"})
    assert node_requirements(one, spec, "main") == node_requirements(other, spec, "main")
    assert (
        len(
            {
                node_requirements(one, spec, "main"),
                node_requirements(other, spec, "main"),
                node_requirements(one, spec, "gpu"),
            }
        )
        == 2
    )
    assert node_requirements(pod("c", cpu=2000), spec, "main").needs == tuple(
        sorted((amounts(cpu=2000, memory=100) | {"pods": 1}).items())
    )


def test_volumes_with_equal_node_affinity_are_judged_once() -> None:
    """A pod may have 64 claims, and a volume any number of terms: read again for each node, they took a second of a pass."""
    near = (term(Requirement("zone", "In", ("a",))),)
    far = (term(Requirement("zone", "In", ("b",))),)
    made = checks(node_requirements(pod(), JobSpec("", "", 1, 1), "", (near,) * 63 + (far,)))
    assert [reaches(node("x1", labels={"zone": "a"})) for reaches in made.volumes] == [True, False]


def with_port(name: str, **fields: Any) -> Pod:
    return pod(name, host_ports=(HostPort(8080),), **fields)


def test_a_host_port_that_two_pods_of_a_node_hold_is_taken_until_both_are_gone() -> None:
    there = NodeInfo()
    leaving, new = with_port("leaving", deleting_at=100.0), with_port("new")
    there.put(leaving)
    there.put(with_port("follows"))
    there.remove(leaving.uid)
    assert [each.name for each in there.holding_ports(new.host_ports)] == ["follows"]
    there.remove("uid-follows")
    assert list(there.holding_ports(new.host_ports)) == []


def test_a_pod_does_not_wait_for_its_own_host_port_nor_a_terminating_one_for_good() -> None:
    there = NodeInfo()
    there.put(with_port("new"))
    assert blocked(with_port("new"), node(), "x1", [there]) is None
    there.put(with_port("leaving", deleting_at=100.0))
    waits = blocked(with_port("new"), node(), "x1", [there])
    assert waits is not None
    assert waits.until is not None
    there.put(with_port("stays"))
    waits = blocked(with_port("new"), node(), "x1", [there])
    assert waits is not None
    assert (waits.why, waits.until) == ("on node x1 other pods use the host port that the pod needs", None)


def test_an_update_of_a_terminating_pod_does_not_prolong_its_grace() -> None:
    there = NodeInfo()
    there.put(pod("leaving", deleting_at=100.0, grace_s=30.0), at=80.0)
    ends = there.grace_ends("uid-leaving")
    there.put(pod("leaving", deleting_at=100.0, grace_s=30.0, labels={"a": "b"}), at=20.0)
    assert there.grace_ends("uid-leaving") == ends
    there.put(pod("leaving", deleting_at=70.0, grace_s=0.0), at=20.0)
    assert there.grace_ends("uid-leaving") != ends


# --- nodes and partitions change in Slurm ---------------------------------------------------------------------------------

GPU_THEN_MAIN = (Partition("gpu"), Partition("main", default=True))
BY_DEFAULT_GPU = (Partition("gpu", default=True), Partition("main"))


@pytest.mark.parametrize(
    ("of_node", "partitions", "then_of_node", "then_partitions"),
    [(("gpu",), GPU_THEN_MAIN, ("main",), GPU_THEN_MAIN), (("main",), BY_DEFAULT_GPU, ("main",), GPU_THEN_MAIN)],
    ids=["a node joins the default partition", "another partition is the default"],
)
def test_a_pod_that_no_node_could_run_is_asked_for_as_soon_as_slurm_shows_that_one_can(
    of_node: tuple[str, ...],
    partitions: tuple[Partition, ...],
    then_of_node: tuple[str, ...],
    then_partitions: tuple[Partition, ...],
) -> None:
    story = Story(nodes=(node("x1"),))
    story.sees(SlurmNodesPolled((slurm_node("x1", partitions=of_node),), partitions, START + 1), pod())
    assert not story.acts(AllocateNow, START + 2)
    story.sees(SlurmNodesPolled((slurm_node("x1", partitions=then_of_node),), then_partitions, START + 3))
    assert len(story.acts(AllocateNow, START + 3)) == 1
