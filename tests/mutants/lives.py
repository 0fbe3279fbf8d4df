"""Some of the thousand lives of tests/simulation, each as a test of its own: a life may notice what no other test does."""

from __future__ import annotations

import pytest

from tests.simulation.life import live

LIVES = 40


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_life_violates_no_invariant(seed: int) -> None:
    live(seed)
