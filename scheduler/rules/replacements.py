"""Pods that take the places of others in a job that runs (W5)."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload


def are_replacements(workload: Workload, unbound: Sequence[Pod], job: Placeholder) -> bool:
    """True if these pods take the places of others that were bound for the job before (W5).

    A gang is bound as a whole.  So if as many pods have been bound for the job as it was submitted for, further pods are
    replacements, whatever their times are.  Of the pods that a previous process bound, some may be gone.  Then a
    replacement is a pod that the API server created after it bound another member, by its own clock; or, if it does not
    show when it bound them, after it created all of them.
    """
    if job.spec is not None and job.spec.required_nodes:  # submitted for pods that ran on these nodes already (S7)
        return True
    asked = job.spec or job.job
    every = (*workload.pods.values(), *(gone.pod for gone in workload.deleted_pods.values()))
    served = [pod for pod in every if workload.node_of(pod) and _names_job(pod, job)]
    if asked is not None and len(served) >= asked.tasks + sum(part.tasks for part in asked.parts):
        return True
    if job.asked_at is not None or not served:
        return False
    bound_at = [pod.bound_at for pod in served if pod.bound_at is not None]
    since = min(bound_at) if bound_at else max(pod.created for pod in served)
    return all(pod.created > since for pod in unbound)


def _names_job(pod: Pod, job: Placeholder) -> bool:
    """True unless the pod names another job.  The annotations of a bind may not have been observed yet."""
    return pod.annotations.get(names.JOB_ID, str(job.id)) == str(job.id)
