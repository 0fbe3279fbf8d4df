"""The nouns of Kubernetes, as narrow as the decisions need them.

Every noun is frozen and compares by value, so "did anything change?" is `==`.  Nothing here knows JSON, HTTP or a clock; the
codecs in `bridge/kube` make these nouns from what the API server sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from scheduler.model.amounts import EMPTY, NO_TEXT, Amounts


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
