"""Limits of one pod's requests: a pod that exceeds one of them is refused (X7).

A pass multiplies each list in a pod by the nodes, by the other pods or by the pods of a gang.  No workload that people write
by hand or with a common tool comes near these limits.  Pods of other schedulers cannot be refused; the indexes that count
them bound the cost of a query (place/affinity.py, place/host_ports.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler.model.amounts import Amounts
from scheduler.model.kubernetes import NodeTerm, Pod, PodTerm, Requirement

# Shapes, or choices of nodes, among the pods of one gang: a heterogeneous job of Slurm has at most so many components.
MAX_SHAPES = 128
MAX_KINDS = 64
MAX_PORTS = 128
MAX_CLAIMS = 64
MAX_NAMESPACES = 512
_LEAST = 64  # no limit of a pod without affinity is lower
_MOST_NAMED = 3  # unsupported fields that a sentence names


def beyond_limits(pod: Pod) -> str:
    """The limit that this pod exceeds, as a sentence with the number and the limit; "": none."""
    if pod.limit_exceeded:
        return pod.limit_exceeded
    if not (pod.node_affinity or pod.anti_affinity or pod.affinity):
        lists = len(pod.containers) + len(pod.init_containers) + len(pod.tolerations) + len(pod.node_selector)
        if lists + len(pod.host_ports) + len(pod.claims) + _amounts_of_all(pod) <= _LEAST:
            return ""  # as most pods are
    for items, limit, count in _LIMITS:
        if (number := count(pod)) > limit:
            return f"The pod has {number:,} {items}, and slurm-bridge takes at most {limit:,}."
    return ""


def listed(fields: Iterable[str]) -> str:
    """The first of these unsupported fields, and how many more there are."""
    named = list(dict.fromkeys(fields))
    more = len(named) - _MOST_NAMED
    return ", ".join(named[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _kinds(pod: Pod) -> int:
    return len({resource for amounts in _amounts(pod) for resource in amounts})


def number_of_amounts(pod: Pod) -> int:
    """Number of requests and limits of all containers of the pod."""
    number = 0
    for one in (*pod.containers, *pod.init_containers):
        number += len(one.requests) + len(one.limits)
    return number


def _amounts_of_all(pod: Pod) -> int:
    """The same, with requests and limits of the pod itself."""
    return number_of_amounts(pod) + len(pod.overhead) + len(pod.pod_requests) + len(pod.pod_limits)


def _amounts(pod: Pod) -> Iterable[Amounts]:
    for one in (*pod.containers, *pod.init_containers):
        yield from (one.requests, one.limits)
    yield from (pod.overhead, pod.pod_requests, pod.pod_limits)


def _node_requirements(pod: Pod) -> Iterable[Requirement]:
    terms: tuple[NodeTerm, ...] = pod.node_affinity or ()
    return (requirement for term in terms for requirement in (*term.expressions, *term.fields))


def _pod_terms(pod: Pod) -> tuple[PodTerm, ...]:
    return (*pod.anti_affinity, *pod.affinity)


def _pod_requirements(pod: Pod) -> Iterable[Requirement]:
    return (requirement for term in _pod_terms(pod) for requirement in term.expressions)


def _number(things: Iterable[object]) -> int:
    return sum(1 for _ in things)


def _values(requirements: Iterable[Requirement]) -> int:
    return sum(len(requirement.values) for requirement in requirements)


_Limit = tuple[str, int, Callable[[Pod], int]]

_LIMITS: tuple[_Limit, ...] = (
    ("containers", 128, lambda pod: len(pod.containers) + len(pod.init_containers)),
    ("kinds of resources", MAX_KINDS, _kinds),
    ("tolerations", 128, lambda pod: len(pod.tolerations)),
    ("labels in its node selector", 64, lambda pod: len(pod.node_selector)),
    ("host ports", MAX_PORTS, lambda pod: len(pod.host_ports)),
    ("volume claims", MAX_CLAIMS, lambda pod: len(pod.claims)),
    ("requests and limits of resources", 1024, _amounts_of_all),
    ("terms of required node affinity", 64, lambda pod: len(pod.node_affinity or ())),
    ("expressions of required node affinity", 256, lambda pod: _number(_node_requirements(pod))),
    ("values in its required node affinity", 1024, lambda pod: _values(_node_requirements(pod))),
    ("terms of required pod affinity and anti-affinity", 20, lambda pod: len(_pod_terms(pod))),
    ("expressions of required pod affinity and anti-affinity", 64, lambda pod: _number(_pod_requirements(pod))),
    ("values in its required pod affinity and anti-affinity", 512, lambda pod: _values(_pod_requirements(pod))),
    (
        "namespaces in its required pod affinity and anti-affinity",
        MAX_NAMESPACES,
        lambda pod: sum(len(term.namespaces) for term in _pod_terms(pod)),
    ),
)
