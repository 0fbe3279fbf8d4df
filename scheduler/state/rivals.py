"""Detects another bridge with the same schedulerName that acts on the same pods: by mistake, two bridges run without a lease.

Each bind of a bridge writes the id of its job on the pod.  If another client bound a pod for a job, this proves another
bridge in two cases: this process proved that the job is the workload's; or the job has the name that only a bridge gives, and
a user that another policy gives.  A request of a previous process may take effect after the start, so a bind in the first
`settle_s` proves nothing.

The bridge shows a sentence, and takes no action.  A user may give a job any name.  So if the bridge submitted no job because
a job of that name lives, any user could keep pods from running.
"""

from __future__ import annotations

from scheduler.model.kubernetes import Pod
from scheduler.state.named_job import shown_id
from scheduler.state.pod_records import BoundByOther
from scheduler.state.workload import Workload
from scheduler.state.world import World

RECENT_S = 600.0
DO = "Stop one of the two, or let both use one lease (docs/operations.md)."


def note(world: World, workload: Workload, pod: Pod) -> None:
    """Remember that another client bound the pod, if the pod names a job and `settle_s` have passed since the start."""
    job_id = shown_id(pod)
    if job_id is not None and world.newest_event_at >= world.started + world.config.tuning.settle_s:
        world.bound_by_others.append(BoundByOther(world.newest_event_at, pod.full_name, workload.key, job_id))


def another_bridge(world: World, now: float) -> str:
    """Sentences that another bridge acts on pods of this bridge; "": no bind of the last RECENT_S seconds proves it."""
    acts = f"Another slurm-bridge schedules pods of schedulerName {world.config.scheduler_name}"
    for bound in reversed(world.bound_by_others):
        if now - bound.at > RECENT_S:
            break
        job = world.placeholders.get(bound.job_id)
        if job is not None and job.key == bound.key:
            return f"{acts}: it bound pod {bound.pod}, whose Slurm job is {bound.job_id}. {DO}"
        if bound.job_id in world.unmapped:
            return (
                f"{acts}, by another policy: it bound pod {bound.pod} for Slurm job {bound.job_id}, of a user that the "
                f"policy here does not give the pod. Such pods have two jobs, one of each bridge. {DO}"
            )
    return ""
