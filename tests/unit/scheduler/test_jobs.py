"""What is remembered of a job when its states change, and when its record is removed (scheduler/state/jobs.py)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from scheduler.actions import AllocateNow, BindPod, CancelJob, DeletePod, FailByDeadline, Outcome, ReadJob, SubmitJob
from scheduler.model.kubernetes import PodPhase
from scheduler.model.slurm import Job
from tests.builders import START, Story, grant, job_of, pod
from tests.builders import key_of as key
from tests.unit.scheduler.test_absence import answers

NOW = START + 20
TRAIN = pod("train")


def test_each_end_of_a_job_of_the_bridge_is_counted_once_by_its_state() -> None:
    """The end of a job that only a pod names does not count: it may be anybody's job."""
    story = Story()
    story.sees(pod("claims", node="x1", says={"job-id": "9000"}, created=START - 60))
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING", 9000: "RUNNING"}, at=NOW + 1)
    story.polls({17: "CANCELLED", 9000: "FAILED"}, at=NOW + 2)
    story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW + 3)
    assert story.world.ended_jobs == {"CANCELLED": 1}


def test_the_story_of_a_pod_has_each_state_of_its_job_once() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    for second in range(1, 4):
        story.polls({17: "PENDING"}, at=NOW + second)
        story.reads(job_of(TRAIN, 17, "PENDING"), at=NOW + second)
    for second in range(4, 7):
        story.polls({17: "RUNNING"}, at=NOW + second)
        story.reads(job_of(TRAIN, 17, "RUNNING"), at=NOW + second, granted=grant(17))
    told = [(at, text) for at, text in story.world.story(key(TRAIN)) if text.startswith("Slurm job 17 is ")]
    assert told == [(NOW, "Slurm job 17 is PENDING"), (NOW + 4, "Slurm job 17 is RUNNING")]


def test_the_time_of_a_grant_is_when_the_job_got_its_nodes_since_its_last_requeue() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    job = story.world.placeholders[17]
    since = {1: "PENDING", 2: "RUNNING", 5: "RUNNING SUSPENDED", 6: "RUNNING", 7: "PENDING", 9: "RUNNING"}
    seen = []
    for second, states in since.items():
        story.polls({17: states}, at=NOW + second)
        seen.append(job.granted_at)
    assert seen == [None, NOW + 2, NOW + 2, NOW + 2, NOW + 2, NOW + 9]


def test_an_unknown_id_that_cannot_be_read_and_leaves_the_list_takes_no_other_id_with_it() -> None:
    for others in ((16, 18), (16,)):
        story = Story()
        story.polls(dict.fromkeys((*others, 17), "RUNNING"), at=NOW)
        for second in range(6):
            story.reads(None, job_id=17, at=NOW + 1 + second)
        story.polls(dict.fromkeys(others, "RUNNING"), at=NOW + 10)
        assert sorted(each.job_id for each in story.acts(ReadJob, NOW + 10)) == [*others]


def test_a_pod_from_before_the_start_is_submitted_as_soon_as_the_last_unknown_job_is_read() -> None:
    story = Story()
    story.sees(replace(TRAIN, created=START - 100))
    story.polls({40: "RUNNING"}, at=START + 1)
    [read] = story.decides(START + 1)
    assert isinstance(read, ReadJob)
    story.reads(Job(40, "interactive", "carol", frozenset({"RUNNING"})), at=START + 1.5)
    story.ended(read, at=START + 1.5)
    assert [each.key for each in story.acts(AllocateNow, START + 1.5)] == [key(TRAIN)]


def test_an_unknown_job_whose_reads_fail_is_read_six_times_in_a_minute_and_then_every_five_minutes() -> None:
    story = Story(checked=False)
    at = []
    for second in range(0, 1300, 2):
        story.polls({40: "RUNNING"}, at=NOW + second)
        for read in story.acts(ReadJob, NOW + second):
            at.append(second)
            story.reads(None, job_id=40, at=NOW + second)
            story.ended(read, at=NOW + second)
    assert len([each for each in at if each < 70]) == 6
    assert [later - first >= 300 for first, later in pairwise(at[5:])] == [True] * 4


def test_a_pod_runs_on_in_a_second_job_of_its_name_when_its_own_job_is_lost() -> None:
    """The second job was known before, so it is not adopted anew.  Its end, and no other, ends the pod."""
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    both = {17: "RUNNING", 18: "RUNNING"}
    story.polls(both, at=NOW + 1)
    story.reads(job_of(TRAIN, 18, "RUNNING"), at=NOW + 1, granted=grant(18))
    for second in (2, 5):
        story.polls({18: "RUNNING"}, at=NOW + second)
        story.reads(None, job_id=17, at=NOW + second)
    assert story.world.workloads[key(shown)].hint == 18


def test_the_id_of_a_cancelled_job_that_slurm_gives_away_before_the_next_list_is_read() -> None:
    """The list before showed the id, too, as the job of the pod that is gone."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.loses(TRAIN, NOW + 2)
    [cancel] = story.acts(CancelJob, NOW + 2)
    story.ended(cancel, at=NOW + 2)
    story.decides(NOW + 2)
    story.decides(NOW + 2)
    assert key(TRAIN) not in story.world.workloads
    story.polls({17: "PENDING"}, at=NOW + 3)
    assert [each.job_id for each in story.acts(ReadJob, NOW + 3)] == [17]


def test_a_job_is_as_old_as_its_submission_whichever_process_submitted_it() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 1)
    other = pod("other", created=START - 100)
    story.sees(other)
    story.reads(job_of(other, 18, "PENDING", submitted=START - 99), at=NOW + 1)
    story.sees(pod("claims", node="x1", says={"job-id": "9000"}, created=START - 60))
    jobs = story.world.placeholders
    assert [jobs[number].submitted for number in (17, 18, 9000)] == [NOW, START - 99, None]


def test_a_job_that_a_list_showed_as_ended_and_that_slurm_does_not_know_is_lost() -> None:
    """The list may have shown the end of another job of the id, so the pod does not say that its job ended."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.polls({17: "CANCELLED"}, at=NOW + 2)
    said = []
    for second in range(2, 30):
        if second > 2:
            story.polls({}, at=NOW + second)
        for action in story.decides(NOW + second):
            if isinstance(action, ReadJob):
                story.reads(None, job_id=17, at=NOW + second)
            if isinstance(action, FailByDeadline | DeletePod):
                said.append(action.reason)
            refused = isinstance(action, AllocateNow)
            story.ended(action, Outcome.REFUSED if refused else Outcome.DONE, at=NOW + second, number=2014)
    assert [text.split(";")[0] for text in said] == ["Slurm lost the job of this pod (17)"]


def test_a_pod_of_the_first_list_is_older_than_the_process_whatever_the_clock_of_kubernetes_says() -> None:
    """So the job that it names counts, and is lost: its nodes are asked for again (S7)."""
    older = pod("older", node="x1", phase=PodPhase.RUNNING, says={"job-id": "9000"}, created=START + 7200)
    story = Story(pods=[older])
    acts = [each for second in range(20) for each in answers(story, {}, at=NOW + second)]
    assert {each.spec.required_nodes for each in acts if isinstance(each, AllocateNow)} == {"x1"}


def test_a_job_that_is_found_between_two_submissions_that_failed_is_bound_at_once() -> None:
    """The pause before the next submission is no pause before the bind."""
    story, at = Story(), NOW
    story.sees(TRAIN)
    for _ in range(7):
        at += 61
        for each in story.decides(at):
            if isinstance(each, AllocateNow | SubmitJob):
                story.ended(each, Outcome.UNREACHED, at=at)
    story.polls({17: "RUNNING"}, at=at + 1)
    story.reads(job_of(TRAIN, 17), at=at + 2, granted=grant(17))
    assert [each.job_id for each in story.acts(BindPod, at + 2)] == [17]
