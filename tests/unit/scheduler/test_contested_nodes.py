"""Two Kubernetes nodes that claim one node of Slurm: a compromised kubelet may label its own node so (K6, N9, V7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    ChangeNode,
    NodeChange,
    RegisterNode,
    SetNodeCondition,
    SetPodCondition,
    UnmarkNode,
)
from scheduler.events import NodeDeleted, NodeSeen
from scheduler.explain import explain
from scheduler.model.kubernetes import Condition, Node
from tests.builders import CONFIG, Story, grant, key_of, node, pod
from tests.unit.scheduler.test_nodes import LABEL, NOW, Nodes, in_slurm, labelled

IMPOSTOR = node("aaa", labels={names.SLURM_NODE_LABEL: "x1"}, uid="uid-aaa")
SAID = (
    "The Kubernetes nodes aaa, x1 claim to be the same node of Slurm, x1: none of them gets pods from slurm-bridge, and "
    "nothing is changed in Slurm. Correct the label slurm-bridge/slurm-node of all but one."
)
SHARED = replace(CONFIG, shared_nodes=True)


def says(shown: Node) -> Node:
    """As the watch shows it once the condition is written there."""
    return replace(shown, in_slurm=Condition(False, names.NODE_CONTESTED, SAID))


# --- placement ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False], ids=["the impostor comes first", "the impostor comes later"])
def test_neither_of_two_nodes_with_one_name_in_slurm_is_used(first: bool) -> None:
    story = Story(nodes=(IMPOSTOR, node("x1"), node("x2")) if first else (node("x1"), node("x2")))
    if not first:
        story.sees(NodeSeen(IMPOSTOR))
    story.sees(pod())
    [allocate] = story.acts(AllocateNow, NOW)
    assert allocate.spec.excluded_nodes == "x1"


def test_if_no_other_node_is_left_that_is_reported_and_explained() -> None:
    story, train = Story(nodes=(IMPOSTOR, node("x1"))), pod()
    story.sees(train)
    [said] = story.acts(SetPodCondition, NOW)
    sentence = "0/2 nodes can run this pod in Slurm partition main: 2 claiming the same Slurm node as another."
    assert said.message == sentence
    nodes = explain(story.world, key_of(train), NOW).nodes
    assert nodes is not None
    assert nodes.misses == (("claiming the same Slurm node as another", 2),)


def test_a_grant_on_a_node_that_two_claim_now_is_released_and_no_pod_is_bound() -> None:
    story = Story()
    story.sees(pod())
    [allocate] = story.acts(AllocateNow, NOW)
    story.sees(NodeSeen(IMPOSTOR))
    story.ended(allocate, at=NOW, job_id=17, grant=grant(17))
    acts = story.decides(NOW + 1)
    [cancel] = [each for each in acts if isinstance(each, CancelJob)]
    assert "the nodes aaa, x1 of Kubernetes claim to be Slurm's x1" in cancel.reason
    assert not any(isinstance(each, BindPod) for each in acts)


def test_pods_that_run_there_are_left_in_peace_and_the_node_is_used_again_when_the_collision_ends() -> None:
    story = Story()
    story.runs(pod("before"), 17, at=NOW)
    story.sees(NodeSeen(IMPOSTOR))
    for second in range(1, 60):
        story.polls({17: "RUNNING"}, at=NOW + second)
        assert not any(isinstance(each, CancelJob | BindPod) for each in story.decides(NOW + second))
    story.sees(pod("after", node_selector={"kubernetes.io/hostname": "x1"}))
    assert story.acts(AllocateNow, NOW + 60) == []
    story.sees(NodeSeen(replace(IMPOSTOR, labels={})), NodeSeen(node("x1", labels={"kubernetes.io/hostname": "x1"})))
    [allocate] = story.acts(AllocateNow, NOW + 70)
    assert allocate.spec.excluded_nodes == "x2"


@pytest.mark.parametrize("name", ["X1", "x1.example.com", "x01"])
def test_a_name_that_differs_by_case_domain_or_zeros_is_another_node_of_slurm(name: str) -> None:
    """slurmctld compares names of nodes as they are written (26.05)."""
    story = Story(nodes=(node("x1"), node("aaa", labels={names.SLURM_NODE_LABEL: name})))
    story.sees(pod())
    [allocate] = story.acts(AllocateNow, NOW)
    assert (allocate.spec.excluded_nodes, story.world.contested) == ("", {})


# --- Slurm's node -------------------------------------------------------------------------------------------------


def test_nothing_is_done_to_a_registered_node_that_two_claim_and_both_say_so() -> None:
    aaa = replace(IMPOSTOR, labels=LABEL | IMPOSTOR.labels, allocatable=node(cpu=8000).allocatable)
    nodes = Nodes([labelled()], [in_slurm()])
    assert nodes.looks() == []
    nodes.sees(NodeSeen(aaa))
    shows = nodes.looks(NOW + 1)
    assert {
        each.node: (each.status, each.condition, each.message) for each in shows if isinstance(each, SetNodeCondition)
    } == {
        "aaa": (False, names.NODE_CONTESTED, SAID),
        "x1": (False, names.NODE_CONTESTED, SAID),
    }
    assert len(shows) == 2
    for one in (
        labelled(unschedulable=True),
        labelled(ready=False, kubelet_silent_since=NOW),
        labelled(gpu=4),
        labelled(),
    ):
        for other in (aaa, replace(aaa, ready=False), replace(aaa, unschedulable=True)):
            nodes.sees(NodeSeen(says(one)), NodeSeen(says(other)))
            assert nodes.stays(in_slurm(), at=NOW + 2, until=NOW + 1200) == [[]] * 40


def test_nothing_is_registered_under_a_name_that_two_claim() -> None:
    same = LABEL | {names.SLURM_NODE_LABEL: "g1"}
    nodes = Nodes([labelled("x1", labels=same), labelled("x2", labels=same)])
    acts = nodes.looks()
    assert [type(each) for each in acts] == [SetNodeCondition, SetNodeCondition]
    nodes.sees(NodeDeleted("x2"))
    [register] = nodes.looks(NOW + 1)
    assert isinstance(register, RegisterNode)
    assert register.spec.name == "g1"


def test_a_node_that_both_know_is_neither_drained_nor_resumed_while_two_claim_it() -> None:
    ours = names.NODE_REASON + "cordoned in Kubernetes"
    known = in_slurm(features=())
    drained = in_slurm("x1", "DRAIN", "IDLE", features=(), reason=ours)
    for shown, there in ((node("x1", unschedulable=True), known), (node("x1"), drained)):
        nodes = Nodes([shown, IMPOSTOR], [there], SHARED)
        assert {type(each) for each in nodes.looks()} == {SetNodeCondition}
        nodes.sees(NodeSeen(says(shown)), NodeSeen(says(IMPOSTOR)))
        assert nodes.stays(there, at=NOW + 1, until=NOW + 600) == [[]] * 20


def test_with_shared_nodes_off_nodes_without_the_label_get_no_condition() -> None:
    nodes = Nodes([node("x1"), IMPOSTOR], [in_slurm(features=())])
    assert nodes.looks() == []
    assert nodes.world.contested == {"x1": ("aaa", "x1")}, "and yet neither is used"


def test_when_the_collision_ends_each_is_kept_in_step_again_and_says_what_it_is() -> None:
    nodes = Nodes([says(labelled(unschedulable=True)), says(IMPOSTOR)], [in_slurm()])
    assert nodes.looks() == []
    nodes.sees(NodeSeen(says(replace(IMPOSTOR, labels={}))))
    release, drain = sorted(nodes.looks(NOW + 1), key=lambda each: type(each).__name__, reverse=True)
    assert isinstance(release, UnmarkNode)
    assert release.node == "aaa"
    assert isinstance(drain, ChangeNode)
    assert (drain.name, drain.change) == ("x1", NodeChange.DRAIN)


def test_what_was_counted_of_the_impostor_is_not_held_against_the_node() -> None:
    """Not ready for long is the impostor: the node itself has been so for a moment when the collision ends."""
    silent = replace(IMPOSTOR, labels=LABEL | IMPOSTOR.labels, ready=False)
    drained = in_slurm("x1", "DRAIN", "IDLE", reason=names.NODE_REASON + "not ready in Kubernetes")
    nodes = Nodes([says(labelled()), says(silent)], [drained])
    nodes.stays(drained, at=NOW, until=NOW + 1200)
    nodes.sees(NodeDeleted("aaa"), NodeSeen(labelled(ready=False)))
    acts = nodes.looks(NOW + 1210)
    assert not any(isinstance(each, ChangeNode) and each.change is NodeChange.DOWN for each in acts)


def test_a_registered_node_without_its_label_shows_that_two_nodes_claim_it() -> None:
    """Shared nodes are left alone here, but this one is in Slurm because of this bridge."""
    nodes = Nodes([labelled(labels={}), IMPOSTOR], [in_slurm()])
    shown = [each for each in nodes.looks() if isinstance(each, SetNodeCondition)]
    assert [(each.node, each.condition) for each in shown] == [
        ("aaa", names.NODE_CONTESTED),
        ("x1", names.NODE_CONTESTED),
    ]
