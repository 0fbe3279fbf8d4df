"""What is done in turn for all workloads together: unknown jobs, details of waiting ones, the kick (Q2, ARCHITECTURE 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from scheduler import actions as act
from scheduler.actions import Kind
from scheduler.events import Side
from scheduler.guard import guarded
from scheduler.looking import trusted
from scheduler.phase import Phase, chosen
from scheduler.quarantine import holds
from scheduler.view import View
from scheduler.workload import Placeholder

FRONT = 3  # waiting workloads that count as the front of the queue


def read_unknown(view: View) -> None:
    """Ids that nobody hints at are read once each, newest first: many at start, few later (ARCHITECTURE 4)."""
    world = view.world
    if Side.SLURM in world.lost:
        return
    _read_put_off(view)
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


def _read_put_off(view: View) -> None:
    """Ids whose reads failed again and again: each of them seldom, at the low rate."""
    world = view.world
    for job_id, not_before in world.put_off.items():
        if view.now < not_before:
            view.wake_shared(not_before)
            return
        if view.being_read(job_id):
            continue
        if view.free("reads") <= 0:
            return
        if not view.ration("unknown"):
            view.wake_shared(world.rations["unknown"].next_at(view.now) + 0.001)
            return
        view.add(act.ReadJob(job_id, f"is job {job_id} ours? Its reads failed before", lane="unknown"))


def read_unsettled(view: View) -> None:
    """A bind whose answer was lost, and that is not repeated: its pod is read once the bind cannot take effect any more.

    Until then the pod takes room on that node (V5), and nothing else is asked for it.
    """
    world = view.world
    for uid, lost in world.may_land.items():
        workload, bind = world.workloads[world.key_of_pod[uid]], lost.action
        if uid not in workload.pods or workload.is_being_bound(uid) or view.being_read(uid):
            continue  # not of the workload: that was dropped (quarantine.py)
        if view.now < lost.until:
            view.wake_shared(lost.until)
        else:
            why = f"does {bind.namespace}/{bind.name} stand on {bind.node}? the answer to its bind was lost"
            view.add(act.ReadPod(workload.key, uid, bind.namespace, bind.name, why))


def read_details(view: View) -> None:
    """What Slurm says of waiting jobs: new ones and the front first, then round robin (Q2)."""
    world, tuning = view.world, view.tuning
    if Side.SLURM in world.lost:
        return
    again = ((key, last + tuning.detail_every_s) for key, last in world.detail_round.items())
    for key in chain(_due(world.detail_new.items(), view), _front(view), _due(again, view)):
        job = guarded(view, Kind.WORKLOAD, key, None, _chosen, view, key)
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
        job = guarded(view, Kind.WORKLOAD, key, None, _running, view, key)
        if job is None or view.being_read(job.id):
            continue
        if view.free("reads") <= 0:
            return
        if not view.ration("running"):
            view.wake_shared(world.rations["running"].next_at(view.now) + 0.001)
            return
        known = job.grant is not None
        view.add(act.ReadJob(job.id, f"when does job {job.id} end?", key, lane="running", grant=not known))


def _chosen(view: View, key: str) -> Placeholder | None:
    workload = view.world.workloads[key]
    return chosen(workload, view.world.mine(workload))


def _running(view: View, key: str) -> Placeholder | None:
    """The job that its pods run for; None: none that holds nodes."""
    workload = view.world.workloads[key]
    job = view.world.placeholders.get(workload.hint) if workload.hint is not None else None
    return job if job is not None and job.holds_nodes and job.key in (None, key) else None


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
    """Capacity was freed or a begin time has come, and jobs wait: have slurmctld look at once (ARCHITECTURE 5)."""
    world = view.world
    news = world.freed_at > world.kicked_at or view.begin_is_due
    if not news or Side.SLURM in world.lost or not world.by_phase[Phase.QUEUED]:
        return
    at = world.kicked_at + view.tuning.kick_every_s
    if view.now < at:
        view.wake_shared(at)
        return
    queued = (key for key in world.by_phase[Phase.QUEUED] if not holds(world, key))
    if world.tokenless:  # a kick in the name of such a user would only fail
        queued = (key for key in queued if not _is_tokenless(view, key))
    front = min(queued, key=lambda key: world.workloads[key].created, default=None)
    if front is None:
        return
    job = guarded(view, Kind.WORKLOAD, front, None, _chosen, view, front)
    if job is not None and trusted(job, view):
        why = "a begin time has come" if view.begin_is_due else "capacity was freed"
        why += ": Slurm is asked to look at its queue"
        view.add(act.Kick(front, job.id, job.user, why))


def _is_tokenless(view: View, key: str) -> bool:
    return any(job.user in view.world.tokenless for job in view.world.mine(view.world.workloads[key]))
