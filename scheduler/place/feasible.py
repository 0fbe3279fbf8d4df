"""Which nodes a workload may use at all (F1–F3).

Feasibility is judged before a submission.  It does not depend on the free room of nodes: for room, the job waits in Slurm's
queue.  All other nodes of the job's partition become its `excluded_nodes`.  A node that only Slurm knows is excluded.  A node
that only Kubernetes knows does not count.

The answer depends on a pod only through its NodeRequirements, so ten thousand pods of one Deployment are judged once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from scheduler import names
from scheduler.model.hostlist import folded
from scheduler.model.kubernetes import Node, Requirement
from scheduler.model.slurm import SlurmNode
from scheduler.place.fit import NodeRequirements, checks, why_unusable

REQUIREMENTS_PER_NODE = 16  # expressions or tolerations that are compared in the time that a node takes otherwise
CONTESTED = "claiming the same Slurm node as another"


@dataclass(frozen=True, slots=True)
class Feasible:
    """The nodes that a pod may use.

    nodes       Slurm's names
    excluded    the other nodes of the partition, as a folded hostlist
    problem     the sentence of F3 if there are no nodes; "": there are nodes
    exclusive   only nodes with a slurmd of their own have the devices: allocate them whole (G2)
    """

    nodes: frozenset[str]
    excluded: str
    problem: str = ""
    exclusive: bool = False


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
        why = why_unusable(wanted, node, known, made) if name not in contested else CONTESTED
        if why is None and known is not None:
            fit[known.name] = known.external
        else:
            misses[why or ""] += 1
    external = {name for name, is_external in fit.items() if is_external}
    usable = external if wanted.devices and external else set(fit)
    partition = (node.name for node in slurm_nodes.values() if wanted.partition in ("", *node.partitions))
    excluded = folded(name for name in partition if name not in usable)
    problem = "" if usable else _sentence(count, misses, wanted.partition)
    return Feasible(frozenset(usable), excluded, problem, exclusive=wanted.devices and not external)


def _sentence(count: int, misses: Counter[str], partition: str) -> str:
    """The sentence, in the form of kube-scheduler's: most frequent cause first."""
    parts = ", ".join(
        f"{number:,} {why}" for why, number in sorted(misses.items(), key=lambda item: (-item[1], item[0]))
    )
    where = f" in Slurm partition {partition}" if partition else ""
    return f"0/{count:,} nodes can run this pod{where}: {parts or 'the cluster has no nodes'}."


def weight(wanted: NodeRequirements) -> int:
    """Cost of judging one node, relative to a pod with few requirements."""
    compared = sum(1 for _ in _requirements(wanted))
    return 1 + (compared + len(wanted.selector) + len(wanted.tolerations)) // REQUIREMENTS_PER_NODE


def texts(wanted: NodeRequirements) -> int:
    """About how many strings these requirements hold."""
    number = sum(1 + len(requirement.values) for requirement in _requirements(wanted))
    return number + len(wanted.selector) + len(wanted.tolerations) + len(wanted.needs)


def _requirements(wanted: NodeRequirements) -> Iterator[Requirement]:
    for terms in (wanted.affinity or (), *wanted.volumes):
        for term in terms:
            yield from (*term.expressions, *term.fields)
