"""How exact Slurm's expected starts were, by partition, and the interval in which the next start is expected (Q2).

Slurm computes an expected start from the time limits of the jobs ahead.  Most jobs end before their limit, so most jobs start
sooner.  Others start later, because jobs of a higher priority come.  For each estimate the ratio of the actual wait to the
estimated wait is kept.  The interval leaves out a share of these ratios at each end, at first a tenth.  If future waits are
like the past waits, at least 8 of 10 starts fall into the interval.  (The next ratio is between the k-th smallest and the
k-th largest of n ratios with a probability of (n + 1 - 2k) / (n + 1).  So there is no interval before 9 jobs started.)

Queues change, and the estimates of one queue err together.  So each interval is judged, too.  If a start was outside its
interval, the share that is left out becomes smaller; if it was inside, the share grows again, to at most a tenth.  The two
amounts are in balance if 8 of 10 starts are inside.

Estimates of jobs that end in the queue are not judged.  The ratios are in memory only: a new process begins without them.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

LEAST_S = 10.0  # an estimated wait that is shorter is not judged, and has no interval: a tick of slurmctld decides
MOST_RATIOS = 200  # of one partition; the oldest are dropped
MOST_JUDGED = 50
MOST_PARTITIONS = 256
LEAST_JOBS = 9
HOLDS = 0.8  # the share of the starts that is to be inside the interval
LEFT_OUT = (1 - HOLDS) / 2  # the share of the ratios that is left out at each end at first, and the largest such share
STEP = 0.025  # the share grows by STEP * (1 - HOLDS), or shrinks by STEP * HOLDS
LEAST_JUDGED = 10  # with fewer judged intervals no rate is shown
SLACK_S = 60.0  # an expected start that moves by less is not another estimate …
SLACK_SHARE = 0.1  # … nor by less than this share of the wait that is left


class Interval(NamedTuple):
    """The interval in which a job is expected to start, epoch seconds.

    judged   how many of the last intervals in this partition were judged; 0: too few for a rate
    held     in how many of these the start was inside the interval
    """

    earliest: float
    latest: float
    held: int = 0
    judged: int = 0


class Estimate(NamedTuple):
    """An expected start that Slurm gave at a time; epoch seconds by the bridge's clock.

    interval   the interval that followed from the estimate at that time; None: there was none
    """

    partition: str
    at: float
    starts: float
    interval: Interval | None = None


def moved(before: float, starts: float, now: float) -> bool:
    """True if an expected start differs from the one before by more than 60 s and a tenth of the wait (Q2)."""
    return abs(starts - before) > max(SLACK_S, SLACK_SHARE * (before - now))


@dataclass(slots=True)
class _Seen:
    """The ratios of one partition.

    ratios, ordered   the ratios in the order of time, and sorted by size
    held              for each of the last judged intervals, True if the start was inside
    jobs              how many jobs these ratios are of: the estimates of one job err together
    left_out          the share of the ratios that the next interval leaves out at each end
    """

    ratios: deque[float] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)
    held: deque[bool] = field(default_factory=lambda: deque(maxlen=MOST_JUDGED))
    jobs: int = 0
    left_out: float = LEFT_OUT

    def add(self, ratio: float) -> None:
        if len(self.ratios) == MOST_RATIOS:
            self.ordered.remove(self.ratios.popleft())
        self.ratios.append(ratio)
        insort(self.ordered, ratio)

    def judge(self, *, held: bool) -> None:
        """Note if a start was inside its interval.  Then the next intervals are a little narrower, otherwise wider."""
        self.held.append(held)
        step = STEP * ((1 - HOLDS) if held else -HOLDS)
        self.left_out = min(LEFT_OUT, max(0.0, self.left_out + step))


class StartEstimates:
    """See the module."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def interval(self, partition: str, starts: float, now: float) -> Interval | None:
        """The interval for an expected start; None: too few estimates were judged, or the start is near or past."""
        seen = self._seen.get(partition)
        if seen is None or seen.jobs < LEAST_JOBS or starts - now < LEAST_S:
            return None
        left_out = max(1, int(seen.left_out * (len(seen.ordered) + 1)))
        low, high = seen.ordered[left_out - 1], seen.ordered[-left_out]
        judged = len(seen.held) if len(seen.held) >= LEAST_JUDGED else 0
        wait = starts - now
        return Interval(now + low * wait, now + high * wait, sum(seen.held) if judged else 0, judged)

    def estimate(self, partition: str, starts: float, now: float, before: Estimate | None) -> Estimate | None:
        """The estimate to judge when the job starts; None: the start is near or past, or *before* is about the same."""
        if starts - now < LEAST_S:
            return None
        if before is not None and before.partition == partition and not moved(before.starts, starts, now):
            return None
        return Estimate(partition, now, starts, self.interval(partition, starts, now))

    def note_started(self, estimates: Iterable[Estimate], at: float) -> None:
        """Judge these estimates of a job: it started at *at*."""
        partitions = set()
        for estimate in estimates:
            seen = self._seen.pop(estimate.partition, None) or _Seen()
            self._seen[estimate.partition] = seen  # the partition that was used last is the last one
            seen.jobs += estimate.partition not in partitions
            partitions.add(estimate.partition)
            seen.add((at - estimate.at) / (estimate.starts - estimate.at))
            if estimate.interval is not None:
                seen.judge(held=estimate.interval.earliest <= at <= estimate.interval.latest)
        while len(self._seen) > MOST_PARTITIONS:
            del self._seen[next(iter(self._seen))]
