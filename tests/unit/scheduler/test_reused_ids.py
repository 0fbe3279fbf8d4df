"""slurmctld reuses ids after it lost its state: no pod ends, and no job is cancelled, for another job (S7, V1, V6)."""

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
    ReadJob,
    SubmitJob,
)
from scheduler.events import ActionEnded, JobsPolled, Unread
from scheduler.model.kubernetes import PodPhase
from scheduler.model.slurm import Job
from tests.builders import CONFIG, OF_A_BIND, START, Story, grant, job_of, key_of, pod

NOW = START + 20
TRAIN = pod("train")
OTHER = pod("other")


def reads(story: Story, at: float) -> list[int]:
    return [each.job_id for each in story.acts(ReadJob, at)]


# --- lists ----------------------------------------------------------------------------------------------------------------


def test_the_highest_id_of_all_that_is_given_out_again_makes_all_jobs_be_read_again() -> None:
    """The job was the last one before slurmctld lost its state."""
    story = Story()
    story.runs(TRAIN, 100, at=NOW)
    strangers = Job(500, "interactive", "carol", frozenset({"RUNNING"}))
    story.polls({100: "RUNNING", 500: "RUNNING"}, at=NOW + 1)
    story.reads(strangers, at=NOW + 1)
    assert 100 not in reads(story, NOW + 1)
    story.polls({100: "RUNNING"}, at=NOW + 2)
    story.polls({100: "RUNNING", 500: "RUNNING"}, at=NOW + 3)
    assert set(reads(story, NOW + 3)) == {100, 500}


@pytest.mark.parametrize(
    ("former_unread", "unread", "former_ended", "believed"),
    [((), (), (), True), ((99,), (), (), False), ((), (99,), (), False), ((), (), (5,), True)],
    ids=[
        "two whole lists",
        "an item of the former list could not be decoded",
        "an item could not be decoded",
        "a job that had ended before left the list",
    ],
)
def test_many_ends_at_once_are_believed_without_reads_if_slurmctld_kept_its_state(
    former_unread: tuple[int, ...], unread: tuple[int, ...], former_ended: tuple[int, ...], believed: bool
) -> None:
    story = Story()
    many = CONFIG.tuning.reads + 1
    for number in range(many):
        story.runs(pod(f"p{number}", cpu=10), 100 + number, at=NOW)
    running = dict.fromkeys(range(100, 100 + many + 1), frozenset({"RUNNING"}))  # the last job runs on
    former = running | dict.fromkeys(former_ended, frozenset({"COMPLETED"}))
    over = dict.fromkeys(range(100, 100 + many), frozenset({"CANCELLED"})) | {100 + many: frozenset({"RUNNING"})}
    story.sees(JobsPolled(NOW + 1, NOW + 1, former, unread=Unread(frozenset(former_unread))))
    story.sees(JobsPolled(NOW + 2, NOW + 2, over, unread=Unread(frozenset(unread))))
    assert bool(story.acts(FailByDeadline, NOW + 2)) is believed


def test_a_pod_is_not_told_of_another_job_if_the_end_of_its_job_was_only_listed_and_the_next_list_shows_the_job() -> (
    None
):
    """The first list was wrong: no read proved the end."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.polls({17: "CANCELLED"}, at=NOW + 2)
    for read in story.acts(ReadJob, NOW + 2):
        story.ended(read, Outcome.UNREACHED, at=NOW + 2)
    story.polls({17: "RUNNING"}, at=NOW + 3)
    for second in range(3, 20):
        for action in story.decides(NOW + second):
            assert isinstance(action, ReadJob)
            story.reads(job_of(TRAIN, 17), at=NOW + second)
            story.ended(action, at=NOW + second)


# --- answers ----------------------------------------------------------------------------------------------------------------


def test_a_job_that_was_read_before_the_answer_to_its_submission_came_is_the_pods() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(job_of(TRAIN, 17), at=NOW + 1, granted=grant(17))
    story.ended(asked, at=NOW + 2, began=NOW, job_id=17, grant=grant(17))
    planned = story.decides(NOW + 2)
    assert [(each.job_id, each.uid) for each in planned if isinstance(each, BindPod)] == [(17, TRAIN.uid)]
    assert not [each for each in planned if isinstance(each, AllocateNow | CancelJob)]


def test_the_answer_to_a_cancel_does_not_end_the_job_of_another_pod_that_was_read_under_the_id_since() -> None:
    story = Story()
    gone = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.loses(replace(gone, phase=PodPhase.SUCCEEDED), NOW + 2)
    [cancel] = story.acts(CancelJob, NOW + 2)
    story.sees(OTHER)
    [asked] = [each for each in story.acts(AllocateNow, NOW + 3) if each.key == key_of(OTHER)]
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 4)
    story.polls({17: "RUNNING"}, at=NOW + 5)
    story.reads(job_of(OTHER, 17), at=NOW + 5, granted=grant(17))
    story.sees(ActionEnded(cancel, Outcome.DONE, NOW + 2, NOW + 6))
    planned = story.decides(NOW + 7)
    assert [each.uid for each in planned if isinstance(each, BindPod)] == [OTHER.uid]


# --- reads ------------------------------------------------------------------------------------------------------------------


GANG: Any = {"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "2"}, "created": START - 600}


@pytest.mark.parametrize(
    ("started", "shows_id", "is_lost"),
    [
        ((START - 500, None), (True, True), True),
        ((START - 500, START - 500), (False, False), True),
        ((None, None), (True, True), False),
        ((START - 500, START - 50), (True, True), False),
    ],
    ids=[
        "a pod has not started yet",
        "a client removed the ids",
        "no pod has started yet",
        "a pod started later than the job was submitted",
    ],
)
def test_a_gang_lost_its_job_if_a_job_of_another_name_came_after_all_pods_of_the_gang_that_have_started(
    started: tuple[float | None, float | None], shows_id: tuple[bool, bool], is_lost: bool
) -> None:
    story = Story()
    for number, (began, shows) in enumerate(zip(started, shows_id, strict=True)):
        member = story.bound(pod(f"w-{number}", **GANG), 17, started=began)
        story.sees(member)
        if not shows:
            story.sees(replace(member, annotations=pod(f"w-{number}", **GANG).annotations))
    other = Job(17, "native", "alice", frozenset({"RUNNING"}), nodes="x1", submitted=START - 100)
    story.polls({17: "RUNNING"}, at=NOW - 1)
    story.reads(other, at=NOW - 1)
    asked: list[AllocateNow] = []
    for second in range(10):
        story.polls({17: "RUNNING"}, at=NOW + second)
        for action in story.decides(NOW + second):
            assert not isinstance(action, CancelJob), "it is the user's own job"
            if isinstance(action, ReadJob):
                story.reads(other, at=NOW + second)
                story.ended(action, at=NOW + second)
            elif isinstance(action, AllocateNow):
                asked.append(action)
    assert [each.spec.required_nodes for each in asked] == ["x1"] * is_lost


# --- a workload whose id belongs to another job -------------------------------------------------------------------------


def test_a_pod_whose_id_went_to_another_pod_runs_on_in_a_second_job_of_its_name_that_holds_nodes() -> None:
    """No nodes are asked for again beside the second job."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    story.sees(OTHER)
    story.reads(job_of(TRAIN, 18), at=NOW + 1, granted=grant(18))
    story.reads(job_of(OTHER, 17), at=NOW + 2, granted=grant(17, "x2"))
    assert key_of(TRAIN) not in {each.key for each in story.acts(AllocateNow, NOW + 3)}
    story.polls({17: "RUNNING", 18: "CANCELLED"}, at=NOW + 4)
    story.reads(job_of(TRAIN, 18, "CANCELLED"), at=NOW + 4)
    ends = story.acts(FailByDeadline, NOW + 5)
    assert [(each.name, each.reason) for each in ends] == [("train", "Slurm job 18 ended: CANCELLED")]


def test_a_waiting_pod_whose_id_went_to_another_pod_asks_for_any_nodes() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.sees(OTHER)
    story.reads(job_of(OTHER, 17, "PENDING"), at=NOW + 5)
    found = [each for each in story.decides(NOW + 6) if isinstance(each, AllocateNow | SubmitJob)]
    [asked] = [each for each in found if each.key == key_of(TRAIN)]
    assert asked.spec.required_nodes == ""


def test_a_second_job_whose_id_went_to_another_pod_costs_the_running_pod_nothing() -> None:
    """After a restart: the pod names 17, which is not read yet; 18 has its name, and slurmctld gave 18 out again."""
    story = Story()
    old = replace(TRAIN, created=START - 60)
    shown = story.bound(old, 17, started=START - 50)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=START + 1)
    story.sees(replace(shown, annotations={**shown.annotations, **OF_A_BIND}))
    story.reads(job_of(old, 18, "PENDING"), at=START + 2)
    story.sees(OTHER)
    story.reads(job_of(OTHER, 18, "PENDING"), at=START + 3)
    for second in range(4, 30):
        story.polls({17: "RUNNING", 18: "PENDING"}, at=START + second)
        for action in story.decides(START + second):
            assert not isinstance(action, FailByDeadline | CancelJob | AllocateNow), action
            if isinstance(action, ReadJob):
                job = job_of(old, 17) if action.job_id == 17 else job_of(OTHER, 18, "PENDING")
                story.reads(job, at=START + second)
            story.ended(action, at=START + second)


@pytest.mark.parametrize("is_terminating", [True, False])
def test_a_pod_whose_id_went_to_another_pod_runs_on_in_the_job_that_replaced_its_own(is_terminating: bool) -> None:
    """A process begins after two jobs got each other's ids, and the pods show the former ones (life 740823).

    The nodes of a terminating pod are not asked for again, so no refusal shows that its job lives.
    """
    train, other = (replace(each, created=START - 60, node="x1") for each in (TRAIN, OTHER))
    keys = {"train": {names.JOB_ID: "5"}, "other": {names.JOB_ID: "3"}}
    shown = [
        replace(each, phase=PodPhase.RUNNING, annotations={**OF_A_BIND, **keys[each.name]}, started=START - 50)
        for each in (train, other)
    ]
    if is_terminating:
        shown[0] = replace(shown[0], deleting_at=NOW + 3600, grace_s=3600)
    story = Story(pods=shown)
    jobs = {3: job_of(train, 3, submitted=START - 30), 5: job_of(other, 5, submitted=START - 30)}
    acts: list[Action] = []
    for second in range(30):
        story.polls(dict.fromkeys(jobs, "RUNNING"), at=NOW + second)
        if second == 0:
            story.reads(jobs[5], at=NOW, granted=grant(5))
        for action in story.decides(NOW + second):
            acts.append(action)
            found = ()
            if isinstance(action, ReadJob):
                story.reads(jobs[action.job_id], at=NOW + second, granted=grant(action.job_id))
            elif isinstance(action, FindJobs):
                found = tuple(job_id for job_id, job in jobs.items() if job.name == action.name)
            outcome = Outcome.REFUSED if isinstance(action, AllocateNow) else Outcome.DONE
            story.ended(action, outcome, at=NOW + second, found=found)
    assert not [each for each in acts if isinstance(each, DeletePod | FailByDeadline | CancelJob)]
    assert story.world.workloads[key_of(train)].hint == 3
