"""Each answer is matched to what its call was sent for (the table in scheduler/apply/results.py).

slurmctld that lost its state gives ids out again.  While the answer to a call is on its way, the id that the call named may
become another pod's job, and a pod may go or be replaced.
"""

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
    DeletePod,
    FailByDeadline,
    FindJobs,
    Outcome,
    Plan,
    ReadClaims,
    ReadJob,
    ReadOwner,
    ReadPod,
    RecordEnd,
    RestoreKeys,
    SetDeadline,
    SetPodCondition,
    SubmitJob,
    UpdateJob,
)
from scheduler.apply.pod_results import workload_of
from scheduler.events import (
    ClaimsRead,
    JobRead,
    JobsPolled,
    OutageBegan,
    OutageEnded,
    Planned,
    Side,
    SlurmNodesPolled,
)
from scheduler.model.kubernetes import Claim, Pod, PodPhase, owner_key
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Job, JobSpec, Partition
from scheduler.model.slurm_errors import ACCOUNTING_AWAY
from scheduler.state.in_flight import InFlight
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder, RefusedChange
from scheduler.state.workload import Workload
from tests.builders import CONFIG, OWNER, START, Story, grant, job_of, key_of, pod, slurm_node

NOW = START + 30
OLD, RUN = pod("old"), pod("run", created=NOW)
ACCOUNTED = replace(CONFIG, accounting=True)


def takes_over_id(story: Story, job_id: int, at: float) -> Pod:
    """slurmctld lost its state; another pod asks for nodes, is given that id, and runs."""
    story.sees(RUN)
    [asked] = [each for each in story.decides(at) if isinstance(each, AllocateNow) and each.key == key_of(RUN)]
    story.ended(asked, at=at, job_id=job_id, grant=grant(job_id))
    [bind] = story.acts(BindPod, at)
    story.ended(bind, at=at)
    shown = story.bound(RUN, job_id, started=at + 1)
    story.sees(shown)
    assert story.world.phase_of[key_of(RUN)] is Phase.BOUND
    return shown


def runs_on(story: Story, at: float) -> None:
    """Nothing is done to the pod that has the id now."""
    story.polls({5: "RUNNING"}, at=at)
    assert story.world.phase_of[key_of(RUN)] is Phase.BOUND
    assert not [each for each in story.decides(at + 1) if isinstance(each, CancelJob | FailByDeadline)]


def test_a_cancel_is_not_believed_of_the_pod_that_has_the_id_now() -> None:
    """Seed 5533: the answer "it is not there" ended a pod whose job ran."""
    story = Story()
    shown = story.runs(OLD, 5, at=START + 1)
    story.polls({5: "RUNNING"}, at=START + 2)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    [cancel] = story.acts(CancelJob, NOW)
    takes_over_id(story, 5, NOW + 1)
    story.ended(cancel, at=NOW + 2, began=NOW)
    assert story.world.placeholders[5].states == {"RUNNING"}
    runs_on(story, NOW + 3)


def test_a_cancel_of_a_job_made_before_does_not_end_the_one_that_the_same_workload_was_given_since() -> None:
    story = Story()
    story.queues(OLD, 5, at=START + 1)
    story.loses(OLD, NOW)
    [cancel] = story.acts(CancelJob, NOW)
    job = story.world.placeholders[5]
    job.asked_at = NOW + 0.5  # the id that its next submission was given
    story.ended(cancel, at=NOW + 1, began=NOW)
    assert not job.ended


def test_a_record_is_not_believed_of_the_pod_that_has_the_id_now() -> None:
    story = Story(ACCOUNTED)
    shown = story.runs(OLD, 5, at=START + 1)
    story.polls({5: "RUNNING"}, at=START + 2)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED, exit_code=0, end_reason="Completed"))
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, at=NOW)
    [record] = story.acts(RecordEnd, NOW)
    now_runs = takes_over_id(story, 5, NOW + 1)
    story.ended(record, at=NOW + 2, began=NOW)
    story.polls({5: "RUNNING"}, at=NOW + 3)
    story.sees(replace(now_runs, phase=PodPhase.FAILED, exit_code=3, end_reason="Error"))
    [cancel] = story.acts(CancelJob, NOW + 4)
    story.ended(cancel, at=NOW + 4)
    assert [each.exit_code for each in story.acts(RecordEnd, NOW + 4)] == [3]


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.REFUSED])
def test_an_update_is_not_believed_of_the_pod_that_has_the_id_now(outcome: Outcome) -> None:
    story = Story()
    story.queues(OLD, 5, at=START + 1)
    story.polls({5: "PENDING"}, at=START + 2)
    story.sees(replace(OLD, annotations={names.PREFIX + "time-limit": "5"}))
    [update] = story.acts(UpdateJob, NOW)
    spec = story.queues(RUN, 5, at=NOW + 1).spec
    story.ended(update, outcome, at=NOW + 2, began=NOW, **({"number": 2040} if outcome is Outcome.REFUSED else {}))
    assert story.world.placeholders[5].spec == spec
    assert story.world.workloads[key_of(RUN)].refused is None


def test_a_slow_submission_does_not_take_an_id_that_was_read_as_a_foreign_job_meanwhile() -> None:
    story = Story()
    story.sees(OLD)
    [asked] = story.acts(AllocateNow, NOW)
    story.polls({5: "RUNNING"}, at=NOW + 1)
    [read] = story.acts(ReadJob, NOW + 1)
    story.reads(Job(5, "interactive", "carol", frozenset({"RUNNING"})), at=NOW + 1)
    story.ended(read, at=NOW + 1)
    story.ended(asked, at=NOW + 2, began=NOW, job_id=5, grant=grant(5))
    assert not [each for each in story.decides(NOW + 2) if isinstance(each, BindPod | CancelJob)]
    assert 5 not in story.world.placeholders


def test_a_submission_is_believed_that_was_sent_after_the_id_was_read_as_foreign() -> None:
    """The foreign job was lost with slurmctld's state, and no poll has shown that yet."""
    story = Story()
    story.polls({5: "RUNNING"}, at=NOW - 2)
    [read] = story.acts(ReadJob, NOW - 2)
    story.reads(Job(5, "interactive", "carol", frozenset({"RUNNING"})), at=NOW - 2)
    story.ended(read, at=NOW - 2)
    story.sees(OLD)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=5, grant=grant(5))
    assert [each.job_id for each in story.acts(BindPod, NOW)] == [5]


def test_a_read_that_was_sent_before_the_job_was_made_does_not_call_it_foreign() -> None:
    """The id belonged to another user's job when the read was answered there."""
    story = Story()
    story.runs(OLD, 5, at=NOW)
    before = Job(5, "interactive", "carol", frozenset({"RUNNING"}))
    story.sees(JobRead(5, NOW - 1, NOW + 1, before))
    assert 5 not in story.world.foreign
    assert not story.world.placeholders[5].denied
    story.sees(JobRead(5, NOW - 1, NOW + 1, None))
    assert not story.world.placeholders[5].denied


def binds_for_a_job_whose_id_is_anothers_now() -> tuple[Story, BindPod]:
    story = Story()
    bind = story.binds(OLD, 5, at=NOW)
    takes_over_id(story, 5, NOW + 1)
    return story, bind


def test_a_bind_for_a_job_whose_id_is_anothers_now_leaves_its_pod_without_a_job() -> None:
    """The pod is on a node, and Slurm lost its job: the same node is requested once more (S7)."""
    story, bind = binds_for_a_job_whose_id_is_anothers_now()
    story.ended(bind, at=NOW + 2, began=NOW)
    story.sees(story.bound(OLD, 5))
    assert story.world.phase_of[key_of(OLD)] is Phase.ORPHANED
    [again] = story.acts(AllocateNow, NOW + 3)
    assert (again.key, again.spec.required_nodes) == (key_of(OLD), "x1")
    runs_on(story, NOW + 4)


def test_a_refused_bind_for_a_job_whose_id_is_anothers_now_is_no_trouble_of_that_job() -> None:
    story, bind = binds_for_a_job_whose_id_is_anothers_now()
    story.ended(bind, Outcome.REFUSED, at=NOW + 2, began=NOW, number=500)
    taken = story.world.placeholders[5]
    assert (taken.key, taken.bind_trouble, not taken.bind_refused) == (key_of(RUN), "", True)
    runs_on(story, NOW + 4)


def test_a_no_to_a_lost_jobs_nodes_is_a_no_for_that_job_alone() -> None:
    """Meanwhile another job of the pod was found; when that job is lost too, its nodes are requested."""
    story = Story()
    story.runs(OLD, 5, at=START + 1)
    story.polls({5: "RUNNING"}, at=START + 2)
    asked = loses_job(story, 5, NOW)
    story.polls({6: "RUNNING"}, at=NOW + 6)
    [read] = [each for each in story.acts(ReadJob, NOW + 6) if each.job_id == 6]
    story.reads(job_of(OLD, 6, "RUNNING"), at=NOW + 6, granted=grant(6))
    story.ended(read, at=NOW + 6)
    assert story.world.workloads[key_of(OLD)].hint == 6
    story.ended(asked, Outcome.REFUSED, at=NOW + 7, began=NOW + 5, number=2016)
    again = loses_job(story, 6, NOW + 20)
    assert again.spec.required_nodes == "x1"


def loses_job(story: Story, job_id: int, at: float) -> AllocateNow:
    """Polls and a read lack it; its nodes are asked for again."""
    for second in range(5):
        story.polls({}, at=at + second)
        for action in story.decides(at + second):
            if isinstance(action, AllocateNow):
                return action
            if isinstance(action, ReadJob):
                story.reads(None, job_id=action.job_id, at=at + second)
            story.ended(action, at=at + second)
    raise AssertionError(f"the nodes of job {job_id} are not asked for")


def test_an_answer_ends_the_hold_of_its_own_action_alone() -> None:
    """The pod was gone, and the list of an API server that is behind shows it again: it is bound a second time."""
    story = Story()
    story.sees(OLD)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=5, grant=grant(5))
    [first] = story.acts(BindPod, NOW)
    story.loses(OLD, NOW)
    edited = replace(OLD, annotations={names.PREFIX + "traceparent": "the caller's own"})
    story.sees(edited)
    [second] = story.acts(BindPod, NOW)
    assert first != second
    story.ended(first, Outcome.UNREACHED, at=NOW + 1)
    assert story.acts(BindPod, NOW + 5) == [], "the second one is under way"


def test_what_is_read_for_a_pod_that_is_gone_is_not_kept() -> None:
    story = Story()
    one = pod("train", claims=("data",))
    story.sees(one)
    [read] = story.acts(ReadClaims, NOW)
    story.loses(one, NOW + 1)
    story.sees(ClaimsRead(one.uid, (Claim("data", True),), NOW + 2))
    story.ended(read, at=NOW + 2)
    assert story.world.claims == {}


def test_a_poll_that_began_before_the_answer_to_a_submission_does_not_miss_its_job() -> None:
    """slurmctld had not made it yet when it listed its jobs."""
    story = Story()
    story.sees(OLD)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW + 2, began=NOW, job_id=5, grant=grant(5))
    story.sees(JobsPolled(NOW + 1, NOW + 2.1, {}))
    assert not story.world.placeholders[5].absent
    story.sees(JobsPolled(NOW + 3, NOW + 3, {}))
    assert story.world.placeholders[5].absent


def test_a_poll_that_began_before_the_answer_to_a_cancel_does_not_bring_its_job_to_life() -> None:
    story = Story()
    story.queues(OLD, 5, at=START + 1)
    story.polls({5: "PENDING"}, at=START + 2)
    story.loses(OLD, NOW)
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, at=NOW + 2, began=NOW)
    story.sees(JobsPolled(NOW + 1, NOW + 2.1, {5: frozenset({"PENDING"})}))
    job = story.world.placeholders[5]
    assert (job.ended, job.denied) == (True, False)
    assert story.decides(NOW + 2.1) == []


def test_a_read_that_began_before_the_answer_to_a_cancel_does_not_bring_its_job_to_life() -> None:
    story = Story()
    story.queues(OLD, 5, at=START + 1)
    story.polls({5: "PENDING"}, at=START + 2)
    story.loses(OLD, NOW)
    [cancel] = story.acts(CancelJob, NOW)
    story.ended(cancel, at=NOW + 2, began=NOW)
    story.sees(JobRead(5, NOW + 1, NOW + 2.1, job_of(OLD, 5, "PENDING")))
    assert story.world.placeholders[5].ended
    assert [each for each in story.decides(NOW + 2.1) if isinstance(each, CancelJob)] == []


def test_a_read_that_began_before_the_id_was_seen_as_new_is_of_the_former_job() -> None:
    """Slurm forgot job 5 and gave its id to another job of the same name: a submission whose answer was lost."""
    story = Story()
    story.queues(OLD, 5, at=START + 1)
    story.polls({5: "PENDING"}, at=START + 2)
    story.sees(OutageBegan(Side.SLURM, NOW, "slurmrestd does not answer."))
    story.polls({5: "RUNNING"}, at=NOW + 9)
    story.sees(OutageEnded(Side.SLURM, NOW + 10))
    assert 5 in story.world.unread, "it is read anew"
    story.sees(JobRead(5, NOW + 8, NOW + 11, job_of(OLD, 5, "CANCELLED")))
    assert not story.world.placeholders[5].ended
    assert 5 in story.world.unread


def test_an_allocation_is_counted_where_it_was_asked_for_though_the_default_partition_changes_meanwhile() -> None:
    """This happens when slurmdbd comes back, without which Slurm shows no partitions."""
    story = Story()
    nodes = (slurm_node("x1"), slurm_node("x2"))
    story.sees(SlurmNodesPolled(nodes, (), START + 1), OLD)
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(SlurmNodesPolled(nodes, (Partition("main", default=True),), NOW + 1))
    story.ended(asked, Outcome.REFUSED, at=NOW + 2, began=NOW, number=2013)
    assert not any(story.world.immediate_in_flight.values())
    story.sees(RUN)
    assert story.decides(NOW + 2)


GONE = "key-of-a-workload-that-is-gone"
GONE_POD = (GONE, "uid-gone", "hpc", "gone")
SPEC = JobSpec("hpc/gone~k.1", "alice", 1, 100)
LATE_ANSWERS = [
    SubmitJob(GONE, SPEC, "why"),
    CancelJob(GONE, 17, SPEC.name, "alice", "why"),
    UpdateJob(GONE, 17, "alice", SPEC, frozenset({"nice"}), "why"),
    RecordEnd(GONE, 17, "alice", 0, "Succeeded", "why"),
    FindJobs(GONE, SPEC.name, "why"),
    BindPod(*GONE_POD, "x1", 17, {}, "why"),
    DeletePod(*GONE_POD, "why"),
    SetDeadline(*GONE_POD, 60, "why"),
    SetPodCondition(*GONE_POD, "SlurmJobPending", "It waits."),
    RestoreKeys(*GONE_POD, {}, "why"),
    ReadPod(*GONE_POD, "why"),
]


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("action", LATE_ANSWERS, ids=lambda action: type(action).__name__)
def test_an_answer_about_a_workload_that_is_gone_leaves_nothing_behind(action: Action, outcome: Outcome) -> None:
    """After an error of the bridge, a workload may be forgotten while its actions are in flight (X8)."""
    story = Story()
    story.world.in_flight[id(action)] = action
    story.world.under_way[action.limit_class] += 1
    story.ended(action, outcome, at=NOW)
    world = story.world
    assert (world.workloads, world.placeholders, world.in_flight) == ({}, {}, {})
    assert world.under_way.total() == 0


TRAIN_POD = (key_of(OLD), OLD.uid, "hpc", "old")
SUBMISSION = SubmitJob(key_of(OLD), SPEC, "why")
NOT_AWAITED = [
    SUBMISSION,
    AllocateNow(key_of(OLD), SPEC, "why"),
    CancelJob(key_of(OLD), 17, SPEC.name, "alice", "why"),
    UpdateJob(key_of(OLD), 17, "alice", SPEC, frozenset({"nice"}), "why"),
    RecordEnd(key_of(OLD), 17, "alice", 0, "Succeeded", "why"),
    FindJobs(key_of(OLD), SPEC.name, "why"),
    BindPod(*TRAIN_POD, "x2", 17, {}, "why"),
    DeletePod(*TRAIN_POD, "why"),
    SetDeadline(*TRAIN_POD, 60, "why"),
]


def answered_late(story: Story, action: Action, outcome: Outcome, **answer: int) -> None:
    """The answer to an action that the workload of its pod does not await: the facts about it were rebuilt meanwhile (X8)."""
    story.world.in_flight[id(action)] = action
    story.world.under_way[action.limit_class] += 1
    if isinstance(action, AllocateNow):
        story.world.immediate_in_flight["main"] += 1
    story.ended(action, outcome, at=NOW, **answer)
    story.world.validate()


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("action", NOT_AWAITED, ids=lambda action: type(action).__name__)
def test_an_answer_that_a_waiting_workload_does_not_await_holds_nothing(action: Action, outcome: Outcome) -> None:
    story = Story()
    story.sees(OLD)
    answered_late(story, action, outcome, **({"number": 2013} if outcome is Outcome.REFUSED else {}))
    world = story.world
    [workload] = world.workloads.values()
    assert (workload.in_flight, workload.pods_in_flight, workload.reacquired) == (None, {}, None)
    assert (world.placeholders, world.unanswered_binds, world.in_flight) == ({}, {}, {})


def test_a_job_that_the_workload_does_not_await_any_more_is_its_job_nevertheless() -> None:
    story = Story()
    story.sees(OLD)
    answered_late(story, SUBMISSION, Outcome.DONE, job_id=17)
    job = story.world.placeholders[17]
    assert (job.key, job.asked_for, story.world.phase_of[key_of(OLD)]) == (key_of(OLD), frozenset(), Phase.QUEUED)


# --- what each answer leaves ------------------------------------------------------------------------------------------


KEY = key_of(OLD)


def having(job: Placeholder | None = None, **fields: Any) -> tuple[Story, Workload]:
    story = Story(checked=False)
    story.sees(OLD)
    workload = story.world.workloads[KEY]
    for name, value in fields.items():
        setattr(workload, name, value)
    if job is not None:
        story.world.placeholders[job.id] = job
        workload.jobs.add(job.id)
    return story, workload


def in_flight(story: Story, workload: Workload, action: Action) -> None:
    """It was planned before this story: the pod's actions and the workload's action are noted."""
    story.world.in_flight[id(action)] = action
    story.world.under_way[action.limit_class] += 1
    if isinstance(action, BindPod | DeletePod):
        workload.pods_in_flight[action.uid] = InFlight(action, NOW)
    else:
        workload.in_flight = InFlight(action, NOW)


def job(states: str = "RUNNING", key: str = KEY, **fields: Any) -> Placeholder:
    return Placeholder(17, key, "alice", frozenset({states}), START, **fields)


@pytest.mark.parametrize(("on", "is_kept"), [("", False), ("x2", False), ("x1", True)])
def test_a_bind_that_was_refused_had_an_effect_only_if_the_pod_is_on_its_node(on: str, is_kept: bool) -> None:
    """The watch may show the bind before the answer to a repeated call comes."""
    story, workload = having()
    bind = BindPod(KEY, OLD.uid, "hpc", "old", "x1", 17, {}, "why")
    story.sees(Planned(Plan((bind,)), NOW))
    if on:
        workload.put(replace(OLD, node=on))
    story.ended(bind, Outcome.REFUSED, at=NOW + 1, number=409)
    assert (workload.unconfirmed_binds == {OLD.uid: bind}) is is_kept
    assert (story.world.assumed == {OLD.uid: "x1"}) is is_kept


@pytest.mark.parametrize(("hint", "left"), [(17, None), (16, 16)])
def test_a_pod_that_was_bound_for_a_job_that_is_forgotten_names_no_job_until_the_watch_shows_it(
    hint: int, left: int | None
) -> None:
    story, workload = having(hint=hint)
    bind = BindPod(KEY, OLD.uid, "hpc", "old", "x1", 17, {}, "why")
    story.sees(Planned(Plan((bind,)), NOW))
    story.ended(bind, at=NOW + 1)
    assert (workload.hint, workload.bound) == (left, {OLD.uid: "x1"})


def test_a_status_that_could_not_be_written_does_not_reset_a_later_one() -> None:
    story, workload = having()
    first, second = (SetPodCondition(KEY, OLD.uid, "hpc", "old", "reason", message) for message in ("first", "second"))
    story.sees(Planned(Plan((first,)), NOW), Planned(Plan((second,)), NOW + 1))
    story.ended(first, Outcome.REFUSED, at=NOW + 2, number=409)
    assert workload.last_status[OLD.uid]["PodScheduled"].message == "second"
    story.ended(second, Outcome.REFUSED, at=NOW + 3, number=409)
    assert workload.last_status[OLD.uid]["PodScheduled"].message == ""


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_a_read_of_an_owner_that_succeeded_is_newer_than_the_one_before(outcome: Outcome) -> None:
    story, _ = having()
    owner = owner_key("hpc", OWNER)
    story.world.owner_read_at[owner] = NOW - 60
    story.world.cannot_read[owner] = (NOW - 9, "before.")
    story.ended(ReadOwner("hpc", OWNER, "why"), outcome, at=NOW + 1, began=NOW)
    assert story.world.owner_read_at[owner] == (NOW if outcome is Outcome.DONE else NOW - 60)
    after = {} if outcome is Outcome.DONE else {owner: (NOW - 9, "there was no answer.")}
    assert story.world.cannot_read == after


@pytest.mark.parametrize(
    ("is_gone", "outcome"), [(False, Outcome.REFUSED), (True, Outcome.REFUSED), (False, Outcome.DONE)]
)
def test_a_refused_end_says_what_became_of_a_lost_answer_only_if_the_pod_is_gone(
    is_gone: bool, outcome: Outcome
) -> None:
    story, workload = having()
    end = DeletePod(KEY, "uid-gone" if is_gone else OLD.uid, "hpc", "old", "why")
    in_flight(story, workload, end)
    workload.unanswered[end.uid] = end
    story.ended(end, outcome, at=NOW + 1, **({"number": 404} if outcome is Outcome.REFUSED else {}))
    assert bool(workload.unanswered) is (outcome is Outcome.REFUSED and not is_gone)


def test_an_end_of_a_pod_that_moved_to_another_workload_is_over_there() -> None:
    """The containers run on for the grace of the pod; nothing is noted about a pod that is gone."""
    story, workload = having()
    end, of_gone = DeletePod("former", OLD.uid, "hpc", "old", "why"), DeletePod(KEY, "uid-gone", "hpc", "gone", "why")
    for action in (end, of_gone):
        story.world.dirty.clear()
        in_flight(story, workload, action)
        story.ended(action, at=NOW + 1)
        assert KEY in story.world.dirty
    assert list(workload.pods_in_flight) == [OLD.uid]
    assert workload.pods_in_flight[OLD.uid].until is not None


def test_a_pod_that_its_workload_does_not_have_belongs_to_none() -> None:
    story, workload = having()
    story.world.key_of_pod["uid-gone"] = KEY
    assert workload_of(story.world, OLD.uid) is workload
    assert workload_of(story.world, "uid-gone") is None


@pytest.mark.parametrize(
    ("known", "outcome", "left"),
    [
        (job(), Outcome.DONE, "CANCELLED"),
        (job(read_began=NOW + 1), Outcome.DONE, "RUNNING"),
        (job(read_began=NOW + 1, absent_first=NOW, absent_last=NOW), Outcome.DONE, "CANCELLED"),
        (job("TIMEOUT", end_proven=True), Outcome.DONE, "TIMEOUT"),
        (job(), Outcome.REFUSED, "RUNNING"),
        (job(), Outcome.UNKNOWN, "RUNNING"),
    ],
    ids=["it ended", "a later read shows it alive", "it is missing", "it had ended", "refused", "unanswered"],
)
def test_what_the_answer_to_a_cancel_proves(known: Placeholder, outcome: Outcome, left: str) -> None:
    known = replace(known)
    story, workload = having(known)
    cancel = CancelJob(KEY, 17, "old", "alice", "why")
    in_flight(story, workload, cancel)
    story.ended(cancel, outcome, at=NOW + 2, began=NOW)
    assert known.states == {left}
    assert known.known_since == (NOW + 2 if left == "CANCELLED" else START)
    assert bool(workload.backoffs) is (outcome is not Outcome.DONE)
    assert story.world.lost_cancels == ({(17, KEY): NOW + 14} if outcome is Outcome.UNKNOWN else {})


@pytest.mark.parametrize(("hint", "was_requeued"), [(17, True), (16, False)])
def test_only_the_job_for_which_pods_run_was_requeued_when_it_is_cancelled_while_it_waits(
    hint: int, was_requeued: bool
) -> None:
    waits = job("PENDING")
    story, workload = having(waits, hint=hint)
    workload.put_on(OLD.uid, "x1")
    cancel = CancelJob(KEY, 17, "old", "alice", "why")
    in_flight(story, workload, cancel)
    story.ended(cancel, at=NOW + 1, began=NOW)
    assert waits.requeued is was_requeued


@pytest.mark.parametrize(
    ("known", "foreign", "is_read"),
    [(None, False, True), (job(), False, False), (job(key="other"), False, True), (None, True, False)],
    ids=["not known", "its own", "of another pod", "of another user"],
)
def test_a_job_that_accounting_finds_is_read_unless_it_is_known_whose_it_is(
    known: Placeholder | None, foreign: bool, is_read: bool
) -> None:
    story, workload = having(foreign_jobs=frozenset({17} if foreign else ()))
    if known is not None:
        story.world.placeholders[17] = replace(known)
    find = FindJobs(KEY, "old", "why")
    in_flight(story, workload, find)
    story.ended(find, at=NOW + 1, found=(17,))
    assert (17 in story.world.first_listed_at) is is_read


AWAY = Refusal(names.REFUSED, "slurmdbd does not answer.", ACCOUNTING_AWAY)


@pytest.mark.parametrize(
    ("action", "outcome", "refusal", "is_delayed"),
    [
        (ReadJob(17, "why", KEY), Outcome.DONE, None, False),
        (ReadJob(17, "why", KEY), Outcome.UNREACHED, None, True),
        (RecordEnd(KEY, 17, "alice", 0, "Succeeded", "why"), Outcome.REFUSED, AWAY, False),
        (RecordEnd(KEY, 17, "alice", 0, "Succeeded", "why"), Outcome.REFUSED, replace(AWAY, number=2040), True),
        (UpdateJob(KEY, 17, "alice", SPEC, frozenset({"nice"}), "why"), Outcome.DONE, None, False),
        (UpdateJob(KEY, 17, "alice", SPEC, frozenset({"nice"}), "why"), Outcome.UNKNOWN, None, True),
    ],
)
def test_only_a_failure_delays_the_next_attempt(
    action: Action, outcome: Outcome, refusal: Refusal | None, is_delayed: bool
) -> None:
    """A record that waits for slurmdbd is written when slurmdbd is back."""
    story, workload = having(job())
    in_flight(story, workload, action)
    story.ended(action, outcome, at=NOW + 1, refusal=refusal)
    assert any(each.failures for each in workload.backoffs.values()) is is_delayed


@pytest.mark.parametrize(("outcome", "counts"), [(Outcome.REFUSED, True), (Outcome.UNKNOWN, False)])
def test_only_a_refused_update_is_noted_and_the_job_stays_as_it_is(outcome: Outcome, counts: bool) -> None:
    known = job(spec=SPEC)
    story, workload = having(known)
    update = UpdateJob(KEY, 17, "alice", replace(SPEC, nice=5), frozenset({"nice"}), "why")
    in_flight(story, workload, update)
    story.ended(update, outcome, at=NOW + 1, refusal=Refusal(names.REFUSED, "no", 2040))
    assert known.spec == SPEC
    noted = {(0, "nice"): RefusedChange(5, "no", NOW + 1 + story.world.config.tuning.refused_retry_s)}
    assert known.refused_changes == (noted if counts else {})


def test_an_update_that_slurm_refuses_after_the_pods_are_gone_is_no_defect() -> None:
    """The refusal of an unknown name is shown with what the pods asked for."""
    story = Story()
    story.queues(pod(), 17, at=NOW)
    update = UpdateJob(key_of(pod()), 17, "alice", replace(SPEC, account="teamx"), frozenset({"account"}), "why")
    story.sees(Planned(Plan((update,)), NOW))
    story.loses(pod(), NOW + 1)
    story.ended(update, Outcome.REFUSED, at=NOW + 2, number=2045)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 2)] == [17]
