"""What was observed in Kubernetes, folded into the World: pods, nodes, namespaces, and what pods refer to.

A list swaps whole: what is not in it does not exist.  Parts of `World.apply`; only marks what is worth another look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scheduler import events as ev
from scheduler import names
from scheduler.events import Scope
from scheduler.feasible import slurm_name
from scheduler.membership import counts_the_same, settle, workload_of
from scheduler.model import Node, Pod, Refusal
from scheduler.phase import Phase
from scheduler.upkeep import NEVER
from scheduler.wishes import user_input
from scheduler.workload import PENDING, RUNNING, Gone, Placeholder, Workload

if TYPE_CHECKING:
    from scheduler.world import World

MAX_OWNERS_REMEMBERED = 10_000  # controllers whose annotations are kept; the oldest are read again when needed


def _too_early(world: World, event: ev.PodSeen | ev.PodGone | ev.PodsListed) -> bool:
    """What pods show of an earlier life is told apart by the cluster's mark, which comes with its namespaces."""
    if event.scope is not Scope.OURS or world.cluster_known:
        return False
    world.early.append(event)
    return True


def _fold_early(world: World) -> None:
    if world.cluster_known:
        early, world.early = world.early, []
        for each in early:
            world.apply(each)


def _pod_seen(world: World, event: ev.PodSeen) -> None:
    if _too_early(world, event):
        return
    if event.scope in world.listed:
        world.listed[event.scope].add(event.pod.uid)
    _stand(world, event.pod)
    if event.scope is Scope.OURS:
        _our_pod(world, event.pod)


def _pod_gone(world: World, event: ev.PodGone) -> None:
    if _too_early(world, event):
        return
    world.listed.get(event.scope, set()).discard(event.pod.uid)
    _forget_pod(world, event.scope, event.pod, event.at)


def _pods_listed(world: World, event: ev.PodsListed) -> None:
    if _too_early(world, event):
        return
    before = world.listed.get(event.scope, set())
    world.listed[event.scope] = {pod.uid for pod in event.pods}
    for pod in event.pods:
        _pod_seen(world, ev.PodSeen(event.scope, pod))
    for uid in before - world.listed[event.scope]:
        last = _last_known(world, event.scope, uid)
        if last is not None:
            _forget_pod(world, event.scope, last, event.at)


def _last_known(world: World, scope: Scope, uid: str) -> Pod | None:
    if scope is Scope.OURS:
        workload = world.workloads.get(world.key_of_pod.get(uid, ""))
        return workload.pods.get(uid) if workload else None
    return next((there.pods[uid] for there in world.standing.values() if uid in there.pods), None)


def _stand(world: World, pod: Pod) -> None:
    """Keep who stands where: every unfinished pod with a node, whoever put it there; a bind of ours counts at once."""
    assumed = world.assumed.get(pod.uid, "")
    if pod.node and assumed:
        del world.assumed[pod.uid]
        if assumed != pod.node:
            world.leave(assumed, pod.uid)
    node = pod.node or assumed
    if not node or pod.finished:
        _unstand(world, pod)
        return
    before = world.stand(pod, node)
    if pod.host_ports and before is None:
        world.ports_changed()
    if before is None or before.deleting_at != pod.deleting_at:
        world.room_changed()


def _unstand(world: World, pod: Pod) -> None:
    for node in {pod.node, world.assumed.pop(pod.uid, "")}:
        world.leave(node, pod.uid)


def _our_pod(world: World, pod: Pod) -> None:
    workload = workload_of(world, pod)
    before = workload.pods.get(pod.uid)
    if before is not None and before.waits and pod.finished and pod.exit_code is None:
        pod = replace(pod, waits=before.waits)  # why it never started its kubelet says no more soon after its end
    workload.put(pod)
    if before is None:
        workload.tell(pod.created, f"pod {pod.full_name} created")
        workload.created = min(workload.created, pod.created)
    workload.gone.pop(pod.uid, None)
    if before is None or before.annotations != pod.annotations or _resources(before) != _resources(pod):
        world.input_changed(workload)
        if before is not None and before.node and (what := _changed(before, pod)):
            workload.too_late[pod.uid] = what
    if before is None or not before.node:  # written with the bind; what is edited later is the user's invention
        _take_hint(world, workload, pod)
    if pod.node:
        workload.bound.pop(pod.uid, None)
        if before is None or not before.node:
            last_at = workload.story[-1][0] if workload.story else pod.created  # the watch tells no time of its own
            where = f"stands on node {pod.node}"
            told = where if workload.group is None else f"{pod.name} {where}"
            workload.tell(max(last_at, pod.created), told)
    if pod.apart or pod.beside:
        world.choosy.add(workload.key)
    if not counts_the_same(workload, before, pod):
        settle(world, workload)
    world.refresh(workload)


def _resources(pod: Pod) -> tuple[object, ...]:
    return pod.containers, pod.init_containers, pod.pod_requests, pod.pod_limits


def _changed(before: Pod, pod: Pod) -> str:
    """What of the user's input is another than before, in words; "": nothing (K, T11)."""
    if _resources(before) != _resources(pod):
        return "its resources"
    was, now = (user_input(each) for each in (before, pod))
    if isinstance(was, Refusal) or isinstance(now, Refusal):
        return "its annotations" if was != now else ""
    return ", ".join(sorted(names.PREFIX + key for key in was.keys() | now.keys() if was.get(key) != now.get(key)))


def _take_hint(world: World, workload: Workload, pod: Pod) -> None:
    """A job id that the pod shows: enough to leave it in peace, never enough to act on (ARCHITECTURE 4)."""
    shown = pod.annotations.get(names.JOB_ID, "")
    job_id = int(shown) if pod.node and shown.isascii() and shown.isdecimal() and len(shown) <= 10 else None
    condition = workload.shown_condition(pod)
    if job_id is None and not pod.node and condition is not None and not workload.jobs:
        job_id = names.shown_job(condition.message)
    if job_id is None or job_id == workload.hint:
        return
    leaves = pod.finished or pod.deleting_at is not None
    if (
        workload.hint is None or not leaves
    ):  # of a gang whose job is another by now the last one may still show the former
        workload.hint = job_id
    if job_id not in world.placeholders and job_id not in world.foreign:
        unlisted = world.polled is not None and job_id not in world.states
        if unlisted and (not pod.node or pod.finished):
            return  # it is over, and nobody depends on it
        states = world.states.get(job_id, PENDING if not pod.node else RUNNING)
        world.placeholders[job_id] = Placeholder(job_id, None, "", states, learned=float("-inf"))
        if workload.created < world.started:  # a pod of this life may show what is somebody else's: that one is read
            world.known(job_id)
        world.expected.add(job_id)
    workload.jobs.add(job_id)
    if job_id in world.placeholders:
        world.placeholders[job_id].hinted_by.add(workload.key)


def _forget_pod(world: World, scope: Scope, pod: Pod, at: float) -> None:
    _unstand(world, pod)
    if scope is not Scope.OURS:
        return
    workload = world.workloads.get(world.key_of_pod.get(pod.uid, ""))
    if workload is None:
        return
    last = workload.take_out(pod.uid)
    stood = workload.node_of(pod) or (workload.node_of(last) if last else "")
    clean = pod.finished or not stood
    until = at if clean else at + pod.grace_s + world.config.tuning.gone_grace_s
    workload.gone[pod.uid] = Gone(pod, at, until)
    workload.bound.pop(pod.uid, None)
    workload.pod_holds.pop(pod.uid, None)
    workload.told.pop(pod.uid, None)
    workload.too_late.pop(pod.uid, None)
    workload.doubted.pop(pod.uid, None)
    world.key_of_pod.pop(pod.uid, None)
    world.claims.pop(pod.uid, None)
    world.claims_read_at.pop(pod.uid, None)
    workload.tell(at, f"pod {pod.full_name} is gone")
    settle(world, workload)
    world.refresh(workload)


def _node_seen(world: World, event: ev.NodeSeen) -> None:
    if world.nodes is None or world.nodes.get(event.node.name) == event.node:
        return
    before = world.nodes.get(event.node.name)
    world.nodes[event.node.name] = event.node
    if before is None or before.silent_since != event.node.silent_since:
        _look_at_those_on(world, event.node.name)
    world.upkeep.seen(before, event.node, world.config.translation.gres, world.slurm_nodes or {})
    if before is not None and slurm_name(before) != slurm_name(event.node):
        _nodes_changed(world)
        return
    world.by_slurm_name[slurm_name(event.node)] = event.node.name
    if before is None or _read_by_feasibility(before) != _read_by_feasibility(event.node):
        world.feasibility_changed()


def _read_by_feasibility(node: Node) -> tuple[object, ...]:
    """What the bridge itself writes on a node changes nothing for pods."""
    return (node.labels, node.ready, node.unschedulable, node.taints, node.allocatable)


def _look_at_those_on(world: World, name: str) -> None:
    """Its kubelet fell silent, or speaks again: that matters to pods that are to end there (S8)."""
    there = world.standing.get(name)
    keys = (world.key_of_pod.get(uid) for uid in (there.pods if there is not None else ()))
    world.dirty.update(dict.fromkeys(key for key in keys if key is not None))


def _node_gone(world: World, event: ev.NodeGone) -> None:
    gone = world.nodes.pop(event.name, None) if world.nodes is not None else None
    if gone is not None:
        world.upkeep.lost(gone)
        _nodes_changed(world)


def _nodes_listed(world: World, event: ev.NodesListed) -> None:
    nodes = {node.name: node for node in event.nodes}
    if nodes != world.nodes:
        world.nodes = nodes
        for name in nodes:
            _look_at_those_on(world, name)
        world.upkeep.listed(event.nodes, world.config.translation.gres, world.slurm_nodes or {})
        _nodes_changed(world)


def _nodes_changed(world: World) -> None:
    world.by_slurm_name = {slurm_name(node): node.name for node in (world.nodes or {}).values()}
    world.feasibility_changed()


def _namespace_seen(world: World, event: ev.NamespaceSeen) -> None:
    if world.namespaces is not None:
        before = world.namespaces.get(event.namespace.name)
        world.namespaces[event.namespace.name] = event.namespace
        if before is None or before.labels != event.namespace.labels:
            world.dirty.update(world.by_phase[Phase.UNCLAIMED])
        _fold_early(world)


def _namespace_gone(world: World, event: ev.NamespaceGone) -> None:
    if world.namespaces is not None and event.name != "kube-system":
        world.namespaces.pop(event.name, None)
        world.dirty.update(world.by_phase[Phase.UNCLAIMED])


def _namespaces_listed(world: World, event: ev.NamespacesListed) -> None:
    world.namespaces = {namespace.name: namespace for namespace in event.namespaces}
    world.dirty.update(world.by_phase[Phase.UNCLAIMED])
    _fold_early(world)
    if world.upkeep.polled == NEVER:
        world.slurm_nodes_shown()


def _owner_read(world: World, event: ev.OwnerRead) -> None:
    world.owners[event.ref.uid] = event.owner
    while len(world.owners) > MAX_OWNERS_REMEMBERED:
        oldest = next(iter(world.owners))
        del world.owners[oldest], world.owner_read_at[oldest]
    world.owner_read_at[event.ref.uid] = event.at
    for key in world.waits_for_owner.pop(event.ref.uid, ()):
        if key in world.workloads:
            settle(world, world.workloads[key])
            world.refresh(world.workloads[key])


def _claims_read(world: World, event: ev.ClaimsRead) -> None:
    world.claims[event.uid] = event.claims
    world.claims_read_at[event.uid] = event.at
    key = world.key_of_pod.get(event.uid)
    if key is not None:
        world.dirty[key] = None
        if any(claim.problem for claim in event.claims):
            world.back_off(world.workloads[key], event.at)  # looked at again, with patience


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
    ev.OwnerRead: _owner_read,
    ev.ClaimsRead: _claims_read,
}
