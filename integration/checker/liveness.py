"""L1 to L4: what holds some time after the last fault.  Time counts if the bridge ran and no fault was active."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterator

from integration.checker.audit import Pod
from integration.checker.evidence import Evidence, clock
from integration.checker.journal import longest
from integration.checker.running_bridges import BRIDGE
from integration.checker.verdict import Broken

REASON_S = 20.0  # L1
# L1: the limit grows by this for each pod that the bridge binds or writes to meanwhile: a pod whose turn to be submitted
# comes later shows nothing.  A pod whose job waits shows that after 10 s, whether the job was read or not (Q2).
TURN_S = 1 / 50
LEFT_S = 60.0  # L2: the quiet period, a backoff, and the pause between two looks
SOON_S = 60.0  # L3
STAYS_S = 345.0  # L4
SILENT_NODE_S, GONE_GRACE_S = 300.0, 10.0  # S3


def _shows_its_reason(evidence: Evidence, judged: Counter[str], rest_s: float | None) -> Iterator[Broken]:
    """L1: a pod that waits has a condition of its bridge.  Of a pod with scheduling gates, the API server writes it."""
    turns = _turns(evidence)
    for pod in evidence.audit.pods.values():
        calm = evidence.calm.get(pod.scheduler, [])
        if pod.created is None or pod.gated or not evidence.certain(pod):
            continue
        until = min(pod.over, pod.bound_at, pod.explained or float("inf"))
        others = turns.get(pod.scheduler, [])
        given_s = min(rest_s or REASON_S, REASON_S) + TURN_S * (bisect(others, until) - bisect(others, pod.created))
        # A pod of a gang says how many are missing a while after the last one came (W6).
        waits_s = longest(evidence.last_of_gang(pod, until), until, calm)
        judged["L1"] += pod.explained is not None or waits_s > given_s
        if waits_s > given_s:
            yield Broken(
                "L1", pod.who, pod.created,
                f"pod {pod.who} waited {waits_s:.0f} calm seconds after {clock(pod.created)} and did not say why",
            )  # fmt: skip


def _turns(evidence: Evidence) -> dict[str, list[float]]:
    """When each bridge bound a pod or first wrote to it why it waits, in order, by schedulerName."""
    found: dict[str, list[float]] = {}
    for pod in evidence.audit.pods.values():
        if turn := pod.explained or (pod.bind.at if pod.bind and pod.bind.client == BRIDGE else None):
            found.setdefault(pod.scheduler, []).append(turn)
    return {scheduler: sorted(times) for scheduler, times in found.items()}


def _no_leftovers(evidence: Evidence, judged: Counter[str], rest_s: float | None) -> Iterator[Broken]:
    """L2: no placeholder stays without an unfinished pod of its workload."""
    for job in evidence.ours():
        pods = evidence.members(job)
        if not evidence.is_own(job) or not pods or not all(evidence.certain(pod) for pod in pods):
            continue  # the log does not show whose it is, or if the pods have ended
        judged["L2"] += 1
        since = max([job.history.begun, *(_leaves(pod) for pod in pods)])
        left_s = longest(since, job.history.over, evidence.calm.get(job.scheduler, []))
        if left_s > (rest_s or LEFT_S):
            who = ", ".join(pod.who for pod in pods)
            change = job.history.changes[-1]
            yield Broken(
                "L2", job.name, since,
                f"{job.shown} stayed {left_s:.0f} calm seconds after {who} had gone at {clock(since)}; it was {change.state} "
                f"since {clock(change.at)} ({change.line})",
            )  # fmt: skip


def _leaves(pod: Pod) -> float:
    """When nothing of the pod runs any more, as far as the bridge can know (S3)."""
    return pod.over + (min(pod.grace_s, SILENT_NODE_S) + GONE_GRACE_S if pod.forced else 0)


def _is_bound(evidence: Evidence, judged: Counter[str], rest_s: float | None) -> Iterator[Broken]:
    """L3: a pod whose job has nodes is bound, and of a gang at least one (all of them: V4)."""
    for job in evidence.ours():
        pods = evidence.members(job)
        if not pods or not evidence.is_own(job):
            continue
        for change, end in job.history.holds():
            judged["L3"] += 1
            until = min([end, *(pod.over for pod in pods), *(pod.bind.at for pod in pods if pod.bind)])
            waits_s = longest(
                max([change.at, *(pod.created or change.at for pod in pods)]),
                until,
                evidence.calm.get(job.scheduler, []),
            )
            if waits_s > (rest_s or SOON_S):
                who = ", ".join(pod.who for pod in pods)
                yield Broken(
                    "L3", pods[0].who, change.at,
                    f"pod {who} was not bound within {waits_s:.0f} calm seconds after its {job.shown} got nodes at "
                    f"{clock(change.at)} ({change.line})",
                )  # fmt: skip


def _ended(evidence: Evidence, judged: Counter[str], rest_s: float | None) -> Iterator[Broken]:
    """L4: no pod stays on its node long after its job."""
    for pod in evidence.audit.pods.values():
        if pod.bind is None or pod.bind.client != BRIDGE or not evidence.certain(pod):
            continue
        jobs = [job for since, number in pod.jobs if (job := evidence.job(number, since))]
        if not jobs:
            continue
        # A job that takes the place of a lost one has its name, and need not be named on the pod at once (S7).
        jobs += evidence.named(jobs[-1].name)
        if any(job.history.unsure for job in jobs):
            continue
        judged["L4"] += 1
        over = max(job.history.over for job in jobs)
        stays_s = longest(over, pod.over, evidence.calm.get(pod.scheduler, []))
        if stays_s > (rest_s or STAYS_S):
            last = max(jobs, key=lambda job: job.history.over).history.changes[-1]
            yield Broken(
                "L4", pod.who, over,
                f"pod {pod.who} stayed on {pod.bind.node} for {stays_s:.0f} calm seconds after its {jobs[-1].shown} was "
                f"{last.state} at {clock(last.at)} ({last.line})",
            )  # fmt: skip


LIVENESS = (_shows_its_reason, _no_leftovers, _is_bound, _ended)
