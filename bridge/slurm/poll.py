"""The one poller: it reads the states of all jobs, and the nodes of Slurm (ARCHITECTURE 5, Q1).

One `jobs/state` covers all workloads, with 80 bytes a job.  The bridge never sends `GET /jobs`, whose answer has 20 kB a job
and stays in slurmrestd's memory.  slurmctld starts jobs on a one-second tick.  So while placeholders wait, there are two
polls a second, one of them just after the tick: the bridge sees a grant some 30 ms after it happened, without more calls.
After each poll the poller pauses for at least twice the duration of the poll, up to 3 s.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bridge.errors import BridgeError, Exhausted, RemoteError, said
from bridge.slurm.client import SlurmClient
from bridge.slurm.codec import job_number
from bridge.slurm.lists import UndecodedItem
from bridge.slurm.partition_reads import PartitionReads
from scheduler.events import (
    ALL_DECODED,
    Event,
    JobsPolled,
    OutageBegan,
    OutageEnded,
    Side,
    SlurmNodesPolled,
    UndecodedItems,
)
from scheduler.model.slurm import States, holds_nodes

TICK_S = 1.0
BEHIND_TICK_S = 0.03  # after the tick, slurmctld's answers show the started jobs after this time
BUSY = 2  # factor of the interval during a burst of immediate allocations; ends of jobs are still seen within 2.5 s
NARROW_S = 0.05  # if the window is this narrow, its end counts as the tick
REST = 2  # the pause after a poll is at least this many times the duration of the poll
MOST_REST_S = 3.0  # the longest such pause, so that the end of a job is handled within 5 s
FIRST_BACKOFF_S = 0.5
MAX_RETRY_AFTER_S = 30.0  # even if a proxy asks for a longer pause: ends of pods wait for the polls
MAX_BACKOFF_S = 3.0  # so that ends and new pods are handled within 5 s after an outage (X1)


class Tick:
    """The offset of slurmctld's tick within the second, estimated from the observed starts of jobs.

    If a poll shows that a job has started, the tick was in the window between the previous poll and this one.  Each start
    narrows the window of possible offsets.  A window of a second or more contains every offset, so no start
    narrows it while polls take about half a second or more.  Such polls are so far apart that the tick would hardly help.
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
        if end <= begin:  # the windows do not overlap: slurmctld was restarted
            self._low, self._width = low % TICK_S, width
        else:
            self._low, self._width = (self._low + begin) % TICK_S, end - begin

    @property
    def aim(self) -> float:
        """The offset within a second at which to poll: just after a known tick, otherwise the middle of the window."""
        if self._low is None:
            return 0.0
        share = 1.0 if self._width <= NARROW_S else 0.5
        return (self._low + self._width * share + (BEHIND_TICK_S if share == 1.0 else 0.0)) % TICK_S

    def next_poll(self, now: float, *, every_s: float) -> float:
        """The time of the next poll (epoch seconds): about `every_s` from now, and a whole number of steps from `aim`.

        A step is the largest equal part of a second that is not longer than `every_s`.  Steps that do not divide the second,
        such as 0.6 s, would drift against slurmctld's tick, and show a start up to 0.6 s late.
        """
        step = TICK_S / math.ceil(TICK_S / every_s)
        after = now + every_s - step
        ahead = (self.aim - after) % step
        return after + (ahead if ahead > step / 4 else ahead + step)


class Poller:
    """Polls Slurm and emits events; decides nothing.

    waiting      returns True if jobs of the bridge wait in Slurm's queue: then there are two polls a second
    allocating   returns True while immediate allocations are in flight: then, if no job waits, there are half as many polls
    accounting_outage  returns True during an outage of slurmdbd: then slurmdbd is tried again every few seconds
    interval_s, nodes_interval_s   seconds between two polls of jobs, and of nodes
    """

    def __init__(
        self,
        client: SlurmClient,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        waiting: Callable[[], bool],
        allocating: Callable[[], bool] = lambda: False,
        accounting_outage: Callable[[], bool] = lambda: False,
        *,
        interval_s: float = 1.0,
        nodes_interval_s: float = 30.0,
    ) -> None:
        self._client = client
        self._emit = emit
        self._clock = clock
        self._waiting = waiting
        self._allocating = allocating
        self._accounting_outage = accounting_outage
        self._partitions = PartitionReads(client, emit, clock, accounting_outage)
        self._interval_s = interval_s
        self._nodes_interval_s = nodes_interval_s
        self._tick = Tick()
        self._last_poll: tuple[float, Mapping[int, States]] | None = None
        self._took_s = 0.0  # how long the last poll took
        self._in_outage = False
        self._nodes_due = float("-inf")

    async def run(self) -> None:
        """Poll for ever.  A failure is reported once, and the poll is repeated with backoff."""
        try:
            await self._poll_for_ever()
        finally:
            self._partitions.close()

    async def _poll_for_ever(self) -> None:
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                await self.poll()
                if self._accounting_outage() and self._partitions.is_due():
                    await self._try_accounting()
                if self._clock() >= self._nodes_due:
                    await self.poll_nodes()
                self._note_outage_end()
                backoff_s = FIRST_BACKOFF_S
                next_at = self._next_poll()
            except RemoteError as error:
                self._note_outage(error)
                retry_after_s = error.retry_after_s or 0.0 if isinstance(error, Exhausted) else 0.0
                next_at = self._clock() + max(backoff_s, min(retry_after_s, MAX_RETRY_AFTER_S))
                backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)
            await asyncio.sleep(max(0.0, next_at - self._clock()))

    def _next_poll(self) -> float:
        """The time of the next poll.

        While jobs wait, the poll is just after slurmctld's tick, which starts jobs.  Otherwise, during a burst of immediate
        allocations, the interval is longer, because a poll of thousands of jobs delays allocations.
        """
        now, rest_s = self._clock(), min(REST * self._took_s, MOST_REST_S)
        if self._waiting():
            return self._tick.next_poll(now, every_s=max(TICK_S / 2, rest_s))
        return now + max(self._interval_s * (BUSY if self._allocating() else 1), rest_s)

    async def poll(self) -> None:
        """Read the states of all jobs.  Raises RemoteError."""
        began = self._clock()
        listed = await self._client.listed_states()
        states = listed.found
        ended = self._clock()
        if self._last_poll is not None:
            low, before = self._last_poll
            if states is not before and any(
                holds_nodes(now) and not holds_nodes(before.get(job, now)) for job, now in states.items()
            ):
                self._tick.started_between(low, ended)
        self._took_s = ended - began
        self._last_poll = (began, states)
        self._emit(JobsPolled(began, ended, states, undecoded_jobs(listed.undecoded)))

    async def poll_nodes(self) -> None:
        """Read the nodes and partitions.  Raises RemoteError."""
        began = self._clock()
        nodes = await self._client.listed_nodes()
        polled = SlurmNodesPolled(nodes.found, None, began, began, undecoded_names(nodes.undecoded))
        if self._partitions.is_due() and (partitions := await self._partitions.read(self._took_s)) is not None:
            undecoded = undecoded_names(partitions.undecoded)
            polled = replace(polled, partitions=partitions.found, undecoded_partitions=undecoded)
        self._nodes_due = self._clock() + self._nodes_interval_s
        self._emit(replace(polled, at=self._clock()))

    async def _try_accounting(self) -> None:
        """Request the partitions.  If slurmdbd answers again, the nodes are polled at once."""
        if await self._partitions.read(self._took_s) is not None:
            self._nodes_due = float("-inf")

    def _note_outage_end(self) -> None:
        """Report the end of an outage.  Called only after Slurm answered all requests of a round."""
        if self._in_outage:
            self._in_outage = False
            self._emit(OutageEnded(Side.SLURM, self._clock()))

    def _note_outage(self, error: BridgeError) -> None:
        if not self._in_outage:
            self._in_outage = True
            self._emit(OutageBegan(Side.SLURM, self._clock(), said(error)))


def undecoded_jobs(items: Sequence[UndecodedItem]) -> UndecodedItems:
    """The jobs that could not be read."""
    return _undecoded(items, job_number)


def undecoded_names(items: Sequence[UndecodedItem]) -> UndecodedItems:
    """The nodes or partitions that could not be read."""
    return _undecoded(items, str)


def _undecoded(items: Sequence[UndecodedItem], key: Callable[[str | int], str | int]) -> UndecodedItems:
    if not items:
        return ALL_DECODED
    keys: set[int | str] = set()
    nameless = False
    for item in items:
        if item.key is None:
            nameless = True
            continue
        try:
            keys.add(key(item.key))
        except ValueError:
            nameless = True
    return UndecodedItems(frozenset(keys), nameless)
