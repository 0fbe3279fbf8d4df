"""The fit of one pod on one node: its labels, taints and volumes (F1), and its room beside the other pods (F6, V3).

Slurm grants only resources that it counts.  Before the bind, the node is checked again as Kubernetes counts: its allocatable
resources less the requests of all unfinished pods there, of any scheduler.  Slurm frees the resources of a preempted job at
once, while its pod may still be terminating.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from scheduler import names
from scheduler.model.amounts import EMPTY, Amounts
from scheduler.model.cache import BoundedDict
from scheduler.model.clocks import grace_ends
from scheduler.model.kubernetes import ALL_PORTS, HostPort, Node, NodeTerm, Pod, Requirement, Taint, Toleration
from scheduler.model.left_out import Kind
from scheduler.model.selectors import accepts
from scheduler.model.slurm import POWER, JobSpec, SlurmNode
from scheduler.place.affinity import violates_anti_affinity
from scheduler.place.host_ports import in_the_way
from scheduler.translate.job_spec import summed

# Kubernetes taints a node whose kubelet is silent or has just started.
STARTING = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
BLOCKING = frozenset({"NoSchedule", "NoExecute"})
CLOSED = "not satisfying pod (anti-)affinity"
OFF_FOR_GOOD = "powered down by Slurm for good"
EXTRA_WAIT_S = 60.0  # a bind waits for a terminating pod for its grace and this time (F6)

Matcher = Callable[[Node], bool]
Check = Callable[[str | None], bool]


# --- labels, taints, volumes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """All properties of a pod and its job that feasibility depends on; hashable."""

    selector: tuple[tuple[str, str], ...]
    affinity: tuple[NodeTerm, ...] | None
    volumes: tuple[tuple[NodeTerm, ...], ...]
    tolerations: tuple[Toleration, ...]
    needs: tuple[tuple[str, int], ...]
    partition: str  # "": the default partition, if Slurm does not name it
    devices: bool = False
    closed: frozenset[str] = frozenset()  # nodes that other pods close to the pod (F5)
    ports_taken: frozenset[str] = frozenset()  # nodes where other pods hold a host port of the pod


def node_requirements(
    pod: Pod,
    spec: JobSpec,
    partition: str,
    volumes: tuple[tuple[NodeTerm, ...], ...] = (),
    closed: frozenset[str] = frozenset(),
    ports_taken: frozenset[str] = frozenset(),
) -> NodeRequirements:
    """The properties of this pod that decide which nodes it may use.

    volumes      the node affinity of each volume of the pod
    closed       Kubernetes names of nodes that other pods close to it now
    ports_taken  Kubernetes names of nodes where other pods now hold a host port of the pod
    """
    return NodeRequirements(
        selector=tuple(sorted(pod.node_selector.items())),
        affinity=pod.node_affinity,
        volumes=volumes,
        tolerations=pod.tolerations,
        needs=tuple(sorted(needs(pod).items())),
        partition=partition,
        devices=bool(spec.gres),
        closed=closed,
        ports_taken=ports_taken,
    )


@dataclass(frozen=True, slots=True)
class Checks:
    """The label checks of NodeRequirements, compiled once for many nodes."""

    affinity: Matcher
    volumes: tuple[Matcher, ...]


def checks(wanted: NodeRequirements) -> Checks:
    """The checks of the pod's node affinity, and of each of its volumes."""
    affinity = matcher(wanted.affinity) if wanted.affinity is not None else lambda _: True
    return Checks(affinity, tuple(map(matcher, dict.fromkeys(wanted.volumes))))


def why_unusable(wanted: NodeRequirements, node: Node, known: SlurmNode | None, made: Checks) -> str | None:
    """Why this node cannot be used, in words that follow a number of nodes; None: it can be used.

    Slurm powers up a node for a job, and then its kubelet reports again.  So such a node need not be ready.

    made   the compiled checks of these requirements
    """
    if known is None:
        return "not known to Slurm"
    if wanted.partition and wanted.partition not in known.partitions:
        return f"not in partition {wanted.partition}"
    # As SlurmNode.changes_power.  A call would cost more, for each node of each pod.
    sleeps = not known.states.isdisjoint(POWER)
    if sleeps and "EXTERNAL" in known.states:  # as SlurmNode.is_off_for_good
        return OFF_FOR_GOOD
    if not node.ready and not sleeps:
        return "not ready"
    if node.unschedulable:
        return "cordoned"
    taints = [taint for taint in node.taints if taint.key not in STARTING] if sleeps else node.taints
    if taint := untolerated(taints, wanted.tolerations):
        return f"with untolerated taint {{{taint.key}: {taint.value}}}"
    if any(node.labels.get(key) != value for key, value in wanted.selector):
        return "not matching the pod's node selector"
    if not made.affinity(node):
        return "not matching the pod's node affinity"
    if not all(reaches(node) for reaches in made.volumes):
        return "out of reach of the pod's volumes"
    if node.name in wanted.closed:
        return CLOSED
    if node.name in wanted.ports_taken:
        return "without a free port for the pod's host ports"
    return _too_small(wanted.needs, node.allocatable)


def _too_small(wanted: Iterable[tuple[str, int]], allocatable: Amounts) -> str | None:
    for resource, amount in wanted:
        if amount > allocatable.get(resource, 0):
            return f"with too little {resource} in all"
    return None


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that the pod does not tolerate; the bridge's own taint concerns only other schedulers (N7)."""
    for taint in taints:
        counts = taint.effect in BLOCKING and taint.key != names.MANAGED_TAINT
        if counts and not any(_tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    # An operator newer than this code tolerates nothing.
    return toleration.operator == "Exists" or (toleration.operator in ("Equal", "") and toleration.value == taint.value)


def matcher(terms: Iterable[NodeTerm]) -> Matcher:
    """A check of required node affinity: one term must match wholly; an empty term matches nothing."""
    made = [
        (
            [(expression.key, _check(expression)) for expression in term.expressions],
            [(field.key, _check(field)) for field in term.fields],
        )
        for term in terms
        if term.expressions or term.fields
    ]

    def matches(node: Node) -> bool:
        label = node.labels.get
        for of_labels, of_fields in made:
            for key, check in of_labels:
                if not check(label(key)):
                    break
            else:
                fields = {"metadata.name": node.name} if of_fields else {}
                if all(check(fields.get(key)) for key, check in of_fields):
                    return True
        return False

    return matches


def _check(requirement: Requirement) -> Check:
    """A check of one expression, which takes the value of its label; it is used for many nodes."""
    values = dict.fromkeys(requirement.values)  # a value is found without a search
    return partial(accepts, requirement.operator, values)


# --- room -----------------------------------------------------------------------------------------------------------


MAX_AMOUNTS_REMEMBERED = 100_000  # some 20 MiB
# The keys are the id() of the objects with the requests.  The objects are kept here, and pods with equal requests share them.
_needs: BoundedDict[tuple[int, ...], tuple[tuple[object, ...], Amounts]] = BoundedDict(MAX_AMOUNTS_REMEMBERED)
_WEIGHT = 16  # the size of an entry without any request, in amounts


def needs(pod: Pod) -> Amounts:
    """The requests of the pod as Kubernetes counts them, cached for pods with equal requests."""
    asked = (pod.containers, pod.init_containers, pod.pod_requests, pod.overhead)
    shape = tuple(map(id, asked))
    known = _needs.get(shape)
    if known is None:
        amounts = summed(pod)
        weight = _WEIGHT + len(amounts)
        for container in (*pod.containers, *pod.init_containers):
            weight += 4 + len(container.requests) + len(container.limits)
        known = _needs.keep(shape, (asked, amounts), weight)
    return known[1]


def kind_of(pod: Pod) -> Kind:
    """What the pod needs, as a value."""
    return frozenset(needs(pod).items())


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

        at            when the bridge saw this state, by its clock; None: `deleting_at` is already by that clock
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
        if before is None or not _has_same_requests(before, pod):
            self._count(self._needs.get(pod.uid, {}), -1)
            self._needs[pod.uid] = needed = needs(pod)
            self._count(needed, 1)
        if before is None and pod.host_ports:
            self._ports[pod.uid] = pod.host_ports
            for host_port in pod.host_ports:
                by_address = self._holders.setdefault((host_port.port, host_port.protocol), {})
                by_address.setdefault(host_port.address, {})[pod.uid] = None
        return before

    def remove(self, uid: str) -> Pod | None:
        """Remove the pod.  Returns the removed pod; None: it was not here."""
        left = self.pods.pop(uid, None)
        self._ends.pop(uid, None)
        if left is not None:
            self._count(self._needs.pop(uid), -1)
            for host_port in self._ports.pop(uid, ()):
                self._free(host_port, uid)
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

    def holding_ports(self, wanted: Iterable[HostPort]) -> Iterator[Pod]:
        """The pods here that hold a host port which conflicts with one of these."""
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


def _has_same_requests(one: Pod, other: Pod) -> bool:
    return (
        one.containers == other.containers
        and one.init_containers == other.init_containers
        and one.pod_requests == other.pod_requests
        and one.overhead == other.overhead
    )


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a pod cannot be bound to its granted node now.

    until   epoch seconds until which the bind waits for terminating pods; None: waiting does not help
    not_ready   the node is not ready, which a node that Slurm has just powered up becomes soon
    """

    why: str
    until: float | None = None
    not_ready: bool = False


def blocked(pod: Pod, node: Node | None, name: str, there: Sequence[NodeInfo]) -> Blocked | None:
    """Why the pod cannot be bound to the node now (F6); None: it can.

    name    of the node; its name in Slurm if Kubernetes has no such node
    there   the pods on the node, also pods that this pass binds; no pod is in two of these
    """
    if node is None:
        return Blocked(f"Kubernetes has no node for Slurm's {name}")
    if not node.ready:
        return Blocked(f"node {name} is not ready", not_ready=True)
    if node.unschedulable:
        return Blocked(f"node {name} is cordoned")
    lacking = _lacking(pod, node, there, leave_out_terminating=False)
    if not lacking:
        return None
    if _lacking(pod, node, there, leave_out_terminating=True):
        return Blocked(f"on node {name} other pods use the {lacking} that the pod needs")
    terminating = _terminating(there)
    until = max(ends for counts in there for other in terminating if (ends := counts.grace_ends(other.uid)) is not None)
    until += EXTRA_WAIT_S
    pods = ", ".join(sorted(other.full_name for other in terminating)[:3])
    return Blocked(f"on node {name} {pods} still {'terminates' if len(terminating) == 1 else 'terminate'}", until)


def _terminating(there: Sequence[NodeInfo]) -> list[Pod]:
    return [other for counts in there for other in counts.pods.values() if other.deleting_at is not None]


def _lacking(pod: Pod, node: Node, there: Sequence[NodeInfo], *, leave_out_terminating: bool) -> str:
    """The first resource of which the node has too little for this pod beside the others; "": none."""
    for counts in there if pod.host_ports else ():
        for other in counts.holding_ports(pod.host_ports):
            if other.uid != pod.uid and not (leave_out_terminating and other.deleting_at is not None):
                return "host port"
    aside = {pod.uid, *(other.uid for other in _terminating(there))} if leave_out_terminating else {pod.uid}
    wanted = needs(pod)
    left_out = [needed for counts in there for uid in aside if (needed := counts.needed_by(uid))]
    for resource, amount in wanted.items():
        if not amount:  # nothing is needed, also of a resource of which the other pods have more than the node
            continue
        for counts in there:
            amount += counts.taken.get(resource, 0)
        for needed in left_out:
            amount -= needed.get(resource, 0)
        if amount > node.allocatable.get(resource, 0):
            return "place" if resource == "pods" else resource
    return ""


# --- right before the bind ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Site:
    """A granted node as both clusters show it now, and the pods there.

    granted   its name in Slurm; node: of Kubernetes, None: no node has that name
    in_slurm  None: Slurm does not list it
    claims    the nodes of Kubernetes that claim the name, if several do
    there     the pods on the node; planned: pods that this pass binds there; expected: pods of the same workload that are
              about to be bound there; None: no pods
    """

    granted: str
    node: Node | None
    in_slurm: SlurmNode | None
    claims: Sequence[str]
    there: NodeInfo | None
    planned: NodeInfo | None
    expected: NodeInfo | None = None

    @property
    def pods(self) -> list[NodeInfo]:
        """The pods that are on the node, planned or expected; no pod is in two of these."""
        return [pods for pods in (self.there, self.planned, self.expected) if pods is not None]

    def expect(self, pod: Pod) -> None:
        """Count a pod that is about to be bound here, unless it is counted already."""
        if not any(pod.uid in pods.pods for pods in self.pods):
            self.expected = self.expected or NodeInfo()
            self.expected.put(pod)


def obstacle(pod: Pod, site: Site, volumes: tuple[tuple[NodeTerm, ...], ...], closed: frozenset[str]) -> Blocked | None:
    """Why the pod cannot be bound there now (F6); None: it can.

    Labels and taints may have changed since the job was made; a job of a previous process may exclude no nodes.

    volumes   the node affinity of each volume of the pod
    closed    Kubernetes names of nodes that other pods close to it now
    """
    node, granted = site.node, site.granted
    if site.claims:  # a pod must not be bound to the wrong node
        return Blocked(f"the nodes {', '.join(site.claims)} of Kubernetes claim to be Slurm's {granted}")
    found = blocked(pod, node, node.name if node is not None else granted, site.pods)
    if found is not None or node is None:
        return found
    selector = tuple(pod.node_selector.items())
    wanted = NodeRequirements(selector, pod.node_affinity, volumes, pod.tolerations, (), "", closed=closed)
    why = why_unusable(wanted, node, site.in_slurm, checks(wanted))
    if site.planned is not None and violates_anti_affinity(pod, site.planned.pods.values()):
        why = CLOSED
    if not why:
        return None
    # Kubernetes takes these taints away some time after the node has become ready.
    return Blocked(f"node {node.name} is {why}", not_ready=any(taint.key in STARTING for taint in node.taints))
