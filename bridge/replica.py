"""One of several replicas for one pair of clusters: it is a standby, leads, and is a standby again.

    standing by   the watches fill a Mirror; Slurm is not polled; nothing is decided
    leading       a Bridge with a World of its own, which receives from the Mirror what the Mirror knows
    lost          the Bridge is dropped with its World, its calls in flight are abandoned; a new Mirror begins

A replica that lost the lease does not end its process.  The container would be started again with a delay that grows to five
minutes, for what may have been two seconds without an API server.  Dropping the Bridge has the effect of a restart: no fact
and no plan outlives the lease under which it was made.  The replica that leads next finds out what the abandoned calls did,
as after a crash, and its quiet period covers them.

When the process receives a signal, it finishes its calls in flight, then releases the lease.  If all calls were answered, and
the last unknown outcome is long past, the release records that nothing is left behind (bridge/kube/lease.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from bridge.kube.lease import Lease
from bridge.kube.mirror import Mirror
from bridge.loop import Loop
from bridge.preflight.waiting import unless
from bridge.stopping import CALLS_S, log_stopped
from scheduler.state.world import World

log = logging.getLogger("slurm-bridge")


class Bridge(Protocol):
    """The interface of the bridge that leads, for a replica (bridge/app.py)."""

    loop: Loop
    world: World

    def take_over(self, now: float, *, drained: bool) -> None: ...

    async def run(self) -> None: ...


class Replica:
    """A bridge that acts only while it holds the lease.

    mirror   makes the mirror of a standby; `watching` fills it
    bridge   makes the bridge that leads, with what the mirror knows
    clock    the clock of the bridge
    now      the bridge that leads; None: this replica stands by
    standby  the mirror while this replica stands by; None: it leads, or has not begun
    """

    def __init__(
        self,
        lease: Lease,
        mirror: Callable[[], Mirror],
        watching: Callable[[Mirror], asyncio.Task[None]],
        bridge: Callable[[Mirror], Bridge],
        clock: Callable[[], float],
    ) -> None:
        self.lease = lease
        self.now: Bridge | None = None
        self.standby: Mirror | None = None
        self._mirror = mirror
        self._watching = watching
        self._bridge = bridge
        self._clock = clock

    async def run(self, stopped: asyncio.Event) -> None:
        """Stand by and lead in turn, until `stopped`.  Raises the bridge's own errors that are not contained."""
        while not stopped.is_set():
            self.standby = mirror = self._mirror()
            watching = self._watching(mirror)
            try:
                drained = await unless(stopped, self.lease.lead())
                if drained is None:
                    await self.lease.release(drained=False)
                    log.info("stopped; this replica stood by")
                    return
                await self._lead(mirror, drained, stopped)
            finally:
                self.now = self.standby = None
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _lead(self, mirror: Mirror, drained: bool, stopped: asyncio.Event) -> None:
        bridge = self._bridge(mirror)
        bridge.take_over(self._clock(), drained=drained)
        self.now, self.standby = bridge, None
        before = "left nothing behind" if drained else "may have left requests that still take effect"
        log.info("leads, by the lease %s; the process that led before %s", self.lease.terms.readable, before)
        keeping = asyncio.create_task(self.lease.keep(), name="lease")
        running = asyncio.create_task(bridge.run(), name="bridge")
        stopping = asyncio.create_task(stopped.wait())
        try:
            await asyncio.wait((running, keeping, stopping), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            if stopping.done() and not keeping.done():
                await self._stop(bridge, keeping)
            elif keeping.done():
                log.warning("leads no more, and stands by: %s", keeping.result())
        finally:
            for task in (running, keeping, stopping):
                task.cancel()
            await asyncio.gather(running, keeping, stopping, return_exceptions=True)

    async def _stop(self, bridge: Bridge, keeping: asyncio.Task[str]) -> None:
        """Finish the calls in flight while the lease is renewed, then release the lease."""
        left = await bridge.loop.finish(CALLS_S)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        drained = bridge.loop.is_drained()
        await self.lease.release(drained=drained)
        log_stopped(left, leaving=bool(bridge.world.config.leaving))
