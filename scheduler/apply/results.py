"""Applies the results of actions to the World (ARCHITECTURE 3): job_results.py, pod_results.py, and so on, by kind of action.

An action is in flight from its plan (plans.py) until its own answer comes.  The outcome of the answer decides what is known:
DONE is a fact, REFUSED sets a time for the next attempt, UNKNOWN starts a search.

An answer says something about the object that the call was sent for.  While the answer was on its way a job id may have been
given to another job, and a pod may have gone or moved to another workload.  So each answer is matched first:

  answer to                  what it changes
  AllocateNow, SubmitJob     the workload.  The new id, unless a read or an answer since the call was sent says that the id
                             belongs to another job; in that case the bridge looks the job up by its name.  If the
                             nodes of a lost job are refused: the record of the lost job, too
  CancelJob, UpdateJob,      the placeholder of that id, if it is the same workload's and no later submission was given the
  RecordEnd                  id.  A cancel: not where a read that began after it shows the job alive
  FindJobs                   nothing: the ids in the answer are read
  ReadLimits                 nothing: what was read is a fact of its own (LimitsRead)
  ReadJob                    nothing: what was read is a fact of its own (JobRead), compared with what was learned later
  NudgeScheduler             nothing
  BindPod                    the pod of that UID, in whichever workload it is by now; its job, if that is still the same
  DeletePod, FailByDeadline,   the pod of that UID, in whichever workload it is by now
  EvictPod, SetDeadline
  SetPodCondition,           the last status of that pod, if it is that sentence
  RestoreKeys                nothing: the watch shows what became of it
  ReadOwner, ReadClaims,     nothing: what was read is a fact of its own (OwnerRead, ClaimsRead), by the object's UID
  SelectVolumeNode
  ReadPod                    the bind that it was asked for, if no other was sent since
  PollNodes                  nothing: SlurmNodesPolled, compared with the poll before

and those about nodes in node_results.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler.actions import Outcome
from scheduler.apply import job_results, node_results, pod_results, submission_results
from scheduler.apply.backoff import ATTEMPTS, wait_as_requested
from scheduler.apply.membership import rejoin_gang
from scheduler.apply.pod_results import workload_of
from scheduler.state.world import World


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
            # A status that is late delays nothing.
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
