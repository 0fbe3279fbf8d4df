"""Decodes a pod of the API to the scheduler's `Pod`.

One malformed pod must not make a whole list fail.  So a quantity that cannot be read is not an error here: it becomes one of
the pod's `refused_fields`, in words, and the pod alone is refused for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import islice

from bridge.kube.cut import cut
from bridge.kube.objects import (
    MOST_ADDRESS,
    MOST_OF_LABEL,
    MOST_WORD,
    annotations_of,
    condition_of,
    controller_of,
    epoch,
    node_terms,
    requirements,
)
from bridge.kube.pod_times import times_of
from bridge.kube.wire import (
    Affinity,
    Container,
    ContainerState,
    ContainerStatus,
    LabelSelector,
    Meta,
    PodMeta,
    PodSpec,
    PodStatus,
    PodTerms,
    Resources,
    Texts,
    Volume,
    WireCondition,
    WirePod,
    WireToleration,
)
from scheduler import names
from scheduler.model import kubelet
from scheduler.model import kubernetes as model
from scheduler.model.amounts import EMPTY, NO_TEXT, Amounts
from scheduler.model.cache import BoundedDict
from scheduler.model.kubernetes import PodPhase
from scheduler.model.quantity import QuantityError, amount
from scheduler.translate.grouping import LABELS
from scheduler.translate.pod_limits import MAX_KINDS, MAX_PORTS, listed

HOSTNAME = "kubernetes.io/hostname"
OWN_GRACE_S = 30  # default of terminationGracePeriodSeconds
LEAST_GRACE_S = 1  # a negative grace counts as this, as Kubernetes has it since 1.27
# Kubelet gives a pod that is deleted by force the grace of its spec, which cannot be shortened: its object is gone.
MOST_GRACE_S = 86_400


def to_pod(wire: WirePod) -> model.Pod:
    """The pod; model.Pod explains each field."""
    meta, spec, status = wire.metadata, wire.spec, wire.status
    refused = list(_refused_fields(spec))
    given = _given(spec, status)
    containers = _containers(spec.containers, given, refused)
    init_containers = _containers(spec.init_containers, given, refused)
    exit_code, end_reason = _end(spec, status)
    scheduled, bound_at, job_condition, disrupted = _conditions(status.conditions)
    own_deadline, handed_deadline = _deadlines(meta, spec)
    waits, waited_on = _waits(spec, status)
    pod = model.Pod(
        uid=meta.uid,
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        created=epoch(meta.creation_timestamp) or 0.0,
        labels=_labels(meta.labels, refused),
        annotations=annotations_of(meta, bound=bool(spec.node_name)),
        owner=controller_of(meta),
        pod_group=(spec.scheduling_group.pod_group_name or "")[:MOST_WORD] if spec.scheduling_group else "",
        scheduler_name=sys.intern(spec.scheduler_name[:MOST_WORD]),
        service_account=sys.intern(spec.service_account_name),
        priority_class=sys.intern(spec.priority_class_name),
        node=sys.intern(spec.node_name),
        phase=_PHASES.get(status.phase, PodPhase.UNKNOWN),
        deleting_at=epoch(meta.deletion_timestamp),
        grace_s=_grace_s(meta, spec),
        gated=bool(spec.scheduling_gates),
        restart_policy=sys.intern(spec.restart_policy),
        active_deadline_s=own_deadline,
        set_deadline_s=handed_deadline,
        containers=containers,
        init_containers=init_containers,
        overhead=_asked(spec.overhead, "overhead", refused),
        pod_requests=_asked(spec.resources.requests, "requests", refused) if spec.resources else EMPTY,
        pod_limits=_asked(spec.resources.limits, "limits", refused) if spec.resources else EMPTY,
        node_selector=spec.node_selector or NO_TEXT,
        node_affinity=_required_nodes(spec.affinity),
        anti_affinity=_pod_terms(meta, spec.affinity.pod_anti_affinity, "anti-affinity", refused)
        if spec.affinity
        else (),
        affinity=_pod_terms(meta, spec.affinity.pod_affinity, "affinity", refused) if spec.affinity else (),
        tolerations=_tolerations(spec.tolerations),
        host_ports=_host_ports(spec),
        claims=_claims(meta.name, spec.volumes),
        refused_fields=tuple(refused) if len(refused) <= _FEW else (listed(refused),),
        scheduled=scheduled,
        disrupted=disrupted,
        bound_at=bound_at,
        started=epoch(status.start_time),
        waits=waits,
        waits_since=max((at for at in (bound_at, waited_on) if at is not None), default=None) if waits else None,
        runs_in_part=bool(waits) and any(map(_runs, status.container_statuses or ())),
        outlives_phase=_is_failed_by_others(status),
        crashes=_crashes(status),
        job_condition=job_condition,
        exit_code=exit_code,
        end_reason=end_reason,
        version=meta.resource_version,
        times=times_of(status),
    )
    return pod if _is_plain(spec) and not given else cut(pod)


def _grace_s(meta: PodMeta, spec: PodSpec) -> int:
    """Seconds from the deletion to the end.  If a pod is deleted by force, kubelet still gives it the grace of its spec."""
    grace = spec.termination_grace_period_seconds
    if meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds:
        grace = meta.deletion_grace_period_seconds
    if grace is None:
        return OWN_GRACE_S
    return grace if grace >= 0 else LEAST_GRACE_S


def _is_plain(spec: PodSpec) -> bool:
    """True if the pod is certainly within every limit, as most pods are.  This is cheaper than to count."""
    containers = spec.containers or []
    if spec.init_containers:
        containers = [*containers, *spec.init_containers]
    if spec.affinity or spec.resources or spec.overhead or len(containers) > _FEW:
        return False
    if len(spec.tolerations or ()) > _FEW or len(spec.node_selector or ()) > _FEW or len(spec.volumes or ()) > _FEW:
        return False
    number = len(containers) or 1
    for container in containers:
        if container.ports and len(container.ports) > MAX_PORTS // number:
            return False
        if container.resources is not None and _number_asked(container.resources) > MAX_KINDS // number:
            return False
    return True


def _number_asked(asked: Resources) -> int:
    return len(asked.requests or ()) + len(asked.limits or ())


_PHASES = {phase.value: phase for phase in PodPhase} | {"": PodPhase.PENDING}


def _refused_fields(spec: PodSpec) -> Iterable[str]:
    """Requirements that the bridge cannot meet, so it refuses the pod (T11, F5)."""
    if spec.resource_claims:
        yield "resourceClaims (dynamic resource allocation)"
    if any(c.when_unsatisfiable == "DoNotSchedule" for c in spec.topology_spread_constraints or ()):
        yield "topologySpreadConstraints with DoNotSchedule"
    if (grace_s := spec.termination_grace_period_seconds) is not None and grace_s > MOST_GRACE_S:
        yield f"terminationGracePeriodSeconds {grace_s} (at most {MOST_GRACE_S})"


# Pods of one template share equal objects: ten thousand such pods then take a third of the memory, and a comparison of two
# pods mostly compares an object with itself.  Shared objects are frozen.  Large objects are not shared: tenants choose how
# many there are, and shared objects stay in memory when their pods are gone.
MOST_SHARED = 4 * 2**20  # approximate bytes of each kind, as _weight counts them
_FEW = 16
MOST_LABELS = 128  # Kubernetes bounds their lengths, not their number: ten thousand fit on one pod

_Items = tuple[tuple[str, str], ...]
_Asked = tuple[str, bool, _Items, _Items]


def _given(spec: PodSpec, status: PodStatus) -> Mapping[str, Resources]:
    """By container: what kubelet gives it, if kubelet refused a resize of the pod for good; {}: kubelet refused none.

    The spec of such a pod asks for more than its node has.  kube-scheduler and kubelet count what the pod keeps.
    """
    if not spec.node_name or not any(
        c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions or ()
    ):
        return {}
    return {
        container.name: Resources(
            container.allocated_resources or container.resources.requests, container.resources.limits
        )
        for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        if container.resources is not None
    }


def _containers(
    wires: list[Container] | None, given: Mapping[str, Resources], refused: list[str]
) -> tuple[model.Container, ...]:
    if not wires:
        return ()
    asked = tuple([_asked_by(wire, given.get(wire.name)) for wire in wires])
    made, problems = _known_containers.get(asked) or _known_containers.keep(
        asked, _read_containers(asked), _weight(asked)
    )
    refused.extend(problems)
    return made


def _weight(texts: object) -> int:
    """The approximate bytes of these texts and of the objects made from them."""
    return 64 + (len(texts) if isinstance(texts, str) else sum(map(_weight, texts)) if isinstance(texts, tuple) else 0)


def _asked_by(wire: Container, given: Resources | None) -> _Asked:
    """given: see `_given`; it counts for the resources that it has"""
    asked = wire.resources
    requests = asked.requests or {} if asked else {}
    limits = asked.limits or {} if asked else {}
    if given is not None:
        requests, limits = requests | (given.requests or {}), limits | (given.limits or {})
    return wire.name, wire.restart_policy == "Always", tuple(requests.items()), tuple(limits.items())


def _read_containers(asked: tuple[_Asked, ...]) -> tuple[tuple[model.Container, ...], tuple[str, ...]]:
    """The containers, and a sentence for each field of them that cannot be read."""
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


def _labels(labels: Texts | None, refused: list[str]) -> Mapping[str, str]:
    """All labels: a term of another pod may select by any label.  If there are too many, those of the bridge come first."""
    if not labels:
        return NO_TEXT
    if len(labels) <= _FEW:
        items = tuple(labels.items())
        return _known_labels.get(items) or _known_labels.keep(items, labels, _weight(items))
    if len(labels) <= MOST_LABELS:
        return labels
    refused.append(f"{len(labels):,} labels (at most {MOST_LABELS} are read)")
    read = {key: text for key, text in labels.items() if key.startswith(names.PREFIX) or key in LABELS}
    return dict(islice((read | labels).items(), MOST_LABELS))


def _tolerations(wires: list[WireToleration] | None) -> tuple[model.Toleration, ...]:
    if not wires:
        return ()
    texts = tuple([(t.key or "", t.operator or "Equal", t.value or "", t.effect or "") for t in wires])
    known = _known_tolerations.get(texts)
    if known is not None:
        return known
    return _known_tolerations.keep(texts, tuple(model.Toleration(*fields) for fields in texts), _weight(texts))


_known_containers: BoundedDict[tuple[_Asked, ...], tuple[tuple[model.Container, ...], tuple[str, ...]]] = BoundedDict(
    MOST_SHARED
)
_known_labels: BoundedDict[_Items, Mapping[str, str]] = BoundedDict(MOST_SHARED)
_known_tolerations: BoundedDict[tuple[tuple[str, str, str, str], ...], tuple[model.Toleration, ...]] = BoundedDict(
    MOST_SHARED
)


def _asked(texts: Texts | None, where: str, refused: list[str]) -> Amounts:
    """The amounts, rounded up."""
    if not texts:
        return EMPTY
    try:
        return {resource: amount(resource, text, True) for resource, text in texts.items()}
    except QuantityError as error:
        refused.append(f"{where}: {error}")
        return EMPTY


def _host_ports(spec: PodSpec) -> tuple[model.HostPort, ...]:
    return tuple(
        model.HostPort(port.host_port, port.protocol or "TCP", (port.host_ip or "")[:MOST_ADDRESS])
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
            found.append(volume.persistent_volume_claim.claim_name[:MOST_WORD])  # no claim has a longer name
        elif volume.ephemeral:
            found.append(f"{pod_name}-{volume.name}")
    return tuple(found)


def _required_nodes(affinity: Affinity | None) -> tuple[model.NodeTerm, ...] | None:
    if affinity is None or affinity.node_affinity is None:
        return None
    return node_terms(affinity.node_affinity.required)


def _pod_terms(meta: Meta, terms: PodTerms | None, kind: str, refused: list[str]) -> tuple[model.PodTerm, ...]:
    """The terms on hostname; a term on another topology key is refused (F5)."""
    found = []
    for term in (terms.required if terms else None) or ():
        if term.topology_key != HOSTNAME:
            refused.append(f'required pod {kind} on "{term.topology_key}" (only {HOSTNAME})')
        elif term.namespace_selector is not None or term.match_label_keys or term.mismatch_label_keys:
            refused.append(f"required pod {kind} by namespaceSelector or matchLabelKeys")
        elif term.label_selector is None and kind == "affinity":  # selects no pod, so no node would ever do
            refused.append("required pod affinity without labelSelector")
        elif term.label_selector is not None:  # anti-affinity without a selector keeps no pod away
            found.append(model.PodTerm(_selector(term.label_selector), frozenset(term.namespaces or [meta.namespace])))
    return tuple(found)


def _selector(selector: LabelSelector) -> tuple[model.Requirement, ...]:
    equal = ((key, "In", (value[:MOST_OF_LABEL],)) for key, value in sorted((selector.match_labels or {}).items()))
    return (*(model.Requirement(*fields) for fields in equal), *requirements(selector.match_expressions))


def _conditions(
    conditions: list[WireCondition] | None,
) -> tuple[model.Condition | None, float | None, model.Condition | None, bool]:
    """(PodScheduled, when PodScheduled became True, the bridge's condition of bound pods, DisruptionTarget is True)."""
    scheduled, bound_at, job_condition, disrupted = None, None, None, False
    for condition in conditions or ():
        if condition.type == "PodScheduled":
            scheduled = condition_of(condition)
            bound_at = epoch(condition.last_transition_time) if scheduled.status else None
        elif condition.type == names.RUNNING_CONDITION:
            job_condition = condition_of(condition)
        elif condition.type == "DisruptionTarget":
            disrupted = condition.status == "True"
    return scheduled, bound_at, job_condition, disrupted


def _deadlines(meta: PodMeta, spec: PodSpec) -> tuple[int | None, int | None]:
    """(activeDeadlineSeconds of the user, of the bridge): both write the same field, and its last writer owns it (T7)."""
    deadline = spec.active_deadline_seconds
    if deadline is None:
        return None, None
    ours = any(
        entry.manager == spec.scheduler_name and b'"f:activeDeadlineSeconds"' in bytes(entry.fields_v1)
        for entry in meta.managed_fields or ()
    )
    return (None, deadline) if ours else (deadline, None)


IN_TURN = ("PodInitializing", "")  # kubelet's reason for each container that waits for another container
COLLECTED = "DeletionByPodGC"  # reason of DisruptionTarget of a pod whose node is gone
WAITS_MOST = 200  # characters of a container's own message; the rest is in its events


def _waits(spec: PodSpec, status: PodStatus) -> tuple[str, float | None]:
    """(kubelet's reason why a container does not start, or ""; when the last init container succeeded).

    A pod is Pending until each of its own containers has started.  If an init container runs, the pod is about to start.
    If a container waits for something that only a person can mend, its reason is returned before all others.
    """
    if status.phase not in ("Pending", "Failed") or not (status.container_statuses or status.init_container_statuses):
        return "", None
    sidecars = {c.name for c in spec.init_containers or () if c.restart_policy == "Always"}
    initial = status.init_container_statuses or []
    if any(_runs(container) and container.name not in sidecars for container in initial):
        return "", None
    turn = _next_to_start(status)
    containers = (*initial, *(status.container_statuses or ()))
    waiting = [_waiting(container) for container in containers if _has_reason(container, turn)]
    if not waiting:
        return "", None
    ends = (_state(container).terminated for container in initial)
    ended_at = (epoch(end.finished_at) or 0.0 for end in ends if end is not None and end.exit_code == 0)
    return next(filter(kubelet.needs_a_person, waiting), waiting[0]), max(ended_at, default=None)


def _next_to_start(status: PodStatus) -> ContainerStatus | None:
    """The container whose turn it is; None: the pod has no init containers, so all containers start together.

    kubelet gives the reason PodInitializing to all containers that have not run.  Only for the container whose turn it is
    does this reason show that something is missing: a volume, a secret, the network or the image.
    """
    for container in status.init_container_statuses or ():
        state = _state(container)
        if state.running is None and (state.terminated is None or state.terminated.exit_code != 0):
            return container
    return next(iter(status.container_statuses or ()), None) if status.init_container_statuses else None


def _runs(container: ContainerStatus) -> bool:
    return _state(container).running is not None


def _state(container: ContainerStatus) -> ContainerState:
    return container.state or ContainerState()


def _has_reason(container: ContainerStatus, turn: ContainerStatus | None) -> bool:
    waits = _state(container).waiting
    return waits is not None and ((waits.reason or "") not in IN_TURN or (container is turn and bool(waits.reason)))


def _waiting(container: ContainerStatus) -> str:
    """The text of a waiting container, in the form that `scheduler.model.kubelet` reads."""
    waits = container.state.waiting if container.state else None
    assert waits is not None
    reason, message = (waits.reason or "")[:MOST_WORD], waits.message or ""
    message = "".join(c if c.isprintable() else " " for c in message[:WAITS_MOST])
    return f"container {container.name}: {reason}" + (f", {message}" if message else "")


def _is_failed_by_others(status: PodStatus) -> bool:
    """True if the pod garbage collector wrote the phase, because the pod's node is gone, while containers ran.

    Kubelet ends these containers with their grace, if it is alive, and cannot change the phase any more.
    """
    return (
        status.phase == "Failed"
        and any(map(_runs, status.container_statuses or ()))
        and any(c.type == "DisruptionTarget" and c.reason == COLLECTED for c in status.conditions or ())
    )


def _crashes(status: PodStatus) -> str:
    """The container that kubelet restarts again and again, and how its last run ended; "": none.  Only of a started pod.

    A sidecar may crash, too: kubelet shows its status among those of the init containers.
    """
    if status.phase != "Running":
        return ""
    for container in (*(status.container_statuses or ()), *(status.init_container_statuses or ())):
        state, last = container.state or ContainerState(), container.last_state or ContainerState()
        if state.waiting is not None and state.waiting.reason == "CrashLoopBackOff":
            if last.terminated is None:
                return f"container {container.name}"
            reason = (last.terminated.reason or "Error")[:MOST_WORD]
            return f"container {container.name}, which ended with exit code {last.terminated.exit_code} ({reason})"
    return ""


def _end(spec: PodSpec, status: PodStatus) -> tuple[int | None, str]:
    """(exit code, reason) of the containers that ended.

    Sidecars do not count, because the kubelet ends them.  The status 137 of a container that the kubelet never made does not
    count either.
    """
    sidecars = {c.name for c in spec.init_containers or () if c.restart_policy == "Always"}
    worst: tuple[int, str] | None = None
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        ended = container.state.terminated if container.state else None
        if ended is None or container.name in sidecars:
            continue
        if ended.reason == "ContainerStatusUnknown" and not container.container_id:
            continue
        code = ended.exit_code or (128 + ended.signal if ended.signal else 0)
        if worst is None or code >= worst[0]:
            worst = (code, ended.reason or "")
    if worst is None:
        return None, (status.reason or "")[:MOST_WORD]
    return worst[0], (status.reason or worst[1])[:MOST_WORD]
