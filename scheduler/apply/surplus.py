"""Surplus pods: pods of a group that is complete without them (W1–W5).

Each surplus pod is a workload by itself.  It joins the gang later if a place becomes free and serves the pod
(free_places.py), unless the pod runs by then.  If its own job waits in Slurm's queue, the pod joins only if the gang is
complete then; its own job has no pod any more, and is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler import names
from scheduler.apply.free_places import may_take_place
from scheduler.apply.gang_size import size_of
from scheduler.apply.hinted_jobs import take_hint_of_surplus
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Job
from scheduler.state.job_ownership import may_hold
from scheduler.state.phase import Phase
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.grouping import GANG_SIZE, MAX_SIZE, Group, rank_of


def is_surplus(workload: Workload, pod: Pod, group: Group) -> bool:
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
    gang = gang_of(world, group)
    if gang is None or gang.size or pod.node or pod.uid not in gang.surplus:
        return None
    return Refusal(
        names.REFUSED,
        f"More than {MAX_SIZE:,} pods of namespace {pod.namespace} are of {group.kind} {group.name}, and they do not show "
        f"its size, or do not agree on it: give all of them the same annotation {GANG_SIZE} (1 to {MAX_SIZE:,}), or give the "
        "pods that do not belong to it another label.",
    )


def gang_of(world: World, group: Group) -> Workload | None:
    """The workload of the members of that group; None: no member is known."""
    return world.workloads.get(names.workload_key(group.identity))


def surplus_pods(world: World, gang: Workload) -> Iterator[tuple[Workload, Pod]]:
    """The surplus pods of the gang, each with the workload that it is by itself; without pods that are quarantined."""
    for uid in gang.surplus:
        own = world.workloads.get(world.key_of_pod.get(uid, ""))
        if own is not None and uid in own.pods:
            yield own, own.pods[uid]


def forget_surplus(world: World, workload: Workload, uid: str) -> None:
    """If the pod is a surplus pod, its gang forgets it, because the pod is gone."""
    if (group := workload.shown.get(uid)) is not None:
        gang = gang_of(world, group)
        if gang is not None:
            gang.surplus.pop(uid, None)
            if not gang.pods:  # a gang without pods is forgotten after its last surplus pod
                world.dirty[gang.key] = None


def leave_running_gang(world: World, key: str, job: Job) -> Workload | None:
    """If a previous process submitted a job for a single pod of a running gang, move the pod out of the gang.

    key    the key in the name of the job: of the pod as a workload by itself

    The pod becomes a workload by itself again, and keeps its job and its turn in Slurm's queue.  Or it seems to be bound by
    another client, because its user edited what the bind wrote: then the name of the job, which holds the node of the pod,
    shows that the pod is no member (W4).  Returns this workload; None: no pod of this key and of the job's user waits in a
    gang of which other pods run, or is such a stray.
    """
    for phase in (Phase.GRANTED, Phase.BOUND, Phase.ORPHANED):
        for gang in map(world.workloads.__getitem__, world.by_phase[phase]):
            for pod in _waiting_beside_others(world, gang) + [gang.pods[uid] for uid in gang.strays]:
                if names.workload_key(pod.uid) != key or (pod.uid in gang.strays and not may_hold(world, pod, job)):
                    continue
                tenant = world.tenant_of(pod)
                if isinstance(tenant, Refusal) or tenant.user != job.user:
                    return None
                return leave_group(world, gang, pod)
    return None


def _waiting_beside_others(world: World, gang: Workload) -> list[Pod]:
    """The members that wait, if other pods of the gang run."""
    if not 0 < gang.pod_counts.unbound < gang.pod_counts.unfinished:
        return []
    return [pod for pod in gang.members if not gang.node_of(pod) and not may_be_bound_yet(world, gang, pod)]


def fit_members(world: World, workload: Workload, room: int, least: int) -> None:
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
        workload.size = size_of(world, workload)  # of the next run, if all pods of the former one have ended
        world.refresh(workload)


def _move_out(world: World, workload: Workload, room: int) -> None:
    """Make unbound members surplus that have no place, the last by rank first."""
    waiting = sorted((pod for pod in workload.members if not workload.node_of(pod)), key=rank_of)
    being_bound = {pod.uid for pod in waiting if may_be_bound_yet(world, workload, pod)}
    idle = [pod for pod in waiting if pod.uid not in being_bound]
    left = max(0, room - len(being_bound))  # the place of a pod that is being bound is taken, whatever its rank
    for pod in idle[left:]:
        take_hint_of_surplus(world, leave_group(world, workload, pod), pod)
    workload.last_rank = rank_of(idle[left - 1]) if left else ()


def _take_back(world: World, workload: Workload, missing: int) -> None:
    for pod in _returning(world, workload, missing):
        move(world, world.workloads[world.key_of_pod[pod.uid]], workload, pod)


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
    found = [
        pod
        for own, pod in surplus_pods(world, workload)
        if own.in_flight is None and own.job_search is None and _waits(world, own, pod)
    ]
    return sorted(found, key=lambda pod: pod.uid)


def _waits(world: World, workload: Workload, pod: Pod) -> bool:
    """True if the pod is a member without a node, no job may hold nodes for it, and no bind may put it on a node."""
    if pod not in workload.members or workload.node_of(pod) or may_be_bound_yet(world, workload, pod):
        return False
    return all(
        job.key == workload.key and (job.shows_end or "PENDING" in job.states) for job in world.jobs_of(workload)
    )


def may_be_bound_yet(world: World, workload: Workload, pod: Pod) -> bool:
    """True if a bind of the pod is in flight, or its answer was lost and the pod was not read since."""
    return workload.is_being_bound(pod.uid) or pod.uid in world.unanswered_binds


def leave_group(world: World, workload: Workload, pod: Pod) -> Workload:
    """Move the surplus pod out of its gang: it is a workload by itself.  Returns this workload."""
    workload.surplus[pod.uid] = None
    key = names.workload_key(pod.uid)
    alone = world.workloads.get(key) or Workload(key, pod.full_name, created=pod.created)
    alone.readable = alone.readable or pod.full_name  # a job of a previous process was read before its pods came
    move(world, workload, alone, pod)
    return alone


def move(world: World, before: Workload, after: Workload, pod: Pod) -> None:
    """Move the pod, and what it shows of its group, from one workload to another.

    The former workload's notes of who bound the pod are not needed any more.  Most pods that move wait, and have none.  Of a
    pod on a node, only `strays` is asked again, and a stray moves only if the name of a job shows that it is none.
    """
    group = before.shown[pod.uid]
    world.workloads[after.key] = after
    after.put(pod)  # first, so that at each moment a workload has the pod
    after.show(pod.uid, group)
    before.take_out(pod.uid)
    before.last_status.pop(pod.uid, None)
    world.note_needs(after, pod)
    if after.group is not None:
        after.surplus.pop(pod.uid, None)
    else:
        add_split_to_stories(before, after, pod)
    world.refresh(before)
    world.refresh(after)
    world.key_of_pod[pod.uid] = after.key  # last: it shows that the pod was moved as a whole (quarantine.py)


def add_split_to_stories(gang: Workload, alone: Workload, pod: Pod) -> None:
    alone.add_to_story(
        pod.created, f"{gang.readable} has its {gang.size:,} pods: {pod.full_name} is a workload by itself"
    )
