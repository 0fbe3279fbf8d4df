"""How many pods of a gang its nodes take when they are empty (F3, T10).

What is merely taken now is Slurm's to queue for.  A gang that even empty nodes cannot take is told so, in words, instead of
being refused by Slurm.  And a gang that wants its nodes for itself is told how many pods each of them takes:

Where that is not said, Slurm counts memory by the CPU; and it charges an exclusive job for all CPUs of its nodes.  Two
tasks of 1 CPU and 100 GiB then cost 6,400 GiB on a node of 64 CPUs, which no node has, and the job is refused (2014).
Said how many tasks a node gets, their memory is asked of the node, and nobody pays for idle CPUs.

The same where devices would be lost.  On external nodes that stand in slurm.conf Slurm gives a job none of the devices that
it asks for by the task, and counts them as used for ever; asked for by the node they are counted rightly (Slurm facts 7).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from scheduler import names
from scheduler.model.hostlist import expand, folded
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec, SlurmNode
from scheduler.place.sharing import Most


def laid_out(
    spec: JobSpec, nodes: Collection[SlurmNode], most: Mapping[str, Most], *, memory: bool
) -> JobSpec | Refusal:
    """The same job, told how many tasks each node gets, if Slurm would not count it rightly otherwise.

    nodes   those that it may use.  It stands on as few of them as it can, as evenly as it can.
    most    how many of its pods each of them takes as Kubernetes counts it, by name
    memory  whether Slurm counts memory
    A Refusal where devices would be lost, or pods would find no place, and no such layout has room.
    """
    if spec.tasks == 1 or spec.tasks_per_node is not None:
        return spec
    losing = [node for node in nodes if node.loses_devices] if spec.gres else []
    whole = spec.exclusive == "exclusive" and any(_memory_by_cpu(spec) * node.cpus > node.memory_mib for node in nodes)
    rooms = [
        _room(spec, node) if not memory else min(_room(spec, node), node.memory_mib // spec.memory_mib)
        for node in nodes
    ]
    fewer = [node for node, room in zip(nodes, rooms, strict=True) if most[node.name].pods < min(room, spec.tasks)]
    if not losing and not whole and not fewer:
        return spec
    rooms = [min(room, most[node.name].pods) for node, room in zip(nodes, rooms, strict=True)]
    if places := _places(spec, rooms, evenly=bool(losing or fewer)):
        too_small = [node.name for node in fewer if most[node.name].pods < places]
        excluded = folded([*expand(spec.excluded_nodes), *too_small]) if too_small else spec.excluded_nodes
        return replace(spec, tasks_per_node=places, excluded_nodes=excluded)
    if fewer:
        return Refusal(names.NO_NODE, _too_few_places(spec, rooms, most[fewer[0].name]))
    if not losing or not any(rooms) or lacking(spec, nodes, spec.partition):  # that is said in other words
        return spec
    return Refusal(names.NO_NODE, _would_lose(spec, losing))


def _places(spec: JobSpec, rooms: Sequence[int], *, evenly: bool) -> int:
    """How many tasks a node; 0: there is no such number.

    rooms    how many tasks each node takes when it is empty
    evenly   with as few places too many as can be: they cost devices, where a whole node costs what it costs anyway
    """
    least = spec.min_nodes or 1
    for places in range(min(-(-spec.tasks // least), max(rooms, default=0)), 0, -1):
        count = max(-(-spec.tasks // places), least)
        if sum(room >= places for room in rooms) >= count and count <= (spec.max_nodes or count):
            return -(-spec.tasks // count) if evenly else places
    return 0


def _too_few_places(spec: JobSpec, rooms: Sequence[int], first: Most) -> str:
    takes, usable = sum(rooms), sum(map(bool, rooms))
    on_one = "one such pod" if first.pods == 1 else f"{first.pods} such pods"
    return (
        f"There is no room for {spec.tasks} such pods, even when all nodes are empty: {usable} "
        f"{'node' if usable == 1 else 'nodes'} can run them, and would take {takes}. One node has {first.of} for {on_one}."
    )


def _would_lose(spec: JobSpec, losing: Sequence[SlurmNode]) -> str:
    devices = " and ".join(sorted({name.partition(":")[0] for name, _ in spec.gres}))
    some = ", ".join(sorted(node.name for node in losing)[:3]) + (" …" if len(losing) > 3 else "")
    return (
        f"Slurm's external nodes {some} stand in slurm.conf, where Slurm counts the {devices} of a gang rightly only if each "
        f"node takes equally many of its pods; {spec.tasks} such pods do not fit in that way. Ask for another number, "
        f"or have the admin take these nodes out of slurm.conf and label them {names.EXTERNAL_NODE_LABEL}=true."
    )


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
