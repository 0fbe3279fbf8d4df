"""V3: a pod is bound only where the node has room for it.

Doubts are decided in favour of the bridge: a node counts with the most that it had while the bind was on its way.  A pod that
another client bound just before does not count.  A pod counts as gone from the request by which it ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from integration.checker.audit import Pod
from integration.checker.evidence import ON_ITS_WAY_S, Evidence, clock
from integration.checker.quantities import ANY
from integration.checker.running_bridges import BRIDGE
from integration.checker.verdict import Broken

EXACT = 1e-6  # amounts are sums of decimal fractions


def fits(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """At each bind by a bridge the node has what the pod requests, less what the unfinished pods there request.

    The pod's host ports are free.
    """
    nodes: dict[str, list[tuple[float, Pod]]] = {}
    for pod in evidence.audit.pods.values():
        if pod.bind is not None and evidence.certain(pod):
            known = pod.bind.at + (0.0 if pod.bind.client == BRIDGE else ON_ITS_WAY_S)
            nodes.setdefault(pod.bind.node, []).append((known, pod))
    for node, arrivals in nodes.items():
        there: list[Pod] = []
        for at, pod in sorted(arrivals, key=lambda each: each[0]):
            there = [other for other in there if other.ending > at]
            has = evidence.audit.rooms.most(node, at - ON_ITS_WAY_S, at)
            if pod.bind is not None and pod.bind.client == BRIDGE and has is not None:
                judged["V3"] += 1
                yield from _too_much(pod, node, at, there, has)
            there.append(pod)


def _too_much(pod: Pod, node: str, at: float, there: list[Pod], has: Mapping[str, float]) -> Iterator[Broken]:
    assert pod.bind is not None
    what = f"pod {pod.who} was bound to {node} at {clock(at)} ({pod.bind.line})"
    for other in there:
        if any(_conflict(mine, theirs) for mine in pod.ports for theirs in other.ports):
            yield Broken("V3", pod.who, at, f"{what}, where {other.who} has its host port")
            return
    for resource, asked in pod.requests.items():
        used = sum(other.requests.get(resource, 0.0) for other in there)
        room = has.get(resource, 0.0)
        if asked > 0 and used + asked > room * (1 + EXACT) + EXACT:
            yield Broken(
                "V3", pod.who, at,
                f"{what} and requests {asked:g} {resource}; {len(there)} pods there requested {used:g} of {room:g}",
            )  # fmt: skip
            return


def _conflict(mine: tuple[int, str, str], theirs: tuple[int, str, str]) -> bool:
    """True if two host ports cannot be on one node: the addresses are equal, or one of them is any address."""
    return mine[:2] == theirs[:2] and (mine[2] == theirs[2] or ANY in (mine[2], theirs[2]))
