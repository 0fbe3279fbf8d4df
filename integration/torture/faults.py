"""The faults: a deck of them, shuffled by a seed, with the moment and the duration of each."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from random import Random

from integration.bench.processes import in_our_network
from integration.checker import journal
from integration.clusters import BridgeProcess, eventually, rig
from integration.torture.line import Line

KILLED, FROZEN, CUT = "is killed", "is frozen", "is cut off from"
BRIDGE = "the bridge"
# Of 50 cycles.  A start of kube-apiserver costs as much CPU as ten of the bridge.
DECK: Mapping[tuple[str, str], int] = {
    (BRIDGE, KILLED): 24,
    (BRIDGE, FROZEN): 4,
    ("Kubernetes", CUT): 2,
    ("Slurm", CUT): 2,
    ("slurmctld", KILLED): 3,
    ("slurmctld", FROZEN): 2,
    ("slurmrestd", KILLED): 2,
    ("slurmrestd", FROZEN): 2,
    ("slurmdbd", KILLED): 1,
    ("slurmdbd", FROZEN): 2,
    ("kube-apiserver", KILLED): 1,
    ("kube-apiserver", FROZEN): 2,
    ("etcd", KILLED): 1,
    ("etcd", FROZEN): 2,
}
SOON_S, LASTS_S = 1.5, 2.0
# One cycle in so many begins when the bridge has outlived its quiet period (12 s), so that it dies while it cancels and
# evicts.
LATE_EVERY, LATE_S = 8, (12.0, 14.5)
TWICE = 0.25  # of the faults of a server: the bridge is killed meanwhile, too


@dataclass(frozen=True, slots=True)
class Cycle:
    """One fault.  after_s: time without a fault before it; lasts_s: duration of a fault that has one"""

    what: str
    how: str
    after_s: float
    lasts_s: float
    twice: bool

    def __str__(self) -> str:
        also = ", and the bridge is killed meanwhile" if self.twice else ""
        verb = f"{BRIDGE} {CUT} {self.what}" if self.how == CUT else f"{self.what} {self.how}"
        return f"after {self.after_s:.3f} s {verb}{also}"


def cycles(count: int, rng: Random) -> Iterator[Cycle]:
    """*count* faults, each deck in another order; the same for the same state of *rng*."""
    deck = [card for card, copies in DECK.items() for _ in range(copies)]
    for number in range(count):
        if number % len(deck) == 0:
            rng.shuffle(deck)
        what, how = deck[number % len(deck)]
        after_s = rng.uniform(*LATE_S) if number % LATE_EVERY == LATE_EVERY - 1 else rng.uniform(0, SOON_S)
        lasts_s, twice = rng.uniform(0.05, LASTS_S), rng.random() < TWICE
        yield Cycle(what, how, after_s, lasts_s, twice and what != BRIDGE)


class Wrecker:
    """Makes the faults of cycles, and ends them."""

    def __init__(self, bridge: BridgeProcess, kube: Line, slurm: Line) -> None:
        self._bridge = bridge
        self._lines = {"Kubernetes": kube, "Slurm": slurm}

    def wreck(self, cycle: Cycle) -> None:
        """Make one fault.  Returns when the servers serve again, and the bridge has been started, but may not be ready."""
        time.sleep(cycle.after_s)  # the moment of the fault, which is what is drawn
        self.supervise()
        with self._broken(cycle):
            if cycle.twice:
                self._bridge.kill()
                self.supervise()
        self.supervise()

    def supervise(self) -> None:
        """Starts the bridge if it does not run, as systemd would."""
        if not self._bridge.runs:
            self._bridge.launch()

    def _broken(self, cycle: Cycle) -> AbstractContextManager[None]:
        if cycle.how == CUT:
            return _at_once(self._lines[cycle.what].cut)
        if cycle.what == BRIDGE:
            return _at_once(self._bridge.kill) if cycle.how == KILLED else _for(cycle.lasts_s, self._bridge.paused())
        return _for(cycle.lasts_s, _killed(cycle.what) if cycle.how == KILLED else _frozen(cycle.what))


@contextmanager
def _at_once(act: Callable[[], None]) -> Iterator[None]:
    act()
    yield


@contextmanager
def _killed(program: str) -> Iterator[None]:
    try:
        _send(program, signal.SIGKILL)
        eventually(f"{program} has ended", lambda: not _processes(program))
        yield
    finally:
        rig(program, "start")


@contextmanager
def _frozen(program: str) -> Iterator[None]:
    try:
        _send(program, signal.SIGSTOP)
        yield
    finally:
        _send(program, signal.SIGCONT)


def _send(program: str, what: signal.Signals) -> None:
    """Send the signal directly: a command of the rig takes half a second of CPU, so the signal would come too late."""
    found = _processes(program)
    assert found, f"{program} does not run"
    for pid in found:
        with suppress(ProcessLookupError):  # a helper that ends with the process that was killed before it
            os.kill(pid, what)


def _processes(program: str) -> list[int]:
    """Its processes in this rig, with helpers ("slurmctld: slurmscriptd")."""
    return [pid for pid, name in in_our_network().items() if name.partition(":")[0] == program]


@contextmanager
def _for(seconds: float, fault: AbstractContextManager[None]) -> Iterator[None]:
    with fault:
        yield
        time.sleep(seconds)  # the length of the fault, which is what is drawn


def torn() -> AbstractContextManager[None]:
    """The whole time of the cycles: something is always broken, so liveness is judged afterwards."""
    return journal.disturbed("torture")
