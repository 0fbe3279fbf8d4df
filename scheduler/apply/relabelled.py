"""Pods whose labels were edited after their bind: the bind, and not the labels, decides their workload (W4, V7).

A process that saw the bind keeps the pod in its workload.  The next process knows only the labels, so at first it puts the
pod into another workload.  The bind wrote the trace of the workload on the pod, and the name of the job shows the key of the
workload.  So as soon as a read proves whose job it is, the pods that were bound for the job move to the workload of the job.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler import names
from scheduler.apply.hinted_jobs import detach_unproven
from scheduler.apply.settling import settle_and_refresh
from scheduler.apply.surplus import leave_group, move
from scheduler.model.hostlist import HostlistError
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Job, is_ended, nodes_of
from scheduler.state.named_job import has_bind_annotations, shown_id
from scheduler.state.placeholder import Placeholder
from scheduler.state.quarantine import quarantine_job, quarantine_workload
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.translate.grouping import Group, group_of, in_own_run, size_when_bound


def gather(world: World, workload: Workload, job: Job) -> None:
    """Move the pods that were bound for the job to the job's workload.

    workload   the workload of the job
    job        the job as it was read; other workloads may have pods that show its id
    """
    record = world.placeholders.get(job.id)
    if record is None or (workload.group is None and workload.pods):
        return  # no pod shows the job, or it is the job of a pod by itself
    if is_ended(job.states) and workload.hint not in (None, job.id):
        return  # the workload has a later job, whose pods must not end with this job (V7)
    for key in sorted(record.hinted_by - {workload.key}):
        try:
            _gather_from(world, world.workloads[key], workload, job, record)
        except Exception as error:
            _drop_half_moved(world, world.workloads[key], workload, job, error)
            raise


def _drop_half_moved(world: World, other: Workload, workload: Workload, job: Job, error: Exception) -> None:
    """A pod may be half in either workload: drop both, and all that show the job, so that they are rebuilt (X8)."""
    for uid in other.pods.keys() & workload.pods.keys():
        del workload.pods[uid]
    quarantine_job(world, job.id, error)
    for half_written in (workload, other):
        quarantine_workload(world, half_written.key, error, jobs=[job.id])


def _gather_from(world: World, other: Workload, workload: Workload, job: Job, record: Placeholder) -> None:
    pods = [*_bound_for(world, workload, other, job)]
    for pod in pods:
        _move(world, other, workload, pod, job)
    if pods:
        _leave_job(world, other, record)
        settle_and_refresh(world, workload)


def _leave_job(world: World, other: Workload, job: Placeholder) -> None:
    """Pods moved from *other* to the workload of their job.  Detach the job from *other*, and settle the pods that stay.

    If another pod of *other* shows the id of the job, the job stays attached.
    """
    if not any(shown_id(pod) == job.id for pod in other.pods.values()):
        detach_unproven(world, other, job)
        if other.hint is None:
            shown = (shown_id(pod) for pod in other.unfinished if pod.node)
            other.hint = next((job_id for job_id in shown if job_id in other.jobs), None)
    settle_and_refresh(world, other)


def _bound_for(world: World, workload: Workload, other: Workload, job: Job) -> Iterator[Pod]:
    """The pods of the other workload that the bridge bound for the job of this workload.

    Users can edit annotations, too.  So the pod must also be in the namespace of the workload and on a node of the job, and
    the policy must give the pod the user of the job.
    """
    nodes = _known_nodes(job)
    for pod in other.pods.values():
        if pod.uid in other.strays or not pod.node or shown_id(pod) != job.id:
            continue
        if not _is_made_for(workload, pod) and not _shows_bind_for(world, workload, pod):
            continue
        if nodes and world.in_slurm(pod.node) not in nodes:
            continue
        tenant = world.tenant_of(pod)
        if not isinstance(tenant, Refusal) and tenant.user == job.user and workload.namespace in ("", pod.namespace):
            yield pod


def _is_made_for(workload: Workload, pod: Pod) -> bool:
    """True if the name of the workload's job has the key of this pod by itself, which proves more than any annotation.

    Size and trace decide if a bound pod of a new process is a member of its gang (membership.py), and users can edit both.
    """
    return names.workload_key(pod.uid) == workload.key


def _shows_bind_for(world: World, workload: Workload, pod: Pod) -> bool:
    """True if the pod has all annotations of a bind, with the trace of this workload, or with a trace of its user."""
    if not has_bind_annotations(pod):
        return False
    is_traced = pod.annotations.get(names.TRACEPARENT) == names.traceparent(world.cluster, workload.key)
    return is_traced or _keeps_own_trace(world, workload, pod)


def _keeps_own_trace(world: World, workload: Workload, pod: Pod) -> bool:
    """True if the bind of this pod of the gang kept the trace that the user wrote on the pod (O3).

    So if the pod was the last of its gang, its annotations do not show if it was bound for the gang or by itself
    (membership.py).  The name of its job does.
    """
    group = group_of(pod)
    is_of_gang = isinstance(group, Group) and names.workload_key(group.identity) == workload.key
    alone = names.traceparent(world.cluster, names.workload_key(pod.uid))
    return is_of_gang and pod.annotations.get(names.TRACEPARENT) != alone


def _known_nodes(job: Job) -> set[str]:
    """As `nodes_of`; empty: the nodes are not known."""
    try:
        return nodes_of(job)
    except HostlistError:
        return set()


def _move(world: World, before: Workload, after: Workload, pod: Pod, job: Job) -> None:
    if _is_made_for(after, pod):
        leave_group(world, before, pod).hint = job.id
    else:
        _move_to_gang(world, before, after, pod, job)


def _move_to_gang(world: World, before: Workload, gang: Workload, pod: Pod, job: Job) -> None:
    shown = next(iter(gang.shown.values()), None)  # the group that another pod of the gang still shows
    if shown is None:
        # Only the hash of the identity is known, which is the key.  So the identity stays "" until a pod shows it.
        gang.readable = gang.readable or job.name.rpartition("~")[0]
        shown = Group("gang", gang.readable.rpartition("/")[2], "", size_when_bound(pod), run=str(job.id))
        gang.group, gang.size = shown, 0
    before.surplus.pop(pod.uid, None)
    before.show(pod.uid, in_own_run(shown, pod))
    move(world, before, gang, pod)
    gang.hint = job.id
