"""Which jobs with a name of the bridge belong to the bridge: their Slurm user decides (ARCHITECTURE 4).

Each job that has such a name is one of these:

own                its workload is known, and `belongs_to` is true.  The bridge binds pods for the job, and ends it after the
                   pods.
of a former user   the policy or the labels of the namespace gave the pods this user when the job was submitted, and give them
                   another user now.  The bridge cancels the job and submits another (`is_to_be_replaced`).  If pods of the
                   workload may be on nodes of the job, the job is own.
without pods       its workload is not known, and the policy gives its user (`has_user_of_policy`).  The bridge cancels it.
foreign            any other job: another client chose its name.  The bridge does not change it (V6).

The policy and the labels of a namespace change while jobs wait and run.  So a job is own, although the policy does not give
the pods its user, if this process submitted it; if this process submitted a job as that user and has no answer; or if pods
that a previous process bound name its id and are as old as the job, or are on its nodes and had its user since the start of
this process.
"""

from __future__ import annotations

from scheduler import names
from scheduler.actions import AllocateNow, SubmitJob
from scheduler.events import Side
from scheduler.model.amounts import NO_TEXT
from scheduler.model.hostlist import HostlistError
from scheduler.model.kubernetes import Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Job, holds_nodes, nodes_of
from scheduler.state.named_job import inexact_s, is_bound_for, may_be_its_job
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World


def belongs_to(world: World, workload: Workload, job_id: int, user: str, read: Job | None) -> bool:
    """True if the job of that id and user belongs to the workload.  The job has the workload's name.

    read   what was read of the job; None: nothing yet

    If the policy gives the pods no user (any more), the job may be of any user that the policy can give, but only if a pod
    shows the job's id as the bridge writes it.  Without this condition, any user of the policy could end pods that the bridge
    does not manage, and a client that binds a pod itself could make the bridge cancel a job of any user.

    If the policy gives the pods another user, the job belongs to the workload in two cases: the bridge bound the pods for the
    job, and the job is as old as they are (the policy may not be able to give the job's user any more); or it was submitted
    before the last change, as a user that the policy can give or could give since the start, and may hold the nodes of the
    pods.  A job that replaced a lost one (S7) is such a job: it is younger than the pods, and may have its id.
    """
    if _submitted_by_this_process(world, workload, job_id, user, read) or _may_have_submitted_as(
        world, workload, user, read
    ):
        return True
    pods = [*workload.pods.values(), *(gone.pod for gone in workload.deleted_pods.values())]
    tenants = [world.tenant_of(pod) for pod in pods]
    users = {tenant.user for tenant in tenants if not isinstance(tenant, Refusal)}
    if user in users or not workload.pods:
        return user in users or (not users and read is not None and has_user_of_policy(world, read))
    if not users and world.config.policy.can_give(user):
        return workload.hint == job_id and any(_bridge_wrote_id(workload, pod, job_id) for pod in pods)
    if read is None or read.submitted is None or not world.is_inherited(workload):
        return False
    had_user = has_user_of_policy(world, read) or _had_user(world, workload.namespace, user)
    if had_user and _precedes_change(world, workload, read) and _may_hold_pods(world, workload, read):
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


def is_to_be_replaced(world: World, workload: Workload, job: Job) -> bool:
    """True if another job is submitted in place of this job, because it is of a former user and no pod can be on its nodes.

    The job has the workload's name, and does not belong to the workload.  False while the policy gives the
    pods no user: the pods have no other job, and may get the user of this job again.
    """
    return _is_of_former_user(world, workload, job) and not _may_hold_pods(world, workload, job)


def _is_of_former_user(world: World, workload: Workload, job: Job) -> bool:
    """True if the job was submitted before the last change of policy or labels, or before the start, as a former user.

    A former user is a user that the policy can give to some pods, but does not give to this workload's pods now.
    """
    if not _precedes_change(world, workload, job):
        return False
    tenants = [world.tenant_of(pod) for pod in workload.pods.values()]
    users = {tenant.user for tenant in tenants if not isinstance(tenant, Refusal)}
    return bool(users) and job.user not in users and has_user_of_policy(world, job)


def _precedes_change(world: World, workload: Workload, job: Job) -> bool:
    """True if the job was submitted before the start, or before the last change of the policy or of the labels."""
    changed = max(world.started, world.policy_at, world.labels_at.get(workload.namespace, float("-inf")))
    latest = changed + world.config.tuning.settle_s  # a call that was sent before the change may take effect until then
    return job.submitted is not None and world.clocks[Side.SLURM].ours(job.submitted) <= latest


def _had_user(world: World, namespace: str, user: str) -> bool:
    """True if a policy and labels that this process saw gave that user to pods of the namespace.

    Policy and labels are combined freely, because the order of their changes is not kept.
    """
    known = (world.namespaces or {}).get(namespace)
    of_namespace = [known.labels if known is not None else NO_TEXT, *world.former_labels.get(namespace, ())]
    return any(
        policy.is_ordinary(user) and policy.gives_in(namespace, labels, user)
        for policy in (world.config.policy, *world.former_policies)
        for labels in of_namespace
    )


def former_user_key(workload: Workload, user: str) -> str:
    """The key for jobs of that former user.  No pod has this key, so the jobs are cancelled like any job without pods."""
    return f"{workload.key}@{user}"


def living_job_of_former_user(world: World, workload: Workload) -> Placeholder | None:
    """A job of a former user of the workload that has not ended; None: there is none."""
    if not workload.former_user_jobs:  # usual, and this runs at each visit
        return None
    jobs = (world.placeholders.get(job_id) for job_id in workload.former_user_jobs)
    return next((job for job in jobs if job and job.alive and job.key == former_user_key(workload, job.user)), None)


def may_hold(world: World, pod: Pod, job: Job) -> bool:
    """True if the job may hold the node of the bound pod."""
    return _may_hold_any({world.in_slurm(pod.node)}, job)


def _may_hold_pods(world: World, workload: Workload, job: Job) -> bool:
    """True if a pod of the workload may be on a node of the job."""
    return _may_hold_any(world.slurm_nodes_under(workload), job)


def _may_hold_any(nodes: set[str], job: Job) -> bool:
    """True if the job may hold one of these nodes, which have Slurm's names."""
    if not nodes or not any(holds_nodes(component.states) for component in (job, *job.parts)):
        return False
    try:
        return not nodes.isdisjoint(nodes_of(job))
    except HostlistError:
        return True


def has_user_of_policy(world: World, job: Job) -> bool:
    """True if the policy can give the job's user to pods in the namespace that the job names.

    If only a template of the policy can give the user, the job must name a namespace.  The policy with the labels of this
    namespace must give the user, or the namespace must not exist any more.
    """
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
    """The namespace in the job's name, or, if the name has none, at the end of the job's comment; "": none."""
    for text in (job.name.rpartition("~")[0], job.comment.rpartition("; ")[2]):
        namespace, slash, _ = text.partition("/")
        if slash:
            return namespace
    return ""


def _may_have_submitted_as(world: World, workload: Workload, user: str, read: Job | None) -> bool:
    """True if this process submitted a job as that user without an answer yet, and the job of this read may be that job.

    read   what was read of the job; None: nothing yet
    """
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
