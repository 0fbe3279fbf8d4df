"""Which workload a pod belongs to as it comes (W1–W5).

Pods of one group become members of one workload until it has its size.  Further pods are surplus (surplus.py): each is a
workload by itself.  As pods end and go, the members are determined again (settling.py).
"""

from __future__ import annotations

from scheduler import names
from scheduler.apply.surplus import add_split_to_stories, gang_of, is_surplus, leave_group, move
from scheduler.model.kubernetes import Owner, Pod
from scheduler.model.refusal import Refusal
from scheduler.state.job_ownership import may_hold
from scheduler.state.named_job import shown_id
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.grouping import JOBSET_PART, JOBSET_UID, Group, group_of, in_stage

ALONE = "1"  # the annotation `size` of a pod that was bound as a workload by itself


def take_workload(world: World, pod: Pod) -> Workload:
    """The workload to which the pod belongs.  If there is none yet, it is created."""
    key = world.key_of_pod.get(pod.uid)
    if key is not None:
        workload = _follow_bind(world, world.workloads[key], pod)
        if workload.group is not None:
            _show(world, workload, pod)
        elif _was_refused_alone(workload, pod.uid):
            return _join_group(world, workload, pod)
        _note_regrouped(world, workload, pod)
        return workload
    group = shown_by(world, pod)
    if not isinstance(group, Group):
        return _take_alone(world, pod)
    if _was_bound_alone(world, pod, group) or _has_job_of_its_own(world, pod):
        gang = _gang_of(world, pod, group)
        world.refresh(gang)  # it may have no pod yet
        return _take_beside(world, gang, pod, group)
    return take_group(world, pod, group)


def _note_regrouped(world: World, workload: Workload, pod: Pod) -> None:
    """Note if labels of the waiting pod were edited, and show another group than that of its workload.

    The Jobs of a JobSet may get stages later, which are groups, too.
    """
    before, own = workload.pods.get(pod.uid), workload.shown.get(pod.uid)
    if before is None or (before.labels, before.annotations, before.node) == (pod.labels, pod.annotations, pod.node):
        return
    workload.regrouped.pop(pod.uid, None)
    shown = shown_by(world, pod)
    if pod.node or isinstance(shown, Refusal) or (own is not None and own.kind == "JobSet"):
        return
    if (shown.identity if shown is not None else "") != (own.identity if own is not None else ""):
        workload.regrouped[pod.uid] = shown


def shown_by(world: World, pod: Pod) -> Group | Refusal | None:
    """The group that the pod shows.  If a JobSet with stages was read, the group is the pod's stage."""
    group = group_of(pod)
    if not isinstance(group, Group) or group.size_source_kind != "JobSet" or pod.node:
        return group
    jobset = jobset_of(world, pod)
    job = pod.labels.get(JOBSET_PART, "")
    stages = jobset.stages if jobset is not None else ()
    return in_stage(group, next((stage.name for stage in stages if job in stage.jobs), ""))


def jobset_of(world: World, pod: Pod) -> Owner | None:
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
    if not isinstance(group, Group) or workload.shows_own_bind(pod):
        return workload
    if workload.group is not None and _was_bound_alone(world, pod, group):
        return leave_group(world, workload, before)
    gang = gang_of(world, group)
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
    group = shown_by(world, pod)
    if not isinstance(group, Group):
        return alone
    alone.take_out(pod.uid)
    alone.last_status.pop(pod.uid, None)
    world.refresh(alone)
    return take_group(world, pod, group)


def _was_bound_alone(world: World, pod: Pod, group: Group) -> bool:
    """True if a previous process bound the pod for a job of its own, because its group was complete.

    The last pod of a gang also shows size 1; if the trace of the pod is the gang's, the result is False.
    """
    if not pod.node or pod.annotations.get(names.SIZE) != ALONE:
        return False
    return not _was_bound_as_member(world, pod, group)


def _has_job_of_its_own(world: World, pod: Pod) -> bool:
    """True if the pod runs and shows no job, and a job with the key of this pod alone was read and holds its node (W4)."""
    if not pod.node or shown_id(pod) is not None:
        return False
    alone = world.workloads.get(names.workload_key(pod.uid))
    jobs = world.jobs_of(alone) if alone is not None else ()
    return any(job.alive and job.job is not None and may_hold(world, pod, job.job) for job in jobs)


def _was_bound_as_member(world: World, pod: Pod, group: Group) -> bool:
    """True if the bind of the pod wrote the trace of the group: the bridge bound the pod for the job of the group."""
    trace = names.traceparent(world.cluster, names.workload_key(group.identity))
    return pod.annotations.get(names.TRACEPARENT) == trace


def _take_alone(world: World, pod: Pod) -> Workload:
    return _take_or_make(world, names.workload_key(pod.uid), pod, pod.full_name)


def take_group(world: World, pod: Pod, group: Group) -> Workload:
    workload = _gang_of(world, pod, group)
    if is_surplus(workload, pod, group):
        alone = _take_beside(world, workload, pod, group)
        add_split_to_stories(workload, alone, pod)
        return alone
    workload.surplus.pop(pod.uid, None)
    workload.show(pod.uid, group)
    return workload


def _gang_of(world: World, pod: Pod, group: Group) -> Workload:
    workload = _take_or_make(world, names.workload_key(group.identity), pod, f"{pod.namespace}/{group.name}")
    if workload.group is None or not workload.group.identity:
        workload.group, workload.size = group, 0
    return workload


def _take_beside(world: World, gang: Workload, pod: Pod, group: Group) -> Workload:
    """Take the pod as a surplus pod of the gang: it is a workload by itself.  Returns this workload."""
    gang.surplus[pod.uid] = None
    alone = _take_alone(world, pod)
    alone.show(pod.uid, group)
    return alone


def _take_or_make(world: World, key: str, pod: Pod, readable: str) -> Workload:
    world.key_of_pod[pod.uid] = key
    workload = world.workloads.get(key)
    if workload is None:
        workload = world.workloads[key] = Workload(key, readable, created=pod.created)
    workload.readable = readable  # a job of a previous process may have been read before its pods came
    return workload


def _show(world: World, workload: Workload, pod: Pod) -> None:
    """Note the group that the pod shows now: its labels may have been edited while it waits."""
    group = shown_by(world, pod)
    if isinstance(group, Group) and workload.group is not None and group.identity == workload.group.identity:
        workload.show(pod.uid, group)
