"""What the page of a running bridge shows: its World, the latencies of its binds, and the steps of its last workloads."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.page.feed import Entry, Item, entry
from bridge.page.snapshot import detail, entries
from bridge.telemetry import Telemetry
from scheduler.state.world import World


def entries_of_bridge(world: World, telemetry: Telemetry, now: float) -> Iterator[Entry]:
    """All entries of the page, without the details of single workloads."""
    yield from entries(world, now)
    yield from latencies(telemetry, now)


def latencies(telemetry: Telemetry, now: float) -> Iterator[Entry]:
    """The entries of the latencies of binds, one for each minute of the last hour that had binds."""
    for minute, latency in telemetry.latencies.minutes(now):
        yield entry("latency", str(minute), latency)


def detail_of_bridge(world: World, telemetry: Telemetry, key: str, now: float) -> Item:
    """The details of one workload; None: the workload is not known."""
    return detail(world, key, telemetry.recent.of(key), now)


def note(text: str) -> Iterator[Entry]:
    """The entry with a sentence that is shown if there is no World: the replica is a standby, or the bridge is starting."""
    yield entry("about", "note", text)
