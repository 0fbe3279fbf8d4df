"""Where a workload stands, derived from facts.

Nothing here is stored: the two clusters own the state and we look at it.  A phase is a question asked of a few facts, in
this order: is any pod left that runs or waits, do the pods stand on nodes, does a placeholder live, does it hold nodes.
Every combination has exactly one answer, so a restart needs no memory, and an impossible one is an answer too (REVOKED).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from scheduler.state.workload import Placeholder, Workload


class Phase(StrEnum):
    """GATHERING → UNCLAIMED → QUEUED → GRANTED → BOUND → DONE; REVOKED when pods are bound and no placeholder lives.

    A gang of which some pods stand on nodes and some are yet to be bound to its grant is GRANTED.
    """

    GATHERING = "gathering"
    UNSUBMITTED = "unsubmitted"
    QUEUED = "queued"
    GRANTED = "granted"
    BOUND = "bound"
    ORPHANED = "orphaned"
    DONE = "done"


def phase(workload: Workload, placeholders: Mapping[int, Placeholder], absent_s: float) -> Phase:
    """The one answer."""
    pod_counts = workload.pod_counts
    if not pod_counts.unfinished:
        return Phase.DONE
    mine = [placeholders[job_id] for job_id in workload.jobs if job_id in placeholders]
    mine += [workload.lost_job] if workload.lost_job is not None else []
    if pod_counts.unbound < pod_counts.unfinished and orphaned(workload, mine, absent_s):
        return Phase.ORPHANED
    if not pod_counts.unbound:
        return Phase.BOUND
    live = chosen(workload, mine)
    if pod_counts.unbound < pod_counts.unfinished:
        return Phase.GRANTED if live is not None and live.holds_nodes else Phase.BOUND
    if not workload.complete:
        return Phase.GATHERING
    if live is None:
        return Phase.UNSUBMITTED
    return Phase.GRANTED if live.holds_nodes else Phase.QUEUED


def orphaned(workload: Workload, mine: Iterable[Placeholder], absent_s: float) -> bool:
    """The job that the pods were bound for is proven to have ended.  No evidence is no revocation (V7).

    That is the job that the pods name, if a read proved it to be theirs; else every job that is or may be theirs.  A job that
    may be theirs under another name counts only if it is followed (Placeholder.followed_by).  Pods that somebody else bound
    stand for the job that they name, and for no other: an end of what was asked for them before is not theirs.
    """
    if workload.renamed is not None and workload.renamed == workload.hint:
        theirs = [job for job in mine if job.key == workload.key or job.id == workload.hint]
        is_followed = any(job.id == workload.hint and workload.key in job.followed_by for job in theirs)
        return is_followed and all(job.proven_end(absent_s) for job in theirs)
    jobs = [job for job in mine if job.key in (None, workload.key)]
    claimed = [job for job in jobs if job.id == workload.hint and job.key is not None] or jobs
    if workload.strays and any(job.proven_end(absent_s) for job in claimed):
        claimed = [job for job in claimed if workload.some_stand_for(job)]
    return bool(claimed) and all(job.proven_end(absent_s) for job in claimed)


def chosen(workload: Workload, mine: Iterable[Placeholder]) -> Placeholder | None:
    """The placeholder that counts: proven ours and alive; one that holds nodes before one that waits, then the oldest."""
    live = [job for job in mine if job.key == workload.key and job.alive]
    if len(live) < 2:
        return live[0] if live else None
    return min(live, key=lambda job: (not job.holds_nodes, job.id))
