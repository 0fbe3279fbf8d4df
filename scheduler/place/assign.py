"""Granted nodes → pods, and whether the pods fit there right now (F6, S11; invariant V3).

Slurm grants what Slurm counts.  Before the bind the node is checked as Kubernetes counts it: its allocatable resources less
those of every unfinished pod there, of any scheduler.  Slurm frees the resources of a preempted job at once, while its pod
may still be terminating.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduler.model.amounts import EMPTY, Amounts
from scheduler.model.clocks import grace_ends
from scheduler.model.kubernetes import ALL_PORTS, HostPort, Node, Pod
from scheduler.model.slurm import Grant, GrantedNode, JobSpec
from scheduler.place.host_ports import in_the_way
from scheduler.translate.grouping import by_rank
from scheduler.translate.job_spec import needs

EXTRA_WAIT_S = 60.0  # a bind waits for a terminating pod for its grace and this time (F6)


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a pod cannot be bound to its granted node now.

    until   the bind waits for terminating pods, at most until then (epoch seconds); None: waiting does not help
    """

    why: str
    until: float | None = None


def shortfall(spec: JobSpec, grant: Grant) -> str:
    """The part of the job specification that the grant lacks, in words; "": none (S11, Slurm facts 7).

    Slurm may round CPUs up and never down; a GRES may be counted under its type only; memory may not be counted at all.
    """
    if not grant.nodes:
        return "any node"
    for node in grant.nodes:
        if node.cpus < spec.cpus_per_task:
            return f"{spec.cpus_per_task} CPUs ({node.cpus} on {node.name})"
        if 0 < node.memory_mib < spec.memory_mib:
            return f"{spec.memory_mib} MiB of memory ({node.memory_mib} on {node.name})"
        for name, count in spec.gres:
            if node.gres.get(name, 0) < count:
                return f"{count} {name} ({node.gres.get(name, 0)} on {node.name})"
    room = sum(tasks_on(node, spec) for node in grant.nodes)
    if room < spec.tasks:
        return f"room for {spec.tasks} pods (it holds {room})"
    if len(spec.parts) != len(grant.parts):
        return f"all of its {1 + len(spec.parts)} components"
    return next((why for each in zip(spec.parts, grant.parts, strict=True) if (why := shortfall(*each))), "")


def lacks(place: JobSpec, wanted: JobSpec) -> str:
    """The resources that `wanted` asks for beyond `place`, in words; "": none.  Both are specifications of one task."""
    if wanted.cpus_per_task > place.cpus_per_task:
        return f"{wanted.cpus_per_task} CPUs"
    if wanted.memory_mib > place.memory_mib:
        return f"{wanted.memory_mib} MiB of memory"
    for name, count in wanted.gres:
        if count > _counted(place, name):
            return f"{count} {name}"
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
    """The number of pods that the grant on this node holds: the granted resources, divided by those of one task."""
    counts = [node.cpus // spec.cpus_per_task]
    if spec.tasks > 1 and node.memory_mib:  # for a single task Slurm shows the memory that was asked for by node
        counts.append(node.memory_mib // spec.memory_mib)
    counts += [node.gres.get(name, 0) // count for name, count in spec.gres if count]
    return max(0, min([*counts, spec.tasks_per_node or counts[0]]))


@dataclass(frozen=True, slots=True)
class Part:
    """The pods of one component, its specification, and the nodes granted to it, in Slurm's order."""

    spec: JobSpec
    nodes: Sequence[GrantedNode]
    members: Sequence[Pod]


def places(
    parts: Sequence[Part], bound_to: Mapping[str, str], leaving: Sequence[str] = ()
) -> Mapping[str, Place] | None:
    """The place of each pod, by UID; None: the grant has too few places.

    bound_to    UID to Slurm's name of the node, of pods that are bound already
    leaving   Slurm's name of the node of each terminating pod, which keeps its place until it is gone (V5)

    Pods get places by rank, in Slurm's order of nodes (W8), so that one grant always gives the same places.
    """
    chosen: dict[str, GrantedNode] = {}
    for part in parts:
        found = _nodes_in_order(part, bound_to, leaving)
        if found is None:
            return None
        chosen |= found
    return _numbered(by_rank(pod for part in parts for pod in part.members), chosen)


def _nodes_in_order(part: Part, bound_to: Mapping[str, str], leaving: Sequence[str]) -> dict[str, GrantedNode] | None:
    """The node of each pod, by UID; None: there are too few places.  Bound pods keep their nodes, even out of rank order."""
    ranked = by_rank(part.members)
    held = Counter(leaving)
    most = len(ranked)  # a bound, whatever Slurm says of the node
    slots = [node for node in part.nodes for _ in range(min(tasks_on(node, part.spec) - held[node.name], most))]
    if len(slots) < len(ranked):
        return None
    chosen = dict(zip((pod.uid for pod in ranked), slots, strict=False))
    if all(chosen[uid].name == bound_to[uid] for uid in chosen if uid in bound_to):
        return chosen
    by_name = {node.name: node for node in part.nodes}
    free, taken = Counter(node.name for node in slots), Counter[str]()
    for uid in chosen:
        if uid in bound_to and (node := by_name.get(bound_to[uid])) is not None and taken[node.name] < free[node.name]:
            taken[node.name] += 1
            chosen[uid] = node
    left = (node for node in part.nodes for _ in range(free[node.name] - taken[node.name]))
    for uid in chosen:
        if uid not in bound_to:
            if (node := next(left, None)) is None:
                return None
            chosen[uid] = node
    return chosen


def _numbered(ranked: Sequence[Pod], chosen: Mapping[str, GrantedNode]) -> Mapping[str, Place]:
    on_node: dict[str, int] = {}
    found = {}
    for rank, pod in enumerate(ranked):
        node = chosen[pod.uid]
        local_rank = on_node.get(node.name, 0)
        on_node[node.name] = local_rank + 1
        found[pod.uid] = Place(node, rank, local_rank)
    return found


class NodeInfo:
    """The unfinished pods on one node, and the sum of their needs, kept up to date."""

    __slots__ = ("_ends", "_holders", "_needs", "_ports", "pods", "taken")

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self._ends: dict[str, float] = {}  # pods that are being deleted: when their grace ends, by the bridge's clock
        self.taken: dict[str, int] = {}
        self._needs: dict[str, Amounts] = {}
        self._ports: dict[str, tuple[HostPort, ...]] = {}  # of pods with host ports
        self._holders: dict[tuple[int, str], dict[str, dict[str, None]]] = {}  # port, protocol to address to UIDs

    def put(self, pod: Pod, at: float | None = None, most_grace_s: float = float("inf")) -> Pod | None:
        """Add or replace the pod.  Returns the pod as it was before; None: it was not here.

        at            when the bridge saw the pod like this, by its clock; None: deletion times are by that clock, too
        most_grace_s  the longest grace that counts: Kubernetes accepts 300 years
        """
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        if pod.deleting_at is None:
            self._ends.pop(pod.uid, None)
        elif before is None or (before.deleting_at, before.grace_s) != (pod.deleting_at, pod.grace_s):
            grace_s = min(pod.grace_s, most_grace_s)
            ends = pod.deleting_at if at is None else grace_ends(pod.deleting_at, grace_s, at)
            self._ends[pod.uid] = min(ends, self._ends.get(pod.uid, ends))
        if before is None or not _same_requests(before, pod):
            self._count(self._needs.get(pod.uid, {}), -1)
            self._needs[pod.uid] = needed = needs(pod)
            self._count(needed, 1)
        if before is None and pod.host_ports:
            self._ports[pod.uid] = pod.host_ports
            for each in pod.host_ports:
                by_address = self._holders.setdefault((each.port, each.protocol), {})
                by_address.setdefault(each.address, {})[pod.uid] = None
        return before

    def remove(self, uid: str) -> Pod | None:
        """Remove the pod.  Returns the removed pod; None: it was not here."""
        left = self.pods.pop(uid, None)
        self._ends.pop(uid, None)
        if left is not None:
            self._count(self._needs.pop(uid), -1)
            for each in self._ports.pop(uid, ()):
                self._free(each, uid)
        return left

    def without(self, uid: str) -> NodeInfo:
        """A copy of the node without that pod, with all sums recomputed."""
        copy = NodeInfo()
        for pod in self.pods.values():
            if pod.uid != uid:
                copy.put(pod)
        copy._ends = {other: ends for other, ends in self._ends.items() if other != uid}
        return copy

    def grace_ends(self, uid: str) -> float | None:
        """When the grace of that pod ends, by the bridge's clock; None: it is not being deleted, or not here."""
        return self._ends.get(uid)

    def needed_by(self, uid: str) -> Amounts:
        """The needs of that pod; empty if it is not here."""
        return self._needs.get(uid, EMPTY)

    def listening(self, wanted: Iterable[HostPort]) -> Iterator[Pod]:
        """The pods here that hold a host port which excludes one of these."""
        for port in (*wanted, ALL_PORTS):
            held = self._holders.get((port.port, port.protocol), {})
            for address in in_the_way(port.address, held):
                yield from (self.pods[uid] for uid in held[address])

    def _free(self, port: HostPort, uid: str) -> None:
        by_address = self._holders.get((port.port, port.protocol), {})
        holders = by_address.get(port.address, {})
        holders.pop(uid, None)
        if not holders:
            by_address.pop(port.address, None)
        if not by_address:
            self._holders.pop((port.port, port.protocol), None)

    def _count(self, amounts: Amounts, sign: int) -> None:
        for resource, amount in amounts.items():
            taken = self.taken.get(resource, 0) + sign * amount
            if taken:
                self.taken[resource] = taken
            else:
                self.taken.pop(resource, None)


def _same_requests(one: Pod, other: Pod) -> bool:
    return (
        one.containers == other.containers
        and one.init_containers == other.init_containers
        and one.pod_requests == other.pod_requests
        and one.overhead == other.overhead
    )


def blocked(pod: Pod, node: Node | None, name: str, there: Sequence[NodeInfo]) -> Blocked | None:
    """Why the pod cannot be bound to the node now (F6); None: it can.

    name    of the node in Slurm, if Kubernetes has none
    there   the pods on the node, also those that this pass binds; no pod is in two of them
    """
    if node is None:
        return Blocked(f"Kubernetes has no node for Slurm's {name}")
    if not node.ready:
        return Blocked(f"node {name} is not ready")
    if node.unschedulable:
        return Blocked(f"node {name} is cordoned")
    lacking = _lacking(pod, node, there, leave_out_terminating=False)
    if not lacking:
        return None
    if _lacking(pod, node, there, leave_out_terminating=True):
        return Blocked(f"on node {name} other pods take the {lacking} that it needs")
    going = [other for other in _terminating(there) if other.uid != pod.uid]
    until = max(ends for each in there for other in going if (ends := each.grace_ends(other.uid)) is not None)
    until += EXTRA_WAIT_S
    who = ", ".join(sorted(other.full_name for other in going)[:3])
    return Blocked(f"on node {name} {who} still {'terminates' if len(going) == 1 else 'terminate'}", until)


def _terminating(there: Sequence[NodeInfo]) -> list[Pod]:
    return [other for each in there for other in each.pods.values() if other.deleting_at is not None]


def _lacking(pod: Pod, node: Node, there: Sequence[NodeInfo], *, leave_out_terminating: bool) -> str:
    """The first resource of which the node has too little for this pod beside the others; "": none."""
    for each in there if pod.host_ports else ():
        for other in each.listening(pod.host_ports):
            if other.uid != pod.uid and not (leave_out_terminating and other.deleting_at is not None):
                return "host port"
    aside = {pod.uid, *(other.uid for other in _terminating(there))} if leave_out_terminating else {pod.uid}
    wanted = needs(pod)
    left_out = [counted for each in there for uid in aside if (counted := each.needed_by(uid))]
    for resource, amount in wanted.items():
        for each in there:
            amount += each.taken.get(resource, 0)
        for counted in left_out:
            amount -= counted.get(resource, 0)
        if amount > node.allocatable.get(resource, 0):
            return "place" if resource == "pods" else resource
    return ""
