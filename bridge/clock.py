"""The bridge's clock: epoch seconds that follow the machine's clock and never jump.

Deadlines of decisions (settle time, quiet period, backoff) are differences of this clock.  The machine's clock may be set by
hours: by NTP after boot, by an administrator, by a virtual machine that was suspended.  The monotonic clock is never set, but
drifts away from the time of both clusters.  So this clock runs with the monotonic one, and at most SLEW faster or slower
until it shows the machine's time.

SLEW is small enough for deadlines: a settle time of 12 s, which begins when a call has had its 12 s, is 11.4 s at worst.  A
clock that is wrong by a minute is right again after twenty minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SLEW = 0.05


def monotonic() -> float:
    """Seconds that are never set and go on while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SlewedClock:
    """Epoch seconds; never less than before.  The time in which the machine sleeps passes, so that the loop notices it."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._now = wall()
        self._read = monotonic()

    def __call__(self) -> float:
        read = self._monotonic()
        passed, self._read = read - self._read, read
        most = SLEW * passed
        self._now += passed + min(max(self._wall() - self._now - passed, -most), most)
        return self._now

    def behind(self) -> float:
        """Seconds by which the machine's clock is ahead of this clock, still to be corrected."""
        return self._wall() - self()
