"""Applies the results of calls about existing jobs, and of reads of jobs and limits, to the World (ARCHITECTURE 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler.actions import Outcome
from scheduler.apply.reused_ids import job_of_call
from scheduler.model import slurm_errors
from scheduler.model.limits import KnownLimits, LimitsOf
from scheduler.model.refusal import Refusal
from scheduler.policy import refused_names
from scheduler.state.backoff import Attempt
from scheduler.state.placeholder import CANCELLED, Placeholder, RefusedChange
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.job_update import adopted, value, with_changes

MOST_LIMITS = 512  # entries; each is of one user in one account with one QOS
MAX_UNRECORDED = 16  # writes that accounting refused or did not answer, over some ten minutes


def _cancel_ended(world: World, action: act.CancelJob, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is not None:
        workload.end_in_flight(action)
    job = job_of_call(world, action, event.began)
    if event.outcome is Outcome.DONE:
        # A read that began after the cancel shows the job alive: no live job had the name in the cancel.
        renamed = job is not None and job.alive and job.read_began > event.began
        if job is not None and not job.shows_end and not renamed:
            if job.holds_nodes:
                world.freed_at = event.at
            elif workload is not None and job.id == workload.hint:
                job.requeued = any(workload.node_of(pod) for pod in workload.unfinished)
            job.known_since = event.at
            world.expected.add(job.id)
            world.absent.discard(job.id)
            world.set_states(job, CANCELLED, event.at)
            job.cancelled_for = action.reason
            job.read_began, job.end_proven = event.at, True  # the answer to the cancel proves the end
        if workload is not None and action.record:
            workload.backoff = workload.backoff.after_success()
        return
    if event.outcome is Outcome.UNKNOWN:
        still = {cancel: until for cancel, until in world.lost_cancels.items() if event.at < until}
        world.lost_cancels = still | {(action.job_id, action.key): event.at + world.config.tuning.settle_s}
    if workload is not None:
        world.back_off(workload, event.at, attempt=Attempt.END_JOB)


def _record_ended(world: World, action: act.RecordEnd, event: ev.ActionEnded) -> None:
    """If slurmdbd does not answer, the write does not count as an attempt, and is repeated after slurmdbd is back."""
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    workload.end_in_flight(action)
    job = job_of_call(world, action, event.began)
    if event.outcome is Outcome.DONE:
        world.accounting_outage = None
        if job is not None:
            job.recorded = True
    elif _note_accounting_outage(world, event):
        world.dirty[workload.key] = None
    else:
        world.back_off(workload, event.at, attempt=Attempt.RECORD)
        if job is not None and event.outcome is not Outcome.UNREACHED:
            job.not_recorded += 1
            job.recorded = job.not_recorded > MAX_UNRECORDED


def _update_ended(world: World, action: act.UpdateJob, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    workload.end_in_flight(action)
    job = job_of_call(world, action, event.began)
    if job is None:
        return
    retry_at = event.at + world.config.tuning.refused_retry_s
    if event.outcome is Outcome.DONE:
        _take_changes(job, action, event.at)
        if "partition" in action.changes:
            workload.asked_in = action.spec.partition or world.default_partition
            if action.component == 0 and job.job is not None:
                job.job = replace(job.job, partition=workload.asked_in)  # where its nodes are judged (F2)
        _note_looked_at(job, retry_at)
        return
    world.back_off(workload, event.at, attempt=Attempt.UPDATE_JOB)
    if event.outcome is not Outcome.REFUSED or event.refusal is None or event.refusal.later:
        return
    if event.refusal.number == slurm_errors.UNKNOWN_NODE:
        world.nodes_stale = True
        return
    why = _with_remedy(world, workload, action, event.refusal)
    _note_refused_changes(job, action, why.message, retry_at)
    _note_looked_at(job, retry_at)


def _with_remedy(world: World, workload: Workload, action: act.UpdateJob, refusal: Refusal) -> Refusal:
    """The refusal of a change, with what was asked for and what an admin can do, as the refusal of a submission has it."""
    if refusal.number not in slurm_errors.WITH_REMEDY or not workload.pods:
        return refusal
    component = replace((action.spec, *action.spec.parts)[action.component], parts=())
    return refused_names.with_names(refusal, component, world.tenant_of(workload.pod), world.default_partition)


def _note_accounting_outage(world: World, event: ev.ActionEnded) -> bool:
    """If the answer shows that slurmdbd does not answer, note the outage and return True."""
    if event.refusal is None or event.refusal.number != slurm_errors.ACCOUNTING_AWAY:
        return False
    world.apply_part(ev.AccountingOutageBegan(event.at, event.refusal.message))
    return True


def _take_changes(job: Placeholder, action: act.UpdateJob, at: float) -> None:
    """Note that the job has the changed options.  It keeps its other options, even if the new translation differs."""
    asked = job.spec or (adopted(action.spec, job.job) if job.job is not None else action.spec)
    job.spec = with_changes(asked, action.spec, action.component, action.changes)
    if not action.changes.isdisjoint(job.chosen_by_slurm):
        job.chosen_by_slurm = {key: value for key, value in job.chosen_by_slurm.items() if key not in action.changes}
    options = action.changes - {"excluded_nodes"}  # which change with the nodes, again and again
    if options:
        job.changed_at = at
    if job.refused_changes or job.one_by_one:
        taken = {(action.component, field) for field in action.changes}
        job.refused_changes = {field: refused for field, refused in job.refused_changes.items() if field not in taken}
        if options:
            job.retry_changes()  # they may depend on what was changed now


def _note_looked_at(job: Placeholder, retry_at: float) -> None:
    """If slurmctld held the job, it has looked at it, or refuses to.  If it holds it no more, the next read shows that."""
    if job.held_retry_at is not None:
        job.held_retry_at = retry_at


def _note_refused_changes(job: Placeholder, action: act.UpdateJob, why: str, retry_at: float) -> None:
    """The job stays as it is.  Of several fields Slurm does not say which one it refused: each is then tried alone."""
    if len(action.changes) > 1:
        job.one_by_one = True
        return
    for field in action.changes:  # none if slurmctld was only to look at the job again
        refused = RefusedChange(value(action.spec, action.component, field), why, retry_at)
        job.refused_changes = {**job.refused_changes, (action.component, field): refused}


def _find_ended(world: World, action: act.FindJobs, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    workload.end_in_flight(action)
    _note_accounting_outage(world, event)
    for job_id in event.found:
        job = world.placeholders.get(job_id)
        # If another workload's job, or a foreign job, had the id, Slurm has reused the id between two lists.
        if (job is None or job.key != workload.key) and job_id not in workload.foreign_jobs:
            world.first_listed_at.setdefault(job_id, event.began)
            world.sort_unread(job_id)


def _read_ended(world: World, action: act.ReadJob, event: ev.ActionEnded) -> None:
    """End the action, and mark the workloads of the job for a visit.  The content of the job comes as JobRead."""
    world.reading.discard(action.job_id)
    if event.outcome is not Outcome.DONE and action.job_id in world.first_listed_at:
        world.note_failed_read(action.job_id, event.at)
    workload = world.workloads.get(action.key)
    if workload is not None and event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at, attempt=Attempt.READ_JOB)
    if action.job_id in world.placeholders:
        world.touch(world.placeholders[action.job_id])


def _limits_ended(world: World, action: act.ReadLimits, event: ev.ActionEnded) -> None:
    """End the action.  The limits come as LimitsRead.  After a failed read they are read again after the usual time."""
    world.reading_limits.discard(action.of)
    _note_accounting_outage(world, event)
    if event.outcome is not Outcome.DONE:
        before = world.limits.get(action.of)
        keep_limits(world, action.of, KnownLimits(event.at, before.limits if before is not None else ()))


def keep_limits(world: World, of: LimitsOf, known: KnownLimits) -> None:
    """Keep these limits.  If there are more than MOST_LIMITS entries, the oldest is dropped."""
    world.limits.pop(of, None)
    world.limits[of] = known
    if len(world.limits) > MOST_LIMITS:
        del world.limits[next(iter(world.limits))]


def _limits_read(world: World, event: ev.LimitsRead) -> None:
    keep_limits(world, event.of, event.known)


ON_ENDED: Mapping[type, Callable[[World, Any, ev.ActionEnded], None]] = {
    act.CancelJob: _cancel_ended,
    act.UpdateJob: _update_ended,
    act.RecordEnd: _record_ended,
    act.FindJobs: _find_ended,
    act.ReadJob: _read_ended,
    act.ReadLimits: _limits_ended,
}

APPLIERS: Mapping[type, Callable[[World, Any], None]] = {ev.LimitsRead: _limits_read}
