"""Applies lists and events of Kubernetes nodes to the World.

A list replaces the former list as a whole.  Workloads are marked for a visit if their pods may run on other nodes than
before, or if a kubelet of their pods fell silent or answers again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from scheduler import events as ev
from scheduler.apply.undecoded import note_decoded, note_list, with_undecoded
from scheduler.model.kubernetes import Node
from scheduler.place.feasible import slurm_name
from scheduler.state import other_schedulers, quarantine
from scheduler.state.phase import Phase
from scheduler.state.undecoded import NODE
from scheduler.state.world import World


def _node_seen(world: World, event: ev.NodeSeen) -> None:
    note_decoded(world, NODE, event.node)
    if world.nodes is None or world.nodes.get(event.node.name) == event.node:
        return
    before = world.nodes.get(event.node.name)
    world.nodes[event.node.name] = event.node
    world.note_health([event.node], () if before is not None else (event.node.name,))
    if before is None or before.kubelet_silent_since != event.node.kubelet_silent_since:
        _mark_workloads_on(world, {event.node.name})
    world.node_state.observe(before, event.node, world.config.translation.gres, world.slurm_nodes or {})
    if before is None or slurm_name(before) != slurm_name(event.node):
        _nodes_changed(world)
    elif _read_by_feasibility(before) != _read_by_feasibility(event.node):
        world.feasibility_changed()


def _node_deleted(world: World, event: ev.NodeDeleted) -> None:
    gone = world.nodes.pop(event.name, None) if world.nodes is not None else None
    world.kubelet_silent_since.pop(event.name, None)
    world.ready_since.pop(event.name, None)
    if gone is not None:
        _mark_workloads_on(world, {event.name})
        world.node_state.remove_node(gone)
        _nodes_changed(world)


def _nodes_listed(world: World, event: ev.NodesListed) -> None:
    note_list(world, NODE, event.undecoded)
    nodes = with_undecoded(event.nodes, world.nodes, event.undecoded)
    if nodes != world.nodes:
        before, world.nodes = world.nodes or {}, nodes
        for index in (world.kubelet_silent_since, world.ready_since):
            for name in index.keys() - nodes.keys():
                del index[name]
        world.note_health(event.nodes, nodes.keys() - before.keys())
        _mark_workloads_on(world, before.keys() | nodes.keys())
        known = world.node_state.remove_all_nodes()
        for node in tuple(nodes.values()):
            try:
                world.node_state.observe(None, node, world.config.translation.gres, world.slurm_nodes or {})
            except Exception as error:  # noqa: BLE001 - contained to the node, or raised
                quarantine.quarantine_node(world, node, error)
        world.node_state.mark(known)
        _nodes_changed(world)


def _read_by_feasibility(node: Node) -> tuple[object, ...]:
    """The parts of a node that decide which pods may run there.  The bridge's own writes on a node are not among them."""
    return (node.labels, node.ready, node.unschedulable, node.taints, node.allocatable)


def _mark_workloads_on(world: World, names: Collection[str]) -> None:
    """Mark the workloads whose pods are, or were before they were deleted, on these nodes: kubelets may be silent (S8)."""
    there = [world.node_info[name] for name in names if name in world.node_info]
    keys = (world.key_of_pod.get(uid) for info in there for uid in info.pods)
    world.dirty.update(dict.fromkeys(key for key in keys if key is not None))
    done = ((key, world.workloads[key].deleted_pods.values()) for key in world.by_phase[Phase.DONE])
    world.dirty.update(dict.fromkeys(key for key, gone in done if any(deleted.pod.node in names for deleted in gone)))


def _nodes_changed(world: World) -> None:
    world.map_names()
    world.feasibility_changed()
    other_schedulers.find_pods(world)


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {
    ev.NodeSeen: _node_seen,
    ev.NodeDeleted: _node_deleted,
    ev.NodesListed: _nodes_listed,
}
