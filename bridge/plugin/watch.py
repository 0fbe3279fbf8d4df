"""`-w`: an answer that follows changes.  On a terminal the answer is redrawn; elsewhere each change adds lines.

A list of pods is watched.  One pod with its events, or the bridge's answer about nodes, is requested again and again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

from bridge.errors import BridgeError, said
from bridge.plugin.cluster import Cluster, Found, Selection
from bridge.plugin.lists import Entry, View, entry
from bridge.plugin.pods import Seen
from bridge.plugin.table import Screen

REDRAW_S = 1.0
ASK_S = 2.0  # between two requests
Print = Callable[[Sequence[str]], None]


async def follow(cluster: Cluster, chosen: Selection, view: View, form: str, screen: Screen, show: Print) -> None:
    """Print the pods and each change until the task is cancelled.

    form   "text", "wide" or "json"
    Raises RemoteError if the first list fails, and ConfigError if the user lacks the right to read pods or loses it later.
    """
    found = cluster.follow(chosen)
    if form == "json":
        await _appended(found, view, lambda pods, _first: [json.dumps(entry(seen)) for seen in pods], show)
        return

    def lines(pods: Sequence[Seen]) -> list[str]:
        return view.lines(pods, time.time(), screen, spaces=not chosen.namespace, wide=form == "wide")

    if screen.live:
        await _redrawn(found, lambda pods: screen.redrawn(lines(view.pods(pods))), show)
    else:
        await _appended(found, view, lambda pods, first: lines(pods)[not first :], show)


async def _appended(
    found: AsyncIterator[Found], view: View, lines: Callable[[Sequence[Seen], bool], list[str]], show: Print
) -> None:
    known: dict[str, dict[str, object]] = {}
    first = True
    async for pods in found:
        entries = {uid: entry(seen) for uid, seen in pods.items()}
        listed = {seen.pod.uid: seen for seen in view.pods(pods.values())}
        left = [pods[uid] for uid in known if uid in pods and uid not in listed]  # for `queue`, pods that just ended
        changed = [seen for uid, seen in listed.items() if entries[uid] != known.get(uid)] + left
        if changed or first:
            show(lines(changed, first))
        known, first = {uid: entries[uid] for uid in listed}, False


async def _redrawn(found: AsyncIterator[Found], lines: Callable[[Collection[Seen]], list[str]], show: Print) -> None:
    """Draw the list every REDRAW_S, because the ages in the list change without any event."""
    latest = dict(await anext(found))

    async def take() -> None:
        async for pods in found:
            latest.clear()
            latest.update(pods)

    taking = asyncio.create_task(take())
    try:
        while not taking.done():
            show(lines(latest.values()))
            await asyncio.wait([taking], timeout=REDRAW_S)
        taking.result()
    finally:
        taking.cancel()


class Repeated(Protocol):
    """An answer that is requested again and again.

    rows      the rows of the text by a key; rows of one key are compared to find changes
    entries   the same for programs
    """

    @property
    def rows(self) -> Mapping[str, object]: ...
    @property
    def entries(self) -> Mapping[str, Entry]: ...

    def lines(self, screen: Screen, only: Collection[str] | None = None) -> list[str]:
        """The lines of the text.  only: the keys of the rows to show, without a head; None: everything"""


async def ask_again(
    ask: Callable[[], Awaitable[Repeated]], form: str, screen: Screen, show: Print, warn: Callable[[str], None]
) -> None:
    """Print the answer and each change until the task is cancelled.

    form   as of `follow`
    warn   is called with a sentence if a later request fails; the same sentence is not repeated
    Raises BridgeError if the first request fails.
    """
    known: Mapping[str, object] | None = None
    answer, trouble = await ask(), ""
    while True:
        now = _compared(answer.entries) if form == "json" else answer.rows
        changed = [key for key, entry in now.items() if known is None or entry != known.get(key)]
        if form == "json":
            lines = [json.dumps(answer.entries[key]) for key in changed]
        elif screen.live:
            lines = screen.redrawn(answer.lines(screen))
        else:
            lines = answer.lines(screen, None if known is None else changed)
        if lines:
            show(lines)
        known = now
        await asyncio.sleep(ASK_S)
        try:
            answer, trouble = await ask(), ""
        except BridgeError as error:
            if said(error) != trouble:
                warn(trouble := said(error))


def _compared(entries: Mapping[str, Entry]) -> Mapping[str, object]:
    """The entries without `polled`: a newer time of the observation alone is no change."""
    return {
        key: {field: value for field, value in entry.items() if field != "polled"} for key, entry in entries.items()
    }
