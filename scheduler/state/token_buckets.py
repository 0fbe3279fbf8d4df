"""Limits on attempts: the breaker of immediate allocations, and token buckets of calls (ARCHITECTURE 5, Q2).

Workloads that wait for their turn in a limit are in queues that are fair to namespaces (I7).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice


class Breaker:
    """The circuit breaker of immediate allocations in one partition (ARCHITECTURE 5)."""

    __slots__ = ("open_until", "refusals", "trusted")

    def __init__(self) -> None:
        self.refusals = 0
        self.open_until = float("-inf")
        self.trusted = False

    def note_granted(self) -> None:
        """Note a granted allocation: there was room."""
        self.refusals = 0
        self.trusted = True

    def note_refused(self, now: float, open_s: float) -> None:
        """Note a refusal for lack of room; the second one in a row opens the breaker for open_s seconds."""
        self.refusals += 1
        self.trusted = False
        if self.refusals >= 2:
            self.refusals = 0
            self.open_until = now + open_s


class TokenBucket:
    """A token bucket: it gets `rate` tokens a second, and holds at most `burst` tokens, at least one."""

    __slots__ = ("at", "burst", "left", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, max(1.0, burst)
        self.left, self.at = self.burst, float("-inf")

    def available(self, now: float) -> float:
        """The number of tokens that may be taken now."""
        return min(self.burst, self.left + max(0.0, now - self.at) * self.rate)

    def take(self, now: float, count: int) -> None:
        """Take *count* tokens, even if fewer are available."""
        self.left, self.at = self.available(now) - count, now

    def next_at(self, now: float, taken: int = 0) -> float:
        """When a token is available, if *taken* tokens are taken before.  Epoch seconds."""
        return now + max(0.0, 1.0 + taken - self.available(now)) / self.rate


class FairQueue:
    """Keys of workloads that wait for the same limit.  Namespaces take turns; each namespace has a first-in, first-out queue.

    So the first key of a namespace waits for at most one key of each other namespace, however many workloads wait there.
    """

    __slots__ = ("_namespaces", "_queues")

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, None]] = {}  # the namespace whose turn is next comes first
        self._namespaces: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def __iter__(self) -> Iterator[str]:
        return iter(self._namespaces)

    def put(self, key: str, namespace: str) -> None:
        """Add the key at the end of its namespace's queue.  A key that is in the queue already keeps its place."""
        if key not in self._namespaces:
            self._namespaces[key] = namespace
            self._queues.setdefault(namespace, {})[key] = None

    def pop(self, key: str) -> None:
        """Take the key out of its queue.  Its namespace goes behind the other namespaces."""
        namespace = self._namespaces.pop(key, None)
        if namespace is None:
            return
        queue = self._queues.pop(namespace)
        del queue[key]
        if queue:
            self._queues[namespace] = queue

    def first(self, count: int) -> list[str]:
        """The next keys, at most *count*.  The cost does not depend on the number of keys behind them."""
        found: list[str] = []
        queues = [iter(queue) for queue in islice(self._queues.values(), max(0, count))]
        while queues:
            again = []
            for queue in queues:
                if len(found) < count and (key := next(queue, None)) is not None:
                    found.append(key)
                    again.append(queue)
            queues = again
        return found
