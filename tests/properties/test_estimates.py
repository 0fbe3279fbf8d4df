"""Properties of the interval of expected starts, and of the order of waiting jobs (Q2)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.state.estimates import MOST_PARTITIONS, MOST_RATIOS, Estimate, StartEstimates
from scheduler.state.waiting_order import Place, WaitingOrder

NOW = 1_000_000.0
RATIOS = st.lists(st.floats(0.0, 10.0), max_size=MOST_RATIOS + 20)
TRIALS = 1_500
STATED = 0.8
SPREAD = 3 * (STATED * (1 - STATED) / TRIALS) ** 0.5  # three standard deviations of the share in so many trials


def seen(ratios: list[float], partition: str = "gpu") -> StartEstimates:
    estimates = StartEstimates()
    for ratio in ratios:
        estimates.note_started([Estimate(partition, NOW, NOW + 100)], NOW + 100 * ratio)
    return estimates


@given(RATIOS, st.floats(10.0, 1e6))
def test_an_interval_lies_in_the_future_within_what_was_seen(ratios: list[float], wait: float) -> None:
    found = seen(ratios).interval("gpu", NOW + wait, NOW)
    if len(ratios) < 9:
        assert found is None
        return
    assert found is not None
    kept = ratios[-MOST_RATIOS:]
    assert NOW + min(kept) * wait - 1 <= found.earliest <= found.latest <= NOW + max(kept) * wait + 1


@given(RATIOS)
def test_eight_of_ten_of_the_ratios_that_are_kept_are_inside(ratios: list[float]) -> None:
    found, kept = seen(ratios).interval("gpu", NOW + 1000, NOW), ratios[-MOST_RATIOS:]
    if found is not None:
        inside = [ratio for ratio in kept if found.earliest - 1e-3 <= NOW + 1000 * ratio <= found.latest + 1e-3]
        assert len(inside) >= STATED * len(kept)


@pytest.mark.parametrize("known", [9, 10, 25, 60, 100])
@pytest.mark.parametrize(
    "draw",
    [random.Random.random, lambda dice: dice.expovariate(1.0), lambda dice: dice.lognormvariate(0.0, 1.0)],
    ids=["earlier", "exponential", "heavy"],
)
def test_the_next_start_falls_inside_at_the_stated_rate(known: int, draw: Callable[[random.Random], float]) -> None:
    """8 of 10, whatever the ratios are like, if the next is like those before it."""
    dice = random.Random(f"{known}")
    held = 0
    for _ in range(TRIALS):
        found = seen([draw(dice) for _ in range(known)]).interval("gpu", NOW + 1000, NOW)
        assert found is not None
        held += found.earliest <= NOW + 1000 * draw(dice) <= found.latest
    assert held / TRIALS >= STATED - SPREAD


@given(st.lists(st.tuples(st.sampled_from(["gpu", "main"]), st.floats(0.0, 5.0)), max_size=80))
def test_partitions_do_not_mix(starts: list[tuple[str, float]]) -> None:
    together = StartEstimates()
    for partition, ratio in starts:
        together.note_started([Estimate(partition, NOW, NOW + 100)], NOW + 100 * ratio)
    for partition in ("gpu", "main"):
        alone = seen([ratio for where, ratio in starts if where == partition], partition)
        assert together.interval(partition, NOW + 500, NOW) == alone.interval(partition, NOW + 500, NOW)


def test_the_number_of_partitions_that_are_remembered_is_bounded() -> None:
    estimates = StartEstimates()
    for number in range(MOST_PARTITIONS + 1):
        for _ in range(9):
            estimates.note_started([Estimate(f"p{number}", NOW, NOW + 100)], NOW + 50)
    assert estimates.interval("p0", NOW + 100, NOW) is None
    assert estimates.interval("p1", NOW + 100, NOW) is not None


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from("abcdefgh"), st.sampled_from(["gpu", "main", ""]), st.none() | st.integers(0, 3), st.booleans()
    ),
    max_size=60,
)


@given(ENTRIES)
def test_places_are_by_priority_and_then_by_age(entries: list[tuple[str, str, int | None, bool]]) -> None:
    order, waiting = WaitingOrder(), dict[str, tuple[str, int | None, int]]()
    for number, (key, partition, priority, leaves) in enumerate(entries):
        if leaves:
            order.drop(key)
            waiting.pop(key, None)
        else:
            order.put(key, partition, priority, number)
            waiting[key] = (partition, priority, number)
    for key in "abcdefgh":
        if key not in waiting:
            assert order.place(key) is None
            continue
        beside = [each for each, entry in waiting.items() if entry[0] == waiting[key][0]]
        beside.sort(key=lambda each: (waiting[each][1] is None, -(waiting[each][1] or 0), waiting[each][2]))
        assert order.place(key) == Place(beside.index(key) + 1, len(beside))
