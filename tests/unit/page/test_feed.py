"""The feed of the page: numbered changes, items that are gone, and looks that leave the time to the bridge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from bridge.pace import SLICE_S
from bridge.page.feed import Entry, Feed, Sections, entries_of
from bridge.page.server import raised


def told(feed: Feed, since: int = 0) -> dict[str, Any]:
    return {f"{section}/{key}": text.decode() for _, section, key, text in feed.since(since)}


async def test_what_changed_is_reported_and_what_is_gone_is_null() -> None:
    state: Sections = {"pods": {"a": 1, "b": 2, "c": 3}, "nodes": {"x": 1}}
    feed = Feed(lambda: entries_of(state), raised)
    await feed.refresh()
    assert told(feed) == {"pods/a": "1", "pods/b": "2", "pods/c": "3", "nodes/x": "1"}
    number = feed.number
    await feed.refresh()
    assert told(feed, number) == {}
    state = {"pods": {"a": 1, "b": 5, "d": 4}, "nodes": {"x": 1}, "sides": {"Slurm": {}}}
    await feed.refresh()
    assert told(feed, number) == {"pods/b": "5", "pods/c": "null", "pods/d": "4", "sides/Slurm": "{}"}
    assert told(feed) == {"pods/a": "1", "pods/b": "5", "pods/d": "4", "nodes/x": "1", "sides/Slurm": "{}"}


async def test_what_is_gone_is_kept_until_every_reader_knows() -> None:
    state: Sections = {"pods": {"a": 1, "b": 2}}
    feed = Feed(lambda: entries_of(state), raised)
    await feed.refresh()
    slow, state = feed.number, {"pods": {"b": 2}}
    await feed.refresh()
    feed.forget(slow)
    assert told(feed, slow) == {"pods/a": "null"}
    feed.forget(feed.number)
    assert told(feed, slow) == {}


async def test_an_item_that_comes_back_is_reported() -> None:
    state: Sections = {"pods": {"a": 1}}
    feed = Feed(lambda: entries_of(state), raised)
    await feed.refresh()
    known, state = state, {}
    await feed.refresh()
    number, state = feed.number, known
    await feed.refresh()
    assert told(feed, number) == {"pods/a": "1"}


async def test_an_item_that_cannot_be_made_spoils_no_other() -> None:
    failed: list[str] = []

    def broken() -> Any:
        raise KeyError("a defect")

    def look() -> Iterator[Entry]:
        yield "pods", "a", broken
        yield "pods", "b", lambda: 2

    feed = Feed(look, lambda what, _error: failed.append(what))
    await feed.refresh()
    assert told(feed) == {"pods/b": "2"}
    assert failed == ["pods a"]


async def test_a_long_look_leaves_the_time_to_others() -> None:
    """Each item takes a slice: between two items the other tasks run, and for a longer time than the item took."""
    turns = 0

    def slow() -> int:
        until = time.perf_counter() + SLICE_S
        while time.perf_counter() < until:
            pass
        return turns

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    feed = Feed(lambda: iter([("pods", str(number), slow) for number in range(10)]), raised)
    await feed.refresh()
    seen = [int(text) for text in told(feed).values()]
    assert seen == sorted(set(seen)), "others had a turn between any two items"
    task.cancel()
