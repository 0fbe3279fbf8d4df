"""Nodes, namespaces and controllers as the scheduler's nouns, and what every kind's reader needs.

One odd object must never take a whole list with it: of a node, what cannot be read it does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from bridge.kube.wire import (
    Expression,
    JobTemplateSpec,
    Meta,
    NodeSelector,
    OwnerSpec,
    OwnerStatus,
    WireCondition,
    WireNamespace,
    WireNode,
    WireOwner,
)
from scheduler import model, names
from scheduler.model import NO_TEXT, Amounts
from scheduler.quantity import QuantityError, amount

# kubectl keeps a copy of the whole manifest there; nobody decides by it.
BALLAST = "kubectl.kubernetes.io/last-applied-configuration"


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
        ready_since=epoch(said["Ready"].last_transition_time) if ready else None,
        silent_since=epoch(said["Ready"].last_transition_time) if silent else None,
        address=next((a.address for a in wire.status.addresses or () if a.type == "InternalIP"), ""),
        partitions=(wire.metadata.annotations or {}).get(names.PARTITIONS, ""),
        in_slurm=None if ours is None else condition_of(ours),
    )


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
            annotations=annotations_of(meta),
            owner=controller_of(meta),
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


# --- of every kind --------------------------------------------------------------------------------------------------


def annotations_of(meta: Meta) -> Mapping[str, str]:
    """Its annotations, without what is large and says nothing."""
    if not meta.annotations:
        return NO_TEXT
    meta.annotations.pop(BALLAST, None)
    return meta.annotations


def controller_of(meta: Meta) -> model.OwnerRef | None:
    """Who made it, and makes it again; None: nobody."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return model.OwnerRef(owner.api_version, owner.kind, owner.name, owner.uid)
    return None


def condition_of(wire: WireCondition) -> model.Condition:
    """What is remembered of a condition."""
    return model.Condition(wire.status == "True", wire.reason or "", wire.message or "")


def epoch(moment: datetime | None) -> float | None:
    """Seconds since 1970."""
    return None if moment is None else moment.timestamp()


def node_terms(selector: NodeSelector | None) -> tuple[model.NodeTerm, ...] | None:
    """The alternatives of a required node affinity; None: there is none."""
    if selector is None:
        return None
    return tuple(
        model.NodeTerm(requirements(term.match_expressions), requirements(term.match_fields))
        for term in selector.node_selector_terms or ()
    )


def requirements(expressions: list[Expression] | None) -> tuple[model.Requirement, ...]:
    """What labels or fields must say."""
    return tuple(model.Requirement(e.key, e.operator, tuple(e.values or ())) for e in expressions or ())
