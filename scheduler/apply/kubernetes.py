"""Applies observations of Kubernetes to the World: pods, nodes, namespaces, and the objects that pods refer to.

A list swaps whole: what is not in it does not exist.  An object that cannot be decoded exists, and keeps its last known
state.  Parts of `World.apply`; only marks what is worth another look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from scheduler import events as ev
from scheduler import names
from scheduler.apply.membership import counts_the_same, settle, take_workload
from scheduler.apply.policy import identity_changed, namespaces_first_listed
from scheduler.events import Scope
from scheduler.model import kubelet
from scheduler.model.clocks import Sighting
from scheduler.model.kubernetes import Namespace, Node, Owner, OwnerKey, Pod, Undecoded, owner_key
from scheduler.model.refusal import Refusal
from scheduler.nodes.observed import NEVER
from scheduler.place.feasible import slurm_name
from scheduler.state import confirmation, quarantine, rivals, strays
from scheduler.state.job_ownership import belongs_to
from scheduler.state.named_job import shown_id
from scheduler.state.own_keys import note_edits
from scheduler.state.phase import Phase
from scheduler.state.undecoded import NAMESPACE, NODE
from scheduler.state.workload import PENDING, RUNNING, DeletedPod, Placeholder, Workload, stays
from scheduler.state.world import World
from scheduler.translate.job_options import user_input

_Listed = TypeVar("_Listed", Node, Namespace)

MAX_OWNERS_REMEMBERED = 10_000  # controllers whose annotations are kept; the oldest are read again when needed
USUAL_OWNER = 4096  # characters; a longer owner counts as several


def _keep_if_early(world: World, event: ev.PodSeen | ev.PodGone | ev.PodsListed) -> bool:
    """Keep a pod event until the mark of the cluster is known, which shows what a previous process bound."""
    if event.scope is not Scope.OURS or world.cluster_known:
        return False
    world.early.append(event)
    return True


def _fold_early(world: World) -> None:
    if world.cluster_known:
        early, world.early = world.early, []
        for each in early:
            world.fold(each)


def _pod_seen(world: World, event: ev.PodSeen) -> None:
    if _keep_if_early(world, event):
        return
    if event.scope in world.listed:
        world.listed[event.scope].add(event.pod.uid)
    _note_decoded(world, event.scope, event.pod)
    _apply_node_of_pod(world, event.pod, _put_on_node)
    if world.quarantine and quarantine.keep_pod(world, event.pod):
        return
    if event.scope is Scope.OURS:
        _our_pod(world, event.pod)
    elif event.pod.node:
        strays.note(world, event.pod)


def _pod_gone(world: World, event: ev.PodGone) -> None:
    if _keep_if_early(world, event):
        return
    world.listed.get(event.scope, set()).discard(event.pod.uid)
    _note_decoded(world, event.scope, event.pod)
    if world.quarantine and quarantine.let_pod_go(world, event.pod, event.at):
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
    _undecoded_listed(world, event.scope, event.undecoded)
    _inherited(world, event)
    for pod in event.pods:  # each by itself: one that cannot be folded does not lose the others
        world.fold(ev.PodSeen(event.scope, pod))
    for uid in before - world.listed[event.scope]:
        last = _last_known(world, event.scope, uid)
        if last is None:
            continue
        if any(each.is_it(last.namespace, last.name, uid) for each in event.undecoded):
            world.listed[event.scope].add(uid)
        else:
            world.fold(ev.PodGone(event.scope, last, event.at))


def _inherited(world: World, event: ev.PodsListed) -> None:
    """Note whether the pods of that scope were listed since this process leads; if all were, binds go on."""
    if event.inherited:
        world.pods_inherited.add(event.scope)
    elif event.scope in world.pods_inherited:
        world.pods_inherited.discard(event.scope)
        if not world.pods_inherited:
            world.dirty.update(world.by_phase[Phase.GRANTED])


def _undecoded_listed(world: World, where: Scope | str, undecoded: tuple[Undecoded, ...]) -> None:
    if undecoded or any(True for _ in world.undecoded):
        world.undecoded.listed(where, undecoded)
        world.dirty.update(world.by_phase[Phase.DONE])  # their jobs may have been kept for such an object (`end_job`)


def _note_decoded(world: World, where: Scope | str, thing: Pod | Node | Namespace) -> None:
    namespace = thing.namespace if isinstance(thing, Pod) else ""
    if world.undecoded.decoded(where, namespace, thing.name, thing.uid):
        world.dirty.update(world.by_phase[Phase.DONE])


def _object_undecoded(world: World, event: ev.ObjectUndecoded) -> None:
    world.undecoded.observe(event.scope or event.object.kind, event.object)


def _last_known(world: World, scope: Scope, uid: str) -> Pod | None:
    if scope is Scope.OURS:
        workload = world.workloads.get(world.key_of_pod.get(uid, ""))
        return (workload.pods.get(uid) if workload else None) or quarantine.kept_pod(world, uid)
    node = world.node_of.get(uid)
    return None if node is None else world.node_info[node].pods[uid]


def _apply_node_of_pod(world: World, pod: Pod, fold: Callable[[World, Pod], None]) -> None:
    """Apply the node of one pod.  If that raises, the counts of all other pods are recomputed."""
    try:
        fold(world, pod)
    except Exception:
        if world.guarded:
            world.rebuild_node_info(pod.uid)
        raise


def _put_on_node(world: World, pod: Pod) -> None:
    """Keep `node_info`: every unfinished pod with a node, whatever client bound it; a bind of the bridge counts at once."""
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
    workload = take_workload(world, pod)
    before = workload.pods.get(pod.uid)
    _note_sighting(world, before, pod)
    if before is not None and before.waits and pod.finished and pod.exit_code is None:
        pod = replace(pod, waits=before.waits)  # why it never started its kubelet says no more soon after its end
    workload.put(pod)
    came_to_node = bool(pod.node) and (before is None or not before.node)
    if came_to_node:
        _note_binder(world, workload, before, pod)
    note_edits(workload, before, pod)
    confirmation.observe(workload, pod)
    if before is not None and stays(before) and not stays(pod):
        workload.left_at = world.newest_event_at
    if before is None:
        workload.add_to_story(world.created_at(pod), f"pod {pod.full_name} created")
        workload.created = min(workload.created, pod.created)
    workload.gone.pop(pod.uid, None)
    _note_input(world, workload, before, pod)
    if before is None or not before.node:  # written with the bind; what is edited later is the user's invention
        _take_hint(world, workload, pod)
    if before is None and len(workload.pods) == 1 and workload.jobs:
        _detach_jobs_of_other_users(world, workload)
    if pod.node:
        workload.bound.pop(pod.uid, None)
    if came_to_node:
        _add_node_to_story(world, workload, pod)
    world.note_needs(workload, pod)
    if counts_the_same(workload, before, pod) or settle(world, workload, pod):
        world.refresh(workload)


def _add_node_to_story(world: World, workload: Workload, pod: Pod) -> None:
    """Add to the story of the workload that the pod is on its node, with a time not before that of the last entry."""
    last_at = workload.story[-1][0] if workload.story else world.created_at(pod)
    where = f"is on node {pod.node}"
    workload.add_to_story(
        max(last_at, world.created_at(pod)), where if workload.group is None else f"{pod.name} {where}"
    )


def _note_binder(world: World, workload: Workload, before: Pod | None, pod: Pod) -> None:
    """Note whether this process bound the pod, which now is on a node, or another client did.

    Each bind of the bridge writes the id of its job on the pod.  A previous process may have bound an older pod that names a
    job, unless this process saw the pod wait.
    """
    bind, shown = workload.unconfirmed_binds.get(pod.uid), pod.annotations.get(names.JOB_ID)
    if bind is not None and bind.node == pod.node and bind.annotations.get(names.JOB_ID) == shown:
        workload.bound_by_bridge_before[pod.uid] = None
    may_be_of_earlier_life = before is None and shown_id(pod) is not None and world.is_older(pod)
    if pod.uid not in workload.bound_by_bridge_before and not may_be_of_earlier_life:
        workload.strays[pod.uid] = world.newest_event_at
        rivals.note(world, workload, pod)


def _note_input(world: World, workload: Workload, before: Pod | None, pod: Pod) -> None:
    """Note a new or changed input of the user: a job that was requested before does not name what the pod needs now."""
    if before is None:
        world.input_changed(workload)
        return
    resized = _resources(before) != _resources(pod)
    if not resized and before.annotations == pod.annotations:
        return
    world.input_changed(workload)
    for asked in (*world.jobs_of(workload), workload.in_flight) if resized else ():
        if asked is not None:
            asked.asked_for -= {pod.uid}
    if before.node and (what := _changed(before, pod)):
        workload.late_changes[pod.uid] = what


def _note_sighting(world: World, before: Pod | None, pod: Pod) -> None:
    """Note when this process first saw what the pod shows: times of other clocks may be wrong."""
    seen = world.sightings.get(pod.uid)
    if seen is None:
        seen = world.sightings[pod.uid] = Sighting(world.newest_event_at)
    if before is None:
        seen.waits_since = pod.waits_since
        seen.stuck = world.newest_event_at if _shows_another_reason(pod) else None
        return
    if not kubelet.needs_a_person(pod.waits):
        seen.stuck = None
    elif kubelet.goes_on(before.waits):
        seen.stuck = world.newest_event_at
    if pod.node and not before.node:
        seen.bound = world.newest_event_at
    if pod.started is not None and before.started is None:
        seen.started = world.newest_event_at
    if pod.waits_since is not None and pod.waits_since != seen.waits_since:
        seen.waits, seen.waits_since = world.newest_event_at, pod.waits_since


def _shows_another_reason(pod: Pod) -> bool:
    """True if a previous process said that this pod does not start, for another reason than the present one."""
    said = pod.job_condition
    if said is None or said.reason != names.NOT_STARTING or not kubelet.needs_a_person(pod.waits):
        return False
    return kubelet.reason(pod.waits) not in said.message


def _resources(pod: Pod) -> tuple[object, ...]:
    return pod.containers, pod.init_containers, pod.pod_requests, pod.pod_limits


def _changed(before: Pod, pod: Pod) -> str:
    """The parts of the user's input that changed, in words; "": none (K8, T11)."""
    if _resources(before) != _resources(pod):
        return "its resources"
    was, now = (user_input(each) for each in (before, pod))
    if isinstance(was, Refusal) or isinstance(now, Refusal):
        return "its annotations" if was != now else ""
    return ", ".join(sorted(names.PREFIX + key for key in was.keys() | now.keys() if was.get(key) != now.get(key)))


def _take_hint(world: World, workload: Workload, pod: Pod) -> None:
    """A job id that the pod shows: enough to leave it in peace, never enough to act on (ARCHITECTURE 4)."""
    job_id = shown_id(pod) if pod.node else None
    condition = workload.shown_condition(pod)
    if job_id is None and not pod.node and condition is not None and not workload.jobs:
        job_id = names.shown_job(condition.message)
    if job_id is None or job_id == workload.hint:
        return
    edited = workload.edited.get(pod.uid)
    if edited is not None and names.JOB_ID in edited.right and pod.uid in workload.bound_by_bridge_before:
        return  # the bind of the bridge wrote another id, which was edited before the watch showed the bind
    known = world.placeholders.get(job_id)
    if known is not None and known.absent and not known.proven and not world.may_have_bound(workload):
        return  # another client wrote it, and the job is missing already
    leaves = pod.finished or pod.deleting_at is not None
    if workload.hint is None or not (leaves or _is_bound_by_other_client(workload, pod)):
        # Otherwise the last pod of the gang's former job, or a pod that another client bound, would hide the gang's job.
        workload.hint = job_id
    dropped = workload.bound_by_this_process and not world.jobs_of(
        workload
    )  # what was known of its job was (`quarantine`)
    if job_id not in world.placeholders and (dropped or job_id not in world.foreign):
        unlisted = world.polled is not None and job_id not in world.states
        if unlisted and (not pod.node or pod.finished):
            return  # the job ended, and no pod depends on it
        states = world.states.get(job_id, PENDING if not pod.node else RUNNING)
        world.placeholders[job_id] = Placeholder(job_id, None, "", states, known_since=float("-inf"))
        if world.inherited(workload):  # a pod that came after the start may show a foreign job, which is read
            world.stop_reading(job_id)
        if job_id in world.foreign:  # it may have been theirs until its id was given out again
            world.foreign.discard(job_id)
            world.schedule_read(job_id, world.last_poll_began)
        world.expected.add(job_id)
    if (job := world.placeholders.get(job_id)) is not None:
        workload.jobs.add(job_id)
        if job.hinted_by - {workload.key} and not job.proven and not job.ended:  # one of them names what is not its own
            world.schedule_read(job_id, world.last_poll_began)
        job.hinted_by.add(workload.key)


def _is_bound_by_other_client(workload: Workload, pod: Pod) -> bool:
    """True if another client bound the pod, and the bridge bound other pods of its gang."""
    return pod.uid in workload.strays and not workload.all_bound_by_others


def _detach_jobs_of_other_users(world: World, workload: Workload) -> None:
    """Its first pod came: jobs of its name that were read before count only if they are of a user of the pod (V8)."""
    for job in [world.placeholders[job_id] for job_id in workload.jobs if job_id in world.placeholders]:
        if job.key != workload.key or belongs_to(world, workload, job.id, job.user, job.job):
            continue
        world.drop(job)
        world.schedule_read(job.id, world.last_poll_began)  # it may be a stray, or foreign


def _forget_pod(world: World, scope: Scope, pod: Pod, at: float) -> None:
    _apply_node_of_pod(world, pod, _remove_from_node)
    world.unanswered_binds.pop(pod.uid, None)
    workload = world.workloads.get(world.key_of_pod.get(pod.uid, ""))
    if workload is None:
        return
    last = workload.take_out(pod.uid)
    if last is not None and stays(last):
        workload.left_at = at
    stood = workload.node_of(pod) or (workload.node_of(last) if last else "")
    clean = pod.finished or not stood
    tuning = world.config.tuning
    until = at if clean else at + tuning.grace_counts_s(pod.grace_s) + tuning.gone_grace_s
    workload.gone[pod.uid] = DeletedPod(pod, at, until)
    workload.bound.pop(pod.uid, None)
    held = workload.pods_in_flight.pop(pod.uid, None)
    workload.last_status.pop(pod.uid, None)
    for index in (
        workload.late_changes,
        workload.anomalies,
        workload.unconfirmed_binds,
        workload.edited,
        workload.renewed,
        workload.strays,
    ):
        index.pop(pod.uid, None)
    world.bypassing.discard(pod.uid)
    confirmation.observe_deletion(workload, pod, held)
    for per_pod in (world.sightings, world.cannot_read):
        per_pod.pop(pod.uid, None)
    world.claims.pop(pod.uid, None)
    world.claims_read_at.pop(pod.uid, None)
    workload.add_to_story(at, f"pod {pod.full_name} is gone")
    if settle(world, workload):
        world.refresh(workload)
    world.key_of_pod.pop(pod.uid, None)  # last: it is needed until here


def _node_seen(world: World, event: ev.NodeSeen) -> None:
    _note_decoded(world, NODE, event.node)
    if world.nodes is None or world.nodes.get(event.node.name) == event.node:
        return
    before = world.nodes.get(event.node.name)
    world.nodes[event.node.name] = event.node
    world.note_health([event.node], () if before is not None else (event.node.name,))
    if before is None or before.kubelet_silent_since != event.node.kubelet_silent_since:
        _mark_workloads_on(world, {event.node.name})
    world.node_state.observe(before, event.node, world.config.translation.gres, world.slurm_nodes or {})
    if before is None or slurm_name(before) != slurm_name(event.node):
        _nodes_changed(world)
    elif _read_by_feasibility(before) != _read_by_feasibility(event.node):
        world.feasibility_changed()


def _read_by_feasibility(node: Node) -> tuple[object, ...]:
    """The parts of a node that decide where pods may run; the bridge's own writes on a node are not among them."""
    return (node.labels, node.ready, node.unschedulable, node.taints, node.allocatable)


def _mark_workloads_on(world: World, names: Collection[str]) -> None:
    """Visit the workloads with pods on these nodes, or gone from there: their kubelets fell silent or answer again (S8)."""
    there = [world.node_info[name] for name in names if name in world.node_info]
    keys = (world.key_of_pod.get(uid) for each in there for uid in each.pods)
    world.dirty.update(dict.fromkeys(key for key in keys if key is not None))
    done = ((key, world.workloads[key].gone.values()) for key in world.by_phase[Phase.DONE])
    world.dirty.update(dict.fromkeys(key for key, gone in done if any(each.pod.node in names for each in gone)))


def _node_gone(world: World, event: ev.NodeGone) -> None:
    gone = world.nodes.pop(event.name, None) if world.nodes is not None else None
    world.kubelet_silent_since.pop(event.name, None)
    world.ready_since.pop(event.name, None)
    if gone is not None:
        _mark_workloads_on(world, {event.name})
        world.node_state.lost(gone)
        _nodes_changed(world)


def _with_undecoded(
    listed: Iterable[_Listed], before: Mapping[str, _Listed] | None, undecoded: Collection[Undecoded]
) -> dict[str, _Listed]:
    """The objects of a list, by name.  An object that cannot be decoded keeps its last known state."""
    found = {each.name: each for each in listed}
    if undecoded:
        kept = (each for each in (before or {}).values() if each.name not in found)
        found |= {each.name: each for each in kept if any(its.is_it("", each.name, each.uid) for its in undecoded)}
    return found


def _nodes_listed(world: World, event: ev.NodesListed) -> None:
    _undecoded_listed(world, NODE, event.undecoded)
    nodes = _with_undecoded(event.nodes, world.nodes, event.undecoded)
    if nodes != world.nodes:
        before, world.nodes = world.nodes or {}, nodes
        for index in (world.kubelet_silent_since, world.ready_since):
            for name in index.keys() - nodes.keys():
                del index[name]
        world.note_health(event.nodes, nodes.keys() - before.keys())
        _mark_workloads_on(world, before.keys() | nodes.keys())
        known = world.node_state.forget_names()
        for node in tuple(nodes.values()):
            try:
                world.node_state.observe(None, node, world.config.translation.gres, world.slurm_nodes or {})
            except Exception as error:  # noqa: BLE001 - contained to the node, or raised
                quarantine.quarantine_node(world, node, error)
        world.node_state.mark(known)
        _nodes_changed(world)


def _nodes_changed(world: World) -> None:
    world.map_names()
    world.feasibility_changed()
    strays.find(world)


def _namespace_seen(world: World, event: ev.NamespaceSeen) -> None:
    _note_decoded(world, NAMESPACE, event.namespace)
    if world.namespaces is not None:
        before = world.namespaces.get(event.namespace.name)
        world.namespaces[event.namespace.name] = event.namespace
        if before is None or before.labels != event.namespace.labels:
            _managed_changed(world)
            identity_changed(world, {event.namespace.name})
        _fold_early(world)


def _namespace_gone(world: World, event: ev.NamespaceGone) -> None:
    world.labels_at.pop(event.name, None)
    if world.namespaces is not None and event.name != "kube-system":
        world.namespaces.pop(event.name, None)
        _managed_changed(world)


def _namespaces_listed(world: World, event: ev.NamespacesListed) -> None:
    _undecoded_listed(world, NAMESPACE, event.undecoded)
    namespaces = _with_undecoded(event.namespaces, world.namespaces, event.undecoded)
    is_first = world.namespaces is None
    before, world.namespaces = world.namespaces or {}, namespaces
    _managed_changed(world)
    changed = {name for name, each in namespaces.items() if name not in before or before[name].labels != each.labels}
    (namespaces_first_listed if is_first else identity_changed)(world, changed)
    _fold_early(world)
    if world.node_state.polled == NEVER:
        world.slurm_nodes_shown(partial(quarantine.quarantine_slurm_node, world))


def _managed_changed(world: World) -> None:
    """Namespaces became managed, or are not any more: pods of the others are neither submitted nor bound."""
    for each in (Phase.UNSUBMITTED, Phase.GRANTED, Phase.ORPHANED):
        world.dirty.update(world.by_phase[each])
    world.dirty.update(dict.fromkeys(key for key in world.by_phase[Phase.BOUND] if world.workloads[key].strays))
    strays.find(world)


def _clock_observed(world: World, event: ev.ClockObserved) -> None:
    world.clocks[event.side].observe(event.theirs, event.began, event.ended)


def _owner_read(world: World, event: ev.OwnerRead) -> None:
    owner = owner_key(event.namespace, event.ref)
    held = world.owner_sizes.get(owner, 0)
    changed = owner in world.owners and world.owners.pop(owner) != event.owner
    world.owners[owner], world.owner_read_at[owner] = event.owner, event.at
    world.owner_sizes[owner] = _size_of(event.owner)
    world.owners_weight += world.owner_sizes[owner] - held
    while world.owners_weight > MAX_OWNERS_REMEMBERED and len(world.owners) > 1:
        oldest = next(iter(world.owners))
        world.owners_weight -= world.owner_sizes.get(oldest, 0)
        for index in (world.owners, world.owner_read_at, world.owner_asked_at, world.owner_sizes):
            index.pop(oldest, None)
    if changed:
        _owner_changed(world, owner)
    for key in world.waits_for_owner.pop(owner, ()):
        if key in world.workloads:
            try:
                if settle(world, world.workloads[key]):
                    world.refresh(world.workloads[key])
            except Exception as error:  # noqa: BLE001 - contained to the workload, or raised
                quarantine.quarantine_workload(world, key, error)


def _size_of(owner: Owner | None) -> int:
    """The size of the controller in memory, in controllers of usual size."""
    if owner is None:
        return 1
    jobs = sum(len(job) for stage in owner.stages for job in stage.jobs)
    return 1 + (sum(map(len, owner.annotations.values())) + jobs) // USUAL_OWNER


def _owner_changed(world: World, owner: OwnerKey) -> None:
    """Another word of an owner: what was refused because of the one before is asked for again (Q4)."""
    for phase in (Phase.UNSUBMITTED, Phase.QUEUED):
        for key in world.by_phase[phase]:
            workload = world.workloads[key]
            first = workload.members[:1]
            if any(owner_key(pod.namespace, each.ref) == owner for pod in first for each in world.owners_of(pod)[0]):
                world.input_changed(workload)
                world.dirty[key] = None


def _claims_read(world: World, event: ev.ClaimsRead) -> None:
    key = world.key_of_pod.get(event.uid)
    if key is None:
        return  # the pod is gone
    world.claims[event.uid] = event.claims
    world.claims_read_at[event.uid] = event.at
    world.dirty[key] = None
    if any(claim.problem for claim in event.claims):
        world.back_off(world.workloads[key], event.at)  # visited again after the wait


def _rights_checked(world: World, event: ev.RightsChecked) -> None:
    """Where rights are back, what failed for lack of them is tried at once (scheduler/rules/missing_rights.py)."""
    before, world.lacking_rights = world.lacking_rights, dict(event.lacking)
    back = before.keys() - event.lacking.keys()
    changed = back | {name for name, why in event.lacking.items() if before.get(name) != why}
    for workload in world.workloads.values():
        if workload.namespace in back:
            workload.reset_backoffs()
            world.input_changed(workload)
        if workload.namespace in changed:
            world.dirty[workload.key] = None


FOLDS: Mapping[type, Callable[[World, Any], None]] = {
    ev.PodSeen: _pod_seen,
    ev.PodGone: _pod_gone,
    ev.PodsListed: _pods_listed,
    ev.NodeSeen: _node_seen,
    ev.NodeGone: _node_gone,
    ev.NodesListed: _nodes_listed,
    ev.NamespaceSeen: _namespace_seen,
    ev.NamespaceGone: _namespace_gone,
    ev.NamespacesListed: _namespaces_listed,
    ev.ObjectUndecoded: _object_undecoded,
    ev.ClockObserved: _clock_observed,
    ev.OwnerRead: _owner_read,
    ev.ClaimsRead: _claims_read,
    ev.RightsChecked: _rights_checked,
}
