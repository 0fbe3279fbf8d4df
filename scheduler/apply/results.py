"""Applies the results of actions to the World (ARCHITECTURE 3): job_results.py, pod_results.py, and so on, by kind of action.

An action is in flight from its plan (plans.py) until its own answer comes.  The outcome of the answer decides what is known:
DONE is a fact, REFUSED sets a time for the next attempt, UNKNOWN starts a search.

An answer is about the object for which the call was sent.  Until the answer comes, Slurm may give a job id to another job,
and a pod may be deleted or move to another workload.  So each answer is first matched with the present objects:

  answer to                  what it changes
  AllocateNow, SubmitJob     the workload, and the placeholder of the new id.  If a read or an answer after the call was sent
                             shows that the id belongs to another job, the bridge searches the job by its name instead
  CancelJob, UpdateJob,      the placeholder of that id, if it is the same workload's and no later submission got the id.  A
  RecordEnd                  cancel changes nothing if a read that began after it shows the job alive
  FindJobs                   nothing: the ids in the answer are read
  ReadLimits                 nothing: the content comes as LimitsRead
  ReadJob                    nothing: the content comes as JobRead, and is rejected if a newer observation is known
  NudgeScheduler             nothing
  BindPod                    the pod of that UID, in its present workload, and the pod's job, if that is still the same
  DeletePod, EvictPod,       the pod of that UID, in its present workload
  FailByDeadline,
  SetDeadline
  SetPodCondition,           the last status of that pod, if it has the same message
  SetJobCondition
  RestoreKeys                the pause before the next write; the watch shows the result
  ReadOwner, ReadClaims,     nothing: the content comes as OwnerRead or ClaimsRead, by the object's UID
  SelectVolumeNode
  ReadPod                    the bind whose answer was lost, if the read was sent late enough
  PollNodes                  nothing: the content comes as SlurmNodesPolled, and is rejected if a newer poll is known

A failed read is noted, and delays the next read.  Other actions on nodes are in node_results.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler.actions import Outcome
from scheduler.apply import job_results, node_results, pod_results, submission_results
from scheduler.apply.backoff import ATTEMPTS, wait_as_requested
from scheduler.apply.pod_results import workload_of
from scheduler.apply.settling import rejoin_gang
from scheduler.state.world import World


def _action_ended(world: World, event: ev.ActionEnded) -> None:
    action = event.action
    world.in_flight.pop(id(action), None)
    world.under_way[action.limit_class] -= 1
    apply_result = _ON_ENDED.get(type(action))
    if apply_result is not None:
        apply_result(world, action, event)
    workload = world.workloads.get(getattr(action, "key", ""))
    if workload is not None:
        if event.refusal is not None:
            workload.add_to_story(event.at, event.refusal.message)
            # A refused status delays no other action.
            if not isinstance(action, act.SetPodCondition | act.SetJobCondition):
                wait_as_requested(workload, action, event.refusal, event.at)
        elif event.outcome is Outcome.DONE and (attempt := ATTEMPTS.get(type(action))) is not None:
            workload.backoffs.pop(attempt, None)
        rejoin_gang(world, workload)
        world.refresh(workload)
    moved_to = workload_of(world, getattr(action, "uid", ""))
    if moved_to is not None and moved_to is not workload:
        world.refresh(moved_to)


_ON_ENDED: Mapping[type, Callable[[World, Any, ev.ActionEnded], None]] = {
    **submission_results.ON_ENDED,
    **job_results.ON_ENDED,
    **pod_results.ON_ENDED,
    **node_results.ON_ENDED,
}


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {ev.ActionEnded: _action_ended}
