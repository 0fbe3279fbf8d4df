"""What was sent and is not settled: actions in flight, searches for a job, and writes whose answer was lost.

The two clusters do not show it yet, so the bridge remembers it (ARCHITECTURE 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.actions import Action, BindPod, DeletePod, EvictPod, FailByDeadline
from scheduler.model.amounts import EMPTY
from scheduler.state.placeholder import KnownTenant

Announced = BindPod | DeletePod | FailByDeadline | EvictPod  # writes that are announced by a Kubernetes event


@dataclass(slots=True)
class InFlight:
    """An action that was sent and has not ended, or whose effect is not visible yet.

    until      when to stop waiting for its effect; None: it has not ended
    lost_job   of a submission for the nodes of a lost job: the id of that job (S7)
    asked_for, components, asked_as  of a submission: as in Placeholder
    """

    action: Action
    planned_at: float
    until: float | None = None
    lost_job: int | None = None
    asked_for: frozenset[str] = frozenset()
    components: Mapping[str, int] = EMPTY
    asked_as: KnownTenant | None = None


@dataclass(slots=True)
class JobSearch:
    """A search for a job of this name, after an unknown outcome or a twin (2038): nothing is submitted before it ends.

    began   when the call was sent: ids that are new since then are read first
    until   the submission is not repeated before this time
    user    the Slurm user that the call named: a job of this name and user is the workload's, whatever user its pods have now
    """

    began: float
    until: float
    name: str
    user: str
    asked_database: bool = False
    twin: bool = False


@dataclass(frozen=True, slots=True)
class UnansweredBind:
    """A bind whose answer was lost.  until: the bind cannot take effect after this time, so a read of the pod settles it."""

    action: BindPod
    until: float
