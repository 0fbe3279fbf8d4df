"""How much may be under way, and how often (Q2, ARCHITECTURE 4 and 5): limit classes, token buckets, the nudge."""

from __future__ import annotations

import itertools

import pytest

from scheduler.actions import AllocateNow, NudgeScheduler, Outcome, ReadJob, SetPodCondition, SubmitJob
from scheduler.events import JobsPolled, OutageBegan, Side
from scheduler.model.slurm import Job
from scheduler.names import PREFIX
from scheduler.rules.periodic import FRONT
from scheduler.state.token_buckets import FairQueue, TokenBucket
from tests.builders import CONFIG, START, Story, job_of, key_of, pod, without

NOW = START + 20


def test_a_limit_class_takes_no_more_than_it_holds_and_the_workload_that_waited_comes_first() -> None:
    story = Story(without(CONFIG, submits=2))
    story.queues(pod("first"), 1, at=NOW)
    early = [pod(f"early{number}") for number in range(3)]
    story.sees(*early)
    [one, two] = story.acts(SubmitJob, NOW)
    assert story.decides(NOW) == []
    assert sum(len(keys) for keys in story.world.parked.values()) == 1

    story.sees(pod("late"))
    assert story.decides(NOW) == []
    story.ended(one, at=NOW, job_id=2)
    [third] = story.acts(SubmitJob, NOW)
    assert third.spec.name.startswith("hpc/early2~")
    story.ended(two, at=NOW, job_id=3)
    [fourth] = story.acts(SubmitJob, NOW)
    assert fourth.spec.name.startswith("hpc/late~")
    assert not any(story.world.parked.values())


def test_a_workload_that_is_visited_while_its_limit_is_full_keeps_its_place() -> None:
    story = Story(without(CONFIG, submits=1))
    story.queues(pod("first"), 1, at=NOW)
    story.sees(pod("a"), pod("b"), pod("c"))
    [submit] = story.acts(SubmitJob, NOW)
    story.sees(pod("b", labels={"edited": "since"}))
    assert story.decides(NOW) == []
    story.ended(submit, at=NOW, job_id=2)
    assert [each.spec.name.partition("~")[0] for each in story.acts(SubmitJob, NOW)] == ["hpc/b"]


def test_every_limit_class_is_empty_again_when_everything_has_ended() -> None:
    story = Story()
    story.runs(pod("a"), 1, at=NOW)
    story.queues(pod("b", says={"partition": "gpu"}), 2, at=NOW)
    assert set(story.world.under_way.values()) <= {0}
    assert set(story.world.immediate_in_flight.values()) <= {0}


def test_reports_are_bounded_too() -> None:
    story = Story(without(CONFIG, pod_conditions=3))
    story.sees(*(pod(f"p{number}", says={"nice": "x"}) for number in range(10)))
    told = story.acts(SetPodCondition, NOW)
    assert len(told) == 3
    names = {each.name for each in told}
    while told:
        for each in told:
            story.ended(each, at=NOW)
        told = story.acts(SetPodCondition, NOW)
        assert len(told) <= 3
        names |= {each.name for each in told}
    assert len(names) == 10


def waiting(story: Story, count: int) -> list[int]:
    story.queues(pod("p0"), 100, at=NOW)
    story.sees(*(pod(f"p{number}") for number in range(1, count)))
    next_id = 101
    while asked := story.acts(SubmitJob, NOW):
        for each in asked:
            story.ended(each, at=NOW, job_id=next_id)
            next_id += 1
    ids = list(range(100, next_id))
    story.polls(dict.fromkeys(ids, "PENDING"), at=NOW + 0.5)
    return ids


def reads(story: Story, at: float) -> list[int]:
    """What is read in detail then; each is answered."""
    read = [each for each in story.acts(ReadJob, at) if each.bucket == "detail"]
    for each in read:
        number = each.job_id - 100
        story.reads(job_of(pod(f"p{number}"), each.job_id, "PENDING", reason="Priority"), at=at)
        story.ended(each, at=at)
    return [each.job_id for each in read]


def test_eight_details_a_second_are_read_and_twenty_new_jobs_within_three_seconds() -> None:
    story = Story()
    ids = waiting(story, 20)
    seen: list[int] = []
    for tenth in range(10, 31):
        seen += reads(story, NOW + tenth / 10)
    assert sorted(set(seen)) == ids
    assert {job_id for job_id in seen if seen.count(job_id) > 1} <= set(ids[:FRONT]), (
        "no other is read again before all were"
    )
    assert len(reads(story, NOW + 30)) == 8
    assert reads(story, NOW + 30) == []
    assert len(reads(story, NOW + 31)) == 8


def test_waiting_jobs_are_read_in_turn_and_the_front_of_the_queue_more_often() -> None:
    story = Story()
    ids = waiting(story, 30)
    seen: list[int] = []
    for tick in range(1, 200):
        seen += reads(story, NOW + tick / 4)
    front, rest = ids[:FRONT], ids[FRONT:]
    others = [job_id for job_id in seen if job_id in rest]
    rounds = [others[start : start + len(rest)] for start in range(0, len(others) - len(rest), len(rest))]
    assert len(rounds) > 1
    assert all(sorted(each) == rest for each in rounds)
    assert min(seen.count(job_id) for job_id in front) > max(seen.count(job_id) for job_id in rest)


def test_unknown_ids_are_read_many_at_start_and_five_a_second_later() -> None:
    story = Story()
    before = dict.fromkeys(range(1, 2001), frozenset({"RUNNING"}))
    story.sees(JobsPolled(START + 0.1, START + 0.1, before))
    read: list[int] = []
    for tick in range(1, 31):
        while acts := story.acts(ReadJob, START + 0.1 + tick / 10):
            for each in acts:
                story.reads(Job(each.job_id, "x", "carol", frozenset({"RUNNING"})), at=START + tick / 10)
                story.ended(each, at=START + tick / 10)
                read.append(each.job_id)
    assert 1400 < len(read) <= 1700  # 500 a second for three seconds, and what may come at once
    assert read == sorted(read, reverse=True)  # newest first
    counts = []
    for second in range(10, 14):
        count = 0
        while acts := story.acts(ReadJob, START + second):
            for each in acts:
                story.ended(each, Outcome.UNREACHED, at=START + second)
                count += 1
        counts.append(count)
    assert counts == [5, 5, 5, 5]


def test_a_new_id_is_read_at_the_high_rate_only_soon_after_the_start_or_while_a_job_is_searched() -> None:
    story = Story()
    scanned_at = START + CONFIG.tuning.scan_s
    story.polls({41: "RUNNING"}, at=scanned_at - 0.1)
    assert [read.bucket for read in story.acts(ReadJob, scanned_at - 0.1)] == ["scan"]
    story.polls({41: "RUNNING", 42: "RUNNING"}, at=scanned_at)
    assert [read.bucket for read in story.acts(ReadJob, scanned_at)] == ["unknown"]
    story.sees(pod("train"))
    [asked] = [each for each in story.decides(NOW) if isinstance(each, AllocateNow | SubmitJob)]
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 1)
    story.polls({41: "RUNNING", 42: "RUNNING", 43: "RUNNING"}, at=NOW + 2)
    assert [read.bucket for read in story.acts(ReadJob, NOW + 2)] == ["scan"]


def test_a_read_that_failed_is_repeated_at_its_time_and_not_while_slurm_is_away() -> None:
    story = Story()
    story.polls({41: "RUNNING"}, at=NOW)
    failures, at = 0, NOW
    while 41 not in story.world.reads_postponed:
        [read] = story.acts(ReadJob, at)
        story.ended(read, Outcome.REFUSED, at=at, number=9001)
        assert story.acts(ReadJob, at) == []
        failures, at = failures + 1, story.world.next_read_at(41)
    assert failures > 1
    [read] = story.acts(ReadJob, at)
    story.ended(read, Outcome.REFUSED, at=at, number=9001)
    at = story.world.next_read_at(41)
    story.sees(OutageBegan(Side.SLURM, at - 1, "slurmrestd does not answer."))
    assert story.acts(ReadJob, at) == []


def test_the_job_of_a_running_pod_is_not_read_once_more_for_another_pod_that_names_it() -> None:
    """The reads that would show whose job it is fail."""
    story = Story()
    train = story.runs(pod("train"), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(job_of(train, 17), at=NOW + 1)
    read_at = []
    for at in range(2, 120):
        if at == 32:
            story.sees(story.bound(pod("copy"), 17))
        for read in story.acts(ReadJob, NOW + at):
            if read.bucket == "running":
                assert read.key == key_of(train)
                story.reads(job_of(train, 17), at=NOW + at)
                read_at.append(at)
            story.ended(read, Outcome.UNREACHED if read.bucket == "unknown" else Outcome.DONE, at=NOW + at)
    assert read_at == [30, 90]


def test_of_the_pods_that_show_one_status_those_that_show_none_come_first() -> None:
    story = Story(without(CONFIG, pod_conditions=1))
    ring = [pod(f"w-{n}", labels={f"{PREFIX}gang": "ring"}, says={"gang-size": "3"}) for n in range(2)]
    story.sees(ring[0])
    [first] = story.acts(SetPodCondition, NOW)
    story.ended(first, at=NOW)
    story.sees(ring[1])
    told = []
    for at in (NOW + 10, NOW + 11):
        [each] = story.acts(SetPodCondition, at)
        story.ended(each, at=at)
        told.append(each.name)
    assert told == ["w-1", "w-0"]


def test_a_nudge_comes_at_most_once_a_second() -> None:
    story = Story()
    story.queues(pod("p0"), 100, at=NOW)
    nudges = []
    for tenth in range(1, 40):
        story.polls({100: "PENDING", 200 + tenth: "RUNNING"}, at=NOW + tenth / 10)
        nudges += [NOW + tenth / 10 for _ in story.acts(NudgeScheduler, NOW + tenth / 10)]
    assert len(nudges) == 4
    assert all(later - earlier >= 1.0 - 1e-6 for earlier, later in itertools.pairwise(nudges))


def test_the_nudge_that_had_to_wait_is_not_forgotten() -> None:
    story = Story()
    story.queues(pod("p0"), 100, at=NOW)
    story.polls({100: "PENDING", 1: "RUNNING", 2: "RUNNING"}, at=NOW + 1)
    story.polls({100: "PENDING", 1: "RUNNING"}, at=NOW + 2)
    assert len(story.acts(NudgeScheduler, NOW + 2)) == 1
    story.polls({100: "PENDING"}, at=NOW + 2.5)
    plan = story.plan(NOW + 2.5)
    assert not [each for each in plan.actions if isinstance(each, NudgeScheduler)]
    assert plan.wake_at == NOW + 3
    assert len(story.acts(NudgeScheduler, NOW + 3)) == 1


def test_a_fair_queue_fills_all_free_places() -> None:
    """A namespace whose queue ends early does not cost the others their turns."""
    queue = FairQueue()
    for key, namespace in {"a1": "a", "b1": "b", "b2": "b", "c1": "c"}.items():
        queue.put(key, namespace)
    assert queue.first(4) == ["a1", "b1", "c1", "b2"]
    assert queue.first(3) == ["a1", "b1", "c1"]


@pytest.mark.parametrize(("after_s", "left"), [(0.0, 0.0), (0.5, 2.5), (1.0, 5.0), (100.0, 10.0)])
def test_a_token_bucket_fills_at_its_rate_up_to_its_burst(after_s: float, left: float) -> None:
    token_bucket = TokenBucket(5.0, 10.0)
    assert token_bucket.available(NOW) == 10.0
    token_bucket.take(NOW, 10)
    assert token_bucket.available(NOW + after_s) == left
    assert token_bucket.available(NOW - 5) == 0.0  # a clock that went back gives nothing
    assert token_bucket.next_at(NOW) == NOW + 0.2


@pytest.mark.parametrize("rate", ["detail_rate", "running_rate", "unknown_rate", "missing_rate", "owner_rate"])
def test_a_rate_below_one_a_second_is_seldom_and_not_never(rate: str) -> None:
    name = {"missing_rate": "missing", "owner_rate": "owners"}.get(rate, rate.removesuffix("_rate"))
    bucket = Story(without(CONFIG, **{rate: 0.1})).world.token_buckets[name]
    assert bucket.available(NOW) == 1
    bucket.take(NOW, 1)
    assert bucket.next_at(NOW) == pytest.approx(NOW + 10)
    assert bucket.available(NOW + 100) == 1


def test_ids_whose_reads_always_fail_are_read_seldom_and_never_beyond_the_limits() -> None:
    """An answer that makes no sense: each read of these jobs fails, and none keeps other reads waiting."""
    story = Story(without(CONFIG, reads=2, unknown_rate=0.5))
    ids = (41, 42, 43, 44, 45)
    in_flight: list[ReadJob] = []
    late: list[int] = []
    for second in range(1800):
        at = NOW + second
        story.polls(dict.fromkeys(ids, "RUNNING"), at=at)
        for read in in_flight[:1]:  # each answer takes some seconds
            story.ended(read, Outcome.REFUSED, at=at, number=9001)
        in_flight = in_flight[1:] + story.acts(ReadJob, at)
        assert len(in_flight) <= 2
        late += [read.job_id for read in in_flight[-1:]] if second >= 900 else []
    assert set(late) == set(ids)
