"""Actions: what the scheduler asks the bridge to do, each with its reason in words that a user understands.

An action carries all data that its performer needs; the performer (`bridge/executor.py`) does not read the World.  The result
comes back as `events.ActionEnded`, with one of four outcomes, which answer "did it happen?".

Each class makes the declarations of `_ActionKind`.  Limits, logs and the other tables derive from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, get_args

from scheduler.model.kubernetes import OwnerKey, OwnerRef
from scheduler.model.left_out import LeavesOut
from scheduler.model.limits import LimitsOf
from scheduler.model.slurm import JobSpec, NodeSpec, SlurmNode


class Outcome(Enum):
    """Did it happen?

    DONE         yes: the other side confirmed it
    REFUSED      no: the other side refused, and nothing changed there
    UNREACHED    no: nothing was sent
    UNKNOWN      it was sent and no credible answer came: it may have happened, or may happen yet
    """

    DONE = "done"
    REFUSED = "refused"
    UNREACHED = "unreached"
    UNKNOWN = "unknown"


class Effect(Enum):
    """The kind of change that an action makes.

    NOTHING   nothing: it reads, or makes slurmctld run a scheduling pass
    WORKLOAD  one workload: its job, its pods, its volumes
    STATUS    a condition of a pod, or an event about it
    NODE      a node, in Slurm or in Kubernetes
    SLURM     slurmctld as a whole
    """

    NOTHING = "nothing"
    WORKLOAD = "workload"
    STATUS = "status"
    NODE = "node"
    SLURM = "slurm"


class _ActionKind:
    """The declarations of each action class.

    limit_class  the field of Tuning that limits how many such actions are in flight; "": no limit, because they are rare
                 or take a token of a bucket
    effect       what such an action changes
    urgent       pods wait for it, so Kubernetes events are posted later (O1)

    Each action class also has the property `subject`: the object that the action is about, for a log line.
    """

    __slots__ = ()
    limit_class: ClassVar[str]
    effect: ClassVar[Effect]
    urgent: ClassVar[bool]


class _AboutSubmission(_ActionKind):
    __slots__ = ()
    spec: JobSpec

    @property
    def subject(self) -> str:
        return self.spec.name


class _AboutJob(_ActionKind):
    __slots__ = ()
    job_id: int

    @property
    def subject(self) -> str:
        return f"job {self.job_id}"


class _AboutPod(_ActionKind):
    __slots__ = ()
    namespace: str
    name: str

    @property
    def subject(self) -> str:
        return f"{self.namespace}/{self.name}"


class _AboutClaims(_ActionKind):
    __slots__ = ()
    namespace: str
    claims: tuple[str, ...]

    @property
    def subject(self) -> str:
        return f"{self.namespace}/{', '.join(self.claims)}"


class _AboutSlurm(_ActionKind):
    __slots__ = ()

    @property
    def subject(self) -> str:
        return "Slurm"


class _AboutSlurmNode(_ActionKind):
    __slots__ = ()
    name: str

    @property
    def subject(self) -> str:
        return f"Slurm node {self.name}"


class _AboutKubernetesNode(_ActionKind):
    __slots__ = ()
    node: str

    @property
    def subject(self) -> str:
        return f"node {self.node}"


@dataclass(frozen=True, slots=True)
class AllocateNow(_AboutSubmission):
    """`POST job/allocate` with `immediate`: nodes at once, or a refusal; then the grant is read (`resources/{id}`)."""

    limit_class: ClassVar = "submits"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = True

    key: str
    spec: JobSpec
    reason: str


@dataclass(frozen=True, slots=True)
class SubmitJob(_AboutSubmission):
    """`POST job/submit`: the job waits in Slurm's queue.

    components   of a heterogeneous job: the UIDs of the pods of each component; the request does not show them
    """

    limit_class: ClassVar = "submits"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = True

    key: str
    spec: JobSpec
    reason: str
    components: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ReadJob(_AboutJob):
    """`GET job/{id}` and, if the job may be ours and holds nodes, `resources/{id}`.

    grant   the grant is read, too
    bucket  the token bucket that the read takes a token from: "missing" (X6), "detail" (Q2), "running" (S9), "scan" and
            "unknown" (ARCHITECTURE 4); "check": none, because a workload waits for the answer
    """

    limit_class: ClassVar = "reads"
    effect: ClassVar = Effect.NOTHING
    urgent: ClassVar = False

    job_id: int
    reason: str
    key: str = ""
    bucket: str = "check"
    grant: bool = True


@dataclass(frozen=True, slots=True)
class FindJobs(_ActionKind):
    """Search slurmdbd for live jobs of exactly this name; without a slurmdbd no job is found."""

    limit_class: ClassVar = "reads"
    effect: ClassVar = Effect.NOTHING
    urgent: ClassVar = False

    key: str
    name: str
    reason: str

    @property
    def subject(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ReadLimits(_ActionKind):
    """Read from slurmdbd the limits on the jobs that `of` names (Q2).  key: the workload whose job they hold back"""

    limit_class: ClassVar = "reads"
    effect: ClassVar = Effect.NOTHING
    urgent: ClassVar = False

    key: str
    of: LimitsOf
    reason: str

    @property
    def subject(self) -> str:
        return "/".join(filter(None, self.of))


@dataclass(frozen=True, slots=True)
class UpdateJob(_AboutJob):
    """`POST job/{id}` as the tenant: the fields of the job that `changes` names (fields of JobSpec) get the values of `spec`.

    Without changes: slurmctld looks again at a job that it holds.

    spec          the specification of the whole job
    component     which component is changed: 0 is the job itself, then as in `spec.parts`
    component_id  the job id of that component
    """

    limit_class: ClassVar = "cancels"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = False

    key: str
    job_id: int
    user: str
    spec: JobSpec
    changes: frozenset[str]
    reason: str
    component: int = 0
    component_id: int | None = None


@dataclass(frozen=True, slots=True)
class NudgeScheduler(_AboutJob):
    """A job update without any field, after which slurmctld runs a scheduling pass (ARCHITECTURE 5)."""

    limit_class: ClassVar = ""
    effect: ClassVar = Effect.NOTHING
    urgent: ClassVar = False

    key: str
    job_id: int
    user: str
    reason: str


@dataclass(frozen=True, slots=True)
class CancelJob(_AboutJob):
    """End the job with that id and that name, as the tenant: another job with a reused id is not ended (V6).

    record   how the pods of the job ended, for accounting (S2); "": nothing to record
    pod_message  the message that the pods show once the job has ended; "": none
    """

    limit_class: ClassVar = "cancels"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = False

    key: str
    job_id: int
    name: str
    user: str
    reason: str
    record: str = ""
    pod_message: str = ""


@dataclass(frozen=True, slots=True)
class RecordEnd(_AboutJob):
    """Record in Slurm's accounting how the pods ended: derived exit code and "ns/name: reason" (S2)."""

    limit_class: ClassVar = "records"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = False

    key: str
    job_id: int
    user: str
    exit_code: int
    comment: str
    reason: str


@dataclass(frozen=True, slots=True)
class BindPod(_AboutPod):
    """Bind the pod to the node, in one write: the binding carries the pod's uid and the annotations of rules K.

    created, asked, granted   when the pod was created, the job submitted and granted, epoch seconds, for metrics and the
                              trace; None: before this process started, and Slurm does not say when
    message   of the event that announces the bind; "": the pod has not shown a wait, and the bind has no event (O1)
    """

    limit_class: ClassVar = "binds"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = True

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
class DeletePod(_AboutPod):
    """Condition DisruptionTarget with the reason, then a DELETE with grace and the uid as precondition (S4).

    grace_s   None: the pod's own
    bucket    the token bucket that the end takes a token from: "absent" (X6); "": none
    """

    limit_class: ClassVar = "binds"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = True

    key: str
    uid: str
    namespace: str
    name: str
    reason: str
    grace_s: int | None = None
    bucket: str = ""


@dataclass(frozen=True, slots=True)
class FailByDeadline(_AboutPod):
    """Condition DisruptionTarget, then activeDeadlineSeconds = 1: kubelet fails the pod, and its logs stay (S4).

    counts   a backoff limit counts the end as a failure: the time limit was reached, or the pod never started (S4b, S12).
             Then the condition is not set, because the end is no disruption
    bucket   as of DeletePod
    """

    limit_class: ClassVar = "binds"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = True

    key: str
    uid: str
    namespace: str
    name: str
    reason: str
    counts: bool = False
    bucket: str = ""


@dataclass(frozen=True, slots=True)
class SetDeadline(_AboutPod):
    """activeDeadlineSeconds, counted from the pod's startTime: kubelet ends the pod before Slurm ends its job (S4b)."""

    limit_class: ClassVar = "binds"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = False

    key: str
    uid: str
    namespace: str
    name: str
    seconds: int
    reason: str


@dataclass(frozen=True, slots=True)
class EvictPod(_AboutPod):
    """Evict the pod by the Eviction API, early enough to try again if a PodDisruptionBudget refuses it (S4b)."""

    limit_class: ClassVar = "binds"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = False

    key: str
    uid: str
    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class SetJobCondition(_AboutPod):
    """Set the condition names.RUNNING_CONDITION of a bound pod, with an event of the same message (S5, S6, S9, S12).

    condition   reason of the condition, and of the event
    runs        status of the condition: True while the job runs
    essence     the parts of the message that matter when it is compared with the next one
    """

    limit_class: ClassVar = "pod_conditions"
    effect: ClassVar = Effect.STATUS
    urgent: ClassVar = False

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
        """The message."""
        return self.message


@dataclass(frozen=True, slots=True)
class SetPodCondition(_AboutPod):
    """Set the pod's condition PodScheduled=False, with an event of the same message (O1, Q2).

    If the pod was changed since it was decided about, as by its bind, the API server refuses the condition: otherwise a late
    write would say of a running pod that it waits.

    condition    reason of the condition; "": only the event
    version      Pod.version of the pod that was decided about; "": the condition is set whatever changed
    event        reason of the event; "": only the condition
    essence      the parts of the message that matter when it is compared with the next one
    starts       the expected start that the message names, epoch seconds
    annotations  to write on the bound pod, too, after another job replaced its job (S7); None: none
    """

    limit_class: ClassVar = "pod_conditions"
    effect: ClassVar = Effect.STATUS
    urgent: ClassVar = False

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
    version: str = ""

    @property
    def reason(self) -> str:
        """The message."""
        return self.message


@dataclass(frozen=True, slots=True)
class RestoreKeys(_AboutPod):
    """Restore annotations of a bound pod that only the bridge writes, after another client changed them (K5).

    annotations   key to value; None: the key is removed
    say           also write an event
    """

    limit_class: ClassVar = "pod_conditions"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = False

    key: str
    uid: str
    namespace: str
    name: str
    annotations: Mapping[str, str | None]
    reason: str
    say: bool = False


@dataclass(frozen=True, slots=True)
class ReadOwner(_ActionKind):
    """Read a controller's annotations (and, of a batch Job, its activeDeadlineSeconds); the world keeps them.

    key   the workload to visit when the read has ended; "": all workloads that wait for this owner
    """

    limit_class: ClassVar = "reads"
    effect: ClassVar = Effect.NOTHING
    urgent: ClassVar = False

    namespace: str
    ref: OwnerRef
    reason: str
    key: str = ""

    @property
    def subject(self) -> str:
        return f"{self.ref.kind} {self.namespace}/{self.ref.name}"


@dataclass(frozen=True, slots=True)
class ReadClaims(_AboutClaims):
    """Read a pod's persistent volume claims and the node affinity of their volumes (F1)."""

    limit_class: ClassVar = "reads"
    effect: ClassVar = Effect.NOTHING
    urgent: ClassVar = False

    key: str
    uid: str
    namespace: str
    claims: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SelectVolumeNode(_AboutClaims):
    """Set the selected node of the claims in `waiting`, which wait for their first consumer; then read all claims (F4)."""

    limit_class: ClassVar = "reads"
    effect: ClassVar = Effect.WORKLOAD
    urgent: ClassVar = False

    key: str
    uid: str
    namespace: str
    claims: tuple[str, ...]
    waiting: tuple[str, ...]
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReadPod(_AboutPod):
    """Read one pod, to learn its node after the answer to a bind was lost."""

    limit_class: ClassVar = "reads"
    effect: ClassVar = Effect.NOTHING
    urgent: ClassVar = False

    key: str
    uid: str
    namespace: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class PollNodes(_AboutSlurm):
    """Poll Slurm's nodes and partitions now, for example after Slurm error 2018 (a node is unknown)."""

    limit_class: ClassVar = ""
    effect: ClassVar = Effect.NOTHING
    urgent: ClassVar = False

    reason: str


class NodeChange(Enum):
    """A change of a node of Slurm.

    DRAIN   it gets no more jobs
    RESUME  it gets jobs again
    DOWN    it counts as dead: its jobs fail
    """

    DRAIN = "DRAIN"
    RESUME = "RESUME"
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True)
class RegisterNode(_AboutSlurmNode):
    """`POST new/node`: an external node, with the mark of this cluster among its features (N1)."""

    limit_class: ClassVar = "node_changes"
    effect: ClassVar = Effect.NODE
    urgent: ClassVar = False

    spec: NodeSpec
    reason: str

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.spec.name


@dataclass(frozen=True, slots=True)
class ChangeNode(_AboutSlurmNode):
    """`POST node/{name}`, if the node is still as it was when the change was decided (`is_as_found`).

    reason  Slurm keeps it with DRAIN and DOWN; its first words show that the bridge drained the node (N2)
    """

    limit_class: ClassVar = "node_changes"
    effect: ClassVar = Effect.NODE
    urgent: ClassVar = False

    name: str
    change: NodeChange
    reason: str
    found: SlurmNode = field(compare=False)


@dataclass(frozen=True, slots=True)
class RemoveNode(_AboutSlurmNode):
    """`DELETE node/{name}`, if the node is `is_as_found`.  Slurm refuses it if the node is busy, or is in slurm.conf."""

    limit_class: ClassVar = "node_changes"
    effect: ClassVar = Effect.NODE
    urgent: ClassVar = False

    name: str
    reason: str
    found: SlurmNode = field(compare=False)


def is_as_found(action: ChangeNode | RemoveNode, now: SlurmNode) -> bool:
    """True if no admin drained, set down, resumed or rebooted the node since the decision, and it boots for no job (N2)."""
    was = action.found
    return (now.reason, now.taken_out, now.reboots, now.boots_for_a_job) == (
        was.reason,
        was.taken_out,
        was.reboots,
        was.boots_for_a_job,
    )


@dataclass(frozen=True, slots=True)
class Reconfigure(_AboutSlurm):
    """`GET reconfigure`: brings back external nodes that a signal left NOT_RESPONDING (N3)."""

    limit_class: ClassVar = ""
    effect: ClassVar = Effect.SLURM
    urgent: ClassVar = False

    reason: str


@dataclass(frozen=True, slots=True)
class SetNodeCondition(_AboutKubernetesNode):
    """Set the bridge's condition of a Kubernetes node, which shows the node's state in Slurm, with an event (N3).

    turns   the status changes, not only the reason
    """

    limit_class: ClassVar = "node_conditions"
    effect: ClassVar = Effect.NODE
    urgent: ClassVar = False

    node: str
    uid: str
    status: bool
    condition: str
    message: str
    warning: bool = False
    turns: bool = True

    @property
    def reason(self) -> str:
        """The message."""
        return self.message


@dataclass(frozen=True, slots=True)
class TaintNode(_AboutKubernetesNode):
    """Taint a Kubernetes node, so that other schedulers keep away from it (N7)."""

    limit_class: ClassVar = "node_conditions"
    effect: ClassVar = Effect.NODE
    urgent: ClassVar = False

    node: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnmarkNode(_AboutKubernetesNode):
    """Remove the bridge's taint and condition from a Kubernetes node that left Slurm."""

    limit_class: ClassVar = "node_conditions"
    effect: ClassVar = Effect.NODE
    urgent: ClassVar = False

    node: str
    uid: str
    reason: str


OnSlurmNode = RegisterNode | ChangeNode | RemoveNode
OnKubernetesNode = SetNodeCondition | TaintNode | UnmarkNode

Action = (
    AllocateNow
    | SubmitJob
    | ReadJob
    | FindJobs
    | ReadLimits
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
    | UnmarkNode
)

ACTIONS: tuple[type[Action], ...] = get_args(Action)
LIMIT_CLASSES: tuple[str, ...] = tuple(dict.fromkeys(kind.limit_class for kind in ACTIONS if kind.limit_class))


class ObjectKind(Enum):
    """The kind of an object in quarantine after an error of the bridge (quarantine.py), and what names the object.

    WORKLOAD  key of the workload
    POD       UID of another scheduler's pod
    NODE      Slurm's name of the node
    JOB       id of a Slurm job that belongs to no workload here
    SHARED    a step that is done for all objects together, in words
    """

    WORKLOAD = "workload"
    POD = "pod"
    NODE = "node"
    JOB = "job"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of one pass.

    actions    in the order in which they are started
    visited    keys of the workloads that were visited: their marks are cleared
    deferred   keys of the workloads that were left to the next pass, because this one was full: they stay marked
    anti_affinity_done  the visited or deferred workloads include all that a change of another pod's anti-affinity concerns
    turns      the number of turns of each namespace since the first pass that could not visit all marked workloads
    wake       workload key to the time of its next visit, epoch seconds, if no event comes before
    parked     limit to the keys of workloads that wait for it; these are visited first when it is free
    yielding   (limit, workload key) of these that wait although it has room: others may go before them
    forgotten  keys of workloads that have no pod, no live job and no action in flight
    awaited    workload key to the owner whose annotations it waits for
    excluded   workload key to the Slurm node on which its grant could not be used (F6)
    left_out   workload key to the nodes that it does not ask for from now on (crowding.py)
    written_off  (workload key, pod UID) of pods of a former job that count as over, because their node is dead (S8)
    adopted    ids of jobs of another process, and what their pods ask for, with which later edits are compared (K8)
    not_asked_for  keys of workloads, and their lost jobs for whose nodes no job can be submitted (S7)
    settled    keys of the large groups whose members are determined again (settling.py)
    visited_nodes  Slurm names of the nodes that were visited: their marks are cleared
    failed     rules that raised, and for which object: nothing is planned for that object (quarantine.py)
    lifted     objects that leave quarantine
    retried    objects that were dropped and are rebuilt
    wake_at    when the loop starts the next pass if no event comes before; None: it does not
    """

    actions: tuple[Action, ...] = ()
    visited: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    anti_affinity_done: bool = False
    turns: Mapping[str, int] = field(default_factory=dict)
    wake: Mapping[str, float] = field(default_factory=dict)
    parked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    yielding: frozenset[tuple[str, str]] = frozenset()
    forgotten: tuple[str, ...] = ()
    awaited: Mapping[str, OwnerKey] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, LeavesOut] = field(default_factory=dict)
    written_off: tuple[tuple[str, str], ...] = ()
    adopted: tuple[tuple[int, JobSpec], ...] = ()
    not_asked_for: tuple[tuple[str, int], ...] = ()
    settled: tuple[str, ...] = ()
    visited_nodes: tuple[str, ...] = ()
    failed: tuple[tuple[ObjectKind, str, Exception], ...] = ()
    lifted: tuple[tuple[ObjectKind, str], ...] = ()
    retried: tuple[tuple[ObjectKind, str], ...] = ()
    wake_at: float | None = None
