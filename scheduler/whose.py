"""Whose job is it: a job of our name is ours by its Slurm user (ARCHITECTURE 4).

A job of a workload that is known must be of the user that the policy gives its pods.  Policy and labels of a namespace change
while jobs wait and run: a job stays its pods' if this life submitted it, or if pods of an earlier life name it by its id and
it is as old as they are.

A job whose pods nobody knows is an orphan of ours if a rule names its user.  If only a template can give that user, which may
be anybody, the namespace that the job names must give it, or be gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.model import Job, Refusal
from scheduler.own_keys import may_be_its_job
from scheduler.workload import Workload

if TYPE_CHECKING:
    from scheduler.world import World


def is_theirs(world: World, workload: Workload, job_id: int, user: str, read: Job | None) -> bool:
    """True if the job of that id and user, which has the workload's name, is the workload's.

    read   what was read of the job; None: nothing yet

    If the policy gives its pods no user (any more), any user will do that the policy can give, but only if the pods name
    that job.  Otherwise any user of the policy could end pods with which the bridge has nothing to do.
    """
    if _submitted_by_this_life(world, workload, job_id, user, read):
        return True
    pods = [*workload.pods.values(), *(gone.pod for gone in workload.gone.values())]
    tenants = [world.tenant_of(pod) for pod in pods]
    users = {tenant.user for tenant in tenants if not isinstance(tenant, Refusal)}
    if user in users or not world.config.policy.can_give(user):
        return user in users
    if not workload.pods:
        return not users and read is not None and is_orphan(world, read)
    if workload.hint != job_id or not users:
        return workload.hint == job_id
    if read is None or read.submitted is None or not world.inherited(workload):
        return False
    submitted = read.submitted
    return any(may_be_its_job(world, pod, submitted) for pod in workload.unfinished)


def is_orphan(world: World, job: Job) -> bool:
    """True if a job of our name, whose pods nobody knows, is ours."""
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


def _submitted_by_this_life(world: World, workload: Workload, job_id: int, user: str, read: Job | None) -> bool:
    known = world.placeholders.get(job_id)
    if known is None or known.spec is None or (known.key, known.user) != (workload.key, user):
        return False
    return known.job is None or read is None or known.job.submitted == read.submitted
