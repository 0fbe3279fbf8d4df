"""Applies a plan to the World: its actions count as in flight before any of them is performed (ARCHITECTURE 3)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler import names
from scheduler.actions import ObjectKind
from scheduler.apply import node_results, reused_ids
from scheduler.apply.settling import settle_and_refresh, settle_by_plan
from scheduler.apply.submission_results import lost_job_of
from scheduler.model.amounts import EMPTY
from scheduler.model.kubernetes import owner_key
from scheduler.model.refusal import Refusal
from scheduler.state import quarantine
from scheduler.state.in_flight import InFlight, JobSearch
from scheduler.state.left_out import LeftOut, after_unusable_grant
from scheduler.state.pod_records import LastStatus, subject_of
from scheduler.state.workload import Workload
from scheduler.state.world import World

# Timers that are kept after their workload is gone or was woken sooner; and as many as there are others.
MAX_STALE_TIMERS = 64
MAX_OWNERS_ASKED = 20_000  # controllers that were read, or whose read fails


def _planned(world: World, event: ev.Planned) -> None:
    _wait_in_turn(world, event.plan)
    _take_turns(world, event.plan)
    _bound_the_waiting_records(world)
    for key in event.plan.forgotten:
        world.forget(key)
    for key, owner in event.plan.awaited.items():
        world.waits_for_owner.setdefault(owner, {})[key] = None
    _leave_nodes_out(world, event.plan, event.at)
    for key, uid in event.plan.written_off:
        try:
            _write_off(world, key, uid)
        except Exception as error:  # noqa: BLE001 - contained to the workload, or raised
            quarantine.quarantine_workload(world, key, error)
    _adopt(world, event.plan)
    for key, job_id in event.plan.not_asked_for:
        if (workload := world.workloads.get(key)) is not None:
            _not_asked_for(world, workload, job_id, event.at)
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
    quarantine.apply_plan(world, event.plan)


def _not_asked_for(world: World, workload: Workload, job_id: int, at: float) -> None:
    """Note that no job is submitted for the nodes of the lost job (S7).

    So no refusal shows that another job of these pods lives.  If a previous process may have submitted such a job, it is
    searched by its name (V7).
    """
    workload.not_asked_for = job_id
    if world.is_inherited(workload) and workload.job_search is None:
        tenant = world.tenant_of(workload.pod)
        user = tenant.user if not isinstance(tenant, Refusal) else ""
        name = names.job_name(workload.readable, world.cluster, workload.key)
        workload.job_search = JobSearch(at, at, name, user, twin=True)
        reused_ids.read_hinted(world, at)
        world.refresh(workload)


def _wait_in_turn(world: World, plan: act.Plan) -> None:
    """Let workloads wait in the limits that the plan names.  A workload that waits in a limit again keeps its place (I7)."""
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
        settle_and_refresh(world, workload)


def _action_planned(world: World, action: act.Action, at: float) -> None:
    """Note that the action is in flight.  An action on a workload that was dropped is not noted, and not performed."""
    key = getattr(action, "key", "")
    if action.effect is act.Effect.WORKLOAD and quarantine.is_dropped(world, ObjectKind.WORKLOAD, key):
        return
    world.in_flight[id(action)] = action
    world.under_way[action.limit_class] += 1
    _ON_PLANNED[type(action)](world, action, at)


def _planning_failed(world: World, plan: act.Plan, action: act.Action, error: Exception) -> None:
    """Contain the error.  No action of this plan for the same workload is performed."""
    key = getattr(action, "key", "")
    for planned in plan.actions:
        if planned is action or (key and getattr(planned, "key", "") == key):
            world.in_flight.pop(id(planned), None)
    quarantine.contain_action(world, action, error)


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
    if len(world.timers) > 2 * len(world.wakes) + MAX_STALE_TIMERS:
        world.timers = sorted((at, key) for key, at in world.wakes.items())  # a sorted list is a heap


def _submission_planned(world: World, action: act.AllocateNow | act.SubmitJob, at: float) -> None:
    workload = world.workloads[action.key]
    lost = lost_job_of(world, workload) if action.spec.required_nodes else None
    members = workload.members
    parts = action.components if isinstance(action, act.SubmitJob) else ()
    workload.in_flight = InFlight(
        action,
        at,
        lost_job=lost.id if lost is not None else None,
        asked_for=frozenset(pod.uid for pod in members),
        components={uid: index for index, pods in enumerate(parts) for uid in pods} if parts else EMPTY,
        asked_as=world.known_tenant(members),
    )
    world.clear_refusal(workload)
    partition = world.partition_asked(action)
    workload.asked_in = partition
    if isinstance(action, act.AllocateNow):
        if not world.immediate_in_flight[partition]:
            world.tried_at[partition] = at
        world.immediate_in_flight[partition] += 1
        world.immediate_in[action.key] = partition
        if workload.has_anti_affinity:
            world.anti_affinity_in_flight.add(workload.key)
    if action.spec.required_nodes:
        world.token_buckets["reacquire"].take(at, 1)
    elif (rate := world.quotas.rate(workload)) is not None:
        world.quotas.take_token(rate, at)
    workload.add_to_story(at, action.reason)
    world.update_indexes(workload)  # no visit is needed: the rules wait for the answer


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
        world.hinted_by_others.setdefault(action.job_id, {})[action.key] = None
    if action.bucket in world.token_buckets:
        world.token_buckets[action.bucket].take(at, world.tokens_of_read(action.bucket))
    if action.bucket == "detail":
        world.detail_new.pop(action.key, None)
        world.detail_round.pop(action.key, None)
        world.detail_round[action.key] = at  # at the end of the dict, which is in the order of the reads
    elif action.bucket == "running":
        world.running_new.pop(action.key, None)
        world.running_round.pop(action.key, None)
        world.running_round[action.key] = at


def _limits_read_planned(world: World, action: act.ReadLimits, at: float) -> None:
    world.reading_limits.add(action.of)
    world.token_buckets["limits"].take(at, 1)


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
    elif isinstance(action, act.DeletePod | act.FailByDeadline) and action.bucket:
        world.token_buckets[action.bucket].take(at, 1)


def _pod_condition_planned(world: World, action: act.SetPodCondition, at: float) -> None:
    workload = world.workloads[action.key]
    if action.annotations is not None:  # the pod is to name the job that holds its place (reacquire.show_new_job)
        workload.renewed[action.uid] = action.annotations
        workload.hint = int(action.annotations[names.JOB_ID])
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
        workload.confirmed_writes.pop(action.uid, None)
        return
    before = workload.status_about(subject_of(action), action.uid)
    event_at = at if action.event else (before.event_at if before else float("-inf"))
    is_first = action.event == names.SUBMITTED
    status = LastStatus(action.condition, action.message, action.essence, action.starts, at, event_at, is_first)
    workload.note_status(subject_of(action), action.uid, status)


def _job_condition_planned(world: World, action: act.SetJobCondition, at: float) -> None:
    status = LastStatus(action.condition, action.message, action.essence, None, at, at)
    world.workloads[action.key].note_status(subject_of(action), action.uid, status)


def _restore_planned(world: World, action: act.RestoreKeys, at: float) -> None:
    workload = world.workloads[action.key]
    edited = workload.edited[action.uid]
    edited.under_way = True
    workload.add_to_story(at, f"{action.name}: {action.reason}")


def _owner_read_planned(world: World, action: act.ReadOwner, at: float) -> None:
    key = owner_key(action.namespace, action.ref)
    world.reading_refs.add(key)
    world.owner_asked_at.pop(key, None)
    world.owner_asked_at[key] = at
    if len(world.owner_asked_at) > MAX_OWNERS_ASKED:
        del world.owner_asked_at[next(iter(world.owner_asked_at))]
    if action.key:  # the controller was read before
        world.token_buckets["owners"].take(at, 1)


def _pod_read_planned(world: World, action: act.ReadClaims | act.SelectVolumeNode | act.ReadPod, at: float) -> None:
    world.reading_refs.add(action.uid)


def _bound_the_waiting_records(world: World) -> None:
    """While slurmdbd does not answer, let at most `records_waiting` workloads wait for it.

    If there are more, the ends of the workloads that wait longest are not recorded.
    """
    waiting = world.parked["records"]
    while world.accounting_outage is not None and len(waiting) > world.config.tuning.records_waiting:
        key = next(iter(waiting))
        world.unpark(key)
        world.dropped_records += 1
        world.dirty[key] = None
        for job in world.jobs_of(world.workloads[key]) if key in world.workloads else ():
            job.recorded |= job.ended


_ON_PLANNED: Mapping[type, Callable[[World, Any, float], None]] = {
    act.AllocateNow: _submission_planned,
    act.SubmitJob: _submission_planned,
    act.CancelJob: _slurm_action_planned,
    act.UpdateJob: _slurm_action_planned,
    act.RecordEnd: _slurm_action_planned,
    act.FindJobs: _slurm_action_planned,
    act.ReadJob: _read_planned,
    act.ReadLimits: _limits_read_planned,
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
    **node_results.ON_PLANNED,
}

APPLIERS: Mapping[type, Callable[[World, Any], None]] = {ev.Planned: _planned}
