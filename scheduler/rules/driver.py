"""Enters the decision of a rule in the plan.

The driver applies limits and token buckets, drops reads that are in flight and statuses that the pods show already, and sets
wake-ups.  The actions of one workload take room in limits and on nodes, so the rule of the next workload sees
less room.
"""

from __future__ import annotations

from scheduler.rules.decision import (
    NEVER,
    Act,
    BindTogether,
    Branch,
    Decision,
    EvictAlone,
    InTurn,
    JobStatus,
    NextPass,
    Note,
    PodStatus,
    PodStatuses,
    SharedStep,
    Step,
)
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status_writes import write_job_status, write_status, write_statuses
from scheduler.state.workload import Workload


def enter(decision: Decision, workload: Workload, this_pass: Pass) -> bool:
    """Enter the decision in the plan.  Returns True if that added an action."""
    planned = len(this_pass.actions)
    _take_steps(decision, workload, this_pass)
    _wait(decision, workload, this_pass)
    if (again := this_pass.judges_again.get(workload.key)) is not None:
        this_pass.wake_at(workload.key, again)
    return len(this_pass.actions) > planned


def _take_steps(decision: Decision, workload: Workload, this_pass: Pass) -> bool:
    """Enter the steps in the plan.  Returns False if the token bucket of an action is empty."""
    all_taken = True
    for step in decision.steps:
        all_taken = _take(step, workload, this_pass) and all_taken
    return all_taken


def _wait(decision: Decision, workload: Workload, this_pass: Pass) -> None:
    if decision.wake_at != NEVER:
        this_pass.wake_at(workload.key, decision.wake_at)
    for limit in decision.limited_by:
        this_pass.park(workload.key, limit)


def _take(step: Step, workload: Workload, this_pass: Pass) -> bool:
    """Enter one step in the plan.  Returns False if the token bucket of an action is empty."""
    match step:
        case Act():
            return _act(step, workload, this_pass)
        case PodStatus():
            write_status(step, workload, this_pass)
        case PodStatuses():
            write_statuses(step, workload, this_pass)
        case JobStatus():
            write_job_status(step, workload, this_pass)
        case Note():
            _take_note(step, workload, this_pass)
        case BindTogether():
            this_pass.add_together(step.binds, workload.key)
        case EvictAlone() if this_pass.is_moving(step.controller):
            this_pass.wake_at(workload.key, step.retry_at)
        case EvictAlone():
            this_pass.add(step.action, workload.key)
        case Branch():
            follows = step.planned if enter(step.first, workload, this_pass) else step.not_planned
            enter(follows, workload, this_pass)
        case InTurn():
            return _take_in_turn(step, workload, this_pass)
    return True


def _take_in_turn(step: InTurn, workload: Workload, this_pass: Pass) -> bool:
    """Enter the parts one by one.  If a token bucket is empty, the later parts are left out.  Returns False in that case."""
    for part in step.parts:
        if not _take_steps(part, workload, this_pass):
            return False
        _wait(part, workload, this_pass)
    return True


def _act(step: Act, workload: Workload, this_pass: Pass) -> bool:
    """Plan the action, if its limits allow that.  Returns False if its token bucket is empty."""
    if this_pass.is_read_already(step.action):
        return True
    if step.is_optional and this_pass.room(step.action) <= 0:
        return True
    if step.bucket and not this_pass.take_token(step.bucket):
        if not step.is_optional:
            this_pass.park(workload.key, step.bucket)
        return False
    this_pass.add(step.action, workload.key)
    return True


def _take_note(note: Note, workload: Workload, this_pass: Pass) -> None:
    key = workload.key
    if note.awaits is not None:
        this_pass.wait_for_owner(key, note.awaits)
    if note.leave_out is not None:
        this_pass.left_out[key] = note.leave_out
    if note.is_charged:
        _charge(workload, this_pass)
    if note.written_off:
        this_pass.written_off.append((key, note.written_off))
    if note.adopted is not None:
        this_pass.adopted.append(note.adopted)
    if note.not_asked_for is not None:
        this_pass.not_asked_for.append((key, note.not_asked_for))
        this_pass.wake_shared(this_pass.now)  # pods that waited for that are submitted by the next pass
    if note.is_forgotten:
        this_pass.forgotten.append(key)
    this_pass.exclude(key, note.exclude)
    this_pass.begin_is_due = this_pass.begin_is_due or note.begin_is_due
    this_pass.lacks_nodes = this_pass.lacks_nodes or note.lacks_nodes


def _charge(workload: Workload, this_pass: Pass) -> None:
    """Count a submission against the limits of the policy's rule."""
    quotas = this_pass.world.quotas
    if (quota := quotas.quota(workload)) is not None and not quotas.has_one(workload):
        this_pass.used[quota] += 1
    if (rate := quotas.rate(workload)) is not None:
        this_pass.take_token(rate)


def enter_shared(step: SharedStep, this_pass: Pass) -> bool:
    """Enter one step of periodic work in the plan.  Returns False if a limit has no room for it, nor for later steps."""
    if isinstance(step, NextPass):
        this_pass.wake_shared(step.at)
        return True
    if this_pass.is_read_already(step.action):
        return True
    if this_pass.room(step.action) <= 0:
        return False  # the end of an action of this limit class starts the next pass
    if step.bucket and not this_pass.take_token(step.bucket):
        this_pass.wake_shared(this_pass.world.token_buckets[step.bucket].next_at(this_pass.now) + 0.001)
        return False
    this_pass.add(step.action)
    return True
