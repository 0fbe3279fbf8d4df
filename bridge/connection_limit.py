"""A limit on the requests that are under way at once; the others wait for a free connection.

The deadline of a request counts from when it has a connection.  If the wait counted, too, many requests at once to a slow
server would run out of time unsent, and be repeated.  The wait has a limit of its own, so that a decision is not carried out
long after it was made: an action is in flight for at most WAIT_S and the deadline of each of its requests.

A request that waits has not left the process.  So the quiet period after a crash does not depend on WAIT_S, and neither does
the settle time, which begins when an outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bridge.errors import Unreachable
from scheduler.model.text import span

WAIT_S = 30.0  # a gang may take as long to be bound (gang_bind_deadline_s)


class ConnectionLimit:
    """At most `connections` requests at once to one server, in the order in which they came.

    side, server   "Slurm" or "Kubernetes", and the address, for errors
    """

    def __init__(self, connections: int, side: str, server: str) -> None:
        self._connections = connections
        self._side = side
        self._server = server
        self._free = asyncio.Semaphore(connections)

    @asynccontextmanager
    async def connection(self, operation: str) -> AsyncIterator[float]:
        """Wait until fewer than `connections` requests are under way; the request is sent inside.

        Gives the seconds that it waited.  Raises Unreachable after WAIT_S.
        """
        waited_s = 0.0
        if self._free.locked():
            waited_s = await self._wait(operation)
        else:
            await self._free.acquire()  # at once, and without a timer
        try:
            yield waited_s
        finally:
            self._free.release()

    async def _wait(self, operation: str) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(WAIT_S):
                await self._free.acquire()
        except TimeoutError:
            busy = f"the {self._connections} connections" if self._connections > 1 else "the connection"
            why = f"{busy} to {self._server} had other requests for {span(WAIT_S)}"
            raise Unreachable(operation, self._side, why) from None
        return loop.time() - began
