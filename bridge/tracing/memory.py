"""What is under way is kept for so many workloads or pods; the oldest goes first."""

from __future__ import annotations

from typing import TypeVar

MOST = 20_000
K = TypeVar("K")
V = TypeVar("V")


def remember(kept: dict[K, V], key: K, what: V) -> None:
    """Keep it, and forget the oldest beyond MOST."""
    kept[key] = what
    while len(kept) > MOST:
        del kept[next(iter(kept))]
