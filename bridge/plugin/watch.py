"""`-w`: a list that follows the cluster.  A terminal is drawn again; elsewhere a line is added for each pod that changed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence

from bridge.plugin.cluster import Cluster, Found, Selection
from bridge.plugin.lists import View, entry
from bridge.plugin.pods import Seen
from bridge.plugin.table import Screen

REDRAW_S = 1.0
CLEAR = "\x1b[H\x1b[2J"
Print = Callable[[Sequence[str]], None]


async def follow(
    cluster: Cluster, chosen: Selection, view: View, form: str | None, screen: Screen, show: Print
) -> None:
    """Never returns; cancel it.  form: None, "wide" or "json".  Raises for the first list, and if a right is taken away."""
    found = cluster.follow(chosen)
    if form == "json":
        await _appended(found, view, lambda pods, _first: [json.dumps(entry(seen)) for seen in pods], show)
        return

    def lines(pods: Sequence[Seen]) -> list[str]:
        return view.lines(pods, time.time(), screen, spaces=not chosen.namespace, wide=form == "wide")

    if screen.live:
        await _redrawn(found, view, lines, show)
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
        left = [pods[uid] for uid in known if uid in pods and uid not in listed]  # a pod that ended: its last line
        changed = [seen for uid, seen in listed.items() if entries[uid] != known.get(uid)] + left
        if changed or first:
            show(lines(changed, first))
        known, first = {uid: entries[uid] for uid in listed}, False


async def _redrawn(
    found: AsyncIterator[Found], view: View, lines: Callable[[Sequence[Seen]], list[str]], show: Print
) -> None:
    """Drawn once a second, because the times move on without any change."""
    latest = dict(await anext(found))

    async def take() -> None:
        async for pods in found:
            latest.clear()
            latest.update(pods)

    taking = asyncio.create_task(take())
    try:
        while not taking.done():
            head, *rows = lines(view.pods(latest.values()))
            show([CLEAR + head, *rows])
            await asyncio.wait([taking], timeout=REDRAW_S)
        taking.result()
    finally:
        taking.cancel()
