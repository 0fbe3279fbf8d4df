"""The job of pods that ended is ended, and accounting learns how the pods ended (S2, S3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.actions import CancelJob, ReadJob, RecordEnd
from scheduler.model.kubernetes import OwnerRef, Pod, PodPhase
from scheduler.model.slurm import Job
from tests.builders import CONFIG, OWNER, START, Story, grant, job_of, pod
from tests.unit.scheduler.test_gangs import again, member, ring, runs, runs_again
from tests.unit.scheduler.test_stages import FIRST

NOW = START + 10
RECORDS = replace(CONFIG, accounting=True)
QUIET_UNTIL = START + CONFIG.tuning.quiet_s
ENDED: Any = {"phase": PodPhase.FAILED, "exit_code": 1, "end_reason": "Error"}


# --- jobs that ended before this process began ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accounting", "node_of_pod", "at", "is_read"),
    [
        (True, "x1", QUIET_UNTIL, True),
        (True, "x1", QUIET_UNTIL - 1, False),
        (False, "x1", QUIET_UNTIL, False),
        (True, "", QUIET_UNTIL, False),
    ],
    ids=["unknown", "other reads are more urgent after a start", "nothing is recorded", "the pod never ran"],
)
def test_an_ended_job_that_an_ended_pod_names_is_read_because_its_end_may_not_be_recorded(
    accounting: bool, node_of_pod: str, at: float, is_read: bool
) -> None:
    story = Story(replace(CONFIG, accounting=accounting))
    story.polls({17: "COMPLETED"}, at=START + 1)
    story.sees(replace(story.bound(pod(created=START - 60), 17, **ENDED), node=node_of_pod))
    assert [each.reason for each in story.acts(ReadJob, at)] == ["is job 17, which ended, that of hpc/train?"] * is_read


# --- the record -----------------------------------------------------------------------------------------------------


def ends(story: Story, *pods: Pod) -> RecordEnd:
    """These pods of job 17 ended, and the job is cancelled."""
    story.sees(*pods)
    [cancel] = story.acts(CancelJob, NOW + 10)
    story.ended(cancel, at=NOW + 10)
    [record] = story.acts(RecordEnd, NOW + 10)
    return record


def test_up_to_three_pods_are_named_one_by_one() -> None:
    story = Story(RECORDS)
    shown = runs(story, ring(3), ("x1", 3))
    record = ends(story, *(replace(each, **ENDED) for each in shown))
    assert record.comment == "hpc/w-0: Error; hpc/w-1: Error; hpc/w-2: Error"


def test_a_pod_that_succeeded_and_is_deleted_then_has_succeeded() -> None:
    story = Story(RECORDS)
    shown = story.runs(pod(), 17, at=NOW)
    record = ends(story, replace(shown, phase=PodPhase.SUCCEEDED, end_reason="Completed", deleting_at=NOW + 40))
    assert (record.comment, record.exit_code) == ("hpc/train: Completed", 0)


def test_the_former_job_of_a_gang_is_recorded_once_and_when_the_last_of_its_pods_has_ended() -> None:
    story = Story(RECORDS)
    pods = ring(2)
    first = runs(story, pods, ("x1", 2))
    name = story.world.placeholders[17].name
    story.polls({17: "PREEMPTED"}, at=NOW + 5)
    preempted = frozenset({"PREEMPTED"})
    story.reads(Job(17, name, "alice", preempted, partition="main", nodes="x1", tasks=2), at=NOW + 6)
    leaving = [replace(each, deleting_at=NOW + 40) for each in first]
    story.sees(*leaving)
    second = again(pods, NOW + 10)
    story.sees(*second)
    for each in leaving:
        story.loses(replace(each, phase=PodPhase.FAILED, exit_code=143), NOW + 20)
    story.polls({17: "PREEMPTED"}, at=NOW + 21)
    runs_again(story, second, NOW + 22)
    assert [each.job_id for each in story.acts(RecordEnd, NOW + 25)] == [17]
    story.sees(replace(story.bound(second[0], 18), labels={**second[0].labels, "edited": "now"}))
    assert story.acts(RecordEnd, NOW + 26) == [], "it is being recorded"


# --- when the job ends ----------------------------------------------------------------------------------------------


def unread(what: Pod, owner: OwnerRef) -> Pod:
    return replace(what, uid=f"{what.uid}-2", name=f"{what.name}-2", owner=owner)


@pytest.mark.parametrize(
    ("waits", "ends"),
    [(FIRST[0], False), (unread(pod(), OWNER), True), (unread(member(0, 2), OWNER), True)],
    ids=["a pod of a JobSet", "a pod alone", "another gang"],
)
def test_a_job_without_pods_is_kept_after_a_start_while_a_job_set_is_unread(waits: Pod, ends: bool) -> None:
    """The pods of its stage are known once the JobSet is read."""
    story = Story()
    story.polls({17: "RUNNING"}, at=NOW + 20)
    story.reads(job_of(pod(), 17, submitted=START - 50), at=NOW + 20, granted=grant(17))
    story.sees(waits)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 20)] == [17] * ends


@pytest.mark.parametrize("deleted", [False, True])
def test_the_job_of_pods_that_ended_ends_although_a_job_set_is_unread(deleted: bool) -> None:
    story = Story()
    shown = story.runs(pod(), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    over = replace(shown, phase=PodPhase.SUCCEEDED)
    story.sees(FIRST[0], over)
    if deleted:
        story.loses(over, NOW + 5)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 5)] == [17]
