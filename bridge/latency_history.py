"""Latencies over time: a histogram for each of the last minutes, in memory, for the page.

A histogram has buckets that are a tenth wide, so a quantile is at most a tenth too high.  A minute takes a few hundred
numbers, however many pods are bound in it.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping

MINUTES = 60
WIDTH = 1.1
SHORTEST_S = 0.0005
_LOG_WIDTH = math.log(WIDTH)


class LatencyHistory:
    """Latencies by the name of what they measure, and by minute."""

    def __init__(self) -> None:
        self._minutes: OrderedDict[int, dict[str, Counter[int]]] = OrderedDict()

    def record(self, name: str, seconds: float, at: float) -> None:
        """Add one latency that was measured at that time, epoch seconds."""
        minute = int(at // 60)
        if minute not in self._minutes:
            self._minutes[minute] = {}
            while len(self._minutes) > MINUTES:
                self._minutes.popitem(last=False)
        self._minutes[minute].setdefault(name, Counter())[_bucket(seconds)] += 1

    def minutes(self, now: float) -> Iterator[tuple[int, Mapping[str, Mapping[str, float]]]]:
        """For each of the last MINUTES in which something was measured its begin, epoch seconds, and the latencies by name:
        {"n": count, "p50": seconds, "p90": …, "max": …}.
        """
        for minute, names in tuple(self._minutes.items()):
            if minute > now // 60 - MINUTES:
                yield minute * 60, {name: _summary(buckets) for name, buckets in names.items()}


def _bucket(seconds: float) -> int:
    return math.ceil(math.log(max(seconds, SHORTEST_S) / SHORTEST_S) / _LOG_WIDTH)


def _summary(buckets: Mapping[int, int]) -> Mapping[str, float]:
    ordered, total = sorted(buckets), sum(buckets.values())

    def quantile(share: float) -> float:
        wanted, below = share * total, 0
        for bucket in ordered:
            below += buckets[bucket]
            if below >= wanted:
                break
        return SHORTEST_S * WIDTH**bucket

    return {"n": total, "p50": quantile(0.5), "p90": quantile(0.9), "max": quantile(1)}
