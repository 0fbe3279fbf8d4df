"""Pods that take the places of others in a job that runs (W5)."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import tasks_of
from scheduler.state.named_job import names_no_other
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload


def are_replacements(workload: Workload, unbound: Sequence[Pod], job: Placeholder) -> bool:
    """True if these pods take the places of others that were bound for the job before (W5).

    A gang is bound as a whole.  So if as many pods have been bound for the job as it was submitted for, further pods are
    replacements, whatever their times are.

    If a previous process submitted the job, pods that it bound may be gone, so the number proves nothing.  Then times decide,
    by the clock of the API server: a replacement was created after another member was bound; or, if the time of no bind is
    shown, after all members that are bound were created.
    """
    if job.spec is not None and job.spec.required_nodes:  # submitted for pods that ran on these nodes already (S7)
        return True
    asked = job.spec or job.job
    every = (*workload.pods.values(), *(gone.pod for gone in workload.deleted_pods.values()))
    served = [pod for pod in every if workload.node_of(pod) and names_no_other(pod, job)]
    if asked is not None and len(served) >= tasks_of(asked):
        return True
    if job.asked_at is not None or not served:
        return False
    bound_at = [pod.bound_at for pod in served if pod.bound_at is not None]
    since = min(bound_at) if bound_at else max(pod.created for pod in served)
    return all(pod.created > since for pod in unbound)
