"""Contains an error of the bridge itself to the object that the error is about (X8).

A rule, or a function that applies an event, has a defect if it raises.  By default the exception is raised further, so that
tests and simulation fail.  A running bridge asks for containment (`World(guarded=True)`): the exception puts the object in
quarantine, and all other work goes on.  Nothing is done to a workload or a node in quarantine: no submission, no bind, no
cancel, no deletion.

A rule that raised has changed no facts.  It runs again when its object changes, and every `quarantine_s`.

A function that raised while it applied an event may have written half of its facts.  So all facts of its object are dropped,
as if the bridge had just started.  The last observed state of a workload's pods, or of a Kubernetes node, is kept; a job is
read again.  When the object is tried again, its facts are rebuilt from these states.  The actions in flight for a workload
stay in flight, and facts elsewhere stay, such as the room that its pods take on their nodes.

`World.alarms` has entries for the log: one when an object comes into quarantine, or gets another error; none while the same
error repeats.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from scheduler import actions as act
from scheduler import events as ev
from scheduler import names
from scheduler.actions import ObjectKind
from scheduler.events import Scope
from scheduler.model.kubernetes import Node, Pod, owner_key
from scheduler.place.feasible import slurm_name
from scheduler.state.derived import count_immediate_under_way, count_under_way
from scheduler.state.in_flight import JobSearch
from scheduler.state.named_job import is_bound_for
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_counts import PodCounts
from scheduler.state.pod_records import deleted_pod
from scheduler.state.quarantined import Alarm, Quarantined, origin_of
from scheduler.state.workload import Workload
from scheduler.state.world import World


def is_dropped(world: World, kind: ObjectKind, name: str) -> bool:
    """True if the facts of the object were dropped: only its entry in quarantine is left."""
    entry = world.quarantine.get((kind, name))
    return entry is not None and entry.dropped


def put(world: World, kind: ObjectKind, name: str, error: Exception, readable: str = "") -> Quarantined:
    """Put the object in quarantine, or prolong its quarantine.  Its facts stay.  Returns its entry."""
    at, origin = world.newest_event_at, origin_of(error)
    entry = world.quarantine.get((kind, name))
    if entry is None:
        entry = world.quarantine[kind, name] = Quarantined(kind, name, readable or name, origin, at, at)
        world.alarms.append(Alarm(kind, entry.readable, error))
    elif entry.origin != origin:
        entry.origin = origin
        world.alarms.append(Alarm(kind, entry.readable, error))
    entry.retry_at = at + world.config.tuning.quarantine_s
    entry.changed = False
    return entry


def apply_plan(world: World, plan: act.Plan) -> None:
    """Apply what a plan says about quarantine: the objects whose rule raised, that leave quarantine, and that are rebuilt."""
    for kind, name, error in plan.failed:
        _only_guarded(world, error)
        workload = world.workloads.get(name) if kind is ObjectKind.WORKLOAD else None
        put(world, kind, name, error, workload.readable if workload is not None else "")
        if workload is not None:
            world.count_queued(workload)
    for subject in plan.lifted:
        world.quarantine.pop(subject, None)
    for subject in plan.retried:
        try_again(world, *subject)


# --- after an exception while an event was applied ------------------------------------------------------------------


def contain(world: World, event: ev.Event, error: Exception) -> None:
    """Drop the object that the event is about, so that no half-written facts about it remain."""
    try:
        _blame(world, event, error)
    except Exception as second:  # noqa: BLE001 - a defect of the containment does not end the loop
        put(world, ObjectKind.SHARED, type(event).__name__, error)
        put(world, ObjectKind.SHARED, f"containment of {type(event).__name__}", second)


def _blame(world: World, event: ev.Event, error: Exception) -> None:
    match event:
        case ev.PodSeen():
            quarantine_pod(world, event.scope, event.pod, error)
        case ev.PodDeleted():
            quarantine_pod(world, event.scope, event.pod, error, gone_at=event.at)
        case ev.NodeSeen():
            quarantine_node(world, event.node, error)
        case ev.NodeDeleted():
            _drop_node(world, event.name, error)
        case ev.ClaimsRead() if event.uid in world.key_of_pod:
            quarantine_workload(world, world.key_of_pod[event.uid], error)
        case ev.JobRead():
            _drop_read_job(world, event, error)
        case ev.ActionEnded():
            contain_action(world, event.action, error, event.job_id)
            _search_job_of(world, event)
        case ev.Planned():
            put(world, ObjectKind.SHARED, type(event).__name__, error)
            world.dirty.update(dict.fromkeys(event.plan.visited))  # actions that are not in flight are decided again
        case _:
            put(world, ObjectKind.SHARED, type(event).__name__, error)


def contain_shared(world: World, work: str, error: Exception) -> None:
    """Contain an error in work that is about all objects.  work: a name of this work"""
    _only_guarded(world, error)
    put(world, ObjectKind.SHARED, work, error)


def _only_guarded(world: World, error: Exception) -> None:
    if not world.guarded:
        raise error


def quarantine_workload(
    world: World, key: str, error: Exception, pods: Iterable[Pod] = (), jobs: Iterable[int | None] = ()
) -> None:
    """Drop a workload.

    pods   the states of its pods that were just observed
    jobs   ids of the jobs about which an event could not be applied: they are dropped, too, and read again
    """
    _only_guarded(world, error)
    before = world.workloads.get(key)
    if before is None:
        put(world, ObjectKind.SHARED, "an event of no workload", error)
        return
    kept = _drop_workload(world, before, pods, [job_id for job_id in jobs if job_id is not None])
    entry = put(
        world, ObjectKind.WORKLOAD, key, error, before.readable or next((pod.full_name for pod in kept.values()), "")
    )
    entry.dropped, entry.pods = True, entry.pods | kept
    entry.changes_at = world.newest_event_at + world.config.tuning.backoff_s


def _drop_workload(world: World, before: Workload, pods: Iterable[Pod], jobs: Collection[int]) -> dict[str, Pod]:
    """Drop the facts that follow from the workload's pods, and keep its actions in flight.

    The workload stays in the World without pods, so that answers to its actions find it.  Returns the last states of its
    pods, by UID.
    """
    kept = before.pods | {pod.uid: pod for pod in pods}
    for key in [names.workload_key(uid) for uid in (*kept, *before.surplus)]:
        other = world.workloads.get(key) if key != before.key else None
        # The exception came while a pod was moved from one workload to the other.
        if other is not None and any(uid in kept or world.key_of_pod.get(uid) == before.key for uid in other.pods):
            kept = other.pods | kept
            world.forget(key)
    bare = _without_pods(world, before, jobs)
    for uid in kept:
        world.key_of_pod[uid] = bare.key
    for job_id in jobs:
        if (job := world.placeholders.get(job_id)) is not None:
            forget_job(world, job)
        else:
            world.schedule_read(job_id, world.last_poll_began)
    world.drop_facts(bare)
    return kept


def _without_pods(world: World, before: Workload, jobs: Collection[int]) -> Workload:
    """The workload without pods and these jobs, and with its actions in flight."""
    kept_action = (
        before.in_flight if before.in_flight is not None and world.is_under_way(before.in_flight.action) else None
    )
    pods_in_flight = {
        uid: in_flight
        for uid, in_flight in before.pods_in_flight.items()
        if in_flight.until is not None or world.is_under_way(in_flight.action)
    }
    return replace(
        before,
        group=None,
        shown={},
        regrouped={},
        size=1,
        last_rank=None,
        pod_counts=PodCounts(),
        pods={},
        jobs=before.jobs - set(jobs),
        hint=None if before.hint in jobs else before.hint,
        in_flight=kept_action,
        pods_in_flight=pods_in_flight,
    )


def forget_job(world: World, job: Placeholder) -> None:
    """Forget the job, and schedule a read of it."""
    world.remove_record(job)
    world.schedule_read(job.id, world.last_poll_began)


def quarantine_pod(world: World, scope: Scope, pod: Pod, error: Exception, *, gone_at: float | None = None) -> None:
    """Drop the workload of a pod; of a pod of another scheduler that is no workload, drop only the pod.

    gone_at   when the pod was deleted; None: it exists
    """
    _only_guarded(world, error)
    key = world.key_of_pod.get(pod.uid)
    if key is None and scope is Scope.OTHERS:
        entry = put(world, ObjectKind.POD, pod.uid, error, pod.full_name)
        entry.pods = {pod.uid: pod} if gone_at is None else {}
        return
    key = key or names.workload_key(pod.uid)
    if key not in world.workloads:
        world.workloads[key] = Workload(key, pod.full_name, created=pod.created)
    quarantine_workload(world, key, error, [pod])
    if gone_at is not None:
        _remove_pod(world, world.quarantine[ObjectKind.WORKLOAD, key], pod, gone_at)


def quarantine_node(world: World, node: Node, error: Exception) -> None:
    """Drop a Kubernetes node: until it is tried again, decisions are made as if it did not exist."""
    _only_guarded(world, error)
    name = slurm_name(node)
    _forget_nodes(world, {node.name}, except_in=name)  # its former name in Slurm may be another
    _drop_node(world, node.name, error, name, node)


def _drop_node(world: World, node: str, error: Exception, name: str = "", kept: Node | None = None) -> None:
    """Drop a Kubernetes node.

    name   its name in Slurm; "": not known
    kept   its last observed state; None: the node is gone
    """
    known = world.nodes.pop(node, None) if world.nodes is not None else None
    name = name or (slurm_name(known) if known is not None else node)
    world.node_state.drop_node(node)
    for index in (world.kubelet_silent_since, world.ready_since):
        index.pop(node, None)
    entry = put(world, ObjectKind.NODE, name, error, node)
    entry.dropped = True
    if kept is not None:
        entry.nodes[node] = kept
    world.map_names()
    world.feasibility_changed()


def quarantine_slurm_node(world: World, name: str, error: Exception) -> None:
    """Drop a node of Slurm whose state may be half-written.  The next poll notes its state again."""
    _only_guarded(world, error)
    world.node_state.drop_slurm_node(name)
    put(world, ObjectKind.NODE, name, error)


def quarantine_job(world: World, job_id: int, error: Exception) -> None:
    """Drop a job, and the workloads that have the job or show its id.  All of them are rebuilt later."""
    _only_guarded(world, error)
    job = world.placeholders.get(job_id)
    concerned = world.workloads_of(job) if job is not None else []
    for workload in concerned:
        quarantine_workload(world, workload.key, error, jobs=[job_id])
    if job is not None:
        forget_job(world, job)
    if not concerned:
        put(world, ObjectKind.JOB, str(job_id), error, f"Slurm job {job_id}")


def _drop_read_job(world: World, event: ev.JobRead, error: Exception) -> None:
    """Drop a job whose read could not be applied.  It is read again after `quarantine_s`, because each read may raise."""
    quarantine_job(world, event.job_id, error)
    named = names.parse_job_name(event.job.name) if event.job is not None else None
    if named is not None and named[1] in world.workloads:
        quarantine_workload(world, named[1], error, jobs=[event.job_id])
    world.schedule_read(event.job_id, world.last_poll_began)
    world.postpone_read(event.job_id, world.newest_event_at + world.config.tuning.quarantine_s)


def _search_job_of(world: World, event: ev.ActionEnded) -> None:
    """If the answer to a submission could not be applied, search for the job, as after a submission without an answer."""
    action = event.action
    workload = world.workloads.get(getattr(action, "key", ""))
    if workload is not None and isinstance(action, act.AllocateNow | act.SubmitJob):
        workload.job_search = JobSearch(
            event.began, event.at + world.config.tuning.settle_s, action.spec.name, action.spec.user
        )
        world.searching_workloads[workload.key] = None


def contain_action(world: World, action: act.Action, error: Exception, job_id: int | None = None) -> None:
    """Contain an error that was raised while the plan or the end of an action was applied.

    job_id   the id of the job that the action made; None: it made none
    """
    _only_guarded(world, error)
    if isinstance(action, act.RegisterNode | act.ChangeNode | act.RemoveNode):
        quarantine_slurm_node(world, action.name, error)
    elif isinstance(action, act.SetNodeCondition | act.TaintNode | act.UnmarkNode):
        quarantine_slurm_node(world, world.in_slurm(action.node), error)
    elif key := getattr(action, "key", ""):
        quarantine_workload(world, key, error, jobs=[job_id, getattr(action, "job_id", None)])
    else:
        put(world, ObjectKind.SHARED, type(action).__name__, error)
    _recount(world)


def _recount(world: World) -> None:
    """Recount the actions in flight from the actions themselves."""
    world.under_way, world.immediate_in_flight = count_under_way(world), count_immediate_under_way(world)
    world.anti_affinity_in_flight.clear()
    world.reading.clear()
    world.reading_refs.clear()
    world.reading_limits.clear()
    nodes = set()
    for action in world.in_flight.values():
        match action:
            case act.AllocateNow():
                if (workload := world.workloads.get(action.key)) is not None and workload.has_anti_affinity:
                    world.anti_affinity_in_flight.add(action.key)
            case act.ReadJob():
                world.reading.add(action.job_id)
            case act.ReadLimits():
                world.reading_limits.add(action.of)
            case act.ReadOwner():
                world.reading_refs.add(owner_key(action.namespace, action.ref))
            case act.ReadClaims() | act.SelectVolumeNode() | act.ReadPod():
                world.reading_refs.add(action.uid)
            case act.RegisterNode() | act.ChangeNode() | act.RemoveNode():
                nodes.add(action.name)
    world.node_state.set_in_flight(nodes, world.newest_event_at)


# --- observations of objects in quarantine --------------------------------------------------------------------------


def keep_pod(world: World, pod: Pod) -> bool:
    """Keep the present state of the pod, if it is a pod of a dropped workload.  Returns True if it is."""
    entry = world.quarantine.get((ObjectKind.WORKLOAD, world.key_of_pod.get(pod.uid, "")))
    if entry is None or pod.uid not in entry.pods:
        return False
    entry.changed = entry.changed or entry.pods[pod.uid] != pod
    entry.pods[pod.uid] = pod
    return True


def let_pod_go(world: World, pod: Pod, at: float) -> bool:
    """Note that the pod is gone, if it is a pod of a dropped workload.  Returns True if it is."""
    entry = world.quarantine.get((ObjectKind.WORKLOAD, world.key_of_pod.get(pod.uid, "")))
    if entry is None or pod.uid not in entry.pods:
        return False
    _remove_pod(world, entry, pod, at)
    return True


def _remove_pod(world: World, entry: Quarantined, pod: Pod, at: float) -> None:
    """Remove a pod that is gone from the entry.  Its containers may still run, as of each deleted pod (S3)."""
    entry.pods.pop(pod.uid, None)
    entry.changed = True
    world.key_of_pod.pop(pod.uid, None)
    world.forget_pod(pod.uid)
    workload = world.workloads[entry.name]
    workload.pods_in_flight.pop(pod.uid, None)
    workload.deleted_pods[pod.uid] = deleted_pod(pod, at, world.config.tuning, was_on_node=bool(pod.node))


def kept_pod(world: World, uid: str) -> Pod | None:
    """The last observed state of a pod of a dropped workload; None: it is no such pod."""
    entry = world.quarantine.get((ObjectKind.WORKLOAD, world.key_of_pod.get(uid, "")))
    return entry.pods.get(uid) if entry is not None else None


def keeps_pod_of(world: World, job_id: int) -> bool:
    """True if a pod in quarantine runs, or may run, for that job: it shows the job as a bind of the bridge writes it.

    The labels of the pod may name another gang than the gang of the job (relabelled.py).
    """
    kept = (pod for entry in world.quarantine.values() for pod in entry.pods.values())
    return any(is_bound_for(pod, job_id) and not pod.finished for pod in kept)


# --- retries --------------------------------------------------------------------------------------------------------


def try_again(world: World, kind: ObjectKind, name: str) -> None:
    """Rebuild the facts of a dropped object.  If that raises again, the object is dropped again.

    A workload stays in quarantine until its rule has run without an exception, too.
    """
    entry = world.quarantine.get((kind, name))
    if entry is None:
        return
    pods, nodes = entry.pods, entry.nodes
    others = kind is ObjectKind.POD or (kind is ObjectKind.WORKLOAD and world.workloads[name].of_other_scheduler)
    entry.dropped, entry.pods, entry.nodes = False, {}, {}
    if kind is ObjectKind.WORKLOAD:
        _forget_stale_hint(world.workloads[name])
    for pod in pods.values():
        if entry.dropped:
            entry.pods.setdefault(pod.uid, pod)
        else:
            world.key_of_pod.pop(pod.uid, None)
            world.apply_part(ev.PodSeen(Scope.OTHERS if others else Scope.OURS, pod))
    for node in nodes.values():
        world.apply_part(ev.NodeSeen(node))
    if kind is ObjectKind.WORKLOAD:
        for uid in entry.pods:
            world.key_of_pod[uid] = name
        workload = world.workloads[name]
        here = workload.pods.keys() | entry.pods.keys()
        for of_pods in (workload.pods_in_flight, workload.strays, workload.release_messages):
            for uid in of_pods.keys() - here:
                del of_pods[uid]  # the pod is in another workload now
        world.refresh(workload)
        world.dirty[name] = None
    elif not entry.dropped and not entry.pods:
        world.quarantine.pop((kind, name), None)


def _forget_stale_hint(workload: Workload) -> None:
    """If the record of the job was removed meanwhile, the pods show its id again as a new hint."""
    if workload.hint not in workload.jobs and workload.lost_job is None:
        workload.hint = None


def note_applied(world: World, event: ev.Event) -> None:
    """The event was applied without an exception: take the objects that it rebuilds out of quarantine."""
    match event:
        case ev.PodSeen(scope=Scope.OTHERS) | ev.PodDeleted(scope=Scope.OTHERS):
            world.quarantine.pop((ObjectKind.POD, event.pod.uid), None)
        case ev.NodeSeen():
            _forget_nodes(world, {event.node.name})
        case ev.NodeDeleted():
            _forget_nodes(world, {event.name})
        case ev.NodesListed():
            kept = {node for entry in world.quarantine.values() for node in entry.nodes}
            _forget_nodes(world, kept - {node.name for node in event.nodes})
        case ev.JobRead():
            world.quarantine.pop((ObjectKind.JOB, str(event.job_id)), None)
        case _:
            world.quarantine.pop((ObjectKind.SHARED, type(event).__name__), None)


def _forget_nodes(world: World, nodes: set[str], except_in: str = "") -> None:
    """Remove nodes that are known again, or do not exist any more, from their entries; remove entries without nodes.

    except_in   the entry of this name in Slurm keeps the nodes
    """
    entries = [entry for entry in world.quarantine.values() if not nodes.isdisjoint(entry.nodes)]
    for entry in (other for other in entries if other.name != except_in):
        for node in nodes:
            entry.nodes.pop(node, None)
        if not entry.nodes:
            world.quarantine.pop((entry.kind, entry.name), None)
    if entries:
        world.map_names()
        world.feasibility_changed()
