"""Applies polls of Slurm's nodes and partitions to the World."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from scheduler import events as ev
from scheduler.model.anomaly import Anomaly
from scheduler.model.slurm import SlurmNode
from scheduler.state import other_schedulers, quarantine
from scheduler.state.anomalies import reject
from scheduler.state.phase import Phase
from scheduler.state.world import World

_T = TypeVar("_T")


def _slurm_nodes_polled(world: World, event: ev.SlurmNodesPolled) -> None:
    began = event.at if event.began is None else event.began
    if world.nodes_polled is not None and began < world.nodes_polled[0]:  # two polls were in flight
        reject(world, Anomaly.OLD_POLL)
        return
    nodes = _last_known(world.slurm_nodes or {}, event.undecoded_nodes) | {node.name: node for node in event.nodes}
    partitions = world.partitions
    if event.partitions is not None:
        partitions = _last_known(partitions, event.undecoded_partitions) | {
            partition.name: partition for partition in event.partitions
        }
    world.nodes_stale = False
    world.undecoded_nodes = event.undecoded_nodes
    changed = _read_by_feasibility(nodes) != _read_by_feasibility(world.slurm_nodes or {}) or world.slurm_nodes is None
    changed = changed or partitions != world.partitions
    if partitions != world.partitions:
        world.partitions = partitions
        world.default_partition = next((partition.name for partition in partitions.values() if partition.default), "")
        for key in world.by_phase[Phase.UNSUBMITTED]:  # Slurm's configuration changed: submit again (Q4)
            world.input_changed(world.workloads[key])
        for key in world.by_phase[Phase.QUEUED]:
            world.job_of[key].retry_changes()
        for key in (*world.by_phase[Phase.UNSUBMITTED], *world.by_phase[Phase.QUEUED]):
            world.refresh(world.workloads[key])  # the default partition may have changed
    elif not _configured(nodes).items() <= _configured(world.slurm_nodes or {}).items():
        _ask_again(world)  # that a node is gone lets Slurm accept nothing more
    world.slurm_nodes = nodes
    world.nodes_polled = (began, event.at)
    world.observe_slurm_nodes(partial(quarantine.quarantine_slurm_node, world))
    if changed:
        world.feasibility_changed()
        other_schedulers.find_pods(world)


def _last_known(before: Mapping[str, _T], undecoded: ev.UndecodedItems) -> dict[str, _T]:
    """The last known states of the objects that could not be decoded now, by name."""
    return {name: known for name, known in before.items() if name in undecoded} if undecoded else {}


def _configured(nodes: Mapping[str, SlurmNode]) -> dict[str, tuple[object, ...]]:
    """What Slurm compares with the requests of a job, of each node: a change may let Slurm accept a job that it refused."""
    return {
        name: (node.partitions, node.features, node.cpus, node.memory_mib, node.gres) for name, node in nodes.items()
    }


def _ask_again(world: World) -> None:
    """Ask Slurm again for what it refused or holds for good: the configuration of its nodes changed (Q4, K8)."""
    for key in world.by_phase[Phase.QUEUED]:
        job = world.job_of[key]
        if job.held_retry_at is not None or job.refused_changes:
            job.retry_changes()
            world.refresh(world.workloads[key])
    for key in world.by_phase[Phase.UNSUBMITTED]:
        workload = world.workloads[key]
        if workload.refused is not None and not workload.refused.later:
            world.input_changed(workload)
            world.refresh(workload)


def _read_by_feasibility(nodes: Mapping[str, SlurmNode]) -> dict[str, tuple[object, ...]]:
    """The parts of each node that decide which pods may run there, and how many.

    Of its states only a few are a part: each allocation changes states.
    """
    return {
        name: (
            node.external,
            node.loses_devices,
            node.changes_power,
            node.partitions,
            node.cpus,
            node.memory_mib,
            node.gres,
        )
        for name, node in nodes.items()
    }


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {ev.SlurmNodesPolled: _slurm_nodes_polled}
