"""Applies observations of Slurm to the World: polls of all jobs, reads of one, nodes, and outages.

Three rules keep old observations from overwriting newer ones: a poll that began before an answer does not contradict the
answer; a job that vanished is absent, not ended (workload.Placeholder); and after Slurm reused ids, every job that is known
by its id alone is read again (ARCHITECTURE 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from scheduler import events as ev
from scheduler import names
from scheduler.actions import Kind
from scheduler.apply.policy import read_first
from scheduler.events import Side
from scheduler.model.anomaly import Anomaly
from scheduler.model.hostlist import HostlistError, expand
from scheduler.model.slurm import SINGLETON, Grant, Job, SlurmNode, States, holds_nodes, is_ended
from scheduler.state import quarantine, strays
from scheduler.state.anomalies import judge_absence, reject, release
from scheduler.state.job_ownership import belongs_to, former_key, is_orphan, is_stray
from scheduler.state.own_keys import inexact_s, may_be_its_job, shown_id
from scheduler.state.phase import Phase, chosen
from scheduler.state.workload import CANCELLED, NOT_CONSIDERED, Placeholder, Workload
from scheduler.state.world import World

OF_A_BIND = {names.JOB_ID, names.JOB_NODES, names.SIZE, names.RANK, names.LOCAL_RANK}

P = ParamSpec("P")
_T = TypeVar("_T")


def _jobs_polled(world: World, event: ev.JobsPolled) -> None:
    if world.polled is not None and event.began < world.polled.began:
        reject(world, Anomaly.OLD_POLL)
    else:
        _apply_poll(world, replace(event, states=_with_unread(world.states, event)) if event.unread else event)


def _apply_poll(world: World, event: ev.JobsPolled) -> None:
    before, world.states = world.states, event.states
    if world.first_polled is None:
        world.first_polled = event.ended
        world.scan_until = event.ended + world.config.tuning.scan_s
    world.polled = event
    arrived = []
    same = event.states is before  # most polls: the client returns the same mapping if nothing changed
    for job_id, states in () if same else event.states.items():
        was = before.get(job_id)
        if was is None:
            arrived.append(job_id)
        elif was is states or was == states:
            continue
        elif is_ended(states) and not is_ended(was):  # of a waiting job, too: other jobs may have waited for its end
            world.freed_at = event.ended
        elif is_ended(was) and not is_ended(
            states
        ):  # an ended job does not run again: Slurm reused the id between two polls
            arrived.append(job_id)
        _fold_job(world, job_id, _poll_shows, states, event)
        if job_id in world.component_of and is_ended(states):
            _fold_job(world, job_id, _component_ended)
    for job_id in (world.expected | world.absent) & event.states.keys():
        _fold_job(world, job_id, _poll_shows, event.states[job_id], event)
    for job_id in () if same else before.keys() - event.states.keys():
        _fold_job(world, job_id, _poll_lacks, before[job_id], event)
    _still_missing(world, event)
    _newly_seen(world, arrived, event)
    if any(job_id <= world.highest for job_id in arrived):  # Slurm reuses ids from here on
        reject(world, Anomaly.ID_AGAIN)
        _reread_all(world, event.ended)
        world.highest = 0
    world.highest = max(world.highest, max(arrived, default=0))
    _judge_absence(world, event.ended)
    if world.changed_early and world.ready:
        read_first(world)
    world.dirty.update(world.searching_workloads)


def _with_unread(before: Mapping[int, States], event: ev.JobsPolled) -> Mapping[int, States]:
    """Jobs that could not be read keep their last known states.  An end is not kept: the list may lack the job by now."""
    kept = {job: was for job, was in before.items() if job in event.unread and not is_ended(was)}
    return {**kept, **event.states}


def _fold_job(
    world: World, job_id: int, fold: Callable[Concatenate[World, int, P], None], *args: P.args, **kwargs: P.kwargs
) -> None:
    """Apply what a poll shows of one job.  If that raises, the other jobs are applied nevertheless."""
    try:
        fold(world, job_id, *args, **kwargs)
    except Exception as error:  # noqa: BLE001 - contained to the job, or raised
        quarantine.quarantine_job(world, job_id, error)


def _judge_absence(world: World, at: float) -> None:
    """Judge if too many jobs are missing.  If that raises, no pod is ended for a missing job."""
    try:
        judge_absence(world, at)
    except Exception as error:  # noqa: BLE001 - contained, or raised
        quarantine.shared_failed(world, "whether many jobs are missing", error)
        world.held_back_since = at if world.held_back_since is None else world.held_back_since
        world.claims_held_back_since = at if world.claims_held_back_since is None else world.claims_held_back_since


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
    job.mark_present()
    if job.ended and job.end_read and not is_ended(states):  # an ended job does not run again: Slurm reused the id
        job.denied, job.end_read = True, False
        reject(world, Anomaly.ID_AGAIN, job_id, world.workloads_of(job))
    if job.denied and not is_ended(
        states
    ):  # a read found no such job, but the poll shows it: the job that got the id since may be ours, too
        world.schedule_read(job_id, event.began)
    if states != job.states:
        world.set_states(job, states, event.ended)
    else:
        world.touch(job)


def _component_ended(world: World, job_id: int) -> None:
    leader = world.placeholders.get(world.component_of[job_id])
    if leader is not None and leader.alive:
        leader.broken = True
        world.touch(leader)


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
    """Note that this poll, too, lacks the jobs that no poll has shown and the jobs that were absent before."""
    for job_id in (world.expected | world.absent) - event.states.keys():
        if job_id not in event.unread:
            _fold_job(world, job_id, _note_missing, event)


def _note_missing(world: World, job_id: int, event: ev.JobsPolled) -> None:
    job = world.placeholders.get(job_id)
    if job is None or event.began <= job.known_since:
        return
    if job.ended and job.proven_end(world.config.tuning.absent_s):
        if world.phase_of.get(job.key or "") is Phase.ORPHANED:
            world.expected.add(job_id)  # its pods do not show yet why they end
        else:
            world.drop(job)
    elif job.proven:
        world.mark_absent(job, event.began)
    else:
        _detach_false_hints(world, job)
        if _is_depended_on(world, job):
            world.mark_absent(job, event.began)
        else:
            _drop_hint(world, job)


def _detach_false_hints(world: World, job: Placeholder) -> None:
    """Detach the job from workloads whose pods show its id, although no bind of the bridge can have written it."""
    for workload in world.workloads_of(job):
        if not world.may_have_bound(workload):
            world.detach_unproven(workload, job)


def _drop_hint(world: World, job: Placeholder) -> None:
    """Remove a job whose id pods show, and that is not their job."""
    for workload in world.workloads_of(job):
        if not _may_run_for(workload, job):
            world.detach_unproven(workload, job)
    world.drop(job)


def _may_run_for(workload: Workload, job: Placeholder) -> bool:
    """True if running pods name a job that may be the workload's, renamed: the end of another job does not end them (V7)."""
    running = any(workload.node_of(pod) for pod in workload.unfinished)
    return running and workload.hint == workload.renamed == job.id


def _is_depended_on(world: World, job: Placeholder) -> bool:
    """True if unfinished pods run, or may run, for the job."""
    concerned = world.workloads_of(job)
    if world.quarantine and any(quarantine.is_dropped(world, Kind.WORKLOAD, workload.key) for workload in concerned):
        return True
    pods = ((workload, pod) for workload in concerned for pod in workload.pods.values())
    return any(workload.node_of(pod) and not pod.finished for workload, pod in pods)


def _newly_seen(world: World, arrived: Iterable[int], event: ev.JobsPolled) -> None:
    for job_id in arrived:
        if is_ended(event.states[job_id]) or job_id in world.foreign or job_id in world.first_listed_at:
            continue
        _fold_job(world, job_id, _read_if_needed, event)


def _read_if_needed(world: World, job_id: int, event: ev.JobsPolled) -> None:
    if _needs_reading(world, job_id):
        world.schedule_read(job_id, event.began)


def _needs_reading(world: World, job_id: int) -> bool:
    """True if the job is not known, or if only a pod that came after the start shows its id, which proves nothing."""
    job = world.placeholders.get(job_id)
    if job is None:
        return True
    return not job.proven and not all(map(world.inherited, world.workloads_of(job)))


def _reread_all(world: World, at: float) -> None:
    """Read all jobs again: slurmctld lost its state, so hints and foreign ids prove nothing (ARCHITECTURE 4)."""
    tuning = world.config.tuning
    began = world.last_poll_began
    for job_id in (*world.foreign, *world.placeholders):
        if not is_ended(world.states.get(job_id, CANCELLED)):
            world.first_listed_at.setdefault(job_id, began)
    world.trust_since = began
    world.foreign.clear()
    world.unmapped.clear()
    world.foreign_read.clear()
    world.sort_unread(*world.reads_postponed)
    world.scan_until = at + tuning.scan_s + len(world.unread) / tuning.scan_rate


def _job_read(world: World, event: ev.JobRead) -> None:
    world.reading.discard(event.job_id)
    if event.job is not None and event.job.as_of is not None:
        world.clocks[Side.SLURM].observe(event.job.as_of, event.began, event.ended)
    placeholder = world.placeholders.get(event.job_id)
    learned = placeholder.known_since if placeholder is not None else float("-inf")
    if event.began <= learned or event.began < world.first_listed_at.get(event.job_id, float("-inf")):
        reject(world, Anomaly.OLD_READ)
        return  # sent before an answer or the poll that showed the id as new: it may be about the former job
    if event.job_id in world.claimed_by_others:
        strays.job_read(world, event.job_id, event.job)
    if event.job is None:
        if event.job_id in world.first_listed_at and not is_ended(world.states.get(event.job_id, CANCELLED)):
            world.read_failed(event.job_id, event.ended)  # the poll lists the job: it may be ours
        else:
            world.stop_reading(event.job_id)
        _disprove(world, placeholder, event)
        return
    whose = _identify(world, event.job) or _key_of_renamed(placeholder, event.job)
    if whose is None:
        world.stop_reading(event.job_id)
        world.foreign.add(event.job_id)
        world.foreign_read[event.job_id] = event.began
        _disprove(world, placeholder, event)
        return
    if event.job.het_id is not None and event.job.het_offset:
        _note_component(world, event.job_id, event.job.het_id)
        _disprove(world, placeholder, event)  # not a workload's own job; but a pod may show this id, which Slurm reused
    elif placeholder is not None and _is_failed_reacquisition(world, placeholder, event.job):
        world.stop_reading(event.job_id)
        world.detach_others("", placeholder, event.began)
        world.drop(placeholder)
    else:
        _adopt(world, event, whose)


def _workloads_that_lost(world: World, hinted: Placeholder, read: Job) -> list[Workload]:
    """The workloads whose pods a previous process bound for the former job of this id, which is lost (S7).

    The present job was submitted after all pods of the workload that name the id had started, or after their `job-since`.  An
    older job may be the workload's, renamed by its user: then the pods are left alone.
    """
    if hinted.key is not None or read.submitted is None:
        return []
    doubtful = (each for each in world.workloads_of(hinted) if each.key not in hinted.followed_by)
    return [each for each in doubtful if _came_later(world, each, hinted.id, read.submitted)]


def _came_later(world: World, workload: Workload, job_id: int, submitted: float) -> bool:
    running = [pod for pod in workload.unfinished if workload.node_of(pod) and pod.started is not None]
    naming = [pod for pod in running if shown_id(pod) == job_id] or running
    return bool(naming) and not any(may_be_its_job(world, pod, submitted) for pod in naming)


def _had_their_nodes(world: World, workload: Workload, read: Job) -> bool:
    """True if the job has another name, but the user and the nodes of the pods that name its id.

    As the name is no proof, the policy must still be able to give the job's user.  Pods that another client bound may name a
    job of their user, too; so the pods must have all annotations that a bind of the bridge writes.
    """
    bound_pods = [pod for pod in workload.unfinished if workload.node_of(pod)]
    if workload.strays or not all(pod.annotations.keys() >= OF_A_BIND for pod in bound_pods):
        return False
    if not world.config.policy.can_give(read.user):
        return False
    if workload.renamed != read.id or not belongs_to(world, workload, read.id, read.user, read):
        return False
    try:
        nodes = set(expand(read.nodes))
    except HostlistError:
        return False
    return bool(bound_pods) and {world.in_slurm(workload.node_of(pod)) for pod in bound_pods} <= nodes


def _is_failed_reacquisition(world: World, job: Placeholder, read: Job) -> bool:
    """True if pods run for the job, but the job that was read under its id ended without ever having held nodes.

    That is another job of the same name: the record of an attempt to reacquire a lost job's nodes (S7), for which slurmctld
    reused the id of the lost job.
    """
    return is_ended(read.states) and not read.nodes and not job.requeued and _is_depended_on(world, job)


def _note_component(world: World, job_id: int, leader: int) -> None:
    """Note a component.  It is no placeholder by itself: it is read and ended with its leader (docs/decisions/0002)."""
    world.stop_reading(job_id)
    world.foreign.add(job_id)
    world.component_of[job_id] = leader


def _disprove(world: World, job: Placeholder | None, event: ev.JobRead) -> None:
    """A read proved that the id does not belong to the job for which it was taken, or which a pod shows."""
    began = event.began
    if job is None:
        return
    if not job.proven:
        _detach_false_hints(world, job)
        if not world.workloads_of(job):
            world.drop(job)
            return
    if event.job is not None and _renamed_unread(world, job, event.job):
        assert job.key is not None
        job.hinted_by.add(job.key)
        job.key = None  # without the name, there is not enough proof to end the job (V6)
    elif event.job is not None:
        for workload in _workloads_that_lost(world, job, event.job):
            world.detach(workload, job, began)
    job.read_began = began
    if job.key is None and (job.id in world.foreign or not _is_depended_on(world, job)):  # the hint was wrong
        if event.job is not None and _follow_if_renamed(world, job, event.job):
            return
        _drop_hint(world, job)
        return
    job.denied = True
    world.mark_absent(job, began)
    world.touch(job)


def _follow_if_renamed(world: World, job: Placeholder, read: Job) -> bool:
    """Decide if the job of another name, as old as the pods that show its id, is their job, renamed (docs/decisions/0003).

    If a job with the workload's own name holds the nodes of the pods, that job is the workload's, and another client wrote
    this id.  A workload follows the job if the job has its user and has, or had, its nodes: the job's end ends its pods.
    Returns True if a workload follows the job.
    """
    followed = set()
    for workload in world.workloads_of(job):
        workload.renamed = job.id
        own = chosen(workload, world.jobs_of(workload))
        if workload.hint == job.id and own is not None and own.holds_nodes and _holds_their_nodes(world, workload, own):
            workload.hint = own.id
        elif _had_their_nodes(world, workload, read):
            followed.add(workload.key)
    job.followed_by = frozenset(followed)
    if followed:
        job.end_read = is_ended(read.states)
        world.set_states(job, read.states, job.read_began)
        world.touch(job)
    return bool(followed)


def _holds_their_nodes(world: World, workload: Workload, job: Placeholder) -> bool:
    """True if the job was granted every node on which a pod of the workload runs."""
    granted = {node.name for node in job.grant.everywhere} if job.grant is not None else set()
    pod_nodes = {world.in_slurm(node) for pod in workload.unfinished if (node := workload.node_of(pod))}
    return bool(pod_nodes) and pod_nodes <= granted


def _identify(world: World, job: Job) -> str | None:
    """The key of a job that is ours: by its name, and by its user (ARCHITECTURE 4).

    All components of a heterogeneous job have the same name.  If its user renamed the leader, the other components show it.
    """
    if world.namespaces is None:
        return None
    parsed = (names.whose(each.name) for each in (job, *job.parts))
    named = next((each for each in parsed if each is not None and each[0] == world.cluster), None)
    if named is None:
        return None
    workload = world.workloads.get(named[1])
    is_ours = is_orphan(world, job) if workload is None else belongs_to(world, workload, job.id, job.user, job)
    if (
        is_ours or _key_of_renamed(world.placeholders.get(job.id), job) == named[1]
    ):  # proven before policy or labels changed
        return named[1]
    world.unmapped.add(job.id)
    if workload is not None and is_stray(world, workload, job):
        workload.former |= {job.id}
        return former_key(workload, job.user)
    reject(world, Anomaly.NOT_ITS_USER, job.id, [workload] if workload is not None else ())
    if workload is not None:
        workload.foreign_jobs |= {job.id}
    return None


def _key_of_renamed(known: Placeholder | None, read: Job) -> str | None:
    """The key of a job of ours that its user renamed: the same id, submission time and user prove that it is the same job."""
    if known is None or known.job is None or known.job.submitted is None:
        return None
    return known.key if (known.job.submitted, known.job.user) == (read.submitted, read.user) else None


def _renamed_unread(world: World, job: Placeholder, read: Job) -> bool:
    """True if the first read of a job that this process submitted shows another name, and the same user and time.

    The job may be that job, renamed: the pods that run for it are treated as after a restart (docs/decisions/0003).
    """
    if job.key is None or job.job is not None or read.user != job.user or read.submitted is None:
        return False
    concerned = world.workloads_of(job)
    bound = any(workload.first_bound_at > float("-inf") for workload in concerned)  # even if no answer has come yet
    running = bound or any(workload.node_of(pod) for workload in concerned for pod in workload.unfinished)
    return running and world.clocks[Side.SLURM].ours(read.submitted) - inexact_s(world) <= job.known_since


def _adopt(world: World, event: ev.JobRead, key: str) -> None:
    """A read showed that the job belongs to the workload of that key."""
    assert event.job is not None
    read = event.job
    world.stop_reading(event.job_id)
    world.foreign.discard(event.job_id)
    world.foreign_read.pop(event.job_id, None)
    workload = world.workloads.get(key) or _workload_without_pods(world, key, read)
    job = _take_record(world, key, event, read.user)
    for part in read.parts:
        _note_component(world, part.id, job.id)
        former = world.placeholders.get(part.id)
        if former is not None and not former.denied:  # Slurm reused the id: a read of the component settles that record
            world.schedule_read(part.id, event.began)
    job.broken = any(is_ended(part.states) for part in read.parts)
    _take_details(world, workload, job, read, event.grant)
    _prove(world, workload, job, read, event.began)
    _takes_over(world, workload, job, read.states)
    world.set_states(job, read.states, event.ended)
    job.states_since = min(job.states_since, event.began)
    if SINGLETON in read.dependency and not any(each.holds_nodes for each in world.jobs_of(workload)):
        _search_unknown_twin(world, workload, event.ended)
    is_new = event.ended < (job.asked_at or 0.0) + world.config.tuning.unlooked_s
    if read.reason in NOT_CONSIDERED and is_new and world.phase_of.get(key) is Phase.QUEUED:
        world.detail_round.pop(key, None)
        world.detail_new[key] = event.ended + world.config.tuning.detail_fresh_s
    world.refresh(workload)


def _workload_without_pods(world: World, key: str, read: Job) -> Workload:
    """Add a workload of which only the job is known: as old as the job, by the clock of Kubernetes."""
    submitted = world.clocks[Side.SLURM].ours(read.submitted or 0.0)
    created = world.clocks[Side.KUBERNETES].theirs(submitted)  # compared with creation times of pods
    workload = world.workloads[key] = Workload(key, created=created)
    return workload


def _take_record(world: World, key: str, event: ev.JobRead, user: str) -> Placeholder:
    """The record of the job that was read.  If another workload's job had the id before, its record is reused."""
    job = world.placeholders.get(event.job_id)
    if job is None:
        job = world.placeholders[event.job_id] = Placeholder(
            event.job_id, key, user, frozenset(), known_since=float("-inf")
        )
        return job
    if job.key not in (None, key):
        job.spec = job.adopted_as = job.grant = None  # Slurm reused the id: this is another job
    world.detach_others(key, job, event.began)
    return job


def _prove(world: World, workload: Workload, job: Placeholder, read: Job, began: float) -> None:
    """Note that the job exists and is the workload's.  began: when the read was sent"""
    job.key, job.user = workload.key, read.user
    job.read_began, job.known_since, job.denied = began, began, False
    job.end_read = is_ended(read.states)
    job.mark_present()
    if job.id in world.absent:
        world.absent.discard(job.id)
        if not job.end_read:
            reject(world, Anomaly.NOT_LISTED, job.id, [workload])
    world.expected.add(job.id)
    if not is_ended(read.states):
        workload.job_search = workload.reacquired = None
    workload.jobs.add(job.id)
    if workload.renamed == job.id:
        workload.renamed = None


def _take_details(world: World, workload: Workload, job: Placeholder, read: Job, grant: Grant | None) -> None:
    before, job.job = job.job, read
    if before is not None and holds_nodes(before.states) and before.time_limit_min != read.time_limit_min:
        job.limit_before = before.time_limit_min
    if grant is not None:
        job.grant = grant
        world.counts_memory = all(node.memory_mib for node in grant.everywhere) or not grant.everywhere
        world.grant_changed(workload)
    elif job.grant is not None and _is_on_other_nodes(job.grant, read):  # requeued and started again between two polls
        job.grant = None


def _is_on_other_nodes(grant: Grant, read: Job) -> bool:
    """True if the job, as it was read, holds other nodes than it was granted (of a leader: its own component)."""
    if not holds_nodes(read.states) or not read.nodes:
        return False
    try:
        return set(expand(read.nodes)) != {node.name for node in grant.nodes}
    except HostlistError:
        return False  # its nodes are not known


def _takes_over(world: World, workload: Workload, job: Placeholder, states: States) -> None:
    """The pods of the workload run for this job from now on, if their former job is lost (S7) or is a foreign job.

    states   of this job, as they were read
    """
    if workload.renamed is not None and workload.renamed == workload.hint:
        if holds_nodes(states) and _holds_their_nodes(world, workload, job):
            workload.hint = job.id
        return
    before = workload.lost_job or world.placeholders.get(workload.hint or 0)
    if before is None or before.id != workload.hint or before is job or is_ended(states):
        return
    if before.lost(world.config.tuning.absent_s):
        workload.hint, workload.lost_job = job.id, None


def _search_unknown_twin(world: World, workload: Workload, at: float) -> None:
    """Singleton holds the job back, so an unknown job of this name runs.  Its id may be one that a pod hints at.

    All jobs are read again to find it, but seldom for one workload: the user may have submitted a job of that name by hand.
    """
    tuning = world.config.tuning
    if at >= max(world.twins_searched_at + tuning.settle_s, workload.twin_searched_at + tuning.refused_retry_s):
        world.twins_searched_at = workload.twin_searched_at = at
        _reread_all(world, at)


def _slurm_nodes_polled(world: World, event: ev.SlurmNodesPolled) -> None:
    began = event.at if event.began is None else event.began
    if world.nodes_polled is not None and began < world.nodes_polled[0]:  # two polls were in flight
        reject(world, Anomaly.OLD_POLL)
        return
    nodes = _last_known(world.slurm_nodes or {}, event.unread_nodes) | {node.name: node for node in event.nodes}
    partitions = world.partitions
    if event.partitions is not None:
        partitions = _last_known(partitions, event.unread_partitions) | {each.name: each for each in event.partitions}
    world.nodes_stale = False
    world.unread_nodes = event.unread_nodes
    changed = _read_by_feasibility(nodes) != _read_by_feasibility(world.slurm_nodes or {}) or world.slurm_nodes is None
    changed = changed or partitions != world.partitions
    if partitions != world.partitions:
        world.partitions = partitions
        world.default_partition = next((each.name for each in partitions.values() if each.default), "")
        for key in world.by_phase[Phase.UNSUBMITTED]:  # Slurm's configuration changed: submit again (Q4)
            world.input_changed(world.workloads[key])
        for key in (*world.by_phase[Phase.UNSUBMITTED], *world.by_phase[Phase.QUEUED]):
            world.refresh(world.workloads[key])  # the default partition may have changed
    world.slurm_nodes = nodes
    world.nodes_polled = (began, event.at)
    world.slurm_nodes_shown(partial(quarantine.quarantine_slurm_node, world))
    if changed:
        world.feasibility_changed()
        strays.find(world)


def _last_known(before: Mapping[str, _T], unread: ev.Unread) -> dict[str, _T]:
    """The last known state of the objects that could not be decoded."""
    return {name: known for name, known in before.items() if name in unread} if unread else {}


def _read_by_feasibility(nodes: Mapping[str, SlurmNode]) -> dict[str, tuple[object, ...]]:
    """The part of each node that decides where pods may run; states change with every allocation and do not matter."""
    return {name: (node.external, node.partitions, node.cpus, node.gres) for name, node in nodes.items()}


def _side_lost(world: World, event: ev.SideLost) -> None:
    world.lost.setdefault(event.side, event)
    if event.side is Side.SLURM:
        for waiting in (Phase.UNSUBMITTED, Phase.QUEUED, Phase.GRANTED):
            world.dirty.update(world.by_phase[waiting])


def _absence_confirmed(world: World, event: ev.AbsenceConfirmed) -> None:
    release(world)
    world.dirty.update(world.by_phase[Phase.ORPHANED])


def _predecessor_drained(world: World, event: ev.PredecessorDrained) -> None:
    world.predecessor_drained = True
    world.dirty.update(
        dict.fromkeys(world.workloads)
    )  # workloads that wait for the end of the quiet period are visited


def _side_back(world: World, event: ev.SideBack) -> None:
    lost = world.lost.pop(event.side, None)
    if lost is None:
        return
    for key, workload in world.workloads.items():
        workload.reset_backoffs()
        world.dirty[key] = None
    if event.side is not Side.SLURM:
        return
    if event.at - lost.since >= world.config.tuning.outage_s:
        _reread_all(world, event.at)
    else:  # a short outage: a job is read again only before the bridge acts on it
        world.trust_since = world.last_poll_began


def _accounting_lost(world: World, event: ev.AccountingLost) -> None:
    if world.accounting_lost is None:
        world.accounting_lost = event
        world.dirty.update(world.searching_workloads)  # they do not wait for slurmdbd


def _accounting_back(world: World, event: ev.AccountingBack) -> None:
    world.accounting_lost = None


def _token_lost(world: World, event: ev.TokenLost) -> None:
    world.users_without_token.add(event.user)


def _token_back(world: World, event: ev.TokenBack) -> None:
    """Try at once what failed because the token was missing."""
    world.users_without_token.discard(event.user)
    for key in world.limited.pop(event.user, {}):
        world.workloads[key].retry_at = float("-inf")
        world.dirty[key] = None
    for job in world.placeholders.values():
        workload = world.workloads.get(job.key or "")
        if job.user == event.user and workload is not None:
            workload.reset_backoffs()
            world.dirty[workload.key] = None


FOLDS: Mapping[type, Callable[[World, Any], None]] = {
    ev.JobsPolled: _jobs_polled,
    ev.JobRead: _job_read,
    ev.SlurmNodesPolled: _slurm_nodes_polled,
    ev.SideLost: _side_lost,
    ev.SideBack: _side_back,
    ev.AccountingLost: _accounting_lost,
    ev.AccountingBack: _accounting_back,
    ev.TokenLost: _token_lost,
    ev.TokenBack: _token_back,
    ev.AbsenceConfirmed: _absence_confirmed,
    ev.PredecessorDrained: _predecessor_drained,
}
