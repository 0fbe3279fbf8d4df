"""Long work in short slices, with rests between them: the bridge has one thread, and no decision may wait for a reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SLICE_S = 0.002


class Pace:
    """Slices of work, and a rest after each.

    rest       the length of a rest, as a multiple of the slice before it
    worked_s   seconds of work in the slices that have ended
    """

    def __init__(self, rest: float, timer: Callable[[], float]) -> None:
        self._rest = rest
        self._timer = timer
        self._began = timer()
        self.worked_s = 0.0

    def over(self) -> bool:
        """True if the slice has taken its time."""
        return self._timer() - self._began >= SLICE_S

    async def rest(self) -> None:
        """Rest, and begin the next slice."""
        worked = self._end()
        await asyncio.sleep(worked * self._rest)
        self._began = self._timer()

    def stop(self) -> None:
        """End the last slice."""
        self._end()

    def _end(self) -> float:
        worked = self._timer() - self._began
        self.worked_s += worked
        return worked
