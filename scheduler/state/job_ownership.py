"""Which jobs with a name of the bridge belong to it: their Slurm user decides (ARCHITECTURE 4).

The job of a known workload must have the user that the policy gives its pods.  The policy and the labels of a namespace
change while jobs wait and run.  A job with another user stays the workload's in three cases: this process submitted it; this
process submitted a job as that user and has no answer; or pods that a previous process bound name its id, and are as old as
the job.

A job with the workload's name and a user that the policy does not give its pods any more is a stray: a previous process
submitted it under another policy, before the pods showed its id.  The bridge cancels it and submits another job, unless
pods of the workload may be on its nodes.  A job that was submitted after the last change of policy and labels, and after
the start, is foreign: another client chose that name.

A job without known pods is an orphan of the bridge if a rule names its user.  If only a template can give that user, the
namespace that the job names must give it, or not exist any more.
"""

from __future__ import annotations

from scheduler import names
from scheduler.actions import AllocateNow, SubmitJob
from scheduler.events import Side
from scheduler.model.hostlist import HostlistError, expand
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Job, holds_nodes
from scheduler.state.named_job import inexact_s, is_bound_for, may_be_its_job
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World


def belongs_to(world: World, workload: Workload, job_id: int, user: str, read: Job | None) -> bool:
    """True if the job of that id and user belongs to the workload.  The job has the workload's name.

    read   what was read of the job; None: nothing yet

    If the policy gives the pods no user (any more), the job may be of any user that the policy can give, but only if a pod
    shows the job's id as the bridge writes it.  Without that condition any user of the policy could end pods with which the
    bridge has nothing to do, and a client that binds a pod itself could make the bridge cancel a job of any user.

    If the policy gives the pods another user, the job belongs to the workload in two cases: the bridge bound the pods for the
    job, and the job is as old as they are (the policy may not be able to give the job's user any more); or the job is of a
    former policy (`_is_of_former_policy`) and holds the nodes of the pods.
    """
    if _submitted_by_this_process(world, workload, job_id, user, read) or _may_have_submitted_as(
        world, workload, user, read
    ):
        return True
    pods = [*workload.pods.values(), *(gone.pod for gone in workload.deleted_pods.values())]
    tenants = [world.tenant_of(pod) for pod in pods]
    users = {tenant.user for tenant in tenants if not isinstance(tenant, Refusal)}
    if user in users or not workload.pods:
        return user in users or (not users and read is not None and is_orphan(world, read))
    if not users and world.config.policy.can_give(user):
        return workload.hint == job_id and any(_bridge_wrote_id(workload, pod, job_id) for pod in pods)
    if read is None or read.submitted is None or not world.is_inherited(workload):
        return False
    if _is_of_former_policy(world, workload, read) and _may_hold_pods(world, workload, read):
        return True
    if workload.hint != job_id:
        return False
    submitted, is_ordinary = read.submitted, world.config.policy.is_ordinary(user)
    naming = (pod for pod in pods if is_bound_for(pod, job_id))
    return is_ordinary and any(may_be_its_job(world, pod, submitted) for pod in naming)


def _bridge_wrote_id(workload: Workload, pod: Pod, job_id: int) -> bool:
    """True if the pod shows the job's id as the bridge writes it: in its condition while it waits, or in a bind."""
    if pod.node:
        return is_bound_for(pod, job_id)
    condition = workload.shown_condition(pod)
    return condition is not None and names.shown_job(condition.message) == job_id


def is_stray(world: World, workload: Workload, job: Job) -> bool:
    """True if the job is a stray (see the module).  The job has the workload's name, and does not belong to the workload.

    False while the policy gives the pods no user: the pods have no other job, and may get the user of this job again.
    """
    return _is_of_former_policy(world, workload, job) and not _may_hold_pods(world, workload, job)


def _is_of_former_policy(world: World, workload: Workload, job: Job) -> bool:
    """True if the job was submitted before the last change of policy or labels, or before the start, as a former user.

    A former user is a user whom the policy can give to some pods, and to whom it maps no pod of this workload any more.
    """
    changed = max(world.started, world.policy_at, world.labels_at.get(workload.namespace, float("-inf")))
    latest = changed + world.config.tuning.settle_s  # what was sent before may have taken effect until then
    if job.submitted is None or world.clocks[Side.SLURM].ours(job.submitted) > latest:
        return False
    tenants = [world.tenant_of(pod) for pod in workload.pods.values()]
    users = {tenant.user for tenant in tenants if not isinstance(tenant, Refusal)}
    return bool(users) and job.user not in users and is_orphan(world, job)


def former_key(workload: Workload, user: str) -> str:
    """The key of a stray of the workload.  No pod has that key, so the stray is cancelled like a job without pods."""
    return f"{workload.key}@{user}"


def living_stray(world: World, workload: Workload) -> Placeholder | None:
    """A stray of the workload that has not ended; None: there is none."""
    jobs = (world.placeholders.get(job_id) for job_id in workload.former)
    return next((job for job in jobs if job and job.alive and job.key == former_key(workload, job.user)), None)


def _may_hold_pods(world: World, workload: Workload, job: Job) -> bool:
    """True if a pod of the workload may be on a node of the job."""
    pod_nodes = {world.in_slurm(node) for pod in workload.unfinished if (node := workload.node_of(pod))}
    if not pod_nodes or not holds_nodes(job.states):
        return False
    try:
        return not pod_nodes.isdisjoint(expand(job.nodes))
    except HostlistError:
        return True


def is_orphan(world: World, job: Job) -> bool:
    """True if the job, which has a name of the bridge and no known pods, belongs to the bridge."""
    policy = world.config.policy
    if not policy.can_give(job.user):
        return False
    if policy.writes_out(job.user):
        return True
    if not (name := _namespace(job)):
        return False
    namespace = (world.namespaces or {}).get(name)
    return namespace is None or policy.gives_in(name, namespace.labels, job.user)


def _namespace(job: Job) -> str:
    """The namespace in the job's name or, if the user chose the job's name, at the end of its comment; "": none."""
    for text in (job.name.rpartition("~")[0], job.comment.rpartition("; ")[2]):
        namespace, slash, _ = text.partition("/")
        if slash:
            return namespace
    return ""


def _may_have_submitted_as(world: World, workload: Workload, user: str, read: Job | None) -> bool:
    """True if this process submitted a job as that user, the outcome is not known, and this job may be that job."""
    in_flight = workload.in_flight.action if workload.in_flight is not None else None
    if isinstance(in_flight, AllocateNow | SubmitJob) and in_flight.spec.user == user:
        return True
    search = workload.job_search
    if search is None or search.user != user:
        return False
    submitted = read.submitted if read is not None else None
    return submitted is None or world.clocks[Side.SLURM].ours(submitted) - inexact_s(world) <= search.until


def _submitted_by_this_process(world: World, workload: Workload, job_id: int, user: str, read: Job | None) -> bool:
    known = world.placeholders.get(job_id)
    if known is None or known.spec is None or (known.key, known.user) != (workload.key, user):
        return False
    return known.job is None or read is None or known.job.submitted == read.submitted
