"""Converts nodes, namespaces and controllers of the API to values of `scheduler.model`; with helpers for every kind.

One malformed object must not make a whole list fail.  So a field of a node that cannot be read counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import islice

from bridge.kube.wire import (
    Expression,
    JobTemplateSpec,
    Meta,
    NodeSelector,
    OwnerSpec,
    OwnerStatus,
    ReplicatedJob,
    StartupPolicy,
    TopologyTerm,
    WireCondition,
    WireNamespace,
    WireNode,
    WireOwner,
    WireTaint,
)
from scheduler import names
from scheduler.model import kubernetes as model
from scheduler.model.amounts import NO_TEXT, Amounts
from scheduler.model.quantity import QuantityError, amount
from scheduler.translate.grouping import ANNOTATIONS
from scheduler.translate.values import MAX_TEXT

# Annotations that the scheduler reads.  Others are not kept: there may be 256 KiB of them on each object.
READ_PREFIXES = (names.PREFIX, names.ALIAS_PREFIX)
MOST_ANNOTATIONS = 64  # more than there are keys
JOB_OPTIONS = frozenset(names.PREFIX + key for key in names.JOB_OPTIONS) | {
    names.ALIAS_PREFIX + key for key in names.ALIASES
}
KNOWN = JOB_OPTIONS | {names.PREFIX + key for key in names.WRITTEN_BY_US | names.GROUPING} | ANNOTATIONS
LISTS = frozenset({names.JOB_NODES, names.JOB_GPUS, names.STAGE})  # the annotations of the bridge that may be long
MOST_WRITTEN = 64 * 2**10  # characters of an annotation that the bridge writes: job-nodes lists all nodes of a gang
MOST_MESSAGE = 8 * 2**10  # characters of a condition's message: more than the bridge writes
MOST_WORD = 256  # characters of a reason, an address, or a name that other clients may choose freely
MOST_ADDRESS = 64  # characters of an IP address
MOST_OF_LABEL = 64  # characters of a selector's value: no value of a label is longer than 63
MOST_OF_NODE = 1024  # labels, taints and kinds of resources of a node: node-feature-discovery writes some hundreds
MOST_OF_SPACE = 256  # labels of a namespace
MIN_YEAR, MAX_YEAR = 1970, 9998  # other years are mistakes; a time within can be shown, also with a margin added
MOST_REFERENCE = 512  # characters of each text of a reference to an owner
MOST_TIME = 40  # characters of a time


def to_node(wire: WireNode) -> model.Node:
    """The node.  If its Ready condition is missing or Unknown, the node is not ready."""
    conditions = {condition.type: condition for condition in wire.status.conditions or ()}
    ready_condition, in_slurm = conditions.get("Ready"), conditions.get(names.IN_SLURM)
    ready_changed = None if ready_condition is None else epoch(ready_condition.last_transition_time)
    ready = ready_condition is not None and ready_condition.status == "True"
    silent = ready_condition is not None and ready_condition.status == "Unknown"
    return model.Node(
        name=wire.metadata.name,
        labels=_some(wire.metadata.labels, MOST_OF_NODE),
        ready=ready,
        unschedulable=bool(wire.spec.unschedulable),
        taints=_taints(wire.spec.taints or []),
        allocatable=_offered(wire.status.allocatable),
        uid=wire.metadata.uid,
        ready_since=ready_changed if ready else None,
        kubelet_silent_since=ready_changed if silent else None,
        address=next((a.address for a in wire.status.addresses or () if a.type == "InternalIP"), "")[:MOST_WORD],
        partitions=(wire.metadata.annotations or {}).get(names.PARTITIONS, "")[:MOST_MESSAGE],
        in_slurm=None if in_slurm is None else condition_of(in_slurm),
    )


def _offered(texts: Mapping[str, str] | None) -> Amounts:
    """The resources of a node, rounded down; unreadable amounts count as none."""
    offered = {}
    for resource, text in _some(texts, MOST_OF_NODE).items():
        try:
            offered[resource] = amount(resource, text, False)
        except QuantityError:
            offered[resource] = 0
    return offered


def to_namespace(wire: WireNamespace) -> model.Namespace:
    """The namespace with its labels: rules of the policy may select by any label, and take values from it."""
    return model.Namespace(wire.metadata.name, wire.metadata.uid, _some(wire.metadata.labels, MOST_OF_SPACE))


def to_owner(ref: model.OwnerRef) -> Callable[[WireOwner], model.Owner]:
    """The reader of a controller.  `ref` of the result has the uid that the controller has now."""

    def read(wire: WireOwner) -> model.Owner:
        meta = wire.metadata
        return model.Owner(
            ref=model.OwnerRef(ref.api_version, ref.kind, meta.name, meta.uid),
            annotations=annotations_of(meta),
            owner=controller_of(meta),
            active_deadline_s=wire.spec.active_deadline_seconds if wire.spec and ref.kind == "Job" else None,
            members=_members(ref.kind, wire.spec, wire.status) if wire.spec else None,
            stages=_stages(wire.spec) if wire.spec and ref.kind == "JobSet" else (),
        )

    return read


def _members(kind: str, spec: OwnerSpec, status: OwnerStatus | None) -> int | None:
    """The number of pods that the owner still wants (W2, W5); None: its kind does not define one."""
    if kind == "Job":
        return _at_once(spec, status.succeeded or 0 if status else 0)
    if kind == "JobSet":
        return sum(map(_pods_of, spec.replicated_jobs or ()))
    if kind == "PodGroup":
        policy = spec.scheduling_policy
        if policy is not None:
            return policy.gang.min_count if policy.gang else 1  # without `gang`, each pod starts by itself
        return spec.min_member
    return None


def _stages(jobset: OwnerSpec) -> tuple[model.Stage, ...]:
    """The stages of a JobSet in order: Jobs of one stage are made together; () if all Jobs are made together."""
    jobs = jobset.replicated_jobs or ()
    policy = jobset.startup_policy
    in_order = isinstance(policy, StartupPolicy) and policy.startup_policy_order == "InOrder"
    together: dict[object, list[ReplicatedJob]] = {}
    for number, job in enumerate(jobs):
        waits_for = frozenset((dependency.name, dependency.status) for dependency in job.depends_on or ())
        together.setdefault(number if in_order else waits_for, []).append(job)
    if len(together) < 2:
        return ()
    return tuple(
        model.Stage(same[0].name, tuple(job.name for job in same), sum(map(_pods_of, same)))
        for same in together.values()
    )


def _pods_of(job: ReplicatedJob) -> int:
    """The number of pods that all Jobs of this replicated Job have at a time; a negative number makes none."""
    return max(0, job.replicas) * max(0, _at_once(job.template.spec))


def _at_once(job: OwnerSpec | JobTemplateSpec, succeeded: int = 0) -> int:
    """The number of pods that a batch Job has at a time after *succeeded* of them have succeeded."""
    parallelism = 1 if job.parallelism is None else job.parallelism
    return parallelism if job.completions is None else min(parallelism, job.completions - succeeded)


def _taints(wires: list[WireTaint]) -> tuple[model.Taint, ...]:
    """The taints.  If there are too many: the bridge's taints and the first others.  No pod tolerates so many one by one."""
    if len(wires) > MOST_OF_NODE:
        wires = sorted(wires, key=lambda taint: not taint.key.startswith(names.PREFIX))[:MOST_OF_NODE]
    return tuple(model.Taint(t.key, t.value or "", t.effect) for t in wires)


def _some(texts: Mapping[str, str] | None, most: int) -> Mapping[str, str]:
    """The labels.  If there are too many, a part: first labels that a kubelet may not write, then labels of Kubernetes."""
    if not texts:
        return NO_TEXT
    if len(texts) <= most:
        return texts
    return {key: texts[key] for key in sorted(texts, key=_rank)[:most]}


def _rank(key: str) -> tuple[int, str]:
    domain, slash, _ = key.rpartition("/")
    if key.startswith(names.PREFIX) or domain.endswith("node-restriction.kubernetes.io"):
        return 0, key
    return (1 if not slash or domain.endswith("kubernetes.io") else 2), key


# --- of every kind --------------------------------------------------------------------------------------------------


def annotations_of(meta: Meta, *, bound: bool = False) -> Mapping[str, str]:
    """The annotations that the scheduler reads.  bound: the pod may have annotations that the bridge wrote"""
    annotations = meta.annotations
    if not annotations:
        return NO_TEXT
    kept = {
        key: text if len(text) <= MOST_WORD else _cut(key, text, bound)
        for key, text in annotations.items()
        if key.startswith(READ_PREFIXES) or key in ANNOTATIONS
    }
    if len(kept) > MOST_ANNOTATIONS:  # most of them are misspelt: the first ones are enough to report that
        known = {key: text for key, text in kept.items() if key in KNOWN}
        return dict(islice((known | kept).items(), MOST_ANNOTATIONS))
    return kept or NO_TEXT


def _cut(key: str, text: str, bound: bool) -> str:
    """The part of a long text that is kept.  A text that is too long stays too long, so that it is refused (T9).

    For a misspelt key, and for a key that the bridge has not written yet, only the presence of the key matters.
    """
    if key in LISTS and bound:
        return text[:MOST_WRITTEN]
    if key in JOB_OPTIONS:
        return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
    return text[:MOST_WORD] + "…"


def controller_of(meta: Meta) -> model.OwnerRef | None:
    """The reference to the controller of the object; None: it has none."""
    for owner in meta.owner_references or ():
        # The API server does not limit these texts in a reference.  No object with a longer name can exist.
        if owner.controller and max(map(len, (owner.api_version, owner.kind, owner.name, owner.uid))) <= MOST_REFERENCE:
            return model.OwnerRef(owner.api_version, owner.kind, owner.name, owner.uid)
    return None


def condition_of(wire: WireCondition) -> model.Condition:
    """The parts of a condition that the scheduler keeps."""
    return model.Condition(wire.status == "True", (wire.reason or "")[:MOST_WORD], (wire.message or "")[:MOST_MESSAGE])


def epoch(text: str | None) -> float | None:
    """Seconds since 1970; None if there is no time or it cannot be read (a kubelet may write any text)."""
    return None if text is None or len(text) > MOST_TIME else _epoch(text)


@lru_cache(4096)
def _epoch(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    known = moment.tzinfo is not None and MIN_YEAR <= moment.year <= MAX_YEAR
    return moment.timestamp() if known else None


def node_terms(selector: NodeSelector | None) -> tuple[model.NodeTerm, ...] | None:
    """The alternatives of a required node affinity; None: there is none."""
    if selector is None:
        return None
    return tuple(
        model.NodeTerm(requirements(term.match_expressions), requirements(term.match_fields, MOST_WORD))
        for term in selector.node_selector_terms or ()
    )


def topology_terms(terms: list[TopologyTerm] | None) -> tuple[model.NodeTerm, ...] | None:
    """The nodes for which a storage class makes volumes, as a required node affinity; None: all nodes."""
    if not terms:
        return None
    return tuple(
        model.NodeTerm(tuple(model.Requirement(e.key, "In", _values(e.values, MOST_OF_LABEL)) for e in term))
        for term in (each.match_label_expressions or () for each in terms)
    )


def requirements(expressions: list[Expression] | None, most: int = MOST_OF_LABEL) -> tuple[model.Requirement, ...]:
    """The requirements on labels or fields.  most: characters kept of a value; a longer value cannot equal any label"""
    return tuple(model.Requirement(e.key, e.operator, _values(e.values, most)) for e in expressions or ())


def _values(values: list[str] | None, most: int) -> tuple[str, ...]:
    return tuple(value if len(value) <= most else value[:most] for value in values or ())
