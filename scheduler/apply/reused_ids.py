"""Guards against job ids that Slurm reuses after it lost its state (ARCHITECTURE 4, docs/decisions/0005).

Most observations of a job have only its id: lists of jobs, answers to submissions, and pods.  Each observation is compared
with the known facts:

  a list      if a new id is not higher than all former ids, or an ended job runs again, Slurm has reused ids
  an answer   to a submission does not count if an observation after the call shows another job under the id; to another call
              it counts only for the job for which the call was sent
  a read      shows name, user and time of submission; if the job was submitted after the pods that show its id started, or
              before they were created, it is not their job

If the id of a workload's job belongs to another job, the workload has lost its job (`detach`).  Its pods are treated as if no
list had the job (S7).
"""

from __future__ import annotations

from collections.abc import Collection

from scheduler import actions as act
from scheduler import events as ev
from scheduler.actions import ObjectKind
from scheduler.apply import hinted_jobs
from scheduler.events import Side
from scheduler.model.anomaly import Anomaly
from scheduler.model.clocks import EXACT_S
from scheduler.model.slurm import Job, States, is_ended
from scheduler.state.anomalies import reject
from scheduler.state.named_job import inexact_s, may_be_its_job, shown_id
from scheduler.state.phase import chosen
from scheduler.state.placeholder import CANCELLED, Placeholder
from scheduler.state.quarantine import is_dropped
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.grouping import group_of

# The most time between two lists.  slurmctld hardly restarts and reuses ids in this time without a failed poll.  On large
# sites polls are up to 5 s apart (docs/scale.md).
CONTINUED_S = 10.0

# --- lists ------------------------------------------------------------------------------------------------------------


def runs_again(was: States, states: States) -> bool:
    """True if an ended job is listed as not ended: an ended job does not run again, so Slurm reused its id."""
    return is_ended(was) and not is_ended(states)


def is_continued(world: World, former: ev.JobsPolled | None, event: ev.JobsPolled, arrived: Collection[int]) -> bool:
    """True if slurmctld kept its state between these two lists, so that an id that both lists show is the same job.

    slurmctld reuses ids only after it lost its state.  Then the list lacks live jobs, or shows a low id as new.  A list with
    items that could not be decoded is no proof, because a missing job may be among them.

    arrived   the ids that are new in the list, before `note_arrivals`
    """
    if former is None or former.undecoded or event.undecoded:
        return False
    if Side.SLURM in world.outages or event.began - former.ended > CONTINUED_S:
        return False
    if _shows_low_id(world, arrived):
        return False
    live = {job_id for job_id, states in former.states.items() if not is_ended(states)}
    stayed = live & event.states.keys()
    return stayed == live and not all(is_ended(event.states[job_id]) for job_id in live)


def listed_again(world: World, event: ev.JobsPolled) -> list[int]:
    """The ids of live jobs in the list that belonged to jobs that were gone before: slurmctld reused these ids.

    The former list showed these ids, too, so the lists alone do not show that they are other jobs now.
    """
    found = []
    for job_id, since in list(world.forgotten_at.items()):
        if event.began > since:
            del world.forgotten_at[job_id]
            if job_id not in world.placeholders and not is_ended(event.states.get(job_id, CANCELLED)):
                found.append(job_id)
    return found


def note_arrivals(world: World, arrived: Collection[int], event: ev.JobsPolled) -> None:
    """Note these ids, which are new in the list, or belonged to ended jobs in the former list."""
    if _shows_low_id(world, arrived):
        _ids_begin_again(world, event.ended)
    if (highest := max(arrived, default=0)) > world.highest:
        world.highest, world.highest_at = highest, event.ended


def note_submitted(world: World, job_id: int, began: float, at: float) -> None:
    """Note the id of a new job.  began: when its submission was sent; at: when it was answered"""
    if job_id <= world.highest and world.highest_at <= began:
        _ids_begin_again(world, at)


def _ids_begin_again(world: World, at: float) -> None:
    """A new job has no higher id than a job before it, so slurmctld lost its state: any id may be another job's now."""
    reject(world, Anomaly.ID_AGAIN)
    reread_all(world, at)
    world.highest = 0


def _shows_low_id(world: World, arrived: Collection[int]) -> bool:
    """True if an id that is new in the list is not higher than all former ids: slurmctld has used that id before."""
    return any(job_id <= world.highest for job_id in arrived)


def suspect_reuse(world: World, job: Placeholder, states: States, began: float) -> None:
    """If the job had ended, or a read denied it, suspect that the listed id is of another job, and read it."""
    if job.end_proven and runs_again(job.states, states):
        job.denied, job.end_proven = True, False
        reject(world, Anomaly.ID_AGAIN, job.id, world.workloads_of(job))
    if job.denied and not is_ended(states):  # the job that got the id since may be the workload's, too
        world.schedule_read(job.id, began)


def reread_all(world: World, at: float) -> None:
    """Read all jobs again: slurmctld lost its state, so hints and foreign ids prove nothing (ARCHITECTURE 4)."""
    world.trust_since = world.last_poll_began
    schedule_all_reads(world, at)
    for job in world.placeholders.values():
        world.touch(job)  # its workloads may read it now, even if they read it recently


def read_foreign_for_searches(world: World) -> None:
    """If a job is searched that may be older than the last outage, read the foreign jobs again that were read before it.

    slurmctld may have lost such a job and given its id to the job that is searched.  Both lists show the id.
    """
    searches = (world.workloads[key].job_search for key in world.searching_workloads)
    if not any(search is not None and (search.twin or search.began < world.trust_since) for search in searches):
        return
    before = [
        job_id
        for job_id in world.foreign - world.component_of.keys()
        if world.foreign_read.get(job_id, float("-inf")) < world.trust_since and world.is_listed_alive(job_id)
    ]
    for job_id in sorted(before):
        world.schedule_read(job_id, world.last_poll_began)


def begin_scan(world: World, at: float) -> None:
    """Note that unread jobs can be read from now on: for some time the pods of a previous process wait for these reads."""
    world.first_polled = at
    world.scan_until = max(world.scan_until, at + world.config.tuning.scan_s)


def schedule_all_reads(world: World, at: float) -> None:
    """Schedule a read of each live job, even if it was read before."""
    tuning = world.config.tuning
    began = world.last_poll_began
    for job_id in (*world.foreign, *world.placeholders):
        if world.is_listed_alive(job_id):
            world.first_listed_at.setdefault(job_id, began)
    world.foreign.clear()
    world.unmapped.clear()
    world.sort_unread(*world.reads_postponed)
    world.scan_until = at + tuning.scan_s + len(world.unread) / tuning.scan_rate


def read_hinted(world: World, began: float) -> bool:
    """Schedule reads of the live jobs that are known only by the ids that pods show, because no scan reads these jobs.

    Returns True if there are such jobs.  Each of them may be the job of a pod other than the pod that shows it.
    """
    hinted = [job.id for job in world.placeholders.values() if job.key is None and job.alive]
    for job_id in hinted:
        world.first_listed_at.setdefault(job_id, began)
    world.sort_unread()
    return bool(hinted)


# --- answers ----------------------------------------------------------------------------------------------------------


def is_foreign_by_now(world: World, workload: Workload, job_id: int, began: float) -> bool:
    """True if an observation after *began*, when the submission was sent, shows another job under the returned id."""
    if world.foreign_read.get(job_id, float("-inf")) > began:
        return True
    known = world.placeholders.get(job_id)
    return known is not None and known.key not in (None, workload.key) and known.alive and known.known_since > began


def job_of_call(
    world: World, action: act.CancelJob | act.UpdateJob | act.RecordEnd, began: float
) -> Placeholder | None:
    """The placeholder for which the call was sent at *began*; None: the record is gone, or another job has the id."""
    job = world.placeholders.get(action.job_id)
    if job is None or job.key != action.key or (job.asked_at is not None and job.asked_at > began):
        return None
    return job


# --- reads ------------------------------------------------------------------------------------------------------------


def key_of_renamed(known: Placeholder | None, read: Job) -> str | None:
    """The key of a job that its user renamed: the same id, submission time and user prove the job.  None: no proof."""
    if known is None or known.job is None or known.job.submitted is None:
        return None
    return known.key if (known.job.submitted, known.job.user) == (read.submitted, read.user) else None


def is_renamed_unread(world: World, job: Placeholder, read: Job) -> bool:
    """True if the first read of a job that this process submitted shows the same user and a time that fits.

    The read has another name, so the user may have renamed the job.  The pods that run for the job are treated as after a
    restart (docs/decisions/0003).
    """
    if job.key is None or job.job is not None or read.user != job.user or read.submitted is None:
        return False
    concerned = world.workloads_of(job)
    bound = any(workload.first_bound_at > float("-inf") for workload in concerned)  # even if no answer has come yet
    running = bound or any(workload.node_of(pod) for workload in concerned for pod in workload.unfinished)
    return running and world.clocks[Side.SLURM].ours(read.submitted) - inexact_s(world) <= job.known_since


def workloads_that_lost(world: World, hinted: Placeholder, read: Job) -> list[Workload]:
    """The workloads that show the id, but whose job is not the job that was read (S7).

    The job was submitted after all pods of the workload that name the id had started, or after their `job-since`: then it has
    the reused id of their lost job.  Or it was submitted before the pods existed: then another client wrote the id.  Any
    other job may be the workload's, renamed by its user; then the pods are left alone.
    """
    if hinted.key is not None or read.submitted is None:
        return []
    unproven = (workload for workload in world.workloads_of(hinted) if workload.key not in hinted.followed_by)
    submitted = read.submitted
    return [
        workload
        for workload in unproven
        if _came_later(world, workload, hinted.id, submitted) or _came_earlier(world, workload, submitted)
    ]


def _came_later(world: World, workload: Workload, job_id: int, submitted: float) -> bool:
    running = [pod for pod in workload.unfinished if pod.started is not None]
    naming = [pod for pod in running if shown_id(pod) == job_id] or running
    return bool(naming) and not any(may_be_its_job(world, pod, submitted) for pod in naming)


def _came_earlier(world: World, workload: Workload, submitted: float) -> bool:
    """True if the job is older than the pod, and the pod is a workload by itself.

    The job of a gang may be older than its pods, because a replacement pod takes the free place of a live grant (W5).
    """
    pods = workload.unfinished
    if any(group_of(pod) is not None for pod in pods) or not all(clock.is_known for clock in world.clocks.values()):
        return False
    submitted_at = world.clocks[Side.SLURM].ours(submitted)
    return all(submitted_at + EXACT_S < created_at for created_at in world.created(pods))


def is_failed_reacquisition(world: World, job: Placeholder, read: Job) -> bool:
    """True if pods run for the job, but the job that was read under its id ended without ever having held nodes.

    The job that was read is another job of the same name: a failed attempt to reacquire the nodes of the lost job (S7), for
    which slurmctld reused the id of the lost job.
    """
    return is_ended(read.states) and not read.nodes and not job.requeued and hinted_jobs.is_depended_on(world, job)


# --- workloads whose id belongs to another job --------------------------------------------------------------------------


def detach_others(world: World, key: str, job: Placeholder, at: float) -> None:
    """The id belongs to a job of workload *key* now: detach it from other workloads that have or show the id.

    A workload whose facts were dropped keeps the id: one of its pods may have been bound for the job (relabelled.py).  It is
    detached by a later read, when its pods are known again.
    """
    for workload in world.workloads_of(job):
        if workload.key == key:
            continue
        if is_dropped(world, ObjectKind.WORKLOAD, workload.key):
            job.hinted_by.add(workload.key)
        else:
            detach(world, workload, job, at)


def detach(world: World, workload: Workload, job: Placeholder, at: float) -> None:
    """The id belongs to a job of another workload, or to a foreign job, now: note that this workload lost its job."""
    workload.jobs.discard(job.id)
    job.hinted_by.discard(workload.key)
    note_lost_job(world, workload, job, at)
    world.refresh(workload)


def note_lost_job(world: World, workload: Workload, job: Placeholder, at: float) -> None:
    """Slurm reused the id of the job for which the pods were bound: note that the pods do not run for the new job."""
    if workload.hint != job.id or not any(workload.node_of(pod) for pod in workload.unfinished):
        return
    candidates = world.jobs_of(workload)
    other = chosen(workload, candidates) or _named_by_another_pod(world, workload, candidates)
    proven = workload.key if job.key == workload.key or workload.bound_by_this_process else None
    if other is not None:
        workload.hint = other.id
    elif not world.may_have_bound(workload) or (workload.is_bound_by_others and job.key != workload.key):
        workload.hint = None  # the pod named a foreign job
    else:
        workload.lost_job = _lost_record(job, workload, proven, at, world.config.tuning.absent_s)


def _named_by_another_pod(world: World, workload: Workload, candidates: list[Placeholder]) -> Placeholder | None:
    """A job that may be the workload's, because another pod of the gang shows it already; None: there is none."""
    absent_s = world.config.tuning.absent_s
    return next((job for job in candidates if job.key is None and not job.is_lost(absent_s)), None)


def _lost_record(job: Placeholder, workload: Workload, key: str | None, at: float, absent_s: float) -> Placeholder:
    """A record of the job that had the id before Slurm gave the id to another job.  It counts as lost.

    key   the key of the workload; None: the former job is not proven to be the workload's
    """
    lost = Placeholder(job.id, key, job.user, frozenset(), known_since=at, read_began=at, denied=True)
    lost.followed_by = job.followed_by & {workload.key}  # if the job had another name, it was the workload's
    lost.absent_first, lost.absent_last = at - absent_s, at
    lost.confirmed_gone = job.confirmed_gone
    return lost
