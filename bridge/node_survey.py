"""`GET /nodes`: each node as both clusters see it, and what could start there now, from the World.

`kubectl slurm nodes` and `free` show it to users of namespaces, so it has only sums: no pod, no job, no namespace, no user.
No request calls Slurm.  What jobs hold is as of the last poll of nodes (`polled`), with the grants of the bridge since then;
what pods take is as Kubernetes shows it now.  An amount is free if neither of the two counts it as taken.

An answer is made in slices of two milliseconds with rests between them, because the bridge has one thread.  All clients share
the answer for a time that grows with the time that it took, so the number of requests does not matter.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import msgspec

from bridge.pace import Pace
from scheduler import names
from scheduler.model.kubernetes import Node
from scheduler.model.slurm import SlurmNode, States
from scheduler.place.feasible import slurm_name
from scheduler.place.fit import BLOCKING, OFF_FOR_GOOD
from scheduler.state.placeholder import Placeholder
from scheduler.state.world import World

REST = 3  # a rest is three slices long: while an answer is made, it takes a quarter of the loop's time
# An answer is kept for 19 times its processor time: answers take a twentieth of the time, however many are requested.
KEPT = 19
REASON_MOST = 200  # characters
MIB = 2**20
CPUS, MEMORY, JOBS = "/cpus", "/memory_mib", "/jobs"  # keys of count_grant; no GRES has such a name
# More states of a node in which Slurm starts no job there.
CLOSING: States = frozenset({"BLOCKED", "MAINTENANCE", "POWERING_DOWN", "REBOOT_ISSUED", "RESERVED"})
UNSCHEDULABLE = "SchedulingDisabled"  # kubectl's word for a cordoned node

# Both clusters count in 64 bits.  Only a client checks these limits: it can add up and divide what it has read.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Part = Annotated[float, msgspec.Meta(ge=0, le=2**63)]


class Amount(msgspec.Struct, frozen=True):
    """One resource of one node: CPUs, MiB, or devices.

    total           as Slurm counts it; of a node that Slurm does not have, as Kubernetes does
    held            what jobs of Slurm hold
    bridge, others  what the pods of the bridge, and all other pods, ask for
    free            what neither cluster counts as taken; 0 if no pod can start on the node
    """

    total: Count = 0
    held: Count = 0
    bridge: Part = 0.0
    others: Part = 0.0
    free: Count = 0


class Pods(msgspec.Struct, frozen=True):
    """The number of unfinished pods: of the bridge, and all others."""

    bridge: Count
    others: Count


class NodeItem(msgspec.Struct, frozen=True):
    """One node.

    slurm_name  None: Slurm does not have it
    kubernetes  its state as kubectl shows it; None: Kubernetes does not have it
    taints      keys of taints that a pod must tolerate
    slurm       its states; reason: why it is drained or down
    closed      why no pod can start there now; "": pods can
    devices     by GRES name, with the type where Kubernetes distinguishes types
    """

    name: str
    slurm_name: str | None
    kubernetes: str | None
    taints: list[str]
    slurm: list[str]
    reason: str
    partitions: list[str]
    closed: str
    pods: Pods
    cpus: Amount
    memory_mib: Amount
    devices: dict[str, Amount]


class PartitionItem(msgspec.Struct, frozen=True):
    """One partition.  max_time_min: minutes; None: no limit"""

    up: bool
    default: bool
    max_time_min: Count | None


class Survey(msgspec.Struct, frozen=True):
    """The answer.

    at       when it was made; polled: when the nodes of Slurm were polled, None: not yet; epoch seconds
    partitions  by name; empty until slurmdbd has answered
    """

    at: float
    polled: float | None
    partitions: dict[str, PartitionItem]
    nodes: list[NodeItem]


class NodeSurvey:
    """The answer to `/nodes`, made again when it is too old.

    failed   is called with the name of a node that could not be described, and why; the answer lacks this node
    """

    def __init__(
        self,
        timer: Callable[[], float] = time.perf_counter,
        failed: Callable[[str, Exception], None] = lambda _, error: _raised(error),
    ) -> None:
        self._timer = timer
        self._failed = failed
        self._making: asyncio.Task[None] | None = None
        self._body = b""
        self._kept_until = float("-inf")

    async def body(self, world: World, now: float) -> bytes:
        """The answer as JSON.  now: epoch seconds"""
        if self._making is None and self._timer() >= self._kept_until:
            self._making = asyncio.create_task(self._make(world, now), name="nodes")
        if self._making is not None:
            # The work goes on if the client leaves: otherwise clients that come and leave would let it begin again for ever.
            await asyncio.shield(self._making)
        return self._body

    async def _make(self, world: World, now: float) -> None:
        pace = Pace(REST, self._timer)
        try:
            self._body = await self._in_slices(world, now, pace)
            self._kept_until = self._timer() + pace.worked_s * KEPT
        finally:
            self._making = None

    async def _in_slices(self, world: World, now: float, pace: Pace) -> bytes:
        nodes = []
        for found in items(world):
            if found is not None:
                nodes += self._encoded(*found)
            if pace.over():
                await pace.rest()
        partitions = {
            partition.name: PartitionItem(partition.up, partition.default, partition.max_time_min)
            for partition in world.partitions.values()
        }
        polled = world.nodes_polled[1] if world.nodes_polled is not None else None
        body = msgspec.json.encode({"at": now, "polled": polled, "partitions": partitions, "nodes": nodes})
        pace.stop()
        return body

    def _encoded(self, name: str, describe: Callable[[], NodeItem]) -> list[msgspec.Raw]:
        try:
            return [msgspec.Raw(msgspec.json.encode(describe()))]
        except Exception as error:  # noqa: BLE001 - contained to this node, or raised
            self._failed(name, error)
            return []


def _raised(error: Exception) -> None:
    raise error


def items(world: World) -> Iterator[tuple[str, Callable[[], NodeItem]] | None]:
    """The name of each node of Kubernetes, then of each that only Slurm has, and its item; None: a pause is possible.

    The World may change between two items.
    """
    granted: dict[str, Counter[str]] = {}
    for job in tuple(world.placeholders.values()):
        count_grant(job, granted)
        yield None
    ours, known = dict(world.nodes or {}), dict(world.slurm_nodes or {})
    both = set()
    for name in sorted(ours):
        there = slurm_name(ours[name])
        both.add(there)
        yield name, partial(_described, world, name, ours[name], known.get(there), granted.get(there))
    for name in sorted(known.keys() - both):
        yield name, partial(_described, world, name, None, known[name], granted.get(name))


def count_grant(job: Placeholder, granted: dict[str, Counter[str]]) -> None:
    """Add what the job holds to `granted`, by Slurm's name of the node: CPUs, MiB, devices by GRES name, and jobs."""
    if job.grant is None or not job.holds_nodes:
        return
    for part in job.grant.everywhere:
        total = granted.setdefault(part.name, Counter())
        total.update(part.gres)
        total.update({CPUS: part.cpus, MEMORY: part.memory_mib, JOBS: 1})


def _as_granted(node: SlurmNode | None, granted: Mapping[str, int] | None) -> SlurmNode | None:
    """The node, on which jobs hold at least what the bridge was granted there, also since the poll."""
    if node is None or granted is None:
        return node
    return replace(
        node,
        held_cpus=max(node.held_cpus, granted[CPUS]),
        held_memory_mib=max(node.held_memory_mib, granted[MEMORY]),
        held_gres={name: max(node.held_gres.get(name, 0), granted[name]) for name in node.gres},
    )


def _described(
    world: World, name: str, node: Node | None, polled: SlurmNode | None, granted: Mapping[str, int] | None
) -> NodeItem:
    there = _as_granted(polled, granted)
    bridge, others = _taken(world, node)
    closed = _closed(world, node, there)
    sides = _Sides(node, there, bridge, others, is_open=not closed)
    known, gres = there or SlurmNode(""), world.config.translation.gres
    return NodeItem(
        name=name,
        slurm_name=there.name if there is not None else None,
        kubernetes=_state(node) if node is not None else None,
        taints=_taints(node) if node is not None else [],
        slurm=sorted(known.states),
        reason=known.reason[:REASON_MOST],
        partitions=sorted(known.partitions),
        closed=closed,
        pods=Pods(bridge["pods"], others["pods"]),
        cpus=sides.amount(known.cpus, known.held_cpus, ("cpu",), 1000),
        memory_mib=sides.amount(known.memory_mib, known.held_memory_mib, ("memory",), MIB),
        devices={
            kind: sides.amount(known.gres.get(kind, 0), known.held_gres.get(kind, 0), _resources(gres, kind))
            for kind in _kinds(gres, node, there)
        },
    )


def _state(node: Node) -> str:
    return ("Ready" if node.ready else "NotReady") + (f",{UNSCHEDULABLE}" if node.unschedulable else "")


def _taints(node: Node) -> list[str]:
    return sorted({taint.key for taint in node.taints if taint.effect in BLOCKING and taint.key != names.MANAGED_TAINT})


def _closed(world: World, node: Node | None, there: SlurmNode | None) -> str:
    if node is None:
        return "not in Kubernetes"
    if there is None:
        return "not in Slurm"
    if there.name in world.contested:
        return "several nodes of Kubernetes claim it in Slurm"
    if there.is_off_for_good:
        return OFF_FOR_GOOD
    if not node.ready and not there.changes_power:  # Slurm powers it up for a job
        return "not ready in Kubernetes"
    if node.unschedulable:
        return "cordoned in Kubernetes"
    closing = there.closed | (there.states & CLOSING)
    return f"{'+'.join(sorted(closing))} in Slurm" if closing else ""


def _taken(world: World, node: Node | None) -> tuple[Counter[str], Counter[str]]:
    """The needs of the unfinished pods on the node: of the pods of the bridge, and of all others."""
    bridge, others = Counter[str](), Counter[str]()
    there = world.node_info.get(node.name) if node is not None else None
    if there is not None:
        own = world.config.scheduler_name
        for uid, pod in there.pods.items():
            (bridge if pod.scheduler_name == own else others).update(there.needed_by(uid))
    return bridge, others


# --- amounts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sides:
    """One node in both clusters.

    bridge, others   the needs of the pods of the bridge, and of all other pods, as Kubernetes counts them
    is_open          pods can start there
    """

    node: Node | None
    there: SlurmNode | None
    bridge: Mapping[str, int]
    others: Mapping[str, int]
    is_open: bool

    def amount(self, total: int, held: int, resources: Collection[str], unit: int = 1) -> Amount:
        """One resource.

        total, held   as Slurm counts them
        resources     what Kubernetes calls it; empty: Kubernetes does not count it
        unit          amount of Kubernetes that is 1 of Slurm
        """
        bridge, others = (
            sum(amounts.get(name, 0) for name in resources) / unit for amounts in (self.bridge, self.others)
        )
        free = [float(total - held)] if self.there is not None else []
        if resources and self.node is not None:
            offered = sum(self.node.allocatable.get(name, 0) for name in resources) / unit
            free.append(offered - bridge - others)
            total = total if self.there is not None else int(offered)
        open_free = max(0, int(min(free))) if self.is_open and free else 0
        return Amount(total, held, round(bridge, 2), round(others, 2), open_free)


def _kinds(gres: Mapping[str, str], node: Node | None, there: SlurmNode | None) -> list[str]:
    """GRES names of the devices of the node: with their type, unless Kubernetes counts several types as one.

    gres   extended resource of Kubernetes to GRES name
    """
    if there is None:
        offered = node.allocatable if node is not None else {}
        return sorted({name for resource, name in gres.items() if offered.get(resource)})
    types: dict[str, list[str]] = {}
    for name in there.gres:
        types.setdefault(name.partition(":")[0], []).extend([name] if ":" in name else [])
    kinds: list[str] = []
    for plain, typed in types.items():
        alike = sum(name not in gres.values() for name in typed) > 1
        kinds += typed if typed and not alike else [plain]
    return sorted(kinds)


def _resources(gres: Mapping[str, str], kind: str) -> tuple[str, ...]:
    """The extended resources that are devices of this GRES name: with its type, otherwise without a type."""
    exact = tuple(resource for resource, known in gres.items() if known == kind)
    return exact or tuple(resource for resource, known in gres.items() if known == kind.partition(":")[0])
