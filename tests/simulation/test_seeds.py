"""A thousand lives of the bridge among faults (X3).

`SEED=n pytest tests/simulation` lives one seed again, `SEEDS=n` the first n seeds, `SEEDS=1000-5000` a range of them, its end
not included.  Each seed runs in a process with a fixed hash seed, so it is the same life each time.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.life import live, live_beside, log_of
from tests.simulation.many_lives import assert_all_hold, wanted_seeds

PAIRS = 10  # lives of two bridges


@pytest.mark.parametrize(("asked", "seeds"), [("3", range(3)), ("1000-5000", range(1000, 5000))])
def test_seeds_are_a_number_or_a_range(asked: str, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEED", raising=False)
    monkeypatch.setenv("SEEDS", asked)
    assert wanted_seeds(1000) == seeds


@pytest.mark.parametrize(
    "seed", [3]
)  # this life depended on the hash seed while the bridge visited workloads in the order of a set
def test_a_life_is_the_same_whatever_the_hash_seed_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions do not depend on the order of a set, so a failure can be repeated from its events."""
    logs = []
    for hash_seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            logs.append(pool.submit(log_of, seed).result())
    assert logs[0] == logs[1]


def test_every_invariant_holds_in_a_thousand_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_all_hold(live, wanted_seeds(1000), monkeypatch)


def test_two_bridges_on_one_slurm_never_touch_each_others_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two Kubernetes clusters share users and a partition; for each bridge the jobs of the other are foreign (V6)."""
    assert_all_hold(live_beside, range(PAIRS), monkeypatch)
