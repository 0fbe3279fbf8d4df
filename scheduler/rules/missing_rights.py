"""Namespaces in which the bridge lacks rights in Kubernetes, so that it cannot bind pods or cannot end them (X9).

No job is asked for there: Slurm would grant nodes to pods that cannot be bound, or pods could not be ended with their job.
Jobs that wait in Slurm's queue keep their place, and pods that run keep running.  When the rights are back, everything that
failed for lack of them is tried at once.
"""

from __future__ import annotations

from scheduler import names
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import say_all
from scheduler.state.workload import Workload


def say_lacking(workload: Workload, this_pass: Pass) -> bool:
    """Tell the waiting pods which rights are missing, where that can be written on them.  False: none is missing."""
    why = this_pass.world.lacking_rights.get(workload.namespace)
    if why:
        say_all(workload, workload.members, this_pass, names.LACKS_RIGHTS, why)
    return why is not None
