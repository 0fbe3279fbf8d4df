"""Periodic work for all workloads together: reads of unknown, waiting and running jobs, the nudge (Q2, ARCHITECTURE 5).

Each rule returns its steps, the most important first.  The driver takes as many as limits and token buckets allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from scheduler import actions as act
from scheduler.actions import ObjectKind
from scheduler.events import Side
from scheduler.rules.decision import Act, NextPass, SharedStep
from scheduler.rules.guard import guarded
from scheduler.rules.identity import is_trusted
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder

FRONT = 3  # waiting workloads that count as the front of the queue


def read_postponed(this_pass: Pass) -> Iterator[SharedStep]:
    """Read ids whose reads failed again and again: each seldom, at the low rate."""
    world = this_pass.world
    if Side.SLURM in world.outages:
        return
    for job_id, not_before in world.reads_postponed.items():
        if this_pass.now < not_before:
            yield NextPass(not_before)
            return
        yield _read(act.ReadJob(job_id, f"is job {job_id} ours? Its reads failed before", bucket="unknown"))


def read_unknown(this_pass: Pass) -> Iterator[SharedStep]:
    """Read each job id that no pod names, once, newest first: many a second after the start, few later (ARCHITECTURE 4)."""
    world = this_pass.world
    if Side.SLURM in world.outages:
        return
    bucket = "scan" if world.searching_workloads or this_pass.now < world.scan_until else "unknown"
    for job_id in reversed(world.unread):
        not_before = world.unreadable.get(job_id, (0, float("-inf")))[1]
        if this_pass.now < not_before:
            yield NextPass(not_before)
        else:
            yield _read(act.ReadJob(job_id, f"is job {job_id} ours?", bucket=bucket))


def read_unanswered_binds(this_pass: Pass) -> Iterator[SharedStep]:
    """Read the pod of each bind whose answer was lost, when the bind can no longer take effect.

    Until then the pod takes room on that node (V5), and nothing else is submitted for it.
    """
    world = this_pass.world
    for uid, lost in world.unanswered_binds.items():
        workload, bind = world.workloads[world.key_of_pod[uid]], lost.action
        if uid not in workload.pods or workload.is_being_bound(uid):
            continue  # the workload was dropped (quarantine.py), or the pod is being bound
        if this_pass.now < lost.until:
            yield NextPass(lost.until)
        else:
            why = f"is {bind.namespace}/{bind.name} on {bind.node}? the answer to its bind was lost"
            yield Act(act.ReadPod(workload.key, uid, bind.namespace, bind.name, why))


def read_details(this_pass: Pass) -> Iterator[SharedStep]:
    """Read the details of waiting jobs: new jobs and the front of the queue first, then round robin (Q2).

    The round takes half of the rate, so the fewer jobs wait, the sooner a new reason is read.
    """
    world, tuning = this_pass.world, this_pass.tuning
    if Side.SLURM in world.outages:
        return
    yield from _due(world.detail_new.items(), _read_detail, this_pass)
    # The workloads that came into the queue first start first, so their jobs are read more often.
    for key in islice(world.by_phase[Phase.QUEUED], FRONT):
        if (last := world.detail_round.get(key)) is not None:
            yield from _due([(key, last + tuning.detail_front_s)], _read_detail, this_pass)
    every_s = min(tuning.detail_every_s, max(tuning.detail_front_s, len(world.detail_round) / (tuning.detail_rate / 2)))
    again = ((key, last + every_s) for key, last in world.detail_round.items())
    yield from _due(again, _read_detail, this_pass)


def _read_detail(key: str, this_pass: Pass) -> Act | None:
    job = this_pass.world.job_of.get(key)
    if job is None:
        return None
    return _read(act.ReadJob(job.id, f"why does job {job.id} wait?", key, bucket="detail"))


def read_running(this_pass: Pass) -> Iterator[SharedStep]:
    """Read when jobs of running pods end: an admin may change that, and no poll of states shows it (S9).

    If thousands run, each is read seldom, so that an idle bridge causes little load.  Actions at a job's end do not depend on
    these reads if its pods have a time limit (S4b).
    """
    world, tuning = this_pass.world, this_pass.tuning
    if Side.SLURM in world.outages:
        return
    yield from _due(world.running_new.items(), _read_end, this_pass)
    again = ((key, last + tuning.running_every_s) for key, last in world.running_round.items())
    yield from _due(again, _read_end, this_pass)


def _read_end(key: str, this_pass: Pass) -> Act | None:
    job = guarded(this_pass, ObjectKind.WORKLOAD, key, None, _running, this_pass, key)
    if job is None:
        return None
    known = job.grant is not None
    return _read(act.ReadJob(job.id, f"when does job {job.id} end?", key, bucket="running", grant=not known))


def _running(this_pass: Pass, key: str) -> Placeholder | None:
    """The job of the running pods; None: none of their jobs holds nodes."""
    workload = this_pass.world.workloads[key]
    job = this_pass.world.job_of_bound_pods(workload)
    return job if job is not None and job.holds_nodes and job.key in (None, key) else None


def _read(read: act.ReadJob) -> Act:
    return Act(read, read.bucket)


def _due(
    ordered: Iterable[tuple[str, float]], read: Callable[[str, Pass], Act | None], this_pass: Pass
) -> Iterator[SharedStep]:
    """The reads of the keys whose time has come, then the time of the next key.

    ordered  keys with their times, earliest first
    read     the read for a key; None: nothing is to be read
    """
    for key, at in ordered:
        if at > this_pass.now:
            yield NextPass(at)
            return
        if (step := read(key, this_pass)) is not None:
            yield step


def nudge(this_pass: Pass) -> Iterator[SharedStep]:
    """Capacity was freed or a begin time has come, and jobs wait: make slurmctld schedule at once (ARCHITECTURE 5)."""
    world = this_pass.world
    news = world.freed_at > world.nudged_at or this_pass.begin_is_due
    if not news or Side.SLURM in world.outages:
        return
    at = world.nudged_at + this_pass.tuning.nudge_every_s
    if this_pass.now < at:
        yield NextPass(at)
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
        yield Act(act.NudgeScheduler(front, job.id, job.user, why))


def _is_tokenless(this_pass: Pass, key: str) -> bool:
    return any(
        job.user in this_pass.world.users_without_token
        for job in this_pass.world.jobs_of(this_pass.world.workloads[key])
    )
