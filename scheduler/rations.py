"""How much may be tried: the breaker of immediate allocations, and rations of calls (ARCHITECTURE 5, BEHAVIOUR Q2)."""

from __future__ import annotations


class Breaker:
    """Whether immediate allocations are worth trying in one partition (ARCHITECTURE 5)."""

    __slots__ = ("open_until", "refusals", "trusted")

    def __init__(self) -> None:
        self.refusals = 0
        self.open_until = float("-inf")
        self.trusted = False

    def granted(self) -> None:
        """There was room."""
        self.refusals = 0
        self.trusted = True

    def refused(self, now: float, open_s: float) -> None:
        """No room; the second time in a row it opens."""
        self.refusals += 1
        self.trusted = False
        if self.refusals >= 2:
            self.refusals = 0
            self.open_until = now + open_s


class Ration:
    """A token bucket: so many a second, at most `burst` at once."""

    __slots__ = ("at", "burst", "left", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self.left, self.at = burst, float("-inf")

    def available(self, now: float) -> float:
        """How many may be taken now."""
        if self.at == float("-inf"):
            return self.burst
        return min(self.burst, self.left + max(0.0, now - self.at) * self.rate)

    def take(self, now: float, count: int) -> None:
        """Take them."""
        self.left, self.at = self.available(now) - count, now

    def next_at(self, now: float, taken: int = 0) -> float:
        """When one is available, after so many that are about to be taken."""
        return now + max(0.0, 1.0 + taken - self.available(now)) / self.rate
