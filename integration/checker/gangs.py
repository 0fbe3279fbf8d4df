"""V4: a gang is bound as a whole, or its job is released.

The annotation `gang-size` of a pod shows the number of pods, else what the bridge itself wrote with the bind (K4).  Pods that
were bound for an earlier job of the same workload, and pods that have succeeded, are part of the whole (S7, W5).  So is a
member that somebody else ended before it was bound, if the bridge sent the first bind before it could know that: then no
member waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from integration.checker.audit import Pod
from integration.checker.evidence import Evidence, Job, clock
from integration.checker.journal import longest
from integration.checker.running_bridges import BRIDGE
from integration.checker.verdict import Broken

DEADLINE_S = 30.0 + 5.0  # gang_bind_deadline_s, and a cancel


def whole_gangs(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """Soon after the first bind for a job of a gang all pods are bound, or the job is over."""
    seen: set[int] = set()
    for job in evidence.ours():
        parts = evidence.parts(job)
        size = _size(job)
        if size < 2 or id(parts[0]) in seen or evidence.pod_of(job):
            continue
        seen.add(id(parts[0]))
        first = min(pod.bound_at for pod in job.serves)
        bound = _bound(evidence, job)
        placed = sorted([*bound, *_left(evidence, job, first)])
        whole = placed[size - 1] if len(placed) >= size else float("inf")
        over = max(part.history.over for part in parts)
        half_s = longest(first, min(whole, over), evidence.calm.get(job.scheduler, []))
        judged["V4"] += whole < float("inf") or half_s > DEADLINE_S
        if half_s > DEADLINE_S:
            who = ", ".join(pod.who for pod in job.serves)
            yield Broken(
                "V4", job.name, first,
                f"{half_s:.0f} calm seconds after {clock(first)} only {len(bound)} of {size} pods of a gang were bound for "
                f"{job.shown}, which was not released: {who}",
            )  # fmt: skip


def is_whole(evidence: Evidence, job: Job, at: float) -> bool:
    """False if the job is that of a gang, of which not all pods had been bound by then."""
    size = _size(job)
    return size < 2 or sum(bound <= at for bound in _bound(evidence, job)) >= size


def _size(job: Job) -> int:
    """The number of pods of the gang whose job it is; less than 2: of no gang, or not known."""
    return max((pod.gang_size or pod.bind.size for pod in job.serves if pod.bind), default=0)


def _bound(evidence: Evidence, job: Job) -> list[float]:
    """When each pod of the workload was bound, in order."""
    pods = {pod.uid: pod for each in evidence.named(job.name) for pod in each.serves}
    mine = {pod.uid for pod in job.serves}
    first = min(pod.bound_at for pod in job.serves)
    return sorted(
        pod.bound_at for pod in pods.values() if pod.uid in mine or (pod.bound_at <= first and _counts(pod, first))
    )


def _left(evidence: Evidence, job: Job, first: float) -> list[float]:
    """When others ended members that were never bound, unless another member waits that is as old.  first: the first bind"""
    known = evidence.facts_since(job.scheduler, first)
    unbound = [
        pod for pod in evidence.members(job) if pod.bind is None and pod.created is not None and pod.created <= first
    ]
    alone = {own.uid for each in evidence.ours() if unbound and (own := evidence.pod_of(each)) is not None}
    if any(not evidence.harms_of(pod) and pod.uid not in alone for pod in unbound):
        return []
    harms = [evidence.harms_of(pod)[0] for pod in unbound if evidence.harms_of(pod)]
    return [harm.at for harm in harms if harm.client != BRIDGE and harm.at >= known]


def _counts(pod: Pod, at: float) -> bool:
    """True if it ran then, or has succeeded."""
    return pod.over > at or pod.succeeded
