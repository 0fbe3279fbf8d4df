"""The simulated Kubernetes behind a Transport, in this process: no socket between the bridge and it.

A request takes effect when it is awaited.  Watches wake when the cluster changes.  `live` lets the cluster's kubelets and
controllers act when they are due; on a virtual loop its timers advance the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import lru_cache

from bridge.errors import Unanswered
from bridge.kube.transport import NO_PARAMS, SIDE, Call, Reply, StreamRefused
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.store import Selection

BOOKMARK_EVERY_S = 60.0
LAST_BOOKMARK_S = 2.0  # before the end of a watch


class _Sleeper:
    """A watch, or the cluster's own actors, that waits for a change.

    resource   of which a change wakes it; "": it is woken by each call of `wake`
    version    the version of the cluster up to which it has seen everything
    """

    __slots__ = ("resource", "version", "woken")

    def __init__(self, resource: str = "", version: int = 0) -> None:
        self.resource = resource
        self.version = version
        self.woken = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        """Let it go on."""
        if not self.woken.done():
            self.woken.set_result(None)


class InProcessKube:
    """A Transport over one KubeCluster; `clock` gives epoch seconds."""

    def __init__(self, cluster: KubeCluster, clock: Callable[[], float]) -> None:
        self.cluster = cluster
        self.clock = clock
        self._sleepers: dict[_Sleeper, None] = {}
        self._wakes = 0
        self._shown = cluster.store.version  # at the last call of `wake`

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
        reply = Reply(status, {**headers, "date": _http_date(int(now))}, body)
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
        store = self.cluster.store
        is_known = store.is_remembered(self._shown)
        changed = {change.resource for change in store.changed_since(self._shown)} if is_known else set()
        self._shown = store.version
        self._wakes += 1
        for sleeper in list(self._sleepers):
            if is_known and sleeper.resource and sleeper.resource not in changed:
                sleeper.version = self._shown
            else:
                del self._sleepers[sleeper]
                sleeper.wake()

    async def live(self) -> None:
        """Let kubelets and controllers act whenever they are due.  Never returns; cancel it."""
        while True:
            before = self.cluster.store.version
            self.cluster.tick(self.clock())
            if self.cluster.store.version != before:
                self.wake()
                continue
            due = self.cluster.next_due()
            await self._sleep(_Sleeper(), None if due is None else due - self.clock())

    async def _lines(
        self, chosen: Selection, version: int, ends: float, stall_s: float, *, bookmarks: bool
    ) -> AsyncIterator[bytes]:
        marks, stalls = self._next_bookmark(ends), self.clock() + stall_s
        while True:
            wakes = self._wakes
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
            if self._wakes == wakes:
                sleeper = _Sleeper(chosen.resource, version)
                await self._sleep(sleeper, min(ends, stalls, marks if bookmarks else ends) - now)
                version = sleeper.version

    def _next_bookmark(self, ends: float) -> float:
        """Every minute, and once more shortly before the end."""
        now, last = self.clock(), ends - LAST_BOOKMARK_S
        return min(now + BOOKMARK_EVERY_S, last) if last > now else now + BOOKMARK_EVERY_S

    async def _sleep(self, sleeper: _Sleeper, seconds: float | None) -> None:
        """Wait until the cluster changes, or that many seconds have passed."""
        self._sleepers[sleeper] = None
        timer = asyncio.get_running_loop().call_later(seconds, sleeper.wake) if seconds is not None else None
        try:
            await sleeper.woken
        finally:
            self._sleepers.pop(sleeper, None)
            if timer is not None:
                timer.cancel()


@lru_cache(maxsize=16)
def _http_date(second: int) -> str:
    return formatdate(second, usegmt=True)
