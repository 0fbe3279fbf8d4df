"""Applies lists of all jobs to the World (`GET jobs/state`): ids and states, every second or two.

A list that was requested before an answer came does not contradict that answer.  A job that a list lacks is absent, not ended
(`Placeholder.absent`).  A list shows no names, so the bridge reads each id that a list shows for the first time
(job_reads.py), and each job that a list shows as ended.  If a list shows more ends than can be read at once, the list itself
proves them (`_prove_ends`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec

from scheduler import events as ev
from scheduler.apply import hinted_jobs, reused_ids
from scheduler.apply.policy import read_first
from scheduler.model.anomaly import Anomaly
from scheduler.model.slurm import States, holds_nodes, is_ended
from scheduler.state import quarantine
from scheduler.state.anomalies import judge_absence, reject
from scheduler.state.named_job import pods_of_job
from scheduler.state.phase import Phase
from scheduler.state.placeholder import CANCELLED, Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World

P = ParamSpec("P")


def _jobs_polled(world: World, event: ev.JobsPolled) -> None:
    if world.polled is not None and event.began < world.polled.began:
        reject(world, Anomaly.OLD_POLL)
    else:
        _apply_poll(world, replace(event, states=_with_undecoded(world.states, event)) if event.undecoded else event)


def _apply_poll(world: World, event: ev.JobsPolled) -> None:
    before, world.states, former = world.states, event.states, world.polled
    if world.first_polled is None or not world.ready:  # no job is read before a pass can decide
        reused_ids.begin_scan(world, event.ended)
    world.polled = event
    arrived, ended = list[int](), list[int]()
    same = event.states is before  # most polls: the client returns the same mapping if nothing changed
    for job_id, states in () if same else event.states.items():
        was = before.get(job_id)
        if was is None:
            arrived.append(job_id)
        elif was == states:
            continue
        elif is_ended(states) and not is_ended(was):  # also if it waited: other jobs may have waited for its end
            world.freed_at = event.ended
            ended.append(job_id)
            _apply_job(world, job_id, _read_left_over, event)
        elif reused_ids.runs_again(was, states):
            arrived.append(job_id)
        _apply_job(world, job_id, _poll_shows, states, event)
        if job_id in world.component_of and is_ended(states):
            _apply_job(world, job_id, _component_ended)
    for job_id in (world.expected | world.absent) & event.states.keys():
        _apply_job(world, job_id, _poll_shows, event.states[job_id], event)
    for job_id in () if same else before.keys() - event.states.keys():
        _apply_job(world, job_id, _poll_lacks, before[job_id], event)
    arrived += reused_ids.listed_again(world, event)
    if len(ended) > world.config.tuning.reads and reused_ids.is_continued(world, former, event, arrived):
        _prove_ends(world, ended, event)
    _still_missing(world, event)
    _newly_seen(world, arrived, event)
    reused_ids.note_arrivals(world, arrived, event)
    _judge_absence(world, event.ended)
    if world.changed_early and world.ready:
        read_first(world)
    reused_ids.read_foreign_for_searches(world)
    world.dirty.update(world.searching_workloads)


def _prove_ends(world: World, ended: Iterable[int], event: ev.JobsPolled) -> None:
    """Take the ends of these jobs as proven by the list, because it would take too long to read so many jobs one by one.

    Only a read shows Slurm's reason for the end, so the pods of these jobs do not show the reason.
    """
    for job_id in ended:
        _apply_job(world, job_id, _prove_end, event)


def _prove_end(world: World, job_id: int, event: ev.JobsPolled) -> None:
    """Take the end of this job as proven, unless a read must show whose job it is, or if its components have ended.

    If slurmctld was away or lost its state after the job was read, the id may belong to another job.
    """
    job = world.placeholders.get(job_id)
    if job is None or not job.proven or job.denied:
        return
    if event.began <= job.known_since or job.known_since < world.trust_since:
        return
    if not (job.spec is not None and job.spec.parts) and not (job.job is not None and job.job.parts):
        job.end_proven = True
        world.touch(job)


def _with_undecoded(before: Mapping[int, States], event: ev.JobsPolled) -> Mapping[int, States]:
    """The states in the list.  A job that could not be decoded keeps its last known states, but not an end.

    An ended job may be missing in the list, because slurmctld has removed it.
    """
    kept = {job: was for job, was in before.items() if job in event.undecoded and not is_ended(was)}
    return {**kept, **event.states}


def _apply_job(
    world: World, job_id: int, change: Callable[Concatenate[World, int, P], None], *args: P.args, **kwargs: P.kwargs
) -> None:
    """Apply what a poll shows of one job.  If that raises, the poll is still applied to the other jobs."""
    try:
        change(world, job_id, *args, **kwargs)
    except Exception as error:  # noqa: BLE001 - contained to the job, or raised
        quarantine.quarantine_job(world, job_id, error)


def _judge_absence(world: World, at: float) -> None:
    """Judge if too many jobs are missing.  If that raises, no pod is ended for a missing job."""
    try:
        judge_absence(world, at)
    except Exception as error:  # noqa: BLE001 - contained, or raised
        quarantine.contain_shared(world, "whether many jobs are missing", error)
        world.held_back_since = at if world.held_back_since is None else world.held_back_since
        world.hints_held_back_since = at if world.hints_held_back_since is None else world.hints_held_back_since


def _poll_shows(world: World, job_id: int, states: States, event: ev.JobsPolled) -> None:
    job = world.placeholders.get(job_id)
    if job is None or event.began <= job.known_since:
        return
    if job.denied and job_id in world.foreign:  # Slurm reused the id for a foreign job
        world.mark_absent(job, event.began)
        return
    world.expected.discard(job_id)
    if job_id in world.absent:
        world.absent.discard(job_id)
        reject(world, Anomaly.CAME_BACK, job_id, world.workloads_of(job))
    elif states == job.states:
        return  # nothing changed
    job.mark_present()
    reused_ids.suspect_reuse(world, job, states, event.began)
    if states != job.states:
        world.set_states(job, states, event.ended)
    else:
        world.touch(job)


def _component_ended(world: World, job_id: int) -> None:
    leader = world.placeholders.get(world.component_of[job_id])
    if leader is not None:
        leader.broken = True
        world.touch(leader)


def _read_left_over(world: World, leader: int, event: ev.JobsPolled) -> None:
    """Schedule reads of the components that outlive their leader: each of them must be ended by itself (rule S2)."""
    for job_id in [part for part, its_leader in world.component_of.items() if its_leader == leader]:
        if not is_ended(event.states.get(job_id, CANCELLED)):
            world.schedule_read(job_id, event.began)


def _poll_lacks(world: World, job_id: int, was: States, event: ev.JobsPolled) -> None:
    if holds_nodes(was):
        world.freed_at = event.ended
    world.foreign.discard(job_id)
    world.unmapped.discard(job_id)
    world.foreign_read.pop(job_id, None)
    world.component_of.pop(job_id, None)
    world.stop_reading(job_id)
    _note_missing(world, job_id, event)


def _still_missing(world: World, event: ev.JobsPolled) -> None:
    """Note that this poll lacks jobs that no poll has shown yet, or that were absent before."""
    for job_id in (world.expected | world.absent) - event.states.keys():
        if job_id not in event.undecoded:
            _apply_job(world, job_id, _note_missing, event)


def _note_missing(world: World, job_id: int, event: ev.JobsPolled) -> None:
    job = world.placeholders.get(job_id)
    if job is None or event.began <= job.known_since:
        return
    if job.ended and job.has_proven_end(world.config.tuning.absent_s):
        if any(_is_needed(world, job, workload) for workload in world.workloads_of(job)):
            world.expected.add(job_id)  # keep the record
        else:
            world.drop(job)
    elif job.proven:
        world.mark_absent(job, event.began)
    else:
        hinted_jobs.detach_false_hints(world, job)
        if hinted_jobs.is_depended_on(world, job):
            world.mark_absent(job, event.began)
        else:
            hinted_jobs.drop_hint(world, job)


def _is_needed(world: World, job: Placeholder, workload: Workload) -> bool:
    """True if the record of an ended job of the workload is still needed.

    Pods run, and do not show yet why they end.  Or a bind for the job may still take effect, and then the pod has to end.  Or
    the end of the pods is not in accounting yet, because slurmdbd does not answer (S2).
    """
    if world.phase_of.get(workload.key) is Phase.ORPHANED or world.may_be_bound_yet(workload):
        return True
    is_recorded = job.recorded or job.key != workload.key or not world.config.accounting
    return not is_recorded and any(pod.node for pod in pods_of_job(workload, job))


def _newly_seen(world: World, arrived: Iterable[int], event: ev.JobsPolled) -> None:
    for job_id in arrived:
        if is_ended(event.states[job_id]) or job_id in world.foreign or job_id in world.first_listed_at:
            continue
        _apply_job(world, job_id, _read_if_needed, event)


def _read_if_needed(world: World, job_id: int, event: ev.JobsPolled) -> None:
    if _needs_reading(world, job_id):
        world.schedule_read(job_id, event.began)


def _needs_reading(world: World, job_id: int) -> bool:
    """True if the job is not known, or if only a pod that came after the start shows its id, which proves nothing."""
    job = world.placeholders.get(job_id)
    if job is None:
        return True
    return not job.proven and not all(map(world.is_inherited, world.workloads_of(job)))


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {ev.JobsPolled: _jobs_polled}
