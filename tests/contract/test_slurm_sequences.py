"""Random calls get the same answers from the real and the simulated Slurm, and leave the same."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import product

import pytest

from bridge.errors import Conflict
from bridge.simulation.slurm import writes
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.requests import Asked
from bridge.slurm.client import SlurmClient
from bridge.slurm.pool import HttpPool
from bridge.slurm.token import FileToken
from tests.contract import slurm_sequences
from tests.contract.sequences import Calls, Difference, Transcript, assert_shown, differences, findings, numbers
from tests.contract.slurm_sequences import LANES, NODES, Player, RealLane, SimulatedLane, node_of

CONNECTIONS = 16


class Lanes:
    """The lanes of a real Slurm.  A lane is used by one sequence at a time."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._tokens = FileToken(os.environ["SLURM_TOKEN_FILE"])
        self._free: asyncio.Queue[str] = asyncio.Queue()

    async def open(self) -> None:
        """Make the nodes of the lanes one by one, since a new node takes the first free place in Slurm's order of nodes."""
        client = SlurmClient(self._pool, self._tokens)
        await client.discover()
        for lane, number in product(range(1, LANES + 1), range(1, NODES + 1)):
            with suppress(Conflict):  # of an earlier run
                await client.register_node(node_of(f"lane{lane}", number))
        for lane in range(1, LANES + 1):
            self._free.put_nowait(f"lane{lane}")

    async def play(self, calls: Calls) -> tuple[str, Transcript]:
        """Play the calls in a free lane.  Returns the lane, and what was answered and shown there."""
        lane = await self._free.get()
        try:
            player = Player(RealLane(self._pool, self._tokens), lane, secrets.token_hex(4))
            return lane, await player.play(calls)
        finally:
            self._free.put_nowait(lane)


@asynccontextmanager
async def opened() -> AsyncIterator[Lanes]:
    """The lanes of the real Slurm."""
    pool = HttpPool(os.environ["SLURM_REST"], connections=CONNECTIONS)
    lanes = Lanes(pool)
    try:
        await lanes.open()
        yield lanes
    finally:
        pool.close()


async def simulated(calls: Calls, lane: str, sabotage: Callable[[SlurmCluster], None] | None = None) -> Transcript:
    """What the simulated Slurm answers and shows.  sabotage: makes the simulation wrong"""
    here = SimulatedLane(lane)
    if sabotage:
        sabotage(here.cluster)
    return await Player(here, lane, "sim").play(calls)


async def differ(lanes: Lanes, sequences: Mapping[int, Calls]) -> dict[int, list[Difference]]:
    """The differences by the number of the sequence."""
    played = await asyncio.gather(*map(lanes.play, sequences.values()))
    found: dict[int, list[Difference]] = {}
    for (number, calls), (lane, theirs) in zip(sequences.items(), played, strict=True):
        found[number] = differences(calls, theirs, await simulated(calls, lane))
    return found


@pytest.mark.lanes
async def test_generated_calls_are_answered_alike_by_the_real_one() -> None:
    sequences = {number: slurm_sequences.sequence(number) for number in numbers()}
    async with opened() as lanes:
        report = await findings(sequences, lambda some: differ(lanes, some))
    assert not report, report


# --- a wrong simulation is found --------------------------------------------------------------------------------------


def gives_a_wrong_reason(cluster: SlurmCluster, patch: pytest.MonkeyPatch) -> None:
    """What does not fit waits for its priority."""
    schedule = cluster._schedule

    def wrongly(now: float) -> None:
        schedule(now)
        for job in cluster.jobs.values():
            job.reason = "Priority" if job.reason == "Resources" else job.reason

    patch.setattr(cluster, "_schedule", wrongly)


def forgets_twins(cluster: SlurmCluster, patch: pytest.MonkeyPatch) -> None:
    """Two jobs of one name run at once."""
    patch.setattr(cluster, "twin", lambda _job: None)


def ends_no_job_of_a_node_that_is_down(cluster: SlurmCluster, patch: pytest.MonkeyPatch) -> None:
    """DOWN is DRAIN."""
    patch.setattr(cluster, "down", lambda node, _now, reason="": cluster.drain(node, reason))


def lets_anybody_end_a_job(_cluster: SlurmCluster, patch: pytest.MonkeyPatch) -> None:
    """A cancel does not look at the user."""
    one = writes._cancel_one

    def as_admin(asked: Asked, job_id: int, name: str) -> list[int]:
        asked.operator = True
        return one(asked, job_id, name)

    patch.setattr(writes, "_cancel_one", as_admin)


def lets_components_share_a_node(cluster: SlurmCluster, patch: pytest.MonkeyPatch) -> None:
    """A heterogeneous job starts on fewer nodes than it has components."""
    together = cluster._start_together

    def one_by_one(jobs: list[object], now: float, planned: dict[str, float]) -> None:
        for job in jobs:
            together([job], now, planned)

    patch.setattr(cluster, "_start_together", one_by_one)


SABOTAGES = (
    gives_a_wrong_reason,
    forgets_twins,
    ends_no_job_of_a_node_that_is_down,
    lets_anybody_end_a_job,
    lets_components_share_a_node,
)


@pytest.mark.parametrize("sabotage", SABOTAGES)
async def test_a_simulation_that_is_wrong_is_found(
    sabotage: Callable[[SlurmCluster, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong(sequences: Mapping[int, Calls]) -> dict[int, list[Difference]]:
        found = {}
        for number, calls in sequences.items():
            right = await simulated(calls, "lane1")
            with monkeypatch.context() as patch:
                sabotaged = await simulated(calls, "lane1", lambda cluster: sabotage(cluster, patch))
            found[number] = differences(calls, right, sabotaged)
        return found

    await assert_shown(slurm_sequences.sequence, wrong)
