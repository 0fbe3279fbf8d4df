"""Applies the results of writes on pods, and of reads of the objects that pods refer to (ARCHITECTURE 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler import names
from scheduler.actions import Outcome
from scheduler.apply import hinted_jobs, reused_ids
from scheduler.apply.backoff import ATTEMPTS
from scheduler.apply.settling import settle_and_refresh
from scheduler.model.kubernetes import OwnerKey, owner_key
from scheduler.state import confirmation
from scheduler.state.backoff import Attempt
from scheduler.state.in_flight import InFlight, UnansweredBind
from scheduler.state.pod_records import subject_of
from scheduler.state.workload import Workload
from scheduler.state.world import World

# Rejected credentials, too many requests: the refusal does not concern the pod.
NOT_ABOUT_THE_POD = frozenset({401, 429})
ANOTHER_CHANGED_IT = frozenset({404, 409})  # the pod is gone, or another client wrote it first
SERVER_ERROR = 500  # and all greater numbers
BIND_FAILED = "Kubernetes did not accept the bind."
POD_AGAIN_S = 5.0  # after this time a pod that could not be read is read again
SHOWN_S = 2.0  # after this time the watch shows what was written on a pod
MAX_FAILURES_REMEMBERED = 10_000  # owners and claims that cannot be read


def workload_of(world: World, uid: str) -> Workload | None:
    """The workload to which the pod belongs now; None: the pod is gone."""
    workload = world.workloads.get(world.key_of_pod.get(uid, ""))
    return workload if workload is not None and uid in workload.pods else None


def _end_in_flight(
    world: World,
    workload: Workload | None,
    action: act.BindPod | act.DeletePod | act.FailByDeadline | act.EvictPod | act.SetDeadline,
) -> InFlight | None:
    """Note that an action on a pod is in flight no more, and return its entry; None: there is none.

    workload   the workload of the pod now.  The entry may belong to the workload that planned the action, which the pod has
               left since.  An entry that stays would keep that workload for ever, although it has no pods.
    """
    concerned = (world.workloads.get(action.key), workload)
    ended = [each.end_pod_in_flight(action.uid, action) for each in concerned if each is not None]
    return next(filter(None, ended), None)


def _bind_ended(world: World, action: act.BindPod, event: ev.ActionEnded) -> None:
    workload = workload_of(world, action.uid)
    _end_in_flight(world, workload, action)
    if workload is None:
        _free_assumed(world, action.uid, action.node)
        return
    if event.outcome is Outcome.UNKNOWN:
        confirmation.note_unanswered(workload, action)
    if event.outcome is Outcome.DONE:
        confirmation.note_answered(workload, action.uid)
        # The API server accepted this bind.  If the watch showed other annotations, a client has edited them since.
        workload.bound_by_bridge_before[action.uid] = None
        workload.strays.pop(action.uid, None)
        _note_bound(world, workload, action, event.at)
        return
    world.back_off(workload, event.at, event.began)
    job = world.placeholders.get(action.job_id)
    if job is not None and job.key == action.key:
        job.bind_trouble = event.refusal.message if event.refusal is not None else BIND_FAILED
        if event.outcome is Outcome.REFUSED and event.refusal_number not in NOT_ABOUT_THE_POD:
            job.bind_refused[action.uid] += 1
    if event.outcome is Outcome.UNKNOWN:
        if world.assumed.get(action.uid) == action.node:
            world.unanswered_binds[action.uid] = UnansweredBind(action, event.at + world.config.tuning.settle_s)
    elif action.uid not in world.unanswered_binds and workload.pods[action.uid].node != action.node:
        _note_not_bound(world, workload, action)


def _note_bound(world: World, workload: Workload, action: act.BindPod, at: float) -> None:
    """Note that the pod is on the node, for the job in the bind.  Slurm may have reused the id of that job."""
    workload.backoff = workload.backoff.after_success()
    world.unanswered_binds.pop(action.uid, None)
    if not workload.pods[action.uid].node:
        workload.put_on(action.uid, action.node)
        world.granted_pods_changed(workload, [workload.pods[action.uid]])
    job = world.placeholders.get(action.job_id)
    if job is None:
        # It ended and was forgotten, or a read showed another name: its id is a hint, as when the watch shows the pod.
        workload.hint = None if workload.hint == action.job_id else workload.hint
        pod = workload.pods[action.uid]
        bound = replace(pod, node=action.node, annotations={**pod.annotations, **action.annotations})
        hinted_jobs.take_hint(world, workload, bound)
        return
    workload.hint = job.id
    if job.key == workload.key:
        job.bind_trouble = ""
    elif job.key is not None:
        reused_ids.note_lost_job(world, workload, job, at)


def _pod_read_ended(world: World, action: act.ReadPod, event: ev.ActionEnded) -> None:
    """Note if the bind whose answer was lost took effect, as the read pod shows.  If not, free its room (V5)."""
    world.reading_refs.discard(action.uid)
    lost, workload = world.unanswered_binds.get(action.uid), workload_of(world, action.uid)
    if lost is None or workload is None or event.began < lost.until:
        return
    if event.outcome is not Outcome.DONE:
        world.unanswered_binds[action.uid] = UnansweredBind(lost.action, event.at + POD_AGAIN_S)
    elif event.node == lost.action.node:
        _note_bound(world, workload, lost.action, event.at)
    else:  # the bind had no effect; if the pod is on another node, the watch shows it
        confirmation.note_answered(workload, action.uid)
        _note_not_bound(world, workload, lost.action)


def _note_not_bound(world: World, workload: Workload, action: act.BindPod) -> None:
    """Note that the bind had no effect.  If the pod kept its place in a gang only because of the bind, it leaves the gang."""
    workload.unconfirmed_binds.pop(action.uid, None)
    _free_assumed(world, action.uid, action.node)
    settle_and_refresh(world, workload)


def _free_assumed(world: World, uid: str, node: str) -> None:
    """The bind had no effect: free the room on that node."""
    if world.assumed.get(uid) == node:
        del world.assumed[uid]
        world.unanswered_binds.pop(uid, None)
        world.remove_from_node(node, uid)


def _pod_deletion_ended(
    world: World, action: act.DeletePod | act.FailByDeadline | act.EvictPod, event: ev.ActionEnded
) -> None:
    workload = workload_of(world, action.uid) or world.workloads.get(action.key)
    if workload is None:
        return
    in_flight = _end_in_flight(world, workload, action)
    if event.outcome is Outcome.UNKNOWN:
        confirmation.note_unanswered(workload, action)
    elif event.outcome is Outcome.DONE or action.uid not in workload.pods:
        confirmation.note_answered(workload, action.uid)
    if event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at, event.began, ATTEMPTS[type(action)])
        if action.uid in workload.pods:
            _note_end_refused(workload, action, event)
    elif in_flight is not None and action.uid in workload.pods:
        workload.end_refused.pop(action.uid, None)
        grace_s = world.config.tuning.grace_counts_s(workload.pods[action.uid].grace_s)
        workload.pods_in_flight[action.uid] = InFlight(action, in_flight.planned_at, until=event.at + grace_s + 30.0)


def _note_end_refused(
    workload: Workload, action: act.DeletePod | act.FailByDeadline | act.EvictPod, event: ev.ActionEnded
) -> None:
    """Note why Kubernetes does not end the pod: an admission policy refuses that, or a webhook does not answer (5xx)."""
    number, why = event.refusal_number, event.refusal
    not_about_it = ANOTHER_CHANGED_IT if isinstance(action, act.EvictPod) else NOT_ABOUT_THE_POD | ANOTHER_CHANGED_IT
    is_about_the_pod = number not in not_about_it  # an eviction gets 429 because of a disruption budget
    is_refused = event.outcome is Outcome.REFUSED and is_about_the_pod
    if why is not None and (is_refused or number >= SERVER_ERROR):
        workload.end_refused[action.uid] = why.message


def _deadline_ended(world: World, action: act.SetDeadline, event: ev.ActionEnded) -> None:
    """Note the result.  The action stays in flight until the watch shows the deadline, because it ends no pod at once."""
    workload = workload_of(world, action.uid)
    in_flight = _end_in_flight(world, workload, action)
    if workload is None:
        return
    if event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at, event.began, Attempt.MOVE)
    elif in_flight is not None:
        workload.pods_in_flight[action.uid] = InFlight(action, in_flight.planned_at, until=event.at + SHOWN_S)


def _condition_ended(world: World, action: act.SetPodCondition | act.SetJobCondition, event: ev.ActionEnded) -> None:
    workload = world.workloads.get(action.key)
    status = workload.status_about(subject_of(action), action.uid) if workload is not None else None
    if workload is None or status is None:
        return
    if event.outcome is Outcome.DONE:
        status.failures = 0
        return
    if event.refusal_number not in ANOTHER_CHANGED_IT:
        status.failures += 1
    if status.message == action.message:
        status.condition = status.message = ""  # set the condition again, after a pause
        status.is_first = False
        status.essence = ()
    if isinstance(action, act.SetPodCondition) and action.event == names.GRANT_RELEASED and action.uid in workload.pods:
        # Its event was not posted.  No later status says this, if the pod was bound meanwhile.
        workload.release_messages.setdefault(action.uid, action.message)


def _restore_ended(world: World, action: act.RestoreKeys, event: ev.ActionEnded) -> None:
    """Note the end of the write, whose effect the watch shows.  The wait before the next write doubles each time."""
    workload = world.workloads.get(action.key)
    edited = workload.edited.get(action.uid) if workload is not None else None
    if edited is not None:
        tuning = world.config.tuning
        edited.under_way = False
        edited.next_at = event.at + min(tuning.renew_event_s, tuning.condition_s * 2 ** min(edited.put_back, 16))
        edited.put_back += event.outcome is Outcome.DONE


def _note_failure(world: World, subject: OwnerKey | str, event: ev.ActionEnded) -> None:
    """If a read for which pods wait failed, note why and since when.  subject: an owner, or the UID of a pod with claims"""
    if event.outcome is Outcome.DONE:
        world.cannot_read.pop(subject, None)
        return
    since = world.cannot_read.pop(subject, (event.at, ""))[0]
    why = event.refusal.message.rstrip(" .") if event.refusal is not None else "there was no answer"
    world.cannot_read[subject] = (since, f"{why}.")
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
            world.back_off(world.workloads[key], event.at)
            world.dirty[key] = None


def _claims_ended(world: World, action: act.ReadClaims | act.SelectVolumeNode, event: ev.ActionEnded) -> None:
    world.reading_refs.discard(action.uid)
    _note_failure(world, action.uid, event)
    workload = world.workloads.get(action.key)
    if workload is not None and event.outcome is not Outcome.DONE:
        world.back_off(workload, event.at)


ON_ENDED: Mapping[type, Callable[[World, Any, ev.ActionEnded], None]] = {
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
}
