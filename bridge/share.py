"""A share of the loop's time for work that anybody may ask for.

The bridge has one thread.  An answer to /explain or /metrics takes time from the decisions, and how much it takes depends on
what tenants made.  So answers come one after the other, and each is followed by a rest, which is the longer the smaller the
share is: together they take no more of the loop than that, however many ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

MOST_WAIT = 8


class Busy(Exception):
    """So many wait already that one more is better told to come again."""


class Share:
    """share: of one core, at most, between 0 and 1."""

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
        """Wait until it is this one's turn, then do the work inside.  Raises Busy where too many wait already."""
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
