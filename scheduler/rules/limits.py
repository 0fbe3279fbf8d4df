"""Which limit of Slurm holds a job back, and its value (Q2).

Slurm's reason names the kind of the limit.  Its value is in slurmdbd.  It is read once for all jobs of a user in an account
with a QOS, at most `limits_rate` times a second, and again after `limits_every_s`.  Until it was read, or if it cannot be
read, the pod shows the reason without the value.
"""

from __future__ import annotations

from scheduler.actions import ReadLimits
from scheduler.model.limits import KnownLimits, Limit, LimitsOf
from scheduler.model.reasons import Reason, meaning_of
from scheduler.model.slurm import Job
from scheduler.rules.decision import NOTHING, Decision, plan_action
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload
from scheduler.state.world import World

PATIENCE_S = 1.0  # a status waits so long for the value of the limit, after the read of the job
MOST_SHOWN = 3


def limits_of(job: Job, world: World) -> LimitsOf:
    """The key under which the limits on this job are known."""
    partition = world.partitions.get(job.partition)
    return LimitsOf(job.user, job.account, job.qos, partition.qos if partition is not None else "")


def read_limits(workload: Workload, job: Placeholder, this_pass: Pass) -> tuple[Decision, float | None]:
    """The read of the limits that the job's reason names, and when its status stops waiting for it (None: no wait)."""
    world, read = this_pass.world, job.job
    reason = meaning_of(read.reason) if read is not None else None
    if read is None or reason is None or not reason.limit or not read.account:
        return NOTHING, None
    if not world.config.accounting or world.accounting_outage is not None:
        return NOTHING, None
    of = limits_of(read, world)
    known = world.limits.get(of)
    if known is not None and this_pass.now < known.at + this_pass.tuning.limits_every_s:
        return NOTHING, None
    action = ReadLimits(workload.key, of, f"the limits of {of.user} in account {of.account}")
    until = job.read_began + PATIENCE_S
    return plan_action(action, "limits", is_optional=True), until if known is None and this_pass.now < until else None


def with_value(reason: Reason, job: Job, world: World) -> str:
    """The meaning of the reason, with the value of the limit instead of its name if the value is known."""
    known = world.limits.get(limits_of(job, world)) if reason.limit else None
    found = matching(reason, known) if known is not None else []
    if not found:
        return reason.meaning
    shown = "; ".join(map(str, found[:MOST_SHOWN]))
    return reason.meaning.replace(f"({reason.limit})", f"({shown})")


def matching(reason: Reason, known: KnownLimits) -> list[Limit]:
    """The limits that the reason may be about: Slurm does not say which of several associations has it."""
    name, _, resource = reason.limit.partition("=")
    prefix = resource.removesuffix("…")
    return [
        limit
        for limit in known.limits
        if limit.name == name
        and bool(limit.qos) is reason.by_qos
        and (limit.resource.startswith(prefix) if prefix != resource else limit.resource == resource)
    ]
