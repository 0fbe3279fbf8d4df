"""What the API server says, as the scheduler's nouns: JSON in, `scheduler.model` out.

The types here are narrow: they name the fields that decisions need and skip the rest unread, which is what makes a pod
cost some microseconds.  They hold to the API's own rules: a missing field and `null` mean the same, unknown fields are
not ours to judge, a list item carries no kind.

One odd object must never take a whole list with it.  So a quantity that cannot be read is not an error here: it becomes
one of the pod's `refused_fields`, in words, and the pod alone is refused for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from bridge.errors import ContractError
from bridge.kube.transport import SIDE
from scheduler import model, names
from scheduler.model import EMPTY, NO_TEXT, Amounts, PodPhase
from scheduler.quantity import QuantityError, amount

# kubectl keeps a copy of the whole manifest there; nobody decides by it.
BALLAST = "kubectl.kubernetes.io/last-applied-configuration"

HOSTNAME = "kubernetes.io/hostname"

Texts = dict[str, str]


class Wire(msgspec.Struct, rename="camel", gc=False):
    """A narrow view of an object of the API."""


class Anything(Wire):
    """An object of which only the presence matters."""


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
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Texts | None = None
    annotations: Texts | None = None
    owner_references: list[OwnerReference] | None = None


class ManagedFields(Wire):
    """`metadata.managedFields[]`: who wrote which fields last; those are read where somebody asks."""

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

    host_port: int | None = None
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
    """`affinity.podAffinity` and `podAntiAffinity`: what is required."""

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
    node_name: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
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
    last_transition_time: datetime | None = None


class Terminated(Wire):
    """`state.terminated`."""

    exit_code: int = 0
    signal: int | None = None
    reason: str | None = None
    finished_at: datetime | None = None


class Waiting(Wire):
    """`state.waiting`."""

    reason: str | None = None
    message: str | None = None


class ContainerState(Wire):
    """`containerStatuses[].state`."""

    waiting: Waiting | None = None
    running: Anything | None = None
    terminated: Terminated | None = None


class ContainerStatus(Wire):
    """`status.containerStatuses[]`."""

    name: str
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(Wire):
    """`status` of a pod."""

    phase: str = "Pending"
    reason: str | None = None
    start_time: datetime | None = None
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


class NodeCondition(WireCondition):
    """`status.conditions[]` of a node."""

    last_transition_time: datetime | None = None


class NodeAddress(Wire):
    """`status.addresses[]`."""

    type: str
    address: str


class NodeStatus(Wire):
    """`status` of a node."""

    allocatable: Texts | None = None
    conditions: list[NodeCondition] | None = None
    addresses: list[NodeAddress] | None = None


class WireNode(Wire):
    """A node."""

    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class AllTaints(Wire):
    """`spec` of a node whose taints are written: as they are, with what others put into them."""

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

    parallelism: int | None = None
    completions: int | None = None


class JobTemplate(Wire):
    """`template` of a replicated Job."""

    spec: JobTemplateSpec = msgspec.field(default_factory=JobTemplateSpec)


class ReplicatedJob(Wire):
    """`replicatedJobs[]` of a JobSet."""

    replicas: int = 1
    template: JobTemplate = msgspec.field(default_factory=JobTemplate)


class GangPolicy(Wire):
    """`schedulingPolicy.gang` of a PodGroup of Kubernetes itself."""

    min_count: int


class GroupPolicy(Wire):
    """`schedulingPolicy` of a PodGroup of Kubernetes itself: of a gang, or of pods that each go their way."""

    gang: GangPolicy | None = None
    basic: Anything | None = None


class OwnerSpec(Wire):
    """`spec` of what makes pods or groups of them: what of it decides about its pods."""

    active_deadline_seconds: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    min_member: int | None = None
    replicated_jobs: list[ReplicatedJob] | None = None
    scheduling_policy: GroupPolicy | None = None


class OwnerStatus(Wire):
    """`status` of a batch Job."""

    succeeded: int | None = None


class WireOwner(Wire):
    """A controller of pods, or of such a one, or a group of them."""

    metadata: Meta
    spec: OwnerSpec | None = None
    status: OwnerStatus | None = None


class ClaimSpec(Wire):
    """`spec` of a persistent volume claim."""

    volume_name: str = ""
    storage_class_name: str | None = None


class ClaimStatus(Wire):
    """`status` of a persistent volume claim."""

    phase: str = ""


class WireClaim(Wire):
    """A persistent volume claim."""

    metadata: Meta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


class VolumeAffinity(Wire):
    """`spec.nodeAffinity` of a persistent volume: `required`, without the long name pods give it."""

    required: NodeSelector | None = None


class VolumeSpec(Wire):
    """`spec` of a persistent volume."""

    node_affinity: VolumeAffinity | None = None


class WireVolume(Wire):
    """A persistent volume."""

    metadata: Meta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)


class WireStorageClass(Wire):
    """A storage class."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"


class WireEvent(Wire):
    """An event: how often it was said."""

    count: int | None = None


class Review(Wire):
    """`status` of a SelfSubjectAccessReview."""

    allowed: bool


class WireReview(Wire):
    """A SelfSubjectAccessReview, answered."""

    status: Review


class Version(Wire):
    """What `/version` says."""

    git_version: str


class StatusCause(Wire):
    """One of `details.causes[]`: the field that was refused."""

    field: str = ""


class StatusDetails(Wire):
    """`details` of a Status.  A 404 that is about an object names it."""

    name: str = ""
    retry_after_seconds: int | None = None
    causes: list[StatusCause] | None = None


class Status(Wire):
    """The API's way to answer with anything else than the object."""

    kind: str
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class ListMeta(Wire):
    """`metadata` of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


W = TypeVar("W", bound=Wire)
M = TypeVar("M")


class Page(Wire):
    """One page of a list; its items are read when the next page has been asked for."""

    metadata: ListMeta
    items: msgspec.Raw = msgspec.Raw(b"null")


class Envelope(Wire):
    """One line of a watch; the object is read once its type is known."""

    type: str
    object: msgspec.Raw


class Marked(Wire):
    """Of a BOOKMARK only its resourceVersion matters."""

    metadata: ListMeta


@dataclass(frozen=True, slots=True)
class Changed(Generic[M]):
    """ADDED or MODIFIED (gone False), or DELETED (gone True); `version` is where a watch may resume."""

    object: M
    version: str
    gone: bool


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing happened up to `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The server ends the watch with a Status; 410 means that the version is too old."""

    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Codec(Generic[M]):
    """How one kind is read: a page of a list and what is on it, a line of a watch, an answer that is one."""

    page: Callable[[bytes], Page]
    items: Callable[[Page], tuple[M, ...]]
    line: Callable[[bytes], Changed[M] | Bookmark | Failed]
    one: Callable[[bytes], M]


# --- reading --------------------------------------------------------------------------------------------------------


def codec(wire: type[W], to_model: Callable[[W], M]) -> Codec[M]:
    """The four readers of one kind.  Each raises ContractError where the text is not what the API promises."""
    lists: msgspec.json.Decoder[list[W] | None] = msgspec.json.Decoder(list[wire] | None)  # type: ignore[valid-type]
    objects = msgspec.json.Decoder(wire)

    def page(body: bytes) -> Page:
        return _decode(_pages, body, "list")

    def items(page: Page) -> tuple[M, ...]:
        return tuple(map(to_model, _decode(lists, page.items, "list") or ()))

    def line(text: bytes) -> Changed[M] | Bookmark | Failed:
        envelope = _decode(_envelopes, text, "watch")
        if envelope.type in ("ADDED", "MODIFIED", "DELETED"):
            read: Any = _decode(objects, envelope.object, "watch")
            return Changed(to_model(read), read.metadata.resource_version, envelope.type == "DELETED")
        if envelope.type == "BOOKMARK":
            return Bookmark(_decode(_marked, envelope.object, "watch").metadata.resource_version)
        if envelope.type == "ERROR":
            status = _decode(_statuses, envelope.object, "watch")
            return Failed(status.code, status.message)
        raise ContractError("watch", SIDE, f'an event of the unknown type "{envelope.type[:32]}"')

    def one(body: bytes) -> M:
        return to_model(_decode(objects, body, "read"))

    return Codec(page, items, line, one)


def status_of(body: bytes) -> Status | None:
    """The Status that a body is; None when it is anything else (another server's error page, say)."""
    try:
        status = _statuses.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return status if status.kind == "Status" else None


def event_count(body: bytes) -> int:
    """How often an event has been said."""
    return _decode(_events, body, "read event").count or 1


def is_allowed(body: bytes) -> bool:
    """What a SelfSubjectAccessReview answers."""
    return _decode(_reviews, body, "check rights").status.allowed


def git_version(body: bytes) -> str:
    """The server's version."""
    return _decode(_versions, body, "read version").git_version


D = TypeVar("D")


def _decode(decoder: msgspec.json.Decoder[D], text: bytes | msgspec.Raw, operation: str) -> D:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ContractError(operation, SIDE, f"the answer is not what the API promises: {error}") from None


# --- pods -----------------------------------------------------------------------------------------------------------


def to_pod(wire: WirePod) -> model.Pod:
    """A pod; see model.Pod for what each field says."""
    meta, spec, status = wire.metadata, wire.spec, wire.status
    refused = list(_refused_fields(spec))
    containers = _containers(spec.containers, refused)
    init_containers = _containers(spec.init_containers, refused)
    asked = spec.resources
    exit_code, end_reason = _end(spec, status)
    scheduled, bound_at, on_job, disrupted = _conditions(status.conditions)
    own_deadline, handed_deadline = _deadlines(meta, spec)
    waits, waited_on = _waits(spec, status)
    grace = spec.termination_grace_period_seconds
    if meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds:
        grace = (
            meta.deletion_grace_period_seconds
        )  # 0, by force: its kubelet may give its containers their own all the same
    return model.Pod(
        uid=meta.uid,
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        created=_epoch(meta.creation_timestamp) or 0.0,
        labels=_labels(meta.labels),
        annotations=_annotations(meta),
        owner=_controller(meta),
        pod_group=(spec.scheduling_group.pod_group_name or "") if spec.scheduling_group else "",
        scheduler_name=sys.intern(spec.scheduler_name),
        service_account=sys.intern(spec.service_account_name),
        node=sys.intern(spec.node_name),
        phase=_PHASES.get(status.phase, PodPhase.UNKNOWN),
        deleting_at=_epoch(meta.deletion_timestamp),
        grace_s=30 if grace is None else grace,
        gated=bool(spec.scheduling_gates),
        restart_policy=sys.intern(spec.restart_policy),
        active_deadline_s=own_deadline,
        handed_deadline_s=handed_deadline,
        containers=containers,
        init_containers=init_containers,
        overhead=_asked(spec.overhead, "overhead", refused),
        pod_requests=_asked(asked.requests, "requests", refused) if asked else EMPTY,
        pod_limits=_asked(asked.limits, "limits", refused) if asked else EMPTY,
        node_selector=spec.node_selector or NO_TEXT,
        node_affinity=_required_nodes(spec.affinity),
        apart=_pod_terms(meta, spec.affinity.pod_anti_affinity, "anti-affinity", refused) if spec.affinity else (),
        beside=_pod_terms(meta, spec.affinity.pod_affinity, "affinity", refused) if spec.affinity else (),
        tolerations=_tolerations(tuple((t.key, t.operator, t.value, t.effect) for t in spec.tolerations or ())),
        host_ports=_host_ports(spec),
        claims=_claims(meta.name, spec.volumes),
        refused_fields=tuple(refused),
        scheduled=scheduled,
        disrupted=disrupted,
        bound_at=bound_at,
        started=_epoch(status.start_time),
        waits=waits,
        waits_since=max((at for at in (bound_at, waited_on) if at is not None), default=None) if waits else None,
        crashes=_crashes(status),
        on_job=on_job,
        exit_code=exit_code,
        end_reason=end_reason,
    )


_PHASES = {phase.value: phase for phase in PodPhase} | {"": PodPhase.PENDING}


def _refused_fields(spec: PodSpec) -> Iterable[str]:
    """Demands that would be broken silently if they were not refused (T11, F5)."""
    if spec.resource_claims:
        yield "resourceClaims (dynamic resource allocation)"
    if any(c.when_unsatisfiable == "DoNotSchedule" for c in spec.topology_spread_constraints or ()):
        yield "topologySpreadConstraints with DoNotSchedule"


# What pods of one template have in common is kept once: ten thousand of them then cost a third of the memory, and whoever
# compares two of them mostly compares an object with itself.  Nobody changes what is shared: the nouns are frozen.  What is
# large is not worth keeping.
_SHAPES = 1024
_FEW = 16

_Items = tuple[tuple[str, str], ...]
_Asked = tuple[str, bool, _Items, _Items]


def _containers(wires: list[Container] | None, refused: list[str]) -> tuple[model.Container, ...]:
    if not wires:
        return ()
    read = _shared_containers if len(wires) <= _FEW else _shared_containers.__wrapped__
    made, problems = read(tuple(map(_asked_by, wires)))
    refused.extend(problems)
    return made


def _asked_by(wire: Container) -> _Asked:
    asked = wire.resources
    requests = tuple(asked.requests.items()) if asked and asked.requests else ()
    limits = tuple(asked.limits.items()) if asked and asked.limits else ()
    return wire.name, wire.restart_policy == "Always", requests, limits


@lru_cache(_SHAPES)
def _shared_containers(asked: tuple[_Asked, ...]) -> tuple[tuple[model.Container, ...], tuple[str, ...]]:
    """The containers, and what of them cannot be read."""
    refused: list[str] = []
    made = [
        model.Container(
            name=name,
            requests=_asked(dict(requests), f"requests of container {name}", refused),
            limits=_asked(dict(limits), f"limits of container {name}", refused),
            sidecar=sidecar,
        )
        for name, sidecar, requests, limits in asked
    ]
    return tuple(made), tuple(refused)


def _labels(labels: Texts | None) -> Mapping[str, str]:
    if not labels:
        return NO_TEXT
    return _shared_texts(tuple(labels.items())) if len(labels) <= _FEW else labels


@lru_cache(_SHAPES)
def _shared_texts(items: _Items) -> Mapping[str, str]:
    return dict(items)


@lru_cache(_SHAPES)
def _tolerations(
    wires: tuple[tuple[str | None, str | None, str | None, str | None], ...],
) -> tuple[model.Toleration, ...]:
    return tuple(
        model.Toleration(key or "", operator or "Equal", value or "", effect or "")
        for key, operator, value, effect in wires
    )


def _asked(texts: Texts | None, where: str, refused: list[str]) -> Amounts:
    """What is asked for, rounded up."""
    if not texts:
        return EMPTY
    try:
        return {resource: amount(resource, text, True) for resource, text in texts.items()}
    except QuantityError as error:
        refused.append(f"{where}: {error}")
        return EMPTY


def _host_ports(spec: PodSpec) -> tuple[model.HostPort, ...]:
    return tuple(
        model.HostPort(port.host_port, port.protocol or "TCP", port.host_ip or "")
        for container in (*(spec.containers or ()), *(spec.init_containers or ()))
        if container.ports
        for port in container.ports
        if port.host_port
    )


def _claims(pod_name: str, volumes: list[Volume] | None) -> tuple[str, ...]:
    """Claims by name; the claim of a generic ephemeral volume is named after the pod and the volume."""
    found = []
    for volume in volumes or ():
        if volume.persistent_volume_claim:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral:
            found.append(f"{pod_name}-{volume.name}")
    return tuple(found)


def _required_nodes(affinity: Affinity | None) -> tuple[model.NodeTerm, ...] | None:
    if affinity is None or affinity.node_affinity is None:
        return None
    return node_terms(affinity.node_affinity.required)


def _pod_terms(meta: Meta, terms: PodTerms | None, kind: str, refused: list[str]) -> tuple[model.PodTerm, ...]:
    """Those on hostname; any other is refused (F5)."""
    found = []
    for term in (terms.required if terms else None) or ():
        if term.topology_key != HOSTNAME:
            refused.append(f'required pod {kind} on "{term.topology_key}" (only {HOSTNAME})')
        elif term.namespace_selector is not None or term.match_label_keys or term.mismatch_label_keys:
            refused.append(f"required pod {kind} by namespaceSelector or matchLabelKeys")
        elif term.label_selector is not None:  # without a selector it speaks of no pod
            found.append(model.PodTerm(_selector(term.label_selector), frozenset(term.namespaces or [meta.namespace])))
    return tuple(found)


def _selector(selector: LabelSelector) -> tuple[model.Requirement, ...]:
    equal = ((key, "In", (value,)) for key, value in sorted((selector.match_labels or {}).items()))
    return (*(model.Requirement(*each) for each in equal), *_requirements(selector.match_expressions))


def node_terms(selector: NodeSelector | None) -> tuple[model.NodeTerm, ...] | None:
    """The alternatives of a required node affinity; None: there is none."""
    if selector is None:
        return None
    return tuple(
        model.NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))
        for term in selector.node_selector_terms or ()
    )


def _requirements(expressions: list[Expression] | None) -> tuple[model.Requirement, ...]:
    return tuple(model.Requirement(e.key, e.operator, tuple(e.values or ())) for e in expressions or ())


def _conditions(
    conditions: list[WireCondition] | None,
) -> tuple[model.Condition | None, float | None, model.Condition | None, bool]:
    """(PodScheduled, since when that is True, our own of bound pods, DisruptionTarget)."""
    scheduled, bound_at, on_job, disrupted = None, None, None, False
    for condition in conditions or ():
        if condition.type == "PodScheduled":
            scheduled = _condition(condition)
            bound_at = _epoch(condition.last_transition_time) if scheduled.status else None
        elif condition.type == names.RUNNING_CONDITION:
            on_job = _condition(condition)
        elif condition.type == "DisruptionTarget":
            disrupted = condition.status == "True"
    return scheduled, bound_at, on_job, disrupted


def _deadlines(meta: PodMeta, spec: PodSpec) -> tuple[int | None, int | None]:
    """(the user's activeDeadlineSeconds, the bridge's): there is one field, and whoever wrote it last owns it (T7)."""
    deadline = spec.active_deadline_seconds
    if deadline is None:
        return None, None
    ours = any(
        each.manager == spec.scheduler_name and b'"f:activeDeadlineSeconds"' in bytes(each.fields_v1)
        for each in meta.managed_fields or ()
    )
    return (None, deadline) if ours else (deadline, None)


# What kubelet says of a container of which there is nothing to say: another one is in its way.
IN_TURN = ("PodInitializing", "")
WAITS_MOST = 200  # characters of a container's own message; the rest is in its events


def _waits(spec: PodSpec, status: PodStatus) -> tuple[str, float | None]:
    """(why no container starts, as kubelet says; when the last init container ended well).

    One that runs, or ran, of the pod's own containers: it has started.  An init container that runs is on its way.
    Where there are init containers kubelet says PodInitializing of all, also while nothing is in the way of the first of
    them but a volume, a secret or the network.
    """
    if status.phase not in ("Pending", "Failed") or not (status.container_statuses or status.init_container_statuses):
        return "", None
    sidecars = {c.name for c in spec.init_containers or () if c.restart_policy == "Always"}
    ended_at: float | None = None
    for container in status.init_container_statuses or ():
        state = container.state or ContainerState()
        if state.running is not None and container.name not in sidecars:
            return "", None
        if state.terminated is not None and state.terminated.exit_code == 0:
            ended_at = max(ended_at or 0.0, _epoch(state.terminated.finished_at) or 0.0)
    first = next(iter(status.init_container_statuses or ()), None)
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        state = container.state or ContainerState()
        if state.waiting is None:
            continue
        if (state.waiting.reason or "") not in IN_TURN or (container is first and state.waiting.reason):
            reason, said = state.waiting.reason, state.waiting.message or ""
            said = "".join(c if c.isprintable() else " " for c in said[:WAITS_MOST])
            return f"container {container.name}: {reason}" + (f", {said}" if said else ""), ended_at
    return "", None


def _crashes(status: PodStatus) -> str:
    """(after it started) the container that kubelet starts again and again, and how it ended last; "" none."""
    if status.phase != "Running":
        return ""
    for container in status.container_statuses or ():
        state, last = container.state or ContainerState(), container.last_state or ContainerState()
        if state.waiting is not None and state.waiting.reason == "CrashLoopBackOff":
            if last.terminated is None:
                return f"container {container.name}"
            reason = last.terminated.reason or "Error"
            return f"container {container.name}, which ended with exit code {last.terminated.exit_code} ({reason})"
    return ""


def _end(spec: PodSpec, status: PodStatus) -> tuple[int | None, str]:
    """(exit code, reason) of the containers that ended.  Sidecars are ended by the kubelet and say nothing."""
    sidecars = {c.name for c in spec.init_containers or () if c.restart_policy == "Always"}
    worst: tuple[int, str] | None = None
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        ended = container.state.terminated if container.state else None
        if ended is None or container.name in sidecars:
            continue
        code = ended.exit_code or (128 + ended.signal if ended.signal else 0)
        if worst is None or code >= worst[0]:
            worst = (code, ended.reason or "")
    if worst is None:
        return None, status.reason or ""
    return worst[0], status.reason or worst[1]


# --- the others -----------------------------------------------------------------------------------------------------


def to_node(wire: WireNode) -> model.Node:
    """A node; one whose Ready condition is missing or Unknown is not ready."""
    said = {condition.type: condition for condition in wire.status.conditions or ()}
    ready = "Ready" in said and said["Ready"].status == "True"
    silent = "Ready" in said and said["Ready"].status == "Unknown"
    ours = said.get(names.IN_SLURM)
    return model.Node(
        name=wire.metadata.name,
        labels=wire.metadata.labels or NO_TEXT,
        ready=ready,
        unschedulable=bool(wire.spec.unschedulable),
        taints=tuple(model.Taint(t.key, t.value or "", t.effect) for t in wire.spec.taints or ()),
        allocatable=_offered(wire.status.allocatable),
        uid=wire.metadata.uid,
        ready_since=_epoch(said["Ready"].last_transition_time) if ready else None,
        silent_since=_epoch(said["Ready"].last_transition_time) if silent else None,
        address=next((a.address for a in wire.status.addresses or () if a.type == "InternalIP"), ""),
        partitions=(wire.metadata.annotations or {}).get(names.PARTITIONS, ""),
        in_slurm=None if ours is None else _condition(ours),
    )


def _condition(wire: WireCondition) -> model.Condition:
    return model.Condition(wire.status == "True", wire.reason or "", wire.message or "")


def _offered(texts: Mapping[str, str] | None) -> Amounts:
    """What a node has, rounded down; what cannot be read it does not have."""
    offered = {}
    for resource, text in (texts or {}).items():
        try:
            offered[resource] = amount(resource, text, False)
        except QuantityError:
            offered[resource] = 0
    return offered


def to_namespace(wire: WireNamespace) -> model.Namespace:
    """A namespace."""
    return model.Namespace(wire.metadata.name, wire.metadata.uid, wire.metadata.labels or NO_TEXT)


def to_owner(ref: model.OwnerRef) -> Callable[[WireOwner], model.Owner]:
    """A controller: the reference it was read by, but with the uid that it has now."""

    def read(wire: WireOwner) -> model.Owner:
        meta = wire.metadata
        return model.Owner(
            ref=model.OwnerRef(ref.api_version, ref.kind, meta.name, meta.uid),
            annotations=_annotations(meta),
            owner=_controller(meta),
            active_deadline_s=wire.spec.active_deadline_seconds if wire.spec and ref.kind == "Job" else None,
            members=_members(ref.kind, wire.spec, wire.status) if wire.spec else None,
        )

    return read


def _members(kind: str, spec: OwnerSpec, status: OwnerStatus | None) -> int | None:
    """How many pods it means to have still (W2, W5); None: its kind says nothing."""
    if kind == "Job":
        return _at_once(spec, status.succeeded or 0 if status else 0)
    if kind == "JobSet":
        return sum(job.replicas * _at_once(job.template.spec) for job in spec.replicated_jobs or ())
    if kind == "PodGroup":
        policy = spec.scheduling_policy
        if policy is not None:
            return policy.gang.min_count if policy.gang else 1  # without a gang each goes its way
        return spec.min_member
    return None


def _at_once(job: OwnerSpec | JobTemplateSpec, succeeded: int = 0) -> int:
    """How many pods a batch Job has at a time while so many have succeeded."""
    parallelism = 1 if job.parallelism is None else job.parallelism
    return parallelism if job.completions is None else min(parallelism, job.completions - succeeded)


def _annotations(meta: Meta) -> Mapping[str, str]:
    if not meta.annotations:
        return NO_TEXT
    meta.annotations.pop(BALLAST, None)
    return meta.annotations


def _controller(meta: Meta) -> model.OwnerRef | None:
    for owner in meta.owner_references or ():
        if owner.controller:
            return model.OwnerRef(owner.api_version, owner.kind, owner.name, owner.uid)
    return None


def _epoch(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


_envelopes = msgspec.json.Decoder(Envelope)
_pages = msgspec.json.Decoder(Page)
_marked = msgspec.json.Decoder(Marked)
_statuses = msgspec.json.Decoder(Status)
_events = msgspec.json.Decoder(WireEvent)
_reviews = msgspec.json.Decoder(WireReview)
_versions = msgspec.json.Decoder(Version)

PODS: Codec[model.Pod] = codec(WirePod, to_pod)
NODES: Codec[model.Node] = codec(WireNode, to_node)
NAMESPACES: Codec[model.Namespace] = codec(WireNamespace, to_namespace)
TAINTED: Codec[TaintedNode] = codec(TaintedNode, lambda wire: wire)
CLAIMS: Codec[WireClaim] = codec(WireClaim, lambda wire: wire)
VOLUMES: Codec[WireVolume] = codec(WireVolume, lambda wire: wire)
STORAGE_CLASSES: Codec[WireStorageClass] = codec(WireStorageClass, lambda wire: wire)


def owner_codec(ref: model.OwnerRef) -> Codec[model.Owner]:
    """The reader of one controller."""
    return codec(WireOwner, to_owner(ref))


def encode(body: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """A request body."""
    return msgspec.json.encode(body)
