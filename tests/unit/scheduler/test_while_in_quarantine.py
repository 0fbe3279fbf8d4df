"""What an object in quarantine keeps, what is noted of it meanwhile, and when it leaves (X8)."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    FailByDeadline,
    ObjectKind,
    Outcome,
    ReadJob,
    SubmitJob,
)
from scheduler.apply import kubernetes_nodes, plans, pods, submission_results
from scheduler.events import Event, NodeSeen, NodesListed, PodDeleted, PodSeen, PodsListed, Scope
from scheduler.model.kubernetes import Pod, PodTerm, Requirement
from scheduler.nodes.observed import NodeState
from scheduler.state import other_schedulers
from scheduler.state.workload import Workload
from scheduler.state.world import World
from tests.builders import CONFIG, START, Story, grant, job_of, node, pod
from tests.builders import key_of as key
from tests.defects import Defect, about, breaks, quarantined
from tests.unit.scheduler.test_gangs import ring
from tests.unit.scheduler.test_quarantine_events import anything, guarded

NOW = START + 20
AGAIN_S = CONFIG.tuning.quarantine_s
BAD, GOOD = pod("bad"), pod("good")
CHANGED = replace(BAD, labels={"a": "b"})


def drops(story: Story, monkeypatch: pytest.MonkeyPatch, seen: Pod) -> None:
    """This state of the pod cannot be applied; the next one can."""
    with monkeypatch.context() as broken:
        breaks(broken, pods, "note_edits", anything)
        story.sees(seen)
    assert {kind for kind, _ in quarantined(story)} == {ObjectKind.WORKLOAD}


def passes(story: Story, *times: float) -> list[Action]:
    """What the bridge does at these times; jobs are as the last poll showed them."""
    return [action for at in times for action in story.decides(at)]


@pytest.mark.parametrize(
    "seen",
    [
        [PodSeen(Scope.OURS, CHANGED)],
        [PodSeen(Scope.OURS, CHANGED), PodSeen(Scope.OURS, CHANGED)],
        [PodDeleted(Scope.OURS, BAD, NOW)],
    ],
    ids=["changed", "changed once", "gone"],
)
def test_a_change_of_a_pod_in_quarantine_is_only_noted_and_the_pod_is_tried_again_soon(
    monkeypatch: pytest.MonkeyPatch, seen: list[Event]
) -> None:
    breaks(monkeypatch, pods, "take_hint", anything)
    monkeypatch.setattr(pods, "_forget_pod", lambda *_: 1 / 0)  # an error at another place
    story = guarded()
    story.sees(BAD, *seen)
    assert len(story.world.alarms) == 1
    monkeypatch.undo()
    passes(story, NOW + 2, NOW + 3, NOW + 4)
    assert quarantined(story) == set()


def test_a_gang_in_quarantine_is_named_and_not_one_of_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    story = guarded()
    members = ring(2)
    story.sees(members[0])
    drops(story, monkeypatch, members[1])
    assert [alarm.readable for alarm in story.world.alarms] == ["hpc/ring"]


def test_a_pod_whose_job_was_known_before_it_is_named_in_the_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    story = guarded()
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(job_of(BAD, 17, "PENDING"), at=NOW)
    breaks(monkeypatch, pods, "take_workload", anything)
    story.sees(BAD)
    assert [alarm.readable for alarm in story.world.alarms] == ["hpc/bad"]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_submission_in_flight_is_not_repeated_after_the_quarantine_but_one_that_was_not_sent_is(
    monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    whole = plans._ON_PLANNED[AllocateNow]

    def broken(world: Any, action: AllocateNow, at: float) -> None:
        whole(world, action, at)
        raise Defect("placing")

    story = guarded()
    story.sees(BAD)
    if not in_place:
        monkeypatch.setitem(plans._ON_PLANNED, AllocateNow, broken)
    story.plan(NOW)
    monkeypatch.undo()
    if in_place:
        drops(story, monkeypatch, CHANGED)
    later = NOW + AGAIN_S
    asked = [each for each in passes(story, later, later + 1, later + 2) if isinstance(each, AllocateNow)]
    assert len(asked) == (0 if in_place else 1)
    assert quarantined(story) == set()


@pytest.mark.parametrize("answered", [False, True])
def test_a_bind_in_flight_is_not_repeated_after_the_quarantine(monkeypatch: pytest.MonkeyPatch, answered: bool) -> None:
    """Also if it was answered, and the watch has not shown the node yet."""
    story = guarded()
    bind = story.binds(BAD, 17, at=NOW)
    if answered:
        story.ended(bind, at=NOW)
    drops(story, monkeypatch, CHANGED)
    acts: list[Action] = []
    for at in range(1, 7):
        story.sees(replace(BAD, labels={"a": "c"}))  # a change, so it is tried again at once
        story.polls({17: "RUNNING"}, at=NOW + at)
        acts += story.decides(NOW + at)
    assert not [each for each in acts if isinstance(each, BindPod | AllocateNow | SubmitJob | CancelJob)]
    assert quarantined(story) == set()


def test_a_pod_of_another_scheduler_that_is_watched_as_a_workload_comes_back_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = guarded()
    there = pod("there", node="x1", scheduler_name="default-scheduler", bound_at=NOW - 100)
    story.sees(PodSeen(Scope.OTHERS, there))
    breaks(monkeypatch, other_schedulers, "note_pod", anything)
    story.sees(PodSeen(Scope.OTHERS, replace(there, labels={"a": "b"})))
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(there))}
    monkeypatch.undo()
    passes(story, NOW + AGAIN_S, NOW + AGAIN_S + 1)
    assert quarantined(story) == set()
    story.sees(PodsListed(Scope.OURS, (), NOW + AGAIN_S + 2))
    [workload] = story.world.workloads.values()
    assert (workload.of_other_scheduler, list(workload.pods)) == (True, [there.uid])


@pytest.mark.parametrize("listed", [False, True])
def test_a_node_that_raises_again_stays_in_quarantine_under_its_present_name_in_slurm(
    monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    story = guarded()
    breaks(monkeypatch, NodeState, "observe", lambda _, __, seen, *___: seen.name == "x1")
    renamed = node("x1", labels={names.SLURM_NODE_LABEL: "renamed"})
    story.sees(NodesListed((renamed, node("x2"))) if listed else NodeSeen(renamed))
    assert quarantined(story) == {(ObjectKind.NODE, "renamed")}
    passes(story, NOW + AGAIN_S, NOW + AGAIN_S + 1)
    assert quarantined(story) == {(ObjectKind.NODE, "renamed")}
    story.sees(NodeSeen(replace(renamed, unschedulable=True)))
    assert quarantined(story) == {(ObjectKind.NODE, "renamed")}, "its last state is kept"
    monkeypatch.undo()
    passes(story, NOW + 2 * AGAIN_S, NOW + 2 * AGAIN_S + 1)
    assert quarantined(story) == set()
    assert (story.world.nodes or {})["x1"].unschedulable
    assert len(story.world.alarms) == 1


@pytest.mark.parametrize(("owner", "broken"), [(Workload, "take_out"), (World, "note_needs"), (World, "refresh")])
def test_an_error_while_a_surplus_pod_leaves_its_gang_leaves_no_pod_half_in_two_workloads(
    monkeypatch: pytest.MonkeyPatch, owner: type, broken: str
) -> None:
    """The third pod ranks before the second, which has no place in the gang any more."""
    story = guarded()
    first, second = ring(2)
    third = replace(ring(3)[2], annotations=first.annotations)
    story.sees(first, third)
    gang = story.world.key_of_pod[first.uid]
    with monkeypatch.context() as patch:
        breaks(patch, owner, broken, lambda *args: any(frame.name == "move" for frame in traceback.extract_stack()))
        story.sees(second)
    assert quarantined(story) == {(ObjectKind.WORKLOAD, gang)}
    assert {story.world.key_of_pod[each.uid] for each in (first, second, third)} == {gang}
    passes(story, NOW + AGAIN_S, NOW + AGAIN_S + 1)
    assert quarantined(story) == set()
    assert [story.world.key_of_pod[each.uid] for each in (first, second, third)] == [gang, gang, key(third)]


def test_an_error_while_a_surplus_pod_comes_back_to_its_gang_leaves_no_pod_half_in_two_workloads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gang has the pod already, and the workload of the pod still has it, too."""
    story = guarded()
    first, second = ring(2)
    third = replace(ring(3)[2], annotations=first.annotations)
    story.sees(first, second, third)
    gang = story.world.key_of_pod[first.uid]
    with monkeypatch.context() as patch:
        breaks(
            patch, Workload, "take_out", lambda *args: any(each.name == "move" for each in traceback.extract_stack())
        )
        story.loses(second, NOW)
    assert quarantined(story) == {(ObjectKind.WORKLOAD, gang)}
    assert {story.world.key_of_pod[each.uid] for each in (first, third)} == {gang}
    assert key(third) not in story.world.workloads
    passes(story, NOW + AGAIN_S, NOW + AGAIN_S + 1)
    assert quarantined(story) == set()
    assert {story.world.key_of_pod[each.uid] for each in (first, third)} == {gang}


@pytest.mark.parametrize("was_sent", [True, False])
def test_the_end_of_a_pod_is_requested_again_after_the_quarantine_only_if_the_request_was_not_sent(
    monkeypatch: pytest.MonkeyPatch, was_sent: bool
) -> None:
    whole = plans._ON_PLANNED[FailByDeadline]

    def broken(world: Any, action: FailByDeadline, at: float) -> None:
        whole(world, action, at)
        raise Defect("placing")

    story = guarded()
    shown = story.runs(BAD, 17, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    story.reads(job_of(BAD, 17, "CANCELLED"), at=NOW + 1)
    if not was_sent:
        monkeypatch.setitem(plans._ON_PLANNED, FailByDeadline, broken)
    [end] = story.acts(FailByDeadline, NOW + 2)
    monkeypatch.undo()
    if was_sent:
        story.ended(end, at=NOW + 2)
        drops(story, monkeypatch, replace(shown, labels={"a": "b"}))
    story.sees(replace(shown, labels={"a": "c"}))
    later = [each for each in passes(story, *(NOW + at for at in range(3, 9))) if isinstance(each, FailByDeadline)]
    assert len(later) == (0 if was_sent else 1)
    assert quarantined(story) == set()


def test_a_pod_whose_job_ended_and_was_forgotten_during_the_quarantine_ends_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = guarded()
    shown = story.runs(BAD, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    drops(story, monkeypatch, replace(shown, labels={"a": "b"}))
    story.polls({17: "CANCELLED"}, at=NOW + 2)
    story.reads(job_of(BAD, 17, "CANCELLED"), at=NOW + 2)
    story.polls({}, at=NOW + 3)
    assert 17 not in story.world.placeholders
    story.sees(replace(shown, labels={"a": "c"}))
    acts: list[Action] = []
    for at in range(4, 20):
        story.polls({}, at=NOW + at)
        for action in story.decides(NOW + at):
            acts.append(action)
            if isinstance(action, ReadJob):
                story.reads(None, job_id=17, at=NOW + at)
            refused = {"outcome": Outcome.REFUSED, "number": 2016} if isinstance(action, AllocateNow) else {}
            story.ended(action, at=NOW + at, **refused)
    assert [each.name for each in acts if isinstance(each, FailByDeadline)] == ["bad"]


def test_a_node_whose_new_state_was_not_noted_at_all_is_in_quarantine_under_its_present_name_in_slurm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = guarded()
    breaks(monkeypatch, kubernetes_nodes, "note_decoded", anything)
    story.sees(NodeSeen(node("x1", labels={names.SLURM_NODE_LABEL: "renamed"})))
    assert quarantined(story) == {(ObjectKind.NODE, "renamed")}


def test_a_surplus_pod_goes_on_by_itself_while_its_gang_is_in_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    story = guarded()
    first, second = ring(2)
    third = replace(ring(3)[2], annotations=first.annotations)
    story.sees(first, second, third)
    drops(story, monkeypatch, replace(first, labels={**first.labels, "a": "b"}))
    assert [each.key for each in story.acts(AllocateNow, NOW)] == [key(third)]


def test_after_a_contained_error_pods_that_exclude_each_other_wait_for_those_in_flight_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F5: Slurm could put both on one node.  An allocation of a pod without such a term counts for nothing."""
    apart = (PodTerm((Requirement("app", "In", ("a",)),), frozenset({"hpc"})),)
    one, other = (pod(name, labels={"app": "a"}, anti_affinity=apart) for name in ("one", "other"))
    asked: dict[bool, list[type[Action]]] = {}
    for first in (GOOD, one):
        story = guarded()
        story.loses(story.runs(pod("before"), 9, at=NOW - 5), NOW - 4)
        story.sees(BAD, first)
        [bad] = [each for each in about(story.decides(NOW), BAD) if isinstance(each, AllocateNow)]
        with monkeypatch.context() as broken:
            breaks(broken, submission_results, "_forget_lost", anything)
            story.ended(bad, at=NOW + 1, job_id=17, grant=grant(17))
        story.sees(other)
        asked[first is one] = [type(each) for each in about(story.decides(NOW + 1), other)]
    assert asked == {False: [AllocateNow], True: []}
