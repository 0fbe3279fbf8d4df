"""Applies the results of submissions, AllocateNow and SubmitJob, to the World (rules S, ARCHITECTURE 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler.actions import Outcome
from scheduler.apply import reused_ids
from scheduler.model.anomaly import Anomaly
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant
from scheduler.model.slurm_errors import (
    BUSY,
    DEFERRED,
    DEPENDENCY,
    FIRST_VERDICT,
    NODES_UNAVAILABLE,
    PARTITION_DOWN,
    PRIORITY,
    UNKNOWN_NODE,
    WITH_REMEDY,
)
from scheduler.policy import refused_names
from scheduler.state.anomalies import reject
from scheduler.state.in_flight import InFlight, JobSearch
from scheduler.state.placeholder import PENDING, RUNNING, Placeholder
from scheduler.state.token_buckets import Breaker
from scheduler.state.workload import Workload
from scheduler.state.world import World

# No nodes for an immediate allocation: not now ("insufficient priority", "busy"), not while the partition is DOWN, although
# jobs may wait in its queue, or never (SchedulerParameters has `defer`).
NO_ROOM = frozenset({PRIORITY, BUSY, PARTITION_DOWN, DEFERRED})
UNAVAILABLE = frozenset({UNKNOWN_NODE, NODES_UNAVAILABLE})  # nodes that no job can have

_Submission = act.AllocateNow | act.SubmitJob


def _submission_ended(world: World, action: _Submission, event: ev.ActionEnded) -> None:
    breaker = _count_out(world, action)
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    in_flight = workload.end_in_flight(action)
    if event.job_id is not None:
        if reused_ids.is_foreign_by_now(world, workload, event.job_id, event.began):
            _submitted_id_was_reused(world, workload, action, event, event.job_id)
        else:
            _submitted(world, workload, action, event, event.job_id, in_flight, breaker)
    elif event.outcome is Outcome.UNKNOWN:
        _submission_unanswered(world, workload, action, event, in_flight)
    elif event.outcome is Outcome.REFUSED and action.spec.required_nodes and event.refusal_number < FIRST_VERDICT:
        world.back_off(workload, event.at)  # the token was rejected, which says nothing about the nodes
        workload.refused = event.refusal
    elif event.outcome is Outcome.REFUSED and action.spec.required_nodes and event.refusal_number != DEPENDENCY:
        _reacquire_refused(world, workload, in_flight, event)
    elif event.outcome is Outcome.REFUSED and event.refusal is not None:
        _submission_refused(world, workload, breaker, action, event, event.refusal)
    else:
        world.back_off(workload, event.at)


def _count_out(world: World, action: _Submission) -> Breaker:
    """Note that the submission is not in flight any more.  Returns the breaker of its partition."""
    partition = world.immediate_in.pop(action.key, world.partition_asked(action))
    if isinstance(action, act.AllocateNow):
        world.immediate_in_flight[partition] -= 1
        world.anti_affinity_in_flight.discard(action.key)
    return world.breakers.setdefault(partition, Breaker())


def _may_wait_for_a_boot(grant: Grant, world: World) -> bool:
    """True if a granted node was powered down at the last poll of nodes: a read shows if the job waits for its boot (S1)."""
    known = world.slurm_nodes or {}
    return any(node.name in known and known[node.name].changes_power for node in grant.everywhere)


def _submitted_id_was_reused(
    world: World, workload: Workload, action: _Submission, event: ev.ActionEnded, job_id: int
) -> None:
    """slurmctld lost its state between two answers and gave the id to another job: search the job by its name."""
    reject(world, Anomaly.ID_AGAIN)
    workload.job_search = JobSearch(
        event.began, event.at + world.config.tuning.settle_s, action.spec.name, action.spec.user
    )
    world.first_listed_at[job_id] = event.at
    world.sort_unread(job_id)


def _submission_unanswered(
    world: World, workload: Workload, action: _Submission, event: ev.ActionEnded, in_flight: InFlight | None
) -> None:
    """The job may exist: search it by its name before anything is submitted again."""
    until = event.at + world.config.tuning.settle_s
    workload.job_search = JobSearch(event.began, until, action.spec.name, action.spec.user)
    if action.spec.required_nodes:
        _not_reacquired(workload, in_flight, "it is not known whether Slurm granted them again")
        reused_ids.read_hinted(world, event.began)


def _reacquire_refused(world: World, workload: Workload, in_flight: InFlight | None, event: ev.ActionEnded) -> None:
    """Slurm does not grant the nodes of the lost job again.  An unread job of these pods may have them."""
    assert isinstance(event.action, act.AllocateNow)
    if event.refusal_number == UNKNOWN_NODE:
        world.nodes_stale = True
    if event.refusal_number in UNAVAILABLE and _may_come_back(world, workload, in_flight, event.at):
        world.back_off(workload, event.at)
        return
    _not_reacquired(workload, in_flight, event.refusal.message if event.refusal is not None else "")
    world.back_off(workload, event.at)
    _search_hidden_twin(world, workload, event.action, event)


def _search_hidden_twin(world: World, workload: Workload, action: _Submission, event: ev.ActionEnded) -> None:
    """If an unread job may be the workload's, search it: Slurm looks for a twin last, after all that it may refuse before.

    No read has shown yet whose job that is: a pod of another workload shows its id, or a previous process submitted the job
    for these pods and ended before it wrote the id on them.
    """
    if reused_ids.read_hinted(world, event.began) or (world.unread and world.is_inherited(workload)):
        workload.job_search = JobSearch(event.began, event.at, action.spec.name, action.spec.user, twin=True)


def _not_reacquired(workload: Workload, in_flight: InFlight | None, why: str) -> None:
    """Note that the nodes of the lost job were not granted again, and why (S7)."""
    if in_flight is not None and in_flight.lost_job is not None:
        workload.reacquired = (in_flight.lost_job, why)


def _may_come_back(world: World, workload: Workload, in_flight: InFlight | None, at: float) -> bool:
    """True if the nodes of the lost job may soon be in service: slurmctld finds its nodes some time after its start."""
    lost = in_flight.lost_job if in_flight is not None else None
    known = next((job for job in world.jobs_of(workload) if job.id == lost), None)
    return known is not None and at < known.lost_since + world.config.tuning.retake_s


def lost_job_of(world: World, workload: Workload) -> Placeholder | None:
    """The lost job that a new submission replaces: the job that the pods name, else the last one; None: none is known."""
    lost = [job for job in world.jobs_of(workload) if job.key in (None, workload.key)]
    return next((job for job in lost if job.id == workload.hint), lost[-1] if lost else None)


def _submitted(
    world: World,
    workload: Workload,
    action: _Submission,
    event: ev.ActionEnded,
    job_id: int,
    in_flight: InFlight | None,
    breaker: Breaker,
) -> None:
    """Slurm made the job: it is the workload's placeholder from now on, even if another job had its id before."""
    immediate = isinstance(action, act.AllocateNow)
    if immediate:
        breaker.note_granted()
    reused_ids.note_submitted(world, job_id, event.began, event.at)
    world.stop_reading(job_id)
    world.foreign.discard(job_id)
    world.foreign_read.pop(job_id, None)
    job = Placeholder(job_id, workload.key, action.spec.user, frozenset(), known_since=event.at)
    job.spec, job.asked_at = action.spec, event.began
    if event.grant is not None and not _may_wait_for_a_boot(event.grant, world):
        job.grant = event.grant
    if in_flight is not None:
        job.asked_for, job.components, job.asked_as = in_flight.asked_for, in_flight.components, in_flight.asked_as
    _forget_lost(world, workload)
    stale = world.placeholders.get(job_id)
    if stale is not None:
        reused_ids.detach_others(world, workload.key, stale, event.at)
        job.hinted_by = stale.hinted_by - {workload.key}
        world.absent.discard(stale.id)
    world.placeholders[job.id] = job
    world.expected.add(job.id)
    workload.jobs.add(job.id)
    workload.hint = job.id
    workload.job_search = workload.releasing = workload.reacquired = workload.renamed = None
    workload.immediate_refused = False
    workload.backoff = workload.backoff.at_latest(event.at)  # the bind does not wait because of an earlier refusal
    world.set_states(job, RUNNING if immediate else PENDING, event.at)


def _forget_lost(world: World, workload: Workload) -> None:
    """Forget the jobs of the workload that Slurm lost, because the workload has a new job."""
    workload.lost_job = None
    for job in world.jobs_of(workload):
        if job.is_lost(world.config.tuning.absent_s) and job.key == workload.key:
            world.drop(job)


def _submission_refused(
    world: World,
    workload: Workload,
    breaker: Breaker,
    action: _Submission,
    event: ev.ActionEnded,
    refusal: Refusal,
) -> None:
    if isinstance(action, act.AllocateNow) and _queue_instead(world, workload, breaker, action, event, refusal):
        workload.immediate_refused = True
        return
    world.back_off(workload, event.at)
    if refusal.number == UNKNOWN_NODE:
        world.nodes_stale = True
        return
    if refusal.number in WITH_REMEDY and workload.pods:
        refusal = refused_names.with_names(refusal, action.spec, world.tenant_of(workload.pod), world.default_partition)
    if world.is_inherited(workload):
        _search_hidden_twin(world, workload, action, event)
    workload.refused = refusal
    tuning = world.config.tuning
    workload.retry_at = workload.backoff.until if refusal.later else event.at + tuning.refused_retry_s
    if refusal.later:
        world.limited.setdefault(action.spec.user, {})[workload.key] = None


def _queue_instead(
    world: World, workload: Workload, breaker: Breaker, action: act.AllocateNow, event: ev.ActionEnded, refusal: Refusal
) -> bool:
    """Note the refusal.  Returns True if the job may be submitted to the queue instead (ARCHITECTURE 5)."""
    if refusal.number in NO_ROOM:
        breaker.note_refused(event.at, world.config.tuning.breaker_open_s)
        return True
    if refusal.number == DEPENDENCY:  # a twin; before the check of `later`, which it may set, too
        _search_twin(world, workload, action, event)
        if action.spec.required_nodes:  # each request leaves a FAILED record, and the job cannot be queued
            world.back_off(workload, event.at)
            workload.refused = refusal
        return True
    return refusal.later and refusal.number >= FIRST_VERDICT  # a limit, which a job in the queue may wait for


def _search_twin(world: World, workload: Workload, action: act.AllocateNow, event: ev.ActionEnded) -> None:
    until = event.at + world.config.tuning.absent_s
    workload.job_search = JobSearch(event.began, until, action.spec.name, action.spec.user, twin=True)
    reused_ids.read_hinted(world, event.began)


ON_ENDED: Mapping[type, Callable[[World, Any, ev.ActionEnded], None]] = {
    act.AllocateNow: _submission_ended,
    act.SubmitJob: _submission_ended,
}
