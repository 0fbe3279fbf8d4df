"""A share of the loop's time for requests that any client may send.

The bridge has one thread.  An answer to /explain or /metrics takes time from the decisions, and how much it takes depends on
the objects of tenants.  So answers are made one after the other, and a pause follows each: however many requests come,
answers take no more than the share of the loop's time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

MOST_WAIT = 8


class Busy(Exception):
    """Too many requests wait already; the client should try again later."""


class Share:
    """Turns of work that together take at most a share of one core's time.

    share   between 0 and 1
    """

    def __init__(
        self,
        share: float = 0.1,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._rest_per_second = 1 / share - 1
        self._clock = clock
        self._sleep = sleep
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._free_at = float("-inf")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; the work is done inside.  Raises Busy if too many wait already."""
        if self._waiting >= MOST_WAIT:
            raise Busy
        self._waiting += 1
        try:
            async with self._turn:
                if (rest_s := self._free_at - self._clock()) > 0:
                    await self._sleep(rest_s)
                began = self._clock()
                try:
                    yield
                finally:
                    ended = self._clock()
                    self._free_at = ended + (ended - began) * self._rest_per_second
        finally:
            self._waiting -= 1
