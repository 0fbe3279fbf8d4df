"""The rule of DONE: no pod runs or waits, so the job of the pods is ended (S2, S3)."""

from __future__ import annotations

from scheduler.events import Side
from scheduler.model.kubernetes import Pod
from scheduler.rules.decision import NOTHING, Decision, note, wake
from scheduler.rules.end_record import is_to_be_recorded, may_be_unrecorded, record_end, record_of, why_done
from scheduler.rules.gathering import is_size_unread
from scheduler.rules.identity import cancel, read_job, search_for_job
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.silent_nodes import over_at
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_records import DeletedPod
from scheduler.state.workload import Workload
from scheduler.state.world import World

UNREAD_S = 300.0  # after a start, a job without pods is kept for so long while a group is unread whose pods may have it


def end_job(workload: Workload, this_pass: Pass) -> Decision:
    """No pod runs or waits: end the job, and record in accounting how the pods ended (S2, S3)."""
    if workload.in_flight is not None:
        return NOTHING
    for job in this_pass.world.jobs_of(workload):
        if job.key is None and job.alive:
            return read_job(job, workload, this_pass, f"is job {job.id} the placeholder of pods that are gone?")
        if job.key == workload.key and job.alive:
            return _end_own_job(workload, job, this_pass)
    named = this_pass.world.job_of_bound_pods(workload)
    if named is not None and may_be_unrecorded(named, workload, this_pass):
        if this_pass.now < this_pass.world.quiet_until():  # after a start, other reads are more urgent
            return wake(this_pass.world.quiet_until())
        why = f"is job {named.id}, which ended, that of {workload.readable}?"
        return read_job(named, workload, this_pass, why)
    if named is not None and is_to_be_recorded(named, workload, this_pass):
        return record_end(named, workload, this_pass)
    if workload.pods or workload.unanswered or workload.confirmed_writes:
        return NOTHING
    search = search_for_job(workload, workload.job_search, this_pass) if workload.job_search is not None else None
    if search is not None:
        return search
    may_run_until = _pods_may_run_until(workload, this_pass)
    if this_pass.now < may_run_until and not all(job.ended for job in this_pass.world.jobs_of(workload)):
        return wake(may_run_until)  # a job that is missing may be listed again, and is not ended before that time
    return NOTHING if _has_surplus(workload, this_pass.world) else note(is_forgotten=True)


def _end_own_job(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """End the job of the pods, unless one of the pods may still run."""
    if this_pass.world.has_undecoded_pods(workload, job.user):
        return NOTHING  # visited again when that pod is decoded, or is gone
    if not workload.pods and not workload.deleted_pods and _may_be_of_unread_group(this_pass):
        return wake(this_pass.now + 1.0)
    may_run_until = _pods_may_run_until(workload, this_pass)
    if this_pass.now < may_run_until:
        return wake(may_run_until)
    return cancel(job, workload, this_pass, why_done(workload, job), record=record_of(workload, job))


def _may_be_of_unread_group(this_pass: Pass) -> bool:
    """True if a job without pods may belong to pods of a group that was not read yet.

    These are the pods of a stage of a JobSet, or pods that their group does not need: each of them has a job of its own.
    """
    world = this_pass.world
    if this_pass.now >= world.started + UNREAD_S:
        return False
    waiting = (world.workloads[key] for phase in (Phase.GATHERING, Phase.UNSUBMITTED) for key in world.by_phase[phase])
    return any(is_size_unread(workload, this_pass) or _is_unread_jobset(workload, world) for workload in waiting)


def _is_unread_jobset(workload: Workload, world: World) -> bool:
    """True if the pods are of a JobSet that was not read yet: it may have stages."""
    is_of_jobset = workload.group is not None and workload.group.size_source_kind == "JobSet"
    return is_of_jobset and world.owners_of(workload.first)[1] is not None


def _has_surplus(workload: Workload, world: World) -> bool:
    """True if surplus pods of the gang exist.  Pods that come later may be a gang with them, so the gang is not forgotten."""
    return any(uid in world.key_of_pod for uid in workload.surplus)


def _pods_may_run_until(workload: Workload, this_pass: Pass) -> float:
    """Until when a pod of the workload may still run whose object is deleted, or about to be; -inf: there is none."""
    until = [_may_run_until(gone, this_pass) for gone in workload.deleted_pods.values()]
    until += [_outlives_until(pod, this_pass) for pod in workload.pods.values() if pod.outlives_phase]
    return max(until, default=float("-inf"))


def _outlives_until(pod: Pod, this_pass: Pass) -> float:
    """Until when the containers of a pod may run whose node is gone from Kubernetes; its object goes next (S3)."""
    if pod.deleting_at is None:
        return this_pass.now + 1.0
    tuning = this_pass.tuning
    deleted_at = this_pass.world.clocks[Side.KUBERNETES].ours(pod.deleting_at)
    return deleted_at + tuning.grace_counts_s(pod.grace_s) + tuning.gone_grace_s


def _may_run_until(gone: DeletedPod, this_pass: Pass) -> float:
    """Until when a pod may still run whose object is deleted; later than its grace if its node's kubelet is silent (S8)."""
    silent = over_at(gone.pod, this_pass)
    return gone.until if silent is None or gone.until <= gone.at else max(gone.until, silent)
