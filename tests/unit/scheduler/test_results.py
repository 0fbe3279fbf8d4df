"""Each answer is matched to what its call was sent for (the table in scheduler/apply/results.py).

slurmctld that lost its state gives ids out again.  While the answer to a call is on its way, the id that the call named may
become another pod's job, and a pod may go or be replaced.
"""

from __future__ import annotations

from dataclasses import replace

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
    ReadClaims,
    ReadJob,
    ReadPod,
    RecordEnd,
    RestoreKeys,
    SetDeadline,
    SetPodCondition,
    SubmitJob,
    UpdateJob,
)
from scheduler.events import ClaimsRead, JobRead, JobsPolled, OutageBegan, OutageEnded, Side, SlurmNodesPolled
from scheduler.model.kubernetes import Claim, Pod, PodPhase
from scheduler.model.slurm import Job, JobSpec, Partition
from scheduler.state.phase import Phase
from tests.builders import CONFIG, START, Story, grant, job_of, key_of, pod, slurm_node

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
    story.sees(OLD)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=5, grant=grant(5))
    [bind] = story.acts(BindPod, NOW)
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
