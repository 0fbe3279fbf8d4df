"""What the World remembers of single pods, beside what Kubernetes shows of them."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.kubernetes import Pod
from scheduler.tuning import Tuning

MOST_BOUND_BY_OTHERS = 16  # binds by other clients that are remembered


@dataclass(slots=True)
class LastStatus:
    """The status that was last set on a pod.

    essence     the parts of the message that count as a change (Q2)
    is_first    it is the first one about a job in Slurm's queue, whose first reason Slurm often corrects within seconds
    """

    condition: str
    message: str
    essence: tuple[str, ...] = ()
    starts: float | None = None
    at: float = float("-inf")
    event_at: float = float("-inf")
    is_first: bool = False


@dataclass(slots=True)
class Edited:
    """Annotations of one bound pod that only the bridge writes, and that another client changed (own_keys.py).

    right      the values that the bind wrote, by key, where the pod shows another; None: it wrote none
    put_back   how often they were written back; the next time not before next_at
    under_way  a write is in flight
    """

    right: dict[str, str | None]
    put_back: int = 0
    next_at: float = float("-inf")
    under_way: bool = False


@dataclass(slots=True)
class DeletedPod:
    """A deleted pod: its last state, and until when its containers may still run (S3)."""

    pod: Pod
    at: float
    until: float


def deleted_pod(pod: Pod, at: float, tuning: Tuning, *, was_on_node: bool) -> DeletedPod:
    """The record of a pod that is gone since *at*.  Its containers may still run if it was on a node and had not ended."""
    may_run = was_on_node and not pod.finished
    return DeletedPod(pod, at, at + tuning.grace_counts_s(pod.grace_s) + tuning.gone_grace_s if may_run else at)


@dataclass(frozen=True, slots=True)
class BoundByOther:
    """Another client bound a pod of that workload; the pod names that job since.  at: when the bridge saw this"""

    at: float
    pod: str
    key: str
    job_id: int
