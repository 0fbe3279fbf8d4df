"""The phase of a workload, derived from facts.

Nothing here is stored: the two clusters own the state.  A phase follows from a few facts, in this order: does any pod run or
wait, are the pods on nodes, does a placeholder live, does it hold nodes.  Every combination has exactly one phase, so a
restart needs no memory; a combination that should not exist has one, too (ORPHANED).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload


class Phase(StrEnum):
    """GATHERING → UNSUBMITTED → QUEUED → GRANTED → BOUND → DONE; ORPHANED: pods are bound and no placeholder lives.

    A gang of which some pods are bound and others are yet to be bound to its grant is GRANTED.
    """

    GATHERING = "gathering"
    UNSUBMITTED = "unsubmitted"
    QUEUED = "queued"
    GRANTED = "granted"
    BOUND = "bound"
    ORPHANED = "orphaned"
    DONE = "done"


# The phases in which nodes are still to be chosen, or to be checked before the bind.
WAITING = (Phase.UNSUBMITTED, Phase.QUEUED, Phase.GRANTED)


def phase(workload: Workload, placeholders: Mapping[int, Placeholder], absent_s: float) -> Phase:
    """The phase of the workload.  absent_s: how long a job must be absent to count as lost, seconds"""
    return phase_and_job(workload, placeholders, absent_s)[0]


def phase_and_job(
    workload: Workload, placeholders: Mapping[int, Placeholder], absent_s: float
) -> tuple[Phase, Placeholder | None]:
    """The phase, and the job that makes the workload QUEUED or GRANTED; None: in the other phases."""
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
    """True if the job that the pods were bound for is proven to have ended.  Without proof the pods are left alone (V7).

    That job is the one that the pods name, if a read proved that it is the workload's; otherwise every job that is or may be
    the workload's.  A job with another name counts only if the workload follows it (Placeholder.followed_by).  A pod that
    another client bound runs for the job that it names, and for no other job.
    """
    if workload.renamed is not None and workload.renamed == workload.hint:
        theirs = [job for job in candidates if job.key == workload.key or job.id == workload.hint]
        is_followed = any(job.id == workload.hint and workload.key in job.followed_by for job in theirs)
        return is_followed and all(job.has_proven_end(absent_s) for job in theirs)
    jobs = [job for job in candidates if job.key in (None, workload.key)]
    claimed = [job for job in jobs if job.id == workload.hint and job.key is not None] or jobs
    if workload.strays and any(job.has_proven_end(absent_s) for job in claimed):
        claimed = [job for job in claimed if workload.has_pod_bound_for(job)]
    return bool(claimed) and all(job.has_proven_end(absent_s) for job in claimed)


def chosen(workload: Workload, candidates: Iterable[Placeholder]) -> Placeholder | None:
    """The live placeholder that is proven the workload's: holding nodes before waiting, then the oldest; or None."""
    live = [job for job in candidates if job.key == workload.key and job.alive]
    if len(live) < 2:
        return live[0] if live else None
    return min(live, key=lambda job: (not job.holds_nodes, job.id))
