"""The number of a gang's pods that its nodes hold when they are empty (F3, T10).

A job in Slurm's queue waits for resources that other jobs use.  If even empty nodes cannot hold the gang, its pods show that,
and no job is submitted.

The job of a gang on exclusive nodes also has the number of tasks of each node (tasks_per_node).  Without it, Slurm counts
memory by the CPU, and charges an exclusive job for all CPUs of its nodes.  Two tasks of 1 CPU and 100 GiB then cost 6,400 GiB
on a node of 64 CPUs, and Slurm refuses the job (2014).  With tasks_per_node, the job requests memory by the node, and idle
CPUs cost no memory.

Memory by the CPU is rounded up to whole MiB: two tasks of 3 CPUs and 4,096 MiB cost 8,196 MiB (Slurm facts 7).  So
tasks_per_node is also set if the nodes hold all pods, but not with rounded memory.

tasks_per_node is also set if devices would be lost otherwise.  If a job requests devices by the task on external nodes of
slurm.conf, Slurm grants none of them, and counts them as used for ever.  If a job requests devices by the node, Slurm counts
them correctly (Slurm facts 7).

A cluster has many nodes and few kinds of nodes.  So nodes are grouped once for a gang, and each component is compared with
each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler import names
from scheduler.model.hostlist import expand, folded
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec, SlurmNode
from scheduler.place.sharing import PodsPerNode


@dataclass(frozen=True, slots=True)
class Alike:
    """Nodes that hold equally many pods of each component when they are empty.

    node    one of these nodes
    names   the names of all of them
    """

    node: SlurmNode
    names: Sequence[str]


def alike(nodes: Iterable[SlurmNode], and_by: Callable[[SlurmNode], object] | None = None) -> list[Alike]:
    """The nodes, grouped by their hardware.  and_by: another property by which they are grouped; None: no other"""
    return merged((Alike(node, (node.name,)) for node in nodes), and_by)


def merged(kinds: Iterable[Alike], and_by: Callable[[SlurmNode], object] | None = None) -> list[Alike]:
    """The nodes of these kinds, grouped as `alike` groups nodes."""
    groups: dict[object, Alike] = {}
    names_of: dict[object, list[str]] = {}
    for each in kinds:
        node = each.node
        hardware = node.cpus, node.memory_mib, node.loses_devices, frozenset(node.gres.items())
        kind = hardware if and_by is None else (hardware, and_by(node))
        if kind not in groups:
            names_of[kind] = []
            groups[kind] = Alike(node, names_of[kind])
        names_of[kind] += each.names
    return list(groups.values())


def laid_out(
    spec: JobSpec, kinds: Sequence[Alike], most: Mapping[str, PodsPerNode], *, memory: bool
) -> JobSpec | Refusal:
    """The job, with tasks_per_node if Slurm would count it wrongly otherwise; or a Refusal.

    kinds   the nodes that the job may use: as few of them as possible are taken, with the pods spread evenly
    most    how many pods of the job a node of each kind holds as Kubernetes counts, by name of its `node`
    memory  True if Slurm counts memory
    The Refusal says that devices would be lost, or that pods have no place, and that no such layout has room.
    """
    if spec.tasks == 1 or spec.tasks_per_node is not None:
        return spec
    losing = [kind for kind in kinds if kind.node.loses_devices] if spec.gres else []
    by_cpu = _memory_by_cpu(spec)
    whole = spec.exclusive == "exclusive" and any(by_cpu * kind.node.cpus > kind.node.memory_mib for kind in kinds)
    rooms = [_room(spec, kind.node, memory=memory) for kind in kinds]
    limits = [most[kind.node.name].pods for kind in kinds]
    fewer = [kind for kind, room, pods in zip(kinds, rooms, limits, strict=True) if pods < min(room, spec.tasks)]
    by_rounding = memory and _lose_places_by_rounding(spec, kinds)
    if not losing and not whole and not fewer and not by_rounding:
        return spec
    counted = [(min(room, pods), len(kind.names)) for kind, room, pods in zip(kinds, rooms, limits, strict=True)]
    if places := _places(spec, counted, evenly=bool(losing or fewer or by_rounding)):
        too_small = [name for kind in fewer if most[kind.node.name].pods < places for name in kind.names]
        excluded = folded([*expand(spec.excluded_nodes), *too_small]) if too_small else spec.excluded_nodes
        return replace(spec, tasks_per_node=places, excluded_nodes=excluded)
    if fewer:
        return Refusal(names.NO_NODE, _too_few_places(spec, counted, most[fewer[0].node.name]))
    if not losing or not any(room for room, _ in counted) or lacking(spec, kinds, spec.partition):
        return spec  # `lacking` returns the reason
    return Refusal(names.NO_NODE, _would_lose(spec, [name for kind in losing for name in kind.names]))


def fewest_nodes(spec: JobSpec, kinds: Iterable[Alike], most: Mapping[str, PodsPerNode], *, memory: bool) -> int:
    """The fewest nodes that the job takes if they are empty; 1 if they cannot hold it (`lacking` returns the reason).

    Arguments as for `laid_out`.
    """
    at_most = spec.tasks_per_node or spec.tasks
    rooms = ((min(_room(spec, kind.node, memory=memory), most[kind.node.name].pods, at_most), kind) for kind in kinds)
    return fewest_holding(spec.tasks, ((room, len(kind.names)) for room, kind in rooms))


def fewest_holding(tasks: int, rooms: Iterable[tuple[int, int]]) -> int:
    """The number of nodes, taken from the largest on, that hold all tasks; 1 if all nodes do not.

    rooms   the number of tasks that nodes hold, and the number of such nodes
    """
    taken, left = 0, tasks
    for room, count in sorted(rooms, reverse=True):
        if room * count >= left:
            return taken - (-left // room)
        taken, left = taken + count, left - room * count
    return 1


def rooms_on(spec: JobSpec, nodes: Iterable[SlurmNode], *, memory: bool) -> list[int]:
    """The number of tasks that each of these nodes holds when it is empty, as Slurm counts."""
    return [_room(spec, node, memory=memory, task_mib=_charged_mib(spec)) for node in nodes]


def _room(spec: JobSpec, node: SlurmNode, *, memory: bool, task_mib: int | None = None) -> int:
    """task_mib   MiB of each task; None: as the pods need"""
    room = room_on(spec, node)
    return min(room, node.memory_mib // (task_mib or spec.memory_mib)) if memory else room


def _charged_mib(spec: JobSpec) -> int:
    """MiB that Slurm charges for each task, which is more than the pod needs if memory is requested by the CPU."""
    by_node = spec.tasks == 1 or spec.tasks_per_node is not None
    return spec.memory_mib if by_node else _memory_by_cpu(spec) * spec.cpus_per_task


def _lose_places_by_rounding(spec: JobSpec, kinds: Sequence[Alike]) -> bool:
    """True if memory by the CPU is rounded up, and the nodes do not hold all tasks with that much memory."""
    if _charged_mib(spec) == spec.memory_mib:
        return False
    rooms = rooms_on(spec, (kind.node for kind in kinds), memory=True)
    counted = [(room, len(kind.names)) for room, kind in zip(rooms, kinds, strict=True)]
    return _taken(counted, spec.max_nodes) < spec.tasks


def _places(spec: JobSpec, rooms: Sequence[tuple[int, int]], *, evenly: bool) -> int:
    """Tasks per node; 0: no number has room for all tasks.

    rooms    the number of tasks that nodes hold when they are empty, and the number of such nodes
    evenly   with as few unused places as possible, because they cost devices
    """
    least = spec.min_nodes or 1
    largest = max((room for room, _ in rooms), default=0)
    for places in range(min(-(-spec.tasks // least), largest), 0, -1):
        count = max(-(-spec.tasks // places), least)
        if sum(nodes for room, nodes in rooms if room >= places) >= count and count <= (spec.max_nodes or count):
            return -(-spec.tasks // count) if evenly else places
    return 0


def _too_few_places(spec: JobSpec, rooms: Sequence[tuple[int, int]], first: PodsPerNode) -> str:
    takes, usable = sum(room * nodes for room, nodes in rooms), sum(nodes for room, nodes in rooms if room)
    on_one = "one such pod" if first.pods == 1 else f"{first.pods:,} such pods"
    limit = f" on at most {spec.max_nodes:,} {'node' if spec.max_nodes == 1 else 'nodes'}" if spec.max_nodes else ""
    problem = f"There is no room for {spec.tasks:,} such pods{limit}, even when all nodes are empty: "
    nodes = f"{usable:,} {'node' if usable == 1 else 'nodes'} can run them, and would take {takes:,}"
    if takes >= spec.tasks and spec.max_nodes != 1:
        nodes += ", but only if Slurm gave each node another number of them, for which it has no option"
    other = (
        ""
        if first.alike
        else f" Slurm has no option for some of the pods that ask for the same: let pods that need less {first.of} ask for "
        "other CPUs or memory."
    )
    return f"{problem}{nodes}. One node has {first.of} for {on_one}.{other}"


def _would_lose(spec: JobSpec, losing: Sequence[str]) -> str:
    devices = " and ".join(sorted({name.partition(":")[0] for name, _ in spec.gres}))
    some = ", ".join(sorted(losing)[:3]) + (" …" if len(losing) > 3 else "")
    return (
        f"Slurm's external nodes {some} are defined in slurm.conf, where Slurm counts the {devices} of a gang correctly only "
        f"if each node gets equally many of its pods; {spec.tasks:,} such pods do not fit like that. Ask for another number, "
        f"or have the admin take these nodes out of slurm.conf and label them {names.EXTERNAL_NODE_LABEL}=true."
    )


def lacking(spec: JobSpec, kinds: Iterable[Alike], partition: str) -> str:
    """Why the nodes cannot hold all tasks even when they are empty, in words; "": they can, or Slurm has to judge.

    Memory is not judged: Slurm counts it only if its administrator configures that.
    """
    at_most = spec.tasks_per_node
    rooms = [(min(room, at_most or room), len(kind.names)) for kind in kinds if (room := room_on(spec, kind.node))]
    usable = sum(nodes for _, nodes in rooms)
    takes = _taken(rooms, spec.max_nodes)
    least = min(spec.min_nodes or 1, spec.tasks)
    if not rooms or (takes >= spec.tasks and usable >= least):
        return ""
    if takes >= spec.tasks:
        of = f" of Slurm partition {partition}" if partition else ""
        only = f"only {usable:,} {'node' if usable == 1 else 'nodes'}{of} can run them"
        return f"The pods ask for at least {least:,} nodes ({names.MIN_NODES}), and {only}. Lower the number."
    most = f" on {spec.max_nodes:,} of its nodes" if spec.max_nodes is not None else ""
    where = f"Slurm partition {partition}" if partition else "Slurm's partition"
    return (
        f"{where} has no room for {spec.tasks:,} such pods{most}, even when it is empty: "
        f"{usable:,} {'node' if usable == 1 else 'nodes'} can run them, and would take {takes:,}."
    )


def _taken(rooms: Iterable[tuple[int, int]], most: int | None) -> int:
    """The number of tasks that at most so many nodes (None: all) hold, the largest taken first.  rooms: as in `_places`"""
    takes, left = 0, most
    for room, nodes in sorted(rooms, reverse=True):
        count = nodes if left is None else min(nodes, left)
        takes, left = takes + room * count, None if left is None else left - count
    return takes


def _memory_by_cpu(spec: JobSpec) -> int:
    """MiB for each CPU, so that no task gets less than it asks for."""
    return -(-spec.memory_mib // spec.cpus_per_task)


def room_on(spec: JobSpec, node: SlurmNode) -> int:
    """The number of tasks that an empty node holds, without regard to memory."""
    devices = [node.gres.get(name, 0) // count for name, count in spec.gres if count]
    return min([node.cpus // spec.cpus_per_task, *devices])
