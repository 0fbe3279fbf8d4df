"""Records of single pods: what the World remembers of a pod in addition to what Kubernetes shows."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler import names
from scheduler.actions import SetJobCondition, SetPodCondition
from scheduler.model.kubernetes import Pod
from scheduler.tuning import Tuning

MOST_BOUND_BY_OTHERS = 16  # binds by other clients that are remembered
# The conditions that the bridge sets, as subjects of a status.
ITS_PLACE, ITS_JOB = "PodScheduled", names.RUNNING_CONDITION


@dataclass(slots=True)
class LastStatus:
    """The status that was last set on a pod about one subject (`subject_of`).

    essence     the parts of the message in which a difference counts as a change (Q2)
    is_first    it is the first status about a job in Slurm's queue; Slurm often corrects its first reason within seconds
    failures    how many writes about this subject failed in a row
    """

    condition: str
    message: str
    essence: tuple[str, ...] = ()
    starts: float | None = None
    at: float = float("-inf")
    event_at: float = float("-inf")
    is_first: bool = False
    failures: int = 0


def subject_of(action: SetPodCondition | SetJobCondition) -> str:
    """What the status is about: ITS_PLACE, ITS_JOB, or the reason of its event if it sets no condition.

    Statuses about different subjects do not replace one another: that a pod's job was replaced, and that this job ends soon,
    are both true.
    """
    if isinstance(action, SetJobCondition):
        return ITS_JOB
    return ITS_PLACE if action.condition else action.event


@dataclass(slots=True)
class Edited:
    """Annotations of one bound pod that only the bridge writes, and that another client changed (own_keys.py).

    right      key to the right value, for keys with another value on the pod; None: the key must not be there
    put_back   how often the values were written back
    next_at    the values are not written back before this time, epoch seconds
    under_way  a write is in flight
    """

    right: dict[str, str | None]
    put_back: int = 0
    next_at: float = float("-inf")
    under_way: bool = False


@dataclass(slots=True)
class DeletedPod:
    """A deleted pod: its last state, when it was deleted, and until when its containers may still run (S3)."""

    pod: Pod
    at: float
    until: float


def deleted_pod(pod: Pod, at: float, tuning: Tuning, *, was_on_node: bool) -> DeletedPod:
    """The record of a pod that is gone since *at*.  Its containers may still run if it was on a node and had not ended."""
    may_run = was_on_node and (pod.outlives_phase or not pod.finished)
    return DeletedPod(pod, at, at + tuning.grace_counts_s(pod.grace_s) + tuning.gone_grace_s if may_run else at)


@dataclass(frozen=True, slots=True)
class BoundByOther:
    """Another client bound a pod of a workload, and the pod names a job.

    at    when the bridge saw the bind
    pod   the full name of the pod
    key   the key of the workload
    """

    at: float
    pod: str
    key: str
    job_id: int
