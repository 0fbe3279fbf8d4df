"""Views of the JSON of the API server, with only the fields that decisions need.

Other fields are skipped without being decoded, so that a pod takes some microseconds.  As the API specifies, a missing field
and `null` mean the same, unknown fields are ignored, and an item of a list has no kind.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Texts = dict[str, str]
# The API has no larger integers, and 10^400 would overflow a float.
Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Time = str  # RFC 3339; read by `objects.epoch`, because one unreadable time must not spoil its object


class Wire(msgspec.Struct, rename="camel", gc=False):
    """A narrow view of an object of the API."""


class Anything(Wire):
    """An object.  Only its presence matters."""


class OwnerReference(Wire):
    """`metadata.ownerReferences[]`."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class Meta(Wire):
    """`metadata`."""

    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int | None = None
    labels: Texts | None = None
    annotations: Texts | None = None
    owner_references: list[OwnerReference] | None = None


class ManagedFields(Wire):
    """`metadata.managedFields[]`: the client that last wrote each field; the list of fields is decoded only if needed."""

    fields_v1: msgspec.Raw = msgspec.Raw(b"")
    manager: str = ""


class PodMeta(Meta):
    """`metadata` of a pod."""

    managed_fields: list[ManagedFields] | None = None


class Resources(Wire):
    """`resources` of a container or of a pod."""

    requests: Texts | None = None
    limits: Texts | None = None


class ContainerPort(Wire):
    """`ports[]`."""

    host_port: Int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class Container(Wire):
    """A container of a pod's spec."""

    name: str
    resources: Resources | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class Expression(Wire):
    """One `matchExpressions[]` or `matchFields[]` of a node selector term."""

    key: str
    operator: str
    values: list[str] | None = None


class SelectorTerm(Wire):
    """One `nodeSelectorTerms[]`."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(Wire):
    """A required node affinity, of a pod or of a volume."""

    node_selector_terms: list[SelectorTerm] | None = None


class NodeAffinity(Wire):
    """`affinity.nodeAffinity`."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class LabelSelector(Wire):
    """`labelSelector` of a pod affinity term."""

    match_labels: Texts | None = None
    match_expressions: list[Expression] | None = None


class PodTerm(Wire):
    """One required term of `affinity.podAffinity` or `podAntiAffinity`."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: Anything | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PodTerms(Wire):
    """`affinity.podAffinity` and `podAntiAffinity`: the required terms."""

    required: list[PodTerm] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Wire):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodTerms | None = None
    pod_anti_affinity: PodTerms | None = None


class SpreadConstraint(Wire):
    """`spec.topologySpreadConstraints[]`."""

    when_unsatisfiable: str = "DoNotSchedule"


class WireToleration(Wire):
    """`spec.tolerations[]`."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class ClaimSource(Wire):
    """`volumes[].persistentVolumeClaim`."""

    claim_name: str


class Volume(Wire):
    """`spec.volumes[]`."""

    name: str
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Anything | None = None


class SchedulingGroup(Wire):
    """`spec.schedulingGroup` (Kubernetes 1.36)."""

    pod_group_name: str | None = None


class PodSpec(Wire):
    """`spec` of a pod."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: Resources | None = None
    overhead: Texts | None = None
    scheduler_name: str = ""
    service_account_name: str = ""
    priority_class_name: str = ""
    node_name: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: Int | None = None
    active_deadline_seconds: Int | None = None
    scheduling_gates: list[Anything] | None = None
    scheduling_group: SchedulingGroup | None = None
    node_selector: Texts | None = None
    affinity: Affinity | None = None
    tolerations: list[WireToleration] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    resource_claims: list[Anything] | None = None
    volumes: list[Volume] | None = None


class WireCondition(Wire):
    """`status.conditions[]`."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: Time | None = None


class Terminated(Wire):
    """`state.terminated`."""

    exit_code: Int = 0
    signal: Int | None = None
    reason: str | None = None
    started_at: Time | None = None
    finished_at: Time | None = None


class Waiting(Wire):
    """`state.waiting`."""

    reason: str | None = None
    message: str | None = None


class Running(Wire):
    """`state.running`."""

    started_at: Time | None = None


class ContainerState(Wire):
    """`containerStatuses[].state`."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Wire):
    """`status.containerStatuses[]`.  container_id: "" until the container is created."""

    name: str
    allocated_resources: Texts | None = None
    resources: Resources | None = None
    image: str | None = None
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(Wire):
    """`status` of a pod."""

    phase: str = "Pending"
    reason: str | None = None
    start_time: Time | None = None
    conditions: list[WireCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class WirePod(Wire):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class WireTaint(Wire):
    """`spec.taints[]`."""

    key: str
    effect: str
    value: str | None = None


class NodeSpec(Wire):
    """`spec` of a node."""

    unschedulable: bool | None = None
    taints: list[WireTaint] | None = None


class NodeAddress(Wire):
    """`status.addresses[]`."""

    type: str
    address: str


class NodeStatus(Wire):
    """`status` of a node."""

    allocatable: Texts | None = None
    conditions: list[WireCondition] | None = None
    addresses: list[NodeAddress] | None = None


class WireNode(Wire):
    """A node."""

    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class AllTaints(Wire):
    """`spec` of a node whose taints are written: all taints as they are, with unknown fields."""

    taints: list[dict[str, Any]] | None = None


class TaintedNode(Wire):
    """A node whose taints are written."""

    metadata: Meta
    spec: AllTaints = msgspec.field(default_factory=AllTaints)


class WireNamespace(Wire):
    """A namespace."""

    metadata: Meta


class JobTemplateSpec(Wire):
    """`template.spec` of a replicated Job."""

    parallelism: Int | None = None
    completions: Int | None = None


class JobTemplate(Wire):
    """`template` of a replicated Job."""

    spec: JobTemplateSpec = msgspec.field(default_factory=JobTemplateSpec)


class DependsOn(Wire):
    """`dependsOn[]` of a replicated Job: it is made only when another replicated Job is Ready, or Complete."""

    name: str = ""
    status: str = ""


class StartupPolicy(Wire):
    """`startupPolicy` of a JobSet."""

    startup_policy_order: str = ""


class ReplicatedJob(Wire):
    """`replicatedJobs[]` of a JobSet."""

    name: str = ""
    replicas: Int = 1
    template: JobTemplate = msgspec.field(default_factory=JobTemplate)
    depends_on: list[DependsOn] | None = None


class GangPolicy(Wire):
    """`schedulingPolicy.gang` of a PodGroup of Kubernetes itself."""

    min_count: Int


class GroupPolicy(Wire):
    """`schedulingPolicy` of a PodGroup of Kubernetes itself: with `gang`, or for pods that start independently."""

    gang: GangPolicy | None = None
    basic: Anything | None = None


class OwnerSpec(Wire):
    """`spec` of an object that makes pods or groups of pods: the fields that affect its pods."""

    active_deadline_seconds: Int | None = None
    parallelism: Int | None = None
    completions: Int | None = None
    min_member: Int | None = None
    replicated_jobs: list[ReplicatedJob] | None = None
    startup_policy: StartupPolicy | str | None = None  # a string in other kinds
    scheduling_policy: GroupPolicy | None = None


class OwnerStatus(Wire):
    """`status` of a batch Job."""

    succeeded: Int | None = None


class WireOwner(Wire):
    """A controller of pods, a controller of such a controller, or a group of pods."""

    metadata: Meta
    spec: OwnerSpec | None = None
    status: OwnerStatus | None = None


class ClaimSpec(Wire):
    """`spec` of a persistent volume claim."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None


class ClaimStatus(Wire):
    """`status` of a persistent volume claim."""

    phase: str = ""


class WireClaim(Wire):
    """A persistent volume claim."""

    metadata: Meta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


class VolumeAffinity(Wire):
    """`spec.nodeAffinity` of a persistent volume.  The field is `required`; pods have a longer name for it."""

    required: NodeSelector | None = None


class VolumeSpec(Wire):
    """`spec` of a persistent volume."""

    node_affinity: VolumeAffinity | None = None


class WireVolume(Wire):
    """A persistent volume."""

    metadata: Meta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)


class TopologyExpression(Wire):
    """One `matchLabelExpressions[]`: a node must have one of these values."""

    key: str
    values: list[str] | None = None


class TopologyTerm(Wire):
    """One `allowedTopologies[]` of a storage class."""

    match_label_expressions: list[TopologyExpression] | None = None


class WireStorageClass(Wire):
    """A storage class."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] | None = None


class WireEvent(Wire):
    """The part of an event that counts its repetitions."""

    count: Int | None = None


class Review(Wire):
    """`status` of a SelfSubjectAccessReview."""

    allowed: bool


class WireReview(Wire):
    """A SelfSubjectAccessReview, answered."""

    status: Review


class Version(Wire):
    """The answer of `/version`."""

    git_version: str


class StatusCause(Wire):
    """One of `details.causes[]`: the field that was refused."""

    field: str = ""


class StatusDetails(Wire):
    """`details` of a Status.  A 404 that is about an object names it."""

    name: str = ""
    retry_after_seconds: Int | None = None
    causes: list[StatusCause] | None = None


class Status(Wire):
    """The answer of the API if it does not return the object."""

    kind: str
    status: str = ""
    message: str = ""
    reason: str = ""
    code: Int = 0
    details: StatusDetails | None = None


class ListMeta(Wire):
    """`metadata` of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(Wire):
    """One page of a list.  Its items are decoded one by one, after the next page has been requested."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Envelope(Wire):
    """One line of a watch.  The object is decoded after the type is known."""

    type: str
    object: msgspec.Raw


class Marked(Wire):
    """A BOOKMARK.  Only its resourceVersion matters."""

    metadata: ListMeta
