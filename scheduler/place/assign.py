"""Places pods on granted nodes: checks that the grant has what the job asked for (S11), and gives each pod its place (W8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import Grant, GrantedNode, JobSpec
from scheduler.translate.grouping import by_rank


def shortfall(spec: JobSpec, grant: Grant) -> str:
    """The part of the job specification that the grant lacks, in words; "": none (S11, Slurm facts 7).

    Slurm may round CPUs up and never down; a GRES may be counted under its type only; memory may not be counted at all.
    """
    if not grant.nodes:
        return "any node"
    for node in grant.nodes:
        if node.cpus < spec.cpus_per_task:
            return f"{spec.cpus_per_task:,} CPUs ({node.cpus:,} on {node.name})"
        if 0 < node.memory_mib < spec.memory_mib:
            return f"{spec.memory_mib:,} MiB of memory ({node.memory_mib:,} on {node.name})"
        for name, count in spec.gres:
            if node.gres.get(name, 0) < count:
                return f"{count:,} {name} ({node.gres.get(name, 0):,} on {node.name})"
    room = sum(tasks_on(node, spec) for node in grant.nodes)
    if room < spec.tasks:
        return f"room for {spec.tasks:,} pods (it holds {room:,})"
    if len(spec.parts) != len(grant.parts):
        return f"all of its {1 + len(spec.parts):,} components"
    return next((why for pair in zip(spec.parts, grant.parts, strict=True) if (why := shortfall(*pair))), "")


def lacks(place: JobSpec, wanted: JobSpec) -> str:
    """The resources that `wanted` asks for beyond `place`, in words; "": none.  Both are specifications of one task."""
    if wanted.cpus_per_task > place.cpus_per_task:
        return f"{wanted.cpus_per_task:,} CPUs"
    if wanted.memory_mib > place.memory_mib:
        return f"{wanted.memory_mib:,} MiB of memory"
    for name, count in wanted.gres:
        if count > _counted(place, name):
            return f"{count:,} {name}"
    if wanted.constraints not in ("", place.constraints):
        return f"nodes with {wanted.constraints}"
    return "nodes for itself" if wanted.exclusive and wanted.exclusive != place.exclusive else ""


def _counted(spec: JobSpec, gres: str) -> int:
    """The count of a GRES for one task; a "gpu" may be of any type."""
    return sum(count for name, count in spec.gres if name == gres or name.startswith(f"{gres}:"))


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one pod of a gang.

    rank         among all pods of the gang
    local_rank   among its pods on this node
    """

    node: GrantedNode
    rank: int
    local_rank: int


def tasks_on(node: GrantedNode, spec: JobSpec) -> int:
    """The number of pods that the grant on this node holds: the granted resources, divided by the resources of one task.

    Slurm rounds CPUs up, and that makes no place for more tasks than the job has.
    """
    counts = [min(node.cpus // spec.cpus_per_task, spec.tasks)]
    if node.memory_mib:
        counts.append(node.memory_mib // spec.memory_mib)
    counts += [node.gres.get(name, 0) // count for name, count in spec.gres if count]
    return max(0, min([*counts, spec.tasks_per_node or counts[0]]))


@dataclass(frozen=True, slots=True)
class Part:
    """The pods of one component, its specification, and the nodes granted to it, in Slurm's order."""

    spec: JobSpec
    nodes: Sequence[GrantedNode]
    members: Sequence[Pod]


NO_RANKS: Mapping[str, tuple[int, int]] = MappingProxyType({})


def places(
    parts: Sequence[Part],
    bound_to: Mapping[str, str],
    leaving: Sequence[str] = (),
    *,
    ranks: Mapping[str, tuple[int, int]] = NO_RANKS,
    size: int = 0,
) -> Mapping[str, Place] | None:
    """The place of each pod, by UID; None: the grant has too few places.

    bound_to  UID to Slurm's name of the node, of pods that are bound already
    leaving   Slurm's name of the node of each terminating pod, which keeps its place until it is gone (V5)
    ranks     UID to (rank, local rank), of bound pods, which keep them
    size      the number of pods of the gang, if some of them are missing now

    Pods get places by rank, in Slurm's order of nodes (W8), so that one grant always gives the same places.
    """
    ranked = by_rank([pod for part in parts for pod in part.members])
    chosen: dict[str, GrantedNode] = {}
    for part in parts:
        found = _nodes_in_order(part, _of(part, ranked), bound_to, leaving)
        if found is None:
            return None
        chosen |= found
    return _numbered(ranked, chosen, ranks, size)


def _of(part: Part, ranked: Sequence[Pod]) -> Sequence[Pod]:
    uids = {pod.uid for pod in part.members}
    return [pod for pod in ranked if pod.uid in uids]


def _nodes_in_order(
    part: Part, ranked: Sequence[Pod], bound_to: Mapping[str, str], leaving: Sequence[str]
) -> dict[str, GrantedNode] | None:
    """The node of each pod, by UID; None: there are too few places.  Bound pods keep their nodes, even out of rank order.

    ranked   the pods of the part, by rank
    """
    leaving_from = Counter(leaving)
    most = len(ranked)  # a bound, whatever Slurm says of the node
    slots = [node for node in part.nodes for _ in range(min(tasks_on(node, part.spec) - leaving_from[node.name], most))]
    if len(slots) < len(ranked):
        return None
    chosen = dict(zip((pod.uid for pod in ranked), slots, strict=False))
    by_name = {node.name: node for node in part.nodes}
    free, taken = Counter(node.name for node in slots), Counter[str]()
    for uid in chosen:
        if uid in bound_to and (node := by_name.get(bound_to[uid])) is not None:
            taken[node.name] += 1
            chosen[uid] = node
    left = (node for node in part.nodes for _ in range(free[node.name] - taken[node.name]))
    for uid in chosen:
        if uid not in bound_to:
            if (node := next(left, None)) is None:
                return None
            chosen[uid] = node
    return chosen


def _numbered(
    ranked: Sequence[Pod], chosen: Mapping[str, GrantedNode], ranks: Mapping[str, tuple[int, int]], size: int
) -> Mapping[str, Place]:
    """Each pod with its node and its ranks.  No pod gets a rank that another pod has (W8).

    A bound pod keeps its ranks, because its program has read them.  Another pod gets the first free rank after the rank of
    the pod before it; if all of these are taken, the lowest free one.  So a pod that has the index or the name of a former
    pod gets the rank of that pod, also while other pods are missing.
    """
    kept = {pod.uid: ranks[pod.uid] for pod in ranked if pod.uid in ranks}
    taken = {rank for rank, _ in kept.values()}
    taken_on_node = {(chosen[uid].name, local_rank) for uid, (_, local_rank) in kept.items()}
    on_node = Counter[str]()
    found, before = {}, -1
    for pod in ranked:
        node = chosen[pod.uid]
        if pod.uid in kept:
            rank, local_rank = kept[pod.uid]
        else:
            rank = _free_from(before + 1, taken)
            if rank >= max(size, len(ranked)):
                rank = _free_from(0, taken)
            taken.add(rank)
            while (node.name, on_node[node.name]) in taken_on_node:
                on_node[node.name] += 1
            local_rank = on_node[node.name]
            on_node[node.name] += 1
        found[pod.uid] = Place(node, rank, local_rank)
        before = rank
    return found


def _free_from(rank: int, taken: Container[int]) -> int:
    """The first rank from this one on that is not taken."""
    while rank in taken:
        rank += 1
    return rank
