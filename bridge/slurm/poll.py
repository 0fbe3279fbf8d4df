"""The one poller: what runs and waits in Slurm, and on which nodes (ARCHITECTURE 5, BEHAVIOUR Q1).

`jobs/state` serves every workload with 80 bytes a job; `GET /jobs` is never asked (20 kB a job, and slurmrestd keeps the
memory).  slurmctld starts jobs on a one-second tick, so while jobs of ours wait there are two polls a second, and one of
them is moved to just behind that tick: a grant is then seen some 30 ms after it happened, at no more calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from bridge.errors import BridgeError, FarSideError, said
from bridge.slurm.client import SlurmClient
from scheduler.events import Event, JobsPolled, Side, SideBack, SideLost, SlurmNodesPolled
from scheduler.model import States, holds_nodes

TICK_S = 1.0
BEHIND_TICK_S = 0.03  # what slurmctld needs to work a tick off before the answer shows it
BUSY = 2  # in a burst polls take so many times as long: seen ends come within 2.5 s all the same
NARROW_S = 0.05  # a window this narrow is good enough to aim at
FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 3.0  # what ends or is created after an outage is handled within 5 s (X1)


class Tick:
    """Where within the second slurmctld's tick falls, learned from when jobs were seen to start.

    A start seen by a poll fell between the one before and it; each one narrows the window by half.
    """

    def __init__(self) -> None:
        self._low: float | None = None
        self._width = TICK_S

    def started_between(self, low: float, high: float) -> None:
        """A job started after `low` and before `high` (epoch seconds)."""
        width = high - low
        if width >= TICK_S:
            return
        if self._low is None:
            self._low, self._width = low % TICK_S, width
            return
        offset = (low - self._low + TICK_S / 2) % TICK_S - TICK_S / 2  # of the new window's start in the old window
        begin, end = max(0.0, offset), min(self._width, offset + width)
        if end <= begin:  # they do not meet: slurmctld was restarted
            self._low, self._width = low % TICK_S, width
        else:
            self._low, self._width = (self._low + begin) % TICK_S, end - begin

    @property
    def aim(self) -> float:
        """Where in the second to poll: behind the tick once that is known, else the middle of where it may be."""
        if self._low is None:
            return 0.0
        share = 1.0 if self._width <= NARROW_S else 0.5
        return (self._low + self._width * share + (BEHIND_TICK_S if share == 1.0 else 0.0)) % TICK_S

    def next_poll(self, now: float, *, every_s: float) -> float:
        """About `every_s` from now, at the moment of a second that is aimed at (of half a second, where it is shorter)."""
        step = min(every_s, TICK_S)
        after = now + every_s - step
        ahead = (self.aim - after) % step
        return after + (ahead if ahead > step / 4 else ahead + step)


class Poller:
    """Asks, and tells the loop; never decides.

    waiting      whether jobs of ours wait in Slurm's queue: then two polls a second
    allocating   whether nodes are being asked for: then half as many as usual
    interval_s, nodes_interval_s   between two polls of jobs, and of nodes
    """

    def __init__(
        self,
        client: SlurmClient,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        waiting: Callable[[], bool],
        allocating: Callable[[], bool] = lambda: False,
        *,
        interval_s: float = 1.0,
        nodes_interval_s: float = 30.0,
    ) -> None:
        self._client = client
        self._emit = emit
        self._clock = clock
        self._waiting = waiting
        self._allocating = allocating
        self._interval_s = interval_s
        self._nodes_interval_s = nodes_interval_s
        self._tick = Tick()
        self._before: tuple[float, Mapping[int, States]] | None = None
        self._lost = False
        self._nodes_due = float("-inf")

    async def run(self) -> None:
        """Poll for ever; a failure is told once and tried again with backoff."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                await self.poll()
                if self._clock() >= self._nodes_due:
                    await self.poll_nodes()
                self._answered()
                backoff_s = FIRST_BACKOFF_S
                next_at = self._next_poll()
            except FarSideError as error:
                self._trouble(error)
                next_at = self._clock() + backoff_s
                backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)
            await asyncio.sleep(max(0.0, next_at - self._clock()))

    def _next_poll(self) -> float:
        """Starts come with slurmctld's tick, ends at any time; and a poll of thousands of jobs holds up allocations."""
        now = self._clock()
        if self._waiting():
            return self._tick.next_poll(now, every_s=TICK_S / 2)
        return now + self._interval_s * (BUSY if self._allocating() else 1)

    async def poll(self) -> None:
        """One look at all jobs.  Raises FarSideError."""
        began = self._clock()
        states = await self._client.states()
        ended = self._clock()
        if self._before is not None:
            low, before = self._before
            if states is not before and any(
                holds_nodes(now) and not holds_nodes(before.get(job, now)) for job, now in states.items()
            ):
                self._tick.started_between(low, ended)
        self._before = (began, states)
        self._emit(JobsPolled(began, ended, states))

    async def poll_nodes(self) -> None:
        """Nodes and partitions, for feasibility.  Raises FarSideError."""
        began = self._clock()
        nodes = await self._client.nodes()
        partitions = await self._client.partitions()
        self._nodes_due = self._clock() + self._nodes_interval_s
        self._emit(SlurmNodesPolled(nodes, partitions, self._clock(), began))

    def _answered(self) -> None:
        """Everything that was asked: a side that tells half of what is needed is not back."""
        if self._lost:
            self._lost = False
            self._emit(SideBack(Side.SLURM, self._clock()))

    def _trouble(self, error: BridgeError) -> None:
        if not self._lost:
            self._lost = True
            self._emit(SideLost(Side.SLURM, self._clock(), said(error)))
