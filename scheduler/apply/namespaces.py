"""Applies namespaces, their labels, and the rights of the bridge in them to the World.

Labels decide which namespaces are managed, and which Slurm user a namespace has (policy.py).  The mark of this cluster in job
names is made from the UID of `kube-system`, so pods are applied only after this namespace is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from scheduler import events as ev
from scheduler.apply.policy import identity_changed, mark_concerned
from scheduler.apply.undecoded import note_decoded, note_list, with_undecoded
from scheduler.model.kubernetes import Namespace
from scheduler.nodes.observed import NOT_YET
from scheduler.state import other_schedulers, quarantine
from scheduler.state.phase import Phase
from scheduler.state.tables import FORMER_KEPT
from scheduler.state.undecoded import NAMESPACE
from scheduler.state.world import World


def _namespace_seen(world: World, event: ev.NamespaceSeen) -> None:
    note_decoded(world, NAMESPACE, event.namespace)
    if world.namespaces is not None:
        before = world.namespaces.get(event.namespace.name)
        world.namespaces[event.namespace.name] = event.namespace
        world.cluster = world.mark_of_cluster()
        if before is None or before.labels != event.namespace.labels:
            _note_former_labels(world, before)
            _managed_changed(world)
            identity_changed(world, {event.namespace.name})
        _apply_early_events(world)


def _namespace_deleted(world: World, event: ev.NamespaceDeleted) -> None:
    _forget_labels(world, event.name)
    if world.namespaces is not None and event.name != "kube-system":
        world.namespaces.pop(event.name, None)
        _managed_changed(world)


def _namespaces_listed(world: World, event: ev.NamespacesListed) -> None:
    note_list(world, NAMESPACE, event.undecoded)
    namespaces = with_undecoded(event.namespaces, world.namespaces, event.undecoded)
    is_first = world.namespaces is None
    before, world.namespaces = world.namespaces or {}, namespaces
    world.cluster = world.mark_of_cluster()
    _managed_changed(world)
    changed = {
        name for name, namespace in namespaces.items() if name not in before or before[name].labels != namespace.labels
    }
    for name in before.keys() - namespaces.keys():
        _forget_labels(world, name)
    for name in changed:
        _note_former_labels(world, before.get(name))
    (mark_concerned if is_first else identity_changed)(world, changed)  # the first list shows no change of labels
    _apply_early_events(world)
    if world.node_state.polled == NOT_YET:
        world.observe_slurm_nodes(partial(quarantine.quarantine_slurm_node, world))


def _forget_labels(world: World, name: str) -> None:
    """The namespace is gone: one of this name that is created later has nothing to do with its labels."""
    world.labels_at.pop(name, None)
    world.former_labels.pop(name, None)


def _note_former_labels(world: World, before: Namespace | None) -> None:
    """Keep the labels of a namespace that has others now; None: the namespace was not known before."""
    if before is not None:
        world.former_labels.setdefault(before.name, deque(maxlen=FORMER_KEPT)).append(before.labels)


def _managed_changed(world: World) -> None:
    """Mark the workloads that are concerned if other namespaces are managed now: their pods may be submitted or bound."""
    world.identity_changes += 1
    for phase in (Phase.UNSUBMITTED, Phase.GRANTED, Phase.ORPHANED):
        world.dirty.update(world.by_phase[phase])
    world.dirty.update(dict.fromkeys(key for key in world.by_phase[Phase.BOUND] if world.workloads[key].strays))
    other_schedulers.find_pods(world)


def _apply_early_events(world: World) -> None:
    if world.is_cluster_known:
        early, world.early = world.early, []
        for early_event in early:
            world.apply_part(early_event)


def _rights_checked(world: World, event: ev.RightsChecked) -> None:
    """Note the missing rights.  If rights are back, repeat failed attempts at once (scheduler/rules/missing_rights.py)."""
    before, world.lacking_rights = world.lacking_rights, dict(event.lacking)
    back = before.keys() - event.lacking.keys()
    changed = back | {name for name, why in event.lacking.items() if before.get(name) != why}
    for workload in world.workloads.values():
        if workload.namespace in back:
            workload.reset_backoffs()
            world.input_changed(workload)
        if workload.namespace in changed:
            world.dirty[workload.key] = None


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {
    ev.NamespaceSeen: _namespace_seen,
    ev.NamespaceDeleted: _namespace_deleted,
    ev.NamespacesListed: _namespaces_listed,
    ev.RightsChecked: _rights_checked,
}
