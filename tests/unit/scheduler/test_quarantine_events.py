"""An error while an event is applied is contained to the object of that event; the rest of the event counts (X8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    ChangeNode,
    DeletePod,
    FailByDeadline,
    ObjectKind,
    Outcome,
    Plan,
    PollNodes,
    ReadClaims,
    ReadJob,
    ReadLimits,
    ReadOwner,
    RegisterNode,
    SetNodeCondition,
    SetPodCondition,
    SubmitJob,
)
from scheduler.apply import (
    job_polls,
    job_reads,
    plans,
    pod_references,
    pods,
    results,
    slurm_nodes,
    submission_results,
    surplus,
)
from scheduler.events import (
    AbsenceConfirmed,
    ClaimsRead,
    JobsPolled,
    NamespaceSeen,
    NodeDeleted,
    NodeSeen,
    OwnerRead,
    Planned,
    PodDeleted,
    PodSeen,
    Scope,
    SlurmNodesPolled,
)
from scheduler.model.kubernetes import Claim, Namespace, PodTerm, Requirement
from scheduler.model.limits import LimitsOf
from scheduler.model.slurm import Partition
from scheduler.nodes.observed import NodeState
from scheduler.place import fit
from scheduler.state import other_schedulers, quarantine
from scheduler.state.phase import Phase
from tests.builders import CONFIG, OWNER, START, Story, grant, job_of, node, pod, slurm_node, without
from tests.builders import key_of as key
from tests.defects import Defect, about, breaks, breaks_rule, quarantined

NOW = START + 20
AGAIN_S = CONFIG.tuning.quarantine_s
BAD, GOOD = pod("bad"), pod("good")


def guarded() -> Story:
    """A guarded story in which all indexes of the World are checked after each event."""
    return Story(without(CONFIG, validate_every=1), guarded=True)


def anything(*_: Any) -> bool:
    return True


def sees_bad(_: Any, __: Any, seen: Any) -> bool:
    """The arguments of the fold of a pod's hint, for a pod whose name begins with "bad"."""
    return bool(seen.name.startswith("bad"))


def test_without_a_guard_an_error_in_an_event_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, pods, "take_hint", sees_bad)
    with pytest.raises(Defect):
        Story().sees(BAD)


def test_without_a_guard_an_error_in_the_counts_of_a_node_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, fit, "needs", lambda one: one.name == "odd")
    with pytest.raises(Defect):
        Story().sees(PodSeen(Scope.OTHERS, pod("odd", node="x1")))


def test_without_a_guard_an_error_about_one_of_many_nodes_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, NodeState, "_note", lambda _, name, *__: name == "x1")
    with pytest.raises(Defect):
        Story()


def test_another_error_of_the_same_pod_is_logged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad")
    story = guarded()
    story.sees(BAD)
    story.decides(NOW)
    breaks(monkeypatch, pods, "take_hint", sees_bad)
    story.sees(replace(BAD, labels={"a": "b"}))
    assert [str(alarm.error) for alarm in story.world.alarms] == [Phase.UNSUBMITTED.value, "take_hint"]
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}


def test_an_error_of_the_containment_itself_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, pods, "take_hint", sees_bad)
    mend = breaks(monkeypatch, quarantine, "quarantine_pod", anything)
    story = Story(guarded=True, checked=False)
    story.sees(BAD, GOOD)
    assert {alarm.readable for alarm in story.world.alarms} == {"PodSeen", "containment of PodSeen"}
    assert len(about(story.decides(NOW), GOOD)) == 1
    mend()
    story.decides(NOW + AGAIN_S)
    assert quarantined(story) == set()


# --- pods -------------------------------------------------------------------------------------------------------------


def test_the_job_of_a_pod_whose_deletion_could_not_be_applied_is_kept_until_its_containers_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S3: the end of its containers was not observed, and its node does not know that the devices are free."""
    story = guarded()
    shown = story.runs(BAD, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    mend = breaks(monkeypatch, pods, "_forget_pod", lambda _, __, gone, ___: gone.name == "bad")
    story.loses(shown, NOW + 2)
    mend()
    ended_at = NOW + 2 + shown.grace_s + CONFIG.tuning.gone_grace_s
    acts: list[Action] = []
    for at in (ended_at - 5, ended_at - 4):
        story.polls({17: "RUNNING"}, at=at)
        acts += story.decides(at)
    assert not [each for each in acts if isinstance(each, CancelJob)]
    for at in (NOW + AGAIN_S + 5, NOW + AGAIN_S + 6, NOW + AGAIN_S + 7):
        story.polls({17: "RUNNING"}, at=at)
        acts += story.decides(at)
        story.reads(job_of(BAD, 17, "RUNNING"), at=at, granted=grant(17))
    assert [each.job_id for each in acts if isinstance(each, CancelJob)] == [17]
    assert quarantined(story) == set()


def test_the_deletion_of_a_pod_that_the_world_did_not_know_is_contained_too(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, pods, "_forget_pod", anything)
    story = guarded()
    story.sees(PodDeleted(Scope.OURS, BAD, NOW))
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    for at in (NOW + 1, NOW + AGAIN_S + 1, NOW + AGAIN_S + 2, NOW + AGAIN_S + 3):
        story.decides(at)
    assert (quarantined(story), story.world.workloads) == (set(), {})


def test_a_pod_of_another_scheduler_that_cannot_be_judged_as_a_stray_takes_room_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = guarded()
    there = pod("there", cpu=3000, node="x1", scheduler_name="default-scheduler")
    mend = breaks(monkeypatch, other_schedulers, "note_pod", lambda _, seen: seen.name == "there")
    story.sees(PodSeen(Scope.OTHERS, there))
    assert quarantined(story) == {(ObjectKind.POD, there.uid)}
    assert story.world.node_info["x1"].taken["cpu"] == 3000
    mend()
    story.sees(PodDeleted(Scope.OTHERS, there, NOW))
    assert quarantined(story) == set()
    assert "x1" not in story.world.node_info


def test_volumes_that_cannot_be_applied_stop_their_pod_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    story = guarded()
    with_data = replace(BAD, claims=("data",))
    story.sees(with_data, GOOD)
    [read] = story.acts(ReadClaims, NOW)
    monkeypatch.setattr(story.world, "claims", None)
    story.sees(ClaimsRead(read.uid, (Claim("data", bound=True),), NOW + 1))
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    monkeypatch.undo()
    story.ended(read, at=NOW + 1)
    later = NOW + 1 + AGAIN_S
    story.decides(later)
    [again] = story.acts(ReadClaims, later)
    story.sees(ClaimsRead(again.uid, (Claim("data", bound=True),), later + 1))
    story.ended(again, at=later + 1)
    assert [type(each) for each in about(story.decides(later + 1), BAD)] == [SubmitJob]


# --- jobs and their answers ---------------------------------------------------------------------------------------------


def test_while_it_cannot_be_judged_if_many_jobs_are_missing_no_pod_is_ended_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X6: the safe side is to wait."""
    story = guarded()
    story.runs(GOOD, 18, at=NOW)
    story.polls({18: "RUNNING"}, at=NOW + 1)
    mend = breaks(monkeypatch, job_polls, "judge_absence", anything)
    acts: list[Action] = []
    for at in range(15, 30, 3):
        story.polls({}, at=NOW + at)
        story.reads(None, job_id=18, at=NOW + at)
        for action in story.decides(NOW + at):
            acts.append(action)
            if isinstance(action, AllocateNow):
                story.ended(action, Outcome.REFUSED, at=NOW + at, number=2014)
            else:
                story.ended(action, at=NOW + at)
    assert {each.spec.required_nodes for each in acts if isinstance(each, AllocateNow)} == {"x1"}, "S7"
    assert not [each for each in acts if isinstance(each, DeletePod | FailByDeadline)]
    assert quarantined(story) == {(ObjectKind.SHARED, "whether many jobs are missing")}
    mend()
    story.polls({}, at=NOW + 30)
    [again] = [each for each in story.decides(NOW + 30) if not isinstance(each, SetPodCondition)]
    assert isinstance(again, AllocateNow), "an admin decides"
    story.ended(again, Outcome.REFUSED, at=NOW + 30, number=2014)
    story.sees(AbsenceConfirmed(NOW + 31))
    [again] = story.acts(AllocateNow, NOW + 31)
    story.ended(again, Outcome.REFUSED, at=NOW + 31, number=2014)
    assert [each.name for each in story.acts(FailByDeadline, NOW + 31)] == ["good"]


def test_a_read_that_cannot_be_applied_drops_the_workload_whose_name_the_job_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mend = breaks(monkeypatch, job_reads, "_decide_whose", lambda _, read: read.id == 17)
    story = guarded()
    story.sees(replace(BAD, created=START - 100))
    story.polls({17: "RUNNING"}, at=START + 1)
    [read] = story.acts(ReadJob, START + 1)
    story.reads(job_of(BAD, 17, "RUNNING"), at=START + 2, granted=grant(17))
    story.ended(read, at=START + 2)
    assert quarantined(story) == {(ObjectKind.JOB, "17"), (ObjectKind.WORKLOAD, key(BAD))}
    assert about(story.decides(NOW), BAD) == []
    mend()
    acts: list[Action] = []
    for at in (AGAIN_S + 2, AGAIN_S + 3, AGAIN_S + 4):
        story.polls({17: "RUNNING"}, at=NOW + at)
        for action in story.decides(NOW + at):
            acts.append(action)
            if isinstance(action, ReadJob):
                story.reads(job_of(BAD, 17, "RUNNING"), at=NOW + at, granted=grant(17))
            story.ended(action, at=NOW + at)
    assert [(each.name, each.job_id) for each in acts if isinstance(each, BindPod)] == [("bad", 17)]
    assert quarantined(story) == set()


@pytest.mark.parametrize(
    ("event", "broken", "name"),
    [
        (JobsPolled(NOW, NOW, {}), job_polls, "_still_missing"),
        (SlurmNodesPolled((slurm_node(),), (), NOW), slurm_nodes, "_last_known"),
    ],
)
def test_an_event_about_all_objects_that_cannot_be_applied_is_forgotten_when_the_next_one_can(
    monkeypatch: pytest.MonkeyPatch, event: Any, broken: Any, name: str
) -> None:
    mend = breaks(monkeypatch, broken, name, anything)
    story = Story(guarded=True)
    story.sees(event)
    assert quarantined(story) == {(ObjectKind.SHARED, type(event).__name__)}
    mend()
    story.sees(event)
    assert quarantined(story) == set()


def test_a_plan_that_cannot_be_applied_is_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    story = guarded()
    story.sees(GOOD)
    mend = breaks(monkeypatch, plans, "_leave_nodes_out", anything)
    [lost] = story.acts(AllocateNow, NOW)
    assert not story.world.is_under_way(lost)
    assert quarantined(story) == {(ObjectKind.SHARED, "Planned")}
    mend()
    [asked] = story.acts(AllocateNow, NOW + 1)
    assert story.world.is_under_way(asked)
    assert quarantined(story) == set()


def test_what_else_is_in_flight_stays_in_flight_when_the_end_of_one_action_cannot_be_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apart = (PodTerm((Requirement("app", "In", ("a",)),), frozenset({"hpc"})),)
    story = guarded()
    story.loses(story.runs(pod("before"), 9, at=NOW - 5), NOW - 4)
    owned, with_data = pod("owned", owner=OWNER), pod("with-data", claims=("data",))
    story.sees(BAD, pod("apart", labels={"app": "a"}, anti_affinity=apart), owned, with_data)
    story.polls({9: "RUNNING", 40: "RUNNING"}, at=NOW)
    planned = story.decides(NOW)
    assert {AllocateNow, ReadClaims, ReadOwner, ReadJob} <= {type(each) for each in planned}
    [asked] = [each for each in about(planned, BAD) if isinstance(each, AllocateNow)]
    before = story.world.under_way["submits"]
    breaks(monkeypatch, submission_results, "_forget_lost", anything)
    story.ended(asked, at=NOW + 1, job_id=47, grant=grant(47))
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    assert story.world.under_way["submits"] == before - 1
    again = story.decides(NOW + 1)
    assert not [each for each in again if isinstance(each, AllocateNow | ReadClaims | ReadOwner)], "they are in flight"
    assert [each.job_id for each in again if isinstance(each, ReadJob)] == [47]


def test_limits_that_are_being_read_are_not_read_twice_after_an_answer_that_could_not_be_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(guarded=True)
    story.sees(BAD)
    [asked] = story.acts(AllocateNow, NOW)
    limits = ReadLimits(key(GOOD), LimitsOf("alice", "teama", "normal"), "the limits of alice in account teama")
    story.sees(Planned(Plan((limits,)), NOW))
    breaks(monkeypatch, submission_results, "_forget_lost", anything)
    story.ended(asked, at=NOW + 1, job_id=17, grant=grant(17))
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    assert story.world.reading_limits == {limits.of}
    story.world.validate()


def test_an_answer_about_a_workload_that_is_gone_and_that_cannot_be_applied_stops_no_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = guarded()
    story.queues(BAD, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.loses(BAD, NOW + 2)
    [cancel] = story.acts(CancelJob, NOW + 2)
    story.world.forget(key(BAD))
    monkeypatch.setitem(results._ON_ENDED, CancelJob, lambda *_: 1 / 0)
    story.ended(cancel, at=NOW + 3)
    assert quarantined(story) == {(ObjectKind.SHARED, "an event of no workload")}
    assert story.world.in_flight == {}
    story.sees(GOOD)
    assert [type(each) for each in about(story.decides(NOW + 3), GOOD)] == [AllocateNow]
    story.decides(NOW + 3 + AGAIN_S)
    assert quarantined(story) == set()


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_a_node_whose_removal_could_not_be_applied_is_gone_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    mend = breaks(monkeypatch, NodeState, "remove_node", lambda _, before: before.name == "x1")
    story = guarded()
    story.sees(NodeDeleted("x1"))
    assert quarantined(story) == {(ObjectKind.NODE, "x1")}
    assert set(story.world.nodes or {}) == {"x2"}
    mend()
    story.sees(NodeSeen(node("x1")))
    story.decides(NOW + AGAIN_S)
    assert quarantined(story) == set()
    assert set(story.world.nodes or {}) == {"x1", "x2"}


def test_a_slurm_node_whose_state_cannot_be_noted_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(without(replace(CONFIG, shared_nodes=True), validate_every=1), guarded=True)
    mend = breaks(monkeypatch, NodeState, "_note", lambda _, name, *__: name == "x1")
    silent = replace(slurm_node("x1"), states=frozenset({"IDLE", "EXTERNAL", "NOT_RESPONDING"}))
    both = (silent, replace(silent, name="x2"))
    story.sees(SlurmNodesPolled(both, (), NOW))
    assert quarantined(story) == {(ObjectKind.NODE, "x1")}
    assert story.world.node_state.silent == {"x2": NOW}
    mend()
    story.sees(SlurmNodesPolled(both, (), NOW + 30))
    assert story.world.node_state.silent == {"x2": NOW, "x1": NOW + 30}
    story.decides(NOW + 30)
    assert quarantined(story) == set()


def test_a_name_that_two_nodes_claim_stays_contested_while_one_of_them_is_in_quarantine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one may be an impostor."""
    story = guarded()
    twin = node("twin", labels={names.SLURM_NODE_LABEL: "x1"})
    story.sees(NodeSeen(twin))
    assert story.world.contested == {"x1": ("twin", "x1")}
    breaks(monkeypatch, NodeState, "observe", lambda _, __, seen, *___: seen.name == "twin")
    story.sees(NodeSeen(replace(twin, unschedulable=True)))
    assert quarantined(story) == {(ObjectKind.NODE, "x1")}
    assert (set(story.world.nodes or {}), set(story.world.contested["x1"])) == ({"x1", "x2"}, {"x1", "twin"})
    story.sees(GOOD)
    [asked] = story.acts(AllocateNow, NOW)
    assert asked.spec.excluded_nodes == "x1"
    story.sees(NodeDeleted("twin"))
    assert (story.world.contested, story.world.by_slurm_name) == ({}, {"x1": "x1", "x2": "x2"})


LABELLED = node("x3", labels={names.EXTERNAL_NODE_LABEL: "true"}, address="198.51.100.7", ready=True, ready_since=START)


@pytest.mark.parametrize("broken", [RegisterNode, SetNodeCondition])
def test_the_end_of_an_action_on_a_node_that_cannot_be_applied_is_about_that_node(
    monkeypatch: pytest.MonkeyPatch, broken: type[Action]
) -> None:
    """A registration, and a write in Kubernetes."""
    story = Story(without(replace(CONFIG, shared_nodes=True), validate_every=1, node_settle_s=0), guarded=True)
    story.sees(NodeSeen(LABELLED))
    planned = story.decides(NOW)
    action = next(each for each in planned if isinstance(each, broken))
    rest = [each for each in planned if each is not action]
    monkeypatch.setitem(results._ON_ENDED, broken, lambda *_: 1 / 0)
    story.ended(action, at=NOW + 1)
    [(kind, name)] = quarantined(story)
    assert (kind, name) == (ObjectKind.NODE, "x3" if broken is RegisterNode else getattr(action, "node", ""))
    assert not story.world.is_under_way(action)
    assert all(story.world.is_under_way(each) for each in rest)
    monkeypatch.undo()
    for each in rest:
        story.ended(each, at=NOW + 2)
    story.sees(SlurmNodesPolled((slurm_node("x1"), slurm_node("x2")), (), NOW + AGAIN_S))
    assert [type(each) for each in story.decides(NOW + AGAIN_S) if isinstance(each, broken)] != []
    assert quarantined(story) == set()


def test_a_drain_in_flight_is_not_repeated_if_the_end_of_another_action_on_its_node_cannot_be_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(without(replace(CONFIG, shared_nodes=True), validate_every=1), guarded=True)
    [show, other] = [each for each in story.decides(NOW) if isinstance(each, SetNodeCondition)]
    cordoned = node(show.node, unschedulable=True)
    story.sees(NodeSeen(cordoned))
    [drain] = story.acts(ChangeNode, NOW)
    monkeypatch.setitem(results._ON_ENDED, SetNodeCondition, lambda *_: 1 / 0)
    story.ended(show, at=NOW + 1)
    assert quarantined(story) == {(ObjectKind.NODE, show.node)}
    assert story.acts(ChangeNode, NOW + 1 + AGAIN_S) == []
    monkeypatch.undo()
    story.ended(other, at=NOW + 2 + AGAIN_S)
    story.ended(drain, Outcome.UNREACHED, at=NOW + 2 + AGAIN_S)
    story.sees(SlurmNodesPolled((slurm_node("x1"), slurm_node("x2")), (), NOW + 3 + AGAIN_S))
    assert [each.name for each in story.acts(ChangeNode, NOW + 3 + AGAIN_S)] == [show.node]


def test_a_poll_of_nodes_whose_end_cannot_be_applied_is_not_in_flight_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(without(CONFIG, validate_every=1, node_settle_s=0), guarded=True)
    story.sees(NodeSeen(LABELLED))
    [register] = story.acts(RegisterNode, NOW)
    story.ended(register, at=NOW + 1)
    [poll] = story.acts(PollNodes, NOW + 1)
    monkeypatch.setitem(results._ON_ENDED, PollNodes, lambda *_: 1 / 0)
    story.ended(poll, at=NOW + 2)
    assert quarantined(story) == {(ObjectKind.SHARED, "PollNodes")}
    assert not story.world.is_under_way(poll)
    story.decides(NOW + 2 + AGAIN_S)
    assert quarantined(story) == set()


def test_an_owner_that_cannot_be_applied_to_one_pod_is_applied_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    story = guarded()
    story.sees(replace(BAD, owner=OWNER), replace(GOOD, owner=OWNER))
    [read] = story.acts(ReadOwner, NOW)
    breaks(monkeypatch, pod_references, "settle_and_refresh", lambda _, workload: workload.readable == "hpc/bad")
    story.sees(OwnerRead(OWNER, None, NOW + 1, "hpc"))
    story.ended(read, at=NOW + 1)
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    assert len(about(story.decides(NOW + 1), GOOD)) == 1


def test_a_pod_that_cannot_be_judged_when_its_namespace_becomes_managed_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = guarded()
    story.sees(NamespaceSeen(Namespace("hpc", "1")))
    odd, there = (
        pod(name, node="x1", scheduler_name="default-scheduler", bound_at=NOW - 100) for name in ("odd", "there")
    )
    story.sees(PodSeen(Scope.OTHERS, odd), PodSeen(Scope.OTHERS, there))
    breaks(monkeypatch, other_schedulers, "note_pod", lambda _, seen: seen.name == "odd")
    story.sees(NamespaceSeen(Namespace("hpc", "1", {names.MANAGED_LABEL: "true"})))
    assert quarantined(story) == {(ObjectKind.POD, odd.uid)}
    assert [each.readable for each in story.world.workloads.values()] == ["hpc/there"]


def test_a_pod_that_cannot_leave_its_gang_is_of_the_gang_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third pod ranks before the second, which has no place in the gang any more."""
    story = guarded()
    ring: Any = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}}
    first, third, second = (pod(f"g-{number}", **ring) for number in (0, 2, 1))
    story.sees(first, third)
    with monkeypatch.context() as broken:
        breaks(broken, surplus, "move", anything)
        story.sees(second)
    world, gang = story.world, story.world.key_of_pod[first.uid]
    assert [world.key_of_pod[each.uid] for each in (second, third)] == [gang, gang]
    assert quarantined(story) == {(ObjectKind.WORKLOAD, gang)}
    story.plan(NOW + AGAIN_S)
    story.sees(second)
    assert world.key_of_pod[third.uid] == key(third), "the gang is judged again, and the pod leaves it"


def test_a_status_that_a_failed_rule_planned_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "bad", late=True)
    story = guarded()
    story.sees(pod("bad", says={"nice": "x"}))
    assert [each.condition for each in story.acts(SetPodCondition, NOW)] == [names.QUARANTINED]


def test_a_contained_error_leaves_an_allocation_in_flight_in_the_partition_in_which_it_was_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The default partition got its name meanwhile: the recount counted the allocation there, and its answer did not."""
    story = guarded()
    nodes = slurm_node("x1"), slurm_node("x2")
    story.sees(SlurmNodesPolled(nodes, (), NOW))
    story.sees(pod("first"))
    [first] = story.acts(AllocateNow, NOW)
    story.ended(first, at=NOW, job_id=16, grant=grant(16))
    story.sees(BAD, GOOD)
    asked = {each.key: each for each in story.acts(AllocateNow, NOW)}
    story.sees(SlurmNodesPolled(nodes, (Partition("main", default=True),), NOW + 0.1))
    breaks(monkeypatch, submission_results, "_submitted", lambda _, workload, *__: workload.readable == BAD.full_name)
    story.ended(asked[key(BAD)], at=NOW + 0.2, job_id=17, grant=grant(17))
    assert quarantined(story) == {(ObjectKind.WORKLOAD, key(BAD))}
    story.ended(asked[key(GOOD)], at=NOW + 0.3, job_id=18, grant=grant(18, "x2"))
    assert not any(story.world.immediate_in_flight.values())
