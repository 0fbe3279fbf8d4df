"""Reads a job before anything is done to it: whose it is, and if it is still the same job.  Ends jobs (ARCHITECTURE 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.clocks import EXACT_S
from scheduler.model.text import span
from scheduler.rules.decision import NOTHING, Decision, plan_action, wake
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import clock, statuses
from scheduler.state import quarantine
from scheduler.state.backoff import Attempt
from scheduler.state.in_flight import JobSearch
from scheduler.state.job_ownership import living_job_of_former_user
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World

FORMER_AGAIN_S = 0.5
_JOB_NAME = names.PREFIX + names.JOB_NAME
UNREAD_S = 9.0  # so long after the first poll a pod of a previous process waits for jobs whose reads failed


def find_unseen_job(workload: Workload, this_pass: Pass) -> Decision | None:
    """Search first for a job of this workload that may exist and is not known yet.  None: there is no such job."""
    for job in this_pass.world.jobs_of(workload):
        hinted = job.key is None and job.alive
        own = job.key == workload.key and not job.is_lost(this_pass.tuning.absent_s)
        if hinted or (own and (job.absent or (job.denied and not job.shows_end))):
            why = f"Slurm job {job.id} may have been made for the pod; it is read before another one is asked for."
            read = read_job(job, workload, this_pass, is_it_its_own(job, workload))
            return read + (_show_contradiction(job, workload, this_pass) or Decision(why=why))
    if (search := workload.job_search) is None:
        return None
    first = search_for_job(workload, search, this_pass)
    return None if first is None else first + _show_search(workload, search, first.why, this_pass)


def _show_search(workload: Workload, search: JobSearch, why: str, this_pass: Pass) -> Decision:
    """The status of pods whose job is searched for, after a while: the search takes longer than L1 lets a pod say nothing."""
    said_at = search.began + this_pass.tuning.unread_s
    if this_pass.now < said_at:
        return wake(said_at)
    return statuses(workload.members, names.PENDING, why, warning=False)


def _show_contradiction(job: Placeholder, workload: Workload, this_pass: Pass) -> Decision | None:
    """The status of pods whose job Slurm lists, although reads of the job find none.  None: reads do not fail."""
    if job.absent or this_pass.world.next_read_at(job.id) == float("-inf"):
        return None
    message = (
        f"Slurm lists job {job.id}, which was made for the pod, but has no such job when it is asked for that job alone. No "
        f"other job is submitted before this is clear; slurm-bridge asks again every {span(this_pass.tuning.backoff_max_s)}."
    )
    return statuses(workload.members, names.PENDING, message)


def search_for_job(workload: Workload, search: JobSearch, this_pass: Pass) -> Decision | None:
    """Search for a job after an unknown outcome, or for a twin (ARCHITECTURE 4).  None: the search ended without a job."""
    world = this_pass.world
    searched = (
        f"Slurm may have a job named {search.name} already: it is looked for first."
        if search.twin
        else f"A submission was not answered; a job named {search.name} is looked for before it is repeated."
    )
    database = world.config.accounting and world.accounting_outage is None
    if not search.asked_database and database and (search.twin or this_pass.now >= search.until):
        return plan_action(
            act.FindJobs(workload.key, search.name, f"looking for a job named {search.name}")
        ) + Decision(why=searched)
    if this_pass.now < search.until:
        return wake(search.until, searched)
    if world.polled is None or world.polled.began < search.until:
        return Decision(why=searched)  # the next poll marks it
    unread = (
        world.unread
        if search.twin
        else [job_id for job_id in world.unread if world.first_listed_at[job_id] >= search.began]
    )
    return Decision(why=searched) if unread else None


def scan_until(workload: Workload, this_pass: Pass) -> float:
    """Until when a placeholder of a pod that is older than this process may still be unread (ARCHITECTURE 4).

    After that the pod relies on singleton, which holds back only a job of the same name.  So pods that choose the name of
    their job wait longer: their user may have edited it since the former process asked for the job (V1).
    """
    world = this_pass.world
    until = world.scanning_until() if world.is_inherited(workload) else float("-inf")
    if until > float("-inf") and any(_JOB_NAME in pod.annotations for pod in workload.members):
        assert world.first_polled is not None, "jobs are unread only after a poll"
        return max(until, world.first_polled + UNREAD_S)
    return until


def former_may_live(workload: Workload, this_pass: Pass) -> Decision | None:
    """The next visit, if a job of a former user of the pods lives or may be among jobs not read yet.  None: no such job.

    Unread jobs are scheduled for a read when the policy or labels change.  Soon after a start, jobs whose reads failed count,
    too.  Singleton holds back only jobs of the same user (V1).
    """
    world = this_pass.world
    if (former := living_job_of_former_user(world, workload)) is not None:
        why = f"Slurm job {former.id} of {former.user} ends first: it was made for the pod when the policy gave that user."
        return wake(this_pass.now + FORMER_AGAIN_S, why)
    since = world.first_polled if world.first_polled is not None else this_pass.now
    unread: Iterable[int] = workload.foreign_jobs & world.first_listed_at.keys()
    if world.is_inherited(workload):
        unread = chain(unread, world.hidden, world.unreadable if this_pass.now < since + UNREAD_S else ())
    is_early = world.changed_early and world.is_inherited(workload)
    if is_early or any(job_id not in world.reads_postponed for job_id in unread):
        return wake(this_pass.now + FORMER_AGAIN_S, "Slurm jobs that may be this pod's are read first.")
    return None


def is_trusted(job: Placeholder, this_pass: Pass) -> bool:
    """True if slurmctld has not been away since the job was read: its id was not reused meanwhile (ARCHITECTURE 4)."""
    return job.known_since >= this_pass.world.trust_since


def unproven_jobs(workload: Workload, world: World) -> Iterator[Placeholder]:
    """The jobs that are known only by the ids that pods of the workload show: each may be the job of these pods."""
    absent_s = world.config.tuning.absent_s
    return (job for job in world.jobs_of(workload) if job.key is None and not job.has_proven_end(absent_s))


def is_it_its_own(job: Placeholder, workload: Workload) -> str:
    """Why a job that is known only by its id is read, in words."""
    return f"is job {job.id} the placeholder of {workload.readable}?"


def read_job(job: Placeholder, workload: Workload, this_pass: Pass, why: str) -> Decision:
    """Read the one job, at most once in `absent_s`."""
    if Side.SLURM in this_pass.world.outages:
        return NOTHING
    times = (job.granted_at, job.ended_seen, job.absent_first, this_pass.world.trust_since)
    news = max(at for at in times if at is not None)
    next_at = workload.retry_from(Attempt.READ_JOB)
    if job.read_began >= news:  # read since, and it did not help
        next_at = max(next_at, job.read_began + this_pass.tuning.absent_s)
        # Slurm lists the job, but a read does not find it.
        failing_until = this_pass.world.next_read_at(job.id)
        next_at = max(next_at, min(failing_until, job.read_began + this_pass.tuning.backoff_max_s))
    if this_pass.now < next_at:
        return wake(next_at)
    if job.absent:
        return plan_action(act.ReadJob(job.id, why, workload.key, bucket="missing"), "missing")
    return plan_action(act.ReadJob(job.id, why, workload.key))


def cancel_broken(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision | None:
    """A component of the job ended, so the job grants nothing or never starts (docs/decisions/0002).  None: all live."""
    return cancel(job, workload, this_pass, f"a component of job {job.id} ended") if job.broken else None


def cancel(
    job: Placeholder, workload: Workload, this_pass: Pass, why: str, record: str = "", pod_message: str = ""
) -> Decision:
    """End a job that is proven ours, after the quiet period: then no request of a previous process is in flight.

    record, pod_message   see CancelJob
    """
    until = max(this_pass.world.quiet_until(), workload.retry_from(Attempt.END_JOB))
    if this_pass.now < until:
        return wake(until, f"Slurm job {job.id} is ended at {clock(until, this_pass.now)}: {why}.")
    if quarantine.keeps_pod_of(this_pass.world, job.id):
        return wake(this_pass.now + this_pass.tuning.backoff_max_s)
    if not is_trusted(job, this_pass):
        return read_job(job, workload, this_pass, f"is job {job.id} still the same?")
    if workload.in_flight is None and Side.SLURM not in this_pass.world.outages:
        return plan_action(act.CancelJob(workload.key, job.id, job.name, job.user, why, record, pod_message))
    return NOTHING


def cancel_of_earlier_pods(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision | None:
    """End an adopted job whose pods are gone or have ended, if other pods came under its name; None: it is not such a job.

    The process that would have ended the job with its pods was killed (S2, S3).  The new pods may be more, and may ask for
    something else.  Such a job is older than each of them, and none of them is bound.  A job that this process has seen
    waiting with its pods keeps belonging to them, however many of these pods are replaced later.
    """
    if job.spec is not None or job.adopted_as is not None or job.job is None or job.job.submitted is None:
        return None
    if workload.pod_counts.unbound < workload.pod_counts.unfinished:
        return None
    world = this_pass.world
    if not all(cluster_clock.is_known for cluster_clock in world.clocks.values()):
        return None
    submitted = this_pass.from_slurm(job.job.submitted)
    if submitted + EXACT_S >= min(world.created(workload.members), default=submitted):
        return None
    why = f"job {job.id} was submitted for earlier pods of {workload.readable}"
    return cancel(job, workload, this_pass, why)


def cancel_twins(workload: Workload, keep: Placeholder, this_pass: Pass) -> Decision | None:
    """A lost answer may have made two jobs: end the twin of the job that counts.  None: no twin is to be ended now."""
    for job in this_pass.world.jobs_of(workload):
        if job.key == workload.key and job.alive and job.id != keep.id and workload.in_flight is None:
            return cancel(job, workload, this_pass, f"job {job.id} is a twin of job {keep.id}")
    return None


def cancel_twins_of_others(workload: Workload, keep: Placeholder, this_pass: Pass) -> Decision | None:
    """Cancel a waiting twin of another user: singleton does not hold it back while *keep* holds nodes (V1).

    None: there is no such twin.
    """
    for job in this_pass.world.jobs_of(workload):
        waits = job.key == workload.key and job.alive and not job.holds_nodes
        if waits and job.user != keep.user and workload.in_flight is None:
            why = f"job {job.id} of {job.user} is a twin of job {keep.id} of {keep.user}"
            return cancel(job, workload, this_pass, why)
    return None
