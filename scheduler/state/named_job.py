"""Which job the annotations of a pod name, by its id and by times.

Slurm reuses ids after it lost its state, and people can write annotations.  So an id names a job only together with a time
at which Slurm had that job: the start of the pod, or the annotation `job-since` where the job replaced a lost one.
"""

from __future__ import annotations

from datetime import UTC, datetime

from scheduler import names
from scheduler.events import Side
from scheduler.model.clocks import EXACT_S, NEAR_S
from scheduler.model.kubernetes import Pod
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # as Kubernetes writes times
OF_A_BIND = {names.JOB_ID, names.JOB_NODES, names.SIZE, names.RANK, names.LOCAL_RANK}


def shown_id(pod: Pod) -> int | None:
    """The job id in the annotations of the pod; None: the annotation is missing, or its value is not an id."""
    return shown_number(pod.annotations.get(names.JOB_ID))


def shown_number(value: str | None) -> int | None:
    """The number that an annotation shows; None: the annotation is missing, or its value is no number of up to 10 digits."""
    return int(value) if value and value.isascii() and value.isdecimal() and len(value) <= 10 else None


def names_no_other(pod: Pod, job: Placeholder) -> bool:
    """True unless the annotations of the pod name another job.

    A pod without the annotation may be of this job: the bind was not observed yet, or another client removed the annotation.
    """
    return pod.annotations.get(names.JOB_ID, str(job.id)) == str(job.id)


def pods_of_job(workload: Workload, job: Placeholder) -> list[Pod]:
    """The present and deleted pods of the workload that ran or wait for this job, without pods of other jobs of the gang."""
    every = (*workload.pods.values(), *(gone.pod for gone in workload.deleted_pods.values()))
    return [pod for pod in every if names_no_other(pod, job)]


def has_bind_annotations(pod: Pod) -> bool:
    """True if the pod has every annotation that a bind of the bridge writes; another client may write one of them."""
    return pod.annotations.keys() >= OF_A_BIND


def is_bound_for(pod: Pod, job_id: int) -> bool:
    """True if the pod is on a node and shows the job's id with every annotation of a bind (`has_bind_annotations`)."""
    return bool(pod.node) and shown_id(pod) == job_id and has_bind_annotations(pod)


def names_job(pod: Pod, job: Placeholder, world: World) -> bool:
    """True if the annotations of the bound pod name this job: by its id, and by a time if the job replaced a lost job.

    The time is `job-since`: Slurm had the job at this time.  A replacement may have the id of the job that Slurm lost.
    """
    if shown_id(pod) != job.id and names.JOB_ID in pod.annotations:
        return False
    since, submitted = _job_since(pod), job.job.submitted if job.job is not None else None
    if since is not None:
        if submitted is None:
            return job.asked_at is None or since >= world.clocks[Side.SLURM].theirs(job.asked_at)
        return submitted <= since <= submitted + NEAR_S
    if job.spec is not None and job.spec.required_nodes:  # a replacement by this process (reacquire.py)
        return False
    return submitted is None or may_be_its_job(world, pod, submitted)


def may_be_its_job(world: World, pod: Pod, submitted: float) -> bool:
    """True if the pod may be bound for a job that was submitted at *submitted* (epoch seconds by Slurm's clock)."""
    if (since := _job_since(pod)) is not None:
        return submitted <= since
    started = world.started_at(pod)
    return started is None or started >= world.clocks[Side.SLURM].ours(submitted) - inexact_s(world)


def _job_since(pod: Pod) -> float | None:
    """The annotation `job-since` in epoch seconds, by Slurm's clock; None: it is missing, or is no time."""
    if (shown := pod.annotations.get(names.JOB_SINCE)) is None:
        return None
    try:
        return datetime.strptime(shown, TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def inexact_s(world: World) -> float:
    """By how many seconds times of two clocks about one moment may differ; 0 if no offset of a clock is known.

    Clocks are shown in whole seconds, so their offsets are not exact.
    """
    return EXACT_S if any(clock.ahead for clock in world.clocks.values()) else 0.0
