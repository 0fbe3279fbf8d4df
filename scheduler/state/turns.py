"""The order in which a pass visits workloads: namespaces take turns, and a long visit counts as several turns.

So a namespace with ten thousand workloads, or with a few workloads whose visits take long, delays each other namespace by at
most one visit.  As long as passes are too short for all workloads, the next pass goes on with the numbers of turns.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping

TURN = 250  # in units of effort: a visit that takes more effort counts as several turns


class Turns:
    """The keys of workloads, in the order in which they are visited.

    keys    namespace and key of each workload; the workloads of one namespace are visited in this order
    taken   how many turns each namespace has had; a new namespace begins with the number of the namespace with the fewest
    """

    def __init__(self, keys: Iterable[tuple[str, str]], taken: Mapping[str, int]) -> None:
        self._queues: dict[str, deque[str]] = {}
        for namespace, key in keys:
            self._queues.setdefault(namespace, deque()).append(key)
        least = min((taken[name] for name in self._queues if name in taken), default=0)
        self.taken = {name: taken.get(name, least) for name in self._queues}
        self._next = [(turns, number, name) for number, (name, turns) in enumerate(self.taken.items())]
        heapq.heapify(self._next)

    def __bool__(self) -> bool:
        return bool(self._next)

    def peek(self) -> str:
        """The key whose turn it is."""
        return self._queues[self._next[0][2]][0]

    def charge(self, effort: int) -> None:
        """Charge the namespace of the visited key with this effort, and go on to the next key."""
        turns, number, name = self._next[0]
        self._queues[name].popleft()
        after = turns + 1 + effort // TURN
        if self._queues[name]:
            heapq.heapreplace(self._next, (after, number, name))
        else:
            heapq.heappop(self._next)
        self.taken[name] = after

    def left(self) -> list[str]:
        """The keys that were not visited."""
        return [key for queue in self._queues.values() for key in queue]
