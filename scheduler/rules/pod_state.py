"""The state of a pod in one word, as column ST of squeue has it: the same in `kubectl slurm`, on the page and in `explain`.

docs/users.md explains the words.  A user reads what the pod shows.  The bridge also knows the phase of the workload, which
says more while the pod shows nothing yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler import names
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.state.phase import Phase

WAITS = "Waiting"
# What a reason of the condition PodScheduled means to its user.
OF_REASON: Mapping[str, str] = {
    names.SUBMITTED: "Pending",
    names.PENDING: "Pending",
    names.REFUSED: "Refused",
    names.NOT_MANAGED: "Refused",
    names.NO_NODE: "Refused",
    names.GRANT_WAITS: "Granted",
    names.GATHERING: "Gathering",
    names.LIMITED: "Limited",
}
# Phases that say more than what the pod shows, which may be of an earlier job.
OF_PHASE: Mapping[Phase | None, str] = {
    Phase.QUEUED: "Pending",
    Phase.GRANTED: "Granted",
}
BEFORE_IT_SHOWS: Mapping[Phase | None, str] = {Phase.GATHERING: "Gathering"}
JOB_ENDED = "Job ended"


def pod_state(pod: Pod, node: str, reason: str, phase: Phase | None = None) -> str:
    """The word.

    node     the node of the pod; "": none
    reason   of the pod's condition PodScheduled; "": it shows none
    phase    of its workload; None: not known
    """
    if pod.finished:
        return "Stopped" if pod.disrupted else "Completed" if pod.phase is PodPhase.SUCCEEDED else "Failed"
    if pod.deleting_at is not None:
        return "Ending"
    if node:
        return JOB_ENDED if phase is Phase.ORPHANED else _on_its_node(pod)
    if pod.gated:
        return "Gated"
    return OF_PHASE.get(phase) or OF_REASON.get(reason) or BEFORE_IT_SHOWS.get(phase, WAITS)


def _on_its_node(pod: Pod) -> str:
    if pod.job_condition is not None and pod.job_condition.reason == names.SUSPENDED:
        return "Suspended"
    if pod.phase is not PodPhase.RUNNING:
        return "Starting"
    return "Crashing" if pod.crashes else "Running"
