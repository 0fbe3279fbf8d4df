"""The verbs: what the core asks the bridge to do, each with its reason in words a user understands.

An action names everything its performer needs; the performer (`bridge/executor.py`) reads no world.  How it ended comes
back as `events.ActionEnded`, with one of four outcomes: the question is always "did it happen?".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from scheduler.model import NO_TEXT, JobSpec, OwnerRef


class Outcome(Enum):
    """Did it happen?

    DONE         yes, and it was seen to
    REFUSED      no: the other side said so, nothing changed there
    UNREACHED    no: nothing was sent
    UNKNOWN      it was sent and no believable answer came: it may have happened, or may yet
    """

    DONE = "done"
    REFUSED = "refused"
    UNREACHED = "unreached"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AllocateNow:
    """`POST job/allocate` with `immediate`: nodes now or not at all; then what was granted is read (`resources/{id}`)."""

    key: str
    spec: JobSpec
    reason: str


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """`POST job/submit`: stand in Slurm's queue."""

    key: str
    spec: JobSpec
    reason: str


@dataclass(frozen=True, slots=True)
class ReadJob:
    """`GET job/{id}` and, where it is ours and holds nodes, `resources/{id}`."""

    job_id: int
    reason: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class FindJobs:
    """Look in slurmdb for live jobs of exactly this name; where there is no slurmdb the answer is "none found"."""

    key: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """`POST job/{id}` as the tenant: the named fields of `changes` (fields of JobSpec) get their new values."""

    key: str
    job_id: int
    user: str
    spec: JobSpec
    changes: frozenset[str]
    reason: str


@dataclass(frozen=True, slots=True)
class Kick:
    """A job update that changes nothing, so that slurmctld looks at its queue now (ARCHITECTURE 5)."""

    key: str
    job_id: int
    user: str
    comment: str
    reason: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    """`DELETE job/{id}` as the tenant, so that an id given out again never ends somebody else's job (V6)."""

    key: str
    job_id: int
    user: str
    reason: str


@dataclass(frozen=True, slots=True)
class RecordEnd:
    """Tell Slurm accounting how the pods ended: derived exit code and "ns/name: reason" (S2)."""

    key: str
    job_id: int
    exit_code: int
    comment: str
    reason: str


@dataclass(frozen=True, slots=True)
class BindPod:
    """One write: the binding carries the pod's uid and the annotations of K.

    created, granted   epoch seconds, for the metrics create→bind and grant→bind; granted None: not known
    """

    key: str
    uid: str
    namespace: str
    name: str
    node: str
    job_id: int
    annotations: Mapping[str, str]
    reason: str
    created: float = 0.0
    granted: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Condition DisruptionTarget with the reason, then delete with the pod's own grace and its uid as precondition (S4)."""

    key: str
    uid: str
    namespace: str
    name: str
    reason: str
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class EndByDeadline:
    """Condition DisruptionTarget, then activeDeadlineSeconds = 1: kubelet fails the pod and keeps its object and logs (S4)."""

    key: str
    uid: str
    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Say it on the pod: its PodScheduled=False condition and, where `event` is not empty, an event with the same sentence (O1, Q2).

    condition   "" : the event alone
    event       the event's reason; "": the condition alone
    """

    key: str
    uid: str
    namespace: str
    name: str
    condition: str
    message: str
    event: str = ""
    warning: bool = False

    @property
    def reason(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class ReadOwner:
    """Read a controller's annotations (and, of a batch Job, its activeDeadlineSeconds); cached by the world."""

    namespace: str
    ref: OwnerRef
    reason: str


@dataclass(frozen=True, slots=True)
class ReadClaims:
    """Read a pod's persistent volume claims and their volumes' node affinity (F1)."""

    key: str
    uid: str
    namespace: str
    claims: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ReadPod:
    """Read the one pod after a bind or an eviction whose answer was lost."""

    key: str
    uid: str
    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class PollNodes:
    """Ask Slurm for its nodes and partitions now (a node was unknown: Slurm error 2018)."""

    reason: str


Action = (
    AllocateNow
    | SubmitJob
    | ReadJob
    | FindJobs
    | UpdateJob
    | Kick
    | CancelJob
    | RecordEnd
    | BindPod
    | EvictPod
    | EndByDeadline
    | Report
    | ReadOwner
    | ReadClaims
    | ReadPod
    | PollNodes
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pass decided.

    actions    in the order they are to be started
    looked_at  keys of the workloads that were visited: their marks are cleared
    wake       workload key to the time at which it wants to be looked at again though nothing happened
    parked     keys that wanted to submit while no slot was free; they come first when one is
    """

    actions: tuple[Action, ...] = ()
    looked_at: tuple[str, ...] = ()
    wake: Mapping[str, float] = field(default_factory=dict)
    parked: tuple[str, ...] = ()
    wake_at: float | None = None
    notes: Mapping[str, str] = NO_TEXT
