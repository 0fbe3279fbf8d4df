"""Plans, and how their actions ended, folded into the World (ARCHITECTURE 3).

When a plan is applied, its actions count as in flight before any is performed.  When an action ended, its outcome decides
what is known: DONE is a fact, REFUSED sets a time for the next attempt, UNKNOWN starts a search.

An answer says something about the object that the call was sent for.  While the answer was on its way a job id may have been
given to another job, and a pod may have gone or moved to another workload.  So each answer is matched first:

  answer to                  what it is believed of
  AllocateNow, SubmitJob     the workload.  The new id, unless a read or an answer since the call was sent says that the id
                             is another's: then the job is looked up by its name.  A no to a lost job's nodes: that job
  CancelJob, UpdateJob,      the placeholder of that id, if it is the same workload's and no later submission was given the
  RecordEnd                  id.  A cancel: not where a read that began after it shows the job alive
  FindJobs                   nothing: the ids that it tells are read
  ReadJob                    nothing: what was read is a fact of its own (JobRead), held against what was learned later
  NudgeScheduler             nothing
  BindPod                    the pod of that UID, in whichever workload it is by now; its job, if that is still the same
  DeletePod, FailByDeadline,   the pod of that UID, in whichever workload it is by now
  EvictPod, SetDeadline
  SetPodCondition,           what that pod was told last, if it is that sentence
  RestoreKeys                nothing: the watch shows what became of it
  ReadOwner, ReadClaims,     nothing: what was read is a fact of its own (OwnerRead, ClaimsRead), by the object's UID
  SelectVolumeNode
  ReadPod                    the bind that it was asked for, if no other was sent since
  PollNodes                  nothing: SlurmNodesPolled, held against the poll before

and those about nodes in node_results.py.  An action is in flight until its own answer comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler import names
from scheduler.actions import Kind, Outcome
from scheduler.apply import node_results
from scheduler.apply.membership import rejoin_gang, settle, settle_by_plan
from scheduler.model.anomaly import Anomaly
from scheduler.model.kubernetes import OwnerKey, owner_key
from scheduler.model.refusal import Refusal
from scheduler.policy.rules import with_filled
from scheduler.state import confirmation, quarantine
from scheduler.state.anomalies import reject
from scheduler.state.phase import Phase
from scheduler.state.token_buckets import Breaker
from scheduler.state.workload import (
    CANCELLED,
    PENDING,
    RUNNING,
    Attempt,
    Backoff,
    InFlight,
    JobSearch,
    LastStatus,
    LeftOut,
    LostBind,
    Placeholder,
    Workload,
    after_unusable_grant,
)
from scheduler.state.world import World
from scheduler.translate.job_update import adopted, taken

# No nodes for an immediate allocation now: "insufficient priority", "busy"; or never, SchedulerParameters has `defer`.
NO_ROOM = frozenset({2013, 2016, 2125})
TWIN = 2038  # dependency problem of an immediate allocation: a job of this name lives (Slurm facts 8)
UNKNOWN_NODE = 2018  # a list of nodes names one that Slurm does not have
UNAVAILABLE = frozenset({UNKNOWN_NODE, 2068})  # nodes that no job can have: unknown; down, drained or reserved
SLURMS_OWN = 2000  # error numbers of Slurm's own begin here; below are those of the system
NAMES_UNKNOWN = frozenset({2000, 2045, 2066, 6010})  # partition, account, QOS, user: one that Slurm does not know
SAYS_NOTHING = frozenset({401, 429})  # rejected credentials, too many requests: such a refusal does not concern the pod
BIND_FAILED = "Kubernetes did not take the bind."
POD_AGAIN_S = 5.0  # a pod that could not be read is read again after so long
MAX_RETRY_AFTER_S = 300.0
END_RETRY_AFTER_S = 30.0  # for a kind of Attempt: L4 allows 45 s in all, and nodes are held meanwhile
SHOWN_S = 2.0  # what was written on a pod shows in its watch by then
MAX_UNRECORDED = 16  # writes that accounting refused or did not answer, over some ten minutes
MAX_FAILURES_REMEMBERED = 10_000  # owners and claims that cannot be read


def _planned(world: World, event: ev.Planned) -> None:
    _wait_in_turn(world, event.plan)
    _take_turns(world, event.plan)
    _bound_the_waiting_records(world)
    for key in event.plan.forgotten:
        world.forget(key)
    for key, owner in event.plan.awaited.items():
        world.waits_for_owner.setdefault(owner, set()).add(key)
    _leave_nodes_out(world, event.plan, event.at)
    for key, uid in event.plan.written_off:
        try:
            _write_off(world, key, uid)
        except Exception as error:  # noqa: BLE001 - contained to the workload, or raised
            quarantine.quarantine_workload(world, key, error)
    _adopt(world, event.plan)
    for key in event.plan.settled:
        _settle(world, key, event.at)
    for name in event.plan.visited_nodes:
        world.node_state.dirty.pop(name, None)
    _set_timers(world, event.plan.wake, event.at)
    for action in event.plan.actions:
        try:
            _action_planned(world, action, event.at)
        except Exception as error:  # noqa: BLE001 - contained to what the action is about, or raised
            _planning_failed(world, event.plan, action, error)
    quarantine.planned(world, event.plan)


def _wait_in_turn(world: World, plan: act.Plan) -> None:
    """A visited workload that waits in a full limit class again keeps its place there, whatever it was visited for (I7)."""
    waits = {(name, key) for name, keys in plan.parked.items() for key in keys} - plan.yielding
    for key in plan.visited:
        world.dirty.pop(key, None)
        for name in [name for name in world.parked_in.get(key, ()) if (name, key) not in waits]:
            world.unpark(key, name)
    for name, keys in plan.parked.items():
        for key in keys:
            world.park(key, name)


def _adopt(world: World, plan: act.Plan) -> None:
    for job_id, spec in plan.adopted:
        if (job := world.placeholders.get(job_id)) is not None and job.spec is None:
            job.adopted_as = spec


def _settle(world: World, key: str, at: float) -> None:
    try:
        settle_by_plan(world, key, at)
    except Exception as error:  # noqa: BLE001 - contained to the workload, or raised
        world.unsettled.pop(key, None)
        quarantine.quarantine_workload(world, key, error)


def _leave_nodes_out(world: World, plan: act.Plan, at: float) -> None:
    exclude_s = world.config.tuning.exclude_s
    for key, nodes in plan.left_out.items():
        if (workload := world.workloads.get(key)) is not None:
            before = workload.left_out or LeftOut(nodes, at)
            workload.left_out = replace(before, nodes=nodes, judged_at=at + exclude_s)
    for key, node in plan.excluded.items():
        if (workload := world.workloads.get(key)) is not None:
            workload.left_out = after_unusable_grant(workload.left_out, node, at, exclude_s)
            world.note_crowded(node, at + exclude_s)


def _write_off(world: World, key: str, uid: str) -> None:
    if (workload := world.workloads.get(key)) is not None:
        workload.write_off(uid)
        if settle(world, workload):
            world.refresh(workload)


def _action_planned(world: World, action: act.Action, at: float) -> None:
    """Note that the action is in flight.  A change for a workload that this plan dropped is not placed, and not performed."""
    key = getattr(action, "key", "")
    if world.quarantine and action.effect is act.Effect.WORKLOAD and quarantine.is_dropped(world, Kind.WORKLOAD, key):
        return
    world.in_flight[id(action)] = action
    world.under_way[action.limit_class] += 1
    on_planned = _ON_PLANNED.get(type(action))
    if on_planned is not None:
        on_planned(world, action, at)


def _planning_failed(world: World, plan: act.Plan, action: act.Action, error: Exception) -> None:
    """No action of this plan is performed for its workload."""
    key = getattr(action, "key", "")
    for each in plan.actions:
        if each is action or (key and getattr(each, "key", "") == key):
            world.in_flight.pop(id(each), None)
    quarantine.action_failed(world, action, error)


def _take_turns(world: World, plan: act.Plan) -> None:
    world.deferred, world.turns = plan.deferred, plan.turns
    if plan.anti_affinity_done:
        world.affinity_index.clear_changes()
        world.anti_affinity_namespaces.clear()


def _set_timers(world: World, wake: Mapping[str, float], now: float) -> None:
    while world.timers and world.timers[0][0] <= now:
        at, key = heapq.heappop(world.timers)
        if world.wakes.get(key) == at:
            del world.wakes[key]
    for key, at in wake.items():
        if at < world.wakes.get(key, float("inf")):
            world.wakes[key] = at
            heapq.heappush(world.timers, (at, key))


def _submission_planned(world: World, action: act.AllocateNow | act.SubmitJob, at: float) -> None:
    workload = world.workloads[action.key]
    lost = _lost_job(world, workload) if action.spec.required_nodes else None
    asked_for = frozenset(pod.uid for pod in workload.members)
    workload.in_flight = InFlight(action, at, lost_job=lost.id if lost is not None else None, asked_for=asked_for)
    world.clear_refusal(workload)
    partition = action.spec.partition or world.default_partition
    workload.asked_in = partition
    if isinstance(action, act.AllocateNow):
        if not world.immediate_in_flight[partition]:
            world.tried_at[partition] = at
        world.immediate_in_flight[partition] += 1
        world.immediate_in[action.key] = partition
        if workload.has_anti_affinity:
            world.anti_affinity_in_flight.add(workload.key)
    if action.spec.required_nodes:
        world.token_buckets["retake"].take(at, 1)
    elif (rate := world.quotas.rate(workload)) is not None:
        world.token_buckets[rate].take(at, 1)
    workload.add_to_story(at, action.reason)
    world.refresh(workload)


def _slurm_action_planned(
    world: World, action: act.CancelJob | act.UpdateJob | act.RecordEnd | act.FindJobs, at: float
) -> None:
    workload = world.workloads[action.key]
    workload.in_flight = InFlight(action, at)
    workload.add_to_story(at, action.reason)
    if isinstance(action, act.FindJobs) and workload.job_search is not None:
        workload.job_search.asked_database = True
    if isinstance(action, act.CancelJob) and action.pod_message:
        workload.releasing = (action.job_id, action.pod_message)
    if isinstance(action, act.UpdateJob):
        workload.updated_at = at


def _read_planned(world: World, action: act.ReadJob, at: float) -> None:
    world.reading.add(action.job_id)
    if (workload := world.workloads.get(action.key)) is not None and workload.of_other_scheduler:
        world.claimed_by_others.setdefault(action.job_id, set()).add(action.key)
    if action.bucket in world.token_buckets:
        world.token_buckets[action.bucket].take(at, world.tokens_of_read(action.bucket))
    if action.bucket == "detail":
        world.detail_new.pop(action.key, None)
        world.detail_round.pop(action.key, None)
        world.detail_round[action.key] = at  # to the end of the round
    elif action.bucket == "running":
        world.running_new.pop(action.key, None)
        world.running_round.pop(action.key, None)
        world.running_round[action.key] = at


def _nudge_planned(world: World, action: act.NudgeScheduler, at: float) -> None:
    world.nudged_at = at


_OnPod = act.BindPod | act.DeletePod | act.FailByDeadline | act.SetDeadline | act.EvictPod


def _pod_action_planned(world: World, action: _OnPod, at: float) -> None:
    workload = world.workloads[action.key]
    workload.pods_in_flight[action.uid] = InFlight(action, at)
    workload.add_to_story(at, action.reason)
    if isinstance(action, act.BindPod):
        if len(workload.pods_in_flight) == 1 and not any(workload.node_of(pod) for pod in workload.members):
            workload.first_bound_at = at
        workload.unconfirmed_binds[action.uid], workload.bound_by_this_process = action, True
        world.assume(workload.pods[action.uid], action.node)
    elif world.phase_of[workload.key] is Phase.ORPHANED and not any(
        job.ended for job in world.jobs_of(workload) if job.id == workload.hint
    ):
        world.token_buckets["absent"].take(at, 1)


def _pod_condition_planned(world: World, action: act.SetPodCondition, at: float) -> None:
    workload = world.workloads[action.key]
    if action.annotations is not None:
        workload.renewed[action.uid] = action.annotations
    if action.event == names.BYPASS:
        world.bypassing.add(action.uid)
    if action.event == names.CHANGE_IGNORED:
        workload.late_changes.pop(action.uid, None)
    if action.event == names.REJECTED:
        workload.anomalies.pop(action.uid, None)
        return
    if action.event == names.GRANT_RELEASED:
        workload.release_messages.pop(action.uid, None)
    if action.event in (names.SCHEDULED, names.ENDED):
        workload.proven.pop(action.uid, None)
        return
    before = workload.last_status.get(action.uid)
    event_at = at if action.event else (before.event_at if before else float("-inf"))
    status = LastStatus(action.condition, action.message, action.essence, action.starts, at, event_at)
    workload.last_status[action.uid] = status


def _job_condition_planned(world: World, action: act.SetJobCondition, at: float) -> None:
    status = LastStatus(action.condition, action.message, action.essence, None, at, at)
    world.workloads[action.key].last_status[action.uid] = status


def _restore_planned(world: World, action: act.RestoreKeys, at: float) -> None:
    workload = world.workloads[action.key]
    edited = workload.edited[action.uid]
    edited.under_way = True
    workload.add_to_story(at, f"{action.name}: {action.reason}")


def _owner_read_planned(world: World, action: act.ReadOwner, at: float) -> None:
    key = owner_key(action.namespace, action.ref)
    world.reading_refs.add(key)
    world.owner_asked_at[key] = at
    if action.key:  # read again
        world.token_buckets["owners"].take(at, 1)


def _pod_read_planned(world: World, action: act.ReadClaims | act.SelectVolumeNode | act.ReadPod, at: float) -> None:
    world.reading_refs.add(action.uid)


def _action_ended(world: World, event: ev.ActionEnded) -> None:
    action = event.action
    world.in_flight.pop(id(action), None)
    world.under_way[action.limit_class] -= 1
    ender = _ON_ENDED.get(type(action))
    if ender is not None:
        ender(world, action, event)
    workload = world.workloads.get(getattr(action, "key", ""))
    if workload is not None:
        if event.outcome is not Outcome.DONE and event.refusal is not None:
            workload.add_to_story(event.at, event.refusal.message)
            if not isinstance(
                action, act.SetPodCondition | act.SetJobCondition
            ):  # what is only told keeps nothing waiting
                _wait_as_requested(workload, action, event.refusal, event.at)
        elif event.outcome is Outcome.DONE and (attempt := ATTEMPTS.get(type(action))) is not None:
            workload.backoffs.pop(attempt, None)
        rejoin_gang(world, workload)
        world.refresh(workload)
    moved_to = _workload_of(world, getattr(action, "uid", ""))
    if moved_to is not None and moved_to is not workload:
        world.refresh(moved_to)


def _wait_as_requested(workload: Workload, action: act.Action, refusal: Refusal, at: float) -> None:
    """The far side says for how long it takes no more requests.  What ends waits less, and for itself alone."""
    requested_s = refusal.retry_after_s or 0.0
    if (attempt := ATTEMPTS.get(type(action))) is not None:
        before = workload.backoffs.get(attempt, Backoff())
        until = at + min(requested_s, END_RETRY_AFTER_S)
        workload.backoffs[attempt] = before._replace(until=max(before.until, until))
        return
    until = at + min(requested_s, MAX_RETRY_AFTER_S)
    if until > at:
        workload.wait_until = max(workload.wait_until, until)
        workload.retry_at = max(workload.retry_at, until)


_Submission = act.AllocateNow | act.SubmitJob


def _submission_ended(world: World, action: _Submission, event: ev.ActionEnded) -> None:
    breaker = _count_out(world, action)
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    held = workload.release(action)
    if event.outcome is Outcome.DONE and event.job_id is not None:
        if _is_foreign_by_now(world, workload, event):
            _submitted_id_was_reused(world, workload, action, event, event.job_id)
        else:
            _submitted(world, workload, action, event, event.job_id, held, breaker)
    elif event.outcome is Outcome.UNKNOWN:
        _submission_unanswered(world, workload, action, event, held)
    elif event.outcome is Outcome.REFUSED and action.spec.required_nodes and _number(event) < SLURMS_OWN:
        world.back_off(workload, event.at)  # the token was rejected, which says nothing about the nodes
        workload.refused = event.refusal
    elif event.outcome is Outcome.REFUSED and action.spec.required_nodes and _number(event) != TWIN:
        _reacquire_refused(world, workload, held, event)
    elif event.outcome is Outcome.REFUSED and event.refusal is not None:
        _submission_refused(world, workload, breaker, action, event, event.refusal)
    else:
        world.back_off(workload, event.at)


def _count_out(world: World, action: _Submission) -> Breaker:
    """Count the submission as in flight no more.  Returns the breaker of its partition."""
    partition = world.immediate_in.pop(action.key, world.partition_asked(action))
    if isinstance(action, act.AllocateNow):
        world.immediate_in_flight[partition] -= 1
        world.anti_affinity_in_flight.discard(action.key)
    return world.breakers.setdefault(partition, Breaker())


def _submitted_id_was_reused(
    world: World, workload: Workload, action: _Submission, event: ev.ActionEnded, job_id: int
) -> None:
    """slurmctld lost its state between two answers and gave the id to another job: the job is looked up by its name."""
    reject(world, Anomaly.ID_AGAIN)
    workload.job_search = JobSearch(
        event.began, event.at + world.config.tuning.settle_s, action.spec.name, action.spec.user
    )
    world.first_listed_at[job_id] = event.at
    world.sort_unread(job_id)


def _submission_unanswered(
    world: World, workload: Workload, action: _Submission, event: ev.ActionEnded, held: InFlight | None
) -> None:
    """The job may exist: it is looked up by its name before anything is submitted again."""
    until = event.at + world.config.tuning.settle_s
    workload.job_search = JobSearch(event.began, until, action.spec.name, action.spec.user)
    if action.spec.required_nodes:
        _not_reacquired(workload, held, "it is not known whether Slurm granted them again")
        _read_hinted(world, event.began)


def _is_foreign_by_now(world: World, workload: Workload, event: ev.ActionEnded) -> bool:
    """True if the id was found to be another job's after this call was sent."""
    assert event.job_id is not None
    if event.job_id in world.foreign and world.foreign_read.get(event.job_id, float("-inf")) > event.began:
        return True
    known = world.placeholders.get(event.job_id)
    return (
        known is not None and known.key not in (None, workload.key) and known.alive and known.known_since > event.began
    )


def _number(event: ev.ActionEnded) -> int:
    return event.refusal.number if event.refusal is not None else 0


def _reacquire_refused(world: World, workload: Workload, held: InFlight | None, event: ev.ActionEnded) -> None:
    """Slurm does not grant the nodes of the lost job again: another job has them, perhaps an unread job of these pods.

    Slurm checks limits before it looks for a twin, and the twin counts for the limits.
    """
    assert isinstance(event.action, act.AllocateNow)
    world.nodes_stale = world.nodes_stale or _number(event) == UNKNOWN_NODE
    if _number(event) in UNAVAILABLE and _may_come_back(world, workload, held, event.at):
        world.back_off(workload, event.at)
        return
    _not_reacquired(workload, held, event.refusal.message if event.refusal is not None else "")
    if _read_hinted(world, event.began):
        workload.job_search = JobSearch(
            event.began, event.at, event.action.spec.name, event.action.spec.user, twin=True
        )


def _not_reacquired(workload: Workload, held: InFlight | None, why: str) -> None:
    """The nodes of the lost job that was to be replaced were not granted again.  They are not asked for once more (S7)."""
    if held is not None and held.lost_job is not None:
        workload.reacquired = (held.lost_job, why)


def _may_come_back(world: World, workload: Workload, held: InFlight | None, at: float) -> bool:
    """True if the lost job's nodes may soon be in service again: slurmctld finds them again some time after it started."""
    lost = held.lost_job if held is not None else None
    known = next((job for job in world.jobs_of(workload) if job.id == lost), None)
    return known is not None and at < known.lost_since + world.config.tuning.retake_s


def _lost_job(world: World, workload: Workload) -> Placeholder | None:
    lost = [job for job in world.jobs_of(workload) if job.key in (None, workload.key)]
    return next((job for job in lost if job.id == workload.hint), lost[-1] if lost else None)


def _submitted(
    world: World,
    workload: Workload,
    action: _Submission,
    event: ev.ActionEnded,
    job_id: int,
    held: InFlight | None,
    breaker: Breaker,
) -> None:
    """Slurm made the job: it is the workload's placeholder from now on, whatever had its id before."""
    immediate = isinstance(action, act.AllocateNow)
    if immediate:
        breaker.granted()
    world.stop_reading(job_id)
    world.foreign.discard(job_id)
    world.foreign_read.pop(job_id, None)
    job = Placeholder(job_id, workload.key, action.spec.user, frozenset(), known_since=event.at)
    job.spec, job.grant, job.asked_at = action.spec, event.grant, event.began
    job.asked_for = held.asked_for if held is not None else frozenset()
    _forget_lost(world, workload)
    stale = world.placeholders.get(job_id)
    if stale is not None:
        world.detach_others(workload.key, stale, event.at)
        world.absent.discard(stale.id)
    world.placeholders[job.id] = job
    world.expected.add(job.id)
    workload.jobs.add(job.id)
    workload.hint = job.id
    workload.job_search = workload.releasing = workload.reacquired = workload.renamed = None
    workload.immediate_refused = False
    workload.wait_until = min(workload.wait_until, event.at)  # of a refusal before; the bind does not wait for that
    world.set_states(job, RUNNING if immediate else PENDING, event.at)


def _forget_lost(world: World, workload: Workload) -> None:
    """Forget the jobs that Slurm lost: the workload has another one."""
    workload.lost_job = None
    for job in world.jobs_of(workload):
        if job.lost(world.config.tuning.absent_s) and job.key == workload.key:
            world.drop(job)


def _submission_refused(
    world: World,
    workload: Workload,
    breaker: Breaker,
    action: _Submission,
    event: ev.ActionEnded,
    refusal: Refusal,
) -> None:
    if isinstance(action, act.AllocateNow) and _is_queued_instead(world, workload, breaker, action, event, refusal):
        workload.immediate_refused = True
        return
    world.back_off(workload, event.at)
    if refusal.number == UNKNOWN_NODE:
        world.nodes_stale = True
        return
    if refusal.number in NAMES_UNKNOWN and workload.pods:
        refusal = replace(refusal, message=with_filled(refusal.message, world.tenant_of(workload.pod)))
    workload.refused = refusal
    tuning = world.config.tuning
    workload.retry_at = workload.wait_until if refusal.later else event.at + tuning.refused_retry_s
    if refusal.later:
        world.limited.setdefault(action.spec.user, {})[workload.key] = None


def _is_queued_instead(
    world: World, workload: Workload, breaker: Breaker, action: act.AllocateNow, event: ev.ActionEnded, refusal: Refusal
) -> bool:
    """True if the job may be queued though Slurm refused to allocate nodes at once (ARCHITECTURE 5)."""
    if refusal.number in NO_ROOM:
        breaker.refused(event.at, world.config.tuning.breaker_open_s)
        return True
    if refusal.number == TWIN:  # before limits, because this may pass by itself, too
        _search_twin(world, workload, action, event)
        if action.spec.required_nodes:  # every request leaves a FAILED record, and no place in the queue comes next
            world.back_off(workload, event.at)
            workload.refused = refusal
        return True
    return refusal.later and refusal.number >= SLURMS_OWN  # a limit that a place in the queue may get around


def _search_twin(world: World, workload: Workload, action: act.AllocateNow, event: ev.ActionEnded) -> None:
    until = event.at + world.config.tuning.absent_s
    workload.job_search = JobSearch(event.began, until, action.spec.name, action.spec.user, twin=True)
    _read_hinted(world, event.began)


def _read_hinted(world: World, began: float) -> bool:
    """Schedule reads of the jobs that only pods show: no scan reads those that pods from before the start show.

    Returns True if there are such jobs.  Each of them may be the job of another pod.
    """
    hinted = [job.id for job in world.placeholders.values() if job.key is None and job.alive]
    for job_id in hinted:
        world.first_listed_at.setdefault(job_id, began)
    world.sort_unread()
    return bool(hinted)


def _placeholder_of(
    world: World, action: act.CancelJob | act.UpdateJob | act.RecordEnd, began: float
) -> Placeholder | None:
    """The placeholder that the call was sent for; None: it is known no more, or its id is another job's by now."""
    job = world.placeholders.get(action.job_id)
    if job is None or job.key != action.key or (job.asked_at is not None and job.asked_at > began):
        return None
    return job


def _cancel_ended(world: World, action: act.CancelJob, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is not None:
        workload.release(action)
    job = _placeholder_of(world, action, event.began)
    if event.outcome is Outcome.DONE:
        renamed = job is not None and job.alive and job.read_began > event.began  # nothing of the old name was there
        if job is not None and not job.ended and not renamed:
            if job.holds_nodes:
                world.freed_at = event.at
            elif workload is not None and job.id == workload.hint:
                job.requeued = any(workload.node_of(pod) for pod in workload.unfinished)
            job.known_since = event.at
            world.expected.add(job.id)
            world.absent.discard(job.id)
            world.set_states(job, CANCELLED, event.at)
            job.read_began, job.end_read = event.at, True  # the answer to the cancel is proof enough
        if workload is not None and action.record:
            workload.failures = 0
    elif workload is not None:
        world.back_off(workload, event.at, attempt=Attempt.END_JOB)


def _record_ended(world: World, action: act.RecordEnd, event: ev.ActionEnded) -> None:
    """If slurmdbd is away, this does not count as an attempt: the record waits until slurmdbd is back."""
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    workload.release(action)
    job = _placeholder_of(world, action, event.began)
    if event.outcome is Outcome.DONE:
        world.accounting_lost = None
        if job is not None:
            job.recorded = True
    elif _note_accounting_lost(world, event):
        world.dirty[workload.key] = None
    else:
        world.back_off(workload, event.at, attempt=Attempt.RECORD)
        if job is not None and event.outcome is not Outcome.UNREACHED:
            job.not_recorded += 1
            job.recorded = job.not_recorded > MAX_UNRECORDED


def _update_ended(world: World, action: act.UpdateJob, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    workload.release(action)
    job = _placeholder_of(world, action, event.began)
    if job is None:
        return
    if event.outcome is Outcome.DONE:
        world.clear_refusal(workload)
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


def _note_accounting_lost(world: World, event: ev.ActionEnded) -> bool:
    """Note if slurmdbd answers, as far as this answer shows it."""
    away = event.refusal is not None and event.refusal.number == ev.ACCOUNTING_AWAY
    if away and event.refusal is not None:
        world.fold(ev.AccountingLost(event.at, event.refusal.message))
    return away


def _bound_the_waiting_records(world: World) -> None:
    """While slurmdbd is away no more than so many workloads are kept for it: the one that waits longest is given up."""
    waiting = world.parked["records"]
    while world.accounting_lost is not None and len(waiting) > world.config.tuning.records_waiting:
        key = next(iter(waiting))
        world.unpark(key)
        world.dropped_records += 1
        world.dirty[key] = None
        for job in world.jobs_of(world.workloads[key]) if key in world.workloads else ():
            job.recorded = job.recorded or job.ended


def _take_changes(job: Placeholder, action: act.UpdateJob) -> None:
    """The job was asked for what was changed, and for nothing else of the new translation."""
    asked = job.spec or (adopted(action.spec, job.job) if job.job is not None else action.spec)
    job.spec = taken(asked, action.spec, action.component, action.changes)


def _find_ended(world: World, action: act.FindJobs, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    if workload is None:
        return
    workload.release(action)
    _note_accounting_lost(world, event)
    for job_id in event.found:
        job = world.placeholders.get(job_id)
        if (job is None or job.key is None) and job_id not in world.foreign:
            world.first_listed_at.setdefault(job_id, event.began)
            world.sort_unread(job_id)


def _read_ended(world: World, action: act.ReadJob, event: ev.ActionEnded) -> None:
    """The job itself comes as JobRead.  This ends the action, and workloads of the job are visited."""
    world.reading.discard(action.job_id)
    if event.outcome is not Outcome.DONE and action.job_id in world.first_listed_at:
        world.read_failed(action.job_id, event.at)
    workload = world.workloads.get(action.key)
    if workload is not None and event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at, attempt=Attempt.READ_JOB)
    if action.job_id in world.placeholders:
        world.touch(world.placeholders[action.job_id])


def _node_poll_planned(world: World, action: act.PollNodes, at: float) -> None:
    world.nodes_stale = False


def _nodes_ended(world: World, action: act.PollNodes, event: ev.ActionEnded) -> None:
    """The nodes come as SlurmNodesPolled; a failed poll is tried again after a while."""
    if event.outcome is not Outcome.DONE:
        world.nodes_stale = True
        world.nodes_polled_from = event.at + world.config.tuning.backoff_s * 5


def _workload_of(world: World, uid: str) -> Workload | None:
    """The workload that the pod belongs to by now; None: it is gone."""
    workload = world.workloads.get(world.key_of_pod.get(uid, ""))
    return workload if workload is not None and uid in workload.pods else None


def _bind_ended(world: World, action: act.BindPod, event: ev.ActionEnded) -> None:
    workload = _workload_of(world, action.uid)
    if workload is None:
        if (other := world.workloads.get(action.key)) is not None:
            other.release_pod(action.uid, action)
        _free_assumed(world, action.uid, action.node)
        return
    workload.release_pod(action.uid, action)
    if event.outcome is Outcome.UNKNOWN:
        confirmation.unanswered(workload, action)
    if event.outcome is Outcome.DONE:
        confirmation.answered(workload, action.uid)
        # The API server took this bind.  What the pod showed when the watch told of it may have been edited since.
        workload.bound_by_bridge_before[action.uid] = None
        workload.strays.pop(action.uid, None)
        _note_bound(world, workload, action, event.at)
        return
    world.back_off(workload, event.at, event.began)
    job = world.placeholders.get(action.job_id)
    if job is not None and job.key == action.key:
        job.bind_trouble = event.refusal.message if event.refusal is not None else BIND_FAILED
        if event.outcome is Outcome.REFUSED and _number(event) not in SAYS_NOTHING:
            job.bind_refused[action.uid] += 1
    if event.outcome is Outcome.UNKNOWN:
        if world.assumed.get(action.uid) == action.node:
            world.unanswered_binds[action.uid] = LostBind(action, event.at + world.config.tuning.settle_s)
    elif action.uid not in world.unanswered_binds and workload.pods[action.uid].node != action.node:
        workload.unconfirmed_binds.pop(action.uid, None)
        _free_assumed(world, action.uid, action.node)


def _note_bound(world: World, workload: Workload, action: act.BindPod, at: float) -> None:
    """The pod is on the node, for the job that it was bound for; Slurm may have reused the id of that job."""
    workload.failures = 0
    world.unanswered_binds.pop(action.uid, None)
    if not workload.pods[action.uid].node:
        workload.put_on(action.uid, action.node)
    job = world.placeholders.get(action.job_id)
    if job is None:  # it ended and was forgotten; the watch shows which job the pod names, and that job is read
        workload.hint = None if workload.hint == action.job_id else workload.hint
        return
    workload.hint = job.id
    if job.key == workload.key:
        job.bind_trouble = ""
    elif job.key is not None:
        world.note_lost_job(workload, job, at)


def _pod_read_ended(world: World, action: act.ReadPod, event: ev.ActionEnded) -> None:
    """The pod shows whether the bind with the lost answer took effect; if not, its room is free (V5)."""
    world.reading_refs.discard(action.uid)
    lost, workload = world.unanswered_binds.get(action.uid), _workload_of(world, action.uid)
    if lost is None or workload is None or event.began < lost.until:
        return
    if event.outcome is not Outcome.DONE:
        world.unanswered_binds[action.uid] = LostBind(lost.action, event.at + POD_AGAIN_S)
    elif event.node == lost.action.node:
        _note_bound(world, workload, lost.action, event.at)
    else:  # where it stands otherwise, the watch shows that
        confirmation.answered(workload, action.uid)
        workload.unconfirmed_binds.pop(action.uid, None)
        _free_assumed(world, action.uid, lost.action.node)


def _free_assumed(world: World, uid: str, node: str) -> None:
    """The bind had no effect: free the room on that node."""
    if world.assumed.get(uid) == node:
        del world.assumed[uid]
        world.unanswered_binds.pop(uid, None)
        world.remove_from_node(node, uid)


def _pod_deletion_ended(
    world: World, action: act.DeletePod | act.FailByDeadline | act.EvictPod, event: ev.ActionEnded
) -> None:
    workload = _workload_of(world, action.uid) or world.workloads.get(action.key)
    if workload is None:
        return
    held = workload.release_pod(action.uid, action)
    if event.outcome is Outcome.UNKNOWN:
        confirmation.unanswered(workload, action)
    elif event.outcome is Outcome.DONE or action.uid not in workload.pods:
        confirmation.answered(workload, action.uid)
    if event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at, event.began, ATTEMPTS[type(action)])
    elif held is not None and action.uid in workload.pods:
        grace_s = world.config.tuning.grace_counts_s(workload.pods[action.uid].grace_s)
        workload.pods_in_flight[action.uid] = InFlight(action, held.planned_at, until=event.at + grace_s + 30.0)


def _deadline_ended(world: World, action: act.SetDeadline, event: ev.ActionEnded) -> None:
    """A deadline ends nothing yet.  The pod is held only until the watch shows the deadline."""
    workload = _workload_of(world, action.uid)
    if workload is None:
        return
    held = workload.release_pod(action.uid, action)
    if event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at, event.began, Attempt.MOVE)
    elif held is not None:
        workload.pods_in_flight[action.uid] = InFlight(action, held.planned_at, until=event.at + SHOWN_S)


def _condition_ended(world: World, action: act.SetPodCondition | act.SetJobCondition, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    status = workload.last_status.get(action.uid) if workload else None
    if status is not None and event.outcome is not Outcome.DONE and status.message == action.message:
        status.condition = status.message = ""  # set the condition again, after the usual pause
        status.essence = ()


def _restore_ended(world: World, action: act.RestoreKeys, event: ev.ActionEnded) -> None:
    """The watch shows the result.  The wait before the next write doubles each time."""
    workload = world.workloads.get(action.key)
    edited = workload.edited.get(action.uid) if workload is not None else None
    if edited is not None:
        tuning = world.config.tuning
        edited.under_way = False
        edited.next_at = event.at + min(tuning.renew_event_s, tuning.condition_s * 2 ** min(edited.put_back, 16))
        edited.put_back += event.outcome is Outcome.DONE


def _note_failure(world: World, what: OwnerKey | str, event: ev.ActionEnded) -> None:
    """Note since when, and why, a read that pods wait for fails.  what: an owner, or the UID of a pod with claims."""
    if event.outcome is Outcome.DONE:
        world.cannot_read.pop(what, None)
        return
    since = world.cannot_read.pop(what, (event.at, ""))[0]
    why = event.refusal.message.rstrip(" .") if event.refusal is not None else "there was no answer"
    world.cannot_read[what] = (since, f"{why}.")
    if len(world.cannot_read) > MAX_FAILURES_REMEMBERED:
        del world.cannot_read[next(iter(world.cannot_read))]


def _owner_ended(world: World, action: act.ReadOwner, event: ev.ActionEnded) -> None:
    owner = owner_key(action.namespace, action.ref)
    world.reading_refs.discard(owner)
    _note_failure(world, owner, event)
    if event.outcome is Outcome.DONE and (read_at := world.owner_read_at.get(owner)) is not None:
        world.owner_read_at[owner] = max(read_at, event.began)
    if event.outcome is not Outcome.DONE:
        for key in world.waits_for_owner.get(owner, ()):
            world.back_off(world.workloads[key], event.at) if key in world.workloads else None
            world.dirty[key] = None


def _claims_ended(world: World, action: act.ReadClaims | act.SelectVolumeNode, event: ev.ActionEnded) -> None:
    world.reading_refs.discard(action.uid)
    _note_failure(world, action.uid, event)
    workload = world.workloads.get(action.key)
    if workload is not None and event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at)


_ON_PLANNED: Mapping[type, Callable[[World, Any, float], None]] = {
    act.AllocateNow: _submission_planned,
    act.SubmitJob: _submission_planned,
    act.CancelJob: _slurm_action_planned,
    act.UpdateJob: _slurm_action_planned,
    act.RecordEnd: _slurm_action_planned,
    act.FindJobs: _slurm_action_planned,
    act.ReadJob: _read_planned,
    act.NudgeScheduler: _nudge_planned,
    act.BindPod: _pod_action_planned,
    act.DeletePod: _pod_action_planned,
    act.FailByDeadline: _pod_action_planned,
    act.SetDeadline: _pod_action_planned,
    act.EvictPod: _pod_action_planned,
    act.SetPodCondition: _pod_condition_planned,
    act.SetJobCondition: _job_condition_planned,
    act.RestoreKeys: _restore_planned,
    act.ReadOwner: _owner_read_planned,
    act.ReadClaims: _pod_read_planned,
    act.SelectVolumeNode: _pod_read_planned,
    act.ReadPod: _pod_read_planned,
    act.PollNodes: _node_poll_planned,
    **node_results.ON_PLANNED,
}

ATTEMPTS: Mapping[type, Attempt] = {
    act.ReadJob: Attempt.READ_JOB,
    act.CancelJob: Attempt.END_JOB,
    act.RecordEnd: Attempt.RECORD,
    act.DeletePod: Attempt.END_POD,
    act.FailByDeadline: Attempt.END_POD,
    act.EvictPod: Attempt.MOVE,
    act.SetDeadline: Attempt.MOVE,
}

_ON_ENDED: Mapping[type, Callable[[World, Any, ev.ActionEnded], None]] = {
    act.AllocateNow: _submission_ended,
    act.SubmitJob: _submission_ended,
    act.CancelJob: _cancel_ended,
    act.UpdateJob: _update_ended,
    act.RecordEnd: _record_ended,
    act.FindJobs: _find_ended,
    act.ReadJob: _read_ended,
    act.BindPod: _bind_ended,
    act.DeletePod: _pod_deletion_ended,
    act.FailByDeadline: _pod_deletion_ended,
    act.SetDeadline: _deadline_ended,
    act.EvictPod: _pod_deletion_ended,
    act.SetPodCondition: _condition_ended,
    act.SetJobCondition: _condition_ended,
    act.RestoreKeys: _restore_ended,
    act.ReadOwner: _owner_ended,
    act.ReadClaims: _claims_ended,
    act.SelectVolumeNode: _claims_ended,
    act.ReadPod: _pod_read_ended,
    act.PollNodes: _nodes_ended,
    **node_results.ON_ENDED,
}

FOLDS: Mapping[type, Callable[[World, Any], None]] = {
    ev.Planned: _planned,
    ev.ActionEnded: _action_ended,
}
