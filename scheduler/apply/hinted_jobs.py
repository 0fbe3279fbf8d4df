"""Jobs that are known only because pods show their ids (`Placeholder.hinted_by`).  An id on a pod is a hint, and no proof.

The id that a bound pod shows may be the id of the job for which a previous process bound the pod; the job's user may have
renamed this job.  It may be an id that Slurm has given to another job since.  Or it may be any number, because people can
write annotations.  So a hint keeps the bridge from ending the pod, but never makes the bridge act on the job (ARCHITECTURE
4).
"""

from __future__ import annotations

from scheduler import names
from scheduler.actions import ObjectKind
from scheduler.model.hostlist import HostlistError
from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import Job, States, is_ended, nodes_of
from scheduler.state import quarantine
from scheduler.state.job_ownership import belongs_to
from scheduler.state.named_job import has_bind_annotations, shown_id
from scheduler.state.phase import Phase, chosen
from scheduler.state.placeholder import PENDING, RUNNING, Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World


def take_hint(world: World, workload: Workload, pod: Pod) -> None:
    """Take the job id that the pod shows as a hint, and attach the job of that id to the workload."""
    job_id = _new_hint(workload, pod)
    if job_id is None or _is_written_by_other_client(world, workload, pod, job_id):
        return
    # True if quarantine dropped the facts about the workload's job.
    dropped = workload.bound_by_this_process and not world.jobs_of(workload)
    is_new = job_id not in world.placeholders and (dropped or job_id not in world.foreign)
    if is_new and world.polled is not None and job_id not in world.states and (not pod.node or pod.finished):
        return  # the job ended, and this pod does not depend on it; another pod of the workload may, and shows the same id
    is_ending = pod.finished or pod.deleting_at is not None
    if workload.hint is None or not (is_ending or _is_bound_by_other_client(workload, pod)):
        # A pod that is ending, or that another client bound, must not replace the hint to the gang's present job.
        workload.hint = job_id
    if is_new:
        _add_hinted_job(world, workload, job_id, RUNNING if pod.node else PENDING)
    if (job := world.placeholders.get(job_id)) is not None:
        is_known = job.proven or job.shows_end
        # If several workloads show the id, at least one of them shows a job that is not its own.
        if not is_known and (job.hinted_by - {workload.key} or _shows_other_trace(world, workload, pod)):
            world.schedule_read(job_id, world.last_poll_began)
        _attach(workload, job)


def take_late_hint(world: World, workload: Workload, pod: Pod) -> None:
    """As `take_hint`, for an id that was written after the first list.  Without it the job may have been read as foreign."""
    if (job_id := shown_id(pod)) is not None and job_id in world.foreign:
        world.foreign.discard(job_id)
        world.schedule_read(job_id, world.last_poll_began)
    take_hint(world, workload, pod)


def take_hint_of_surplus(world: World, alone: Workload, pod: Pod) -> None:
    """The waiting pod left its gang: take the job id that it shows, unless that job is known to be of another workload.

    A process before this one, which knew the size of the gang, may have submitted a job for the pod by itself.
    """
    job_id = _new_hint(alone, pod)
    known = None if job_id is None else world.placeholders.get(job_id)
    if known is None or not known.proven:
        take_hint(world, alone, pod)


def _shows_other_trace(world: World, workload: Workload, pod: Pod) -> bool:
    """True if the pod was bound as a part of another workload, and its label was edited since (relabelled.py).

    The user may have set the trace, too.  Then a read of the job is not needed, and does no harm.
    """
    trace = pod.annotations.get(names.TRACEPARENT)
    return trace is not None and trace != names.traceparent(world.cluster, workload.key)


def _attach(workload: Workload, job: Placeholder) -> None:
    """Note that pods of the workload show the id of the job."""
    workload.jobs.add(job.id)
    job.hinted_by.add(workload.key)


def _new_hint(workload: Workload, pod: Pod) -> int | None:
    """The job id that the pod shows in its annotation, or before the bind in its condition.

    None: the pod shows no id, or its id is the workload's hint already.
    """
    job_id = shown_id(pod) if pod.node else None
    condition = workload.shown_condition(pod)
    if not pod.node and condition is not None and not workload.jobs:
        job_id = names.shown_job(condition.message)
    return job_id if job_id != workload.hint else None


def _is_written_by_other_client(world: World, workload: Workload, pod: Pod, job_id: int) -> bool:
    """True if no bind of the bridge can have written that id: the annotation was edited, or the id is of an absent job."""
    edited = workload.edited.get(pod.uid)
    if edited is not None and names.JOB_ID in edited.right and pod.uid in workload.bound_by_bridge_before:
        return True  # the bridge's bind wrote another id; a client edited it before the watch showed the bind
    known = world.placeholders.get(job_id)
    return known is not None and known.absent and not known.proven and not world.may_have_bound(workload)


def _add_hinted_job(world: World, workload: Workload, job_id: int, expected: States) -> None:
    """Add a record of a job that only a pod shows.  A read of the job will show to which workload it belongs.

    expected   its states if no list has shown it yet
    """
    states = world.states.get(job_id, expected)
    world.placeholders[job_id] = Placeholder(job_id, None, "", states, known_since=float("-inf"))
    if world.is_inherited(workload):  # otherwise the job is still read: it may be foreign
        world.stop_reading(job_id)
    if job_id in world.foreign:  # these pods may have had a job of this id before Slurm gave the id to another job
        world.foreign.discard(job_id)
        world.schedule_read(job_id, world.last_poll_began)
    world.expected.add(job_id)


def _is_bound_by_other_client(workload: Workload, pod: Pod) -> bool:
    """True if another client bound the pod, and the bridge bound other pods of its gang."""
    return pod.uid in workload.strays and not workload.is_bound_by_others


def detach_false_hints(world: World, job: Placeholder) -> None:
    """Detach the job from workloads whose pods show its id, although no bind of the bridge can have written it."""
    for workload in world.workloads_of(job):
        if not world.may_have_bound(workload):
            detach_unproven(world, workload, job)


def drop_hint(world: World, job: Placeholder) -> None:
    """Remove the record of a job whose id pods show, because it is not their job."""
    _detach_others(world, job, frozenset())
    world.drop(job)


def _detach_others(world: World, job: Placeholder, followed_by: frozenset[str]) -> None:
    """Detach the job from workloads that show its id, unless they follow it or may run for it.

    followed_by   keys of the workloads that follow the job
    """
    for workload in world.workloads_of(job):
        if workload.key not in followed_by and not _may_run_for(workload, job):
            detach_unproven(world, workload, job)


def detach_unproven(world: World, workload: Workload, job: Placeholder) -> None:
    """Detach the job from a workload whose pods show the job's id, but were not bound for the job."""
    if workload.hint == job.id:
        workload.hint = None
    workload.jobs.discard(job.id)
    job.hinted_by.discard(workload.key)
    world.refresh(workload)


def is_depended_on(world: World, job: Placeholder) -> bool:
    """True if unfinished pods run, or may run, for the job."""
    concerned = world.workloads_of(job)
    if any(quarantine.is_dropped(world, ObjectKind.WORKLOAD, workload.key) for workload in concerned):
        return True
    pods = ((workload, pod) for workload in concerned for pod in workload.pods.values())
    return any(workload.node_of(pod) and not pod.finished for workload, pod in pods)


def _may_run_for(workload: Workload, job: Placeholder) -> bool:
    """True if pods of the workload run and name this job, which may be the workload's job after a rename.

    Then the end of another job does not end these pods (V7).
    """
    running = any(workload.node_of(pod) for pod in workload.unfinished)
    return running and workload.hint == workload.renamed == job.id


def follow_if_renamed(world: World, job: Placeholder, read: Job) -> bool:
    """Decide if workloads follow a job with another name, because its user may have renamed it (docs/decisions/0003).

    The job is as old as the pods that show its id.  A workload follows the job if the job has the workload's user and has, or
    had, the nodes of the workload's pods.  Then the end of the job ends the pods.  But if a job with the workload's own name
    holds these nodes, that job is the workload's, and another client wrote this id.  Returns True if a workload follows the
    job.
    """
    followed = set()
    for workload in world.workloads_of(job):
        workload.renamed = job.id
        own = chosen(workload, world.jobs_of(workload))
        if workload.hint == job.id and own is not None and own.holds_nodes and holds_their_nodes(world, workload, own):
            workload.hint = own.id
        elif _may_be_their_job(world, workload, read):
            followed.add(workload.key)
    job.followed_by = frozenset(followed)
    if followed:
        _detach_others(world, job, job.followed_by)
        job.end_proven = is_ended(read.states)
        world.set_states(job, read.states, job.read_began)
        world.touch(job)
    return bool(followed)


def read_renamed_again(world: World) -> None:
    """Read renamed jobs again, after a change of the policy or of the labels of a namespace.

    When such a job was read before, the policy did not give its user, so its workload did not follow the job.  The pods of
    the workload still name the job, and run without a job that ends with them (L4).
    """
    for key in world.by_phase[Phase.BOUND]:
        workload = world.workloads[key]
        job_id = workload.hint
        if job_id is None or workload.renamed != job_id or job_id in workload.jobs:
            continue
        if job_id not in world.placeholders:
            _add_hinted_job(world, workload, job_id, RUNNING)
        _attach(workload, world.placeholders[job_id])
        world.schedule_read(job_id, world.last_poll_began)


def _may_be_their_job(world: World, workload: Workload, read: Job) -> bool:
    """True if the job, whose name is not the workload's, has the user and the nodes of the pods that show its id.

    The name does not prove whose job it is, so the policy must still be able to give the job's user.  A pod that another
    client bound may also name a job of its user, so the pods must have all annotations that a bind of the bridge writes.
    """
    bound_pods = [pod for pod in workload.unfinished if workload.node_of(pod)]
    if workload.strays or not all(has_bind_annotations(pod) for pod in bound_pods):
        return False
    if not world.config.policy.can_give(read.user):
        return False
    if not belongs_to(world, workload, read.id, read.user, read):
        return False
    try:
        nodes = nodes_of(read)
    except HostlistError:
        return False
    return bool(bound_pods) and {world.in_slurm(workload.node_of(pod)) for pod in bound_pods} <= nodes


def holds_their_nodes(world: World, workload: Workload, job: Placeholder) -> bool:
    """True if the job was granted every node on which a pod of the workload runs."""
    granted = {node.name for node in job.grant.everywhere} if job.grant is not None else set()
    pod_nodes = world.slurm_nodes_under(workload)
    return pod_nodes <= granted
