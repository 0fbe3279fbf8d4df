"""Applies lists and events of pods to the World: pods of this scheduler, and other pods because they take room on nodes.

A list replaces the former list as a whole: a pod that the list lacks is gone.  Events of pods of this scheduler wait until
the mark of the cluster is known, which is made from a namespace: with the mark, pods that a previous process bound are
recognized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scheduler import events as ev
from scheduler import names
from scheduler.apply.hinted_jobs import take_hint, take_late_hint
from scheduler.apply.membership import take_workload
from scheduler.apply.relabelled import gather
from scheduler.apply.settling import counts_the_same, settle, settle_and_refresh, settle_left
from scheduler.apply.surplus import forget_surplus
from scheduler.apply.undecoded import note_decoded, note_list
from scheduler.events import Scope
from scheduler.model import kubelet
from scheduler.model.clocks import FirstSeen
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.refusal import Refusal
from scheduler.state import confirmation, other_schedulers, quarantine, rivals
from scheduler.state.job_ownership import belongs_to
from scheduler.state.named_job import shown_id
from scheduler.state.own_keys import note_edits
from scheduler.state.phase import Phase
from scheduler.state.pod_counts import stays
from scheduler.state.pod_records import deleted_pod
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.job_options import user_input


def _keep_if_early(world: World, event: ev.PodSeen | ev.PodDeleted | ev.PodsListed) -> bool:
    """Keep a pod event if the mark of the cluster is not known yet.  Returns True if the event was kept."""
    if event.scope is not Scope.OURS or world.is_cluster_known:
        return False
    world.early.append(event)
    return True


def _pod_seen(world: World, event: ev.PodSeen) -> None:
    if _keep_if_early(world, event):
        return
    if event.scope in world.listed:
        world.listed[event.scope].add(event.pod.uid)
    note_decoded(world, event.scope, event.pod)
    _apply_node_of_pod(world, event.pod, _put_on_node)
    if quarantine.keep_pod(world, event.pod):
        return
    if event.scope is Scope.OURS:
        _our_pod(world, event.pod)
    elif event.pod.node:
        other_schedulers.note_pod(world, event.pod)


def _pod_deleted(world: World, event: ev.PodDeleted) -> None:
    if _keep_if_early(world, event):
        return
    world.listed.get(event.scope, set()).discard(event.pod.uid)
    note_decoded(world, event.scope, event.pod)
    if quarantine.let_pod_go(world, event.pod, event.at):
        _apply_node_of_pod(world, event.pod, _remove_from_node)
    else:
        _forget_pod(world, event.scope, event.pod, event.at)


def _pods_listed(world: World, event: ev.PodsListed) -> None:
    if _keep_if_early(world, event):
        return
    is_first = event.scope not in world.listed
    before = world.listed.get(event.scope, set())
    world.listed[event.scope] = {pod.uid for pod in event.pods}
    if is_first and event.scope is Scope.OURS:
        world.first_listed = frozenset(world.listed[event.scope])
    note_list(world, event.scope, event.undecoded)
    _inherited(world, event)
    # Each pod is an event of its own, so that a pod that cannot be applied does not affect the others.
    for pod in event.pods:
        world.apply_part(ev.PodSeen(event.scope, pod))
    for uid in sorted(before - world.listed[event.scope]):
        last = _last_known(world, event.scope, uid)
        if last is None:
            continue
        if any(thing.is_it(last.namespace, last.name, uid) for thing in event.undecoded):
            world.listed[event.scope].add(uid)
        else:
            world.apply_part(ev.PodDeleted(event.scope, last, event.at))


def _inherited(world: World, event: ev.PodsListed) -> None:
    """Note if the pods of that scope were listed since this process leads.  As soon as both scopes were, binds go on."""
    if event.inherited:
        world.pods_inherited.add(event.scope)
    elif event.scope in world.pods_inherited:
        world.pods_inherited.discard(event.scope)
        if not world.pods_inherited:
            world.dirty.update(world.by_phase[Phase.GRANTED])


def _last_known(world: World, scope: Scope, uid: str) -> Pod | None:
    """The last state of a pod that a list lacks.  None: not known

    A bind whose effect the watch did not show may have put the pod on the node, and its containers may still run (S3).
    """
    if scope is Scope.OURS:
        workload = world.workloads.get(world.key_of_pod.get(uid, ""))
        pod = (workload.pods.get(uid) if workload else None) or quarantine.kept_pod(world, uid)
        return pod if pod is None or pod.node else replace(pod, node=world.assumed.get(uid, ""))
    node = world.node_of.get(uid)
    return None if node is None else world.node_info[node].pods[uid]


def _apply_node_of_pod(world: World, pod: Pod, change: Callable[[World, Pod], None]) -> None:
    """Apply the node of one pod.  If that raises in a guarded World, the counts of all other pods are recomputed."""
    try:
        change(world, pod)
    except Exception:
        if world.guarded:
            world.rebuild_node_info(pod.uid)
        raise


def _put_on_node(world: World, pod: Pod) -> None:
    """Update `node_info`, which has every unfinished pod with a node, whichever client bound it.

    A pod also counts while a bind of the bridge is planned or in flight.
    """
    assumed = world.assumed.get(pod.uid, "")
    if pod.node or pod.finished:
        world.unanswered_binds.pop(pod.uid, None)
    if pod.node and assumed:
        del world.assumed[pod.uid]
        if assumed != pod.node:
            world.remove_from_node(assumed, pod.uid)
    node = pod.node or assumed
    if not node or pod.finished:
        _remove_from_node(world, pod)
        return
    before = world.put_on_node(pod, node)
    if before is None or before.deleting_at != pod.deleting_at:
        world.room_changed()


def _remove_from_node(world: World, pod: Pod) -> None:
    for node in {pod.node, world.assumed.pop(pod.uid, "")}:
        world.remove_from_node(node, pod.uid)


def _our_pod(world: World, pod: Pod) -> None:
    key = world.key_of_pod.get(pod.uid)
    workload = take_workload(world, pod)
    before = workload.pods.get(pod.uid)
    _note_first_seen(world, before, pod)
    if before is not None and before.waits and pod.finished and pod.exit_code is None:
        pod = replace(pod, waits=before.waits)  # kubelet soon stops showing why the pod never started
    workload.put(pod)
    came_to_node = bool(pod.node) and (before is None or not before.node)
    if came_to_node:
        _note_binder(world, workload, before, pod)
    if before is not None and _shows_late_write(world, workload, before, pod):
        take_late_hint(world, workload, pod)
    note_edits(workload, before, pod)
    confirmation.observe(workload, pod)
    if before is not None and stays(before) and not stays(pod):
        workload.left_at = world.newest_event_at
    if before is None:
        workload.add_to_story(world.created_at(pod), f"pod {pod.full_name} created")
        workload.created = min(workload.created, pod.created)
    workload.deleted_pods.pop(pod.uid, None)
    _note_input(world, workload, before, pod)
    if before is None or not before.node:  # the bind wrote the hint; a later edit does not make one
        take_hint(world, workload, pod)
    if before is None and len(workload.pods) == 1:
        _detach_jobs_of_other_users(world, workload)
    if pod.node:
        workload.bound.pop(pod.uid, None)
    if came_to_node:
        _add_node_to_story(world, workload, pod)
    world.note_needs(workload, pod)
    world.granted_pods_changed(workload, [pod] if before is None else [before, pod])
    if (key == workload.key and counts_the_same(workload, before, pod)) or settle(world, workload, pod):
        world.refresh(workload)
    settle_left(world, key, workload)
    if before is None and pod.node:
        _follow_relabelled(world, workload, pod)


def _shows_late_write(world: World, workload: Workload, before: Pod, pod: Pod) -> bool:
    """True if a previous process may have written which job replaced the lost job of the pod (S7).

    Such a write may take effect until the quiet period is over, after the list that showed the pod with the lost job.
    """
    if world.newest_event_at >= world.quiet_until() or not world.is_older(pod) or not before.node:
        return False
    shown = shown_id(pod)
    if shown in (None, workload.hint, shown_id(before)) or names.JOB_SINCE not in pod.annotations:
        return False
    return workload.hint is not None and not world.is_listed_alive(workload.hint)


def _follow_relabelled(world: World, workload: Workload, pod: Pod) -> None:
    """If the job that the pod shows is known as the job of another workload, the pod may belong to that workload."""
    job = world.placeholders.get(shown_id(pod) or 0)
    if job is None or job.key is None or job.job is None or job.key == workload.key:
        return
    if (owner := world.workloads.get(job.key)) is not None:
        gather(world, owner, job.job)
    if world.key_of_pod.get(pod.uid) == workload.key:
        # The read shows that the pod has no job, as for pods of the first list.
        world.schedule_read(job.id, world.last_poll_began)


def _add_node_to_story(world: World, workload: Workload, pod: Pod) -> None:
    """Add to the story of the workload that the pod is on its node, with a time not before the time of the last entry."""
    created_at = world.created_at(pod)
    last_at = workload.story[-1][0] if workload.story else created_at
    where = f"is on node {pod.node}"
    workload.add_to_story(max(last_at, created_at), where if workload.group is None else f"{pod.name} {where}")


def _note_binder(world: World, workload: Workload, before: Pod | None, pod: Pod) -> None:
    """The pod came to a node: note if this process bound it, or if it is a stray, which another client bound.

    Each bind of the bridge writes the id of its job on the pod.  If a pod is older than this process and names a job, a
    previous process may have bound it, unless this process saw the pod wait; such a pod is not noted as a stray.
    """
    if workload.shows_own_bind(pod):
        workload.bound_by_bridge_before[pod.uid] = None
    may_be_of_previous_process = before is None and shown_id(pod) is not None and world.is_older(pod)
    if pod.uid not in workload.bound_by_bridge_before and not may_be_of_previous_process:
        workload.strays[pod.uid] = world.newest_event_at
        rivals.note(world, workload, pod)


def _note_input(world: World, workload: Workload, before: Pod | None, pod: Pod) -> None:
    """Note a new or changed input of the user.  If the pod's resources changed, earlier jobs do not fit its needs."""
    if before is None:
        world.input_changed(workload)
        return
    resized = _resources(before) != _resources(pod)
    if not resized and before.annotations == pod.annotations and _changeable(before) == _changeable(pod):
        return
    world.input_changed(workload)
    for asked in (*world.jobs_of(workload), workload.in_flight) if resized else ():
        if asked is not None:
            asked.asked_for -= {pod.uid}
    if before.node and (change := _changed(before, pod)):
        workload.late_changes[pod.uid] = change


def _note_first_seen(world: World, before: Pod | None, pod: Pod) -> None:
    """Note when this process first saw each fact of the pod, because times of other clocks may be wrong."""
    seen = world.first_seen.get(pod.uid)
    if seen is None:
        seen = world.first_seen[pod.uid] = FirstSeen(world.newest_event_at)
    if before is None:
        seen.waits_since = pod.waits_since
        seen.stuck = world.newest_event_at if _is_newly_stuck(pod) else None
        return
    if not kubelet.needs_a_person(pod.waits):
        if pod.waits or pod.phase is not PodPhase.PENDING:  # without either, an init container runs again after a crash
            seen.stuck = None
    elif kubelet.is_in_progress(before.waits) or _is_first_crash(pod, seen):
        seen.stuck = world.newest_event_at
    if pod.node and not before.node:
        seen.bound = world.newest_event_at
    if pod.started is not None and before.started is None:
        seen.started = world.newest_event_at
    if pod.waits_since is not None and pod.waits_since != seen.waits_since:
        seen.waits, seen.waits_since = world.newest_event_at, pod.waits_since


def _is_first_crash(pod: Pod, seen: FirstSeen) -> bool:
    """True if an init container failed that had not failed before: another one may have crashed, and succeeded at last."""
    if kubelet.reason(pod.waits) != kubelet.CRASHES:
        return False
    return seen.stuck is None or pod.waits_since != seen.waits_since


def _is_newly_stuck(pod: Pod) -> bool:
    """True if the time of a pod that this process sees for the first time begins now, and not when it was bound (S12).

    A previous process wrote that this pod does not start, and the present reason is another.  Or an init container crashes:
    nothing shows how long it ran before its first crash.
    """
    if not kubelet.needs_a_person(pod.waits):
        return False
    if kubelet.reason(pod.waits) == kubelet.CRASHES:
        return True
    said = pod.job_condition
    if said is None or said.reason != names.NOT_STARTING:
        return False
    return kubelet.reason(pod.waits) not in said.message


def _resources(pod: Pod) -> tuple[object, ...]:
    return pod.containers, pod.init_containers, pod.pod_requests, pod.pod_limits


def _changeable(pod: Pod) -> tuple[object, ...]:
    """What else of the spec decides about the job, and may be changed: some of it only while the pod is gated."""
    return pod.active_deadline_s, pod.tolerations, pod.node_selector, pod.node_affinity


def _changed(before: Pod, pod: Pod) -> str:
    """The parts of the user's input that changed, in words; "": none (K8, T11)."""
    if _resources(before) != _resources(pod):
        return "its resources"
    was, now = (user_input(version) for version in (before, pod))
    if isinstance(was, Refusal) or isinstance(now, Refusal):
        return "its annotations" if was != now else ""
    return ", ".join(sorted(names.PREFIX + key for key in was.keys() | now.keys() if was.get(key) != now.get(key)))


def _detach_jobs_of_other_users(world: World, workload: Workload) -> None:
    """The first pod of the workload came: drop jobs of its name that do not belong to the workload (V8)."""
    for job in [world.placeholders[job_id] for job_id in workload.jobs if job_id in world.placeholders]:
        if job.key != workload.key or belongs_to(world, workload, job.id, job.user, job.job):
            continue
        world.drop(job)
        world.schedule_read(job.id, world.last_poll_began)  # the job may be of a former user, or foreign


def _forget_pod(world: World, scope: Scope, pod: Pod, at: float) -> None:
    _apply_node_of_pod(world, pod, _remove_from_node)
    world.forget_pod(pod.uid)
    workload = world.workloads.get(world.key_of_pod.get(pod.uid, ""))
    if workload is None:
        return
    forget_surplus(world, workload, pod.uid)
    last = workload.take_out(pod.uid)
    if last is not None and stays(last):
        workload.left_at = at
    was_on_node = bool(workload.node_of(pod))
    workload.deleted_pods[pod.uid] = deleted_pod(pod, at, world.config.tuning, was_on_node=was_on_node)
    workload.bound.pop(pod.uid, None)
    in_flight = workload.pods_in_flight.pop(pod.uid, None)
    workload.last_status.pop(pod.uid, None)
    for index in (
        workload.late_changes,
        workload.end_refused,
        workload.anomalies,
        workload.unconfirmed_binds,
        workload.edited,
        workload.renewed,
        workload.strays,
    ):
        index.pop(pod.uid, None)
    confirmation.observe_deletion(workload, pod, in_flight)
    workload.add_to_story(at, f"pod {pod.full_name} is gone")
    world.granted_pods_changed(workload, [pod])
    settle_and_refresh(world, workload)
    world.key_of_pod.pop(pod.uid, None)  # last, because the functions above need it


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {
    ev.PodSeen: _pod_seen,
    ev.PodDeleted: _pod_deleted,
    ev.PodsListed: _pods_listed,
}
