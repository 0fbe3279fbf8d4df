"""Several bridges in one Kubernetes cluster: none touches the pods and the jobs of another one (K1, V6).

Each bridge has a schedulerName of its own.  Its user agent and its pods show it, and the names of its jobs have a mark of it.
Slurm shows only the user of a request.  A bridge acts as the users that its policy gives, so jobs are judged on this
assumption: the pods of two bridges have different Slurm users.  If they have the same users, only what happens to the jobs of
a bridge that does not run is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from integration.checker.evidence import CALM_WAY_S, Evidence, Job, Users, clock
from integration.checker.verdict import Broken


def own_pods(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """K1: a bridge writes to no pod of another bridge, and binds no pod that has not its schedulerName.

    It may report, or end, a pod of another scheduler that runs on a node that Slurm gives away (N10).
    """
    bridges = {*evidence.ran, *evidence.policies, *(write.bridge for write in evidence.audit.writes)}
    for write in evidence.audit.writes:
        scheduler = write.pod.scheduler
        if not scheduler:
            continue  # the log does not show its creation
        judged["K1"] += 1
        if scheduler != write.bridge and (scheduler in bridges or write.what == "bound"):
            yield Broken(
                "K1", write.pod.who, write.at,
                f"pod {write.pod.who} with schedulerName {scheduler} was {write.what} at {clock(write.at)} ({write.line}) by "
                f"the bridge with schedulerName {write.bridge}",
            )  # fmt: skip


def own_jobs(evidence: Evidence, judged: Counter[str]) -> Iterator[Broken]:
    """V6: no placeholder of a bridge is cancelled or changed by another bridge."""
    jobs = [job for job in evidence.ours() if evidence.is_own(job)]
    others = {job.scheduler: set(evidence.ran) - {job.scheduler} for job in jobs}
    judged["V6"] += sum(bool(others[job.scheduler]) for job in jobs)
    for job in jobs:
        end = job.history.changes[-1]
        if evidence.is_cancelled(job) and _is_away(evidence, job, end.at):
            yield _touched(job, "cancelled", end.at, end.line, "its bridge did not run")
    uids = {record.uid: record.user for record in evidence.records}
    for update in evidence.slurm.updates:
        changed, user = evidence.job(update.id, update.at), uids.get(update.uid, "")
        if changed is None or not evidence.is_own(changed):
            continue
        if user == changed.last.user and _is_away(evidence, changed, update.at):
            yield _touched(changed, "changed", update.at, update.line, "its bridge did not run")
        elif user in _users_of_others(evidence, changed):
            yield _touched(changed, "changed", update.at, update.line, f"{user} is a user of another bridge")


def _touched(job: Job, what: str, at: float, line: str, why: str) -> Broken:
    return Broken(
        "V6", job.name, at,
        f"{job.shown} of the bridge with schedulerName {job.scheduler} was {what} by another bridge at {clock(at)} ({line}): "
        f"{why}",
    )  # fmt: skip


def _is_away(evidence: Evidence, job: Job, at: float) -> bool:
    """True if the bridge of the job did not run just before, while another one did, and nothing was broken on purpose."""
    begin = at - CALM_WAY_S
    if any(
        since <= at and until >= begin
        for since, until in [*evidence.ran.get(job.scheduler, ()), *evidence.journal.faults]
    ):
        return False
    others = (ran for scheduler, ran in evidence.ran.items() if scheduler != job.scheduler)
    return any(since <= begin and until >= at for ran in others for since, until in ran)


def _users_of_others(evidence: Evidence, job: Job) -> set[str]:
    """The users that only the policies of other bridges give."""
    mine = evidence.tenants.get(job.scheduler, Users())
    return {user for users in evidence.tenants.values() for user in users if user not in mine}
