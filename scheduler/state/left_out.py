"""Nodes that the next submissions of a workload exclude, because a grant on these nodes could not be used (F6)."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.left_out import ALL_KINDS, LeavesOut


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The nodes that the submissions of one workload exclude.

    nodes            by their names in Slurm
    judged_at        when the decision to exclude the nodes is made again (`scheduler/rules/crowding.py`), epoch seconds
    unusable_grants  how many grants of the workload in a row could not be used
    patient_until    until this time a full node stays excluded, whichever pods fill it, epoch seconds
    """

    nodes: LeavesOut
    judged_at: float
    unusable_grants: int = 0
    patient_until: float = float("-inf")


def after_unusable_grant(before: LeftOut | None, node: str, at: float, exclude_s: float) -> LeftOut:
    """The excluded nodes after a grant on *node* could not be used.

    They are judged again after `exclude_s`; full nodes stay excluded for 1, then 4, then always 16 times `exclude_s`.
    """
    unusable_grants = before.unusable_grants + 1 if before is not None else 1
    nodes = {**(before.nodes if before is not None else {}), node: ALL_KINDS}
    return LeftOut(nodes, at + exclude_s, unusable_grants, at + exclude_s * 4 ** min(unusable_grants - 1, 2))
