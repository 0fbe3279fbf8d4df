"""Which jobs with a name of the bridge belong to it: their Slurm user decides (ARCHITECTURE 4).

The job of a known workload must have the user that the policy gives its pods.  The policy and the labels of a namespace
change while jobs wait and run.  A job stays the workload's if this process submitted it, or submitted one as that user and
has no answer, or if pods that a previous process bound name its id and are as old as the job.

A job with the workload's name and a user that the policy does not give its pods any more is a stray: a previous process
submitted it under another policy, before the pods showed its id.  The bridge cancels it and submits another job, unless
pods of the workload may be on its nodes.  A job that was made after the last change of policy and labels, and after the
start, is foreign: another client chose that name.

A foreign job that is older than that may hold the place of pods whose own job Slurm lost (`may_hold_place`): the bridge
leaves both alone while that job runs.

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
    """True if the job of that id and user, which has the workload's name, is the workload's.

    read   what was read of the job; None: nothing yet

    If the policy gives the pods no user (any more), the job may be of any user that the policy can give, but only if a pod
    shows the job's id as the bridge writes it.  Otherwise any user of the policy could end pods with which the bridge has
    nothing to do, and a client that binds a pod itself could have the bridge cancel a job of any user.

    If the policy gives the pods another user, the job is theirs if the bridge bound them for it and it is as old as they
    are, even if the policy cannot give its user any more; or if it is a former job (`_is_former`) that holds their nodes.
    """
    if _submitted_by_this_process(world, workload, job_id, user, read) or _asked_as(world, workload, user, read):
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
    if _is_former(world, workload, read) and _may_hold(world, workload, read):
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
    """True if the job, which has the name of the workload and is not the workload's, is a stray (see the module).

    False while the policy gives the pods no user: they have no other job, and may be given the user of this one again.
    """
    return _is_former(world, workload, job) and not _may_hold(world, workload, job)


def may_hold_place(world: World, workload: Workload, job: Job) -> bool:
    """True if the job, which has the name of the workload and is foreign, may hold the nodes of the pods for them.

    A former policy, or former labels of the namespace, may have given its user; that is not known any more.  So the bridge
    neither cancels the job (V6) nor ends the pods for want of a job while it runs (V7).
    """
    return _is_submitted_before_change(world, workload, job) and _may_hold(world, workload, job)


def _is_submitted_before_change(world: World, workload: Workload, job: Job) -> bool:
    """True if the job was submitted before the start or the last change of policy or labels."""
    changed = max(world.started, world.policy_at, world.labels_at.get(workload.namespace, float("-inf")))
    latest = changed + world.config.tuning.settle_s  # what was sent before may have taken effect until then
    return job.submitted is not None and world.clocks[Side.SLURM].ours(job.submitted) <= latest


def _is_former(world: World, workload: Workload, job: Job) -> bool:
    """True if the job was asked for before the start or the last change of policy or labels, as another of its users."""
    if not _is_submitted_before_change(world, workload, job):
        return False
    tenants = [world.tenant_of(pod) for pod in workload.pods.values()]
    users = {tenant.user for tenant in tenants if not isinstance(tenant, Refusal)}
    return bool(users) and job.user not in users and is_orphan(world, job)


def former_key(workload: Workload, user: str) -> str:
    """The key of a stray of the workload.  No pod has that key, so the job is cancelled as an orphan is."""
    return f"{workload.key}@{user}"


def living_stray(world: World, workload: Workload) -> Placeholder | None:
    """A stray of the workload that has not ended; None: there is none."""
    jobs = (world.placeholders.get(job_id) for job_id in workload.former)
    return next((job for job in jobs if job and job.alive and job.key == former_key(workload, job.user)), None)


def _may_hold(world: World, workload: Workload, job: Job) -> bool:
    """True if a pod of the workload may be on a node of the job."""
    pod_nodes = {world.in_slurm(node) for pod in workload.unfinished if (node := workload.node_of(pod))}
    if not pod_nodes or not holds_nodes(job.states):
        return False
    try:
        return not pod_nodes.isdisjoint(expand(job.nodes))
    except HostlistError:
        return True


def is_orphan(world: World, job: Job) -> bool:
    """True if a job with a name of the bridge, without known pods, is the bridge's."""
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
    """The namespace that the job names, in its name or, if its user chose that, at the end of its comment; "": none."""
    for text in (job.name.rpartition("~")[0], job.comment.rpartition("; ")[2]):
        namespace, slash, _ = text.partition("/")
        if slash:
            return namespace
    return ""


def _asked_as(world: World, workload: Workload, user: str, read: Job | None) -> bool:
    """True if this process submitted a job as that user, no answer shows its outcome, and this may be the job."""
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
