"""Lives of many seeds, in several processes with a fixed hash seed, so that each seed is the same life each time."""

from __future__ import annotations

import gc
import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

WORKERS = 2
CHUNK = 10


def assert_all_hold(how: Callable[[int], None], seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Live these seeds in WORKERS processes, and assert that no invariant was broken.  how: lives one seed"""
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # for the workers: sets of words in the same order each time
    chunk = min(CHUNK, -(-len(seeds) // WORKERS))
    chunks = [seeds[at : at + chunk] for at in range(0, len(seeds), chunk)]
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        broken = [log for logs in pool.map(partial(_live_all, how), chunks) for log in logs]
    assert not broken, f"{len(broken)} of {len(seeds)} seeds; the first:\n{broken[0]}"


def wanted_seeds(first: int) -> range:
    """The seeds that SEED or SEEDS ask for; the first so many if neither does."""
    if "SEED" in os.environ:
        seed = int(os.environ["SEED"])
        return range(seed, seed + 1)
    begin, dash, end = os.environ.get("SEEDS", str(first)).partition("-")
    return range(int(begin), int(end)) if dash else range(int(begin))


def _live_all(how: Callable[[int], None], seeds: Sequence[int]) -> list[str]:
    """The logs of the lives that broke an invariant."""
    gc.set_threshold(50_000, 20, 50)  # as the bridge itself has it: a life makes many objects, and few in circles
    broken = []
    for seed in seeds:
        try:
            how(seed)
        except AssertionError as violation:
            broken.append(str(violation))
        except BaseExceptionGroup as fallen:  # the bridge itself fell over
            broken.append(f"seed {seed}: {''.join(traceback.format_exception(fallen))}")
    return broken
