"""The phase of a workload, derived from facts.

No phase is stored as a fact: the two clusters own the state.  A phase follows from a few facts, in this order: is any pod
unfinished, are the pods on nodes, does a placeholder live, does it hold nodes.  Every combination has exactly one phase, so a
restart needs no memory.  A combination that should not exist has a phase, too (ORPHANED).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload


class Phase(StrEnum):
    """GATHERING → UNSUBMITTED → QUEUED → GRANTED → BOUND → DONE; ORPHANED: pods are bound, their job has ended or is lost.

    A gang is GRANTED as long as some of its pods are still to be bound to its grant.
    """

    GATHERING = "gathering"
    UNSUBMITTED = "unsubmitted"
    QUEUED = "queued"
    GRANTED = "granted"
    BOUND = "bound"
    ORPHANED = "orphaned"
    DONE = "done"


# The phases in which nodes are still to be chosen, or are still to be checked before the bind.
WAITING = (Phase.UNSUBMITTED, Phase.QUEUED, Phase.GRANTED)


def phase(workload: Workload, placeholders: Mapping[int, Placeholder], absent_s: float) -> Phase:
    """The phase of the workload.  absent_s: how long a job must be absent to count as lost, seconds"""
    return phase_and_job(workload, placeholders, absent_s)[0]


def phase_and_job(
    workload: Workload, placeholders: Mapping[int, Placeholder], absent_s: float
) -> tuple[Phase, Placeholder | None]:
    """The phase, and the job that makes the workload QUEUED or GRANTED; in other phases None."""
    pod_counts = workload.pod_counts
    if not pod_counts.unfinished:
        return Phase.DONE, None
    candidates = [placeholders[job_id] for job_id in workload.jobs if job_id in placeholders]
    candidates += [workload.lost_job] if workload.lost_job is not None else []
    if pod_counts.unbound < pod_counts.unfinished and is_orphaned(workload, candidates, absent_s):
        return Phase.ORPHANED, None
    if not pod_counts.unbound:
        return Phase.BOUND, None
    live = chosen(workload, candidates)
    if pod_counts.unbound < pod_counts.unfinished:
        return (Phase.GRANTED, live) if live is not None and live.holds_nodes else (Phase.BOUND, None)
    if not workload.is_complete:
        return Phase.GATHERING, None
    if live is None:
        return Phase.UNSUBMITTED, None
    return (Phase.GRANTED if live.holds_nodes else Phase.QUEUED), live


def is_orphaned(workload: Workload, candidates: Iterable[Placeholder], absent_s: float) -> bool:
    """True if the job for which the pods were bound is proven to have ended.  Without proof the pods are left alone (V7).

    This job is the job that the pods name, if it is proven to be the workload's.  Otherwise all jobs count that are or may be
    the workload's: each of them must be proven to have ended.  A job with another name counts only if the workload follows
    it (Placeholder.followed_by).  A pod that another client bound runs only for the job that the pod names.
    """
    if workload.renamed is not None and workload.renamed == workload.hint:
        theirs = [job for job in candidates if job.key == workload.key or job.id == workload.hint]
        is_followed = any(job.id == workload.hint and workload.key in job.followed_by for job in theirs)
        return is_followed and all(job.has_proven_end(absent_s) for job in theirs)
    jobs = [job for job in candidates if job.key in (None, workload.key)]
    concerned = [job for job in jobs if job.id == workload.hint and job.key is not None] or jobs
    if workload.strays and any(job.has_proven_end(absent_s) for job in concerned):
        concerned = [job for job in concerned if workload.has_pod_bound_for(job)]
    return bool(concerned) and all(job.has_proven_end(absent_s) for job in concerned)


def chosen(workload: Workload, candidates: Iterable[Placeholder]) -> Placeholder | None:
    """The live placeholder that is proven to be the workload's; None: there is none.

    Of several, a placeholder that holds nodes comes first, then the placeholder with the lowest id.
    """
    live = [job for job in candidates if job.key == workload.key and job.alive]
    if len(live) < 2:
        return live[0] if live else None
    return min(live, key=lambda job: (not job.holds_nodes, job.id))
