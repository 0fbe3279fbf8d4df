"""A limit on the requests that are under way at once; the others wait for a free connection.

The deadline of a request counts from when it has a connection.  If the wait counted, too, many requests at once to a slow
server would run out of time unsent, and be repeated.  The wait has a limit of its own, so that a decision is not carried out
long after it was made: an action is in flight for at most WAIT_S and the deadline of each of its requests.

A request that waits has not left the process.  So the quiet period after a crash does not depend on WAIT_S, and neither does
the settle time, which begins when an outcome is unknown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType

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

    def connection(self, operation: str) -> _Turn:
        """An `async with` that waits until fewer than `connections` requests are under way; the request is sent inside.

        It gives the seconds that it waited.  Raises Unreachable after WAIT_S.
        """
        return _Turn(self, operation)

    async def take(self, operation: str) -> float:
        """See `connection`, which gives the connection back."""
        if self._free.locked():
            return await self._wait(operation)
        await self._free.acquire()  # at once, and without a timer
        return 0.0

    def give_back(self) -> None:
        """The request is over."""
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


@dataclass(slots=True)
class _Turn:
    """What `ConnectionLimit.connection` returns: each request has one, and a generator would take five times as long."""

    limit: ConnectionLimit
    operation: str

    async def __aenter__(self) -> float:
        return await self.limit.take(self.operation)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.limit.give_back()
