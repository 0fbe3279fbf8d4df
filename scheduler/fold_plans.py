"""Plans and how their actions ended, folded into the World: the holds (ARCHITECTURE 3).

When a plan is applied its holds are placed, before anything is performed; when an action ended, its outcome decides what
is known: done is a fact, refused is a no with a time to ask again, unknown is a reason to look.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler import fold_nodes, names
from scheduler.actions import Outcome
from scheduler.doubt import Doubt, disbelieve
from scheduler.edits import adopted, taken
from scheduler.model import Refusal, States
from scheduler.phase import Phase
from scheduler.rations import Breaker
from scheduler.workload import CANCELLED, PENDING, RUNNING, Hold, Look, Placeholder, Told, Workload

if TYPE_CHECKING:
    from scheduler.world import World

# No nodes for an immediate allocation now: "insufficient priority", "busy"; or never, SchedulerParameters has `defer`.
NO_ROOM = frozenset({2013, 2016, 2125})
TWIN = 2038  # dependency problem of an immediate allocation: a job of this name lives (FACTS 8)
UNKNOWN_NODE = 2018  # a list of nodes names one that Slurm does not have
NOBODYS = frozenset({UNKNOWN_NODE, 2068})  # nodes that nobody can have: unknown; down, drained or reserved
SLURMS_OWN = 2000  # error numbers of Slurm's own begin here; below are those of the system
SHOWN_S = 2.0  # what was written on a pod shows in its watch by then
MAX_UNREADABLE = 6  # failed reads of an unknown job
MAX_UNRECORDED = 16  # failed writes to accounting, over some ten minutes


def _planned(world: World, event: ev.Planned) -> None:
    for key in event.plan.looked_at:
        world.dirty.pop(key, None)
        for lane in world.parked.values():
            lane.pop(key, None)
    for name, keys in event.plan.parked.items():
        world.parked[name].update(dict.fromkeys(keys))
    for key in event.plan.forgotten:
        world.forget(key)
    for key, uid in event.plan.awaited.items():
        world.waits_for_owner.setdefault(uid, set()).add(key)
    for key, node in event.plan.excluded.items():
        world.workloads[key].excluded[node] = event.at + world.config.tuning.exclude_s
    for name in event.plan.kept:
        world.upkeep.dirty.pop(name, None)
    _set_timers(world, event.plan.wake, event.at)
    for action in event.plan.actions:
        world.under_way[act.LANES.get(type(action), "")] += 1
        placer = _PLACERS.get(type(action))
        if placer is not None:
            placer(world, action, event.at)


def _set_timers(world: World, wake: Mapping[str, float], now: float) -> None:
    while world.timers and world.timers[0][0] <= now:
        at, key = heapq.heappop(world.timers)
        if world.wakes.get(key) == at:
            del world.wakes[key]
    for key, at in wake.items():
        if at < world.wakes.get(key, float("inf")):
            world.wakes[key] = at
            heapq.heappush(world.timers, (at, key))


def _place_submission(world: World, action: act.AllocateNow | act.SubmitJob, at: float) -> None:
    workload = world.workloads[action.key]
    workload.hold = Hold(action, at)
    workload.refused = None
    world.limited.get(action.spec.user, {}).pop(action.key, None)
    partition = action.spec.partition or world.default_partition
    workload.asked_in = partition
    if isinstance(action, act.AllocateNow):
        if not world.immediate_under_way[partition]:
            world.tried_at[partition] = at
        world.immediate_under_way[partition] += 1
        if workload.keeps_apart:
            world.apart_under_way.add(workload.key)
    if action.spec.required_nodes:
        world.rations["retake"].take(at, 1)
    workload.tell(at, action.reason)
    world.refresh(workload)


def _place_slurm(world: World, action: act.CancelJob | act.UpdateJob | act.RecordEnd | act.FindJobs, at: float) -> None:
    workload = world.workloads[action.key]
    workload.hold = Hold(action, at)
    workload.tell(at, action.reason)
    if isinstance(action, act.FindJobs) and workload.look is not None:
        workload.look.asked_database = True
    if isinstance(action, act.UpdateJob):
        workload.updated_at = at


def _place_read(world: World, action: act.ReadJob, at: float) -> None:
    world.reading.add(action.job_id)
    if action.lane in world.rations:
        world.rations[action.lane].take(at, world.cost(action.lane))
    if action.lane == "detail":
        world.detail_new.pop(action.key, None)
        world.detail_round.pop(action.key, None)
        world.detail_round[action.key] = at  # to the end of the round
    elif action.lane == "running":
        world.running_new.pop(action.key, None)
        world.running_round.pop(action.key, None)
        world.running_round[action.key] = at


def _place_kick(world: World, action: act.Kick, at: float) -> None:
    world.kicked_at = at


_OnPod = act.BindPod | act.EvictPod | act.EndByDeadline | act.HandDeadline | act.AskEviction


def _place_on_pod(world: World, action: _OnPod, at: float) -> None:
    workload = world.workloads[action.key]
    workload.pod_holds[action.uid] = Hold(action, at)
    workload.tell(at, action.reason)
    if isinstance(action, act.BindPod):
        if len(workload.pod_holds) == 1 and not any(workload.node_of(pod) for pod in workload.members):
            workload.first_bound_at = at
        world.assume(workload.pods[action.uid], action.node)
    elif world.phase_of[workload.key] is Phase.REVOKED and not any(
        job.ended for job in world.mine(workload) if job.id == workload.hint
    ):
        world.rations["absent"].take(at, 1)


def _place_report(world: World, action: act.Report, at: float) -> None:
    workload = world.workloads[action.key]
    if action.event == names.CHANGE_IGNORED:
        workload.too_late.pop(action.uid, None)
    if action.event == names.DISBELIEVED:
        workload.doubted.pop(action.uid, None)
        return
    before = workload.told.get(action.uid)
    event_at = at if action.event else (before.event_at if before else float("-inf"))
    told = Told(action.condition, action.message, action.essence, action.starts, at, event_at)
    workload.told[action.uid] = told


def _place_report_running(world: World, action: act.ReportRunning, at: float) -> None:
    told = Told(action.condition, action.message, action.essence, None, at, at)
    world.workloads[action.key].told[action.uid] = told


def _place_owner(world: World, action: act.ReadOwner, at: float) -> None:
    world.reading_refs.add(action.ref.uid)


def _place_claims(world: World, action: act.ReadClaims | act.PlaceClaims, at: float) -> None:
    world.reading_refs.add(action.uid)


def _action_ended(world: World, event: ev.ActionEnded) -> None:
    action = event.action
    world.under_way[act.LANES.get(type(action), "")] -= 1
    ender = _ENDERS.get(type(action))
    if ender is not None:
        ender(world, action, event)
    key = getattr(action, "key", "")
    workload = world.workloads.get(key)
    if workload is not None:
        if event.outcome is not Outcome.DONE and event.refusal is not None:
            workload.tell(event.at, event.refusal.message)
        world.refresh(workload)


def _submission_ended(world: World, action: act.AllocateNow | act.SubmitJob, event: ev.ActionEnded) -> None:
    partition = action.spec.partition or world.default_partition
    breaker = world.breakers.setdefault(partition, Breaker())
    immediate = isinstance(action, act.AllocateNow)
    if immediate:
        world.immediate_under_way[partition] -= 1
        world.apart_under_way.discard(action.key)
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    workload.hold = None
    if event.outcome is Outcome.DONE and event.job_id is not None and _anothers_since(world, workload, event):
        # slurmctld lost its state between two answers, and gave the id out again: the job itself says whose it is
        disbelieve(world, Doubt.ID_AGAIN)
        workload.look = Look(event.began, event.at + world.config.tuning.settle_s, action.spec.name)
        world.seen_first[event.job_id] = event.at
        world.unread = sorted(world.seen_first)
    elif event.outcome is Outcome.DONE and event.job_id is not None:
        if immediate:
            breaker.granted()
        _made(world, workload, action, event, RUNNING if immediate else PENDING)
    elif event.outcome is Outcome.UNKNOWN:
        until = event.at + world.config.tuning.settle_s
        workload.look = Look(event.began, until, action.spec.name)
        if action.spec.required_nodes:
            _not_retaken(world, workload, "it is not known whether Slurm granted them again")
    elif event.outcome is Outcome.REFUSED and action.spec.required_nodes and _number(event) < SLURMS_OWN:
        world.back_off(workload, event.at)  # our token is not accepted: that says nothing of the nodes
        workload.refused = event.refusal
    elif event.outcome is Outcome.REFUSED and action.spec.required_nodes and _number(event) != TWIN:
        world.nodes_stale = world.nodes_stale or _number(event) == UNKNOWN_NODE
        if _number(event) in NOBODYS and _may_come_back(world, workload, event.at):
            world.back_off(workload, event.at)
        else:
            _not_retaken(world, workload, event.refusal.message if event.refusal is not None else "")
    elif event.outcome is Outcome.REFUSED and event.refusal is not None:
        _submission_refused(world, workload, breaker, action, event, event.refusal)
    else:
        world.back_off(workload, event.at)


def _anothers_since(world: World, workload: Workload, event: ev.ActionEnded) -> bool:
    """That id was learned to be another's while this answer was on its way."""
    known = world.placeholders.get(event.job_id or 0)
    return known is not None and known.key not in (None, workload.key) and known.alive and known.learned > event.began


def _number(event: ev.ActionEnded) -> int:
    return event.refusal.number if event.refusal is not None else 0


def _not_retaken(world: World, workload: Workload, why: str) -> None:
    """The nodes of a lost job are not had again, and it is not asked once more (S7)."""
    if (lost := _lost_job(world, workload)) is not None:
        workload.retaken = (lost.id, why)


def _may_come_back(world: World, workload: Workload, at: float) -> bool:
    """A node that is not in service is given to nobody meanwhile: a slurmctld that starts anew finds it again soon."""
    lost = _lost_job(world, workload)
    return lost is not None and at < lost.lost_since + world.config.tuning.retake_s


def _lost_job(world: World, workload: Workload) -> Placeholder | None:
    lost = [job for job in world.mine(workload) if job.key in (None, workload.key)]
    return next((job for job in lost if job.id == workload.hint), lost[-1] if lost else None)


def _made(
    world: World, workload: Workload, action: act.AllocateNow | act.SubmitJob, event: ev.ActionEnded, states: States
) -> None:
    assert event.job_id is not None
    world.known(event.job_id)
    world.foreign.discard(event.job_id)
    job = Placeholder(event.job_id, workload.key, action.spec.user, frozenset(), learned=event.at)
    job.spec, job.grant, job.asked_at = action.spec, event.grant, event.began
    _forget_lost(world, workload)
    stale = world.placeholders.get(event.job_id)
    if stale is not None:
        world.given_to(workload.key, stale, event.at)
        world.absent.discard(stale.id)
    world.placeholders[job.id] = job
    world.expected.add(job.id)
    workload.jobs.add(job.id)
    workload.hint = job.id
    workload.look = None
    workload.immediate_refused = False
    world.set_states(job, states, event.at)


def _forget_lost(world: World, workload: Workload) -> None:
    """It has another job now: nobody misses those that Slurm lost."""
    workload.bereft = None
    for job in world.mine(workload):
        if job.lost(world.config.tuning.absent_s) and job.key == workload.key:
            world.drop(job)


def _submission_refused(
    world: World,
    workload: Workload,
    breaker: Breaker,
    action: act.AllocateNow | act.SubmitJob,
    event: ev.ActionEnded,
    refusal: Refusal,
) -> None:
    tuning = world.config.tuning
    if isinstance(action, act.AllocateNow) and refusal.number in NO_ROOM:
        breaker.refused(event.at, tuning.breaker_open_s)
        workload.immediate_refused = True
    elif isinstance(action, act.AllocateNow) and refusal.later and refusal.number >= SLURMS_OWN:
        workload.immediate_refused = True  # a limit that a place in the queue may get around
    elif isinstance(action, act.AllocateNow) and refusal.number == TWIN:
        workload.look = Look(event.began, event.at + tuning.absent_s, action.spec.name, twin=True)
        workload.immediate_refused = True
        for job in world.placeholders.values():  # it may be one that a pod shows and nobody has read
            if job.key is None and job.alive:
                world.seen_first.setdefault(job.id, event.began)
        world.unread = sorted(world.seen_first)
    elif refusal.number == UNKNOWN_NODE:
        world.nodes_stale = True
        world.back_off(workload, event.at)
    else:
        world.back_off(workload, event.at)
        workload.refused = refusal
        workload.retry_at = workload.wait_until if refusal.later else event.at + tuning.refused_retry_s
        if refusal.later:
            world.limited.setdefault(action.spec.user, {})[workload.key] = None


def _cancel_ended(world: World, action: act.CancelJob, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is not None:
        workload.hold = None
    job = world.placeholders.get(action.job_id)
    if event.outcome is Outcome.DONE:
        renamed = job is not None and job.alive and job.read_began > event.began  # nothing of the old name was there
        if job is not None and not job.ended and not renamed:
            if job.holds_nodes:
                world.freed_at = event.at
            elif workload is not None and job.id == workload.hint:
                job.requeued = any(workload.node_of(pod) for pod in workload.unfinished)
            job.learned = event.at
            world.expected.add(job.id)
            world.absent.discard(job.id)
            world.set_states(job, CANCELLED, event.at)
            job.read_began, job.end_read = event.at, True  # the answer to the cancel is proof enough
        if workload is not None and action.record:
            workload.failures = 0
    elif workload is not None:
        world.back_off(workload, event.at)


def _slurm_write_ended(world: World, action: act.UpdateJob | act.RecordEnd, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    workload.hold = None
    job = world.placeholders.get(action.job_id)
    if isinstance(action, act.RecordEnd):
        if job is not None and (event.outcome is Outcome.DONE or workload.failures >= MAX_UNRECORDED):
            job.recorded = True
        else:
            world.back_off(workload, event.at)
        return
    if job is None:
        return
    if event.outcome is Outcome.DONE:
        workload.refused = None
        _take_changes(job, action)
        return
    world.back_off(workload, event.at)
    if event.outcome is not Outcome.REFUSED or event.refusal is None or event.refusal.later:
        return
    if event.refusal.number == UNKNOWN_NODE:
        world.nodes_stale = True
        return
    _take_changes(job, action)  # not asked again until something changes; the pod is told why
    workload.refused = event.refusal


def _take_changes(job: Placeholder, action: act.UpdateJob) -> None:
    """The job was asked for what was changed, and for nothing else of the new translation."""
    asked = job.spec or (adopted(action.spec, job.job) if job.job is not None else action.spec)
    job.spec = taken(asked, action.spec, action.component, action.changes)


def _find_ended(world: World, action: act.FindJobs, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    workload.hold = None
    for job_id in event.found:
        job = world.placeholders.get(job_id)
        if (job is None or job.key is None) and job_id not in world.foreign:
            world.seen_first.setdefault(job_id, event.began)
            if job_id not in world.unread:
                bisect.insort(world.unread, job_id)


def _read_ended(world: World, action: act.ReadJob, event: ev.ActionEnded) -> None:
    """What was read comes as JobRead; this only ends the hold, and whoever waited for it looks again."""
    world.reading.discard(action.job_id)
    if event.outcome is not Outcome.DONE and action.job_id in world.seen_first:
        _could_not_read(world, action.job_id, event.at)
    workload = world.workloads.get(action.key)
    if workload is not None and event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at)
    if action.job_id in world.placeholders:
        world.touch(world.placeholders[action.job_id])


def _could_not_read(world: World, job_id: int, at: float) -> None:
    """One job that cannot be read must not keep the others waiting; after some tries it is taken as somebody else's."""
    failed = world.unreadable.get(job_id, (0, at))[0] + 1
    if failed >= MAX_UNREADABLE:
        world.known(job_id)
        world.foreign.add(job_id)
    else:
        world.unreadable[job_id] = (failed, at + world.config.tuning.backoff_s * 2**failed)


def _place_nodes(world: World, action: act.PollNodes, at: float) -> None:
    world.nodes_stale = False


def _nodes_ended(world: World, action: act.PollNodes, event: ev.ActionEnded) -> None:
    """The nodes come as SlurmNodesPolled; a failed poll is tried again after a while."""
    if event.outcome is not Outcome.DONE:
        world.nodes_stale = True
        world.nodes_asked_from = event.at + world.config.tuning.backoff_s * 5


def _bind_ended(world: World, action: act.BindPod, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is None or action.uid not in workload.pods:
        _unassume(world, action)
        return
    workload.pod_holds.pop(action.uid, None)
    pod = workload.pods[action.uid]
    if event.outcome is Outcome.DONE:
        workload.bind_failures = workload.failures = 0
        workload.hint = action.job_id
        if not pod.node:
            workload.put_on(action.uid, action.node)
        return
    world.back_off(workload, event.at, event.began)
    workload.bind_failures += 1
    if event.outcome is not Outcome.UNKNOWN and pod.node != action.node:
        _unassume(world, action)


def _unassume(world: World, action: act.BindPod) -> None:
    if world.assumed.get(action.uid) == action.node:
        del world.assumed[action.uid]
        world.leave(action.node, action.uid)


def _eviction_ended(world: World, action: _OnPod, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    held = workload.pod_holds.pop(action.uid, None)
    if event.outcome is Outcome.DONE and held is not None and action.uid in workload.pods:
        grace_s = workload.pods[action.uid].grace_s
        workload.pod_holds[action.uid] = Hold(action, held.placed, until=event.at + grace_s + 30.0)
    else:
        world.back_off(workload, event.at, event.began)


def _deadline_ended(world: World, action: act.HandDeadline, event: ev.ActionEnded) -> None:
    """It ends nothing yet, and other news of the job is acted on meanwhile: waited for is only that the watch shows it."""
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    held = workload.pod_holds.pop(action.uid, None)
    if event.outcome is Outcome.DONE and held is not None and action.uid in workload.pods:
        workload.pod_holds[action.uid] = Hold(action, held.placed, until=event.at + SHOWN_S)
    elif event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at, event.began)


def _report_ended(world: World, action: act.Report | act.ReportRunning, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    told = workload.told.get(action.uid) if workload else None
    if told is not None and event.outcome is not Outcome.DONE and told.message == action.message:
        told.condition = told.message = ""  # say it again, after the usual pause
        told.essence = ()


def _owner_ended(world: World, action: act.ReadOwner, event: ev.ActionEnded) -> None:
    world.reading_refs.discard(action.ref.uid)
    if event.outcome is not Outcome.DONE:
        for key in world.waits_for_owner.get(action.ref.uid, ()):
            world.back_off(world.workloads[key], event.at) if key in world.workloads else None
            world.dirty[key] = None


def _claims_ended(world: World, action: act.ReadClaims | act.PlaceClaims, event: ev.ActionEnded) -> None:
    world.reading_refs.discard(action.uid)
    workload = world.workloads.get(action.key)
    if workload is not None and event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at)


_PLACERS: Mapping[type, Callable[[World, Any, float], None]] = {
    act.AllocateNow: _place_submission,
    act.SubmitJob: _place_submission,
    act.CancelJob: _place_slurm,
    act.UpdateJob: _place_slurm,
    act.RecordEnd: _place_slurm,
    act.FindJobs: _place_slurm,
    act.ReadJob: _place_read,
    act.Kick: _place_kick,
    act.BindPod: _place_on_pod,
    act.EvictPod: _place_on_pod,
    act.EndByDeadline: _place_on_pod,
    act.HandDeadline: _place_on_pod,
    act.AskEviction: _place_on_pod,
    act.Report: _place_report,
    act.ReportRunning: _place_report_running,
    act.ReadOwner: _place_owner,
    act.ReadClaims: _place_claims,
    act.PlaceClaims: _place_claims,
    act.PollNodes: _place_nodes,
    **fold_nodes.PLACERS,
}

_ENDERS: Mapping[type, Callable[[World, Any, ev.ActionEnded], None]] = {
    act.AllocateNow: _submission_ended,
    act.SubmitJob: _submission_ended,
    act.CancelJob: _cancel_ended,
    act.UpdateJob: _slurm_write_ended,
    act.RecordEnd: _slurm_write_ended,
    act.FindJobs: _find_ended,
    act.ReadJob: _read_ended,
    act.BindPod: _bind_ended,
    act.EvictPod: _eviction_ended,
    act.EndByDeadline: _eviction_ended,
    act.HandDeadline: _deadline_ended,
    act.AskEviction: _eviction_ended,
    act.Report: _report_ended,
    act.ReportRunning: _report_ended,
    act.ReadOwner: _owner_ended,
    act.ReadClaims: _claims_ended,
    act.PlaceClaims: _claims_ended,
    act.PollNodes: _nodes_ended,
    **fold_nodes.ENDERS,
}

FOLDS: Mapping[type, Callable[[World, Any], None]] = {
    ev.Planned: _planned,
    ev.ActionEnded: _action_ended,
}
