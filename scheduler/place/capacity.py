"""The number of a gang's pods that its nodes hold when they are empty (F3, T10).

Slurm queues for resources that are taken now.  If even empty nodes cannot hold the gang, its pods say so, and no job is
submitted.  For a gang on exclusive nodes, the job also says how many tasks each node gets (tasks_per_node):

Without that, Slurm counts memory by the CPU, and it charges an exclusive job for all CPUs of its nodes.  Two tasks of 1 CPU
and 100 GiB then cost 6,400 GiB on a node of 64 CPUs, and Slurm refuses the job (2014).  With tasks_per_node, their memory is
asked for by the node, and idle CPUs cost no memory.

tasks_per_node is also set where devices would be lost.  On external nodes in slurm.conf, if a job requests devices by the
task, Slurm grants none of them and counts them as used for ever.  Slurm counts devices correctly that a job requests by the
node (Slurm facts 7).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from scheduler import names
from scheduler.model.hostlist import expand, folded
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec, SlurmNode
from scheduler.place.sharing import Most


def laid_out(
    spec: JobSpec, nodes: Collection[SlurmNode], most: Mapping[str, Most], *, memory: bool
) -> JobSpec | Refusal:
    """The job, with tasks_per_node if Slurm would count it wrongly otherwise; or a Refusal.

    nodes   the nodes that the job may use: as few of them as possible are taken, with the pods spread evenly
    most    how many pods of the job each node holds as Kubernetes counts, by name
    memory  True if Slurm counts memory
    The Refusal says that devices would be lost, or that pods have no place, and that no such layout has room.
    """
    if spec.tasks == 1 or spec.tasks_per_node is not None:
        return spec
    losing = [node for node in nodes if node.loses_devices] if spec.gres else []
    whole = spec.exclusive == "exclusive" and any(_memory_by_cpu(spec) * node.cpus > node.memory_mib for node in nodes)
    rooms = rooms_on(spec, nodes, memory=memory)
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
    if not losing or not any(rooms) or lacking(spec, nodes, spec.partition):  # `lacking` says why
        return spec
    return Refusal(names.NO_NODE, _would_lose(spec, losing))


def fewest_nodes(spec: JobSpec, nodes: Collection[SlurmNode], most: Mapping[str, Most], *, memory: bool) -> int:
    """The number of nodes that the job takes at least, if they are empty; 1 if they do not hold it (`lacking` says that).

    As `laid_out` otherwise.
    """
    limits = [min(most[node.name].pods, spec.tasks_per_node or spec.tasks) for node in nodes]
    return fewest_holding(spec.tasks, map(min, rooms_on(spec, nodes, memory=memory), limits))


def fewest_holding(tasks: int, rooms: Iterable[int]) -> int:
    """The number of rooms, taken from the largest on, that hold all tasks; 1 if all rooms do not."""
    held = itertools.accumulate(sorted(rooms, reverse=True))
    return next((count for count, room in enumerate(held, 1) if room >= tasks), 1)


def rooms_on(spec: JobSpec, nodes: Collection[SlurmNode], *, memory: bool) -> list[int]:
    """The number of tasks that each of these nodes holds when it is empty, as Slurm counts."""
    if not memory:
        return [room_on(spec, node) for node in nodes]
    return [min(room_on(spec, node), node.memory_mib // spec.memory_mib) for node in nodes]


def _places(spec: JobSpec, rooms: Sequence[int], *, evenly: bool) -> int:
    """Tasks per node; 0: no number has room for all tasks.

    rooms    how many tasks each node holds when it is empty
    evenly   with as few unused places as possible, because they cost devices
    """
    least = spec.min_nodes or 1
    for places in range(min(-(-spec.tasks // least), max(rooms, default=0)), 0, -1):
        count = max(-(-spec.tasks // places), least)
        if sum(room >= places for room in rooms) >= count and count <= (spec.max_nodes or count):
            return -(-spec.tasks // count) if evenly else places
    return 0


def _too_few_places(spec: JobSpec, rooms: Sequence[int], first: Most) -> str:
    takes, usable = sum(rooms), sum(map(bool, rooms))
    on_one = "one such pod" if first.pods == 1 else f"{first.pods:,} such pods"
    limit = f" on at most {spec.max_nodes:,} {'node' if spec.max_nodes == 1 else 'nodes'}" if spec.max_nodes else ""
    said = f"There is no room for {spec.tasks:,} such pods{limit}, even when all nodes are empty: "
    nodes = f"{usable:,} {'node' if usable == 1 else 'nodes'} can run them, and would take {takes:,}"
    if takes >= spec.tasks and spec.max_nodes != 1:
        nodes += ", but only if Slurm gave each node another number of them, for which it has no option"
    other = (
        ""
        if first.alike
        else f" Slurm has no option for some of the pods that ask for the same: let pods that need less {first.of} ask for "
        "other CPUs or memory."
    )
    return f"{said}{nodes}. One node has {first.of} for {on_one}.{other}"


def _would_lose(spec: JobSpec, losing: Sequence[SlurmNode]) -> str:
    devices = " and ".join(sorted({name.partition(":")[0] for name, _ in spec.gres}))
    some = ", ".join(sorted(node.name for node in losing)[:3]) + (" …" if len(losing) > 3 else "")
    return (
        f"Slurm's external nodes {some} are defined in slurm.conf, where Slurm counts the {devices} of a gang correctly only "
        f"if each node gets equally many of its pods; {spec.tasks:,} such pods do not fit like that. Ask for another number, "
        f"or have the admin take these nodes out of slurm.conf and label them {names.EXTERNAL_NODE_LABEL}=true."
    )


def lacking(spec: JobSpec, nodes: Collection[SlurmNode], partition: str) -> str:
    """Why the nodes cannot hold all tasks even when they are empty, in words; "": they can, or Slurm has to judge.

    Memory is not judged: Slurm counts it only if its administrator configures that.
    """
    rooms = sorted(
        (min(room, spec.tasks_per_node or room) for node in nodes if (room := room_on(spec, node))), reverse=True
    )
    takes = sum(rooms[: spec.max_nodes])
    least = min(spec.min_nodes or 1, spec.tasks)
    if not rooms or (takes >= spec.tasks and len(rooms) >= least):
        return ""
    if takes >= spec.tasks:
        of = f" of Slurm partition {partition}" if partition else ""
        only = f"only {len(rooms):,} {'node' if len(rooms) == 1 else 'nodes'}{of} can run them"
        return f"The pods ask for at least {least:,} nodes ({names.MIN_NODES}), and {only}. Lower the number."
    most = f" on {spec.max_nodes:,} of its nodes" if spec.max_nodes is not None else ""
    where = f"Slurm partition {partition}" if partition else "Slurm's partition"
    return (
        f"{where} has no room for {spec.tasks:,} such pods{most}, even when it is empty: "
        f"{len(rooms):,} {'node' if len(rooms) == 1 else 'nodes'} can run them, and would take {takes:,}."
    )


def _memory_by_cpu(spec: JobSpec) -> int:
    """MiB for each CPU, so that no task gets less than it asks for."""
    return -(-spec.memory_mib // spec.cpus_per_task)


def room_on(spec: JobSpec, node: SlurmNode) -> int:
    """The number of tasks that an empty node holds, without regard to memory."""
    devices = [node.gres.get(name, 0) // count for name, count in spec.gres if count]
    return min([node.cpus // spec.cpus_per_task, *devices])
