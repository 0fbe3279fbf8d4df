"""Look before you act: which job is whose, whether it is still the same, and how one is ended (ARCHITECTURE 4)."""

from __future__ import annotations

from scheduler import actions as act
from scheduler.events import Side
from scheduler.view import View
from scheduler.workload import Look, Placeholder, Workload


def still_in_doubt(workload: Workload, view: View) -> bool:
    """A job of this workload may exist that we do not see: look before anything is repeated."""
    for job in view.world.mine(workload):
        hinted = job.key is None and job.alive
        own = job.key == workload.key and not job.lost(view.tuning.absent_s)
        if hinted or (own and (job.absent or (job.denied and not job.ended))):
            look_at(job, workload, view, f"is job {job.id} the placeholder of {workload.readable}?")
            return True
    return workload.look is not None and not looked(workload, workload.look, view)


def looked(workload: Workload, look: Look, view: View) -> bool:
    """After an unknown outcome, or a twin: whether everything was looked at, and nothing was found (ARCHITECTURE 4)."""
    world = view.world
    database = world.config.accounting and world.accounting_lost is None
    if not look.asked_database and database and (look.twin or view.now >= look.until):
        view.add(act.FindJobs(workload.key, look.name, f"looking for a job named {look.name}"), workload.key)
        return False
    if view.now < look.until:
        view.wake_at(workload.key, look.until)
        return False
    if world.polled is None or world.polled.began < look.until:
        return False  # the next poll marks it
    return not (world.unread if look.twin else [each for each in world.unread if world.seen_first[each] >= look.began])


def scan_until(workload: Workload, view: View) -> float:
    """A pod that is older than this life may have a placeholder that is yet to be read (ARCHITECTURE 4)."""
    return view.world.scanning_until() if view.world.inherited(workload) else float("-inf")


def trusted(job: Placeholder, view: View) -> bool:
    """slurmctld has not been away since we learned of the job: its id has not been given out again (ARCHITECTURE 4)."""
    return job.learned >= view.world.trust_since


def look_at(job: Placeholder, workload: Workload, view: View, why: str) -> None:
    """Read the one job, at most once in `absent_s`."""
    if Side.SLURM in view.world.lost:
        return
    times = (job.granted_at, job.ended_seen, job.absent_first, view.world.trust_since)
    news = max(at for at in times if at is not None)
    next_at = workload.wait_until
    if job.read_began >= news:  # read since, and it did not help
        next_at = max(next_at, job.read_began + view.tuning.absent_s)
    if view.now < next_at:
        view.wake_at(workload.key, next_at)
    elif not view.being_read(job.id):
        if not job.absent:
            view.add(act.ReadJob(job.id, why, workload.key), workload.key)
        elif view.ration("missing"):
            view.add(act.ReadJob(job.id, why, workload.key, lane="missing"), workload.key)
        else:
            view.park(workload.key, "missing")


def cancel_broken(workload: Workload, job: Placeholder, view: View) -> bool:
    """A component of it ended: the rest is no grant, and of a waiting job it never starts (docs/decisions/0002)."""
    if job.broken:
        cancel(job, workload, view, f"a component of job {job.id} ended")
    return job.broken


def cancel(job: Placeholder, workload: Workload, view: View, why: str, record: str = "", told: str = "") -> None:
    """End a job that is proven ours, once nothing of a previous life can be on its way any more (quiet period).

    record, told   see CancelJob
    """
    until = max(view.world.quiet_until(), workload.wait_until)
    if view.now < until:
        view.wake_at(workload.key, until)
    elif not trusted(job, view):
        look_at(job, workload, view, f"is job {job.id} still the same?")
    elif workload.hold is None and Side.SLURM not in view.world.lost:
        view.add(act.CancelJob(workload.key, job.id, job.name, job.user, why, record, told), workload.key)


def cancel_twins(workload: Workload, keep: Placeholder, view: View) -> bool:
    """A lost answer may have made two: the one that counts stays.  True where something was planned or waits."""
    for job in view.world.mine(workload):
        if job.key == workload.key and job.alive and job.id != keep.id and workload.hold is None:
            cancel(job, workload, view, f"job {job.id} is a twin of job {keep.id}")
            return True
    return False
