"""Calls whose effect is not known or not visible yet: actions in flight, searches for a job, and binds without an answer.

The two clusters do not show the effect yet, so the bridge remembers the call (ARCHITECTURE 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.actions import Action, BindPod, DeletePod, EvictPod, FailByDeadline
from scheduler.model.amounts import EMPTY
from scheduler.state.placeholder import KnownTenant

Announced = BindPod | DeletePod | FailByDeadline | EvictPod  # writes about which an event is posted


@dataclass(slots=True)
class InFlight:
    """An action that was sent and has not ended, or whose effect is not visible yet.

    until      when to stop waiting for the effect; None: the action has not ended
    lost_job   if the action is a submission for the nodes of a lost job: the id of the lost job (S7)
    asked_for, components, asked_as  if the action is a submission: as in Placeholder
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
    """A search for a job by its name, after a submission whose outcome is unknown, or that a twin held back (2038).

    While a workload has a search, the bridge submits nothing for it.  A *twin* is another job of the same name.

    began   when the call was sent: ids that are new since then are read first
    until   the submission is not repeated before this time
    user    the Slurm user that the call named: a job of this name and user is the workload's, whatever user its pods have now
    asked_database   True if accounting was searched for the job, too
    twin    True if the search is for a twin
    """

    began: float
    until: float
    name: str
    user: str
    asked_database: bool = False
    twin: bool = False


@dataclass(frozen=True, slots=True)
class UnansweredBind:
    """A bind whose answer was lost.

    until   the bind cannot take effect after this time, so a read of the pod that is sent later shows if it took effect
    """

    action: BindPod
    until: float
