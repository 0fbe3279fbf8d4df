"""Nodes of slurm.conf that Kubernetes has too: drained and resumed with it, shown, never removed (N2-N6, N8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import Action, ChangeNode, NodeChange, Reconfigure, SetNodeCondition, UnmarkNode
from scheduler.events import NodeDeleted, NodeSeen, PodSeen, Scope
from scheduler.model.kubernetes import Condition, Node, PodPhase
from scheduler.model.slurm import SlurmNode
from scheduler.nodes.registration import ExternalNodes
from scheduler.rules.reconcile_nodes import CORDONED, NOT_READY
from tests.builders import CONFIG, START, node, pod
from tests.unit.scheduler.test_nodes import LABEL, Nodes

NOW = START + 20
SHARED = replace(CONFIG, shared_nodes=True)
DRAIN, RESUME = NodeChange.DRAIN, NodeChange.RESUME
IN_SERVICE = Condition(True, names.NODE_IN_SERVICE, "In service in Slurm as x1; partitions: main.")


def theirs(*states: str, reason: str = "", external: bool = True, **fields: Any) -> SlurmNode:
    """As slurm.conf has it."""
    shown = frozenset({*(states or ("IDLE",)), *(("EXTERNAL",) if external else ())})
    given: dict[str, Any] = {"cpus": 64, "memory_mib": 512_000, "gres": {"gpu": 8}, "reason": reason}
    return SlurmNode("x1", shown, ("main",), **({"features": ()} | given | fields))


def shared(**fields: Any) -> Node:
    return node("x1", **({"in_slurm": IN_SERVICE} | fields))


def told(nodes: Nodes, action: Action, before: Node) -> None:
    """The watch shows what was written."""
    assert isinstance(action, SetNodeCondition)
    nodes.sees(NodeSeen(replace(before, in_slurm=Condition(action.status, action.condition, action.message))))


def test_the_state_of_a_shared_node_is_shown_and_the_node_is_not_tainted() -> None:
    bare = shared(in_slurm=None)
    nodes = Nodes([bare], [theirs()], SHARED)
    [show] = nodes.looks()
    told(nodes, show, bare)
    assert (nodes.world.nodes or {})["x1"].in_slurm == IN_SERVICE
    assert nodes.stays(theirs(), at=NOW, until=NOW + 1200) == [[]] * 41
    nodes.shows(theirs("DRAIN", "IDLE", reason="fan broken."), at=NOW + 1230)
    [show] = nodes.looks(NOW + 1230)
    assert isinstance(show, SetNodeCondition)
    assert (show.condition, show.message) == (names.NODE_DRAINED, "Slurm node x1 is drained: fan broken.")


@pytest.mark.parametrize("external", [True, False])
def test_a_cordon_drains_a_shared_node_and_its_end_resumes_it(external: bool) -> None:
    nodes = Nodes([shared()], [theirs(external=external)], SHARED)
    assert nodes.looks() == []
    nodes.sees(NodeSeen(shared(unschedulable=True)))
    [drain] = nodes.looks(NOW + 1)
    assert drain == ChangeNode("x1", DRAIN, CORDONED, theirs())
    nodes.ended(drain, at=NOW + 1)
    nodes.shows(theirs("DRAIN", "MIXED", reason=CORDONED, external=external), at=NOW + 2)
    [show] = nodes.looks(NOW + 2)
    told(nodes, show, shared(unschedulable=True))
    nodes.sees(NodeSeen(shared()))
    [resume] = nodes.looks(NOW + 3)
    assert isinstance(resume, ChangeNode)
    assert resume.change is RESUME


@pytest.mark.parametrize("states", [("DRAIN", "IDLE"), ("DOWN",), ("DRAIN", "ALLOCATED"), ("FAIL", "IDLE")])
def test_what_an_admin_drained_or_set_down_stays_so(states: tuple[str, ...]) -> None:
    known = theirs(*states, reason="fan broken.")
    for one in (shared(), shared(unschedulable=True), shared(ready=False)):
        nodes = Nodes([one], [known], SHARED)
        [show] = nodes.looks()
        told(nodes, show, one)
        assert nodes.stays(known, at=NOW, until=NOW + 1200) == [[]] * 41


def test_a_node_that_registered_with_too_little_is_not_shown_as_in_service() -> None:
    """Slurm gives it no jobs, although it is neither down nor drained."""
    nodes = Nodes([shared()], [theirs()], SHARED)
    assert nodes.looks() == []
    nodes.shows(theirs("IDLE", "INVALID_REG", reason="Low RealMemory"), at=NOW + 30)
    [show] = nodes.looks(NOW + 30)
    assert isinstance(show, SetNodeCondition)
    assert (show.condition, show.message) == (
        names.NODE_DRAINED,
        "Slurm node x1 is in the state INVALID_REG: Low RealMemory.",
    )


def test_a_node_that_an_admin_marked_as_failing_is_not_shown_as_in_service() -> None:
    [show] = Nodes([shared()], [theirs("FAIL", "IDLE", reason="fan broken.")], SHARED).looks()
    assert isinstance(show, SetNodeCondition)
    assert (show.condition, show.status, show.message) == (
        names.NODE_DRAINED,
        False,
        "Slurm node x1 is in the state FAIL: fan broken.",
    )


@pytest.mark.parametrize("more", ["", " : reboot issued : reboot timed out"])
def test_a_cordoned_node_that_slurm_sets_down_is_resumed_when_it_is_not_down_any_more(more: str) -> None:
    """Its slurmd fell silent, or it did not come back from a reboot.  slurmctld keeps the reason of the drain, so it looked
    like a node that the bridge had set down: when it was uncordoned, the bridge put a broken node into service."""
    down = theirs("DOWN", "DRAIN", "NOT_RESPONDING", reason=CORDONED + more, external=False)
    cordoned = shared(unschedulable=True)
    nodes = Nodes([cordoned], [down], SHARED)
    [show] = nodes.looks()
    told(nodes, show, cordoned)
    assert nodes.stays(down, at=NOW, until=NOW + 600) == [[]] * 21
    told(nodes, show, shared())
    assert nodes.stays(down, at=NOW + 601, until=NOW + 1200) == [[]] * 20
    nodes.shows(theirs("IDLE", "DRAIN", reason=CORDONED + more, external=False), at=NOW + 1201)
    [resume] = nodes.looks(NOW + 1201)
    assert isinstance(resume, ChangeNode)
    assert resume.change is RESUME


def test_a_node_that_slurm_powers_up_for_a_job_is_drained_when_it_has_booted() -> None:
    """A drain before would end the job.  New nodes often join Kubernetes cordoned."""
    boots = theirs("ALLOCATED", "POWERING_UP", "CLOUD", external=False)
    cordoned = shared(unschedulable=True)
    nodes = Nodes([cordoned], [boots], SHARED)
    [show] = nodes.looks()
    told(nodes, show, cordoned)
    assert nodes.stays(boots, at=NOW, until=NOW + 90) == [[]] * 4
    nodes.shows(theirs("ALLOCATED", "CLOUD", external=False), at=NOW + 120)
    assert nodes.looks(NOW + 120) == [ChangeNode("x1", DRAIN, CORDONED, boots)]


def test_a_node_that_slurm_powered_down_and_that_boots_for_no_job_is_drained_at_once() -> None:
    off = theirs("IDLE", "POWERED_DOWN", "CLOUD", external=False)
    changes = [
        each for each in Nodes([shared(unschedulable=True)], [off], SHARED).looks() if isinstance(each, ChangeNode)
    ]
    assert changes == [ChangeNode("x1", DRAIN, CORDONED, off)]


def test_a_node_that_is_uncordoned_while_it_boots_for_a_job_is_resumed_at_once() -> None:
    boots = theirs("ALLOCATED", "POWERING_UP", "DRAIN", "CLOUD", reason=CORDONED, external=False)
    changes = [each for each in Nodes([shared()], [boots], SHARED).looks() if isinstance(each, ChangeNode)]
    assert [each.change for each in changes] == [RESUME]


@pytest.mark.parametrize(
    ("states", "power"),
    [
        (("IDLE", "POWERED_DOWN"), " Slurm has powered it down, to save power."),
        (("MIXED", "NOT_RESPONDING", "POWERING_UP"), " Slurm powers it up."),
    ],
)
def test_a_node_that_slurm_powers_down_to_save_power_is_in_service(states: tuple[str, ...], power: str) -> None:
    """Slurm gives it jobs.  Its slurmd, which does not respond yet, was shown as dead."""
    [show] = Nodes([shared()], [theirs(*states, external=False)], SHARED).looks()
    assert isinstance(show, SetNodeCondition)
    assert (show.status, show.message) == (True, f"In service in Slurm as x1; partitions: main.{power}")


def test_a_node_whose_reboot_failed_is_shown_as_down_with_the_reason() -> None:
    """It does not respond either, for which slurmctld has no reason."""
    failed = theirs("DOWN", "DRAIN", "NOT_RESPONDING", reason="kernel : reboot issued : reboot timed out")
    [show] = Nodes([shared()], [failed], SHARED).looks()
    assert isinstance(show, SetNodeCondition)
    assert show.message == "Slurm node x1 is down: kernel : reboot issued : reboot timed out."


@pytest.mark.parametrize("reboot", ["REBOOT_REQUESTED", "REBOOT_ISSUED"])
def test_a_node_that_an_admin_reboots_is_resumed_after_that(reboot: str) -> None:
    """A resume cancels the reboot."""
    boots = theirs("IDLE", "DRAIN", reboot, reason=CORDONED, external=False)
    nodes = Nodes([shared(in_slurm=None)], [boots], SHARED)
    [show] = nodes.looks()
    told(nodes, show, shared())
    assert nodes.stays(boots, at=NOW, until=NOW + 90) == [[]] * 4
    nodes.shows(theirs("IDLE", "DRAIN", reason=CORDONED, external=False), at=NOW + 120)
    [resume] = nodes.looks(NOW + 120)
    assert isinstance(resume, ChangeNode)
    assert resume.change is RESUME


@pytest.mark.parametrize("labels", [{}, LABEL], ids=["without the label", "with the label"])
def test_without_its_kubelet_an_external_node_of_an_admin_is_drained_and_never_set_down(labels: dict[str, str]) -> None:
    nodes = Nodes([shared(ready=False, labels=labels)], [theirs()], SHARED)
    [drain] = nodes.looks()
    assert drain == ChangeNode("x1", DRAIN, NOT_READY, theirs())
    nodes.ended(drain, at=NOW)
    gone = theirs("DRAIN", "IDLE", reason=NOT_READY)
    later = [each for some in nodes.stays(gone, at=NOW + 30, until=NOW + 3600) for each in some]
    assert not [each for each in later if isinstance(each, ChangeNode)]


def test_without_its_kubelet_a_node_with_a_slurmd_serves_slurm_unless_our_pods_may_still_run_there() -> None:
    """Whose GPUs would be given to a job of Slurm's own while a container still has them (S8)."""
    known = theirs(external=False)
    nodes = Nodes([shared(ready=False)], [known], SHARED)
    assert nodes.stays(known, at=NOW, until=NOW + 120) == [[]] * 5
    ours = pod(node="x1", phase=PodPhase.RUNNING)
    nodes.sees(ours, NodeSeen(shared(ready=False, labels={"seen": "again"})))
    nodes.shows(known, at=NOW + 150)
    [drain] = nodes.looks(NOW + 150)
    assert drain == ChangeNode("x1", DRAIN, NOT_READY, theirs())
    nodes.ended(drain, at=NOW + 150)
    gone = theirs("DRAIN", "IDLE", reason=NOT_READY, external=False)
    nodes.shows(gone, at=NOW + 151)
    [show] = nodes.looks(NOW + 151)
    told(nodes, show, shared(ready=False))
    nodes.loses(ours, NOW + 160)
    nodes.shows(gone, at=NOW + 181)
    [resume] = nodes.looks(NOW + 181)
    assert isinstance(resume, ChangeNode)
    assert resume.change is RESUME


def test_a_drain_of_another_scheduler_of_this_kubernetes_stays_while_its_pods_may_still_run_there() -> None:
    """Both say the same in their reasons, so neither may take back what only the other one knows of."""
    drained = theirs("DRAIN", "IDLE", reason=NOT_READY, external=False)
    nodes = Nodes([shared(ready=False)], [drained], SHARED)
    another = pod(node="x1", phase=PodPhase.RUNNING, scheduler_name="another", annotations={names.JOB_ID: "17"})
    nodes.sees(PodSeen(Scope.OTHERS, another))
    done = [each for some in nodes.stays(drained, at=NOW, until=NOW + 300) for each in some]
    assert not [each for each in done if isinstance(each, ChangeNode)]


def test_an_external_node_that_does_not_respond_is_cured_if_the_admin_allows_it_and_otherwise_reported() -> None:
    for external, cure, cures in ((True, True, 1), (True, False, 0), (False, True, 0)):
        silent = theirs("IDLE", "NOT_RESPONDING", external=external)
        nodes = Nodes([shared()], [silent], replace(SHARED, external_nodes=ExternalNodes(cure=cure)))
        [show] = nodes.looks()
        assert isinstance(show, SetNodeCondition)
        assert show.condition == names.NODE_SILENT
        assert ("slurmd" in show.message) is not external
        told(nodes, show, shared())
        done = [each for some in nodes.stays(silent, at=NOW, until=NOW + 300) for each in some]
        assert [type(each) for each in done] == [Reconfigure] * cures


def test_a_node_that_leaves_either_side_is_left_alone_by_then() -> None:
    drained = theirs("DRAIN", "IDLE", reason=CORDONED)
    nodes = Nodes([shared(unschedulable=True), node("x2")], [drained], SHARED)
    nodes.sees(NodeDeleted("x1"))
    assert nodes.stays(drained, at=NOW, until=NOW + 1200) == [[]] * 41, "an admin of Slurm says what becomes of it"
    nodes = Nodes([shared()], [], SHARED)
    assert [type(each) for each in nodes.looks()] == [UnmarkNode], "its condition is taken away"


def test_a_node_that_another_bridge_registered_is_left_alone() -> None:
    known = theirs(features=("slurm-bridge-k00000000",))
    nodes = Nodes([node("x1", unschedulable=True)], [known], SHARED)
    assert nodes.stays(known, at=NOW, until=NOW + 300) == [[]] * 11


def test_an_admin_who_does_not_share_them_gets_back_what_was_written_on_them() -> None:
    nodes = Nodes([shared(unschedulable=True)], [theirs()], replace(SHARED, shared_nodes=False))
    assert [type(each) for each in nodes.looks()] == [UnmarkNode]


def test_a_label_that_it_must_not_have_leaves_it_shared() -> None:
    nodes = Nodes([shared(unschedulable=True)], [theirs("DRAIN", "IDLE", reason=CORDONED)], SHARED)
    nodes.looks()
    nodes.sees(NodeSeen(shared(labels={names.EXTERNAL_NODE_LABEL: "true"})))
    [resume] = nodes.looks(NOW + 1)
    assert resume == ChangeNode("x1", RESUME, f"{CORDONED}: no more", theirs())
    nodes.ended(resume, at=NOW + 1)
    nodes.shows(theirs(), at=NOW + 2)
    [show] = nodes.looks(NOW + 2)
    assert isinstance(show, SetNodeCondition)
    assert show.condition == names.NODE_NOT_OURS
