"""When each step of a workload began and ended, by the bridge's clock.

Both clusters show most times in whole seconds, by clocks of their own.  Three rules make the steps add up to the whole, even
if two processes of the bridge each send a part of them:

* A step begins when the step before it ends.  Times that are out of order are moved, so no step has a negative duration.
* A creation counts as the begin of its second; the start and the end of containers count as the end of their second.
* Offsets of clocks are rounded to whole seconds, so each process gets the same offset.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from scheduler.events import Side
from scheduler.model.kubernetes import Pod
from scheduler.state.placeholder import Placeholder
from scheduler.state.world import World

_KUBERNETES, _SLURM = Side.KUBERNETES, Side.SLURM  # looked up once, as in recorder.py


class Clocks(NamedTuple):
    """The offsets of both clusters' clocks: how many seconds each is ahead of the bridge's clock.

    The methods convert times of the clusters to the bridge's clock.
    """

    kubernetes: int
    slurm: int

    def created(self, pod: Pod) -> float:
        """When the pod was created: the begin of the second that Kubernetes shows."""
        return pod.created - self.kubernetes

    def begin(self, theirs: float) -> float:
        """The begin of a second that Kubernetes shows."""
        return theirs - self.kubernetes

    def end(self, theirs: float) -> float:
        """The end of a second that Kubernetes shows."""
        return math.floor(theirs) + 1.0 - self.kubernetes

    def of_slurm(self, theirs: float) -> float:
        """The begin of a second that slurmctld shows."""
        return theirs - self.slurm


def clocks_of(world: World) -> Clocks:
    """The offsets as they are known now."""
    return Clocks(round(world.clocks[_KUBERNETES].ahead), round(world.clocks[_SLURM].ahead))


class Queued(NamedTuple):
    """The times of the steps that all pods of a workload have in common, epoch seconds.

    created   the first pod was created
    seen      the bridge saw the first pod
    gathered  the bridge saw the last pod
    asked     the job was submitted
    granted   the bridge saw the grant
    """

    created: float
    seen: float
    gathered: float
    asked: float
    granted: float


def queued(
    clocks: Clocks, pods: Collection[Pod], first_seen: Mapping[str, float], asked: float, granted: float
) -> Queued:
    """The times of the common steps, moved where they are out of order.

    first_seen   pod UID to when this process first saw the pod; without an entry the pod counts as seen at its creation
    """
    created = seen = math.inf
    gathered = -math.inf if pods else asked
    for pod in pods:
        made = clocks.created(pod)
        at = max(made, first_seen.get(pod.uid, made))
        created, seen, gathered = min(created, made), min(seen, at), max(gathered, at)
    asked = max(gathered, asked)
    return Queued(min(created, asked), min(seen, asked), gathered, asked, max(asked, granted))


def asked_at(job: Placeholder, clocks: Clocks) -> float | None:
    """When the job was submitted, by any process; None: not known."""
    if job.asked_at is not None:
        return job.asked_at
    return clocks.of_slurm(job.job.submitted) if job.job is not None and job.job.submitted is not None else None


def granted_at(job: Placeholder, clocks: Clocks, since: float) -> float | None:
    """When the job got its nodes; None: not known.

    since   if the job had its nodes before this time, Slurm's start time counts; otherwise when this process saw the grant
    """
    started = clocks.of_slurm(job.job.starts) if job.job is not None and job.job.starts is not None else None
    if started is not None and job.holds_nodes and started < since - 1.0:
        return started
    return job.granted_at


def running_at(pod: Pod, clocks: Clocks) -> float | None:
    """When the first container of the pod started; None: not known.

    A simulated kubelet may show no containers; then the time counts at which kubelet accepted the pod.
    """
    began = pod.times.running if pod.times.running is not None else pod.started
    return clocks.end(began) if began is not None else None


def ended_at(pod: Pod, clocks: Clocks, seen: float) -> float:
    """When the last container of the pod ended, at the latest when the bridge saw it."""
    return min(clocks.end(pod.times.ended), seen) if pod.times.ended is not None else seen
