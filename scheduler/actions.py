"""The verbs: what the core asks the bridge to do, each with its reason in words a user understands.

An action names everything its performer needs; the performer (`bridge/executor.py`) reads no world.  How it ended comes
back as `events.ActionEnded`, with one of four outcomes: the question is always "did it happen?".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from scheduler.model.kubernetes import OwnerKey, OwnerRef
from scheduler.model.slurm import JobSpec, NodeSpec, SlurmNode


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
    """`POST job/allocate` with `immediate`: nodes now or not at all; then the grant is read (`resources/{id}`)."""

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
    """`GET job/{id}` and, where it is ours and holds nodes, `resources/{id}`.

    grant  what it holds is to be read, too
    lane   the ration it comes out of: "check" (none: something waits for it), "missing" (X6), "detail" (Q2), "running" (S9),
           "unknown" (ARCHITECTURE 4)
    """

    job_id: int
    reason: str
    key: str = ""
    limit_class: str = "check"
    grant: bool = True


@dataclass(frozen=True, slots=True)
class FindJobs:
    """Look in slurmdb for live jobs of exactly this name; where there is no slurmdb the answer is "none found"."""

    key: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """`POST job/{id}` as the tenant: the named fields of `changes` (fields of JobSpec) get their new values.

    spec        of the whole job
    component   which one is changed: 0 the job itself, then as in `spec.parts`; component_id: that one's own id
    """

    key: str
    job_id: int
    user: str
    spec: JobSpec
    changes: frozenset[str]
    reason: str
    component: int = 0
    component_id: int | None = None


@dataclass(frozen=True, slots=True)
class NudgeScheduler:
    """A job update without any field, so that slurmctld looks at its queue now (ARCHITECTURE 5)."""

    key: str
    job_id: int
    user: str
    reason: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    """The job of that id and that name, as the tenant: an id given out again never ends somebody else's job (V6).

    record   how its pods ended, for accounting (S2); "": nothing to record
    told     what its pods are told once it has ended; "": nothing
    """

    key: str
    job_id: int
    name: str
    user: str
    reason: str
    record: str = ""
    told: str = ""


@dataclass(frozen=True, slots=True)
class RecordEnd:
    """Tell Slurm accounting how the pods ended: derived exit code and "ns/name: reason" (S2)."""

    key: str
    job_id: int
    user: str
    exit_code: int
    comment: str
    reason: str


@dataclass(frozen=True, slots=True)
class BindPod:
    """One write: the binding carries the pod's uid and the annotations of K.

    created, asked, granted   epoch seconds, for metrics and the trace; None: not known in this life, nor told by Slurm
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
    asked: float | None = None
    granted: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Condition DisruptionTarget with the reason, then delete with grace and the uid as precondition (S4).

    grace_s   None: the pod's own
    """

    key: str
    uid: str
    namespace: str
    name: str
    reason: str
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class FailByDeadline:
    """Condition DisruptionTarget, then activeDeadlineSeconds = 1: kubelet fails the pod, whose logs stay (S4).

    counts   no disruption: the time ran out, or the pod never started; a backoff limit counts such an end (S4b, S12)
    """

    key: str
    uid: str
    namespace: str
    name: str
    reason: str
    counts: bool = False


@dataclass(frozen=True, slots=True)
class SetDeadline:
    """activeDeadlineSeconds, counted from the pod's startTime: kubelet ends the pod before Slurm ends its job (S4b)."""

    key: str
    uid: str
    namespace: str
    name: str
    seconds: int
    reason: str


@dataclass(frozen=True, slots=True)
class EvictPod:
    """The Eviction API, which a PodDisruptionBudget may refuse: there is time left to ask again (S4b)."""

    key: str
    uid: str
    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class SetJobCondition:
    """Say it on a bound pod: condition names.RUNNING_CONDITION, and an event with the same sentence (S5, S6, S9, S12).

    condition   the condition's reason, and the event's
    runs        its status: whether the job runs
    essence     what of the sentence matters when the next one is compared with it
    """

    key: str
    uid: str
    namespace: str
    name: str
    condition: str
    message: str
    runs: bool = True
    warning: bool = False
    essence: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Its reason is what it says."""
        return self.message


@dataclass(frozen=True, slots=True)
class SetPodCondition:
    """Say it on the pod: its PodScheduled=False condition, and an event with the same sentence (O1, Q2).

    condition   the condition's reason; "": the event alone
    event       the event's reason; "": the condition alone
    essence     what of the sentence matters when the next one is compared with it
    starts      the expected start it names, epoch seconds
    annotations  to write on the bound pod, too, if another job took the place of its own (S7); None: nothing
    """

    key: str
    uid: str
    namespace: str
    name: str
    condition: str
    message: str
    event: str = ""
    warning: bool = False
    essence: tuple[str, ...] = ()
    starts: float | None = None
    annotations: Mapping[str, str] | None = None

    @property
    def reason(self) -> str:
        """Its reason is what it says."""
        return self.message


@dataclass(frozen=True, slots=True)
class RestoreKeys:
    """Write annotations of a bound pod back that only the bridge writes, and that somebody else changed (K5).

    annotations   by key; None: takes it away
    say           as an event, too
    """

    key: str
    uid: str
    namespace: str
    name: str
    annotations: Mapping[str, str | None]
    reason: str
    say: bool = False


@dataclass(frozen=True, slots=True)
class ReadOwner:
    """Read a controller's annotations (and, of a batch Job, its activeDeadlineSeconds); cached by the world.

    key   the workload that looks again when the read ended; "": those that wait for this owner
    """

    namespace: str
    ref: OwnerRef
    reason: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class ReadClaims:
    """Read a pod's persistent volume claims and their volumes' node affinity (F1)."""

    key: str
    uid: str
    namespace: str
    claims: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SelectVolumeNode:
    """Tell claims that wait for their first consumer on which node it will be, and read them again (F4)."""

    key: str
    uid: str
    namespace: str
    claims: tuple[str, ...]
    waiting: tuple[str, ...]
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReadPod:
    """`GET` of one pod: on which node does it stand?  Asked after a bind whose answer was lost."""

    key: str
    uid: str
    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class PollNodes:
    """Ask Slurm for its nodes and partitions now (a node was unknown: Slurm error 2018)."""

    reason: str


class NodeChange(Enum):
    """What is done to a node of Slurm: no more jobs; jobs again; it is dead (its jobs fail for good)."""

    DRAIN = "DRAIN"
    RESUME = "RESUME"
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True)
class RegisterNode:
    """`POST new/node`: an external node, with its mark among its features (N1)."""

    spec: NodeSpec
    reason: str

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class ChangeNode:
    """`POST node/{name}`, where the node still is as it was when that was decided (`as_found`).

    reason  for DRAIN and DOWN Slurm keeps it, and whose drain it is shows by how it begins (N2)
    """

    name: str
    change: NodeChange
    reason: str
    found: SlurmNode = field(compare=False)


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """`DELETE node/{name}`, as `ChangeNode`; Slurm refuses it of a node that is busy, or in slurm.conf."""

    name: str
    reason: str
    found: SlurmNode = field(compare=False)


def as_found(action: ChangeNode | RemoveNode, now: SlurmNode) -> bool:
    """Whether nobody has drained, set down or resumed the node since: an admin's word is not overwritten (N2)."""
    was = action.found
    return (now.reason, now.taken_out) == (was.reason, was.taken_out)


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """`GET reconfigure`: brings back external nodes that a signal left NOT_RESPONDING (N3)."""

    reason: str


@dataclass(frozen=True, slots=True)
class SetNodeCondition:
    """Say on a Kubernetes node how Slurm sees it: the bridge's condition, and an event with the same sentence (N3).

    turns   the status is another than before, not only the reason
    """

    node: str
    uid: str
    status: bool
    condition: str
    message: str
    warning: bool = False
    turns: bool = True

    @property
    def reason(self) -> str:
        """Its reason is what it says."""
        return self.message


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Keep other schedulers away from a Kubernetes node (N7)."""

    node: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseNode:
    """Take the bridge's taint and condition from a Kubernetes node that is no longer in Slurm."""

    node: str
    uid: str
    reason: str


# Which actions share a limit of how many are under way (Tuning); the others are rationed or rare.
LIMIT_CLASSES: Mapping[type, str] = {
    AllocateNow: "submits",
    SubmitJob: "submits",
    ReadJob: "reads",
    FindJobs: "reads",
    CancelJob: "cancels",
    UpdateJob: "cancels",
    RecordEnd: "records",
    BindPod: "binds",
    DeletePod: "binds",
    FailByDeadline: "binds",
    SetDeadline: "binds",
    EvictPod: "binds",
    SetJobCondition: "reports",
    RestoreKeys: "reports",
    SetPodCondition: "reports",
    ReadOwner: "reads",
    ReadClaims: "reads",
    SelectVolumeNode: "reads",
    ReadPod: "reads",
    RegisterNode: "node_changes",
    ChangeNode: "node_changes",
    RemoveNode: "node_changes",
    SetNodeCondition: "node_reports",
    TaintNode: "node_reports",
    ReleaseNode: "node_reports",
}

# What changes something of a workload in one of the two clusters.
CHANGES = (
    AllocateNow,
    SubmitJob,
    UpdateJob,
    CancelJob,
    RecordEnd,
    BindPod,
    DeletePod,
    FailByDeadline,
    SetDeadline,
    EvictPod,
    RestoreKeys,
    SelectVolumeNode,
)

OnSlurmNode = RegisterNode | ChangeNode | RemoveNode
OnKubernetesNode = SetNodeCondition | TaintNode | ReleaseNode

Action = (
    AllocateNow
    | SubmitJob
    | ReadJob
    | FindJobs
    | UpdateJob
    | NudgeScheduler
    | CancelJob
    | RecordEnd
    | BindPod
    | DeletePod
    | FailByDeadline
    | SetDeadline
    | EvictPod
    | SetJobCondition
    | SetPodCondition
    | RestoreKeys
    | ReadOwner
    | ReadClaims
    | SelectVolumeNode
    | ReadPod
    | PollNodes
    | RegisterNode
    | ChangeNode
    | RemoveNode
    | Reconfigure
    | SetNodeCondition
    | TaintNode
    | ReleaseNode
)


class Kind(Enum):
    """What an error of the bridge's own is contained to (quarantine.py), and what its name is.

    WORKLOAD  key of the workload
    POD       UID of another scheduler's pod
    NODE      Slurm's name of the node
    JOB       id of a Slurm job that belongs to no workload here
    SHARED    something done for all objects together, in words
    """

    WORKLOAD = "workload"
    POD = "pod"
    NODE = "node"
    JOB = "job"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pass decided.

    actions    in the order they are to be started
    looked_at  keys of the workloads that were visited: their marks are cleared
    deferred   keys of those that were to be visited, and were too many for one pass: they stay marked
    turns      how many turns each namespace has had since passes are too short for all
    heard      the workloads that changes of others' anti-affinity concern are among these
    wake       workload key to the time at which it wants to be looked at again though nothing happened
    parked     lane or ration to the keys that wanted to act while it was full or used up; they come first when it is not
    forgotten  keys of workloads of which nothing is left
    awaited    workload key to the owner whose annotations it waits for
    excluded   workload key to the Slurm node on which its grant could not be used (F6)
    left_out   workload key to the Slurm nodes that it does not ask for from now on (crowding.py)
    written_off  (workload key, pod UID) of pods of a former job that count as over, because their node is dead (S8)
    settled    keys of the large groups whose members are found anew (membership.py)
    kept       Slurm names of the nodes that were looked at: their marks are cleared
    failed     rules that raised, and about what: nothing is planned for that (quarantine.py)
    lifted     what is in quarantine no more
    retried    what was dropped, and is to be made anew
    wake_at    when the loop has to look again though nothing happened; None: never
    """

    actions: tuple[Action, ...] = ()
    looked_at: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    heard: bool = False
    turns: Mapping[str, int] = field(default_factory=dict)
    wake: Mapping[str, float] = field(default_factory=dict)
    parked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forgotten: tuple[str, ...] = ()
    awaited: Mapping[str, OwnerKey] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, frozenset[str]] = field(default_factory=dict)
    written_off: tuple[tuple[str, str], ...] = ()
    settled: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    failed: tuple[tuple[Kind, str, Exception], ...] = ()
    lifted: tuple[tuple[Kind, str], ...] = ()
    retried: tuple[tuple[Kind, str], ...] = ()
    wake_at: float | None = None
