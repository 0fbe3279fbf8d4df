"""The nouns of Kubernetes, with the fields that decisions need.

Every noun is frozen and compares by value, so "did anything change?" is `==`.  Nothing here knows JSON, HTTP or a clock; the
codecs in `bridge/kube` make these nouns from what the API server sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


# Namespace and UID: a pod may name any UID as its owner's, also one of another namespace, whose annotations do not count.
OwnerKey = tuple[str, str]


def owner_key(namespace: str, ref: OwnerRef) -> OwnerKey:
    """The key of an owner of pods of that namespace."""
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
    """One term of a required pod (anti-)affinity on hostname: selects pods of these namespaces by their labels."""

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


ALL_PORTS = HostPort(0)  # of a pod on a node with more ports than are counted: no other pod gets a port there


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: PodScheduled or the bridge's own of a pod, or the bridge's own of a node (N3)."""

    status: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class PodTimes:
    """Times that the status of a pod shows, for its trace alone (O3): epoch seconds, by the API server or by kubelet.

    reported     when the present reason of PodScheduled=False was written
    sandbox      PodReadyToStartContainers became True: the volumes and the network of the pod are there
    initialized  Initialized became True: its init containers have ended
    running      the first of its containers started
    ended        the last of its containers ended
    containers, images   names and images of its containers
    """

    reported: float | None = None
    sandbox: float | None = None
    initialized: float | None = None
    running: float | None = None
    ended: float | None = None
    containers: tuple[str, ...] = ()
    images: tuple[str, ...] = ()


NO_TIMES = PodTimes()


class PodPhase(Enum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


_SUCCEEDED, _FAILED = PodPhase.SUCCEEDED, PodPhase.FAILED  # read often, for every pod of a gang


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, of this scheduler or of another one.

    created         creationTimestamp, epoch seconds
    node            spec.nodeName; "" while unbound
    deleting_at     deletionTimestamp, epoch seconds: when its grace ends; None unless it is being deleted
    grace_s         deletionGracePeriodSeconds while it is being deleted (not by force: 0), else
                    terminationGracePeriodSeconds; not negative
    pod_group       spec.schedulingGroup.podGroupName (Kubernetes 1.36)
    priority_class  spec.priorityClassName
    gated           the pod has scheduling gates
    anti_affinity, affinity   required pod anti-affinity, affinity, on hostname (F5)
    claims          names of the persistent volume claims that it mounts
    refused_fields  fields of its spec that the bridge does not honour yet, each in words ("required pod affinity")
    limit_exceeded  why the pod is beyond the limits, in a sentence; then only the fields that other pods depend on are kept
    exit_code       the largest exit code of its ended containers (128 + signal where there is none); None: none ended
    end_reason      status.reason, else the reason of the container with that code ("OOMKilled", "Error", "Completed")
    active_deadline_s, set_deadline_s  spec.activeDeadlineSeconds: the user's own, or the one that the bridge wrote (T7)
    bound_at        when PodScheduled became True, epoch seconds
    started         status.startTime, epoch seconds: when its kubelet accepted it; deadlines count from then
    waits           why a container of it does not start, as its kubelet reports it ("container main: ImagePullBackOff"); "":
                    each runs or ran; waits_since: not before that
    runs_in_part    other containers of its own run meanwhile
    outlives_phase  its phase is Failed only because its node is gone from Kubernetes, and its containers ran then
    crashes         of a pod that started: the container that kubelet restarts repeatedly, and its last end; "": none
    job_condition   the condition names.RUNNING_CONDITION
    version         metadata.resourceVersion: it changes with each write of the pod
    times           no decision reads version and times, so they do not count when pods are compared
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
    set_deadline_s: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Amounts = EMPTY
    pod_requests: Amounts = EMPTY
    pod_limits: Amounts = EMPTY
    node_selector: Mapping[str, str] = NO_TEXT
    node_affinity: tuple[NodeTerm, ...] | None = None
    anti_affinity: tuple[PodTerm, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
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
    runs_in_part: bool = False
    outlives_phase: bool = False
    crashes: str = ""
    job_condition: Condition | None = None
    exit_code: int | None = None
    end_reason: str = ""
    limit_exceeded: str = ""
    version: str = field(default="", compare=False)
    times: PodTimes = field(default=NO_TIMES, compare=False)

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
    ready_since  since when it is ready, epoch seconds; None: it is not ready, or not known
    kubelet_silent_since  since when its kubelet is silent (Ready is Unknown), epoch seconds; None: it is not
    address      its InternalIP; "": it has none
    partitions   the admin's annotation, not parsed (K6)
    in_slurm     the bridge's condition of the node; None: none
    """

    name: str
    labels: Mapping[str, str] = NO_TEXT
    ready: bool = True
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    allocatable: Amounts = EMPTY
    uid: str = ""
    ready_since: float | None = None
    kubelet_silent_since: float | None = None
    address: str = ""
    partitions: str = ""
    in_slurm: Condition | None = None


@dataclass(frozen=True, slots=True)
class Undecoded:
    """An object in a list or a watch event that cannot be decoded.  It exists; no more is known.

    kind                  "pod", "node" or "namespace"
    namespace, name, uid  "": not in the object, or not found
    why                   a sentence
    """

    kind: str
    namespace: str
    name: str
    uid: str
    why: str

    def is_it(self, namespace: str, name: str, uid: str) -> bool:
        """True if this is, or may be, that object."""
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
    """Replicated Jobs of a JobSet whose pods are created together, because they wait for the same Jobs (dependsOn).

    name      of the first Job; jobs: the names of all; members: the number of their pods
    """

    name: str
    jobs: tuple[str, ...]
    members: int


@dataclass(frozen=True, slots=True)
class Owner:
    """A controller of a pod, or of such a controller (K2: "else of its owners, nearest first").

    active_deadline_s  of a batch Job's own spec (T7)
    members            number of pods that it wants: of a batch Job min(parallelism, completions - succeeded), of a JobSet
                       those of all its Jobs, of a PodGroup its minimum; None: its kind defines no number (W2, W5)
    stages             of a JobSet whose Jobs are created in stages; (): all at once
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

    bound     it has a volume
    affinity  the nodes that can use its volume (F1): the volume's required node affinity; if the volume is still to be made,
              the topologies that its storage class allows; None: any node
    problem   why it cannot be used, in words ("claim data does not exist")
    waits     its volume is made on the node of its first consumer; `selected`: that node, "": not set yet (F4)
    one_pod   only one pod at a time may use it (access mode ReadWriteOncePod)
    """

    name: str
    bound: bool
    affinity: tuple[NodeTerm, ...] | None = None
    problem: str = ""
    waits: bool = False
    selected: str = ""
    one_pod: bool = False
