"""Nodes that a workload does not ask for, although Slurm would grant them, and the kinds of pods that leave out each (F6)."""

from __future__ import annotations

from collections.abc import Mapping

Kind = frozenset[tuple[str, int]]
"""A kind of pods, which all need the same: each resource, and how much of it."""
LeavesOut = Mapping[str, frozenset[Kind]]
"""Name of a node in Slurm to the kinds of pods that leave it out.  ALL_KINDS: each pod of the workload does."""
ALL_KINDS: frozenset[Kind] = frozenset()


def left_out_of(nodes: LeavesOut, kind: Kind) -> frozenset[str]:
    """The names of the nodes that pods of this kind leave out."""
    return frozenset(name for name, kinds in nodes.items() if not kinds or kind in kinds)
