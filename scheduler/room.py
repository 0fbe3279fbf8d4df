"""How many pods of a gang its nodes take when they are empty (BEHAVIOUR F3, T10).

What is merely taken now is Slurm's to queue for.  A gang that even empty nodes cannot take is told so, in words, instead of
being refused by Slurm.  And a gang that wants its nodes for itself is told how many pods each of them takes:

Where that is not said, Slurm counts memory by the CPU; and it charges an exclusive job for all CPUs of its nodes.  Two
tasks of 1 CPU and 100 GiB then cost 6,400 GiB on a node of 64 CPUs, which no node has, and the job is refused (2014).
Said how many tasks a node gets, their memory is asked of the node, and nobody pays for idle CPUs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from scheduler.model import JobSpec, SlurmNode


def laid_out(spec: JobSpec, nodes: Collection[SlurmNode]) -> JobSpec:
    """The same job, told how many tasks each node gets, if it is exclusive and its memory could not be had otherwise.

    nodes   those that it may use.  It stands on as few of them as it can; where they cannot hold it, Slurm says so.
    """
    open_question = spec.exclusive == "exclusive" and spec.tasks > 1 and spec.tasks_per_node is None
    if not open_question or all(_memory_by_cpu(spec) * node.cpus <= node.memory_mib for node in nodes):
        return spec
    rooms = [min(_room(spec, node), node.memory_mib // spec.memory_mib) for node in nodes]
    least = spec.min_nodes or 1
    for places in range(min(-(-spec.tasks // least), max(rooms)), 0, -1):
        count = max(-(-spec.tasks // places), least)
        if sum(room >= places for room in rooms) >= count and count <= (spec.max_nodes or count):
            return replace(spec, tasks_per_node=places)
    return spec


def lacking(spec: JobSpec, nodes: Collection[SlurmNode], partition: str) -> str:
    """Why so many tasks could not even stand on those nodes if all were empty; "" where they could, or Slurm knows better.

    Memory is left to Slurm, which counts it only where its administrator wants that.
    """
    rooms = sorted(
        (min(room, spec.tasks_per_node or room) for node in nodes if (room := _room(spec, node))), reverse=True
    )
    takes = sum(rooms[: spec.max_nodes])
    if not rooms or takes >= spec.tasks:
        return ""
    most = f" on {spec.max_nodes} of its nodes" if spec.max_nodes is not None else ""
    where = f"Slurm partition {partition}" if partition else "Slurm's partition"
    return (
        f"{where} has no room for {spec.tasks} such pods{most}, even when it is empty: "
        f"{len(rooms)} {'node' if len(rooms) == 1 else 'nodes'} can run them, and would take {takes}."
    )


def _memory_by_cpu(spec: JobSpec) -> int:
    """MiB for each CPU, so that no task gets less than it asks for."""
    return -(-spec.memory_mib // spec.cpus_per_task)


def _room(spec: JobSpec, node: SlurmNode) -> int:
    """How many of its tasks an empty node takes, memory aside."""
    devices = [node.gres.get(name, 0) // count for name, count in spec.gres if count]
    return min([node.cpus // spec.cpus_per_task, *devices])
