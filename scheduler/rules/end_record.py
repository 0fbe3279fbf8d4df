"""How the pods of a job ended: in words for the job that is cancelled, and as a record in accounting (S2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scheduler import actions as act
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.rules.decision import NOTHING, Decision, plan_action, wake
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.backoff import Attempt
from scheduler.state.named_job import names_no_other, pods_of_job
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload

MOST_NAMED = 3  # pods, or ways to end, that a record names one by one


def may_be_unrecorded(job: Placeholder, workload: Workload, this_pass: Pass) -> bool:
    """True if job and pods ended before this process began, and the previous process may not have recorded that."""
    return this_pass.world.config.accounting and job.key is None and job.ended and bool(record_of(workload, job))


def is_to_be_recorded(job: Placeholder, workload: Workload, this_pass: Pass) -> bool:
    """True if the job belongs to the bridge and has ended, and the end of its pods is not recorded yet."""
    known = job.key == workload.key and job.ended and not job.recorded
    return this_pass.world.config.accounting and known and bool(record_of(workload, job))


def record_end(job: Placeholder, workload: Workload, this_pass: Pass) -> Decision:
    if this_pass.now < (retry_from := workload.retry_from(Attempt.RECORD)):
        return wake(retry_from)
    own = job.job.comment if job.job is not None else (job.spec.comment if job.spec is not None else "")
    parts = [part for part in own.split("; ") if part not in ("", workload.readable)]  # the record names it anyway
    comment = "; ".join([*parts, record_of(workload, job)])
    code = max(pod.exit_code or 0 for pod in pods_of_job(workload, job))
    return plan_action(act.RecordEnd(workload.key, job.id, job.user, code, comment, f"accounting: {comment}"))


def record_end_of_former_job(workload: Workload, this_pass: Pass) -> Decision:
    """Record the end of the former job of a gang that was recreated before the last pod of that job was gone (S2)."""
    if workload.in_flight is not None:
        return NOTHING
    for former in this_pass.world.jobs_of(workload):
        if is_to_be_recorded(former, workload, this_pass) and not _may_run(former, workload):
            return record_end(former, workload, this_pass)
    return NOTHING


def _may_run(job: Placeholder, workload: Workload) -> bool:
    """True if an unfinished pod of the workload may run for this job."""
    return any(names_no_other(pod, job) for pod in workload.unfinished)


def why_done(workload: Workload, job: Placeholder) -> str:
    return _ends_of(workload, pods_of_job(workload, job)) or "its workload does not exist"


def record_of(workload: Workload, job: Placeholder) -> str:
    """How the job's pods ended, for accounting; "": none of them was ever bound to a node."""
    return _ends_of(workload, [pod for pod in pods_of_job(workload, job) if pod.node])


def _ends_of(workload: Workload, pods: Sequence[Pod]) -> str:
    """How each pod ended.  Of many pods: the counts, and the pod with the highest exit code, as sacct shows one line."""
    if len(pods) <= MOST_NAMED:
        return "; ".join(f"{pod.full_name}: {_how_ended(pod)}" for pod in pods)
    counts = Counter(_how_ended(pod) for pod in pods)
    worst = max(pods, key=lambda pod: pod.exit_code or 0)
    ends = ", ".join(f"{count:,} {how}" for how, count in counts.most_common(MOST_NAMED))
    return f"{workload.readable}: {ends}" + (f"; {worst.full_name}: {_how_ended(worst)}" if worst.exit_code else "")


def _how_ended(pod: Pod) -> str:
    """How the pod ended, as kubelet reported it.  A deleted pod counts as deleted, whatever its containers returned."""
    if pod.phase is PodPhase.SUCCEEDED or (pod.finished and pod.deleting_at is None):
        how = pod.end_reason or pod.phase.value
        return f"{how}, {pod.waits}" if pod.waits else how
    return "Deleted"
