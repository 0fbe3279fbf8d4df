"""Applies reads of single jobs to the World (`GET job/{id}`): to which workload the job belongs, and what it was granted.

A read shows the name and the user, which prove the workload of the job (ARCHITECTURE 4).  If a read was sent before an answer
about the id came, or before the list that showed the id as new, it may show the former job of that id.  So it is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from scheduler import events as ev
from scheduler import names
from scheduler.apply import hinted_jobs, relabelled, reused_ids
from scheduler.apply.surplus import leave_running_gang
from scheduler.events import Side
from scheduler.model.anomaly import Anomaly
from scheduler.model.hostlist import HostlistError, expand
from scheduler.model.reasons import is_blocked
from scheduler.model.slurm import SINGLETON, Grant, Job, States, holds_nodes, is_ended
from scheduler.state import other_schedulers
from scheduler.state.anomalies import reject
from scheduler.state.job_ownership import belongs_to, former_user_key, has_user_of_policy, is_to_be_replaced
from scheduler.state.phase import Phase
from scheduler.state.placeholder import NO_NODE_EVER, NOT_CONSIDERED, WITHOUT_ITS_RESERVATION, Placeholder
from scheduler.state.visits import NO_CONTENDER
from scheduler.state.workload import Workload
from scheduler.state.world import World

# The most reads per second for searches for unknown twins, on average: users can submit jobs that cause such searches.
TWIN_SEARCH_RATE = 50
MOST_ESTIMATES = 4  # of one job, so that a job that waits for days does not outweigh the others


def _job_read(world: World, event: ev.JobRead) -> None:
    world.reading.discard(event.job_id)
    if event.job is not None and event.job.as_of is not None:
        world.clocks[Side.SLURM].observe(event.job.as_of, event.began, event.ended)
    placeholder = world.placeholders.get(event.job_id)
    learned = placeholder.known_since if placeholder is not None else float("-inf")
    if event.began <= learned or event.began < world.first_listed_at.get(event.job_id, float("-inf")):
        reject(world, Anomaly.OLD_READ)
        return  # the read may be about the former job of this id
    if event.job_id in world.hinted_by_others:
        other_schedulers.note_job_read(world, event.job_id, event.job)
    if event.job is None:
        is_listed = world.is_listed_alive(event.job_id)  # then the job may be the bridge's
        if event.job_id in world.first_listed_at and is_listed:
            world.note_failed_read(event.job_id, event.ended)
        else:
            world.stop_reading(event.job_id)
        _disprove(world, placeholder, event)
        if is_listed and event.job_id not in world.placeholders:
            world.schedule_read(event.job_id, world.last_poll_began)
        return
    whose = _key_of_job(world, placeholder, event.job)
    if whose is None:
        world.stop_reading(event.job_id)
        world.foreign.add(event.job_id)
        world.foreign_read[event.job_id] = event.began
        _disprove(world, placeholder, event)
        return
    if event.job.het_id is not None and event.job.het_offset and not _is_left_over(world, event.job):
        _note_component(world, event.job_id, event.job.het_id)
        _disprove(world, placeholder, event)  # a component is no placeholder, although a pod may show this reused id
    elif placeholder is not None and reused_ids.is_failed_reacquisition(world, placeholder, event.job):
        world.stop_reading(event.job_id)
        reused_ids.detach_others(world, "", placeholder, event.began)
        world.drop(placeholder)
    else:
        _adopt(world, event, whose)


def _key_of_job(world: World, known: Placeholder | None, read: Job) -> str | None:
    """The key of the workload to which the job belongs; None: the job is not the bridge's, or that is not proven.

    Its user may have renamed a known job, even to the name of another workload's job.  It stays the job of its workload:
    otherwise the pods of both would get what Slurm granted once (V5).
    """
    named = _named(world, read)
    if known is not None and known.key is not None and named is not None and not known.key.startswith(named):
        if (key := reused_ids.key_of_renamed(known, read)) is not None:
            return key
        # If a read found no job of the id meanwhile, Slurm gave the id to the job of that name.
        if not known.denied and reused_ids.is_renamed_unread(world, known, read):
            return None
    return _decide_whose(world, read, named) or reused_ids.key_of_renamed(known, read)


def _named(world: World, job: Job) -> str | None:
    """The key in the name of the job; None: it is no name of a placeholder of this cluster.

    All components of a heterogeneous job have the same name.  If its user renamed the leader, the other components still show
    the name.
    """
    parsed = (names.parse_job_name(component.name) for component in (job, *job.parts))
    return next((owner[1] for owner in parsed if owner is not None and owner[0] == world.cluster), None)


def _is_left_over(world: World, component: Job) -> bool:
    """True if the leader of this component has ended: a time limit may end a single component (docs/decisions/0002)."""
    leader = world.states.get(component.het_id or 0)
    return is_ended(leader) if leader is not None else component.id in world.states


def _note_component(world: World, job_id: int, leader: int) -> None:
    """Note a component.  It has no record of its own: it is read and ended with its leader (docs/decisions/0002)."""
    world.stop_reading(job_id)
    world.foreign.add(job_id)
    world.component_of[job_id] = leader


def _disprove(world: World, job: Placeholder | None, event: ev.JobRead) -> None:
    """A read proved that the id does not belong to the job of this record.  job: the record; None: there is none"""
    began = event.began
    if job is None:
        return
    if not job.proven:
        hinted_jobs.detach_false_hints(world, job)
        if not world.workloads_of(job):
            world.drop(job)
            return
    if event.job is not None and reused_ids.is_renamed_unread(world, job, event.job):
        assert job.key is not None
        job.hinted_by.add(job.key)
        job.key = None  # without the name, there is not enough proof to end the job (V6)
    elif event.job is not None:
        for workload in reused_ids.workloads_that_lost(world, job, event.job):
            reused_ids.detach(world, workload, job, began)
    job.read_began = began
    # If no pod depends on the job, or the job was read and is foreign, the hint was wrong.
    if job.key is None and (event.job is not None or not hinted_jobs.is_depended_on(world, job)):
        if event.job is not None and hinted_jobs.follow_if_renamed(world, job, event.job):
            return
        hinted_jobs.drop_hint(world, job)
        return
    job.denied = True
    world.mark_absent(job, began)
    world.touch(job)


def _decide_whose(world: World, job: Job, named: str | None) -> str | None:
    """Decide by the name and the user to which workload the job belongs (ARCHITECTURE 4).

    named   the key in the name of the job

    Returns the key of the workload; None: the job is not the bridge's.  Notes a job of another user.
    """
    if named is None:
        return None
    workload = world.workloads.get(named)
    is_ours = has_user_of_policy(world, job) if workload is None else belongs_to(world, workload, job.id, job.user, job)
    # The id and the time show a job that was proven before the policy or labels changed.
    if is_ours or reused_ids.key_of_renamed(world.placeholders.get(job.id), job) == named:
        return named
    world.unmapped.add(job.id)
    if workload is not None and is_to_be_replaced(world, workload, job):
        workload.former_user_jobs |= {job.id}
        return former_user_key(workload, job.user)
    reject(world, Anomaly.NOT_ITS_USER, job.id, [workload] if workload is not None else ())
    if workload is not None:
        workload.foreign_jobs |= {job.id}
    return None


def _adopt(world: World, event: ev.JobRead, key: str) -> None:
    """A read showed that the job belongs to the workload of that key."""
    assert event.job is not None
    read = event.job
    world.stop_reading(event.job_id)
    world.foreign.discard(event.job_id)
    world.foreign_read.pop(event.job_id, None)
    world.component_of.pop(event.job_id, None)
    workload = world.workloads.get(key) or _workload_of_unknown_job(world, key, read)
    relabelled.gather(world, workload, read)
    job = _take_record(world, key, event, read)
    if job.asked_at is None and event.ended < world.quiet_until():
        world.earlier_jobs.add((job.id, key))
    for part in read.parts:
        _note_component(world, part.id, job.id)
        former = world.placeholders.get(part.id)
        if former is not None and not former.denied:
            # Slurm reused the id: a read of the component corrects this record.
            world.schedule_read(part.id, event.began)
    job.broken = bool(read.het_offset) or any(is_ended(part.states) for part in read.parts)
    _take_details(world, workload, job, read, event.grant, event.ended)
    _take_expected_start(world, job, read, event.ended)
    _prove(world, workload, job, read, event.began)
    _take_over(world, workload, job, read.states)
    world.set_states(job, read.states, event.ended)
    job.states_since = min(job.states_since, event.began)
    if SINGLETON in read.dependency and not any(other.holds_nodes for other in world.jobs_of(workload)):
        _search_unknown_twin(world, workload, event.ended)
    # slurmctld considers most new jobs within `unconsidered_s`, and some jobs soon after.
    is_new = event.ended < (job.asked_at or 0.0) + 2 * world.config.tuning.unconsidered_s
    if read.reason in NOT_CONSIDERED and is_new and world.phase_of.get(key) is Phase.QUEUED:
        world.detail_round.pop(key, None)
        world.detail_new[key] = event.ended + world.config.tuning.detail_fresh_s
    world.refresh(workload)


def _workload_of_unknown_job(world: World, key: str, read: Job) -> Workload:
    """Add the workload of a job whose workload is not known.

    If the job belongs to a pod that is in a gang now, the pod becomes this workload.  Otherwise only the job of the workload
    is known; then the workload is as old as the job, by the clock of Kubernetes.
    """
    if not is_ended(read.states) and (alone := leave_running_gang(world, key, read)) is not None:
        return alone
    submitted = world.clocks[Side.SLURM].ours(read.submitted or 0.0)
    created = world.clocks[Side.KUBERNETES].theirs(submitted)  # compared with creation times of pods
    workload = world.workloads[key] = Workload(key, created=created)
    return workload


def _take_record(world: World, key: str, event: ev.JobRead, read: Job) -> Placeholder:
    """The record of the job that was read.  If another job had the id before, its record is reused."""
    job = world.placeholders.get(event.job_id)
    if job is None:
        job = world.placeholders[event.job_id] = Placeholder(
            event.job_id, key, read.user, frozenset(), known_since=float("-inf")
        )
        return job
    if job.key is not None and (job.key != key or _is_another_job(job, read)):
        job.forget_former_job()
    reused_ids.detach_others(world, key, job, event.began)
    return job


def _is_another_job(known: Placeholder, read: Job) -> bool:
    """True if user or time of submission show that the known job of the id and the job that was read are two jobs."""
    if known.job is None:
        return known.user != read.user
    return (known.job.user, known.job.submitted) != (read.user, read.submitted)


def _prove(world: World, workload: Workload, job: Placeholder, read: Job, began: float) -> None:
    """Note that the job exists and is the workload's.  began: when the read was sent"""
    job.key, job.user = workload.key, read.user
    job.read_began, job.known_since, job.denied = began, began, False
    job.end_proven = is_ended(read.states)
    job.mark_present()
    if job.id in world.absent:
        world.absent.discard(job.id)
        if not job.end_proven:
            reject(world, Anomaly.NOT_LISTED, job.id, [workload])
    world.expected.add(job.id)
    if not is_ended(read.states):
        workload.job_search = workload.reacquired = None
    workload.jobs.add(job.id)
    if workload.renamed == job.id:
        workload.renamed = None


def _take_details(
    world: World, workload: Workload, job: Placeholder, read: Job, grant: Grant | None, at: float
) -> None:
    before, job.job = job.job, read
    if not _is_held_for_good(read):
        job.held_retry_at = None
    elif job.held_retry_at is None:
        job.held_retry_at = at + world.config.tuning.refused_retry_s
    if before is None:
        job.chosen_by_slurm = _chosen(read.account, read.qos)
    if before is not None and holds_nodes(before.states) and before.time_limit_min != read.time_limit_min:
        job.limit_before = before.time_limit_min
    if grant is not None:
        job.grant = grant
        world.counts_memory = all(node.memory_mib for node in grant.everywhere)
        world.grant_changed(workload)
    elif job.grant is not None and _is_on_other_nodes(job.grant, read):
        # The job was requeued and started again between two polls.
        job.grant = None


@lru_cache(256)  # most jobs have the same account and QOS, and each keeps this for as long as its pods run
def _chosen(account: str, qos: str) -> Mapping[str, str]:
    return {names.ACCOUNT: account, names.QOS: qos}


def _is_held_for_good(read: Job) -> bool:
    """True if slurmctld itself holds the waiting job, or a component: it set the priority to 0, and shows why.

    It does not look at such a job again, whatever happens in the cluster, and the user of the job may not release it (Slurm
    facts 9).
    """
    components = (read, *read.parts) if "PENDING" in read.states else ()
    return any(
        component.is_held and component.reason in (NO_NODE_EVER, WITHOUT_ITS_RESERVATION) for component in components
    )


def _take_expected_start(world: World, job: Placeholder, read: Job, at: float) -> None:
    """Keep the expected start of a waiting job.  If the job has started, judge the expected starts that were kept (Q2).

    If a job is held, or waits for other jobs or for a time, Slurm does not estimate how long it waits for nodes.  Nor does it
    while the job cannot start at all, as in a partition that is down: it still shows the start that it expected before.
    """
    starts = world.clocks[Side.SLURM].ours(read.starts) if read.starts is not None else None
    if holds_nodes(read.states) and starts is not None:
        world.estimates.note_started(job.estimates, starts)
        job.estimates = ()
    elif "PENDING" not in read.states or read.reason in NO_CONTENDER or is_blocked(read.reason):
        job.estimates = ()
    elif starts is not None and len(job.estimates) < MOST_ESTIMATES:
        before = job.estimates[-1] if job.estimates else None
        new = world.estimates.estimate(read.partition, starts, at, before)
        job.estimates += (new,) if new is not None else ()


def _is_on_other_nodes(grant: Grant, read: Job) -> bool:
    """True if the read job holds other nodes than *grant* has.  Of a heterogeneous job, only the leader is compared."""
    if not holds_nodes(read.states) or not read.nodes:
        return False
    try:
        return set(expand(read.nodes)) != {node.name for node in grant.nodes}
    except HostlistError:
        return False  # the nodes of the job are not known


def _take_over(world: World, workload: Workload, job: Placeholder, states: States) -> None:
    """If the pods' former job is lost (S7), or the pods name a renamed job, let the pods run for this job from now on.

    states   the states of this job that were read
    """
    if workload.renamed is not None and workload.renamed == workload.hint:
        if holds_nodes(states) and hinted_jobs.holds_their_nodes(world, workload, job):
            workload.hint = job.id
        return
    before = workload.lost_job or world.placeholders.get(workload.hint or 0)
    if before is None or before.id != workload.hint or before is job or is_ended(states):
        return
    if before.is_lost(world.config.tuning.absent_s):
        workload.hint, workload.lost_job = job.id, None
    elif not before.proven and before.alive:  # one of the two jobs may have no pod
        world.schedule_read(before.id, world.last_poll_began)


def _search_unknown_twin(world: World, workload: Workload, at: float) -> None:
    """Singleton holds the job back, so a twin runs: an unknown job of this name, whose id a pod may show.  Search it.

    If some jobs were not read yet, they are read first, at the rate of the start.  Otherwise all jobs are read again, but not
    often for one workload, because the user may have submitted a job of that name by hand.  No search begins before the
    former search has read each job.  Otherwise the oldest jobs would never be read, because reads begin with the newest job.
    """
    tuning = world.config.tuning
    if world.unread:
        world.scan_until = max(world.scan_until, at + tuning.scan_s)
    elif at >= max(world.next_twin_search_at, workload.twin_searched_at + tuning.refused_retry_s):
        workload.twin_searched_at = at
        reused_ids.schedule_all_reads(world, at)
        world.next_twin_search_at = at + tuning.settle_s + len(world.unread) / TWIN_SEARCH_RATE


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {ev.JobRead: _job_read}
