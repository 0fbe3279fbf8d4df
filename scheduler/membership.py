"""Who is in which workload, kept as pods come, end and go (BEHAVIOUR W1–W5).

Pods of one group are members of one workload as long as it needs members.  Those beyond its size stand for themselves, and
come back when a place in it falls free, unless they have a job of their own by then.  Who that is follows from the pods
alone, not from the order in which they were seen: those that stand on nodes, then the rest by rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler import names
from scheduler.grouping import GANG_SIZE, Group, group_of, rank_of
from scheduler.model import Pod, PodPhase
from scheduler.workload import Workload

if TYPE_CHECKING:
    from scheduler.world import World

ALONE = "1"  # what a bound pod shows as its `size` where it stood for itself


def workload_of(world: World, pod: Pod) -> Workload:
    """The workload that a pod belongs to, made where there is none yet."""
    key = world.key_of_pod.get(pod.uid)
    if key is not None:
        workload = world.workloads[key]
        if workload.group is not None and pod.uid in workload.pods:
            _show(workload, pod)
        return workload
    group = group_of(pod)
    if isinstance(group, Group) and not _stood_alone(pod):
        return _of_group(world, pod, group)
    return _alone(world, pod)


def _stood_alone(pod: Pod) -> bool:
    """An earlier life bound it by a job of its own: there were members enough."""
    return bool(pod.node) and pod.annotations.get(names.SIZE) == ALONE


def _alone(world: World, pod: Pod) -> Workload:
    return _made(world, names.workload_key(pod.uid), pod, pod.full_name)


def _of_group(world: World, pod: Pod, group: Group) -> Workload:
    workload = _made(world, names.workload_key(group.identity), pod, f"{pod.namespace}/{group.name}")
    if workload.group is None:
        workload.group, workload.size = group, 0
    workload.shown[pod.uid] = group
    return workload


def _made(world: World, key: str, pod: Pod, readable: str) -> Workload:
    world.key_of_pod[pod.uid] = key
    workload = world.workloads.get(key)
    if workload is None:
        workload = world.workloads[key] = Workload(key, readable, created=pod.created)
    return workload


def _show(workload: Workload, pod: Pod) -> None:
    """What it shows may have been edited while it waits."""
    group = group_of(pod)
    if isinstance(group, Group) and workload.group is not None and group.identity == workload.group.identity:
        workload.shown[pod.uid] = group


def counts_the_same(workload: Workload, before: Pod | None, pod: Pod) -> bool:
    """What was seen of it changes nothing about who is a member: most of what is seen of a large gang."""
    if workload.group is None:
        return True
    return (
        before is not None
        and before.finished == pod.finished
        and before.gated == pod.gated
        and (before.deleting_at is None) == (pod.deleting_at is None)
        and before.labels == pod.labels
        and before.annotations.get(GANG_SIZE) == pod.annotations.get(GANG_SIZE)
        and not workload.surplus
    )


def settle(world: World, workload: Workload) -> None:
    """Count anew how many it needs, and let those go, or come back, who are too many or missing."""
    if workload.group is None:
        return
    workload.size = _size(world, workload)
    if not workload.size:
        return
    waiting = _available(world, workload)
    members = workload.members
    unbound = [pod for pod in members if not workload.node_of(pod)]
    room = max(0, workload.size - (len(members) - len(unbound)))
    if len(unbound) <= room and not waiting:
        return
    ranked = sorted([*unbound, *waiting], key=rank_of)
    stay = {pod.uid for pod in ranked[:room]}
    for pod in unbound:
        if pod.uid not in stay:
            _move(world, workload, _alone_again(world, workload, pod), pod)
    for pod in waiting:
        if pod.uid in stay:
            _move(world, world.workloads[world.key_of_pod[pod.uid]], workload, pod)


def _available(world: World, workload: Workload) -> list[Pod]:
    """Of those who were too many: who has no job of his own yet, and nothing under way."""
    found = []
    for uid in sorted(workload.surplus):
        own = world.workloads.get(world.key_of_pod.get(uid, ""))
        pod = own.pods.get(uid) if own is not None else None
        if own is None or pod is None or own is workload:
            workload.surplus.discard(uid)
        elif own.hold is None and own.look is None and not own.jobs and pod in own.members:
            found.append(pod)
    return found


def _alone_again(world: World, workload: Workload, pod: Pod) -> Workload:
    workload.surplus.add(pod.uid)
    return _alone(world, pod)


def _move(world: World, before: Workload, after: Workload, pod: Pod) -> None:
    del before.pods[pod.uid]
    before.told.pop(pod.uid, None)
    after.pods[pod.uid] = pod
    world.key_of_pod[pod.uid] = after.key
    if after.group is not None:
        after.shown[pod.uid] = before.shown.pop(pod.uid, after.group)
        after.surplus.discard(pod.uid)
    else:
        after.shown[pod.uid] = before.shown.pop(pod.uid)
        after.tell(pod.created, f"{before.readable} has its {before.size} pods: {pod.full_name} stands for itself")
    world.refresh(before)
    world.refresh(after)


def _size(world: World, workload: Workload) -> int:
    """How many unfinished members it needs (W5); 0: not known, or its pods do not agree."""
    said = {group.size for group in workload.shown.values()}
    if len(said) != 1:
        return 0
    [size] = said
    if size is None:
        owner = world.teller_of(workload)
        if owner is None or owner.members is None:
            return 0
        size = owner.members
        if owner.ref.kind == "Job":  # it tells how many it means to have still
            return max(1, size)
    succeeded = sum(pod.phase is PodPhase.SUCCEEDED for pod in workload.pods.values())
    return max(1, size - succeeded)
