"""Objects in quarantine, and the alarms about them (X8); `scheduler/state/quarantine.py` contains the errors."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.actions import ObjectKind
from scheduler.model.kubernetes import Node, Pod

Subject = tuple[ObjectKind, str]
Origin = tuple[str, str, int]


@dataclass(slots=True)
class Quarantined:
    """One object in quarantine.

    readable   for people: namespace and name of a pod or a gang, a node's name
    origin     type of the exception, file and line where it was raised
    since      when it came into quarantine, epoch seconds
    retry_at   when it is tried again although nothing changed, epoch seconds
    dropped    its facts were dropped, and are rebuilt when it is tried again
    pods       the last observed states of a dropped workload's pods, by UID
    nodes      the last observed states of the Kubernetes nodes with that name in Slurm, by name
    changed    a pod of the workload changed or was deleted since; then it is tried again from `changes_at` on
    """

    kind: ObjectKind
    name: str
    readable: str
    origin: Origin
    since: float
    retry_at: float
    dropped: bool = False
    pods: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    changed: bool = False
    changes_at: float = float("-inf")

    def due_at(self) -> float:
        """When the object is tried again, if nothing else happens.  Epoch seconds."""
        return min(self.retry_at, self.changes_at) if self.changed else self.retry_at


@dataclass(frozen=True, slots=True)
class Alarm:
    """An entry for the log: the object in quarantine, and the exception with its traceback."""

    kind: ObjectKind
    readable: str
    error: Exception


def origin_of(error: BaseException) -> Origin:
    """The type of the exception, and the file and line where it was raised."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    file = place.tb_frame.f_code.co_filename if place is not None else ""
    return type(error).__name__, file, place.tb_lineno if place is not None else 0
