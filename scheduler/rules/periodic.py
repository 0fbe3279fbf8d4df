"""What is done in turn for all workloads together: unknown jobs, details of waiting ones, the kick (Q2, ARCHITECTURE 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from scheduler import actions as act
from scheduler.actions import Kind
from scheduler.events import Side
from scheduler.rules.guard import guarded
from scheduler.rules.identity import trusted
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.phase import Phase, chosen
from scheduler.state.workload import Placeholder

FRONT = 3  # waiting workloads that count as the front of the queue


def read_unknown(this_pass: Pass) -> None:
    """Ids that nobody hints at are read once each, newest first: many at start, few later (ARCHITECTURE 4)."""
    world = this_pass.world
    if Side.SLURM in world.lost:
        return
    _read_put_off(this_pass)
    limit_class = "scan" if world.looking or this_pass.now < world.scan_until else "unknown"
    for job_id in reversed(world.unread):
        if this_pass.being_read(job_id):
            continue
        not_before = world.unreadable.get(job_id, (0, float("-inf")))[1]
        if this_pass.now < not_before:
            this_pass.wake_shared(not_before)
            continue
        if this_pass.free("reads") <= 0:
            return  # a read that ends makes the next pass
        if not this_pass.take_token(limit_class):
            this_pass.wake_shared(world.token_buckets[limit_class].next_at(this_pass.now) + 0.001)
            return
        this_pass.add(act.ReadJob(job_id, f"is job {job_id} ours?", limit_class=limit_class))


def _read_put_off(this_pass: Pass) -> None:
    """Ids whose reads failed again and again: each of them seldom, at the low rate."""
    world = this_pass.world
    for job_id, not_before in world.put_off.items():
        if this_pass.now < not_before:
            this_pass.wake_shared(not_before)
            return
        if this_pass.being_read(job_id):
            continue
        if this_pass.free("reads") <= 0:
            return
        if not this_pass.take_token("unknown"):
            this_pass.wake_shared(world.token_buckets["unknown"].next_at(this_pass.now) + 0.001)
            return
        this_pass.add(act.ReadJob(job_id, f"is job {job_id} ours? Its reads failed before", limit_class="unknown"))


def read_unsettled(this_pass: Pass) -> None:
    """A bind whose answer was lost, and that is not repeated: its pod is read once the bind cannot take effect any more.

    Until then the pod takes room on that node (V5), and nothing else is asked for it.
    """
    world = this_pass.world
    for uid, lost in world.may_land.items():
        workload, bind = world.workloads[world.key_of_pod[uid]], lost.action
        if uid not in workload.pods or workload.is_being_bound(uid) or this_pass.being_read(uid):
            continue  # not of the workload: that was dropped (quarantine.py)
        if this_pass.now < lost.until:
            this_pass.wake_shared(lost.until)
        else:
            why = f"does {bind.namespace}/{bind.name} stand on {bind.node}? the answer to its bind was lost"
            this_pass.add(act.ReadPod(workload.key, uid, bind.namespace, bind.name, why))


def read_details(this_pass: Pass) -> None:
    """What Slurm says of waiting jobs: new ones and the front first, then round robin (Q2)."""
    world, tuning = this_pass.world, this_pass.tuning
    if Side.SLURM in world.lost:
        return
    again = ((key, last + tuning.detail_every_s) for key, last in world.detail_round.items())
    for key in chain(_due(world.detail_new.items(), this_pass), _front(this_pass), _due(again, this_pass)):
        job = guarded(this_pass, Kind.WORKLOAD, key, None, _chosen, this_pass, key)
        if job is None or this_pass.being_read(job.id):
            continue
        if this_pass.free("reads") <= 0:
            return
        if not this_pass.take_token("detail"):
            this_pass.wake_shared(world.token_buckets["detail"].next_at(this_pass.now) + 0.001)
            return
        this_pass.add(act.ReadJob(job.id, f"why does job {job.id} wait?", key, limit_class="detail"))


def read_running(this_pass: Pass) -> None:
    """When jobs end whose pods run: an admin may change that, and no poll of states shows it (S9).

    Where thousands run it is seldom the turn of each, so that an idle bridge is quiet; what is to be done at a job's end
    waits for no turn where its pods say how long they may take (S4b).
    """
    world, tuning = this_pass.world, this_pass.tuning
    if Side.SLURM in world.lost:
        return
    again = ((key, last + tuning.running_every_s) for key, last in world.running_round.items())
    for key in chain(_due(world.running_new.items(), this_pass), _due(again, this_pass)):
        job = guarded(this_pass, Kind.WORKLOAD, key, None, _running, this_pass, key)
        if job is None or this_pass.being_read(job.id):
            continue
        if this_pass.free("reads") <= 0:
            return
        if not this_pass.take_token("running"):
            this_pass.wake_shared(world.token_buckets["running"].next_at(this_pass.now) + 0.001)
            return
        known = job.grant is not None
        this_pass.add(act.ReadJob(job.id, f"when does job {job.id} end?", key, limit_class="running", grant=not known))


def _chosen(this_pass: Pass, key: str) -> Placeholder | None:
    workload = this_pass.world.workloads[key]
    return chosen(workload, this_pass.world.mine(workload))


def _running(this_pass: Pass, key: str) -> Placeholder | None:
    """The job that its pods run for; None: none that holds nodes."""
    workload = this_pass.world.workloads[key]
    job = this_pass.world.placeholders.get(workload.hint) if workload.hint is not None else None
    return job if job is not None and job.holds_nodes and job.key in (None, key) else None


def _front(this_pass: Pass) -> Iterator[str]:
    """Those that came into the queue first start first: what is said of them is worth a read more often (Q2)."""
    world = this_pass.world
    for key in islice(world.by_phase[Phase.QUEUED], FRONT):
        if (last := world.detail_round.get(key)) is None:
            continue
        if last + this_pass.tuning.condition_s <= this_pass.now:
            yield key
        else:
            this_pass.wake_shared(last + this_pass.tuning.condition_s)


def _due(ordered: Iterable[tuple[str, float]], this_pass: Pass) -> Iterator[str]:
    """The keys whose time has come; ordered by that time."""
    for key, at in ordered:
        if at > this_pass.now:
            this_pass.wake_shared(at)
            return
        yield key


def nudge(this_pass: Pass) -> None:
    """Capacity was freed or a begin time has come, and jobs wait: have slurmctld look at once (ARCHITECTURE 5)."""
    world = this_pass.world
    news = world.freed_at > world.nudged_at or this_pass.begin_is_due
    if not news or Side.SLURM in world.lost or not world.by_phase[Phase.QUEUED]:
        return
    at = world.nudged_at + this_pass.tuning.kick_every_s
    if this_pass.now < at:
        this_pass.wake_shared(at)
        return
    queued = (key for key in world.by_phase[Phase.QUEUED] if not world.is_quarantined(key))
    if world.tokenless:  # a kick in the name of such a user would only fail
        queued = (key for key in queued if not _is_tokenless(this_pass, key))
    front = min(queued, key=lambda key: world.workloads[key].created, default=None)
    if front is None:
        return
    job = guarded(this_pass, Kind.WORKLOAD, front, None, _chosen, this_pass, front)
    if job is not None and trusted(job, this_pass):
        why = "a begin time has come" if this_pass.begin_is_due else "capacity was freed"
        why += ": Slurm is asked to look at its queue"
        this_pass.add(act.NudgeScheduler(front, job.id, job.user, why))


def _is_tokenless(this_pass: Pass, key: str) -> bool:
    return any(job.user in this_pass.world.tokenless for job in this_pass.world.mine(this_pass.world.workloads[key]))
