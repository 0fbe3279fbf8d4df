"""The nouns of both clusters, as narrow as the decisions need them.

Every noun is frozen and compares by value, so "did anything change?" is `==`.  Nothing here knows JSON, HTTP or a
clock; the codecs in `bridge/kube` and `bridge/slurm` make these from what the servers send.

Amounts of Kubernetes resources are whole numbers in one unit a resource: `cpu` in millicores, everything else in its
base unit (bytes, counts).  What is asked for is rounded up, what a node offers is rounded down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Never

Amounts = Mapping[str, int]


class _Empty(Mapping[str, Never]):
    """No entries, and immutable: the default of a frozen noun (a dataclass of Python 3.11 takes no mapping proxy)."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Never:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def get(self, key: object, default: Any = None) -> Any:  # asked dozens of times a pod: Mapping's own tries first
        return default

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


EMPTY: Mapping[str, int] = _Empty()
NO_TEXT: Mapping[str, str] = _Empty()

# --- Kubernetes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod.  `sidecar`: an init container with restartPolicy Always, which keeps running."""

    name: str
    requests: Amounts = EMPTY
    limits: Amounts = EMPTY
    sidecar: bool = False


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The controller of an object (`metadata.ownerReferences[controller=true]`)."""

    api_version: str
    kind: str
    name: str
    uid: str


# Namespace and UID: a pod may name any UID as its owner's, also one of another namespace, whose annotations are not its own.
OwnerKey = tuple[str, str]


def owner_key(namespace: str, ref: OwnerRef) -> OwnerKey:
    """What an owner of pods of that namespace is remembered by."""
    return namespace, ref.uid


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a selector.

    operator  In, NotIn, Exists, DoesNotExist, Gt, Lt
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One term of a required node affinity: all its expressions must hold; terms are alternatives."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class PodTerm:
    """One term of a required pod (anti-)affinity on hostname: pods of these namespaces whose labels it selects."""

    expressions: tuple[Requirement, ...]
    namespaces: frozenset[str]


@dataclass(frozen=True, slots=True)
class Toleration:
    """As in the pod spec; an empty key with operator Exists tolerates everything, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class HostPort:
    port: int
    protocol: str = "TCP"
    address: str = ""


ALL_PORTS = HostPort(
    0
)  # of a pod that stands on a node and holds more ports than are counted: nobody else has one there


@dataclass(frozen=True, slots=True)
class Condition:
    """What a condition says: of a pod PodScheduled or our own, of a node the one that the bridge writes there (N3)."""

    status: bool
    reason: str = ""
    message: str = ""


class PodPhase(Enum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


_SUCCEEDED, _FAILED = PodPhase.SUCCEEDED, PodPhase.FAILED  # asked of every member of a gang, again and again


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, ours or another scheduler's.

    created         creationTimestamp, epoch seconds
    node            spec.nodeName; "" while unbound
    deleting_at     deletionTimestamp, epoch seconds: when its grace ends; None unless it is being deleted
    grace_s         deletionGracePeriodSeconds while it is being deleted (not by force: 0), else
                    terminationGracePeriodSeconds; not negative
    pod_group       spec.schedulingGroup.podGroupName (Kubernetes 1.36)
    priority_class  spec.priorityClassName
    gated           it has scheduling gates
    apart, beside   required pod anti-affinity, affinity, on hostname (F5)
    claims          names of the persistent volume claims it mounts
    refused_fields  demands of its spec that the bridge does not honour yet, each in words ("required pod affinity")
    too_much        what it has more of than the limits allow, in a sentence: of that only what others have to know is kept
    exit_code       the largest exit code of its ended containers (128 + signal where there is none); None: none ended
    end_reason      status.reason, else the reason of the container with that code ("OOMKilled", "Error", "Completed")
    active_deadline_s, handed_deadline_s  spec.activeDeadlineSeconds: the user's own, or the one that the bridge wrote (T7)
    bound_at        when PodScheduled became True, epoch seconds
    started         status.startTime, epoch seconds: when its kubelet took it over, from which deadlines count
    waits           why its containers do not start, as its kubelet says it ("container main: ImagePullBackOff"); "" where
                    one runs or ran; waits_since: not before that
    crashes         of a pod that started: which container kubelet starts again and again, and how it ended last; ""
    on_job          what the condition of names.RUNNING_CONDITION says
    """

    uid: str
    namespace: str
    name: str
    created: float = 0.0
    labels: Mapping[str, str] = NO_TEXT
    annotations: Mapping[str, str] = NO_TEXT
    owner: OwnerRef | None = None
    pod_group: str = ""
    scheduler_name: str = ""
    service_account: str = ""
    priority_class: str = ""
    node: str = ""
    phase: PodPhase = PodPhase.PENDING
    deleting_at: float | None = None
    grace_s: int = 30
    gated: bool = False
    restart_policy: str = "Always"
    active_deadline_s: int | None = None
    handed_deadline_s: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Amounts = EMPTY
    pod_requests: Amounts = EMPTY
    pod_limits: Amounts = EMPTY
    node_selector: Mapping[str, str] = NO_TEXT
    node_affinity: tuple[NodeTerm, ...] | None = None
    apart: tuple[PodTerm, ...] = ()
    beside: tuple[PodTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    refused_fields: tuple[str, ...] = ()
    scheduled: Condition | None = None
    disrupted: bool = False
    bound_at: float | None = None
    started: float | None = None
    waits: str = ""
    waits_since: float | None = None
    crashes: str = ""
    on_job: Condition | None = None
    exit_code: int | None = None
    end_reason: str = ""
    too_much: str = ""

    @property
    def finished(self) -> bool:
        return self.phase is _SUCCEEDED or self.phase is _FAILED

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Node:
    """A Kubernetes node.

    allocatable  includes `pods`
    ready_since  since when it has been ready, epoch seconds; None: it is not, or does not say
    silent_since  since when its kubelet has said nothing (Ready is Unknown), epoch seconds; None: it speaks
    address      its InternalIP; "": it has none
    partitions   what the admin's annotation says, as it stands there (K6)
    in_slurm     what the bridge wrote there of the node in Slurm; None: nothing
    """

    name: str
    labels: Mapping[str, str] = NO_TEXT
    ready: bool = True
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    allocatable: Amounts = EMPTY
    uid: str = ""
    ready_since: float | None = None
    silent_since: float | None = None
    address: str = ""
    partitions: str = ""
    in_slurm: Condition | None = None


@dataclass(frozen=True, slots=True)
class Undecoded:
    """An object that the API server listed or told a change of, and that cannot be decoded.  It exists; no more is known.

    kind                  "pod", "node" or "namespace"
    namespace, name, uid  "" where it does not say, or where that could not be found
    why                   a sentence
    """

    kind: str
    namespace: str
    name: str
    uid: str
    why: str

    def is_it(self, namespace: str, name: str, uid: str) -> bool:
        """Whether it is, or may be, that object."""
        if self.uid:
            return self.uid == uid
        return not self.name or (self.namespace, self.name) == (namespace, name)


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    uid: str
    labels: Mapping[str, str] = NO_TEXT


@dataclass(frozen=True, slots=True)
class Stage:
    """Replicated Jobs of a JobSet whose pods are made at one time: those that wait for the same others (dependsOn).

    name      of the first of them; jobs: the names of all; members: how many pods they have together
    """

    name: str
    jobs: tuple[str, ...]
    members: int


@dataclass(frozen=True, slots=True)
class Owner:
    """What the bridge needs to know of a pod's controller, and of that one's (K2: "else of its owners, nearest first").

    active_deadline_s  of a batch Job's own spec (T7)
    members            how many pods it means to have: of a batch Job still min(parallelism, completions - succeeded),
                       of a JobSet all its Jobs' and of a PodGroup its minimum, those that succeeded among them;
                       None: its kind says nothing (W2, W5)
    stages             of a JobSet whose Jobs are not all made at one time; (): they are
    """

    ref: OwnerRef
    annotations: Mapping[str, str] = NO_TEXT
    owner: OwnerRef | None = None
    active_deadline_s: int | None = None
    members: int | None = None
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A persistent volume claim.

    bound     it has a volume; `affinity` is then that volume's required node affinity (F1), None for anywhere
    problem   in words, where it cannot be used ("claim data does not exist")
    waits     its volume is made where its first consumer goes; `selected`: the node it was told, "" none yet (F4)
    """

    name: str
    bound: bool
    affinity: tuple[NodeTerm, ...] | None = None
    problem: str = ""
    waits: bool = False
    selected: str = ""


# --- Slurm --------------------------------------------------------------------------------------------------------

States = frozenset[str]

ENDED: States = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "REVOKED",
        "TIMEOUT",
    }
)
HOLDS_NODES: States = frozenset({"RUNNING", "SUSPENDED"})


def is_ended(states: States) -> bool:
    """Set membership, never equality: a job may be CANCELLED and COMPLETING at once (Slurm facts 2)."""
    return bool(states & ENDED)


def holds_nodes(states: States) -> bool:
    return bool(states & HOLDS_NODES) and not states & ENDED


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm knows it.

    gres    GRES name ("gpu", "gpu:h100") to count; a typed GRES counts under both
    reason  why it is drained or down, in the words of who did it
    """

    name: str
    states: States = frozenset()
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    cpus: int = 0
    memory_mib: int = 0
    gres: Mapping[str, int] = EMPTY
    reason: str = ""

    @property
    def external(self) -> bool:
        """No slurmd runs there: kubelet is the only one that starts anything (G1)."""
        return "EXTERNAL" in self.states

    @property
    def loses_devices(self) -> bool:
        """Devices that a job asks for by the task are lost there: it is an external node of slurm.conf (Slurm facts 7).

        Asked for by the node they are counted rightly.
        """
        return self.external and bool(self.gres) and "DYNAMIC_NORM" not in self.states

    @property
    def taken_out(self) -> States:
        """In which ways somebody said that it is to take no more jobs."""
        return self.states & {"DRAIN", "DOWN"}


@dataclass(frozen=True, slots=True)
class Partition:
    """max_time_min: the longest time limit in minutes; None: no limit."""

    name: str
    default: bool = False
    up: bool = True
    max_time_min: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as `GET job/{id}` tells it.

    submitted, starts, ends   epoch seconds; `starts` of a pending job is Slurm's expected start; None: not known
    preempted                 when its preemption began, while its grace runs; None: nobody preempts it
    reason                    why it is pending, or why it ended ("Resources", "Priority", "None")
    planned_nodes             where Slurm plans to start it, a hostlist
    sluid                     unique for ever, unlike the id (Slurm facts 2); "" where this Slurm has none
    dependency                what it still waits for ("singleton(unfulfilled),afterany:8(unfulfilled)")
    exit_code                 of the job, as sacct shows it before the colon
    tasks                     how many it asked for
    told_at                   slurmctld's own time when it told this, epoch seconds; None: not known
    het_id, het_offset        of a component of a heterogeneous job: the leader's id, and which component it is (the leader
                              is 0); None: an ordinary job
    parts                     of a leader that was read: the further components, in their order
    """

    id: int
    name: str
    user: str
    states: States
    account: str = ""
    partition: str = ""
    qos: str = ""
    reason: str = ""
    comment: str = ""
    submitted: float | None = None
    starts: float | None = None
    ends: float | None = None
    preempted: float | None = None
    planned_nodes: str = ""
    nodes: str = ""
    sluid: str = ""
    time_limit_min: int | None = None
    excluded_nodes: str = ""
    dependency: str = ""
    exit_code: int = 0
    tasks: int = 1
    het_id: int | None = None
    het_offset: int | None = None
    parts: tuple[Job, ...] = ()
    told_at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class GrantedNode:
    """What a job holds on one node.

    memory_mib   0: this Slurm does not count memory (CR_Core, CR_CPU, CR_Socket); every job asks for at least 1 (T4)
    gres         as in SlurmNode; indices: GRES name to device indices, "" where not told
    """

    name: str
    cpus: int
    memory_mib: int
    gres: Mapping[str, int] = EMPTY
    indices: Mapping[str, str] = NO_TEXT


@dataclass(frozen=True, slots=True)
class Grant:
    """What Slurm gave to a job, node by node, in Slurm's own node order.

    parts   of the leader of a heterogeneous job: what its further components hold, in their order
    """

    job_id: int
    nodes: tuple[GrantedNode, ...]
    parts: tuple[Grant, ...] = ()

    @property
    def everywhere(self) -> tuple[GrantedNode, ...]:
        """The nodes of all components."""
        return (*self.nodes, *(node for part in self.parts for node in part.nodes))


UNLIMITED = -1
# Lets at most one job of a name and user run: a submission whose answer was lost can be repeated (ARCHITECTURE 4).
SINGLETON = "singleton"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A placeholder as it is asked for; the codec turns it into the words of one API version.

    What is asked for is one task's: the placeholder of a single pod has one, that of a gang one a member (W7).

    user            who submits (`X-SLURM-USER-NAME`); never a field of the job (I2)
    cpus_per_task   at least 1
    memory_mib      per task, at least 1
    gres            GRES name (with type) to count, per task
    time_limit_min  None: Slurm's default; UNLIMITED: no limit
    time_least_min  backfill may cut the limit to so many minutes where the job starts sooner for it; None: not at all
    exclusive       "", "exclusive" (whole node), "user" or "mcs" as sbatch's --exclusive says
    excluded_nodes  a folded hostlist (F2)
    required_nodes  a folded hostlist: all of these, and as many as are asked for, no other (S7)
    licenses        name (with server) to count
    begin           epoch seconds before which it does not start
    dependency      conditions joined by commas, all of which must hold, SINGLETON always among them
    switches        at most so many leaf switches, waiting for that so many seconds at most
    tasks           at least 1; one task stands on one node, several on as few or many nodes as Slurm likes
    tasks_per_node  room for so many on every node, whether there are so many left or not; None: as many as fit
    min_nodes, max_nodes  how many nodes, of several tasks; None: as few as it takes.  (Where it may have more than it
                    needs, Slurm gives it as many as it may.)
    parts           the further components of a heterogeneous job (W7), all of the same user; they have no parts
    """

    name: str
    user: str
    cpus_per_task: int
    memory_mib: int
    gres: tuple[tuple[str, int], ...] = ()
    account: str = ""
    partition: str = ""
    qos: str = ""
    reservation: str = ""
    constraints: str = ""
    wckey: str = ""
    comment: str = ""
    time_limit_min: int | None = None
    time_least_min: int | None = None
    nice: int | None = None
    exclusive: str = ""
    excluded_nodes: str = ""
    required_nodes: str = ""
    licenses: tuple[tuple[str, int], ...] = ()
    begin: int | None = None
    dependency: str = SINGLETON
    switches: tuple[int, int] | None = None
    tasks: int = 1
    tasks_per_node: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None
    parts: tuple[JobSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """An external node as it is registered in Slurm (N1); the codec turns it into a line of node configuration.

    address     NodeAddr: without it Slurm resolves the name at every allocation (Slurm facts 7)
    cpus        whole CPUs, at least 1; memory_mib: at least 1
    gres        GRES name (with type) to count, sorted by name
    features    what NodeSets and constraints select it by; among them the mark that says whose it is
    topology    where it is in Slurm's topologies: name of one to the unit there (a leaf switch, a block), by name
    """

    name: str
    address: str
    cpus: int
    memory_mib: int
    gres: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()
    topology: tuple[tuple[str, str], ...] = ()


# --- between them -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """A no in words a user understands: what, where, and what to do.

    reason   CamelCase, for the condition; number: Slurm's error number, 0 where there is none
    later    not for good: a limit, a lack of room or of rights that may pass by itself (Q4)
    retry_after_s  not before so many seconds, says the far side; None: it says nothing
    """

    reason: str
    message: str
    number: int = 0
    later: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """What one pod needs of one node; pods of equal shape can be tasks of one job.

    cpus        whole CPUs, at least 1 (T3)
    memory_mib  MiB, at least 1; never 0, which Slurm reads as "all of it" (T4)
    gres        GRES name to count, sorted by name (T5)
    """

    cpus: int
    memory_mib: int
    gres: tuple[tuple[str, int], ...] = field(default=())
