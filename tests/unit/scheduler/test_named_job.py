"""Which job a pod names: times in whole seconds decide, and equal times are usual (named_job.py)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scheduler import names
from scheduler.events import ClockObserved, Side
from scheduler.model.clocks import EXACT_S, NEAR_S
from scheduler.state.named_job import TIME_FORMAT, may_be_its_job, names_job, shown_id
from scheduler.state.placeholder import Placeholder
from tests.builders import START, Story, job_of, pod

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


def test_an_id_has_up_to_ten_digits() -> None:
    shown = ("4294967295", "42949672950", "", "-1", "x", "٣")
    assert [shown_id(pod(annotations={names.JOB_ID: each})) for each in shown] == [4294967295, *[None] * 5]
