"""The part of a pod that is kept if the pod exceeds the limits (X7).

A tenant may create as many such pods as its quota allows, each of a megabyte.  So only the parts that affect other pods are
kept.  The shortened pod is refused with the same message as the whole pod.  If such a pod is on a node nevertheless, because
another scheduler or a person bound it, its requests, host ports and anti-affinity count there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler.model.amounts import EMPTY, NO_TEXT, Amounts
from scheduler.model.kubernetes import ALL_PORTS, Container, Pod, PodTerm
from scheduler.translate.job_spec import summed
from scheduler.translate.pod_limits import MAX_KINDS, MAX_NAMESPACES, MAX_PORTS, beyond_limits

FIRST = ("cpu", "memory")


def cut(pod: Pod) -> Pod:
    """The pod.  If it exceeds the limits, its long fields are shortened."""
    limit_exceeded = beyond_limits(pod)
    if not limit_exceeded:
        return pod
    short: dict[str, Any] = {"limit_exceeded": limit_exceeded}
    asked: dict[str, Any] = {
        "containers": pod.containers,
        "init_containers": pod.init_containers,
        "overhead": pod.overhead,
        "pod_requests": pod.pod_requests,
        "pod_limits": pod.pod_limits,
    }
    if _is_too_much(**asked):
        short |= dict.fromkeys(asked, EMPTY) | {"containers": (Container("", _sum(pod)),), "init_containers": ()}
    if _is_too_much(anti_affinity=pod.anti_affinity, affinity=pod.affinity):
        short |= {"anti_affinity": _as_few(pod.anti_affinity), "affinity": ()}
    if _is_too_much(host_ports=pod.host_ports):
        short["host_ports"] = (*pod.host_ports[:MAX_PORTS], ALL_PORTS)
    for field, nothing in (("tolerations", ()), ("node_selector", NO_TEXT), ("node_affinity", None), ("claims", ())):
        if _is_too_much(**{field: getattr(pod, field)}):
            short[field] = nothing
    return replace(pod, **short)


def _is_too_much(**fields: Any) -> bool:
    return bool(beyond_limits(Pod("", "", "", **fields)))


def _sum(pod: Pod) -> Amounts:
    """The requests of a pod.  If there are too many resources: the resources that every node has, and the first others."""
    wanted = {kind: number for kind, number in summed(pod).items() if kind != "pods"}
    kinds = sorted(wanted, key=lambda kind: (kind not in FIRST, "/" in kind))
    return {kind: wanted[kind] for kind in kinds[:MAX_KINDS]}


def _as_few(terms: tuple[PodTerm, ...]) -> tuple[PodTerm, ...]:
    """These terms.  If there are too many: one term that excludes all pods of the first of their namespaces."""
    if not _is_too_much(anti_affinity=terms):
        return terms
    spaces = sorted({space for term in terms for space in term.namespaces})
    return (PodTerm((), frozenset(spaces[:MAX_NAMESPACES])),)
