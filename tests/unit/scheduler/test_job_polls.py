"""What a list of all jobs shows: ends, jobs that are missing, components, and ids that have to be read (ARCHITECTURE 4)."""

from __future__ import annotations

import pytest

from scheduler.actions import CancelJob, FailByDeadline, NudgeScheduler, ReadJob
from scheduler.events import JobsPolled, Unread
from scheduler.model.kubernetes import Pod
from tests.builders import CONFIG, START, Story, grant, job_of, pod
from tests.unit.scheduler.test_gangs import launched

NOW = START + 20
TRAIN = pod("train")


def reads(story: Story, at: float) -> list[int]:
    return [each.job_id for each in story.acts(ReadJob, at)]


def runs_many(story: Story, *, are_read: bool = False) -> dict[int, Pod]:
    """More pods than jobs are read at once run; the last list shows their jobs and one more job.  Returns pods by job id."""
    shown = {100 + number: story.runs(pod(f"p{number}", cpu=10), 100 + number, at=NOW) for number in range(MANY)}
    story.polls(dict.fromkeys([*shown, 500], "RUNNING"), at=NOW + 1)
    if are_read:
        for job_id, each in shown.items():
            story.reads(job_of(each, job_id), at=NOW + 1, granted=grant(job_id))
    return shown


MANY = CONFIG.tuning.reads + 1


# --- ends -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("are_read", [True, False])
def test_many_ends_at_once_end_the_pods_whether_their_jobs_were_read_before_or_not(are_read: bool) -> None:
    story = Story()
    shown = runs_many(story, are_read=are_read)
    story.polls(dict.fromkeys(shown, "CANCELLED") | {500: "RUNNING"}, at=NOW + 2)
    assert story.acts(FailByDeadline, NOW + 2)


@pytest.mark.parametrize(("ended", "are_read"), [(MANY - 1, True), (MANY, False)])
def test_as_many_ends_as_reads_in_flight_are_read_so_that_the_pods_show_slurms_reason(
    ended: int, are_read: bool
) -> None:
    story = Story()
    shown = runs_many(story, are_read=True)
    over = list(shown)[:ended]
    story.polls(dict.fromkeys([*shown, 500], "RUNNING") | dict.fromkeys(over, "CANCELLED"), at=NOW + 2)
    acts = story.decides(NOW + 2)
    assert [each.job_id for each in acts if isinstance(each, ReadJob) and each.job_id in over] == (
        over if are_read else []
    )
    assert any(isinstance(each, FailByDeadline) for each in acts) is not are_read


def test_jobs_that_change_while_they_live_have_not_ended_however_many_they_are() -> None:
    """Then one of these jobs is listed as ended: only a read proves this end."""
    story = Story()
    shown = runs_many(story)
    suspended = dict.fromkeys(shown, "RUNNING SUSPENDED") | {500: "RUNNING"}
    story.polls(suspended, at=NOW + 2)
    story.plan(NOW + 2)
    story.polls(suspended | {100: "CANCELLED"}, at=NOW + 3)
    planned = story.decides(NOW + 3)
    assert not [each for each in planned if isinstance(each, FailByDeadline | CancelJob)]
    assert 100 in [each.job_id for each in planned if isinstance(each, ReadJob)]


def test_a_job_that_starts_frees_no_nodes() -> None:
    """Slurm is asked to look at its queue only if nodes were freed."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({16: "PENDING", 17: "PENDING"}, at=NOW + 1)
    story.plan(NOW + 1)
    story.polls({16: "RUNNING", 17: "PENDING"}, at=NOW + 2)
    assert not [each for second in range(2, 6) for each in story.acts(NudgeScheduler, NOW + second)]
    story.polls({16: "COMPLETED", 17: "PENDING"}, at=NOW + 7)
    assert story.acts(NudgeScheduler, NOW + 7)


def test_jobs_that_had_ended_before_this_process_began_are_not_read() -> None:
    """slurmctld lists ended jobs for minutes."""
    story = Story()
    story.polls(dict.fromkeys(range(1, 50), "COMPLETED") | {50: "RUNNING"}, at=START + 0.1)
    assert reads(story, START + 0.1) == [50]


# --- jobs that a list lacks ------------------------------------------------------------------------------------------------


def test_only_a_job_whose_item_could_not_be_decoded_is_not_missing() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.runs(pod("other"), 18, at=NOW)
    story.polls({17: "RUNNING", 18: "RUNNING"}, at=NOW + 1)
    story.sees(JobsPolled(NOW + 2, NOW + 2, {}, unread=Unread(frozenset({17}))))
    assert [each.job_id for each in story.acts(ReadJob, NOW + 2) if each.bucket == "missing"] == [18]


# --- heterogeneous jobs -----------------------------------------------------------------------------------------------------


def test_a_component_that_changes_while_it_lives_does_not_end_the_job_of_its_gang() -> None:
    story = Story()
    for bind in launched(story):
        story.ended(bind, at=NOW + 1)
    story.polls({17: "RUNNING", 18: "RUNNING SUSPENDED"}, at=NOW + 20)
    assert not story.acts(CancelJob, NOW + 20)
    story.polls({17: "RUNNING", 18: "NODE_FAIL"}, at=NOW + 21)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 21)] == [17]


def test_of_a_heterogeneous_job_many_ends_at_once_do_not_prove_its_end() -> None:
    """Its other component may run on: a read shows that."""
    story = Story()
    for bind in launched(story):
        story.ended(bind, at=NOW + 1)
    shown = {100 + number: story.runs(pod(f"p{number}", cpu=10), 100 + number, at=NOW + 2) for number in range(MANY)}
    live = {17: "RUNNING", 18: "RUNNING", 500: "RUNNING", **dict.fromkeys(shown, "RUNNING")}
    story.polls(live, at=NOW + 3)
    story.polls(live | dict.fromkeys([17, *shown], "CANCELLED"), at=NOW + 4)
    ended = {each.name for each in story.acts(FailByDeadline, NOW + 4)}
    assert ended
    assert not ended & {"w-0", "w-1", "w-2"}
