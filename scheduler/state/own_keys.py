"""Annotations of bound pods that only the bridge writes (K5).

Programs in the pod and device drivers go by these annotations, so an edit by anybody else is written back.  The right value
is the one that the bridge wrote last: with the bind, or, of `job-id` and `job-since`, when another job took the place of a
lost one (reacquire.show).  While the pod is bound that is the value before the first edit; an edit that was made while no
bridge ran is not noticed, except for the job id, which the job itself proves or disproves (reacquire.show).

A controller may write the same edit again and again.  So each put-back of one pod waits twice as long as the one before, and
only the first gets an event.
"""

from __future__ import annotations

from datetime import UTC, datetime

from scheduler import names
from scheduler.events import Side
from scheduler.model.clocks import EXACT_S, NEAR_S
from scheduler.model.kubernetes import Pod
from scheduler.state.workload import Edited, Placeholder, Workload
from scheduler.state.world import World

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # as Kubernetes writes times


def note_edits(workload: Workload, before: Pod | None, pod: Pod) -> None:
    """Note the right value of each key that another client changed; forget keys that are right again.

    before   the same pod as it was seen last, or None
    """
    known = workload.edited.get(pod.uid)
    bind = workload.unconfirmed_binds.pop(pod.uid, None) if pod.node else None
    if bind is not None and bind.node == pod.node:
        shown = {key: bind.annotations.get(key) for key in names.ONLY_OURS if key in pod.annotations}
    elif before is not None and before.node and before.annotations != pod.annotations:
        shown = {key: before.annotations.get(key) for key in names.ONLY_OURS}
        shown |= (known.right if known else {}) | dict(workload.renewed.get(pod.uid, {}))
    else:
        return
    right = {key: value for key, value in shown.items() if pod.annotations.get(key) != value}
    if names.JOB_ID in right and pod.annotations.get(names.JOB_ID) == str(workload.hint):
        del right[names.JOB_ID]  # another life wrote that the pods have another job since (reacquire.show)
        right.pop(names.JOB_SINCE, None)
    if known is not None:
        known.right = right
    elif right:
        workload.edited[pod.uid] = Edited(right)


def own_annotation(workload: Workload, pod: Pod, key: str) -> str | None:
    """The value that the bind wrote there, or is about to write; None: no value."""
    if (bind := workload.unconfirmed_binds.get(pod.uid)) is not None:
        return bind.annotations.get(key)
    edited = workload.edited.get(pod.uid)
    return edited.right[key] if edited is not None and key in edited.right else pod.annotations.get(key)


def shown_id(pod: Pod) -> int | None:
    """The job id that the annotations of the pod name; None: none, or what is there is no id."""
    shown = pod.annotations.get(names.JOB_ID, "")
    return int(shown) if shown.isascii() and shown.isdecimal() and len(shown) <= 10 else None


def names_job(pod: Pod, job: Placeholder, world: World) -> bool:
    """True if the annotations of the bound pod name this job: its id and, of a replacement, a time at which Slurm had it.

    A replacement may have the id of the job that Slurm lost.
    """
    if shown_id(pod) != job.id and names.JOB_ID in pod.annotations:
        return False
    since, submitted = _job_since(pod), job.job.submitted if job.job is not None else None
    if since is not None:
        return submitted is None or submitted <= since <= submitted + NEAR_S
    if job.spec is not None and job.spec.required_nodes:  # this life asked for it in place of another (reacquire.py)
        return False
    return submitted is None or may_be_its_job(world, pod, submitted)


def may_be_its_job(world: World, pod: Pod, submitted: float) -> bool:
    """True if the bound pod may name a job that was submitted then.  submitted: epoch seconds by Slurm's clock"""
    if (since := _job_since(pod)) is not None:
        return submitted <= since
    started = world.started_at(pod)
    return started is None or started >= world.clocks[Side.SLURM].ours(submitted) - inexact_s(world)


def _job_since(pod: Pod) -> float | None:
    """The annotation `job-since` in epoch seconds, by Slurm's clock; None if it is missing or no time."""
    if (shown := pod.annotations.get(names.JOB_SINCE)) is None:
        return None
    try:
        return datetime.strptime(shown, TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def inexact_s(world: World) -> float:
    """The difference of two clocks about one moment, in seconds, because each shows its time in whole seconds."""
    return EXACT_S if any(clock.ahead for clock in world.clocks.values()) else 0.0
