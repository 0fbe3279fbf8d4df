"""The one poller: it polls at the right moment, emits the answers as events, and reports an outage once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from bridge.errors import AccountingUnavailable, ContractError, Exhausted, RemoteError, Unreachable
from bridge.simulation.virtual_time import START, run
from bridge.slurm.codec import Listed
from bridge.slurm.lists import UndecodedItem
from bridge.slurm.partition_reads import FROZEN_RETRY_S, PATIENCE_S, RETRY_S
from bridge.slurm.poll import BEHIND_TICK_S, MAX_BACKOFF_S, MAX_RETRY_AFTER_S, Poller, Tick
from bridge.slurm.transport import DEFAULT_DEADLINE_S
from scheduler.events import (
    AccountingOutageBegan,
    AccountingOutageEnded,
    Event,
    JobsPolled,
    OutageBegan,
    OutageEnded,
    Side,
    SlurmNodesPolled,
    UndecodedItems,
)
from scheduler.model.slurm import Partition, SlurmNode, States

RUNS, WAITS = frozenset({"RUNNING"}), frozenset({"PENDING"})
NODES = (SlurmNode("x1"),)
PARTITIONS = (Partition("main", default=True),)
NO = Unreachable("states", "Slurm", "connection refused")


class Slurm:
    """A far end that answers from a list, the last of it for ever."""

    def __init__(self, *answers: dict[int, States] | RemoteError) -> None:
        self.answers: Iterator[dict[int, States] | RemoteError] = iter(answers)
        self.last: dict[int, States] | RemoteError = {}
        self.asked: list[float] = []
        self.asked_nodes: list[float] = []
        self.nodes_fail: RemoteError | None = None
        self.accounting_away_until = float("-inf")
        self.frozen_until = float("-inf")
        self.asked_partitions: list[float] = []
        self.undecoded: tuple[UndecodedItem, ...] = ()
        self.nodes_undecoded: tuple[UndecodedItem, ...] = ()
        self.takes_s = 0.002
        self.partitions_take_s = 0.0

    async def listed_states(self) -> Listed[dict[int, States]]:
        self.asked.append(asyncio.get_running_loop().time())
        self.last = next(self.answers, self.last)
        await asyncio.sleep(self.takes_s)
        if isinstance(self.last, RemoteError):
            raise self.last
        return Listed(self.last, self.undecoded)

    async def listed_nodes(self) -> Listed[tuple[SlurmNode, ...]]:
        self.asked_nodes.append(asyncio.get_running_loop().time())
        if self.nodes_fail is not None:
            raise self.nodes_fail
        return Listed(NODES, self.nodes_undecoded)

    async def listed_partitions(self) -> Listed[tuple[Partition, ...]]:
        now = asyncio.get_running_loop().time()
        self.asked_partitions.append(now)
        await asyncio.sleep(self.partitions_take_s)
        if now < self.frozen_until:
            await asyncio.sleep(min(DEFAULT_DEADLINE_S, self.frozen_until - now))
        if now + DEFAULT_DEADLINE_S <= self.frozen_until:
            raise AccountingUnavailable("partitions", "Slurm", "slurmdbd does not answer (no answer)", 7000)
        if asyncio.get_running_loop().time() < self.accounting_away_until:
            raise AccountingUnavailable("partitions", "Slurm", "slurmdbd does not answer", 7000)
        return Listed(PARTITIONS)


def polled(
    slurm: Slurm, seconds: float, *, waiting: bool = False, allocating: bool = False, interval_s: float = 1.0
) -> list[Event]:
    """The events of a poller in so many seconds."""
    told: list[Event] = []

    async def live() -> None:
        clock = asyncio.get_running_loop().time
        facts = (lambda: waiting, lambda: allocating, lambda: accounting_outage(told))
        poller = Poller(slurm, told.append, clock, *facts, interval_s=interval_s)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await poller.run()

    run(live())
    return told


def accounting_outage(told: list[Event]) -> bool:
    """As the world takes it."""
    said = [event for event in told if isinstance(event, AccountingOutageBegan | AccountingOutageEnded)]
    return bool(said) and isinstance(said[-1], AccountingOutageBegan)


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_it_reports_jobs_and_nodes_at_once() -> None:
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


@pytest.mark.parametrize(("takes_s", "every_s"), [(0.1, 0.5), (0.8, 2.4), (1.2, 3.6), (4.0, 7.0)])
def test_slurmrestd_rests_twice_as_long_as_a_poll_of_very_many_jobs_took(takes_s: float, every_s: float) -> None:
    """Two polls a second of 100,000 jobs, of which each takes more than a second, were one poll after the other."""
    slurm = Slurm()
    slurm.takes_s = takes_s
    polled(slurm, 60, waiting=True)
    assert 60 / len(slurm.asked) == pytest.approx(every_s, rel=0.25)


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


def test_an_outage_is_reported_once_and_its_end_too() -> None:
    events = polled(Slurm({}, NO, NO, NO, {}), 10)
    sides = [each for each in events if isinstance(each, OutageBegan | OutageEnded)]
    assert [type(each) for each in sides] == [OutageBegan, OutageEnded]
    lost = sides[0]
    assert isinstance(lost, OutageBegan)
    assert (lost.side, lost.why) == (Side.SLURM, "Slurm: states: connection refused.")


def test_in_an_outage_the_pauses_grow_to_a_few_seconds() -> None:
    """X1: what is created or ends after its return is handled within 5 s."""
    slurm = Slurm(NO)
    events = polled(slurm, 60)
    assert [type(each) for each in events] == [OutageBegan]
    pauses = gaps(slurm.asked)
    assert pauses[0] == pytest.approx(0.5, abs=0.01)
    assert max(pauses) == pytest.approx(MAX_BACKOFF_S, abs=0.01)
    assert pauses == sorted(pauses)


def test_jobs_are_reported_though_the_nodes_cannot_be_read_and_that_is_logged_once() -> None:
    slurm = Slurm({17: RUNS})
    slurm.nodes_fail = ContractError("nodes", "Slurm", "the answer has no nodes")
    events = polled(slurm, 30)
    assert len([each for each in events if isinstance(each, JobsPolled)]) > 5
    assert [type(each) for each in events if isinstance(each, OutageBegan | OutageEnded)] == [OutageBegan]


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


@pytest.mark.parametrize(("every_s", "step"), [(0.1, 0.1), (0.5, 0.5), (0.6, 0.5), (0.9, 0.5), (1.0, 1.0), (10.0, 1.0)])
@pytest.mark.parametrize("now", [100.0, 100.04, 100.33, 100.5, 100.98])
def test_the_next_poll_is_about_an_interval_away_and_on_the_aim(now: float, every_s: float, step: float) -> None:
    tick = Tick()
    tick.started_between(100.0, 100.04)
    at = tick.next_poll(now, every_s=every_s)
    assert every_s - 0.75 * step - 1e-6 <= at - now <= every_s + 0.25 * step + 1e-6
    off = (at - tick.aim) % step
    assert min(off, step - off) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("takes_s", [0.002, 0.3])  # at last, when very many jobs are there
def test_grants_are_seen_right_behind_slurms_tick_once_it_is_known(takes_s: float) -> None:
    """ARCHITECTURE 5: some 30 ms after they happened, at no more calls.  Polls that rest longer do not drift."""
    tick_at = 0.20

    class Ticking(Slurm):
        async def listed_states(self) -> Listed[dict[int, States]]:
            now = asyncio.get_running_loop().time()
            self.asked.append(now)
            await asyncio.sleep(takes_s if now > START + 40 else 0.002)
            ran = int(now - tick_at - START + 1)  # one job starts at each tick
            return Listed({job: RUNS if job < ran else WAITS for job in range(200)}, ())

    slurm = Ticking()
    polled(slurm, 100, waiting=True)
    late = [asked for asked in slurm.asked if asked > START + 60]
    behind = [min((asked - tick_at) % 1.0 for asked in late if int(asked) == second) for second in map(int, late)]
    assert max(behind) <= 0.10
    assert len(slurm.asked) <= 205


def test_what_could_not_be_read_of_a_list_is_reported_with_the_poll() -> None:
    slurm = Slurm({17: RUNS})
    slurm.undecoded = (UndecodedItem("18", "no states"), UndecodedItem("53+0", "no states"))
    slurm.nodes_undecoded = (UndecodedItem("x2", "no name"), UndecodedItem(None, "nothing at all"))
    jobs, nodes = polled(slurm, 0.5)
    assert isinstance(jobs, JobsPolled)
    assert jobs.undecoded == UndecodedItems(frozenset({18, 53}))
    assert isinstance(nodes, SlurmNodesPolled)
    assert nodes.undecoded_nodes == UndecodedItems(frozenset({"x2"}), nameless=True)


def test_a_job_whose_id_is_none_may_be_any_job() -> None:
    slurm = Slurm({17: RUNS})
    slurm.undecoded = (UndecodedItem("soon", "not a job id"),)
    jobs = polled(slurm, 0.5)[0]
    assert isinstance(jobs, JobsPolled)
    assert 4711 in jobs.undecoded


def test_while_slurmdbd_is_away_nodes_and_jobs_are_reported_without_partitions_and_slurm_is_not_lost() -> None:
    slurm = Slurm({17: RUNS})
    slurm.accounting_away_until = START + 60
    told = polled(slurm, 120)
    assert not any(isinstance(event, OutageBegan) for event in told)
    assert all(before - after <= 2 for before, after in itertools.pairwise(slurm.asked))
    assert [event for event in told if isinstance(event, AccountingOutageBegan)] == [
        AccountingOutageBegan(told[0].ended, "Slurm: partitions: slurmdbd does not answer (error 7000).")
    ]
    [back] = [event for event in told if isinstance(event, AccountingOutageEnded)]
    assert START + 60 <= back.at <= START + 60 + RETRY_S + 2
    nodes = [event for event in told if isinstance(event, SlurmNodesPolled)]
    assert {event.partitions for event in nodes if event.at < back.at} == {None}
    later = [event for event in nodes if event.at >= back.at]
    assert later[0].partitions == PARTITIONS
    assert later[0].at <= back.at + 0.1, "at once"


def test_a_frozen_slurmdbd_delays_no_other_poll_and_is_asked_again_when_slurmrestd_has_given_up() -> None:
    """Each request for the partitions holds a thread of slurmrestd for up to 90 s, and there are few."""
    slurm = Slurm({17: RUNS})
    slurm.frozen_until = START + 300
    told = polled(slurm, 400)
    assert not any(isinstance(event, OutageBegan) for event in told)
    assert max(gaps(slurm.asked)) <= PATIENCE_S + 2
    frozen = [at for at in slurm.asked_partitions if at < slurm.frozen_until]
    assert min(gaps(frozen)) >= FROZEN_RETRY_S
    [began] = [event for event in told if isinstance(event, AccountingOutageBegan)]
    assert began.why == "Slurm: partitions: slurmdbd does not answer (no answer within 3 s) (error 7000)."
    assert began.since <= START + PATIENCE_S + 1
    [back] = [event for event in told if isinstance(event, AccountingOutageEnded)]
    assert slurm.frozen_until <= back.at <= slurm.frozen_until + FROZEN_RETRY_S + RETRY_S + 2


def test_a_slurmrestd_that_is_slow_altogether_is_no_outage_of_slurmdbd() -> None:
    slurm = Slurm({17: RUNS})
    slurm.takes_s = slurm.partitions_take_s = 5.0
    told = polled(slurm, 120)
    assert not any(isinstance(event, AccountingOutageBegan) for event in told)
    assert {event.partitions for event in told if isinstance(event, SlurmNodesPolled)} == {PARTITIONS}


def test_two_polls_of_nodes_at_a_time_wait_for_the_same_partitions_and_see_no_outage() -> None:
    """The second poll is for a grant on an unknown node, and finds that the first one has requested the partitions."""
    slurm, told = Slurm(), list[Event]()
    slurm.partitions_take_s = 0.01

    async def live() -> None:
        clock = asyncio.get_running_loop().time
        poller = Poller(slurm, told.append, clock, lambda: False, accounting_outage=lambda: accounting_outage(told))
        await asyncio.gather(poller.poll_nodes(), poller.poll_nodes())

    run(live())
    assert told == [SlurmNodesPolled(NODES, PARTITIONS, START + 0.01, START)] * 2
    assert len(slurm.asked_partitions) == 1


def test_partitions_that_come_late_end_the_outage_at_once() -> None:
    slurm = Slurm({17: RUNS})
    slurm.frozen_until = START + 8
    told = polled(slurm, 20)
    [back] = [event for event in told if isinstance(event, AccountingOutageEnded)]
    assert START + 8 <= back.at <= START + 8 + RETRY_S + 2
    assert len(slurm.asked_partitions) == 2, "the second with the nodes, which are polled at once"


def test_a_proxy_that_says_when_to_come_back_is_not_polled_before_but_not_for_ever() -> None:
    slurm = Slurm(
        Exhausted("states", "Slurm", "slow down", 429, 10.0), Exhausted("states", "Slurm", "slow", 429, 3600.0), {}
    )
    polled(slurm, 60)
    assert gaps(slurm.asked)[:2] == pytest.approx([10.0, MAX_RETRY_AFTER_S], abs=0.1)
