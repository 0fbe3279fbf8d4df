"""Which nodes a workload may use at all (F1–F3).

Feasibility is judged before a submission, and does not depend on what is taken now: Slurm queues for that.  All other nodes
of the job's partition become its `excluded_nodes`.  Of the nodes that only one of the two clusters knows, those of Slurm are
excluded and those of Kubernetes do not count.

The answer depends on a pod only through its NodeRequirements, so ten thousand pods of one Deployment are judged once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from scheduler import names
from scheduler.model.amounts import Amounts
from scheduler.model.hostlist import folded
from scheduler.model.kubernetes import Node, NodeTerm, Pod, Requirement, Taint, Toleration
from scheduler.model.selectors import accepts
from scheduler.model.slurm import JobSpec, SlurmNode
from scheduler.translate.job_spec import needs

BLOCKING = frozenset({"NoSchedule", "NoExecute"})
COMPARED_PER_NODE = 16  # expressions or tolerations that are compared in the time that a node takes otherwise
CONTESTED = "claiming the same Slurm node as another"
CLOSED = "not satisfying pod (anti-)affinity"

Matcher = Callable[[Node], bool]
Check = Callable[[str | None], bool]


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """All properties of a pod and its job that feasibility depends on; hashable."""

    selector: tuple[tuple[str, str], ...]
    affinity: tuple[NodeTerm, ...] | None
    volumes: tuple[tuple[NodeTerm, ...], ...]
    tolerations: tuple[Toleration, ...]
    needs: tuple[tuple[str, int], ...]
    partition: str  # "": the default partition, if Slurm does not say which one that is
    devices: bool
    closed: frozenset[str] = frozenset()  # nodes that other pods close to the pod (F5)
    ports_taken: frozenset[str] = frozenset()  # nodes where other pods hold a host port of the pod


@dataclass(frozen=True, slots=True)
class Feasible:
    """The nodes that a pod may use.

    nodes       Slurm's names
    excluded    the other nodes of the partition, as a folded hostlist
    problem     the sentence of F3 if there are no nodes; else ""
    exclusive   only nodes with a slurmd of their own have the devices: allocate them whole (G2)
    """

    nodes: frozenset[str]
    excluded: str
    problem: str = ""
    exclusive: bool = False


def node_requirements(
    pod: Pod,
    spec: JobSpec,
    partition: str,
    volumes: tuple[tuple[NodeTerm, ...], ...] = (),
    closed: frozenset[str] = frozenset(),
    ports_taken: frozenset[str] = frozenset(),
) -> NodeRequirements:
    """The properties of this pod that decide which nodes it may use.

    volumes      the node affinity of each bound volume of the pod
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


def slurm_name(node: Node) -> str:
    """Slurm's NodeName of a Kubernetes node (K6: label slurm-node)."""
    return node.labels.get(names.SLURM_NODE_LABEL) or node.name


def feasible(
    wanted: NodeRequirements,
    nodes: Iterable[Node],
    slurm_nodes: Mapping[str, SlurmNode],
    contested: Collection[str] = (),
) -> Feasible:
    """The nodes that satisfy these requirements.

    nodes        all nodes of Kubernetes
    slurm_nodes  all nodes of Slurm, by name
    contested    Slurm's names of nodes that several Kubernetes nodes claim: these are not used
    """
    made = checks(wanted)
    fit: dict[str, bool] = {}  # Slurm name -> is it external
    misses: Counter[str] = Counter()
    count = 0
    for node in nodes:
        count += 1
        name = slurm_name(node)
        known = slurm_nodes.get(name)
        why = miss(wanted, node, known, made) if name not in contested else CONTESTED
        if why is None and known is not None:
            fit[known.name] = known.external
        else:
            misses[why or ""] += 1
    external = {name for name, is_external in fit.items() if is_external}
    usable = external if wanted.devices and external else set(fit)
    partition = (node.name for node in slurm_nodes.values() if wanted.partition in ("", *node.partitions))
    excluded = folded(name for name in partition if name not in usable)
    problem = "" if usable else _sentence(count, misses, wanted.partition)
    return Feasible(frozenset(usable), excluded, problem, exclusive=wanted.devices and bool(fit) and not external)


def _sentence(count: int, misses: Counter[str], partition: str) -> str:
    """The sentence, in the form of kube-scheduler's: most frequent cause first."""
    parts = ", ".join(f"{number} {why}" for why, number in sorted(misses.items(), key=lambda item: (-item[1], item[0])))
    where = f" in Slurm partition {partition}" if partition else ""
    return f"0/{count} nodes can run this pod{where}: {parts or 'the cluster has no nodes'}."


def weight(wanted: NodeRequirements) -> int:
    """Cost of judging one node, relative to a pod with few requirements."""
    compared = sum(1 for _ in _requirements(wanted))
    return 1 + (compared + len(wanted.selector) + len(wanted.tolerations)) // COMPARED_PER_NODE


def texts(wanted: NodeRequirements) -> int:
    """About how many strings these requirements hold."""
    said = sum(1 + len(each.values) for each in _requirements(wanted))
    return said + len(wanted.selector) + len(wanted.tolerations) + len(wanted.needs)


def _requirements(wanted: NodeRequirements) -> Iterator[Requirement]:
    for terms in (wanted.affinity or (), *wanted.volumes):
        for term in terms:
            yield from (*term.expressions, *term.fields)


@dataclass(frozen=True, slots=True)
class Checks:
    """The label checks of NodeRequirements, compiled once for many nodes."""

    affinity: Matcher
    volumes: tuple[Matcher, ...]


def checks(wanted: NodeRequirements) -> Checks:
    """The checks of the pod's node affinity, and of each of its volumes."""
    affinity = matcher(wanted.affinity) if wanted.affinity is not None else lambda _: True
    return Checks(affinity, tuple(map(matcher, dict.fromkeys(wanted.volumes))))


def miss(wanted: NodeRequirements, node: Node, known: SlurmNode | None, made: Checks | None = None) -> str | None:
    """Why this node cannot be used, in words that follow a number of nodes; None: it can be used.

    made   the compiled checks, if many nodes are judged
    """
    if known is None:
        return "not known to Slurm"
    if wanted.partition and wanted.partition not in known.partitions:
        return f"not in partition {wanted.partition}"
    if not node.ready:
        return "not ready"
    if node.unschedulable:
        return "cordoned"
    if taint := untolerated(node.taints, wanted.tolerations):
        return f"with untolerated taint {{{taint.key}: {taint.value}}}"
    if any(node.labels.get(key) != value for key, value in wanted.selector):
        return "not matching the pod's node selector"
    made = made or checks(wanted)
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
    return toleration.operator == "Exists" or (
        toleration.operator in ("Equal", "") and toleration.value == taint.value
    )  # an operator newer than this code tolerates nothing


def matcher(terms: Iterable[NodeTerm]) -> Matcher:
    """A check of required node affinity: one term must match wholly; an empty term matches nothing."""
    made = [
        ([(each.key, _check(each)) for each in term.expressions], [(each.key, _check(each)) for each in term.fields])
        for term in terms
        if term.expressions or term.fields
    ]

    def matches(node: Node) -> bool:
        said = node.labels.get
        for of_labels, of_fields in made:
            for key, check in of_labels:
                if not check(said(key)):
                    break
            else:
                fields = {"metadata.name": node.name} if of_fields else {}
                if all(check(fields.get(key)) for key, check in of_fields):
                    return True
        return False

    return matches


def _check(requirement: Requirement) -> Check:
    """The check of one expression, for the value of its label on many nodes."""
    named = requirement.operator in ("In", "NotIn")
    values = frozenset(requirement.values) if named else requirement.values
    return partial(accepts, requirement.operator, values)
