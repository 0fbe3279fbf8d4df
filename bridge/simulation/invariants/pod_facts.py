"""What a pod shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.simulation.kube.objects import epoch
from bridge.simulation.observations import Object, SeenJob
from scheduler import names
from scheduler.model.quantity import amount
from scheduler.translate import values

# Seconds before the time limit at which a pod ends (S4b); the values of scheduler/tuning.py.
ENDS_BEFORE_S = 10.0  # the grace of a pod is over this long before the time limit
ENDS_MOST_BEFORE_S = 3600.0


def full_name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def gang_of(pod: Mapping[str, Any]) -> str:
    """The key of the gang that the pod shows; "": none."""
    meta = pod["metadata"]
    if label := (meta.get("labels") or {}).get(names.PREFIX + names.GANG):
        return names.workload_key(f"gang\0{meta['namespace']}\0{label}")
    jobs = [owner for owner in meta.get("ownerReferences") or [] if owner["kind"] == "Job"]
    if jobs and names.PREFIX + names.GANG_SIZE in (meta.get("annotations") or {}):
        return names.workload_key(f"job\0{meta['namespace']}\0{jobs[0]['name']}\0{jobs[0]['uid']}")
    return ""


def keys_of(pod: Mapping[str, Any]) -> frozenset[str]:
    """The keys of the workloads of which the pod may be a part: the pod itself, and its gang."""
    return frozenset({names.workload_key(pod["metadata"]["uid"]), gang_of(pod)} - {""})


def stood_alone(pod: Mapping[str, Any], job: SeenJob) -> bool:
    """True if the pod was bound for its own job, because its gang was complete, and this job is the gang's."""
    meta, named = pod["metadata"], names.parse_job_name(job.name)
    own = named is not None and named[1] == names.workload_key(meta["uid"])
    return not own and (meta.get("annotations") or {}).get(names.SIZE) == "1" and (job.tasks > 1 or bool(job.het_id))


def shows_earlier_job(pod: Mapping[str, Any], job: SeenJob) -> bool:
    """True if the pod shows a time before the start of this job, which replaced a job that the pod shows, under its id."""
    since = (pod["metadata"].get("annotations") or {}).get(names.JOB_SINCE)
    return since is not None and bool(job.starts) and epoch(since) < job.starts


def may_end_before_s(pod: Object) -> float:
    """The longest time before the end of the job at which the pod may get SIGTERM: for its grace, or by its annotation."""
    grace_s = pod["spec"].get("terminationGracePeriodSeconds")
    try:
        asked_s = values.signal_s((pod["metadata"].get("annotations") or {}).get(names.PREFIX + names.SIGNAL, "0"))
    except values.Unreadable:
        asked_s = 0
    return min(ENDS_MOST_BEFORE_S, max(asked_s, ENDS_BEFORE_S + (30 if grace_s is None else grace_s)))


def is_finished(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_settled(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"))


def is_bound_for(pod: Mapping[str, Any], node: str, job_id: int) -> bool:
    return bool(pod["spec"].get("nodeName") == node and shown_job(pod) == str(job_id))


def shown_job(pod: Mapping[str, Any]) -> str | None:
    """The id of the job for which the pod was bound, by its annotation."""
    shown: str | None = (pod["metadata"].get("annotations") or {}).get(names.JOB_ID)
    return shown


def requests_of(pod: Mapping[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {"pods": 1}
    for container in pod["spec"]["containers"]:
        for resource, quantity in (container.get("resources", {}).get("requests") or {}).items():
            total[resource] = total.get(resource, 0) + amount(resource, quantity, round_up=True)
    return total
