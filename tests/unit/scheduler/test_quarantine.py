"""An error of the bridge's own is contained to the object that it is about, and everything else goes on (X8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler import decide, names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    ObjectKind,
    Outcome,
    ReadClaims,
    ReadJob,
    ReadOwner,
    ReadPod,
    SetNodeCondition,
    SetPodCondition,
    SubmitJob,
)
from scheduler.apply import job_polls, job_reads, plans, pods, submission_results
from scheduler.events import JobRead, NodeDeleted, NodeSeen, NodesListed, PodDeleted, PodSeen, PodsListed, Scope
from scheduler.explain import explain, key_of
from scheduler.model.kubernetes import PodPhase, PodTerm, Requirement
from scheduler.model.slurm import Job
from scheduler.rules import reconcile_nodes as reconcile
from scheduler.rules.guard import visit
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.phase import Phase
from scheduler.state.workload import Workload
from tests.builders import CONFIG, OWNER, START, Story, grant, job_of, node, pod
from tests.builders import key_of as key
from tests.defects import Defect, about, breaks, breaks_rule, quarantined
from tests.unit.scheduler.test_gangs import granted, ring

NOW = START + 20
AGAIN_S = CONFIG.tuning.quarantine_s
BAD, GOOD = pod("bad"), pod("good")


def known_to_have_room() -> Story:
    """A story in which nodes were granted at once before, so that several pods ask for them together."""
    story = Story(guarded=True)
    story.loses(story.runs(pod("before"), 9, at=NOW - 5), NOW - 4)
    return story


# --- rules ----------------------------------------------------------------------------------------------------------


def test_without_a_guard_an_error_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story = Story()
    story.sees(BAD)
    with pytest.raises(Defect):
        decide.decide(story.world, NOW)


@pytest.mark.parametrize("late", [False, True])
def test_a_rule_that_raises_stops_one_pod_and_no_other(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad", late=late)
    story = Story(guarded=True)
    story.sees(BAD, GOOD)
    planned = story.decides(NOW)
    assert about(planned, BAD) == []
    assert [type(each) for each in about(planned, GOOD)] == [AllocateNow]
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    [alarm] = story.world.alarms
    assert (alarm.kind, alarm.readable) == (ObjectKind.WORKLOAD, "hpc/bad")
    assert isinstance(alarm.error, Defect)


def test_an_error_is_shown_on_the_pod_once_and_names_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story = Story(guarded=True)
    story.sees(BAD)
    [said] = story.acts(SetPodCondition, NOW)
    assert (said.name, said.condition, said.warning) == ("bad", names.QUARANTINED, True)
    assert "leaves the pod alone" in said.message
    assert "Defect" not in said.message
    story.ended(said, at=NOW)
    assert story.acts(SetPodCondition, NOW + 10) == []


def test_an_object_in_quarantine_is_tried_again_after_a_while_and_when_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mend = breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story = Story(guarded=True, checked=False)
    story.sees(BAD)
    story.plan(NOW)
    plan = story.plan(NOW + 1)
    assert about(list(plan.actions), BAD) == []
    assert plan.wake_at is not None
    assert plan.wake_at <= NOW + AGAIN_S
    assert about(story.decides(NOW + AGAIN_S), BAD) == []
    assert len(story.world.alarms) == 1  # the same again is no news
    mend()
    assert about(story.decides(NOW + AGAIN_S + 10), BAD) == []
    assert len(about(story.decides(NOW + 2 * AGAIN_S), BAD)) == 1
    assert quarantined(story) == set()


def test_a_workload_that_is_gone_leaves_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story = Story(guarded=True)
    story.sees(BAD)
    story.decides(NOW)
    story.loses(BAD, NOW + 0.5)
    story.world.forget(key(BAD))
    story.decides(NOW + 1)
    assert quarantined(story) == set()


def test_a_change_of_the_pod_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    mend = breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story = Story(guarded=True)
    story.sees(BAD)
    story.decides(NOW)
    mend()
    story.sees(replace(BAD, annotations={names.PREFIX + "nice": "5"}))
    assert len(about(story.decides(NOW + 5), BAD)) == 1
    assert quarantined(story) == set()


def test_what_a_failed_rule_planned_takes_no_room_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad", late=True)
    story = Story(replace(CONFIG, tuning=replace(CONFIG.tuning, submits=1)), guarded=True)
    story.sees(BAD, GOOD)
    assert len(about(story.decides(NOW), GOOD)) == 1


def waits_behind_another(story: Story) -> None:
    story.queues(GOOD, 18, at=NOW - 5)
    story.sees(BAD)


def is_granted(story: Story) -> None:
    story.queues(BAD, 17, at=NOW - 5)
    story.polls({17: "RUNNING"}, at=NOW - 2)
    story.reads(job_of(BAD, 17), at=NOW - 2, granted=grant(17))


def is_granted_unread_nodes(story: Story) -> None:
    story.queues(BAD, 17, at=NOW - 5)
    story.polls({17: "RUNNING"}, at=NOW - 2)


def is_of(**fields: Any) -> Callable[[Story], None]:
    return lambda story: story.sees(replace(BAD, **fields))


@pytest.mark.parametrize(
    ("phase", "kind", "situation"),
    [
        (Phase.UNSUBMITTED, SubmitJob, waits_behind_another),
        (Phase.GRANTED, BindPod, is_granted),
        (Phase.GRANTED, ReadJob, is_granted_unread_nodes),
        (Phase.UNSUBMITTED, ReadOwner, is_of(owner=OWNER)),
        (Phase.UNSUBMITTED, ReadClaims, is_of(claims=("data",))),
    ],
)
def test_what_a_failed_rule_planned_is_planned_again_when_the_error_is_mended(
    monkeypatch: pytest.MonkeyPatch, phase: Phase, kind: type[Action], situation: Callable[[Story], None]
) -> None:
    """Nothing of the first plan is left: an owner that counted as being read would never be read."""
    story = Story(guarded=True)
    situation(story)
    mend = breaks_rule(monkeypatch, phase, "bad", late=True)
    assert not [each for each in story.decides(NOW) if isinstance(each, kind)]
    mend()
    story.polls(dict.fromkeys(story.world.states, "RUNNING"), at=NOW + AGAIN_S) if phase is Phase.GRANTED else None
    assert [type(each) for each in story.decides(NOW + AGAIN_S) if isinstance(each, kind)] == [kind]
    assert quarantined(story) == set()


def test_an_owner_whose_read_was_planned_by_a_failed_rule_is_read_for_the_next_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad", late=True)
    story = Story(guarded=True)
    story.sees(replace(BAD, owner=OWNER), replace(GOOD, owner=OWNER))
    assert [each.ref for each in story.acts(ReadOwner, NOW)] == [OWNER]


def test_nothing_is_done_to_a_pod_that_runs_and_its_job_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(guarded=True)
    shown = story.runs(BAD, 17, at=NOW)
    breaks_rule(monkeypatch, Phase.BOUND, "bad")
    breaks_rule(monkeypatch, Phase.DONE, "bad")
    breaks_rule(monkeypatch, Phase.ORPHANED, "bad")
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(replace(shown, deleting_at=NOW + 40))
    acts = story.decides(NOW + 2)
    story.loses(shown, NOW + 3)
    acts += story.decides(NOW + 60)
    story.polls({17: "CANCELLED"}, at=NOW + 61)
    acts += story.decides(NOW + 70)
    assert not [each for each in acts if isinstance(each, CancelJob | DeletePod | SubmitJob | AllocateNow)]
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}


def test_a_bound_pod_says_it_by_an_event_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(guarded=True)
    shown = story.runs(BAD, 17, at=NOW)
    breaks_rule(monkeypatch, Phase.BOUND, "bad")
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(replace(shown, labels={"a": "b"}))
    [said] = story.acts(SetPodCondition, NOW + 10)
    assert (said.condition, said.event) == ("", names.QUARANTINED)


def test_of_a_gang_the_pods_that_wait_or_run_say_it_and_not_those_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(guarded=True)
    waits, runs, leaves, ended = ring()
    breaks_rule(monkeypatch, Phase.BOUND, "ring")
    on_x1: Any = {"node": "x1", "phase": PodPhase.RUNNING}
    story.sees(waits, replace(runs, **on_x1), replace(leaves, **on_x1, deleting_at=NOW + 30))
    story.sees(replace(ended, node="x1", phase=PodPhase.FAILED))
    said = story.acts(SetPodCondition, NOW)
    assert {each.name: each.condition for each in said} == {waits.name: names.QUARANTINED, runs.name: ""}


def test_a_plan_shows_which_objects_leave_quarantine_and_which_nodes_need_no_other_visit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mended = breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    node_mended = breaks(monkeypatch, reconcile, "_reconcile", lambda _, known, __: known.name == "x1")
    story = Story(replace(CONFIG, shared_nodes=True), guarded=True)
    story.sees(BAD)
    plan = story.plan(NOW)
    assert (plan.visited_nodes, plan.lifted) == (("x1", "x2"), ())
    story.sees(GOOD)
    plan = story.plan(NOW + 1)
    assert (plan.visited_nodes, plan.lifted) == ((), ())
    assert story.plan(NOW + AGAIN_S).lifted == (), "both raise again"
    mended()
    node_mended()
    lifted = story.plan(NOW + 2 * AGAIN_S).lifted
    assert set(lifted) == {(ObjectKind.WORKLOAD, key(BAD)), (ObjectKind.NODE, "x1")}


def test_a_workload_whose_rule_did_not_run_yet_stays_in_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison of its pods with others takes several passes."""
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story = Story(guarded=True)
    story.sees(BAD)
    story.decides(NOW)
    [workload] = story.world.workloads.values()
    this_pass = Pass(story.world, NOW + AGAIN_S)
    visit(workload, this_pass, lambda *_: False)
    assert this_pass.plan().lifted == ()
    visit(workload, this_pass, lambda *_: True)
    assert this_pass.plan().lifted == ((ObjectKind.WORKLOAD, key(BAD)),)


def test_the_nudge_does_not_wait_for_a_job_in_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(guarded=True)
    for number, each in enumerate((BAD, GOOD)):
        story.queues(each, 17 + number, at=NOW + number)
    story.reads(job_of(BAD, 17, "PENDING", reason="Priority"), at=NOW + 3)
    story.reads(job_of(GOOD, 18, "PENDING", reason="Priority"), at=NOW + 3)
    breaks_rule(monkeypatch, Phase.QUEUED, "bad")
    story.polls({17: "PENDING", 18: "PENDING", 5: "RUNNING"}, at=NOW + 4)
    story.decides(NOW + 4)
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 6)
    nudged = [each for each in story.decides(NOW + 7) if type(each).__name__ == "NudgeScheduler"]
    assert [each.job_id for each in nudged] == [18]


def test_a_missing_job_in_quarantine_does_not_hold_the_others_back_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(guarded=True)
    crowd = [BAD, *(pod(f"p{number}") for number in range(12))]
    for number, each in enumerate(crowd):
        story.runs(each, 100 + number, at=NOW)
    story.polls(dict.fromkeys(range(100, 113), "RUNNING"), at=NOW + 1)
    story.polls({}, at=NOW + 2)
    assert story.world.held_back_since is not None
    breaks_rule(monkeypatch, Phase.BOUND, "bad")
    story.decides(NOW + 3)
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    story.polls(dict.fromkeys(range(101, 113), "RUNNING"), at=NOW + 4)
    for number, each in enumerate(crowd[1:]):
        story.reads(job_of(each, 101 + number, "RUNNING"), at=NOW + 5)
    story.polls(dict.fromkeys(range(101, 113), "RUNNING"), at=NOW + 6)
    assert story.world.held_back_since is None


# --- folds ----------------------------------------------------------------------------------------------------------


def of(name: str) -> Callable[..., bool]:
    """Arguments of which one is a workload with a pod of a name that begins so."""

    def concerns(*args: Any) -> bool:
        workloads = [each for each in args if isinstance(each, Workload)]
        return any(one.name.startswith(name) for each in workloads for one in each.pods.values())

    return concerns


def test_one_pod_that_cannot_be_applied_does_not_lose_the_others_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    mend = breaks(monkeypatch, pods, "take_hint", of("bad"))
    story = known_to_have_room()
    story.sees(PodsListed(Scope.OURS, (pod("first"), BAD, GOOD), NOW))
    planned = story.decides(NOW)
    assert about(planned, BAD) == []
    assert {each.key for each in planned if isinstance(each, AllocateNow)} == {key(pod("first")), key(GOOD)}
    assert [each.name for each in planned if isinstance(each, SetPodCondition)] == ["bad"]
    mend()
    assert about(story.decides(NOW + 10), BAD) == []
    assert story.plan(NOW + AGAIN_S).wake_at == NOW + AGAIN_S  # its facts are rebuilt …
    assert len(about(story.decides(NOW + AGAIN_S), BAD)) == 1  # … and its rule runs
    assert quarantined(story) == set()


def test_a_pod_that_was_dropped_is_tried_again_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    mend = breaks(monkeypatch, pods, "take_hint", of("bad"))
    story = Story(guarded=True)
    story.sees(BAD)
    story.decides(NOW)
    mend()
    story.sees(BAD)  # the same event twice: no change
    story.decides(NOW + 2)
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    story.sees(replace(BAD, labels={"a": "b"}))
    story.decides(NOW + 3)
    assert len(about(story.decides(NOW + 3), BAD)) == 1
    assert quarantined(story) == set()


def test_a_pod_that_was_dropped_and_is_gone_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, pods, "take_hint", of("bad"))
    story = Story(guarded=True)
    story.sees(BAD)
    story.decides(NOW)
    story.sees(PodsListed(Scope.OURS, (), NOW + 5))
    for at in (10, 20, AGAIN_S + 30, AGAIN_S + 31):
        story.decides(NOW + at)
    assert quarantined(story) == set()
    assert story.world.workloads == {}
    assert story.world.key_of_pod == {}


def test_a_running_pod_that_was_dropped_keeps_its_room_and_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(guarded=True)
    shown = story.runs(BAD, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    mend = breaks(monkeypatch, pods, "settle", of("bad"))
    monkeypatch.setattr(pods, "counts_the_same", lambda *_: False)
    story.sees(replace(shown, labels={"a": "b"}))
    assert list(story.world.node_info["x1"].pods) == [BAD.uid]
    acts = story.decides(NOW + 2)
    mend()
    acts += story.decides(NOW + AGAIN_S + 1) + story.decides(NOW + AGAIN_S + 1)
    assert quarantined(story) == set()
    assert story.world.phase_of[key(BAD)] is Phase.BOUND
    story.polls({17: "RUNNING"}, at=NOW + AGAIN_S + 1)
    acts += story.decides(NOW + AGAIN_S + 100)
    assert not [each for each in acts if isinstance(each, CancelJob | DeletePod | SubmitJob | AllocateNow)]


def test_a_running_pod_that_was_dropped_learns_that_its_jobs_id_is_another_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job was read as a stranger's while the pod was in quarantine; its nodes are asked for again (S7)."""
    story = Story(guarded=True)
    story.sees(replace(story.runs(BAD, 17, on="x2", at=NOW), started=NOW))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    mend = breaks(monkeypatch, job_reads, "_disprove", lambda *_: True)
    strangers = Job(17, "interactive", "carol", frozenset({"RUNNING"}), submitted=NOW + 40)
    story.reads(strangers, at=NOW + 61)
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    mend()
    asked: list[Action] = []
    for at in (62, 70, 61 + AGAIN_S, 62 + AGAIN_S, 63 + AGAIN_S, 66 + AGAIN_S):
        story.polls({17: "RUNNING"}, at=NOW + at)
        for action in story.decides(NOW + at):
            asked += [action] if isinstance(action, AllocateNow) else []
            if isinstance(action, ReadJob):
                story.reads(strangers, at=NOW + at)
            if not isinstance(action, AllocateNow):
                story.ended(action, at=NOW + at)
    assert [each.spec.required_nodes for each in asked if isinstance(each, AllocateNow)] == ["x2"]


def test_a_granted_pod_that_was_dropped_closes_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its anti-affinity kept another pod from the granted node (F5)."""
    apart = (PodTerm((Requirement("app", "In", ("a",)),), frozenset({"hpc"})),)
    bad, other = (pod(name, labels={"app": "a"}, anti_affinity=apart) for name in ("bad", "other"))
    story = Story(guarded=True)
    story.queues(bad, 17, at=NOW)
    story.polls({17: "RUNNING SUSPENDED"}, at=NOW + 1)
    story.reads(job_of(bad, 17, "RUNNING", "SUSPENDED"), at=NOW + 1, granted=grant(17))
    story.queues(other, 18, at=NOW + 2)
    assert story.world.closed_to(other, story.world.own_pods(key(other), [other]), with_granted=True) == {"x1"}
    breaks(monkeypatch, pods, "take_hint", of("bad"))
    story.decides(NOW + 3)
    story.sees(replace(bad, labels={"app": "a", "b": "c"}))
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(bad))}
    assert not story.world.closed_to(other, story.world.own_pods(key(other), [other]), with_granted=True)
    assert key(other) in story.world.dirty


def test_a_waiting_pod_that_was_dropped_is_not_asked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(guarded=True)
    story.queues(BAD, 17, at=NOW)
    mend = breaks(monkeypatch, pods, "take_hint", of("bad"))
    story.sees(replace(BAD, labels={"a": "b"}))
    mend()
    acts = []
    for at in range(1, 30):
        story.polls({17: "PENDING"}, at=NOW + at)
        acts += story.decides(NOW + at + 0.5)
        for read in [each for each in acts if isinstance(each, ReadJob) and story.world.is_under_way(each)]:
            story.sees(JobRead(17, NOW + at + 0.5, NOW + at + 0.6, job_of(BAD, 17, "PENDING")))
            story.ended(read, at=NOW + at + 0.6)
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}  # nothing was seen of it since
    acts += story.decides(NOW + AGAIN_S) + story.decides(NOW + AGAIN_S + 1)
    assert story.world.phase_of[key(BAD)] is Phase.QUEUED
    assert not [each for each in acts if isinstance(each, CancelJob | SubmitJob | AllocateNow)]
    assert quarantined(story) == set()


def test_a_gang_is_dropped_and_recreated_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, says = {names.PREFIX + names.GANG: "ring"}, {"gang-size": "3"}
    ring = [pod(f"w-{number}", labels=labels, says=says) for number in range(3)]
    story = Story(guarded=True)
    story.sees(*ring[:2])
    mend = breaks(monkeypatch, pods, "take_hint", lambda _, __, seen: seen.name == "w-2")
    story.sees(ring[2])
    assert not [each for each in story.decides(NOW) if isinstance(each, AllocateNow)]
    late = pod("w-9", labels=labels, says=says)  # seen while the others are not known
    story.sees(late)
    mend()
    story.loses(late, NOW + 1)
    story.decides(NOW + AGAIN_S)
    [asked] = [each for each in story.decides(NOW + AGAIN_S) if isinstance(each, AllocateNow)]
    assert asked.spec.tasks == 3


def test_a_gang_that_cannot_be_rebuilt_yet_loses_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, says = {names.PREFIX + names.GANG: "ring"}, {"gang-size": "3"}
    ring = [pod(f"w-{number}", labels=labels, says=says) for number in range(3)]
    broken = ["w-2"]
    breaks(monkeypatch, pods, "take_hint", lambda _, __, seen: seen.name in broken)
    story = Story(guarded=True)
    story.sees(*ring)
    broken[:] = ["w-0"]
    [gang] = set(story.world.key_of_pod.values())
    story.decides(NOW)
    story.decides(NOW + AGAIN_S)
    assert quarantined(story) == {(ObjectKind.WORKLOAD, gang)}, "the first pod raised again"
    assert story.world.key_of_pod == dict.fromkeys([each.uid for each in ring], gang)
    broken.clear()
    story.decides(NOW + 2 * AGAIN_S)
    [asked] = story.acts(AllocateNow, NOW + 2 * AGAIN_S + 1)
    assert (asked.spec.tasks, quarantined(story)) == (3, set())


def test_a_message_for_a_pod_that_is_in_another_gang_after_the_quarantine_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rule looked for the pod in the gang that the message was for, and the gang came into quarantine again and again."""
    says = {"gang-size": "2"}
    ring = [pod(f"w-{number}", labels={names.PREFIX + names.GANG: "ring"}, says=says) for number in range(2)]
    story = Story(nodes=(node("x1"),), guarded=True)
    story.sees(*ring)
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(PodSeen(Scope.OTHERS, replace(pod("other", cpu=64000), node="x1", scheduler_name="default-scheduler")))
    story.ended(asked, at=NOW + 1, job_id=17, grant=grant(17, cpus=2))
    [cancel] = story.acts(CancelJob, NOW + 1)
    story.ended(cancel, at=NOW + 1)
    mend = breaks(monkeypatch, pods, "take_hint", lambda _, __, seen: seen.name == "w-0")
    story.sees(replace(ring[0], labels={names.PREFIX + names.GANG: "star"}))
    mend()
    for second in (1, 10, AGAIN_S, AGAIN_S + 1, 2 * AGAIN_S):
        story.decides(NOW + 1 + second)
    assert quarantined(story) == set()


def test_an_answer_that_cannot_be_applied_frees_its_limit_class_and_loses_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(guarded=True)
    story.sees(BAD)
    [asked] = story.acts(AllocateNow, NOW)
    mend = breaks(monkeypatch, submission_results, "_forget_lost", of("bad"))
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    world = story.world
    assert world.under_way["submits"] == 0
    assert world.immediate_in_flight["main"] == 0
    assert world.in_flight == {}
    mend()
    reads = [each for each in story.decides(NOW + 1) if isinstance(each, ReadJob)]
    assert [each.job_id for each in reads] == [17]
    story.reads(job_of(BAD, 17, "RUNNING"), at=NOW + 2, granted=grant(17))
    story.ended(reads[0], at=NOW + 2)
    story.polls({17: "RUNNING"}, at=NOW + 20)
    acts = story.decides(NOW + AGAIN_S) + story.decides(NOW + AGAIN_S + 0.1)
    assert [(each.name, each.job_id) for each in acts if isinstance(each, BindPod)] == [("bad", 17)]
    assert not [each for each in acts if isinstance(each, AllocateNow | SubmitJob | CancelJob)]


def test_a_surplus_pod_that_comes_out_of_quarantine_before_its_lost_bind_was_looked_up_gets_nodes_of_its_own_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It counts as a member of its gang, which has no place for it, until it is certain that the bind had no effect."""
    story = Story(guarded=True)
    *members, extra = ring(3, says={"gang-size": "2"})
    story.sees(*members)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, at=NOW)
    story.sees(extra, *(story.bound(member, 17) for member in members))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=18, grant=grant(18))
    [bind] = story.acts(BindPod, NOW)
    story.ended(bind, Outcome.UNKNOWN, at=NOW)
    mend = breaks(monkeypatch, pods, "take_hint", of(extra.name))
    story.sees(replace(extra, labels=extra.labels | {"changed": "yes"}))
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(extra))}
    mend()
    acts = story.decides(NOW + AGAIN_S) + story.decides(NOW + AGAIN_S + 1)
    assert story.world.key_of_pod[extra.uid] == story.world.key_of_pod[members[0].uid]
    [read] = [each for each in acts if isinstance(each, ReadPod)]
    story.ended(read, at=NOW + AGAIN_S + 2, node="")
    assert story.world.key_of_pod[extra.uid] == key(extra)


def test_what_could_not_be_placed_is_not_performed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plans._ON_PLANNED[AllocateNow]

    def broken(world: Any, action: AllocateNow, at: float) -> None:
        whole(world, action, at)
        if action.key == key(BAD):
            raise Defect("placing")

    monkeypatch.setitem(plans._ON_PLANNED, AllocateNow, broken)
    story = known_to_have_room()
    story.sees(BAD, GOOD)
    asked = {each.key: each for each in story.acts(AllocateNow, NOW)}
    assert not story.world.is_under_way(asked[key(BAD)])
    assert story.world.is_under_way(asked[key(GOOD)])
    assert story.world.under_way["submits"] == 1
    assert story.world.immediate_in_flight["main"] == 1


def test_no_bind_of_a_gang_is_performed_if_another_bind_of_the_gang_could_not_be_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gang would be bound in part.  The pod that has nothing to do with the gang is bound."""
    whole = plans._ON_PLANNED[BindPod]

    def broken(world: Any, action: BindPod, at: float) -> None:
        whole(world, action, at)
        if action.name == "w-1":
            raise Defect("placing")

    story = known_to_have_room()
    story.sees(GOOD, *ring(2))
    for asked in story.acts(AllocateNow, NOW):
        two = granted(17, ("x2", 2))
        is_gang = asked.spec.tasks == 2
        story.ended(asked, at=NOW, job_id=17 if is_gang else 18, grant=two if is_gang else grant(18))
    monkeypatch.setitem(plans._ON_PLANNED, BindPod, broken)
    binds = story.acts(BindPod, NOW)
    assert {each.name for each in binds} == {"good", "w-0", "w-1"}
    assert {each.name for each in binds if story.world.is_under_way(each)} == {"good"}


def test_one_job_of_a_poll_that_cannot_be_applied_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(guarded=True)
    bad, good = story.runs(BAD, 17, at=NOW), story.runs(GOOD, 18, at=NOW)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    mend = breaks(monkeypatch, job_polls, "_poll_shows", lambda _, job_id, *__: job_id == 17)
    story.polls({17: "CANCELLED", 18: "CANCELLED"}, at=NOW + 2)
    assert story.world.placeholders[18].ended
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    mend()
    story.sees(replace(bad, labels={"a": "b"}))
    for at in (14, 14.1):
        story.polls({17: "CANCELLED", 18: "CANCELLED"}, at=NOW + at)
        story.decides(NOW + at)
    assert quarantined(story) == set()
    assert good.uid in story.world.workloads[key(GOOD)].pods


def test_a_job_that_cannot_be_applied_is_read_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    mend = breaks(monkeypatch, job_reads, "_decide_whose", lambda _, read: read.id == 17)
    story = Story(guarded=True)
    story.polls({17: "RUNNING"}, at=NOW)
    [read] = story.acts(ReadJob, NOW)
    story.reads(job_of(BAD, 17, "RUNNING"), at=NOW + 1)
    story.ended(read, at=NOW + 1)
    assert quarantined(story) == {(ObjectKind.JOB, "17")}
    assert story.acts(ReadJob, NOW + 2) == []
    mend()
    [read] = story.acts(ReadJob, NOW + AGAIN_S + 1)
    story.reads(replace(job_of(BAD, 17, "RUNNING"), name="interactive"), at=NOW + AGAIN_S + 1)
    assert quarantined(story) == set()


def test_another_schedulers_pod_that_cannot_be_counted_is_quarantined_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from scheduler.place import fit

    mend = breaks(monkeypatch, fit, "needs", lambda one: one.name == "odd")
    story = Story(guarded=True)
    beside, odd = pod("beside", cpu=3000, node="x1"), pod("odd", node="x1")
    story.sees(PodsListed(Scope.OTHERS, (beside, odd), NOW))
    assert quarantined(story) == {(ObjectKind.POD, odd.uid)}
    assert key_of(story.world, "hpc", "odd") is None, "it is no workload, so there is nothing to explain"
    assert story.world.node_info["x1"].taken["cpu"] == 3000
    story.sees(GOOD)
    assert len(about(story.decides(NOW), GOOD)) == 1
    story.decides(NOW + AGAIN_S)
    assert quarantined(story) == {(ObjectKind.POD, odd.uid)}, "it raised again"
    mend()
    story.decides(NOW + 2 * AGAIN_S)
    assert quarantined(story) == set()
    assert story.world.node_info["x1"].taken["cpu"] == 4000


@pytest.mark.parametrize("listed", [False, True])
def test_a_node_that_cannot_be_applied_is_used_by_no_pod_and_kept_from_no_pod(
    monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    from scheduler.nodes.observed import NodeState

    mend = breaks(monkeypatch, NodeState, "observe", lambda _, __, seen, *___: seen.name == "x1")
    story = Story(guarded=True)
    changed = (node("x1", cpu=63000), node("x2"))
    story.sees(*([NodesListed(changed)] if listed else [NodeSeen(each) for each in changed]))
    assert quarantined(story) == {(ObjectKind.NODE, "x1")}
    assert set(story.world.nodes or {}) == {"x2"}
    story.sees(GOOD)
    [asked] = story.acts(AllocateNow, NOW)
    assert asked.spec.excluded_nodes == "x1"
    mend()
    story.decides(NOW + AGAIN_S)
    assert quarantined(story) == set()
    assert set(story.world.nodes or {}) == {"x1", "x2"}


def test_a_node_in_quarantine_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    from scheduler.nodes.observed import NodeState

    breaks(monkeypatch, NodeState, "observe", lambda _, __, seen, *___: seen.name == "x1")
    story = Story(guarded=True)
    story.sees(NodeSeen(node("x1", cpu=63000)))
    story.sees(NodeDeleted("x1"))
    assert quarantined(story) == set()


def test_the_last_state_of_a_node_that_changed_its_name_in_quarantine_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    from scheduler.nodes.observed import NodeState

    mend = breaks(monkeypatch, NodeState, "observe", lambda _, __, seen, *___: seen.name == "x1")
    story = Story(guarded=True)
    story.sees(NodeSeen(node("x1", cpu=63000)))
    story.sees(NodeSeen(node("x1", labels={names.SLURM_NODE_LABEL: "renamed"})))
    mend()
    story.decides(NOW + AGAIN_S)
    assert story.world.by_slurm_name == {"x2": "x2", "renamed": "x1"}
    assert quarantined(story) == set()


def test_of_two_nodes_in_quarantine_with_one_name_in_slurm_the_other_is_tried_again_when_one_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from scheduler.nodes.observed import NodeState

    mend = breaks(monkeypatch, NodeState, "observe", lambda _, __, seen, *___: seen.name != "x2")
    story = Story(guarded=True)
    story.sees(NodeSeen(node("x1", cpu=63000)), NodeSeen(node("twin", labels={names.SLURM_NODE_LABEL: "x1"})))
    assert quarantined(story) == {(ObjectKind.NODE, "x1")}
    story.sees(NodeDeleted("x1"))
    assert quarantined(story) == {(ObjectKind.NODE, "x1")}
    mend()
    story.decides(NOW + AGAIN_S)
    assert set(story.world.nodes or {}) == {"x2", "twin"}
    assert quarantined(story) == set()


def test_a_node_whose_rule_raises_is_left_alone_and_the_others_are_kept_in_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mend = breaks(monkeypatch, reconcile, "_reconcile", lambda _, known, __: known.name == "x1")
    story = Story(replace(CONFIG, shared_nodes=True), guarded=True)
    shown = [each.node for each in story.acts(SetNodeCondition, NOW)]
    assert shown == ["x2"]
    assert quarantined(story) == {(ObjectKind.NODE, "x1")}
    assert story.acts(SetNodeCondition, NOW + 1) == []
    mend()
    assert [each.node for each in story.acts(SetNodeCondition, NOW + AGAIN_S)] == ["x1"]
    assert quarantined(story) == set()


def test_actions_on_nodes_are_done_although_the_reconfiguration_of_slurm_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaks(monkeypatch, decide, "auto_reconfigure", lambda _: True)
    story = Story(replace(CONFIG, shared_nodes=True), guarded=True)
    shown = [each.node for each in story.acts(SetNodeCondition, NOW)]
    assert shown == ["x1", "x2"]
    assert quarantined(story) == {(ObjectKind.SHARED, "the reconfiguration of Slurm")}


# --- what users see -------------------------------------------------------------------------------------------------


def test_explain_shows_the_quarantine_and_runs_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    breaks(monkeypatch, pods, "take_hint", of("dropped"))
    story = Story(guarded=True)
    story.sees(BAD, pod("dropped"))
    story.decides(NOW)
    for name in ("bad", "dropped"):
        found = key_of(story.world, "hpc", name)
        assert found is not None
        told = explain(story.world, found, NOW + 1)
        assert (told.name, told.phase, told.next) == (name, "quarantined", ())
        assert "leaves the pod alone" in told.sentence


def test_of_ten_thousand_pods_that_break_a_rule_each_pass_tries_none_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in quarantine costs no rule until it changes or its time has come."""
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story = Story(guarded=True)
    story.sees(*(pod(f"bad{number}") for number in range(50)))
    story.decides(NOW)
    assert story.plan(NOW + 1).failed == ()


def test_a_pod_that_is_gone_takes_its_quarantine_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story = Story(guarded=True)
    story.sees(BAD)
    story.decides(NOW)
    story.sees(PodDeleted(Scope.OURS, BAD, NOW + 1))
    story.decides(NOW + 2)
    story.decides(NOW + 3)
    assert quarantined(story) == set()
    assert story.world.workloads == {}


def test_a_pod_that_comes_while_its_cluster_is_unknown_is_contained_too(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, pods, "take_hint", of("bad"))
    story = Story(guarded=True)
    story.world.namespaces, known = None, story.world.namespaces
    story.sees(PodSeen(Scope.OURS, BAD), PodSeen(Scope.OURS, GOOD))
    from scheduler.events import NamespacesListed

    assert known is not None
    story.sees(NamespacesListed(tuple(known.values())))
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    assert key(GOOD) in story.world.workloads


def test_an_unknown_outcome_is_looked_up_also_after_the_workload_was_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(guarded=True)
    story.sees(BAD)
    [asked] = story.acts(AllocateNow, NOW)
    mend = breaks(monkeypatch, pods, "take_hint", of("bad"))
    story.sees(replace(BAD, labels={"a": "b"}))
    mend()
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 1)
    story.sees(replace(BAD, labels={"a": "c"}))
    assert about(story.decides(NOW + 5), BAD) + about(story.decides(NOW + 5), BAD) == []  # the call may still land
    story.polls({}, at=NOW + 30)
    assert [type(each) for each in about(story.decides(NOW + 30), BAD)] == [AllocateNow]
