"""Latencies by minute: quantiles within a tenth, and no more than the last hour."""

from __future__ import annotations

from bridge.latency_history import MINUTES, LatencyHistory


def test_a_minute_has_its_count_and_its_quantiles() -> None:
    history = LatencyHistory()
    for number in range(1, 101):
        history.record("created", number / 100, at=120.0 + number / 10)
    [(begin, names)] = history.minutes(now=180.0)
    told = names["created"]
    assert (begin, told["n"]) == (120, 100)
    for name, exact in (("p50", 0.5), ("p90", 0.9), ("max", 1.0)):
        assert exact <= told[name] * 1.0001 <= 1.11 * exact


def test_only_the_last_minutes_are_kept() -> None:
    history = LatencyHistory()
    for minute in range(MINUTES + 5):
        history.record("created", 0.0, at=60.0 * minute)
    begins = [begin for begin, _ in history.minutes(now=60.0 * (MINUTES + 4))]
    assert begins == [60 * minute for minute in range(5, MINUTES + 5)]


def test_a_minute_of_hours_ago_is_not_shown_though_nothing_was_bound_since() -> None:
    """The page showed the binds of last week as "last minute"."""
    history = LatencyHistory()
    for hours in (0, 9, 10):
        history.record("created", 0.0, at=3600.0 * hours)
    assert [begin for begin, _ in history.minutes(now=3600.0 * 10 + 59)] == [36_000]
    assert [begin for begin, _ in history.minutes(now=3600.0 * 11 + 60)] == []
