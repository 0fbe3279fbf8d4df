"""Periodic work for all workloads together: reads of unknown, waiting and running jobs, the nudge (Q2, ARCHITECTURE 5).

These rules enter their actions in the plan themselves: each takes what limits and token buckets leave over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from scheduler import actions as act
from scheduler.actions import ObjectKind
from scheduler.events import Side
from scheduler.rules.guard import guarded
from scheduler.rules.identity import is_trusted
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder

FRONT = 3  # waiting workloads that count as the front of the queue


def read_unknown(this_pass: Pass) -> None:
    """Read each job id that no pod names once, newest first: many at start, few later (ARCHITECTURE 4)."""
    world = this_pass.world
    if Side.SLURM in world.outages:
        return
    _read_put_off(this_pass)
    bucket = "scan" if world.searching_workloads or this_pass.now < world.scan_until else "unknown"
    for job_id in reversed(world.unread):
        if this_pass.is_being_read(job_id):
            continue
        not_before = world.unreadable.get(job_id, (0, float("-inf")))[1]
        if this_pass.now < not_before:
            this_pass.wake_shared(not_before)
            continue
        if this_pass.free("reads") <= 0:
            return  # a read that ends makes the next pass
        if not this_pass.take_token(bucket):
            this_pass.wake_shared(world.token_buckets[bucket].next_at(this_pass.now) + 0.001)
            return
        this_pass.add(act.ReadJob(job_id, f"is job {job_id} ours?", bucket=bucket))


def _read_put_off(this_pass: Pass) -> None:
    """Read ids whose reads failed again and again: each seldom, at the low rate."""
    world = this_pass.world
    for job_id, not_before in world.reads_postponed.items():
        if this_pass.now < not_before:
            this_pass.wake_shared(not_before)
            return
        if this_pass.is_being_read(job_id):
            continue
        if this_pass.free("reads") <= 0:
            return
        if not this_pass.take_token("unknown"):
            this_pass.wake_shared(world.token_buckets["unknown"].next_at(this_pass.now) + 0.001)
            return
        this_pass.add(act.ReadJob(job_id, f"is job {job_id} ours? Its reads failed before", bucket="unknown"))


def read_unsettled(this_pass: Pass) -> None:
    """The answer to a bind was lost, and the bind is not repeated: read its pod when the bind can no longer take effect.

    Until then the pod takes room on that node (V5), and nothing else is submitted for it.
    """
    world = this_pass.world
    for uid, lost in world.unanswered_binds.items():
        workload, bind = world.workloads[world.key_of_pod[uid]], lost.action
        if uid not in workload.pods or workload.is_being_bound(uid) or this_pass.is_being_read(uid):
            continue  # the pod left the workload, which was dropped (quarantine.py)
        if this_pass.now < lost.until:
            this_pass.wake_shared(lost.until)
        else:
            why = f"is {bind.namespace}/{bind.name} on {bind.node}? the answer to its bind was lost"
            this_pass.add(act.ReadPod(workload.key, uid, bind.namespace, bind.name, why))


def read_details(this_pass: Pass) -> None:
    """Read the details of waiting jobs: new jobs and the front of the queue first, then round robin (Q2).

    The round takes half of the rate: the fewer jobs wait, the sooner is a new reason read.
    """
    world, tuning = this_pass.world, this_pass.tuning
    if Side.SLURM in world.outages:
        return
    every_s = min(tuning.detail_every_s, max(tuning.detail_front_s, len(world.detail_round) / (tuning.detail_rate / 2)))
    again = ((key, last + every_s) for key, last in world.detail_round.items())
    for key in chain(_due(world.detail_new.items(), this_pass), _front(this_pass), _due(again, this_pass)):
        job = world.job_of.get(key)
        if job is None or this_pass.is_being_read(job.id):
            continue
        if this_pass.free("reads") <= 0:
            return
        if not this_pass.take_token("detail"):
            this_pass.wake_shared(world.token_buckets["detail"].next_at(this_pass.now) + 0.001)
            return
        this_pass.add(act.ReadJob(job.id, f"why does job {job.id} wait?", key, bucket="detail"))


def read_running(this_pass: Pass) -> None:
    """Read when jobs of running pods end: an admin may change that, and no poll of states shows it (S9).

    If thousands run, each is read seldom, so that an idle bridge causes little load.  Actions at a job's end do not depend on
    these reads if its pods have a time limit (S4b).
    """
    world, tuning = this_pass.world, this_pass.tuning
    if Side.SLURM in world.outages:
        return
    again = ((key, last + tuning.running_every_s) for key, last in world.running_round.items())
    for key in chain(_due(world.running_new.items(), this_pass), _due(again, this_pass)):
        job = guarded(this_pass, ObjectKind.WORKLOAD, key, None, _running, this_pass, key)
        if job is None or this_pass.is_being_read(job.id):
            continue
        if this_pass.free("reads") <= 0:
            return
        if not this_pass.take_token("running"):
            this_pass.wake_shared(world.token_buckets["running"].next_at(this_pass.now) + 0.001)
            return
        known = job.grant is not None
        this_pass.add(act.ReadJob(job.id, f"when does job {job.id} end?", key, bucket="running", grant=not known))


def _running(this_pass: Pass, key: str) -> Placeholder | None:
    """The job of the running pods; None: none of their jobs holds nodes."""
    workload = this_pass.world.workloads[key]
    job = this_pass.world.claimed_job(workload)
    return job if job is not None and job.holds_nodes and job.key in (None, key) else None


def _front(this_pass: Pass) -> Iterator[str]:
    """The workloads that came into the queue first start first, so their jobs are read more often (Q2)."""
    world = this_pass.world
    for key in islice(world.by_phase[Phase.QUEUED], FRONT):
        if (last := world.detail_round.get(key)) is None:
            continue
        if last + this_pass.tuning.detail_front_s <= this_pass.now:
            yield key
        else:
            this_pass.wake_shared(last + this_pass.tuning.detail_front_s)


def _due(ordered: Iterable[tuple[str, float]], this_pass: Pass) -> Iterator[str]:
    """The keys whose time has come.  ordered: keys with their times, earliest first"""
    for key, at in ordered:
        if at > this_pass.now:
            this_pass.wake_shared(at)
            return
        yield key


def nudge(this_pass: Pass) -> None:
    """Capacity was freed or a begin time has come, and jobs wait: make slurmctld schedule at once (ARCHITECTURE 5)."""
    world = this_pass.world
    news = world.freed_at > world.nudged_at or this_pass.begin_is_due
    if not news or Side.SLURM in world.outages or not world.by_phase[Phase.QUEUED]:
        return
    at = world.nudged_at + this_pass.tuning.nudge_every_s
    if this_pass.now < at:
        this_pass.wake_shared(at)
        return
    queued = (key for key in world.by_phase[Phase.QUEUED] if not world.is_quarantined(key))
    if world.users_without_token:  # a nudge as such a user would fail
        queued = (key for key in queued if not _is_tokenless(this_pass, key))
    front = min(queued, key=lambda key: world.workloads[key].created, default=None)
    if front is None:
        return
    job = this_pass.world.job_of.get(front)
    if job is not None and is_trusted(job, this_pass):
        why = "a begin time has come" if this_pass.begin_is_due else "capacity was freed"
        why += ": Slurm is asked to look at its queue"
        this_pass.add(act.NudgeScheduler(front, job.id, job.user, why))


def _is_tokenless(this_pass: Pass, key: str) -> bool:
    return any(
        job.user in this_pass.world.users_without_token
        for job in this_pass.world.jobs_of(this_pass.world.workloads[key])
    )
