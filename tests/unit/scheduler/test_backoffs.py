"""A failed attempt delays what is like it, and no end (S14)."""

from __future__ import annotations

from dataclasses import replace

from scheduler import names
from scheduler.actions import (
    Action,
    BindPod,
    CancelJob,
    DeletePod,
    EvictPod,
    FailByDeadline,
    Outcome,
    Plan,
    ReadJob,
    RecordEnd,
    SetPodCondition,
    UpdateJob,
)
from scheduler.events import CallsAnswered, Planned, RightsChecked
from scheduler.model.kubernetes import PodPhase
from scheduler.state.backoff import NO_FAILURE, Attempt
from tests.builders import CONFIG, START, Story, grant, job_of, key_of, pod

NOW = START + 60
TRAIN = pod("train")


def refused_often(story: Story, action: Action, at: float, times: int = 6) -> None:
    """So often that the next attempt comes half a minute later."""
    for _ in range(times):
        if id(action) not in story.world.in_flight:
            story.world.apply(Planned(Plan((action,)), at))
        story.ended(action, Outcome.REFUSED, at=at, number=429, later=True, retry_after_s=300.0)


def test_a_job_whose_pod_is_gone_is_ended_at_once_though_binds_were_refused() -> None:
    story = Story()
    bind = story.binds(TRAIN, 17, at=NOW)
    refused_often(story, bind, NOW)
    assert story.acts(BindPod, NOW + 1) == []
    story.loses(TRAIN, at=NOW + 2)
    assert [each.job_id for each in story.acts(CancelJob, NOW + 2)] == [17]


def test_pods_whose_job_is_over_are_ended_at_once_though_their_eviction_was_refused() -> None:
    """A PodDisruptionBudget refuses an eviction with 429, again and again; the end of the job does not ask it."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    workload = key_of(TRAIN)
    refused_often(story, EvictPod(workload, TRAIN.uid, "hpc", "train", "its job ends soon"), NOW + 2)
    story.polls({17: "CANCELLED"}, at=NOW + 3)
    for read in story.acts(ReadJob, NOW + 3):
        story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW + 3)
        story.ended(read, at=NOW + 3)
    assert len(story.acts(FailByDeadline, NOW + 3)) == 1


def test_failed_ends_are_repeated_at_once_when_kubernetes_answers_calls_again() -> None:
    """A frozen etcd ends no watch, so there is no outage whose end would do that (X2)."""
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "CANCELLED"}, at=NOW + 3)
    for read in story.acts(ReadJob, NOW + 3):
        story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW + 3)
        story.ended(read, at=NOW + 3)
    at = NOW + 3
    for _ in range(6):
        at += 60
        for end in story.acts(FailByDeadline, at):
            story.ended(end, Outcome.UNKNOWN, at=at + 10)
    assert story.acts(FailByDeadline, at + 11) == []
    story.sees(CallsAnswered(at + 12))
    assert len(story.acts(FailByDeadline, at + 12)) == 1


def test_the_record_of_an_end_waits_for_failed_records_alone() -> None:
    story = Story(replace(CONFIG, accounting=True))
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    delete = DeletePod(key_of(TRAIN), TRAIN.uid, "hpc", "train", "an end that failed")
    refused_often(story, delete, NOW + 2)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    [cancel] = story.acts(CancelJob, NOW + 3)
    story.ended(cancel, at=NOW + 3)
    [record] = story.acts(RecordEnd, NOW + 3)
    story.ended(record, Outcome.REFUSED, at=NOW + 3, number=500, later=True)
    assert story.acts(RecordEnd, NOW + 3.5) == []
    assert len(story.acts(RecordEnd, NOW + 4)) == 1


def test_an_end_waits_half_a_minute_at_most_however_long_the_far_side_asks_for() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(replace(shown, phase=PodPhase.SUCCEEDED))
    [cancel] = story.acts(CancelJob, NOW + 2)
    story.ended(cancel, Outcome.REFUSED, at=NOW + 2, number=429, later=True, retry_after_s=3600.0)
    assert story.acts(CancelJob, NOW + 31) == []
    assert len(story.acts(CancelJob, NOW + 32)) == 1


def updates_are_refused(times: int = 6) -> Story:
    """The job of the pod waits, and updates of it were refused so often at NOW + 3."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(replace(TRAIN, annotations={names.PREFIX + names.COMMENT: "edited"}))
    [update] = story.acts(UpdateJob, NOW + 3)
    refused_often(story, update, NOW + 3, times)
    return story


def test_a_grant_is_bound_at_once_though_updates_of_the_job_were_refused() -> None:
    story = updates_are_refused()
    assert story.acts(UpdateJob, NOW + 300) == [], "the server asked for five minutes"
    story.polls({17: "RUNNING"}, at=NOW + 301)
    story.reads(job_of(TRAIN, 17, "RUNNING"), at=NOW + 301, granted=grant(17))
    assert len(story.acts(BindPod, NOW + 301)) == 1


def test_a_grant_is_bound_at_once_though_the_owner_of_its_pod_could_not_be_read() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    workload = story.world.workloads[key_of(TRAIN)]
    for _ in range(8):  # as each failed read of an owner does
        story.world.back_off(workload, NOW + 2)
    story.polls({17: "RUNNING"}, at=NOW + 3)
    story.reads(job_of(TRAIN, 17, "RUNNING"), at=NOW + 3, granted=grant(17))
    assert len(story.acts(BindPod, NOW + 3)) == 1


def test_a_pause_that_one_answer_asks_for_counts_though_another_call_sent_with_it_fails_otherwise() -> None:
    story = Story()
    ends = [DeletePod(key_of(TRAIN), uid, "hpc", uid, "their job is over") for uid in ("uid-a", "uid-b")]
    story.sees(TRAIN)
    story.ended(ends[0], Outcome.REFUSED, at=NOW, number=429, later=True, retry_after_s=20.0)
    story.ended(ends[1], Outcome.UNKNOWN, at=NOW + 1, began=NOW)
    assert story.world.workloads[key_of(TRAIN)].retry_from(Attempt.END_POD) == NOW + 20


def test_a_pause_that_slurm_asks_for_before_the_next_update_of_a_job_delays_no_bind() -> None:
    story = updates_are_refused(times=1)
    assert story.world.workloads[key_of(TRAIN)].backoff == NO_FAILURE, "reads of owners do not wait, either"
    story.polls({17: "RUNNING"}, at=NOW + 4)
    story.reads(job_of(TRAIN, 17, "RUNNING"), at=NOW + 4, granted=grant(17))
    assert len(story.acts(BindPod, NOW + 4)) == 1


def test_after_an_update_that_succeeds_the_pause_after_the_next_failure_is_short_again() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    at = NOW + 3

    def fails(comment: str, times: int) -> float:
        """How long the attempts take until the last of them."""
        nonlocal at
        story.sees(replace(TRAIN, annotations={names.PREFIX + names.COMMENT: comment}))
        began = at
        for _ in range(times):
            while not (updates := story.acts(UpdateJob, at)):
                at += 0.5
                assert at < began + 300
            story.ended(updates[0], Outcome.UNKNOWN, at=at)
        return at - began

    assert fails("first", 5) > 10
    while not (updates := story.acts(UpdateJob, at)):
        at += 0.5
    story.ended(updates[0], at=at)
    at += 5
    assert fails("second", 2) < 5


def test_a_failure_after_a_success_counts_as_the_first_though_its_call_was_sent_together_with_the_others() -> None:
    """Of three binds that are sent together, the first fails, the second succeeds and the third fails."""
    tuning = CONFIG.tuning
    failed = NO_FAILURE.after(NOW + 1, NOW, tuning)
    third = failed.after_success().after(NOW + 1, NOW, tuning)
    assert third == failed
    assert failed.until == NOW + 1 + tuning.backoff_s


def test_a_status_that_is_refused_again_and_again_is_tried_ever_more_rarely() -> None:
    """An admission policy refused each write of the status, which was tried every two seconds, with a line in the log."""
    story = Story()
    story.sees(pod("train", annotations={names.PREFIX + "memory": "nonsense"}))
    writes = list[SetPodCondition]()
    for second in range(600):
        for each in story.acts(SetPodCondition, NOW + second):
            story.ended(each, Outcome.REFUSED, at=NOW + second, number=403)
            writes.append(each)
    assert len({each.message for each in writes}) == 1
    assert 10 <= len(writes) <= 16
    story.sees(RightsChecked({"hpc": "The bridge may not write."}, NOW + 601))
    story.sees(RightsChecked({}, NOW + 602))
    [again] = story.acts(SetPodCondition, NOW + 604)
    story.ended(again, at=NOW + 604)
    assert story.acts(SetPodCondition, NOW + 700) == []
