"""Observations of Slurm that are rejected as implausible, and their number (S7, X5, X6).

The loss of one job is accepted after two complete lists and a read that lack it (ARCHITECTURE 6).  If many jobs vanish within
seconds, a wrong cluster behind the address, an empty state or a broken proxy is more likely.  Then no pod is ended for a
missing job until each of the jobs is settled: it is back, its pods have another job on the same nodes (S7), or an admin
confirms that it is gone.  The hold does not end with the first jobs that are settled.  Otherwise the number of missing jobs
would fall below the limit by itself, and the pods of the remaining jobs would be ended.

Only jobs that are proven to be the bridge's count.  After a restart most jobs are known only by the ids that pods show, and a
user may have invented these ids.  So these ids are judged separately: if too many of them are missing, the pods that show
them are not ended, and other pods are not affected.  An id on a pod that came after the start does not count if no bind of
the bridge wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.model.anomaly import Anomaly
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World

MESSAGES = {
    Anomaly.CAME_BACK: "Slurm did not show job {job} for a while, and shows it again. The job never counted as lost.",
    Anomaly.NOT_LISTED: "Slurm does not list job {job}, but a read shows that it has not ended. The job counts as alive.",
    Anomaly.ID_AGAIN: "Slurm shows job {job}, which has ended, as alive: Slurm reused its id for another job.",
    Anomaly.NOT_ITS_USER: "Slurm has a job {job} with the name of this pod's job and another user. It is left alone.",
}


def reject(world: World, why: Anomaly, job_id: int = 0, whose: Iterable[Workload] = ()) -> None:
    """Count the rejected observation, and note it for an event on the pods of these workloads."""
    world.rejected[why] += 1
    for workload in whose:
        for pod in workload.unfinished:
            workload.anomalies[pod.uid] = MESSAGES[why].format(job=job_id)
        world.dirty[workload.key] = None


def missing(world: World) -> list[Placeholder]:
    """The missing jobs that no admin has confirmed as gone.

    If the id of a missing job is listed again, the job stays missing until a read shows that it is the same job.  If another
    job has the id, the first job stays missing: after slurmctld lost its state it reuses ids, and a wrong cluster may have
    the same ids.
    """
    since = (world.held_back_since, world.hints_held_back_since)
    if not world.absent and not world.by_phase[Phase.ORPHANED] and since == (None, None):
        return []
    gone = [job for job in world.placeholders.values() if job.absent or job.denied]
    lost_job = (world.workloads[key].lost_job for key in world.by_phase[Phase.ORPHANED])
    return [job for job in (*gone, *(job for job in lost_job if job is not None)) if not job.confirmed_gone]


def judge_absence(world: World, now: float) -> None:
    """After a poll, note since when more jobs are missing than can be accepted, or that this is over (X6)."""
    anomalies = [job for job in missing(world) if _is_missed(world, job)]
    world.held_back_since = _judge(world, world.held_back_since, anomalies, now, proven=True)
    world.hints_held_back_since = _judge(world, world.hints_held_back_since, anomalies, now, proven=False)


def _judge(
    world: World, since: float | None, anomalies: Iterable[Placeholder], now: float, *, proven: bool
) -> float | None:
    """Since when no pod is ended for missing jobs; None: pods are ended.

    since    the former result
    proven   True: judge the jobs that are proven to be the bridge's; False: judge the other jobs
    """
    concerned = [job for job in anomalies if job.proven is proven]
    # No job of a workload in quarantine is ever settled.  So if only such jobs are left, the hold ends.
    if not any(_may_be_settled(world, job) for job in concerned):
        if since is not None:
            world.dirty.update(world.by_phase[Phase.ORPHANED])
        return None
    if since is not None:
        return since
    tuning = world.config.tuning
    lately = [job for job in concerned if (job.absent_first or float("-inf")) >= now - tuning.absent_within_s]
    if len(lately) <= tuning.absent_burst or len(lately) <= tuning.absent_share * _count(world, proven=proven):
        return None
    reject(world, Anomaly.MASS_ABSENCE)
    return now


def _count(world: World, *, proven: bool) -> int:
    return sum(job.proven is proven for job in world.placeholders.values())


def held_back(world: World) -> str:
    """Sentences that no pod is ended for missing jobs, how many jobs are missing, and what to do; "": pods are ended."""
    if world.held_back_since is None:
        return ""
    gone = sum(job.proven for job in missing(world))
    return (
        f"Slurm no longer lists {gone:,} of {_count(world, proven=True):,} jobs: "
        "no pod is ended for it. If they are gone: slurm-bridge release"
    )


def hints_held_back(world: World) -> str:
    """As `held_back`, for jobs that are known only by the ids that pods from before the start show."""
    if world.hints_held_back_since is None:
        return ""
    gone = sum(not job.proven for job in missing(world))
    return (
        f"Slurm does not list {gone:,} jobs that pods from before the start of the bridge show: "
        "no pod is ended for it. If they are gone: slurm-bridge release"
    )


def confirm_missing(world: World) -> None:
    """Note that an admin confirmed that the missing jobs are gone (X6).  Their nodes are requested once more (S7)."""
    for job in missing(world):
        job.confirmed_gone = True
        for workload in world.workloads_of(job):
            workload.reacquired = None
            workload.reset_backoffs()
    world.held_back_since = world.hints_held_back_since = None


def _may_be_settled(world: World, job: Placeholder) -> bool:
    return not all(world.is_quarantined(workload.key) for workload in world.workloads_of(job))


def _is_missed(world: World, job: Placeholder) -> bool:
    """True if a workload depends on the job and has no other live job."""
    return any(
        not any(other.alive and other.key for other in world.jobs_of(workload)) for workload in world.workloads_of(job)
    )
