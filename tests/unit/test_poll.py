"""The one poller: it asks at the right moment, tells what it heard, and says once when nobody answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from bridge.dev.virtual_time import START, run
from bridge.errors import ContractError, FarSideError, Unreachable
from bridge.slurm.poll import BEHIND_TICK_S, MAX_BACKOFF_S, Poller, Tick
from scheduler.events import Event, JobsPolled, Side, SideBack, SideLost, SlurmNodesPolled
from scheduler.model import Partition, SlurmNode, States

RUNS, WAITS = frozenset({"RUNNING"}), frozenset({"PENDING"})
NODES = (SlurmNode("x1"),)
PARTITIONS = (Partition("main", default=True),)
NO = Unreachable("states", "Slurm", "connection refused")


class Slurm:
    """A far end that answers from a list, the last of it for ever."""

    def __init__(self, *answers: dict[int, States] | FarSideError) -> None:
        self.answers: Iterator[dict[int, States] | FarSideError] = iter(answers)
        self.last: dict[int, States] | FarSideError = {}
        self.asked: list[float] = []
        self.asked_nodes: list[float] = []
        self.nodes_fail: FarSideError | None = None

    async def states(self) -> dict[int, States]:
        self.asked.append(asyncio.get_running_loop().time())
        self.last = next(self.answers, self.last)
        await asyncio.sleep(0.002)
        if isinstance(self.last, FarSideError):
            raise self.last
        return self.last

    async def nodes(self) -> tuple[SlurmNode, ...]:
        self.asked_nodes.append(asyncio.get_running_loop().time())
        if self.nodes_fail is not None:
            raise self.nodes_fail
        return NODES

    async def partitions(self) -> tuple[Partition, ...]:
        return PARTITIONS


def polled(
    slurm: Slurm, seconds: float, *, waiting: bool = False, allocating: bool = False, interval_s: float = 1.0
) -> list[Event]:
    """What a poller told in so many seconds."""
    told: list[Event] = []

    async def live() -> None:
        clock = asyncio.get_running_loop().time
        facts = (lambda: waiting, lambda: allocating)
        poller = Poller(slurm, told.append, clock, *facts, interval_s=interval_s)  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await poller.run()

    run(live())
    return told


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_it_tells_jobs_and_nodes_at_once() -> None:
    jobs, nodes = polled(Slurm({17: RUNS}), 0.5)
    assert isinstance(jobs, JobsPolled)
    assert jobs.states == {17: RUNS}
    assert jobs.began == START
    assert jobs.ended == pytest.approx(START + 0.002)
    assert nodes == SlurmNodesPolled(NODES, PARTITIONS, jobs.ended, jobs.ended)


def test_one_poll_a_second_serves_all_and_two_while_jobs_wait() -> None:
    quiet, busy = Slurm(), Slurm()
    polled(quiet, 20)
    polled(busy, 20, waiting=True)
    assert 19 <= len(quiet.asked) <= 22
    assert 38 <= len(busy.asked) <= 42


def test_in_a_burst_polls_make_room_for_allocations_unless_a_job_waits() -> None:
    burst, mixed = Slurm(), Slurm()
    polled(burst, 20, allocating=True)
    polled(mixed, 20, allocating=True, waiting=True)
    assert 9 <= len(burst.asked) <= 11
    assert 38 <= len(mixed.asked) <= 42


def test_a_longer_interval_is_kept() -> None:
    slurm = Slurm()
    polled(slurm, 61, interval_s=10.0)
    assert len(slurm.asked) == 7
    assert all(9 <= gap <= 11 for gap in gaps(slurm.asked)[1:])


def test_nodes_are_asked_for_every_half_minute() -> None:
    slurm = Slurm()
    polled(slurm, 100)
    assert len(slurm.asked_nodes) == 4
    assert all(30 <= gap <= 32 for gap in gaps(slurm.asked_nodes))


def test_an_outage_is_told_once_and_its_end_too() -> None:
    events = polled(Slurm({}, NO, NO, NO, {}), 10)
    sides = [each for each in events if isinstance(each, SideLost | SideBack)]
    assert [type(each) for each in sides] == [SideLost, SideBack]
    lost = sides[0]
    assert isinstance(lost, SideLost)
    assert (lost.side, lost.why) == (Side.SLURM, "Slurm: states: connection refused.")


def test_in_an_outage_the_pauses_grow_to_a_few_seconds() -> None:
    """X1: what is created or ends after its return is handled within 5 s."""
    slurm = Slurm(NO)
    events = polled(slurm, 60)
    assert [type(each) for each in events] == [SideLost]
    pauses = gaps(slurm.asked)
    assert pauses[0] == pytest.approx(0.5, abs=0.01)
    assert max(pauses) == pytest.approx(MAX_BACKOFF_S, abs=0.01)
    assert pauses == sorted(pauses)


def test_jobs_are_told_though_the_nodes_cannot_be_had_and_that_is_said_once() -> None:
    slurm = Slurm({17: RUNS})
    slurm.nodes_fail = ContractError("nodes", "Slurm", "the answer has no nodes")
    events = polled(slurm, 30)
    assert len([each for each in events if isinstance(each, JobsPolled)]) > 5
    assert [type(each) for each in events if isinstance(each, SideLost | SideBack)] == [SideLost]


# --- the tick -----------------------------------------------------------------------------------------------------


def test_a_tick_that_is_not_known_is_aimed_at_nowhere() -> None:
    assert Tick().aim == 0.0


def test_each_start_that_was_seen_narrows_the_window() -> None:
    tick = Tick()
    tick.started_between(100.0, 100.5)
    assert tick.aim == pytest.approx(0.25)
    tick.started_between(105.25, 105.75)  # so it is between .25 and .5
    assert tick.aim == pytest.approx(0.375)
    tick.started_between(107.0, 107.3)  # … and .3
    assert tick.aim == pytest.approx(0.3 + BEHIND_TICK_S, abs=1e-6)


def test_a_window_may_lie_across_the_second() -> None:
    tick = Tick()
    tick.started_between(100.9, 101.2)
    tick.started_between(105.0, 105.04)
    assert tick.aim == pytest.approx(0.04 + BEHIND_TICK_S, abs=1e-6)


def test_a_restarted_slurmctld_has_another_tick() -> None:
    tick = Tick()
    tick.started_between(100.0, 100.04)
    tick.started_between(105.5, 105.54)
    assert tick.aim == pytest.approx(0.54 + BEHIND_TICK_S, abs=1e-6)


def test_two_polls_a_second_apart_teach_nothing() -> None:
    tick = Tick()
    tick.started_between(100.0, 101.0)
    assert tick.aim == 0.0


@pytest.mark.parametrize("every_s", [0.1, 0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("now", [100.0, 100.04, 100.33, 100.5, 100.98])
def test_the_next_poll_is_about_an_interval_away_and_on_the_aim(now: float, every_s: float) -> None:
    tick = Tick()
    tick.started_between(100.0, 100.04)
    step = min(every_s, 1.0)
    at = tick.next_poll(now, every_s=every_s)
    assert every_s - 0.75 * step - 1e-6 <= at - now <= every_s + 0.25 * step + 1e-6
    off = (at - tick.aim) % step
    assert min(off, step - off) == pytest.approx(0.0, abs=1e-6)


def test_grants_are_seen_right_behind_slurms_tick_once_it_is_known() -> None:
    """ARCHITECTURE 5: some 30 ms after they happened, at no more calls."""
    tick_at = 0.40

    class Ticking(Slurm):
        started = 0

        async def states(self) -> dict[int, States]:
            now = asyncio.get_running_loop().time()
            self.asked.append(now)
            await asyncio.sleep(0.002)
            ran = int(now - tick_at - START + 1)  # one job starts at each tick
            return {job: RUNS if job < ran else WAITS for job in range(200)}

    slurm = Ticking()
    polled(slurm, 100, waiting=True)
    late = [asked for asked in slurm.asked if asked > START + 60]
    behind = [min((asked - tick_at) % 1.0 for asked in late if int(asked) == second) for second in map(int, late)]
    assert max(behind) <= 0.10
    assert len(slurm.asked) <= 205
