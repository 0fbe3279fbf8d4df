"""The expected start as an interval, and the place among the bridge's waiting jobs (Q2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.actions import NudgeScheduler, ReadJob, SetPodCondition, SubmitJob
from scheduler.model.kubernetes import Condition, Pod
from scheduler.model.slurm import Job
from scheduler.rules.status import brief, clock
from scheduler.state.estimates import MOST_PARTITIONS, MOST_RATIOS, Estimate, StartEstimates
from tests.builders import START, Story, job_of, pod

NOW = START + 20
TRAIN = pod("train")
FIRST, SECOND = pod("first"), pod("second")


def waits(what: object = TRAIN, job_id: int = 17, reason: str = "Priority", **fields: object) -> Job:
    return replace(job_of(what, job_id, "PENDING"), reason=reason, **fields)


def said(story: Story, job: Job, at: float) -> list[str]:
    story.reads(job, at=at)
    return [report.message for report in story.acts(SetPodCondition, at)]


def acts(story: Story, at: float) -> None:
    """Decide, and let every action end at once."""
    for action in story.decides(at):
        story.ended(action, at=at)


def starts_after(story: Story, number: int, *, told: float, took: float, at: float, then: str = "Priority") -> float:
    """A job of which Slurm expected that it waits so long, and that waited another time.  Returns when it started.

    then   why the job waits after that
    """
    name = pod(f"p{number}")
    story.queues(name, number, at=at)
    story.polls({number: "PENDING"}, at=at + 0.5)
    story.reads(waits(name, number, starts=at + 1 + told), at=at + 1)
    acts(story, at + 1)
    story.reads(waits(name, number, then, starts=at + 1 + told), at=at + 2)
    started = at + 1 + took
    story.polls({number: "RUNNING"}, at=started)
    story.reads(replace(job_of(name, number, "RUNNING"), starts=started), at=started)
    story.loses(name, at=started + 1)
    story.polls({number: "CANCELLED"}, at=started + 2)
    story.reads(replace(job_of(name, number, "CANCELLED"), starts=started), at=started + 2)
    acts(story, started + 3)
    story.polls({}, at=started + 4)
    story.polls({}, at=started + 8)
    acts(story, started + 9)
    return started + 10


def experienced(jobs: int) -> tuple[Story, float]:
    """A bridge that saw so many jobs wait half as long as Slurm expected, one after the other."""
    story, at = Story(), NOW
    for number in range(1, 1 + jobs):
        at = starts_after(story, number, told=1000, took=500 + number, at=at)
    return story, at


def queued(story: Story, at: float) -> None:
    story.queues(TRAIN, 99, at=at)
    story.polls({99: "PENDING"}, at=at + 0.5)


def test_an_expected_start_has_an_interval_after_nine_starts_in_its_partition() -> None:
    for jobs, is_known in ((8, False), (9, True)):
        story, at = experienced(jobs)
        queued(story, at)
        [message] = said(story, waits(job_id=99, starts=at + 4001, planned_nodes="x2"), at + 1)
        assert (" (from past waits; from time limits " in message) is is_known, message


def test_the_interval_says_how_many_intervals_held_once_ten_were_judged() -> None:
    story, at = experienced(19)
    queued(story, at)
    [message] = said(story, waits(job_id=99, starts=at + 4001, planned_nodes="x2"), at + 1)
    # Of the starts since the ninth each was a little later than those before, so that none of the intervals held.
    assert "; expected start between " in message
    assert " on x2 (from past waits, 0 of 10 such intervals held; from time limits " in message


def test_the_expected_start_is_the_interval_and_the_list_shows_the_same() -> None:
    """The condition and `kubectl slurm why` gave Slurm's time first, outside the interval; the list gave it alone."""
    story, at = experienced(9)
    queued(story, at)
    [message] = said(story, waits(job_id=99, starts=at + 4001, planned_nodes="x2"), at + 1)
    earliest, latest, by_limits = (clock(at + 1 + wait, at) for wait in (0.501 * 4000, 0.509 * 4000, 4000))
    assert earliest < latest < by_limits
    expected = f"; expected start between {earliest.removesuffix(' UTC')} and {latest} on x2"
    assert f"{expected} (from past waits; from time limits {by_limits}). Job 99" in message
    assert brief(message).endswith(f"; expected start {earliest.removesuffix(' UTC')} to {latest} on x2")


@pytest.mark.parametrize(
    ("then", "is_judged"),
    [
        ("Priority", True),
        ("JobHeldUser", False),
        ("BeginTime", False),
        ("Dependency", False),
        ("PartitionDown", False),
        ("BadConstraints", False),
    ],
)
def test_jobs_that_waited_for_something_else_than_nodes_say_nothing_about_expected_starts(
    then: str, is_judged: bool
) -> None:
    story, at = Story(), NOW
    for number in range(1, 10):
        at = starts_after(story, number, told=1000, took=500, at=at, then=then)
    queued(story, at)
    [message] = said(story, waits(job_id=99, starts=at + 4001), at + 1)
    assert (" (from past waits; from time limits " in message) is is_judged


def test_a_begin_time_is_no_estimate() -> None:
    story, at = experienced(12)
    queued(story, at)
    [message] = said(story, waits(job_id=99, reason="BeginTime", starts=at + 4001), at + 1)
    assert "past waits" not in message


def test_an_interval_that_changes_is_not_news() -> None:
    story, at = experienced(9)
    queued(story, at)
    assert len(said(story, waits(job_id=99, starts=at + 4001), at + 1)) == 1
    for minute in range(1, 29):
        assert said(story, waits(job_id=99, starts=at + 4001), at + 60 * minute) == []


def test_a_restart_forgets_the_interval_and_writes_nothing_for_it() -> None:
    story, at = experienced(9)
    queued(story, at)
    [message] = said(story, waits(job_id=99, starts=at + 4001), at + 1)
    assert "past waits" in message
    next_life = Story(started=at + 2)
    next_life.sees(replace(TRAIN, scheduled=Condition(False, "SlurmJobPending", message)))
    next_life.polls({99: "PENDING"}, at=at + 30)
    next_life.reads(waits(job_id=99, starts=at + 4001), at=at + 30)
    assert [each for step in range(10) for each in next_life.acts(SetPodCondition, at + 30 + step)] == []


def test_a_pod_says_its_place_among_the_waiting_jobs_of_the_bridge() -> None:
    story = Story()
    for number, each in ((17, FIRST), (18, SECOND)):
        story.queues(each, number, at=NOW + number)
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 20)
    [first] = said(story, waits(FIRST, 17, priority=1), NOW + 21)
    assert "; number 1 of slurm-bridge's 2 waiting jobs there. Job 17" in first, "the other was not read yet"
    [second] = said(story, waits(SECOND, 18, priority=9), NOW + 22)
    assert "; number 1 of slurm-bridge's 2 waiting jobs there. Job 18" in second
    for second in range(1, 60):
        assert said(story, waits(FIRST, 17, priority=1), NOW + 22 + second) == [], "a place that changes is no news"


def test_a_job_that_waits_for_others_has_no_place_in_the_queue() -> None:
    story = Story()
    for number, each in ((17, FIRST), (18, SECOND)):
        story.queues(each, number, at=NOW + number)
    story.polls({17: "PENDING", 18: "PENDING"}, at=NOW + 20)
    [first] = said(story, waits(FIRST, 17, "Dependency"), NOW + 21)
    [second] = said(story, waits(SECOND, 18), NOW + 22)
    assert "number" not in first
    assert "number" not in second, "it is the only one"


def a_thousand_begin_to_wait() -> tuple[Story, dict[int, Pod]]:
    """At NOW their jobs are submitted to Slurm's queue.  Returns the pods by job id, too."""
    story, pods = Story(checked=False), {100 + number: pod(f"p{number}") for number in range(1000)}
    first, *others = pods
    story.queues(pods[first], first, at=NOW)
    story.sees(*(pods[job_id] for job_id in others))
    ids = iter(others)
    while asked := story.acts(SubmitJob, NOW):
        for each in asked:
            story.ended(each, at=NOW, job_id=next(ids))
    story.polls(dict.fromkeys(pods, "PENDING"), at=NOW + 0.5)
    return story, pods


def test_a_thousand_pods_that_begin_to_wait_at_once_all_say_so_within_eleven_seconds() -> None:
    """Their jobs are read for two minutes, 8 a second."""
    story, pods = a_thousand_begin_to_wait()
    told = dict[str, float]()
    for step in range(110):
        at = NOW + 1 + step / 10
        planned = story.decides(at)
        while planned:  # each call is answered at once
            for action in planned:
                if isinstance(action, ReadJob):
                    story.reads(waits(pods[action.job_id], action.job_id), at=at)
                elif isinstance(action, SetPodCondition):
                    told.setdefault(action.name, at)
                story.ended(action, at=at)
            planned = [each for each in story.decides(at) if not isinstance(each, NudgeScheduler)]
    assert len(told) == 1000
    assert max(told.values()) <= NOW + 11


def test_in_a_quiet_minute_nothing_is_written_on_a_thousand_waiting_pods() -> None:
    """Priorities grow, places change and other jobs start meanwhile; what Slurm says of each job stays."""
    story, pods = a_thousand_begin_to_wait()
    written, reads = dict[int, list[str]](), 0
    for half_second in range(2 * 400):
        at = NOW + 1 + half_second / 2
        if half_second % 40 == 0:
            story.world.estimates.note_started([Estimate("main", at, at + 100)], at + half_second % 97)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                priority = half_second * (action.job_id % 7)
                story.reads(
                    waits(pods[action.job_id], action.job_id, starts=NOW + 9000 + action.job_id, priority=priority),
                    at=at,
                )
                reads += 1
            elif isinstance(action, SetPodCondition):
                written.setdefault(int(action.name[1:]), []).append(action.message)
                assert half_second < 2 * 340, "a minute before the end all is said"
            story.ended(action, at=at)
    unread = [number for number, messages in written.items() if "as job" in messages[0]]
    assert 500 < len(unread) < 1000, "those that were not read within ten seconds, and a place for the write"
    assert {number: len(messages) for number, messages in written.items()} == {
        number: 2 if number in unread else 1 for number in range(1000)
    }
    assert all("Job " in messages[-1] for messages in written.values()), "in the end each gives the reason"
    assert reads <= 8 * 400 + 8


def started(estimates: StartEstimates, partition: str, *ratios: float) -> None:
    """Jobs that waited so many times as long as Slurm expected."""
    for ratio in ratios:
        estimates.note_started([Estimate(partition, NOW, NOW + 1000)], NOW + 1000 * ratio)


def test_an_interval_forgets_how_slurm_estimated_long_ago() -> None:
    estimates = StartEstimates()
    started(estimates, "main", *[9.0] * MOST_RATIOS)
    started(estimates, "main", *[0.5] * (MOST_RATIOS - 1))
    interval = estimates.interval("main", NOW + 100, NOW)
    assert interval is not None
    assert interval.latest == NOW + 50, "one of the old ratios is left, and an interval leaves out the most extreme"
    started(estimates, "main", 0.25)
    assert max(estimates._seen["main"].ordered) == 0.5


def test_of_many_partitions_the_one_that_started_no_job_for_longest_is_forgotten() -> None:
    estimates = StartEstimates()
    started(estimates, "first", *[0.5] * 9)
    for number in range(MOST_PARTITIONS - 2):
        started(estimates, f"p{number}", 0.5)
    started(estimates, "main", *[0.5] * 9)
    started(estimates, "first", 0.5)
    started(estimates, "another", 0.5)
    assert estimates.interval("first", NOW + 100, NOW) is not None
    started(estimates, *("main", 0.5))
    for number in range(MOST_PARTITIONS - 1):
        started(estimates, f"q{number}", 0.5)
    assert estimates.interval("first", NOW + 100, NOW) is None
    assert estimates.interval("main", NOW + 100, NOW) is not None


# --- the estimates of one partition ---------------------------------------------------------------------------------


def judged(estimates: StartEstimates, partition: str, *ratios: float) -> None:
    """As `started`, with the interval in which each of the jobs was expected to start."""
    for ratio in ratios:
        known = estimates.estimate(partition, NOW + 1000, NOW, None)
        assert known is not None
        estimates.note_started([known], NOW + 1000 * ratio)


def width(estimates: StartEstimates) -> float:
    interval = estimates.interval("main", NOW + 1000, NOW)
    assert interval is not None
    return interval.latest - interval.earliest


def test_an_interval_becomes_wider_if_starts_were_outside_and_narrower_if_they_were_inside() -> None:
    estimates = StartEstimates()
    started(estimates, "main", *(number / 100 for number in range(1, 101)))
    at_first = width(estimates)
    judged(estimates, "main", 1.5, 1.5, 1.5, 1.5)
    missed = width(estimates)
    judged(estimates, "main", *[0.5] * 16)
    interval = estimates.interval("main", NOW + 1000, NOW)
    assert interval is not None
    assert interval.latest - interval.earliest < at_first + 1 < missed
    assert (interval.held, interval.judged) == (16, 20)


def test_a_start_at_an_end_of_its_interval_is_inside() -> None:
    estimates = StartEstimates()
    started(estimates, "main", *[0.25] * 5, *[0.75] * 5)
    judged(estimates, "main", *[0.25, 0.75] * 5)
    interval = estimates.interval("main", NOW + 1000, NOW)
    assert interval is not None
    assert (interval.earliest, interval.latest) == (NOW + 250, NOW + 750)
    assert (interval.held, interval.judged) == (10, 10)
    judged(estimates, "main", 0.2, 0.8)
    interval = estimates.interval("main", NOW + 1000, NOW)
    assert interval is not None
    assert (interval.held, interval.judged) == (10, 12)


@pytest.mark.parametrize(("wait_s", "is_judged"), [(9, False), (10, True)])
def test_the_start_of_a_job_that_is_expected_within_seconds_is_not_judged(wait_s: float, is_judged: bool) -> None:
    """A tick of slurmctld decides then."""
    estimates = StartEstimates()
    started(estimates, "main", *[0.5] * 9)
    assert (estimates.estimate("main", NOW + wait_s, NOW, None) is not None) is is_judged
    assert (estimates.interval("main", NOW + wait_s, NOW) is not None) is is_judged


@pytest.mark.parametrize(
    ("before", "is_another"),
    [
        (Estimate("main", NOW, NOW + 300), False),
        (Estimate("main", NOW, NOW + 240), False),
        (Estimate("main", NOW, NOW + 239), True),
        (Estimate("gpu", NOW, NOW + 300), True),
    ],
    ids=["the same", "a minute sooner", "more than a minute sooner", "in another partition"],
)
def test_an_expected_start_that_moves_by_more_than_a_minute_or_to_another_partition_is_judged_too(
    before: Estimate, is_another: bool
) -> None:
    assert (StartEstimates().estimate("main", NOW + 300, NOW, before) is not None) is is_another
