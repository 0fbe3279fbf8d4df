"""The simulated Kubernetes behind a Transport, in this process: no socket between the bridge and it.

A request takes effect at the moment it is awaited.  Watches wake when the cluster changes.  `live` lets the cluster's
kubelets and controllers act when they are due; on a virtual loop that is what moves the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate

from bridge.errors import Unanswered
from bridge.kube.transport import NO_PARAMS, SIDE, Call, Reply, StreamRefused
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.store import Selection

BOOKMARK_EVERY_S = 60.0
LAST_BOOKMARK_S = 2.0  # before the end of a watch


class InProcessKube:
    """A Transport over one KubeCluster; `clock` gives epoch seconds."""

    def __init__(self, cluster: KubeCluster, clock: Callable[[], float]) -> None:
        self.cluster = cluster
        self.clock = clock
        self._changed = asyncio.Event()

    async def exchange(self, call: Call) -> Reply:
        """See bridge.kube.transport.Transport.  No deadline is reached: the cluster answers at once."""
        await asyncio.sleep(0)
        return self.answer(call)

    def answer(self, call: Call) -> Reply:
        """The immediate answer of the cluster."""
        before = self.cluster.store.version
        now = self.clock()
        status, headers, body = self.cluster.handle(
            now, call.method, call.path, call.params, call.body, call.content_type
        )
        reply = Reply(status, {**headers, "date": formatdate(now, usegmt=True)}, body)
        if self.cluster.store.version != before:
            self.wake()
        return reply

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] = NO_PARAMS, stall_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See bridge.kube.transport.Transport."""
        await asyncio.sleep(0)
        opened = self.cluster.open_watch(path, params)
        if len(opened) == 3:
            raise StreamRefused(Reply(*opened))
        chosen, version = opened
        ends = self.clock() + float(params.get("timeoutSeconds") or 1800)
        yield self._lines(chosen, version, ends, stall_s, bookmarks=params.get("allowWatchBookmarks") == "true")

    async def close(self) -> None:
        """Nothing is held."""

    def wake(self) -> None:
        """The cluster changed by another way than this transport: let watches and `live` look."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def live(self) -> None:
        """Let kubelets and controllers act whenever they are due.  Never returns; cancel it."""
        while True:
            changed = self._changed
            before = self.cluster.store.version
            self.cluster.tick(self.clock())
            if self.cluster.store.version != before:
                self.wake()
                continue
            due = self.cluster.next_due()
            await self._wait(changed, None if due is None else due - self.clock())

    async def _lines(
        self, chosen: Selection, version: int, ends: float, stall_s: float, *, bookmarks: bool
    ) -> AsyncIterator[bytes]:
        marks, stalls = self._next_bookmark(ends), self.clock() + stall_s
        while True:
            changed = self._changed
            changes, version, ended = self.cluster.changes_after(version, chosen)
            for line in changes:
                stalls = self.clock() + stall_s
                yield line
            now = self.clock()
            if ended or now >= ends:
                return
            if bookmarks and now >= marks:
                marks, stalls = self._next_bookmark(ends), now + stall_s
                yield self.cluster.bookmark(chosen, version)
            if now >= stalls:
                raise Unanswered("watch", SIDE, f"no line for {stall_s:.0f} s")
            if self._changed is changed:
                await self._wait(changed, min(ends, stalls, marks if bookmarks else ends) - now)

    def _next_bookmark(self, ends: float) -> float:
        """Every minute, and once more shortly before the end."""
        now, last = self.clock(), ends - LAST_BOOKMARK_S
        return min(now + BOOKMARK_EVERY_S, last) if last > now else now + BOOKMARK_EVERY_S

    async def _wait(self, changed: asyncio.Event, seconds: float | None) -> None:
        """Until the cluster changes, or so many seconds have passed."""
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return
