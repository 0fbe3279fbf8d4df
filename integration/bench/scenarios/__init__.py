"""The scenarios, a file for each family.  A scenario is the rig that it needs, and one repeat that returns figures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from integration.bench.figures import Figure
from integration.bench.ground import Ground

REPEATS = 5


BINDS = ("K1", "V1", "V2", "V3", "V5", "V8", "L3", "L4")  # the bridge binds pods


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to measure.

    name      as it is asked for
    repeat    measure once, on a rig
    alone     measure once, without a rig: (folder for files of this run, where the stacks of the bridge go or None)
    count     measure once what cannot be counted while time is measured; or nothing such
    nodes     how many nodes its rig has, of 64 CPUs each
    repeats   how often it is measured, unless somebody asks otherwise
    why       how long a repeat takes and why there are fewer, if there are fewer than REPEATS
    apart     a rig of its own for each repeat: the records of ended jobs, which slurmctld keeps, would slow the next
    judges    invariants of which the checker must judge something in the logs of its rig
    """

    name: str
    repeat: Callable[[Ground], Awaitable[list[Figure]]] | None = None
    alone: Callable[[Path, Path | None], Awaitable[list[Figure]]] | None = None
    count: Callable[[Ground], Awaitable[list[Figure]]] | None = None
    nodes: int = 100
    repeats: int = REPEATS
    why: str = ""
    apart: bool = False
    judges: tuple[str, ...] = BINDS
