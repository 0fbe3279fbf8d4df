"""Bounded dicts of workloads or pods whose trace is not complete: the oldest entry is dropped first."""

from __future__ import annotations

from typing import TypeVar

MOST = 20_000
K = TypeVar("K")
V = TypeVar("V")


def remember(kept: dict[K, V], key: K, what: V) -> None:
    """Set the entry, and drop the oldest entries if there are more than MOST."""
    kept[key] = what
    while len(kept) > MOST:
        del kept[next(iter(kept))]
