"""Namespaces in which the bridge lacks rights in Kubernetes, so that it cannot bind pods or cannot end them (X9).

No job is asked for there: Slurm would grant nodes to pods that cannot be bound, or pods could not be ended with their job.
Jobs that wait in Slurm's queue keep their place, and pods that run keep running.  When the rights are back, everything that
failed for lack of them is tried at once.
"""

from __future__ import annotations

from scheduler import names
from scheduler.rules.decision import NOTHING, Decision
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import statuses
from scheduler.state.workload import Workload


def without_rights(workload: Workload, this_pass: Pass) -> Decision | None:
    """The waiting pods show which rights are missing, if their status can be written.  None: no right is missing."""
    why = this_pass.world.lacking_rights.get(workload.namespace)
    if why is None:
        return None
    return statuses(workload.members, names.LACKS_RIGHTS, why) if why else NOTHING
