"""The job of pods that ended is ended, and accounting learns how the pods ended (S2, S3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import BindPod, CancelJob, ReadJob, RecordEnd
from scheduler.model.kubernetes import Condition, OwnerRef, Pod, PodPhase
from scheduler.model.slurm import Job
from scheduler.rules.done import UNREAD_S
from scheduler.translate.grouping import GANG_SIZE
from tests.builders import CLUSTER, CONFIG, OWNER, START, Story, grant, job_of, pod
from tests.unit.scheduler.test_gangs import again, asks, member, ring, runs, runs_again
from tests.unit.scheduler.test_stages import FIRST, read

NOW = START + 10
RECORDS = replace(CONFIG, accounting=True)
QUIET_UNTIL = START + CONFIG.tuning.quiet_s
ENDED: Any = {"phase": PodPhase.FAILED, "exit_code": 1, "end_reason": "Error"}


# --- jobs that ended before this process began ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accounting", "is_listed", "at", "is_read"),
    [
        (True, True, QUIET_UNTIL, True),
        (True, True, QUIET_UNTIL - 1, False),
        (False, True, QUIET_UNTIL, False),
        (True, False, QUIET_UNTIL, False),
    ],
    ids=["unknown", "other reads are more urgent after a start", "nothing is recorded", "Slurm does not list the job"],
)
def test_an_ended_job_that_an_ended_pod_names_is_read_because_its_end_may_not_be_recorded(
    accounting: bool, is_listed: bool, at: float, is_read: bool
) -> None:
    story = Story(replace(CONFIG, accounting=accounting))
    story.polls({17: "RUNNING"}, at=START + 1)
    story.sees(story.bound(pod(created=START - 60), 17, **ENDED))
    story.polls({17: "COMPLETED"} if is_listed else {}, at=START + 2)
    assert [each.reason for each in story.acts(ReadJob, at)] == ["is job 17, which ended, that of hpc/train?"] * is_read


def test_the_ended_job_of_a_pod_that_never_ran_is_not_read() -> None:
    story = Story(RECORDS)
    story.polls({17: "CANCELLED"}, at=START + 1)
    waited = Condition(False, names.PENDING, "… Job 17, as of …")
    story.sees(pod(created=START - 60, scheduled=waited, **ENDED))
    assert story.acts(ReadJob, QUIET_UNTIL) == []


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


def test_the_former_job_of_a_gang_is_not_recorded_while_one_of_its_pods_terminates() -> None:
    """While no bridge ran, the gang was recreated and got another job."""
    story = Story(RECORDS)
    before = {"created": START - 60, "says": {"size": "2"}}
    stays = story.bound(member(0, 2, **before), 17, started=START - 50)
    leaves = story.bound(member(1, 2, **before), 9, "x2", started=START - 60, deleting_at=NOW + 30)
    story.polls({17: "RUNNING", 9: "CANCELLED"}, at=NOW)
    story.sees(stays, leaves)
    name = f"hpc/ring~{CLUSTER}.{story.world.key_of_pod[stays.uid]}"
    for job_id, state in ((9, "CANCELLED"), (17, "RUNNING")):
        job = replace(job_of(stays, job_id, state, submitted=START - 70), name=name)
        story.reads(job, at=NOW, granted=grant(17) if job_id == 17 else None)
    assert story.acts(RecordEnd, NOW + 5) == []
    story.loses(replace(leaves, **ENDED), NOW + 10)
    [record] = story.acts(RecordEnd, NOW + 10)
    assert (record.job_id, record.comment) == (9, "hpc/w-1: Deleted")
    story.ended(record, at=NOW + 11)
    assert story.acts(RecordEnd, NOW + 11) == [], "once"


def test_the_job_for_which_a_pod_waited_first_is_not_recorded_although_the_pod_does_not_show_which_job_it_runs_for() -> (
    None
):
    """An admin cancelled the first one; another client removed the id of the second one from the pod."""
    story = Story(RECORDS)
    story.queues(pod(), 17, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    story.reads(job_of(pod(), 17, "CANCELLED", submitted=NOW), at=NOW + 1)
    at = NOW + 30
    asked = asks(story, at)
    story.ended(asked, at=at, job_id=18, grant=grant(18))
    [bind] = story.acts(BindPod, at)
    story.ended(bind, at=at)
    story.sees(replace(story.bound(pod(), 18), annotations={}))
    story.polls({18: "RUNNING"}, at=at + 1)
    assert story.acts(RecordEnd, at + 1) == []


# --- when the job ends ----------------------------------------------------------------------------------------------


def unread(what: Pod, owner: OwnerRef) -> Pod:
    return replace(what, uid=f"{what.uid}-2", name=f"{what.name}-2", owner=owner)


OF_JOB = OwnerRef("batch/v1", "Job", "train", "uid-job")
DISAGREE = [
    pod(f"r-{size}", owner=OF_JOB, labels={names.PREFIX + "gang": "job"}, says={"gang-size": size}) for size in "23"
]


@pytest.mark.parametrize(
    ("waits", "ends"),
    [
        ([FIRST[0]], False),
        ([replace(FIRST[0], annotations={GANG_SIZE: "5"})], False),
        ([unread(pod(), OWNER)], True),
        ([unread(member(0, 2), OWNER)], True),
        (DISAGREE, True),
    ],
    ids=[
        "a pod of a JobSet",
        "a pod of a JobSet, with a size",
        "a pod alone",
        "another gang",
        "pods of a Job that disagree",
    ],
)
def test_a_job_without_pods_is_kept_after_a_start_while_a_job_set_is_unread(waits: list[Pod], ends: bool) -> None:
    """The pods of its stage are known once the JobSet is read."""
    story = Story()
    story.polls({17: "RUNNING"}, at=NOW + 20)
    story.reads(job_of(pod(), 17, submitted=START - 50), at=NOW + 20, granted=grant(17))
    story.sees(*waits)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 20)] == [17] * ends
    if not ends:
        assert [each.job_id for each in story.acts(CancelJob, START + UNREAD_S)] == [17], (
            "the job of a JobSet that cannot be read is not kept for ever"
        )


def test_a_job_without_pods_is_ended_once_the_job_set_that_waits_was_read() -> None:
    story = Story()
    story.sees(FIRST[0])
    read(story, at=NOW + 20)
    story.polls({17: "RUNNING"}, at=NOW + 20)
    story.reads(job_of(pod(), 17, submitted=START - 50), at=NOW + 20, granted=grant(17))
    assert [each.job_id for each in story.acts(CancelJob, NOW + 20)] == [17]


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
