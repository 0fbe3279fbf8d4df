"""The bridge's clock follows the machine's, and never jumps."""

from __future__ import annotations

import random
import time

import pytest

from bridge.clock import SLEW, SlewedClock, monotonic


class Machine:
    def __init__(self) -> None:
        self.wall, self.monotonic = 1_800_000_000.0, 5000.0
        self.clock = SlewedClock(lambda: self.wall, lambda: self.monotonic)

    def passes(self, seconds: float, *, drift: float = 0.0) -> float:
        """So much time, of which the machine's clock makes more or less; what the bridge's makes of it."""
        before = self.clock()
        self.monotonic += seconds
        self.wall += seconds * (1 + drift)
        return self.clock() - before


def test_it_shows_the_machines_time() -> None:
    machine = Machine()
    assert machine.clock() == machine.wall
    assert machine.passes(10) == pytest.approx(10)
    assert machine.clock() == pytest.approx(machine.wall)


def test_it_follows_a_machine_whose_clock_ntp_slews() -> None:
    machine = Machine()
    for _ in range(1000):
        machine.passes(60, drift=0.0005)
    assert machine.clock() == pytest.approx(machine.wall)


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_clock_that_is_set_is_followed_slowly(step: float) -> None:
    machine = Machine()
    machine.wall += step
    assert machine.clock() == pytest.approx(machine.wall - step), "no jump"
    assert machine.clock.behind() == pytest.approx(step)
    assert machine.passes(10) == pytest.approx(10 * (1 + SLEW * (1 if step > 0 else -1)))
    for _ in range(21):
        machine.passes(3600)
    assert machine.clock() == pytest.approx(machine.wall)
    assert machine.clock.behind() == pytest.approx(0)


def test_it_never_goes_back_whatever_the_machine_shows() -> None:
    rng, machine, last = random.Random(1), Machine(), 0.0
    for _ in range(1000):
        machine.monotonic += rng.choice((0.0, 0.001, 1.0, 100.0))
        machine.wall = rng.choice((0.0, machine.wall, machine.wall - 86_400, machine.wall + 1e9))
        before, last = last, machine.clock()
        assert last >= before


def test_a_deadline_is_off_by_a_twentieth_at_most_while_the_clock_is_corrected() -> None:
    for step in (86_400.0, -86_400.0):
        machine = Machine()
        machine.wall += step
        assert machine.passes(12) == pytest.approx(12, rel=0.05 + 1e-9)


def test_the_monotonic_clock_never_goes_back() -> None:
    before = monotonic()
    assert monotonic() >= before


def test_the_time_in_which_the_machine_sleeps_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With CLOCK_MONOTONIC, which stands still meanwhile, the loop acted on facts that were as old as the sleep was long."""
    slept_s = 0.0
    shown = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda which: shown(which) + slept_s)
    clock = SlewedClock(wall=lambda: 1_800_000_000.0)
    before, slept_s = clock(), 3600.0
    assert clock() - before > 3600 * (1 - 2 * SLEW)
