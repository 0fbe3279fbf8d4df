"""Which job a pod names: times in whole seconds decide, and equal times are usual (named_job.py)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from scheduler import names
from scheduler.events import ClockObserved, Side
from scheduler.model.clocks import EXACT_S, NEAR_S
from scheduler.state.named_job import TIME_FORMAT, is_bound_for, may_be_its_job, names_job, shown_id
from scheduler.state.placeholder import Placeholder
from tests.builders import OF_A_BIND, START, Story, job_of, pod

SINCE = START + 20
TRAIN = pod("train")


def placeholder(submitted: float) -> Placeholder:
    return Placeholder(17, None, "alice", frozenset({"RUNNING"}), START, job=job_of(TRAIN, 17, submitted=submitted))


@pytest.mark.parametrize("before_s", range(-2, int(NEAR_S) + 3))
def test_a_pod_names_a_job_that_was_submitted_at_its_job_since_or_up_to_a_minute_before(before_s: int) -> None:
    story = Story()
    since = datetime.fromtimestamp(SINCE, UTC).strftime(TIME_FORMAT)
    shown = story.bound(pod("train", annotations={names.JOB_SINCE: since}), 17)
    assert names_job(shown, placeholder(SINCE - before_s), story.world) is (0 <= before_s <= NEAR_S)
    assert may_be_its_job(story.world, shown, SINCE - before_s) is (before_s >= 0)


@pytest.mark.parametrize("ahead_s", [0, 100])
@pytest.mark.parametrize("before_s", range(-5, 6))
def test_a_pod_may_have_started_in_the_second_in_which_its_job_was_submitted(before_s: int, ahead_s: int) -> None:
    """If the clocks differ, their difference is known only to some seconds."""
    story = Story()
    if ahead_s:
        story.sees(ClockObserved(Side.SLURM, START + ahead_s, START, START))
    story.polls(at=SINCE)
    story.sees(shown := story.bound(TRAIN, 17, started=SINCE))
    assert story.world.started_at(shown) == SINCE
    is_its = names_job(shown, placeholder(SINCE + ahead_s - before_s), story.world)
    assert is_its is (before_s >= (-EXACT_S if ahead_s else 0))


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("late_s", [-44, -43, -4, -3, 0, 3, 4])
def test_kubelets_time_of_the_start_counts_if_it_is_between_the_bind_and_the_observation(
    late_s: int, is_known: bool
) -> None:
    """The time of the bind is by the clock of the API server, which may not be known."""
    story = Story()
    if is_known:
        story.sees(ClockObserved(Side.KUBERNETES, START, START, START))
    story.sees(TRAIN)
    story.polls(at=SINCE)
    shown = story.bound(TRAIN, 17, bound_at=SINCE - 40, started=SINCE + late_s)
    story.sees(shown)
    least = -40 if is_known else 0
    counts = least - EXACT_S <= late_s <= EXACT_S
    assert story.world.started_at(shown) == (shown.started if counts else SINCE)


@pytest.mark.parametrize("late_s", [-1000, 3, 4])
@pytest.mark.parametrize("is_seen", [True, False])
def test_when_a_pod_started_that_ran_already_is_not_known_if_its_time_is_in_the_future(
    late_s: int, is_seen: bool
) -> None:
    story = Story()
    story.polls(at=SINCE)
    shown = story.bound(TRAIN, 17, started=SINCE + late_s)
    if is_seen:
        story.sees(shown)
    assert story.world.started_at(shown) == (shown.started if late_s <= EXACT_S else None)


def test_an_id_has_up_to_ten_digits() -> None:
    shown = ("4294967295", "42949672950", "", "-1", "x", "٣")
    assert [shown_id(pod(annotations={names.JOB_ID: each})) for each in shown] == [4294967295, *[None] * 5]


def test_a_pod_without_a_node_is_bound_for_no_job_although_it_shows_all_that_a_bind_writes() -> None:
    shown = replace(TRAIN, annotations={**OF_A_BIND, names.JOB_ID: "17"})
    assert is_bound_for(replace(shown, node="x1"), 17)
    assert not is_bound_for(replace(shown, node="x1"), 18)
    assert not is_bound_for(shown, 17)


def test_a_pod_from_which_a_client_removed_the_id_names_each_job_that_is_as_old_as_it() -> None:
    story = Story()
    story.polls(at=SINCE)
    story.sees(shown := story.bound(TRAIN, 17, started=SINCE))
    assert names_job(replace(shown, annotations={}), placeholder(SINCE - 5), story.world)
    assert not names_job(replace(shown, annotations={names.JOB_ID: "18"}), placeholder(SINCE - 5), story.world)
