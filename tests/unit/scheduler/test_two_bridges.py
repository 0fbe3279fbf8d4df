"""Two bridges of one Kubernetes cluster on one Slurm, each with a schedulerName of its own: nodes that both see (N3, N8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import ChangeNode, NodeChange, SetNodeCondition, TaintNode, UnmarkNode
from scheduler.events import NodeSeen
from scheduler.model.kubernetes import Condition, Node
from scheduler.model.slurm import SlurmNode
from scheduler.rules.reconcile_nodes import CORDONED, left_on_nodes
from scheduler.tuning import Config
from tests.builders import CONFIG, KUBE_SYSTEM
from tests.unit.scheduler.test_nodes import NOW, Nodes, in_slurm, labelled
from tests.unit.scheduler.test_shared_nodes import IN_SERVICE, shared, theirs

OTHER = "gpu-bridge"
SECOND = replace(CONFIG, scheduler_name=OTHER, shared_nodes=True)
FIRST = replace(CONFIG, shared_nodes=True)
BY_SECOND = Condition(True, names.NODE_IN_SERVICE, f"{IN_SERVICE.message} (by {OTHER})")


def of_second(**fields: object) -> SlurmNode:
    """A node that the second bridge registered."""
    return in_slurm("x1", features=(names.node_mark(names.cluster_id(KUBE_SYSTEM.uid, OTHER)),), **fields)


def written(nodes: Nodes, there: Node, at: float) -> Node:
    """The node with the condition that the bridge writes; the same node if it writes none."""
    acts = [each for each in nodes.looks(at) if isinstance(each, SetNodeCondition)]
    for each in acts:
        nodes.ended(each, at=at)
        there = replace(there, in_slurm=Condition(each.status, each.condition, each.message))
    return there


@pytest.mark.parametrize("known", [in_slurm(), of_second(), theirs()], ids=["of the first", "of the second", "shared"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_bridges_that_see_one_node_do_not_overwrite_each_others_condition_for_ever(
    known: SlurmNode, order: tuple[int, int]
) -> None:
    there = labelled(in_slurm=None) if known.features else shared(in_slurm=None)
    bridges = [Nodes([there], [known], config) for config in (FIRST, SECOND)]
    seen = []
    for turn in range(3):
        for number in order:
            for each in bridges:
                each.sees(NodeSeen(there))
            there = written(bridges[number], there, NOW + turn)
            seen.append(there.in_slurm)
    assert seen[2:] == [there.in_slurm] * 4
    assert there.in_slurm is not None
    assert there.in_slurm.status, there.in_slurm.message


@pytest.mark.parametrize("config", [FIRST, SECOND], ids=["the default name", "another name"])
def test_a_bridge_of_any_name_taints_the_node_that_it_registered(config: Config) -> None:
    own = in_slurm("x1", features=(names.node_mark(names.cluster_id(KUBE_SYSTEM.uid, config.scheduler_name)),))
    bare = labelled(in_slurm=None, taints=())
    nodes = Nodes([bare], [own], config)
    nodes.sees(NodeSeen(written(nodes, bare, NOW)))
    assert [type(each) for each in nodes.looks(NOW + 1)] == [TaintNode]


def test_a_bridge_with_another_name_signs_its_condition() -> None:
    bare = shared(in_slurm=None)
    assert written(Nodes([bare], [theirs()], SECOND), bare, NOW).in_slurm == BY_SECOND


def test_both_drain_a_shared_node_that_is_cordoned_and_one_shows_it() -> None:
    cordoned = shared(unschedulable=True)
    for config in (FIRST, SECOND):
        nodes = Nodes([cordoned], [theirs()], config)
        [drain] = nodes.looks()
        assert isinstance(drain, ChangeNode)
        assert (drain.change, drain.reason) == (NodeChange.DRAIN, CORDONED)
    nodes.ended(drain, at=NOW)
    nodes.shows(theirs("DRAIN", "IDLE", reason=CORDONED), at=NOW + 1)
    assert nodes.looks(NOW + 1) == [], "the first one shows it"


def test_a_bridge_that_leaves_shared_nodes_alone_does_not_take_the_others_condition() -> None:
    quiet = replace(SECOND, shared_nodes=False)
    assert Nodes([shared()], [theirs()], quiet).looks() == []
    [release] = Nodes([shared(in_slurm=BY_SECOND)], [theirs()], quiet).looks()
    assert isinstance(release, UnmarkNode)


def test_the_uninstallation_of_one_leaves_the_node_that_the_other_one_shows() -> None:
    drained = theirs("DRAIN", "IDLE", reason=CORDONED)
    nodes = Nodes([shared(unschedulable=True)], [drained], replace(SECOND, leaving="wait"))
    assert nodes.looks() == []
    assert list(left_on_nodes(nodes.world)) == []
