"""When a group is settled: its size is determined, and which of its pods are members and which are surplus.

Apart from surplus pods that have jobs (surplus.py), the members follow from the pods and not from the order of events: first
pods on nodes, then other pods by rank.

The time to determine the members grows with the group.  So in a large group it is not done at each pod event.  The group is
noted as unsettled; it is settled after enough events, or by the plan of the next pass (`settle`).
"""

from __future__ import annotations

from scheduler.actions import DeletePod, FailByDeadline
from scheduler.apply.gang_size import size_of
from scheduler.apply.membership import jobset_of, shown_by, take_group
from scheduler.apply.surplus import fit_members, gang_of
from scheduler.model.kubernetes import Pod
from scheduler.state.pod_counts import stays
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.grouping import SIZES, Group

SETTLED_AT_ONCE = 64  # a group of up to this many pods is settled at each event
PODS_PER_NEWS = 8  # a larger group is settled after one event for each 8 of its pods
PAUSE_PER_POD_S = 5e-5  # pause after a plan settled a group: some ten times as long as that took
MAX_PAUSE_S = 5.0


def counts_the_same(workload: Workload, before: Pod | None, pod: Pod) -> bool:
    """True if the event of the pod changes no membership.  This is true of most events of a large gang."""
    return (
        before is not None
        and before.finished == pod.finished
        and before.gated == pod.gated
        and (before.deleting_at is None) == (pod.deleting_at is None)
        and before.labels == pod.labels
        and all(before.annotations.get(size) == pod.annotations.get(size) for size in SIZES)
        and not workload.surplus
    )


def settle(world: World, workload: Workload, pod: Pod | None = None) -> bool:
    """Determine the size of the group again.  Move surplus pods out of the gang, or back into free places.

    pod   the pod whose event is the reason; None: another reason

    If all pods of a large group have to be compared, the group waits for enough events, so that each event costs about the
    same.  Meanwhile the workload is in `world.unsettled`: no pass visits it, and the plan of the next pass settles it.

    Returns True if the group is settled, so that the caller refreshes the workload; False: it is refreshed when it is
    settled.
    """
    if workload.group is None:
        return True
    is_large = pods_of_group(workload) > SETTLED_AT_ONCE
    takes_long = not is_large or workload.key in world.unsettled or _takes_long(world, workload, pod)
    if is_large and takes_long:
        members = workload.pod_counts.members
        news, least = world.unsettled.get(workload.key, (0, members))
        world.unsettled[workload.key] = news + 1, min(least, members)
        if pods_of_group(workload) > PODS_PER_NEWS * news:
            world.unpark(workload.key)
            return False
    _settle(world, workload, all_pods=takes_long)
    return True


def settle_and_refresh(world: World, workload: Workload) -> None:
    """As `settle`, and refresh the workload if its group is settled."""
    if settle(world, workload):
        world.refresh(workload)


def settle_left(world: World, key: str | None, workload: Workload) -> None:
    """Settle the workload that a pod left.

    key       of the workload to which the pod belonged; None: the pod is new
    workload  to which the pod belongs now
    """
    left = world.workloads.get(key) if key is not None and key != workload.key else None
    if left is not None:
        settle_and_refresh(world, left)


def settle_all(world: World) -> None:
    """Settle all groups now, for a replica that makes no plans."""
    while world.unsettled:
        settle_by_plan(world, next(iter(world.unsettled)), world.newest_event_at)


def settle_by_plan(world: World, key: str, at: float) -> None:
    """Settle an unsettled group.  The larger the group, the longer is the pause before the next plan settles a group."""
    workload = world.workloads.get(key)
    if workload is None or workload.group is None:
        world.unsettled.pop(key, None)
        return
    world.settles_at = max(world.settles_at, at) + PAUSE_PER_POD_S * pods_of_group(workload)
    world.settles_at = min(world.settles_at, at + MAX_PAUSE_S)
    _settle(world, workload, all_pods=True)
    world.refresh(workload)


def pods_of_group(workload: Workload) -> int:
    """The number of the group's pods, members and surplus: settling compares at most so many."""
    return len(workload.pods) + len(workload.surplus)


def _takes_long(world: World, workload: Workload, pod: Pod | None) -> bool:
    """True if the counts do not suffice to settle the group, so that single pods have to be compared."""
    if _is_in_stages(world, workload, pod):
        return True
    size = size_of(world, workload)
    if size and not workload.size and workload.surplus:
        return True
    members_unbound = workload.pod_counts.members_unbound
    room = max(0, size - (workload.pod_counts.members - members_unbound))
    return bool(size) and (members_unbound > room or (members_unbound < room and bool(workload.surplus)))


def _is_in_stages(world: World, workload: Workload, pod: Pod | None) -> bool:
    """True if the JobSet of a member, or of *pod*, was read and creates its pods in stages."""
    if (
        workload.group is None
        or workload.group.size_source_kind != "JobSet"
        or workload.group.stage
        or not workload.pods
    ):
        return False
    for member in (workload.pod, pod or workload.pod):
        jobset = jobset_of(world, member)
        if jobset is not None and jobset.stages:
            return True
    return False


def _settle(world: World, workload: Workload, *, all_pods: bool) -> None:
    """Settle the group now.  all_pods: True: properties that are not counted may have changed, too"""
    assert workload.group is not None, "only a group is settled"
    if all_pods and workload.group.size_source_kind == "JobSet" and not workload.group.stage:
        _split(world, workload)
    _, least = world.unsettled.pop(workload.key, (0, workload.pod_counts.members))
    _update_size(world, workload)
    room = _room(workload)
    if not workload.size or workload.pod_counts.members_unbound < room:
        workload.last_rank = None
    if workload.size:
        fit_members(world, workload, room, least)


def _split(world: World, workload: Workload) -> None:
    """If the JobSet was read and creates its pods in stages, move each waiting pod to the gang of its stage."""
    for pod in [pod for pod in workload.pods.values() if not workload.node_of(pod)]:
        group = shown_by(world, pod)
        if not isinstance(group, Group) or not group.stage:
            continue
        workload.take_out(pod.uid)
        workload.last_status.pop(pod.uid, None)
        after = take_group(world, pod, group)
        after.put(pod)
        world.note_needs(after, pod)
        settle_and_refresh(world, after)
    world.refresh(workload)


def _update_size(world: World, workload: Workload) -> None:
    before, workload.size = workload.size, size_of(world, workload)
    if not before and workload.size:  # surplus pods of a gang of unknown size may be workloads by themselves now
        world.dirty.update((key, None) for uid in workload.surplus if (key := world.key_of_pod.get(uid)) is not None)


def _room(workload: Workload) -> int:
    """The number of unbound members for which the gang has places."""
    pod_counts = workload.pod_counts
    room = max(0, workload.size - (pod_counts.members - pod_counts.members_unbound))
    if pod_counts.members_unbound > room:
        # Pods that the bridge is ending leave places, too, although they are not deleted yet (S4).
        room = min(workload.size, room + sum(map(stays, _ending_pods(workload))))
    return room


def _ending_pods(workload: Workload) -> list[Pod]:
    """The bound pods of the workload that the bridge is ending."""
    ends = (
        uid
        for uid, in_flight in workload.pods_in_flight.items()
        if isinstance(in_flight.action, DeletePod | FailByDeadline)
    )
    return [workload.pods[uid] for uid in ends if uid in workload.pods and uid not in workload.written_off]


def rejoin_gang(world: World, alone: Workload) -> None:
    """If the pod of *alone* is surplus and its gang has a free place now, let the pod take that place.

    This is called when an action for the pod has ended.  While the pod's own job waits, the bridge reads the job again and
    again, so the place is found soon.
    """
    if alone.group is not None:
        return
    for uid, group in list(alone.shown.items()):
        gang = gang_of(world, group)
        if gang is not None and uid in gang.surplus:
            settle(world, gang)
