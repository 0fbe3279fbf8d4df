"""Nodes that a workload does not ask for again yet, because a grant there could not be used (F6)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Nodes that the submissions of a workload exclude, because a grant there could not be used (F6, crowding.py).

    nodes      their names in Slurm
    judged_at  when they are judged again
    unusable_grants    how many grants of the workload in a row could not be used
    patient_until  a full node is left out until then, whatever fills it
    """

    nodes: frozenset[str]
    judged_at: float
    unusable_grants: int = 0
    patient_until: float = float("-inf")


def after_unusable_grant(before: LeftOut | None, node: str, at: float, exclude_s: float) -> LeftOut:
    """The excluded nodes after a grant on that node could not be used: each time for longer, at most for 16 `exclude_s`."""
    unusable_grants = before.unusable_grants + 1 if before is not None else 1
    nodes = before.nodes | {node} if before is not None else frozenset({node})
    return LeftOut(nodes, at + exclude_s, unusable_grants, at + exclude_s * min(16, 4 ** min(unusable_grants - 1, 2)))
