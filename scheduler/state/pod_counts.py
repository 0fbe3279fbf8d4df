"""The counts of the pods of one workload.  They are kept up to date, so the cost of an event does not grow with the gang.

The counts follow only from the pods: `Workload.recount` counts the pods again, and `World.validate` compares both counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.translate.grouping import Group


def stays(pod: Pod) -> bool:
    """True if the pod neither ended nor is being deleted; a gated pod stays, too."""
    return pod.deleting_at is None and not pod.finished


class _Counted(NamedTuple):
    """What one pod adds to each count.

    staying     the pod neither ended nor is being deleted
    size, run   the size of the group, and the run of the group, as the pod shows them
    """

    unfinished: bool
    unbound: bool
    member: bool
    members_unbound: bool
    succeeded: bool
    staying: bool
    size: int | None
    run: str


@dataclass(slots=True)
class PodCounts:
    """Counts of a workload's pods.

    unfinished  pods that run or wait, or that are being deleted and have a node
    unbound     unfinished pods without a node
    members     unfinished pods that are neither gated nor being deleted
    members_unbound   members without a node
    succeeded   pods that succeeded, in a run of their group of which other pods stay
    sizes       group size to how many staying pods show it; None: pods that show no size
    """

    unfinished: int = 0
    unbound: int = 0
    members: int = 0
    members_unbound: int = 0
    succeeded: int = 0
    sizes: dict[int | None, int] = field(default_factory=dict)
    # run to how many of its pods stay, and how many succeeded
    _runs: dict[str, tuple[int, int]] = field(default_factory=dict)
    _of: dict[str, _Counted] = field(default_factory=dict)

    def count(self, pod: Pod, node: str, group: Group | None, *, over: bool = False) -> bool:
        """Count the present state of the pod.  Returns True if a count changed.

        node   the node of the pod; "": none
        over   count the pod as if it had ended
        """
        unfinished = not (pod.finished or over) and (pod.deleting_at is None or bool(node))
        member = unfinished and not pod.gated and pod.deleting_at is None
        now = _Counted(
            unfinished,
            unfinished and not node,
            member,
            member and not node,
            group is not None and pod.phase is PodPhase.SUCCEEDED,
            group is not None and stays(pod) and not over,
            group.size if group is not None else None,
            group.run if group is not None else "",
        )
        before = self._of.get(pod.uid)
        if before == now:
            return False
        self.drop(pod.uid)
        self._of[pod.uid] = now
        self._add(now, 1)
        return True

    def drop(self, uid: str) -> None:
        """Remove the pod from the counts."""
        if (before := self._of.pop(uid, None)) is not None:
            self._add(before, -1)

    def _add(self, counted: _Counted, sign: int) -> None:
        self.unfinished += sign * counted.unfinished
        self.unbound += sign * counted.unbound
        self.members += sign * counted.member
        self.members_unbound += sign * counted.members_unbound
        if counted.staying:
            self.sizes[counted.size] = self.sizes.get(counted.size, 0) + sign
            if not self.sizes[counted.size]:
                del self.sizes[counted.size]
        if counted.staying or counted.succeeded:
            self._add_to_run(counted.run, sign * counted.staying, sign * counted.succeeded)

    def _add_to_run(self, run: str, staying: int, succeeded: int) -> None:
        before = self._runs.pop(run, (0, 0))
        now = before[0] + staying, before[1] + succeeded
        self.succeeded += (now[1] if now[0] else 0) - (before[1] if before[0] else 0)
        if any(now):
            self._runs[run] = now
