"""Labelled Kubernetes nodes are external nodes of Slurm, both ways, and no other node is ever touched (N1-N7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    ChangeNode,
    NodeChange,
    Outcome,
    PollNodes,
    Reconfigure,
    RegisterNode,
    RemoveNode,
    SetNodeCondition,
    TaintNode,
    UnmarkNode,
    is_as_found,
)
from scheduler.apply.events import new_world
from scheduler.decide import decide, visit_nodes
from scheduler.events import (
    Event,
    JobsPolled,
    NamespacesListed,
    NodeDeleted,
    NodeSeen,
    NodesListed,
    OutageBegan,
    OutageEnded,
    Planned,
    PodSeen,
    PodsListed,
    Scope,
    Side,
    SlurmNodesPolled,
    UndecodedItems,
)
from scheduler.model.anomaly import Anomaly
from scheduler.model.kubernetes import Condition, Node, PodPhase, Taint
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import NodeSpec, Partition, SlurmNode
from scheduler.nodes.registration import ExternalNodes
from scheduler.rules.reconcile_nodes import CORDONED, NOT_READY
from scheduler.rules.scheduling_pass import Pass
from scheduler.tuning import Config
from tests.builders import CLUSTER, CONFIG, KUBE_SYSTEM, START, Story, node, pod

MARK = names.node_mark(CLUSTER)
LABEL = {names.EXTERNAL_NODE_LABEL: "true"}
TAINT = (Taint(names.MANAGED_TAINT, "true", "NoSchedule"),)
PARTITIONS = (Partition("main", default=True), Partition("gpu"))
IN_SERVICE = Condition(True, names.NODE_IN_SERVICE, "In service in Slurm as x1; partitions: main, gpu.")
NOW = START + 20
CURED = replace(CONFIG, external_nodes=ExternalNodes(cure=True))
DRAIN, RESUME, DOWN = NodeChange.DRAIN, NodeChange.RESUME, NodeChange.DOWN


def labelled(name: str = "x1", **fields: Any) -> Node:
    """A node that the admin wants in Slurm, in the state in which nothing is to be done."""
    given: dict[str, Any] = {"labels": LABEL, "uid": f"uid-{name}", "address": "198.51.100.7", "taints": TAINT}
    return node(name, **(given | {"in_slurm": IN_SERVICE} | fields))


def in_slurm(name: str = "x1", *states: str, reason: str = "", **fields: Any) -> SlurmNode:
    """The node as the bridge registered it."""
    given: dict[str, Any] = {
        "states": frozenset({"EXTERNAL", "DYNAMIC_NORM", *(states or ("IDLE",))}),
        "partitions": ("main", "gpu"),
        "features": (MARK,),
        "cpus": 63,
        "memory_mib": 510_976,
        "gres": {"gpu": 8},
        "reason": reason,
    }
    return SlurmNode(name, **(given | fields))


def drained(reason: str, *states: str, **fields: Any) -> SlurmNode:
    return in_slurm("x1", "DRAIN", *(states or ("IDLE",)), reason=reason, **fields)


class Nodes(Story):
    """A Story of nodes alone: what Slurm shows at each poll, and what is done then."""

    def __init__(self, nodes: Iterable[Node], known: Iterable[SlurmNode] = (), config: Config = CONFIG) -> None:
        super().__init__(config, tuple(nodes))
        self.shows(*known, at=START)

    def shows(self, *known: SlurmNode, at: float) -> None:
        self.sees(SlurmNodesPolled(known, PARTITIONS, at))

    def looks(self, at: float = NOW, *, everything: bool = False) -> list[Action]:
        this_pass = Pass(self.world, at)
        visit_nodes(this_pass, everything=everything)
        plan = this_pass.plan()
        self.world.apply(Planned(plan, at))
        return list(plan.actions)

    def stays(self, *known: SlurmNode, at: float, until: float) -> list[list[Action]]:
        """Slurm's nodes are polled every 30 s and stay so; what is done after each poll."""
        done = []
        while at <= until:
            self.shows(*known, at=at)
            done.append(self.looks(at))
            at += 30
        return done


# --- registration (N1) --------------------------------------------------------------------------------------------


def test_a_labelled_node_is_registered_with_its_address_devices_features_and_less_its_reserve() -> None:
    labels = LABEL | {"zone": "a-1"}
    config = replace(CONFIG, external_nodes=ExternalNodes(2, 2048, feature_labels=("zone", "absent")))
    nodes = Nodes([labelled(labels=labels, partitions="gpu, main", taints=())], config=config)
    [register] = nodes.looks()
    assert isinstance(register, RegisterNode)
    assert register.spec == NodeSpec("x1", "198.51.100.7", 62, 509_952, (("gpu", 8),), (MARK, "gpu", "main", "a-1"))
    assert nodes.looks(NOW + 1) == [], "it is under way"


def test_a_registered_node_is_shown_and_then_tainted() -> None:
    bare = labelled(taints=(), in_slurm=None)
    nodes = Nodes([bare])
    [register] = nodes.looks()
    nodes.ended(register, at=NOW + 1)
    nodes.shows(at=NOW + 0.5)
    assert nodes.looks(NOW + 1) == [], "that poll began before the end"
    nodes.shows(in_slurm(), at=NOW + 1)
    [show] = nodes.looks(NOW + 1)
    assert isinstance(show, SetNodeCondition)
    assert (show.status, show.condition, show.message) == (True, IN_SERVICE.reason, IN_SERVICE.message)
    nodes.sees(NodeSeen(replace(bare, in_slurm=IN_SERVICE)))
    assert nodes.looks(NOW + 3) == [TaintNode("x1", "uid-x1", "its pods come by way of Slurm")]
    nodes.sees(NodeSeen(labelled()))
    assert nodes.looks(NOW + 4) == []
    assert nodes.looks(NOW + 4, everything=True) == []


def test_an_older_poll_of_nodes_that_comes_late_is_not_believed() -> None:
    """After an action nodes are polled out of turn: the poll whose turn it was may be under way still."""
    nodes = Nodes([labelled()])
    [register] = nodes.looks()
    nodes.ended(register, at=NOW + 1)
    nodes.shows(in_slurm(), at=NOW + 2)
    nodes.sees(SlurmNodesPolled((), PARTITIONS, NOW + 3, began=NOW))
    assert nodes.looks(NOW + 3) == []
    assert list(nodes.world.slurm_nodes or {}) == ["x1"]
    assert nodes.world.rejected[Anomaly.OLD_POLL] == 1


def test_many_nodes_are_registered_a_few_at_a_time_with_few_polls() -> None:
    nodes = Nodes([labelled(f"x{i}") for i in range(9)])
    nodes.shows(at=NOW)
    registered, polls = 0, 0
    under_way = nodes.looks()
    while under_way:
        assert len(under_way) <= 2
        done, *under_way = under_way
        nodes.ended(done, at=NOW + 1)
        registered += 1
        under_way += nodes.looks(NOW + 1)
        polls += nodes.world.nodes_stale
        nodes.world.nodes_stale = False
    assert registered == 9
    assert 1 <= polls <= 3, "not one a node"


def test_without_the_taint_other_schedulers_are_let_in() -> None:
    config = replace(CONFIG, external_nodes=ExternalNodes(taint=False))
    assert Nodes([labelled(taints=())], [in_slurm()], config).looks() == []


def test_nothing_is_done_in_the_quiet_period_nor_while_a_side_is_away() -> None:
    nodes = Nodes([labelled()])
    assert nodes.looks(START + 1) == []
    nodes.sees(OutageBegan(Side.KUBERNETES, NOW, "it does not answer."))
    assert nodes.looks(NOW) == []
    nodes.sees(OutageEnded(Side.KUBERNETES, NOW + 1))
    assert [type(each) for each in nodes.looks(NOW + 1)] == [RegisterNode]


def test_a_node_that_is_not_ready_or_cordoned_is_registered_later() -> None:
    late = "has been ready for 60 s, so that its devices are known"
    cases = (({"ready": False}, "is ready"), ({"unschedulable": True}, "is uncordoned"), ({"ready_since": NOW}, late))
    for fields, what in cases:
        nodes = Nodes([labelled(**fields)])
        [show] = nodes.looks()
        assert isinstance(show, SetNodeCondition)
        assert (show.condition, show.warning) == (names.NODE_WAITS, False)
        assert show.message == f"It is registered in Slurm as x1 as soon as it {what}."
        nodes.sees(NodeSeen(labelled()))
        assert [type(each) for each in nodes.looks(NOW + 1)] == [RegisterNode]


def test_a_node_that_has_just_come_is_registered_with_the_devices_that_show_a_little_later() -> None:
    nodes = Nodes([labelled(gpu=0, ready_since=NOW)])
    [wait] = nodes.looks(NOW + 1)
    assert isinstance(wait, SetNodeCondition)
    shown = Condition(False, wait.condition, wait.message)
    nodes.sees(NodeSeen(labelled(gpu=8, ready_since=NOW, in_slurm=shown)))
    assert nodes.stays(at=NOW + 10, until=NOW + 40) == [[], []]
    nodes.shows(at=NOW + 70)
    [register] = nodes.looks(NOW + 70)
    assert isinstance(register, RegisterNode)
    assert register.spec.gres == (("gpu", 8),)


# --- bad input ----------------------------------------------------------------------------------------------------

BAD = [
    (labelled(labels=LABEL | {names.SLURM_NODE_LABEL: "-x"}), 'Slurm does not accept a node named "-x".'),
    (labelled(labels=LABEL | {names.SLURM_NODE_LABEL: "DEFAULT"}), 'Slurm does not accept a node named "DEFAULT".'),
    (labelled(address=""), "The node has no InternalIP"),
    (labelled(address="10.0.0.7\nState=UP"), 'InternalIP "10.0.0.7\ufffdState=UP" is not an address'),
    (labelled(partitions="main,gpux"), 'Slurm has no partition "gpux". Correct the annotation'),
    (labelled(partitions="main,gpux"), "Slurm has: gpu, main."),
    (labelled(address="fe80::1%eth0"), "has a scope (%)"),
    (labelled(partitions=",".join(["main"] + [f"p{n}" for n in range(64)])), 'Slurm has no partition "p0"'),
    (labelled(partitions="main State=UP"), 'Slurm has no partition "main State=UP".'),
    (labelled(cpu=0), "nothing is left for Slurm"),
    (labelled(cpu=1999), "nothing is left for Slurm"),
    (labelled(memory=0), "nothing is left for Slurm"),
]


@pytest.mark.parametrize(("wrong", "said"), BAD)
def test_what_cannot_be_registered_says_why_and_the_others_go_on(wrong: Node, said: str) -> None:
    nodes = Nodes([wrong, labelled("x2")])
    show, register = nodes.looks()
    assert isinstance(show, SetNodeCondition)
    assert (show.node, show.status, show.condition, show.warning) == ("x1", False, names.NODE_INVALID, True)
    assert said in show.message
    assert isinstance(register, RegisterNode)
    assert register.spec.name == "x2"


def test_a_node_is_registered_where_its_labels_say_that_it_is_in_slurms_topologies() -> None:
    settings = ExternalNodes(topology={"tree": "example.com/switch", "blocks": "example.com/block", "ring": "absent"})
    labels = LABEL | {"example.com/switch": "s1", "example.com/block": "b-2"}
    nodes = Nodes([labelled(labels=labels)], config=replace(CONFIG, external_nodes=settings))
    [register] = nodes.looks()
    assert isinstance(register, RegisterNode)
    assert register.spec.topology == (("blocks", "b-2"), ("tree", "s1"))


def test_a_label_that_is_no_feature_is_left_out() -> None:
    config = replace(CONFIG, external_nodes=ExternalNodes(feature_labels=("zone",)))
    [register] = Nodes([labelled(labels=LABEL | {"zone": "a b,State=UP"})], config=config).looks()
    assert isinstance(register, RegisterNode)
    assert register.spec.features == (MARK,)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (in_slurm(features=("h100",)), "this slurm-bridge did not register"),
        (in_slurm(features=("h100",)), "when no job is there: scontrol delete nodename=x1. Otherwise remove"),
        (  # of slurm.conf
            in_slurm(features=("h100",), states=frozenset({"EXTERNAL", "IDLE"})),
            "already, which is in slurm.conf. To let slurm-bridge manage it, drain it, and when no job is there: take it out "
            "of slurm.conf, and scontrol reconfigure. Otherwise remove",
        ),
        (in_slurm(features=("slurm-bridge-k00000000",)), "this slurm-bridge did not register"),
        (
            SlurmNode("x1", frozenset({"IDLE"}), ("main",), (), 64, 512_000, {"gpu": 8}),
            "an ordinary node, with a slurmd",
        ),
    ],
)
def test_a_node_that_another_bridge_made_in_slurm_is_left_alone_and_reported(known: SlurmNode, said: str) -> None:
    for wanted in (labelled(unschedulable=True), labelled(ready=False), labelled(gpu=4), labelled(taints=())):
        nodes = Nodes([wanted], [known])
        [show] = nodes.looks()
        assert isinstance(show, SetNodeCondition)
        assert (show.condition, show.warning) == (names.NODE_NOT_OURS, True)
        assert said in show.message
        nodes.sees(NodeSeen(replace(wanted, in_slurm=Condition(False, show.condition, show.message))))
        assert nodes.stays(known, at=NOW, until=NOW + 1200) == [[]] * 41
    gone = Nodes([labelled(), node("x2")], [known])
    gone.sees(NodeDeleted("x1"))
    assert gone.stays(known, at=NOW, until=NOW + 1200) == [[]] * 41


def test_a_refused_node_shows_what_to_do_and_is_tried_again_after_a_while_or_a_change() -> None:
    nodes = Nodes([labelled()])
    [register] = nodes.looks()
    nodes.ended(register, Outcome.REFUSED, at=NOW, number=2168)
    nodes.shows(at=NOW + 1)
    [show] = nodes.looks(NOW + 1)
    assert isinstance(show, SetNodeCondition)
    assert (show.condition, show.warning) == (names.NODE_REFUSED, True)
    assert show.message == ("Slurm refused it (error 2168). Another client created it meanwhile.")
    nodes.sees(NodeSeen(labelled(in_slurm=Condition(False, show.condition, show.message))))
    nodes.shows(at=NOW + 31)
    assert nodes.looks(NOW + 31) == []
    nodes.shows(at=NOW + 61)
    assert [type(each) for each in nodes.looks(NOW + 61)] == [RegisterNode]
    nodes.ended(register, Outcome.REFUSED, at=NOW + 62, number=2168)
    nodes.shows(at=NOW + 63)
    assert nodes.looks(NOW + 63) == []
    nodes.sees(NodeSeen(labelled(gpu=0)))
    assert [type(each) for each in nodes.looks(NOW + 64)] == [RegisterNode], "without devices it may be taken"


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.UNREACHED])
def test_a_node_whose_request_was_lost_is_tried_again_as_soon_as_a_late_request_would_show(outcome: Outcome) -> None:
    """One lost answer does not keep a node out of service for a minute, as a refusal does."""
    nodes = Nodes([labelled()])
    [register] = nodes.looks()
    nodes.ended(register, outcome, at=NOW, refusal=Refusal(names.REFUSED, "No answer came."))
    nodes.shows(at=NOW + 11)
    assert not any(isinstance(each, RegisterNode) for each in nodes.looks(NOW + 11))
    nodes.shows(at=NOW + 12)
    assert any(isinstance(each, RegisterNode) for each in nodes.looks(NOW + 12))


def test_devices_that_slurm_does_not_count_are_reported_and_registering_again_is_not_tried() -> None:
    """Slurm makes such a node, without its devices and without a word."""
    nodes = Nodes([labelled()], [in_slurm(gres={})])
    [show] = nodes.looks()
    assert isinstance(show, SetNodeCondition)
    assert (show.condition, show.warning) == (names.NODE_REFUSED, True)
    assert "in service without its devices gpu, which no node of this Slurm has: name them in GresTypes" in show.message
    nodes.sees(NodeSeen(labelled(in_slurm=Condition(False, show.condition, show.message))))
    assert not any(nodes.stays(in_slurm(gres={}), at=NOW + 30, until=NOW + 1500))


def test_a_partition_without_a_nodeset_of_that_feature_is_reported() -> None:
    nodes = Nodes([labelled(partitions="main,gpu")], [in_slurm(partitions=("main",), features=(MARK, "gpu"))])
    [show] = nodes.looks()
    assert isinstance(show, SetNodeCondition)
    assert (show.status, show.condition) == (False, names.NODE_OUTSIDE)
    assert show.message.endswith(
        "not in partition gpu: slurm.conf needs NodeSet=NAME Feature=gpu, and NAME in Nodes= of that "
        "partition; then scontrol reconfigure."
    )
    nodes.shows(in_slurm(partitions=("main",)), at=NOW + 30)
    [show] = nodes.looks(NOW + 30)
    assert isinstance(show, SetNodeCondition)
    assert "was changed after the node was registered" in show.message


# --- drain, both ways (N2, N4) ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fields", "reason"), [({"unschedulable": True}, CORDONED), ({"ready": False}, NOT_READY)])
def test_cordoned_or_not_ready_is_drained_and_back_in_service_when_that_is_over(
    fields: dict[str, Any], reason: str
) -> None:
    nodes = Nodes([labelled()], [in_slurm()])
    assert nodes.looks() == []
    nodes.sees(NodeSeen(labelled(**fields)))
    [drain] = nodes.looks(NOW + 1)
    assert drain == ChangeNode("x1", DRAIN, reason, in_slurm())
    nodes.ended(drain, at=NOW + 1)
    nodes.shows(drained(reason, "MIXED"), at=NOW + 2)
    [show] = nodes.looks(NOW + 2)
    assert isinstance(show, SetNodeCondition)
    assert (show.condition, show.message) == (names.NODE_DRAINED, f"Slurm node x1 is drained: {reason}.")
    assert show.warning is ("ready" in fields), "who cordons it need not be warned"
    nodes.sees(NodeSeen(labelled()))
    [resume] = nodes.looks(NOW + 3)
    assert isinstance(resume, ChangeNode)
    assert (resume.name, resume.change) == ("x1", RESUME)


@pytest.mark.parametrize("states", [("DRAIN", "IDLE"), ("DOWN",), ("DOWN", "DRAIN"), ("DRAIN", "ALLOCATED")])
def test_what_an_admin_drained_or_set_down_stays_so_and_is_shown(states: tuple[str, ...]) -> None:
    theirs = in_slurm("x1", *states, reason="fan broken.")
    for wanted in (labelled(), labelled(unschedulable=True), labelled(ready=False), labelled(gpu=4)):
        nodes = Nodes([wanted], [theirs])
        [show] = nodes.looks()
        assert isinstance(show, SetNodeCondition)
        assert show.message.endswith(": fan broken.")
        nodes.sees(NodeSeen(replace(wanted, in_slurm=Condition(False, show.condition, show.message))))
        assert nodes.stays(theirs, at=NOW, until=NOW + 1200) == [[]] * 41
        nodes.sees(NodeSeen(labelled(in_slurm=Condition(False, show.condition, show.message))))
        assert nodes.looks(NOW + 1201) == []


def test_a_node_that_is_dead_is_set_down_only_when_nothing_is_left_there_and_comes_back_when_ready() -> None:
    away = labelled(
        ready=False, in_slurm=Condition(False, names.NODE_DRAINED, f"Slurm node x1 is drained: {NOT_READY}.")
    )
    busy, empty = drained(NOT_READY, "MIXED"), drained(NOT_READY)
    nodes = Nodes([away], [busy])
    assert nodes.stays(busy, at=NOW, until=NOW + 900) == [[]] * 31, "a job may still run there"
    ours = pod(node="x1", phase=PodPhase.RUNNING)
    nodes.sees(ours)
    assert nodes.stays(empty, at=NOW + 930, until=NOW + 1200) == [[]] * 10, "so may a pod"
    nodes.loses(ours, NOW + 1201)
    nodes.shows(empty, at=NOW + 1230)
    [down] = nodes.looks(NOW + 1230)
    assert down == ChangeNode("x1", DOWN, NOT_READY, in_slurm())
    nodes.ended(down, at=NOW + 1231)
    nodes.shows(in_slurm("x1", "DOWN", "DRAIN", reason=NOT_READY), at=NOW + 1232)
    assert [type(each) for each in nodes.looks(NOW + 1232)] == [SetNodeCondition]
    nodes.sees(NodeSeen(labelled()))
    [resume] = nodes.looks(NOW + 1300)
    assert isinstance(resume, ChangeNode)
    assert resume.change is RESUME


def test_a_node_that_was_set_down_and_is_ready_but_cordoned_is_drained_instead() -> None:
    down = in_slurm("x1", "DOWN", "DRAIN", reason=NOT_READY)
    nodes = Nodes([labelled(unschedulable=True)], [down])
    [resume] = nodes.looks()
    assert isinstance(resume, ChangeNode)
    assert resume.change is RESUME
    nodes.ended(resume, at=NOW)
    nodes.shows(in_slurm(), at=NOW + 1)
    assert nodes.looks(NOW + 1) == [ChangeNode("x1", DRAIN, CORDONED, in_slurm())]


def test_a_node_that_comes_and_goes_is_not_set_down() -> None:
    shown = Condition(False, names.NODE_DRAINED, f"Slurm node x1 is drained: {NOT_READY}.")
    away, empty = labelled(ready=False, in_slurm=shown), drained(NOT_READY)
    nodes = Nodes([away], [empty])
    for at in range(0, 1200, 240):
        assert not [each for done in nodes.stays(empty, at=NOW + at, until=NOW + at + 200) for each in done]
        nodes.sees(NodeSeen(labelled(in_slurm=shown)), NodeSeen(away))


# --- replaced only for a reason (N1) ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (labelled(gpu=4), "it has 4 gpu now"),
        (labelled(gpu=0), "it has no devices now"),
        (labelled(cpu=62_000), "it has 62 CPUs now"),
        (labelled(memory=400_000), "it has 400,000 MiB now"),
    ],
)
def test_a_node_that_is_steadily_less_is_drained_emptied_removed_and_registered_again(now: Node, why: str) -> None:
    nodes = Nodes([labelled()], [in_slurm("x1", "MIXED")])
    nodes.sees(NodeSeen(now))
    assert nodes.stays(in_slurm("x1", "MIXED"), at=NOW, until=NOW + 599) == [[]] * 20
    nodes.sees(NodeSeen(replace(now, labels={**LABEL, "seen": "again"})))
    nodes.shows(in_slurm("x1", "MIXED"), at=NOW + 600)
    [drain] = nodes.looks(NOW + 600)
    reason = f"slurm-bridge: to be registered again: {why}"
    assert drain == ChangeNode("x1", DRAIN, reason, in_slurm())
    nodes.ended(drain, at=NOW + 601)
    nodes.shows(drained(reason, "MIXED"), at=NOW + 602)
    assert [type(each) for each in nodes.looks(NOW + 602)] == [SetNodeCondition]

    again = Nodes([now], [drained(reason)])  # a later life goes on with it
    [remove] = again.looks()
    assert isinstance(remove, RemoveNode)
    again.ended(remove, at=NOW + 1)
    again.shows(at=NOW + 2)
    [register] = again.looks(NOW + 2)
    assert isinstance(register, RegisterNode)


def test_a_restarting_device_plugin_does_not_drain_a_node() -> None:
    nodes = Nodes([labelled()], [in_slurm()])
    for at in range(0, 1800, 300):
        nodes.sees(NodeSeen(labelled(gpu=0)))
        assert not [each for done in nodes.stays(in_slurm(), at=NOW + at, until=NOW + at + 299) for each in done]
        nodes.sees(NodeSeen(labelled()), NodeSeen(labelled(gpu=0)))  # between two polls it was well
    nodes.sees(NodeSeen(labelled()))
    assert nodes.stays(in_slurm(), at=NOW + 1800, until=NOW + 2700) == [[]] * 31


@pytest.mark.parametrize("now", [labelled(cpu=63_000), labelled(cpu=128_000), labelled(memory=511_000)])
def test_a_loss_within_the_reserve_or_a_grown_node_does_not_drain_it(now: Node) -> None:
    assert Nodes([now], [in_slurm()]).stays(in_slurm(), at=NOW, until=NOW + 1200) == [[]] * 41


def test_a_replacement_of_a_node_whose_reason_is_gone_is_cancelled() -> None:
    nodes = Nodes([labelled()], [drained("slurm-bridge: to be registered again: it has 4 gpu now", "MIXED")])
    [resume] = nodes.looks()
    assert isinstance(resume, ChangeNode)
    assert resume.change is RESUME


def test_another_change_of_size_starts_the_wait_again() -> None:
    nodes = Nodes([labelled()], [in_slurm()])
    for at, gpus in ((NOW, 7), (NOW + 600, 6), (NOW + 1200, 5)):
        nodes.sees(NodeSeen(labelled(gpu=gpus)))
        assert nodes.stays(in_slurm(), at=at, until=at + 599) == [[]] * 20


# --- removed (N5) and left alone (N6) -----------------------------------------------------------------------------


def test_a_node_that_is_gone_in_kubernetes_is_drained_and_removed_once_idle() -> None:
    nodes = Nodes([labelled(), node("x2")], [in_slurm("x1", "MIXED")])
    nodes.sees(NodeDeleted("x1"))
    [drain] = nodes.looks()
    assert drain == ChangeNode("x1", DRAIN, "slurm-bridge: its Kubernetes node is gone", in_slurm())
    nodes.ended(drain, at=NOW)
    reason = "slurm-bridge: its Kubernetes node is gone"
    assert nodes.stays(drained(reason, "MIXED"), at=NOW + 1, until=NOW + 600) == [[]] * 20, "a job runs there"
    nodes.shows(drained(reason, "IDLE", "COMPLETING"), at=NOW + 630)
    assert nodes.looks(NOW + 630) == []
    nodes.shows(drained(reason), at=NOW + 660)
    [remove] = nodes.looks(NOW + 660)
    assert remove == RemoveNode("x1", "its Kubernetes node is gone", in_slurm())
    nodes.ended(remove, at=NOW + 661)
    nodes.shows(at=NOW + 662)
    assert nodes.looks(NOW + 662) == []


def test_a_node_that_is_back_within_a_minute_keeps_its_place() -> None:
    nodes = Nodes([labelled(), node("x2")], [in_slurm()])
    nodes.sees(NodeDeleted("x1"))
    [drain] = nodes.looks()
    nodes.ended(drain, at=NOW)
    gone = drained("slurm-bridge: its Kubernetes node is gone")
    assert nodes.stays(gone, at=NOW + 1, until=NOW + 59) == [[], []]
    nodes.sees(NodeSeen(labelled()))
    [resume] = nodes.looks(NOW + 60)
    assert isinstance(resume, ChangeNode)
    assert resume.change is RESUME


def test_a_node_whose_label_was_taken_is_removed_and_then_released() -> None:
    bare = replace(labelled(), labels={})
    nodes = Nodes([labelled()], [in_slurm()])
    nodes.sees(NodeSeen(bare))
    [drain] = nodes.looks()
    reason = "slurm-bridge: no label slurm-bridge/external-node=true any more"
    assert drain == ChangeNode("x1", DRAIN, reason, in_slurm())
    nodes.ended(drain, at=NOW)
    nodes.shows(drained(reason), at=NOW + 1)
    [show] = nodes.looks(NOW + 1)
    assert isinstance(show, SetNodeCondition)
    assert show.message == "Slurm node x1 is drained, and removed when no job is left there."
    shown = replace(bare, in_slurm=Condition(False, show.condition, show.message))
    nodes.sees(NodeSeen(shown))
    nodes.shows(drained(reason), at=NOW + 61)
    [remove] = nodes.looks(NOW + 61)
    nodes.ended(remove, at=NOW + 62)
    nodes.shows(at=NOW + 63)
    assert nodes.looks(NOW + 63) == [UnmarkNode("x1", "uid-x1", "it is not in Slurm any more")]
    nodes.sees(NodeSeen(replace(shown, in_slurm=None, taints=())))
    assert nodes.looks(NOW + 64) == []


def test_a_kubernetes_without_any_node_is_not_believed() -> None:
    nodes = Nodes([labelled()], [in_slurm()])
    nodes.sees(NodesListed(()))
    [drain] = nodes.looks()
    nodes.ended(drain, at=NOW)
    gone = drained("slurm-bridge: its Kubernetes node is gone")
    assert nodes.stays(gone, at=NOW + 1, until=NOW + 3600) == [[]] * 120


def test_nodes_that_only_one_side_knows_or_that_an_admin_does_not_share_are_left_alone_silently() -> None:
    only_slurm, both = in_slurm("n1", features=()), in_slurm("x1", "DOWN", features=(), reason="disk")
    hand_tainted = node("x1", taints=TAINT, unschedulable=True)
    nodes = Nodes([hand_tainted, node("x2", ready=False)], [only_slurm, both])
    assert nodes.stays(only_slurm, both, at=NOW, until=NOW + 1200) == [[]] * 41
    assert nodes.looks(NOW + 1201, everything=True) == []


# --- not responding (N3) ------------------------------------------------------------------------------------------


def test_an_external_node_that_does_not_respond_is_named_and_left_alone_while_jobs_are_there() -> None:
    silent = in_slurm("x1", "MIXED", "NOT_RESPONDING")
    nodes = Nodes([labelled()], [silent], CURED)
    [show] = nodes.looks()
    assert isinstance(show, SetNodeCondition)
    assert (show.condition, show.warning) == (names.NODE_SILENT, True)
    nodes.sees(NodeSeen(labelled(in_slurm=Condition(False, show.condition, show.message))))
    assert not any(nodes.stays(silent, at=NOW, until=NOW + 1200))


def test_a_node_that_does_not_respond_is_registered_again_when_no_job_is_there() -> None:
    silent = in_slurm("x1", "IDLE", "NOT_RESPONDING")
    nodes = Nodes([labelled()], [silent])
    done = [each for some in nodes.stays(silent, at=NOW, until=NOW + 90) for each in some]
    [remove] = [each for each in done if not isinstance(each, SetNodeCondition)]
    assert isinstance(remove, RemoveNode)
    nodes.ended(remove, at=NOW + 91)
    nodes.shows(at=NOW + 92)
    assert [type(each) for each in nodes.looks(NOW + 92)] == [RegisterNode]


@pytest.mark.parametrize(
    "silent",
    [
        drained("fan is broken", "IDLE", "NOT_RESPONDING"),
        in_slurm("x1", "IDLE", "NOT_RESPONDING", features=()),
    ],
    ids=["an-admin-drained-it", "somebody-elses"],
)
def test_a_silent_node_of_an_admin_or_another_bridge_is_left_alone(silent: SlurmNode) -> None:
    nodes = Nodes([labelled()], [silent])
    done = [each for some in nodes.stays(silent, at=NOW, until=NOW + 1200) for each in some]
    assert {type(each) for each in done} == {SetNodeCondition}


# --- failures -----------------------------------------------------------------------------------------------------


def test_a_removal_that_slurm_refuses_is_tried_again_after_a_while() -> None:
    nodes = Nodes([node("x2")], [drained("slurm-bridge: its Kubernetes node is gone")])
    known = drained("slurm-bridge: its Kubernetes node is gone")
    nodes.shows(known, at=NOW + 60)
    [remove] = nodes.looks(NOW + 60)
    nodes.ended(remove, Outcome.REFUSED, at=NOW + 61, number=2016)
    nodes.shows(known, at=NOW + 90)
    assert nodes.looks(NOW + 90) == []
    nodes.shows(known, at=NOW + 122)
    assert nodes.looks(NOW + 122) == [remove]


def test_a_lost_answer_about_a_node_is_followed_by_a_poll() -> None:
    nodes = Nodes([labelled(unschedulable=True)], [in_slurm()])
    [drain] = nodes.looks()
    nodes.ended(drain, Outcome.UNKNOWN, at=NOW + 10)
    assert nodes.world.nodes_stale, "its nodes are asked for at once"
    assert nodes.looks(NOW + 10) == []
    nodes.shows(drained(CORDONED), at=NOW + 11)
    assert [type(each) for each in nodes.looks(NOW + 11)] == [SetNodeCondition]


def test_what_an_admin_drained_is_not_removed_and_so_not_registered_again_as_if_it_were_whole() -> None:
    theirs = in_slurm("x1", "DRAIN", "IDLE", reason="fan broken")
    nodes = Nodes([labelled(), node("x2")], [theirs])
    nodes.looks()
    nodes.sees(NodeDeleted("x1"))
    assert nodes.stays(theirs, at=NOW, until=NOW + 600) == [[]] * 21
    nodes.shows(in_slurm(), at=NOW + 630)
    [drain] = nodes.looks(NOW + 630)
    assert isinstance(drain, ChangeNode)
    bare = replace(labelled(), labels={})
    nodes = Nodes([bare], [theirs])
    [show] = nodes.looks()
    assert isinstance(show, SetNodeCondition)
    assert show.message == "An admin took Slurm node x1 out of service; it is removed after an admin has resumed it."


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (in_slurm("x1", "MIXED"), True),
        (in_slurm("x1", "DRAIN", "IDLE", reason="fan broken"), False),
        (in_slurm(reason="left over"), False),
        (in_slurm("x1", "ALLOCATED", "POWERING_UP"), False),  # a drain would end the job for which it boots
        (in_slurm("x1", "IDLE", "REBOOT_REQUESTED"), False),
    ],
)
def test_a_node_that_an_admin_changed_since_the_decision_is_not_changed(now: SlurmNode, same: bool) -> None:
    assert is_as_found(ChangeNode("x1", DRAIN, CORDONED, in_slurm()), now) is same


def test_an_external_node_that_slurm_powered_down_is_registered_again() -> None:
    """No slurmd there ever reports that it is up, so each job that got it failed after ResumeTimeout."""
    off = in_slurm("x1", "IDLE", "POWERED_DOWN")
    nodes = Nodes([labelled()], [off])
    [show] = nodes.looks()
    assert isinstance(show, SetNodeCondition)
    assert (show.condition, show.status) == (names.NODE_SILENT, False)
    assert show.message.startswith("Slurm has powered down x1, and a job that gets it fails")
    assert show.message.endswith("It is registered again as soon as no job is there.")
    nodes.ended(show, at=NOW)
    nodes.shows(off, at=NOW + 61)
    [remove] = [each for each in nodes.looks(NOW + 61) if not isinstance(each, SetNodeCondition)]
    assert isinstance(remove, RemoveNode)


# --- what Slurm says of a node cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize("undecoded", [UndecodedItems(frozenset({"x1"})), UndecodedItems(nameless=True)])
def test_a_node_that_slurm_lists_but_that_cannot_be_decoded_is_not_registered(undecoded: UndecodedItems) -> None:
    nodes = Nodes([labelled(taints=(), in_slurm=None)])
    nodes.sees(SlurmNodesPolled((), PARTITIONS, START, undecoded_nodes=undecoded))
    assert nodes.looks() == []
    nodes.shows(at=NOW)
    assert [type(each) for each in nodes.looks(NOW + 1)] == [RegisterNode]


def test_a_node_that_cannot_be_read_any_more_stays_as_it_was_known() -> None:
    nodes = Nodes([labelled()], [in_slurm()])
    nodes.sees(SlurmNodesPolled((), PARTITIONS, NOW, undecoded_nodes=UndecodedItems(frozenset({"x1"}))))
    assert nodes.looks(NOW + 1) == []
    assert nodes.world.slurm_nodes == {"x1": in_slurm()}


def test_a_partition_that_cannot_be_read_any_more_stays_as_it_was_known() -> None:
    nodes = Nodes([labelled()], [in_slurm()])
    nodes.sees(SlurmNodesPolled((in_slurm(),), (), NOW, undecoded_partitions=UndecodedItems(frozenset({"main"}))))
    assert nodes.world.partitions == {"main": PARTITIONS[0]}
    assert nodes.world.default_partition == "main"


# --- states that change, and what remains ---------------------------------------------------------------------------


def test_a_poll_marks_only_nodes_for_a_visit_that_changed_in_more_than_their_jobs() -> None:
    """Of 5,000 nodes most start or end a job between two polls."""
    foreign = in_slurm("x2", features=(), cpus=128)
    nodes = Nodes([labelled(), labelled("x2"), node("x3")], [in_slurm(), foreign, in_slurm("x3", features=())])
    [show] = nodes.looks()
    assert isinstance(show, SetNodeCondition)
    nodes.sees(NodeSeen(labelled("x2", in_slurm=Condition(False, show.condition, show.message))))
    rest = foreign, in_slurm("x3", features=())

    def marked(known: SlurmNode, at: float) -> set[str]:
        nodes.shows(known, *rest, at=at)
        seen = set(nodes.world.node_state.dirty)
        nodes.looks(at)
        return seen

    assert marked(in_slurm(), NOW + 30) == {"x2"}, "the watch showed a change"
    assert marked(in_slurm(), NOW + 60) == set()
    assert marked(in_slurm("x1", "MIXED"), NOW + 90) == set(), "a job started"
    assert marked(drained("fan broken", "MIXED"), NOW + 120) == {"x1"}
    nodes.sees(
        NodeSeen(labelled(in_slurm=Condition(False, names.NODE_DRAINED, "Slurm node x1 is drained: fan broken.")))
    )
    assert [marked(drained("fan broken", "MIXED"), NOW + at) for at in (150, 180)] == [{"x1"}, set()]
    assert marked(drained("fan broken"), NOW + 210) == {"x1"}, "no job is left there"


def test_a_drain_of_the_bridge_shows_the_reason_that_holds_now() -> None:
    nodes = Nodes([labelled(unschedulable=True, ready=False)], [drained(CORDONED)])
    [drain] = [each for each in nodes.looks(NOW) if isinstance(each, ChangeNode)]
    assert (drain.change, drain.reason) == (DRAIN, NOT_READY)


@pytest.mark.parametrize(
    ("known", "what_to_do"),
    [
        (in_slurm("x1", "IDLE", "NOT_RESPONDING"), "It is registered again as soon as no job is there."),
        (in_slurm("x1", "IDLE", "NOT_RESPONDING", features=()), "Delete it when no job is there, and create it again"),
        (
            replace(in_slurm("x1", features=()), states=frozenset({"IDLE", "EXTERNAL", "NOT_RESPONDING"})),
            "`scontrol reconfigure` brings it back.",
        ),
        (
            replace(in_slurm("x1", features=()), states=frozenset({"IDLE", "NOT_RESPONDING"})),
            "the slurmd of x1 does not respond",
        ),
    ],
)
def test_a_node_that_does_not_respond_says_what_brings_it_back(known: SlurmNode, what_to_do: str) -> None:
    labels = LABEL if known.features else {}
    nodes = Nodes([labelled(labels=labels, in_slurm=None)], [known], replace(CONFIG, shared_nodes=True))
    [shown] = [each for each in nodes.looks(NOW) if isinstance(each, SetNodeCondition)]
    assert (shown.status, shown.condition) == (False, names.NODE_SILENT)
    assert what_to_do in shown.message


@pytest.mark.parametrize(
    ("twins", "reconfigures"), [((), 1), ((node("y1", labels={names.SLURM_NODE_LABEL: "x1"}),), 0)]
)
def test_a_node_that_two_kubernetes_nodes_claim_is_not_worth_a_reconfigure(
    twins: tuple[Node, ...], reconfigures: int
) -> None:
    silent = replace(in_slurm("x1", features=()), states=frozenset({"IDLE", "EXTERNAL", "NOT_RESPONDING"}))
    nodes = Nodes([labelled(labels={}, in_slurm=None), *twins], [silent], replace(CURED, shared_nodes=True))
    acts = nodes.stays(silent, at=NOW, until=NOW + 90)
    assert sum(isinstance(each, Reconfigure) for done in acts for each in done) == reconfigures


def test_the_times_of_a_node_that_two_kubernetes_nodes_claim_begin_again() -> None:
    silent = in_slurm("x1", "IDLE", "NOT_RESPONDING")
    nodes = Nodes([labelled()], [silent])
    assert nodes.world.node_state.silent == {"x1": START}
    twin = labelled("x1-twin", labels={**LABEL, names.SLURM_NODE_LABEL: "x1"})
    nodes.sees(NodeSeen(twin))
    nodes.shows(silent, at=NOW)
    assert nodes.world.node_state.silent == {}
    nodes.sees(NodeDeleted("x1-twin"))
    nodes.shows(silent, at=NOW + 30)
    assert nodes.world.node_state.silent == {"x1": NOW + 30}


def test_no_node_is_changed_before_the_quiet_period_after_a_start_is_over() -> None:
    """A request of an earlier process may still take effect."""
    nodes, end = Nodes([labelled()]), START + CONFIG.tuning.quiet_s
    assert nodes.looks(end - 0.001) == []
    assert [type(each) for each in nodes.looks(end)] == [RegisterNode]


def test_a_pass_visits_only_nodes_that_changed() -> None:
    nodes = Nodes([labelled(), node("x2")])
    nodes.looks()
    nodes.sees(NodeSeen(node("x2", unschedulable=True)))
    assert decide(nodes.world, NOW + 1).visited_nodes == ("x2",)


def test_a_node_names_at_most_64_partitions() -> None:
    parts = [f"p{number}" for number in range(65)]
    nodes = Nodes([labelled(partitions=",".join(parts), in_slurm=None, taints=())])
    nodes.sees(SlurmNodesPolled((), tuple(Partition(name) for name in parts), NOW))
    [show] = nodes.looks(NOW)
    assert isinstance(show, SetNodeCondition)
    assert "names more than 64 partitions" in show.message


def test_a_reconfigure_and_a_poll_that_failed_are_followed_by_a_poll() -> None:
    silent = replace(in_slurm("x1", features=()), states=frozenset({"IDLE", "EXTERNAL", "NOT_RESPONDING"}))
    nodes = Nodes([labelled(labels={}, in_slurm=None)], [silent], replace(CURED, shared_nodes=True))
    acts = [each for done in nodes.stays(silent, at=NOW, until=NOW + 60) for each in done]
    [reconfigure] = [each for each in acts if isinstance(each, Reconfigure)]
    nodes.ended(reconfigure, at=NOW + 61)
    [poll] = [each for each in nodes.decides(NOW + 61) if isinstance(each, PollNodes)]
    nodes.ended(poll, Outcome.UNKNOWN, at=NOW + 62)
    assert not [each for each in nodes.decides(NOW + 63) if isinstance(each, PollNodes)]
    [again] = [each for each in nodes.decides(NOW + 70) if isinstance(each, PollNodes)]
    nodes.ended(again, at=NOW + 71)
    assert not [each for each in nodes.decides(NOW + 72) if isinstance(each, PollNodes)]


def test_a_node_in_service_on_which_an_action_failed_says_why() -> None:
    nodes = Nodes([labelled(unschedulable=True)], [in_slurm()])
    [drain] = [each for each in nodes.looks(NOW) if isinstance(each, ChangeNode)]
    nodes.ended(drain, Outcome.REFUSED, at=NOW + 1, number=2010)
    nodes.shows(in_slurm(), at=NOW + 2)
    [shown] = [each for each in nodes.looks(NOW + 2) if isinstance(each, SetNodeCondition)]
    assert (shown.status, shown.condition) == (False, names.NODE_REFUSED)
    assert "Slurm lets only its administrators change nodes" in shown.message


def test_a_node_in_service_without_a_partition_shows_that() -> None:
    [show] = Nodes([labelled()], [in_slurm(partitions=())]).looks()
    assert isinstance(show, SetNodeCondition)
    assert show.message == "In service in Slurm as x1; partitions: none."


@pytest.mark.parametrize(
    ("before", "turns"), [(None, True), (IN_SERVICE, True), (Condition(False, names.NODE_DOWN, "It is down."), False)]
)
def test_a_condition_gets_a_new_transition_time_only_if_its_status_changes(
    before: Condition | None, turns: bool
) -> None:
    [show] = Nodes([labelled(in_slurm=before)], [in_slurm("x1", "DRAIN", "IDLE", reason="fan broken")]).looks()
    assert isinstance(show, SetNodeCondition)
    assert (show.status, show.turns) == (False, turns)


def test_while_a_condition_is_being_removed_it_is_not_removed_again() -> None:
    nodes = Nodes([node("x1", in_slurm=IN_SERVICE)])
    assert [type(each) for each in nodes.looks()] == [UnmarkNode]
    assert nodes.looks(NOW + 1, everything=True) == []


def test_while_a_condition_is_being_written_it_is_not_written_again() -> None:
    nodes = Nodes([labelled(in_slurm=None)], [in_slurm()])
    assert len([each for each in nodes.looks(NOW) if isinstance(each, SetNodeCondition)]) == 1
    nodes.sees(NodeSeen(labelled(in_slurm=None, labels={**LABEL, "a": "b"})))
    nodes.world.node_state.writes_in_flight.add("x1")
    assert [each for each in nodes.looks(NOW + 1) if isinstance(each, SetNodeCondition)] == []


def test_nodes_of_slurm_that_are_polled_before_kubernetes_was_listed_are_compared_after_the_list() -> None:
    story = Story(CONFIG, nodes=())
    silent = in_slurm("x1", "IDLE", "NOT_RESPONDING")
    story.world.nodes = None
    story.sees(SlurmNodesPolled((silent,), PARTITIONS, NOW))
    assert story.world.node_state.silent == {}
    story.sees(NodesListed((labelled(),)), SlurmNodesPolled((silent,), PARTITIONS, NOW + 30))
    assert story.world.node_state.silent == {"x1": NOW + 30}


def test_nodes_of_slurm_that_are_polled_before_the_namespaces_were_listed_are_known_by_their_mark_then() -> None:
    """The mark is made from the UID of a namespace.  The next poll of nodes comes half a minute later."""
    world = new_world(CONFIG, started=START)
    events: tuple[Event, ...] = (
        NodesListed((labelled(unschedulable=True),)),
        SlurmNodesPolled((in_slurm(),), PARTITIONS, START),
        NamespacesListed((KUBE_SYSTEM,)),
        PodsListed(Scope.OURS, (), START),
        PodsListed(Scope.OTHERS, (), START),
        JobsPolled(START, START, {}),
    )
    for event in events:
        world.apply(event)
    this_pass = Pass(world, NOW)
    visit_nodes(this_pass, everything=False)
    assert list(this_pass.plan().actions) == [ChangeNode("x1", DRAIN, CORDONED, in_slurm())]


def test_the_refusal_of_a_node_is_forgotten_with_the_node() -> None:
    nodes = Nodes([labelled(in_slurm=None, taints=())])
    [register] = [each for each in nodes.looks() if isinstance(each, RegisterNode)]
    nodes.ended(register, Outcome.REFUSED, at=NOW + 1, number=2018)
    nodes.shows(at=NOW + 2)
    assert set(nodes.world.node_state.failed) == {"x1"}
    nodes.sees(NodeDeleted("x1"))
    nodes.shows(at=NOW + 3)
    assert nodes.world.node_state.failed == {}


def test_what_is_known_of_the_kubelets_of_nodes_is_forgotten_with_nodes_that_a_list_lacks() -> None:
    here = labelled("x1", ready_since=START - 100), labelled("x2", ready_since=START - 100, kubelet_silent_since=START)
    nodes = Nodes(here)
    assert (set(nodes.world.ready_since), set(nodes.world.kubelet_silent_since)) == ({"x1", "x2"}, {"x2"})
    nodes.sees(NodesListed(here[:1]))
    assert (set(nodes.world.ready_since), set(nodes.world.kubelet_silent_since)) == ({"x1"}, set())
    nodes.sees(NodesListed(here[:1]))
    assert nodes.world.node_state.named == {"x1": {"x1"}}


# --- exact times, and what must not be confused ---------------------------------------------------------------------


def changes(acts: list[Action]) -> list[tuple[str, str]]:
    """The changes in Slurm."""
    return [(each.change.name, each.reason) for each in acts if isinstance(each, ChangeNode)]


@pytest.mark.parametrize("known", [in_slurm(), in_slurm(features=())], ids=["registered", "shared"])
def test_a_drain_that_slurm_refuses_is_tried_again_after_a_minute_and_another_one_at_once(known: SlurmNode) -> None:
    nodes = Nodes([labelled(unschedulable=True)], [known], replace(CONFIG, shared_nodes=True))
    [drain] = nodes.looks()
    nodes.ended(drain, Outcome.REFUSED, at=NOW, number=2010)
    nodes.shows(known, at=NOW + 59)
    assert changes(nodes.looks(NOW + 59)) == []
    nodes.shows(known, at=NOW + 60)
    assert changes(nodes.looks(NOW + 60)) == [("DRAIN", CORDONED)]
    nodes.ended(drain, Outcome.REFUSED, at=NOW + 61, number=2010)
    nodes.shows(known, at=NOW + 62)
    nodes.sees(NodeSeen(labelled(unschedulable=True, ready=False)))
    assert changes(nodes.looks(NOW + 62)) == [("DRAIN", NOT_READY)]


def test_a_refused_drain_is_not_shown_any_more_when_it_is_not_needed() -> None:
    nodes = Nodes([labelled(unschedulable=True)], [in_slurm()])
    [drain] = nodes.looks()
    nodes.ended(drain, Outcome.REFUSED, at=NOW, number=2010)
    nodes.shows(in_slurm(), at=NOW + 1)
    [show] = nodes.looks(NOW + 1)
    assert isinstance(show, SetNodeCondition)
    assert show.condition == names.NODE_REFUSED
    nodes.ended(show, at=NOW + 1)
    nodes.sees(NodeSeen(labelled(in_slurm=Condition(False, show.condition, show.message))))
    [show] = nodes.looks(NOW + 2)
    assert isinstance(show, SetNodeCondition)
    assert show.condition == names.NODE_IN_SERVICE


def test_a_node_that_leaves_shows_why_slurm_refuses_its_drain() -> None:
    nodes = Nodes([labelled(labels={})], [in_slurm()])
    [drain] = nodes.looks()
    nodes.ended(drain, Outcome.REFUSED, at=NOW, number=2010)
    nodes.shows(in_slurm(), at=NOW + 1)
    [show] = nodes.looks(NOW + 1)
    assert isinstance(show, SetNodeCondition)
    assert (show.status, show.condition) == (False, names.NODE_REFUSED)
    assert "Slurm lets only its administrators change nodes" in show.message


def test_a_node_that_cannot_be_read_any_more_is_drained_as_it_was_known() -> None:
    nodes = Nodes([labelled()], [in_slurm()])
    nodes.sees(SlurmNodesPolled((), PARTITIONS, NOW, undecoded_nodes=UndecodedItems(frozenset({"x1"}))))
    nodes.sees(NodeSeen(labelled(unschedulable=True)))
    assert changes(nodes.looks(NOW + 1)) == [("DRAIN", CORDONED)]


def test_a_node_in_service_with_the_reason_of_an_earlier_drain_is_left_alone() -> None:
    assert Nodes([labelled()], [in_slurm(reason=CORDONED)]).looks() == []


def test_a_smaller_shared_node_is_not_removed_from_slurm_whatever_its_reason_claims() -> None:
    """Its mark is missing: another client may have written the reason."""
    known = drained("slurm-bridge: to be registered again: it has 4 gpu now", features=())
    nodes = Nodes([node("x1", gpu=4)], [known], replace(CONFIG, shared_nodes=True))
    assert [change for change, _ in changes(nodes.looks())] == ["RESUME"]


def test_a_node_that_is_dead_for_a_quarter_of_an_hour_is_set_down_although_a_daemon_is_there() -> None:
    shown = Condition(False, names.NODE_DRAINED, f"Slurm node x1 is drained: {NOT_READY}.")
    empty = drained(NOT_READY)
    nodes = Nodes([labelled(ready=False, in_slurm=shown)], [empty])
    nodes.sees(PodSeen(Scope.OTHERS, pod("daemon", node="x1", phase=PodPhase.RUNNING, scheduler_name="default")))
    down_s = CONFIG.tuning.node_down_s
    nodes.sees(NodeSeen(labelled(ready=False, in_slurm=shown, labels={**LABEL, "seen": "again"})))
    nodes.shows(empty, at=START + down_s - 1)
    assert nodes.looks(START + down_s - 1) == []
    nodes.shows(empty, at=START + down_s)
    assert nodes.looks(START + down_s) == [ChangeNode("x1", DOWN, NOT_READY, in_slurm())]


def test_a_node_that_does_not_respond_for_a_minute_is_removed() -> None:
    silent = in_slurm("x1", "IDLE", "NOT_RESPONDING")
    nodes = Nodes([labelled()], [silent])
    done = [each for at in (59, 60) for each in nodes.stays(silent, at=START + at, until=START + at)]
    assert [[type(each) for each in some] for some in done] == [[SetNodeCondition], [RemoveNode]]


@pytest.mark.parametrize("states", [("UNKNOWN",), ("ALLOCATED",), ("ERROR",)])
def test_a_node_in_a_state_that_is_not_known_to_be_empty_is_not_removed(states: tuple[str, ...]) -> None:
    gone = drained("slurm-bridge: its Kubernetes node is gone", *states)
    assert not any(Nodes([node("x2")], [gone]).stays(gone, at=NOW, until=NOW + 600))


# --- a reconfigure (N3) -----------------------------------------------------------------------------------------------

STATIC = SlurmNode("x1", frozenset({"IDLE", "EXTERNAL", "NOT_RESPONDING"}), ("main",), (), 64, 512_000, {"gpu": 8})
SHARED_AND_CURED = replace(CURED, shared_nodes=True)


def reconfigures(nodes: Nodes, known: SlurmNode, at: float) -> int:
    nodes.shows(known, at=at)
    acts = nodes.looks(at)
    for each in acts:
        nodes.ended(each, at=at)
    return sum(isinstance(each, Reconfigure) for each in acts)


def test_slurm_is_reconfigured_at_most_every_ten_minutes() -> None:
    nodes = Nodes([node("x1")], [STATIC], SHARED_AND_CURED)
    times = (START + 59, START + 60, START + 659, START + 660)
    assert [reconfigures(nodes, STATIC, at) for at in times] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("known", "config"),
    [
        (STATIC, CURED),
        (STATIC, replace(SHARED_AND_CURED, leaving="wait")),
        (STATIC, replace(CONFIG, shared_nodes=True)),
        (replace(STATIC, states=STATIC.states | {"DYNAMIC_NORM"}), SHARED_AND_CURED),
        (replace(STATIC, states=STATIC.states | {"DRAIN"}, reason="fan broken"), SHARED_AND_CURED),
    ],
    ids=["not shared", "uninstalled", "not allowed", "dynamic", "drained"],
)
def test_slurm_is_not_reconfigured_for_a_node_that_this_does_not_bring_back(known: SlurmNode, config: Config) -> None:
    nodes = Nodes([labelled(in_slurm=None)], [known], config)
    assert [reconfigures(nodes, known, at) for at in (NOW, NOW + 60, NOW + 120)] == [0, 0, 0]


def test_slurm_is_not_reconfigured_for_a_node_that_kubernetes_does_not_have_any_more() -> None:
    nodes = Nodes([node("x1"), node("x2")], [STATIC], SHARED_AND_CURED)
    nodes.sees(NodeDeleted("x1"))
    assert [reconfigures(nodes, STATIC, at) for at in (NOW, NOW + 60, NOW + 120)] == [0, 0, 0]


def test_slurm_is_not_reconfigured_for_a_node_that_two_kubernetes_nodes_claim_since_the_last_poll() -> None:
    nodes = Nodes([node("x1")], [STATIC], SHARED_AND_CURED)
    nodes.sees(OutageBegan(Side.KUBERNETES, NOW, "it does not answer."))
    assert reconfigures(nodes, STATIC, NOW + 60) == 0
    nodes.sees(NodeSeen(node("y1", labels={names.SLURM_NODE_LABEL: "x1"})), OutageEnded(Side.KUBERNETES, NOW + 61))
    assert not [each for each in nodes.looks(NOW + 61) if isinstance(each, Reconfigure)]
