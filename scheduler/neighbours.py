"""Beside whom a pod must or must not stand: required pod (anti-)affinity on hostname (BEHAVIOUR F5).

As kube-scheduler judges it, terminating pods included; an anti-affinity binds both ways.  Slurm cannot queue for this: nodes
that are closed now are excluded now, and the job is told when that changes (F2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from scheduler.feasible import holds
from scheduler.model import Pod, PodTerm


def matches(term: PodTerm, pod: Pod) -> bool:
    """Whether the term speaks of that pod."""
    return pod.namespace in term.namespaces and all(holds(each, pod.labels) for each in term.expressions)


def apart_from_its_own(pod: Pod) -> bool:
    """Its anti-affinity speaks of pods like itself: of a gang, one member a node."""
    return any(matches(term, pod) for term in pod.apart)


def beside_its_own(pod: Pod) -> bool:
    """Its affinity speaks of pods like itself: a gang stands on one node."""
    return any(matches(term, pod) for term in pod.beside)


def shun(pod: Pod, others: Collection[Pod]) -> bool:
    """Whether it keeps away from one of them, or one of them from it."""
    return any(matches(term, each) for term in pod.apart for each in others) or any(
        matches(term, pod) for each in others for term in each.apart
    )


def closed(
    pod: Pod, nodes: Iterable[str], standing: Mapping[str, Iterable[Pod]], own: Collection[str] = ()
) -> frozenset[str]:
    """Nodes on which it must not stand as things are.

    standing   unfinished pods by node; own: UIDs of those among them that do not count, because they are placed with it
    """
    others = {
        node: [each for each in there if each.uid != pod.uid and each.uid not in own]
        for node, there in standing.items()
    }
    shut = {node for node, there in others.items() if shun(pod, there)}
    for term in pod.beside:
        homes = {node for node, there in others.items() if any(matches(term, each) for each in there)}
        if homes or not matches(term, pod):  # the first of those that want each other may stand anywhere
            shut |= set(nodes) - homes
    return frozenset(shut)
