"""What is done in turn for all workloads together: unknown jobs, details of waiting ones, the kick (Q2, section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from scheduler import actions as act
from scheduler.events import Side
from scheduler.looking import trusted
from scheduler.phase import Phase, chosen
from scheduler.view import View

FRONT = 3  # waiting workloads that count as the front of the queue


def read_unknown(view: View) -> None:
    """Ids that nobody hints at are read once each, newest first: many at start, few later (ARCHITECTURE 4)."""
    world = view.world
    if not world.unread or Side.SLURM in world.lost:
        return
    lane = "scan" if world.looking or view.now < world.scan_until else "unknown"
    for job_id in reversed(world.unread):
        if view.being_read(job_id):
            continue
        not_before = world.unreadable.get(job_id, (0, float("-inf")))[1]
        if view.now < not_before:
            view.wake_shared(not_before)
            continue
        if view.free("reads") <= 0:
            return  # a read that ends makes the next pass
        if not view.ration(lane):
            view.wake_shared(world.rations[lane].next_at(view.now) + 0.001)
            return
        view.add(act.ReadJob(job_id, f"is job {job_id} ours?", lane=lane))


def read_details(view: View) -> None:
    """What Slurm says of waiting jobs: new ones and the front first, then round robin (Q2)."""
    world, tuning = view.world, view.tuning
    if Side.SLURM in world.lost:
        return
    again = ((key, last + tuning.detail_every_s) for key, last in world.detail_round.items())
    for key in chain(_due(world.detail_new.items(), view), _front(view), _due(again, view)):
        job = chosen(world.workloads[key], world.mine(world.workloads[key]))
        if job is None or view.being_read(job.id):
            continue
        if view.free("reads") <= 0:
            return
        if not view.ration("detail"):
            view.wake_shared(world.rations["detail"].next_at(view.now) + 0.001)
            return
        view.add(act.ReadJob(job.id, f"why does job {job.id} wait?", key, lane="detail"))


def read_running(view: View) -> None:
    """When jobs end whose pods run: an admin may change that, and no poll of states shows it (S9).

    Where thousands run it is seldom the turn of each, so that an idle bridge is quiet; what is to be done at a job's end
    waits for no turn where its pods say how long they may take (S4b).
    """
    world, tuning = view.world, view.tuning
    if Side.SLURM in world.lost:
        return
    again = ((key, last + tuning.running_every_s) for key, last in world.running_round.items())
    for key in chain(_due(world.running_new.items(), view), _due(again, view)):
        workload = world.workloads[key]
        job = world.placeholders.get(workload.hint) if workload.hint is not None else None
        if job is None or not job.holds_nodes or job.key not in (None, key) or view.being_read(job.id):
            continue
        if view.free("reads") <= 0:
            return
        if not view.ration("running"):
            view.wake_shared(world.rations["running"].next_at(view.now) + 0.001)
            return
        known = job.grant is not None
        view.add(act.ReadJob(job.id, f"when does job {job.id} end?", key, lane="running", grant=not known))


def _front(view: View) -> Iterator[str]:
    """Those that came into the queue first start first: what is said of them is worth a read more often (Q2)."""
    world = view.world
    for key in islice(world.by_phase[Phase.QUEUED], FRONT):
        if (last := world.detail_round.get(key)) is None:
            continue
        if last + view.tuning.condition_s <= view.now:
            yield key
        else:
            view.wake_shared(last + view.tuning.condition_s)


def _due(ordered: Iterable[tuple[str, float]], view: View) -> Iterator[str]:
    """The keys whose time has come; ordered by that time."""
    for key, at in ordered:
        if at > view.now:
            view.wake_shared(at)
            return
        yield key


def kick(view: View) -> None:
    """Capacity was freed or a begin time has come, and jobs wait: have slurmctld look now, not at its leisure (section 5)."""
    world = view.world
    news = world.freed_at > world.kicked_at or view.begin_is_due
    if not news or Side.SLURM in world.lost or not world.by_phase[Phase.QUEUED]:
        return
    at = world.kicked_at + view.tuning.kick_every_s
    if view.now < at:
        view.wake_shared(at)
        return
    front = min(world.by_phase[Phase.QUEUED], key=lambda key: world.workloads[key].created)
    job = chosen(world.workloads[front], world.mine(world.workloads[front]))
    if job is not None and trusted(job, view):
        comment = job.job.comment if job.job is not None else (job.spec.comment if job.spec is not None else "")
        why = "a begin time has come" if view.begin_is_due else "capacity was freed"
        why += ": Slurm is asked to look at its queue"
        view.add(act.Kick(front, job.id, job.user, comment, why))
