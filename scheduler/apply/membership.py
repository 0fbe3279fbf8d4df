"""Which pod is in which workload, as pods come, end and go (W1–W5).

Pods of one group become members of one workload until it has its size.  Further pods are *surplus*: each is a workload by
itself.  A surplus pod joins the gang later if a place becomes free and serves the pod (free_places.py), unless the pod runs
by then.  If its own job waits in Slurm's queue, the pod joins only if the gang is complete then; its own job has no pod any
more, and is cancelled.  Apart from that, the members follow from the pods and not from the order of events: first pods on
nodes, then other pods by rank.

The time to determine the members grows with the group.  So in a large group it is not done at each pod event.  The group is
noted as unsettled; it is settled after enough events, or by the plan of the next pass (`settle`).
"""

from __future__ import annotations

from scheduler import names
from scheduler.actions import DeletePod, FailByDeadline
from scheduler.apply.free_places import may_take_place
from scheduler.model.kubernetes import Owner, Pod
from scheduler.model.refusal import Refusal
from scheduler.state.phase import Phase
from scheduler.state.pod_counts import stays
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.grouping import (
    GANG_SIZE,
    JOBSET_PART,
    JOBSET_UID,
    MAX_SIZE,
    SIZES,
    Group,
    group_of,
    in_stage,
    rank_of,
)

ALONE = "1"  # the annotation `size` of a pod that was bound as a workload by itself
SETTLED_AT_ONCE = 64  # a group of up to this many pods is settled at each event
PODS_PER_NEWS = 8  # a larger group is settled after one event for each 8 of its pods
PAUSE_PER_POD_S = 5e-5  # pause after a plan settled a group: some ten times as long as that took
MAX_PAUSE_S = 5.0


def take_workload(world: World, pod: Pod) -> Workload:
    """The workload to which the pod belongs.  If there is none yet, it is created."""
    key = world.key_of_pod.get(pod.uid)
    if key is not None:
        workload = _follow_bind(world, world.workloads[key], pod)
        if workload.group is not None and pod.uid in workload.pods:
            _show(world, workload, pod)
        elif _was_refused_alone(workload, pod.uid):
            return _join_group(world, workload, pod)
        return workload
    group = _shown_by(world, pod)
    if isinstance(group, Group) and not _was_bound_alone(world, pod, group):
        return _take_group(world, pod, group)
    return _take_alone(world, pod)


def _shown_by(world: World, pod: Pod) -> Group | Refusal | None:
    """The group that the pod shows.  If a JobSet with stages was read, the group is the pod's stage."""
    group = group_of(pod)
    if not isinstance(group, Group) or group.size_source_kind != "JobSet" or group.stage or pod.node:
        return group
    jobset = _jobset_of(world, pod)
    job = pod.labels.get(JOBSET_PART, "")
    stages = jobset.stages if jobset is not None else ()
    return in_stage(group, next((stage.name for stage in stages if job in stage.jobs), ""))


def _jobset_of(world: World, pod: Pod) -> Owner | None:
    """The JobSet of the pod as it was read; None: it was not read."""
    return world.owner_of_kind(pod, "JobSet") or world.owners.get((pod.namespace, pod.labels.get(JOBSET_UID, "")))


def _follow_bind(world: World, workload: Workload, pod: Pod) -> Workload:
    """Move the pod to the workload for whose job a previous process bound it, if that bind is seen now.

    While the pod waited, this process may have decided otherwise which pods of the group are surplus: a previous process knew
    members that have ended.  Returns the workload of the pod.

    The caller settles the workload that the pod left (`settle_left`) when the present workload has the pod with its node.
    Otherwise the pod would be taken back as a pod that waits.
    """
    before = workload.pods.get(pod.uid)
    if before is None or before.node or not pod.node:
        return workload
    group = group_of(pod)
    if not isinstance(group, Group):
        return workload
    if workload.group is not None and _was_bound_alone(world, pod, group):
        alone = _leave_group(world, workload, before)
        move(world, workload, alone, before)
        return alone
    gang = _gang_of(world, group)
    if gang is not None and pod.uid in gang.surplus and _was_bound_as_member(world, pod, group):
        move(world, workload, gang, before)
        return gang
    return workload


def _was_refused_alone(workload: Workload, uid: str) -> bool:
    """True if the pod is a workload by itself, has no job, and was refused because its labels did not define a group."""
    before = workload.pods.get(uid)
    idle = workload.in_flight is None and workload.job_search is None and not workload.jobs
    return idle and before is not None and not before.node and isinstance(group_of(before), Refusal)


def _join_group(world: World, alone: Workload, pod: Pod) -> Workload:
    """Move the pod to its gang, if an edit has corrected its labels.  Returns the workload of the pod."""
    group = _shown_by(world, pod)
    if not isinstance(group, Group):
        return alone
    alone.take_out(pod.uid)
    alone.last_status.pop(pod.uid, None)
    world.refresh(alone)
    return _take_group(world, pod, group)


def _was_bound_alone(world: World, pod: Pod, group: Group) -> bool:
    """True if a previous process bound the pod for a job of its own, because its group was complete.

    The last pod of a gang also shows size 1; if the trace of the pod is the gang's, the result is False.
    """
    if not pod.node or pod.annotations.get(names.SIZE) != ALONE:
        return False
    return not _was_bound_as_member(world, pod, group)


def _was_bound_as_member(world: World, pod: Pod, group: Group) -> bool:
    """True if the bind of the pod wrote the trace of the group: the bridge bound the pod for the job of the group."""
    trace = names.traceparent(world.cluster, names.workload_key(group.identity))
    return pod.annotations.get(names.TRACEPARENT) == trace


def _take_alone(world: World, pod: Pod) -> Workload:
    return _take_or_make(world, names.workload_key(pod.uid), pod, pod.full_name)


def _take_group(world: World, pod: Pod, group: Group) -> Workload:
    workload = _take_or_make(world, names.workload_key(group.identity), pod, f"{pod.namespace}/{group.name}")
    if workload.group is None or not workload.group.identity:
        workload.group, workload.size = group, 0
    if _is_surplus(workload, pod, group):
        workload.surplus[pod.uid] = None
        alone = _take_alone(world, pod)
        alone.show(pod.uid, group)
        _add_split_to_stories(workload, alone, pod)
        return alone
    workload.show(pod.uid, group)
    return workload


def _is_surplus(workload: Workload, pod: Pod, group: Group) -> bool:
    """True if the group needs no further pod.  The cost does not grow with the number of pods.

    Either the group has its size, and the pod ranks after its last member.  Or the size is not known, and the group has as
    many pods as a gang may have; then `too_many` refuses the pod.
    """
    if pod.node or pod.gated or pod.finished:
        return False
    if not workload.size:
        return workload.pod_counts.unfinished >= MAX_SIZE
    agrees = set(workload.pod_counts.sizes) == {group.size}
    return agrees and workload.last_rank is not None and rank_of(pod) > workload.last_rank


def too_many(world: World, pod: Pod, group: Group) -> Refusal | None:
    """Why a pod of the group does not run by itself; None: it is no surplus pod, or its group has its size."""
    gang = _gang_of(world, group)
    if gang is None or gang.size or pod.uid not in gang.surplus:
        return None
    return Refusal(
        names.REFUSED,
        f"More than {MAX_SIZE:,} pods of namespace {pod.namespace} are of {group.kind} {group.name}, and they do not show "
        f"its size, or do not agree on it: give all of them the same annotation {GANG_SIZE} (1 to {MAX_SIZE:,}), or give the "
        "pods that do not belong to it another label.",
    )


def _take_or_make(world: World, key: str, pod: Pod, readable: str) -> Workload:
    world.key_of_pod[pod.uid] = key
    workload = world.workloads.get(key)
    if workload is None:
        workload = world.workloads[key] = Workload(key, readable, created=pod.created)
    workload.readable = workload.readable or readable  # a job of a previous process was read before its pods came
    return workload


def _show(world: World, workload: Workload, pod: Pod) -> None:
    """Note the group that the pod shows now: its labels may have been edited while it waits."""
    group = _shown_by(world, pod)
    if isinstance(group, Group) and workload.group is not None and group.identity == workload.group.identity:
        workload.show(pod.uid, group)


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


def pods_of_group(workload: Workload) -> int:
    """The number of the group's pods, members and surplus: settling compares at most so many."""
    return len(workload.pods) + len(workload.surplus)


def _takes_long(world: World, workload: Workload, pod: Pod | None) -> bool:
    """True if the counts do not suffice to settle the group, so that single pods have to be compared."""
    if _is_in_stages(world, workload, pod):
        return True
    size = _size(world, workload)
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
        jobset = _jobset_of(world, member)
        if jobset is not None and jobset.stages:
            return True
    return False


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
        _fit_members(world, workload, room, least)


def _update_size(world: World, workload: Workload) -> None:
    before, workload.size = workload.size, _size(world, workload)
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


def _fit_members(world: World, workload: Workload, room: int, least: int) -> None:
    """Move unbound members without a place out of the gang, or take surplus pods back into free places.

    room    for how many unbound members the gang has places
    least   the fewest members that the workload had since it was last settled
    """
    # Pods that came while places were free became members, although surplus pods may wait for these places.
    came = max(0, workload.pod_counts.members - least)
    missing = room - (workload.pod_counts.members_unbound - came)
    if came and missing > 0 and workload.surplus:
        _take_back(world, workload, missing)
    missing = room - workload.pod_counts.members_unbound
    if missing < 0:
        _move_out(world, workload, room)
    elif missing > 0 and workload.surplus:
        _take_back(world, workload, missing)
        workload.size = _size(world, workload)  # of the next run, if all pods of the former one have ended
        world.refresh(workload)


def _move_out(world: World, workload: Workload, room: int) -> None:
    """Make unbound members surplus that have no place, the last by rank first."""
    waiting = sorted((pod for pod in workload.members if not workload.node_of(pod)), key=rank_of)
    being_bound = {pod.uid for pod in waiting if _may_be_bound_yet(world, workload, pod)}
    idle = [pod for pod in waiting if pod.uid not in being_bound]
    left = max(0, room - len(being_bound))  # the place of a pod that is being bound is taken, whatever its rank
    for pod in idle[left:]:
        move(world, workload, _leave_group(world, workload, pod), pod)
    workload.last_rank = rank_of(idle[left - 1]) if left and idle else ()


def _take_back(world: World, workload: Workload, missing: int) -> None:
    for pod in _returning(world, workload, missing):
        move(world, world.workloads[world.key_of_pod[pod.uid]], workload, pod)


def _split(world: World, workload: Workload) -> None:
    """If the JobSet was read and creates its pods in stages, move each waiting pod to the gang of its stage."""
    for pod in [pod for pod in workload.pods.values() if not workload.node_of(pod)]:
        group = _shown_by(world, pod)
        if not isinstance(group, Group) or not group.stage:
            continue
        workload.take_out(pod.uid)
        workload.last_status.pop(pod.uid, None)
        after = _take_group(world, pod, group)
        after.put(pod)
        world.note_needs(after, pod)
        settle_and_refresh(world, after)
    world.refresh(workload)


def _ending_pods(workload: Workload) -> list[Pod]:
    """The bound pods of the workload that the bridge is ending."""
    ends = (
        uid
        for uid, in_flight in workload.pods_in_flight.items()
        if isinstance(in_flight.action, DeletePod | FailByDeadline)
    )
    return [workload.pods[uid] for uid in ends if uid in workload.pods and uid not in workload.written_off]


def _gang_of(world: World, group: Group) -> Workload | None:
    """The workload of the members of that group; None: no member is known."""
    return world.workloads.get(names.workload_key(group.identity))


def rejoin_gang(world: World, alone: Workload) -> None:
    """If the pod of *alone* is surplus and its gang has a free place now, let the pod take that place.

    This is called when an action for the pod has ended.  While the pod's own job waits, the bridge reads the job again and
    again, so the place is found soon.
    """
    if alone.group is not None:
        return
    for uid, group in list(alone.shown.items()):
        gang = _gang_of(world, group)
        if gang is not None and uid in gang.surplus:
            settle(world, gang)


def forget_surplus(world: World, alone: Workload, uid: str) -> None:
    """The gang of a surplus pod forgets the pod, because the pod is gone."""
    if alone.group is None and (group := alone.shown.get(uid)) is not None:
        gang = _gang_of(world, group)
        if gang is not None:
            gang.surplus.pop(uid, None)


def leave_running_gang(world: World, key: str, user: str) -> Workload | None:
    """If a previous process submitted a job for a single pod of a running gang, move the pod out of the gang.

    key    the key in the name of the job: of the pod as a workload by itself
    user   the user of the job

    The pod becomes a workload by itself again, and keeps its job and its turn in Slurm's queue.  Returns this workload;
    None: no pod of this key and user waits in a gang of which other pods run.
    """
    for phase in (Phase.GRANTED, Phase.BOUND):
        for gang in map(world.workloads.__getitem__, world.by_phase[phase]):
            if gang.group is None or not 0 < gang.pod_counts.unbound < gang.pod_counts.unfinished:
                continue
            for pod in gang.members:
                if gang.node_of(pod) or names.workload_key(pod.uid) != key or _may_be_bound_yet(world, gang, pod):
                    continue
                tenant = world.tenant_of(pod)
                if isinstance(tenant, Refusal) or tenant.user != user:
                    return None
                alone = _leave_group(world, gang, pod)
                move(world, gang, alone, pod)
                return alone
    return None


def _returning(world: World, workload: Workload, missing: int) -> list[Pod]:
    """The surplus pods that take free places in the gang, by rank.  missing: how many places are free"""
    if not workload.pod_counts.sizes:
        return _next_run(world, workload)
    available = [pod for pod in _collect_available(world, workload) if _may_take_place(world, workload, pod)]
    found = sorted(available, key=rank_of)
    if len(found) < missing or not _stays_with_free_places(world, workload):
        found = _without_jobs(world, found)
    return found[:missing]


def _may_take_place(world: World, gang: Workload, pod: Pod) -> bool:
    return may_take_place(world, gang, world.workloads[world.key_of_pod[pod.uid]], pod)


def _without_jobs(world: World, pods: list[Pod]) -> list[Pod]:
    return [pod for pod in pods if not world.workloads[world.key_of_pod[pod.uid]].jobs]


def _next_run(world: World, workload: Workload) -> list[Pod]:
    """The surplus pods that are the next run of a gang of which no pod stays; none if they are not enough for a run.

    If they are fewer, they stay workloads by themselves.  As a gang they would wait for pods that may never come.
    """
    found = _without_jobs(world, _collect_available(world, workload))
    sizes = {world.workloads[world.key_of_pod[pod.uid]].shown[pod.uid].size for pod in found}
    size = sizes.pop() if len(sizes) == 1 else None
    return sorted(found, key=rank_of)[:size] if size is not None and len(found) >= size else []


def _stays_with_free_places(world: World, workload: Workload) -> bool:
    """True if pods of the gang stay, no pod terminates, and the controller has had enough time to replace the other pods.

    If it is False, no pod gives up its place in Slurm's queue: when a gang fails, its members end one after the other.
    """
    pod_counts = workload.pod_counts
    leaving = pod_counts.unfinished - pod_counts.unbound > pod_counts.members - pod_counts.members_unbound
    replaced_by = workload.left_at + world.config.tuning.gang_bind_deadline_s
    return pod_counts.members > 0 and not leaving and world.newest_event_at >= replaced_by


def _collect_available(world: World, workload: Workload) -> list[Pod]:
    """The surplus pods that have no action in flight, and no job or only a job that waits in Slurm's queue or has ended.

    A bound pod does not join the gang, even if its own job is forgotten.  It does not run for the job of the gang, so the end
    of that job must not end the pod (V7).
    """
    found = []
    for uid in sorted(workload.surplus):
        own = world.workloads.get(world.key_of_pod.get(uid, ""))
        pod = own.pods.get(uid) if own is not None else None
        if own is None or pod is None or own is workload:
            del workload.surplus[uid]
        elif own.in_flight is None and own.job_search is None and _waits(world, own, pod):
            found.append(pod)
    return found


def _waits(world: World, workload: Workload, pod: Pod) -> bool:
    """True if the pod is a member without a node, no job may hold nodes for it, and no bind may put it on a node."""
    if pod not in workload.members or workload.node_of(pod) or _may_be_bound_yet(world, workload, pod):
        return False
    return all(
        job.key == workload.key and (job.shows_end or "PENDING" in job.states) for job in world.jobs_of(workload)
    )


def _may_be_bound_yet(world: World, workload: Workload, pod: Pod) -> bool:
    """True if a bind of the pod is in flight, or its answer was lost and the pod was not read since."""
    return workload.is_being_bound(pod.uid) or pod.uid in world.unanswered_binds


def _leave_group(world: World, workload: Workload, pod: Pod) -> Workload:
    """The workload to which the surplus pod moves now.  Until `move`, the pod is of the gang."""
    workload.surplus[pod.uid] = None
    key = names.workload_key(pod.uid)
    alone = world.workloads.get(key) or Workload(key, pod.full_name, created=pod.created)
    alone.readable = alone.readable or pod.full_name  # a job of a previous process was read before its pods came
    return alone


def move(world: World, before: Workload, after: Workload, pod: Pod) -> None:
    """Move the pod, and what it shows of its group, from one workload to another."""
    group = before.shown[pod.uid]
    world.workloads[after.key] = after
    after.put(pod)  # first, so that at each moment a workload has the pod
    after.show(pod.uid, group)
    before.take_out(pod.uid)
    before.last_status.pop(pod.uid, None)
    world.key_of_pod[pod.uid] = after.key
    world.note_needs(after, pod)
    if after.group is not None:
        after.surplus.pop(pod.uid, None)
    else:
        _add_split_to_stories(before, after, pod)
    world.refresh(before)
    world.refresh(after)


def _add_split_to_stories(gang: Workload, alone: Workload, pod: Pod) -> None:
    alone.add_to_story(
        pod.created, f"{gang.readable} has its {gang.size:,} pods: {pod.full_name} is a workload by itself"
    )


def _size(world: World, workload: Workload) -> int:
    """How many unfinished members the gang needs (W5); 0: not known, above MAX_SIZE, or its pods do not agree.

    Pods that succeeded are no longer needed.  But if as many succeeded as the group has pods, this run is over, and the
    next run needs all pods.
    """
    if not workload.pod_counts.sizes:  # no pod stays
        return workload.size or 1
    if len(workload.pod_counts.sizes) != 1:
        return 0
    [size] = workload.pod_counts.sizes
    if size is None:
        owner = world.size_source_of(workload)
        if owner is None or owner.members is None:
            return 0
        size = members_of(owner, workload.group)
        if size > MAX_SIZE:
            return 0
        if owner.ref.kind == "Job":  # `members` of a Job does not count pods that succeeded
            return max(1, size)
    elif workload.group is not None and workload.group.stage and (owner := world.size_source_of(workload)) is not None:
        size = min(size, members_of(owner, workload.group))  # the annotation may give the size of all stages together
    size = max(1, size)
    return size - workload.pod_counts.succeeded % size


def members_of(owner: Owner, group: Group | None) -> int:
    """How many pods the owner wants in the group; if the group is a stage, in the stage."""
    stage = next((candidate for candidate in owner.stages if group is not None and candidate.name == group.stage), None)
    return stage.members if stage is not None else owner.members or 0
