"""Look before you act: which job is whose, whether it is still the same, and how one is ended (ARCHITECTURE 4)."""

from __future__ import annotations

from scheduler import actions as act
from scheduler.events import Side
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.workload import JobSearch, Placeholder, Workload


def may_have_unseen_job(workload: Workload, this_pass: Pass) -> bool:
    """A job of this workload may exist that we do not see: look before anything is repeated."""
    for job in this_pass.world.mine(workload):
        hinted = job.key is None and job.alive
        own = job.key == workload.key and not job.lost(this_pass.tuning.absent_s)
        if hinted or (own and (job.absent or (job.denied and not job.ended))):
            look_at(job, workload, this_pass, f"is job {job.id} the placeholder of {workload.readable}?")
            return True
    return workload.look is not None and not looked(workload, workload.look, this_pass)


def looked(workload: Workload, look: JobSearch, this_pass: Pass) -> bool:
    """After an unknown outcome, or a twin: whether everything was looked at, and nothing was found (ARCHITECTURE 4)."""
    world = this_pass.world
    database = world.config.accounting and world.accounting_lost is None
    if not look.asked_database and database and (look.twin or this_pass.now >= look.until):
        this_pass.add(act.FindJobs(workload.key, look.name, f"looking for a job named {look.name}"), workload.key)
        return False
    if this_pass.now < look.until:
        this_pass.wake_at(workload.key, look.until)
        return False
    if world.polled is None or world.polled.began < look.until:
        return False  # the next poll marks it
    return not (world.unread if look.twin else [each for each in world.unread if world.seen_first[each] >= look.began])


def scan_until(workload: Workload, this_pass: Pass) -> float:
    """A pod that is older than this life may have a placeholder that is yet to be read (ARCHITECTURE 4)."""
    return this_pass.world.scanning_until() if this_pass.world.inherited(workload) else float("-inf")


def trusted(job: Placeholder, this_pass: Pass) -> bool:
    """slurmctld has not been away since we learned of the job: its id has not been given out again (ARCHITECTURE 4)."""
    return job.learned >= this_pass.world.trust_since


def look_at(job: Placeholder, workload: Workload, this_pass: Pass, why: str) -> None:
    """Read the one job, at most once in `absent_s`."""
    if Side.SLURM in this_pass.world.lost:
        return
    times = (job.granted_at, job.ended_seen, job.absent_first, this_pass.world.trust_since)
    news = max(at for at in times if at is not None)
    next_at = workload.wait_until
    if job.read_began >= news:  # read since, and it did not help
        next_at = max(next_at, job.read_began + this_pass.tuning.absent_s)
    if this_pass.now < next_at:
        this_pass.wake_at(workload.key, next_at)
    elif not this_pass.being_read(job.id):
        if not job.absent:
            this_pass.add(act.ReadJob(job.id, why, workload.key), workload.key)
        elif this_pass.take_token("missing"):
            this_pass.add(act.ReadJob(job.id, why, workload.key, limit_class="missing"), workload.key)
        else:
            this_pass.park(workload.key, "missing")


def cancel_broken(workload: Workload, job: Placeholder, this_pass: Pass) -> bool:
    """A component of it ended: the rest is no grant, and of a waiting job it never starts (docs/decisions/0002)."""
    if job.broken:
        cancel(job, workload, this_pass, f"a component of job {job.id} ended")
    return job.broken


def cancel(job: Placeholder, workload: Workload, this_pass: Pass, why: str, record: str = "", told: str = "") -> None:
    """End a job that is proven ours, once nothing of a previous life can be on its way any more (quiet period).

    record, told   see CancelJob
    """
    until = max(this_pass.world.quiet_until(), workload.wait_until)
    if this_pass.now < until:
        this_pass.wake_at(workload.key, until)
    elif not trusted(job, this_pass):
        look_at(job, workload, this_pass, f"is job {job.id} still the same?")
    elif workload.hold is None and Side.SLURM not in this_pass.world.lost:
        this_pass.add(act.CancelJob(workload.key, job.id, job.name, job.user, why, record, told), workload.key)


def cancel_twins(workload: Workload, keep: Placeholder, this_pass: Pass) -> bool:
    """A lost answer may have made two: the one that counts stays.  True where something was planned or waits."""
    for job in this_pass.world.mine(workload):
        if job.key == workload.key and job.alive and job.id != keep.id and workload.hold is None:
            cancel(job, workload, this_pass, f"job {job.id} is a twin of job {keep.id}")
            return True
    return False


def cancel_twins_of_others(workload: Workload, keep: Placeholder, this_pass: Pass) -> bool:
    """Cancel a waiting twin of another user: singleton does not hold it back while *keep* holds nodes (V1).

    True if that is planned.
    """
    for job in this_pass.world.mine(workload):
        waits = job.key == workload.key and job.alive and not job.holds_nodes
        if waits and job.user != keep.user and workload.hold is None:
            planned = len(this_pass.actions)
            cancel(job, workload, this_pass, f"job {job.id} of {job.user} is a twin of job {keep.id} of {keep.user}")
            return len(this_pass.actions) > planned
    return False
