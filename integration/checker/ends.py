"""V7: no pod is ended while its job lives, and no job is ended while its pods run.

The exceptions of docs/behaviour.md are judged by their times: S4b (the time limit), S5 (a preemption), S12 (a pod that never
started), W9 (a gang that is not whole).  A setting `tuning` that was changed counts with both of its values for two minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from integration.checker.audit import DEADLINE, Harm, Pod
from integration.checker.evidence import IN_FORCE_S, ON_ITS_WAY_S, SAME_MOMENT_S, Evidence, Job, clock, in_force
from integration.checker.gangs import is_whole
from integration.checker.running_bridges import BRIDGE
from integration.checker.slurm_log import HOLDS
from integration.checker.verdict import Broken

PREEMPTED_S = 60.0  # more than the longest GraceTime of a partition of the rig
BEFORE_SIGTERM_S = 60.0  # S4b: a deadline is given so long before SIGTERM
# An update of the end time changes the time limit by (seconds + 30) / 60 minutes, and C rounds that towards zero.
END_TIME_S = 90.0
# Slurm's start of a job, kubelet's start of a pod, and the deadline are whole seconds.
WHOLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Tuning:
    """The settings on which S4b and S12 depend, with the defaults of docs/settings.md."""

    start_timeout_s: float = 600.0
    end_notice_s: float = 120.0
    end_lead_s: float = 10.0
    end_lead_max_s: float = 3600.0
    service_notice_s: float = 600.0

    def lead_s(self, pod: Pod, signal_s: float, length_s: float) -> float:
        """The most seconds before the end of the job at which the pod gets SIGTERM.

        signal_s  what the annotation `signal` may ask for
        length_s  the time of the job
        """
        asked = max(pod.grace_s + self.end_lead_s, signal_s)
        return max(self.end_lead_s, min(asked, self.end_lead_max_s, length_s / 2))

    def notice_s(self, pod: Pod, lead_s: float, length_s: float) -> float:
        """The most seconds before the end of the job at which the pod gets its deadline, or is evicted."""
        before = min(BEFORE_SIGTERM_S, max(0.0, self.end_notice_s - self.end_lead_s))
        notice = max(self.end_notice_s, lead_s + before)
        return min(max(self.service_notice_s, notice), length_s / 2) if pod.service else notice


def ended_pods(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V7: no pod is ended by the bridge while its job has the nodes, apart from S4b, S5, S12 and W9."""
    for harm in evidence.audit.harms:
        pod = harm.pod
        if harm.client != BRIDGE or harm.at >= pod.over:
            continue
        what = f"pod {pod.who} was {harm.kind} by the bridge at {clock(harm.at)} ({harm.line})"
        named = pod.job_at(harm.at)
        if named is None:
            judged["V7"] += 1
            yield Broken("V7", pod.who, harm.at, f"{what}, though the bridge had never bound it")
            continue
        since, number = named
        job = evidence.job(number, since)  # slurmctld may have lost it, and given its id to another one since
        if job is None:
            continue
        judged["V7"] += 1
        change = job.history.change_at(harm.at)
        if change.state in HOLDS and not _gave_up(evidence, pod, job, harm.at) and not _may_end(evidence, harm, job):
            yield Broken(
                "V7", pod.who, harm.at,
                f"{what} while its {job.shown} was {change.state} since {clock(change.at)} ({change.line})",
            )  # fmt: skip


def ended_jobs(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V7: the bridge cancels no job while a pod runs on it that nobody ends, apart from W9.

    A job of which one component has ended is over (S4).  A job that gave up the node of a pod may be ended (V2).
    """
    for job in evidence.ours():
        end, first = job.history.changes[-1], min(part.history.over for part in evidence.parts(job))
        if not (evidence.is_cancelled(job) and evidence.is_own(job)) or first < end.at - SAME_MOMENT_S:
            continue
        if any(pod.over > end.at and _gave_up(evidence, pod, job, end.at) for pod in job.named_by):
            continue
        pods = [pod for pod in job.named_by if _is_on(evidence, pod, job, end.at) and evidence.certain(pod)]
        judged["V7"] += bool(pods)
        for pod in pods:
            if pod.ending >= end.at and not _is_ending(evidence, pod, end.at) and is_whole(evidence, job, end.at):
                assert pod.bind is not None
                yield Broken(
                    "V7", pod.who, end.at,
                    f"{job.shown} was cancelled by the bridge at {clock(end.at)} ({end.line}) while pod {pod.who} ran on it, "
                    f"which was bound at {clock(pod.bind.at)} ({pod.bind.line}) and which nobody had ended",
                )  # fmt: skip


def _is_on(evidence: Evidence, pod: Pod, job: Job, at: float) -> bool:
    """True if the pod names the job, which may be its own, and was bound to a node that the job has then."""
    named = pod.job_at(at)
    of = evidence.job(named[1], named[0]) if named else None
    if pod.bind is None or pod.bind.at >= at or of is None or job not in evidence.parts(of):
        return False
    if not evidence.may_be_its_own(pod, job):
        return False
    node = evidence.node_of(pod)
    return any(node in nodes for nodes in job.had(at - SAME_MOMENT_S, at))


def _gave_up(evidence: Evidence, pod: Pod, job: Job, at: float) -> bool:
    """True if the job had the node of the pod, and runs on without it."""
    node = evidence.node_of(pod)
    had, has = (frozenset[str]().union(*evidence.held(job, since, at)) for since in (pod.bound_at, at))
    return node in had and bool(has) and node not in has


def _is_ending(evidence: Evidence, pod: Pod, at: float) -> bool:
    """True if somebody had deleted or evicted the pod by then, or its deadline was over."""
    return any(
        harm.at <= at and (harm.seconds is None or _deadline_at(harm) <= at + WHOLE_S)
        for harm in evidence.harms_of(pod)
    )


def _deadline_at(harm: Harm) -> float:
    """When the pod ends by the deadline that it was given."""
    pod = harm.pod
    return max(harm.at, (pod.begun or pod.started or harm.at) + (harm.seconds or 0.0))


def _may_end(evidence: Evidence, harm: Harm, job: Job) -> bool:
    """True if S4b, S5, S12 or W9 allows it; also if slurmctld has just forgotten the end of the job, which the bridge saw."""
    if any(0 <= harm.at - forgotten <= ON_ITS_WAY_S for forgotten in job.history.end_forgotten()):
        return True
    if any(0 <= harm.at - notice <= PREEMPTED_S for notice in job.history.notices):
        return True
    waits = any(other.bind is None and harm.at < other.over for other in evidence.members(job))
    if waits and not is_whole(evidence, job, harm.at):
        return True
    of = in_force(evidence.tunings.get(harm.pod.scheduler, []), harm.at - IN_FORCE_S, harm.at)
    tunings = [_tuning(each) for each in of or [{}]]
    return any(
        _never_started(evidence, harm, job, each) or _is_out_of_time(evidence, harm, job, each) for each in tunings
    )


def _never_started(evidence: Evidence, harm: Harm, job: Job, tuning: Tuning) -> bool:
    """S12: one pod of the workload was bound so long before, and had not started."""
    return bool(tuning.start_timeout_s) and any(
        pod.bound_at + tuning.start_timeout_s <= harm.at + WHOLE_S and (pod.started or float("inf")) > harm.at
        for pod in {harm.pod.uid: harm.pod, **{each.uid: each for each in evidence.members(job)}}.values()
    )


def _is_out_of_time(evidence: Evidence, harm: Harm, job: Job, tuning: Tuning) -> bool:
    """S4b: the pod gets a deadline shortly before the end of its job, or, of a service, is evicted.

    Each time limit counts that the job had when the request was on its way.  The log does not show the one before the first
    change.
    """
    limits = job.history.limits
    if limits and limits[0][0] > harm.at - ON_ITS_WAY_S:
        return harm.kind == DEADLINE or (harm.kind == "evicted" and harm.pod.service)
    earlier: list[tuple[float, float | None]] = [each for each in limits if each[0] <= harm.at - ON_ITS_WAY_S]
    recent = [each for each in limits if harm.at - ON_ITS_WAY_S < each[0] <= harm.at]
    signal_s = evidence.audit.signal_s(harm.pod)
    return any(
        _is_near_the_end(harm, job, limit_s, _inexact_s(job, since), signal_s, tuning)
        for since, limit_s in [*(earlier[-1:] or [(float("-inf"), job.last.limit_s)]), *recent]
        if limit_s is not None
    )


def _inexact_s(job: Job, at: float) -> float:
    """The most seconds by which the job may end before its time limit at that time.

    If somebody changes the end of a running job, slurmctld sets the end to the second, and the time limit to whole minutes.
    """
    return END_TIME_S * sum(
        since <= at and job.history.change_at(since).state in HOLDS for since, _ in job.history.limits
    )


def _is_near_the_end(harm: Harm, job: Job, limit_s: float, inexact_s: float, signal_s: float, tuning: Tuning) -> bool:
    """The same for one time limit of the job."""
    ends, lead_s = job.history.ends(harm.at, limit_s) - inexact_s, tuning.lead_s(harm.pod, signal_s, limit_s)
    is_time = harm.at >= ends - tuning.notice_s(harm.pod, lead_s, limit_s) - WHOLE_S
    if harm.kind == DEADLINE:
        return is_time and _deadline_at(harm) >= ends - lead_s - WHOLE_S
    return is_time and harm.kind == "evicted" and harm.pod.service


def _tuning(given: Mapping[str, Any]) -> Tuning:
    return Tuning(**{each.name: float(given[each.name]) for each in fields(Tuning) if each.name in given})
