"""When the status of a pod is written: the driver's part of a status (Q2, O1).

A status is written if its content has changed, at most once in some seconds for each pod.  A status with the same content is
written again only to renew its event: after `renew_event_s`, or after the time that a JobStatus gives.  status.py has the
sentences.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler import names
from scheduler.actions import SetJobCondition, SetPodCondition
from scheduler.model.kubernetes import Condition, Pod
from scheduler.model.text import line
from scheduler.rules.decision import JobStatus, PodStatus, PodStatuses
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import NOT_EVICTED, lasting, nearest_start, times
from scheduler.state.estimates import moved
from scheduler.state.pod_records import ITS_JOB, ITS_PLACE, LastStatus
from scheduler.state.workload import Workload


def write_statuses(new: PodStatuses, workload: Workload, this_pass: Pass) -> None:
    """Plan these writes, first on pods without a status.  If the limit class is full, the rest is written later."""
    for pod in sorted(new.pods, key=lambda pod: pod.uid in workload.last_status):
        if this_pass.free("pod_conditions") <= 0:
            this_pass.park(workload.key, "pod_conditions")
            return
        shown = PodStatus(pod, new.reason, new.message, warning=new.warning, event=new.event)
        write_status(shown, workload, this_pass)


def write_status(new: PodStatus, workload: Workload, this_pass: Pass) -> None:
    """Plan the write of the condition and its event, unless the pod shows that already.

    If it is too early for another write on the pod, the workload is visited again when it is time.

    A pod on a node gets only the event: the condition PodScheduled=False would claim that it has no node (Q2).
    """
    pod, message, event = new.pod, line(new.message), new.event or new.reason
    if workload.node_of(pod):
        new = replace(new, reason="")
    essence = new.essence if new.essence is not None else (message,)
    if pod.uid in this_pass.conditions_planned:  # two writes of one condition would race
        this_pass.wake_at(workload.key, this_pass.now + this_pass.tuning.condition_s)
        return
    last = workload.status_about(ITS_PLACE if new.reason else event, pod.uid)
    if last is None:
        last = _last_of_previous_process(new, message, essence, workload, this_pass)
    if last is not None:
        renew_at = last.event_at + this_pass.tuning.renew_event_s
        if _is_same(last, new.reason, essence, new.starts, this_pass.now) and this_pass.now < renew_at:
            this_pass.wake_at(workload.key, renew_at)
            return
    if _is_too_early(pod, workload, this_pass):
        return
    report = SetPodCondition(
        workload.key,
        pod.uid,
        pod.namespace,
        pod.name,
        new.reason,
        message,
        event=event,
        warning=new.warning,
        essence=essence,
        starts=new.starts,
        annotations=new.annotations,
        version=pod.version if new.reason else "",
    )
    this_pass.add(report, workload.key)


def _last_of_previous_process(
    new: PodStatus, message: str, essence: tuple[str, ...], workload: Workload, this_pass: Pass
) -> LastStatus | None:
    """The equal status that a previous process set on the pod; None: the pod shows another status, or none.

    If the status has an essence, the changing parts of its message are not compared, apart from the expected start: otherwise
    each restart would write the condition of all waiting pods.  The event counts as posted when this process started.
    """
    shown = workload.shown_condition(new.pod)
    if shown is None or shown.reason != new.reason:
        return None
    is_same = shown.message == message
    if not is_same and (new.essence is None or lasting(shown.message) != lasting(message)):
        return None
    starts = new.starts if is_same else nearest_start(shown.message, new.starts, this_pass.now)
    return LastStatus(new.reason, shown.message, essence, starts, event_at=this_pass.world.started)


def _is_same(last: LastStatus, reason: str, essence: tuple[str, ...], starts: float | None, now: float) -> bool:
    if last.condition != reason or last.essence != essence:
        return False
    if last.starts is None or starts is None:
        return last.starts is starts
    return not moved(last.starts, starts, now)


def _is_too_early(pod: Pod, workload: Workload, this_pass: Pass) -> bool:
    """True if the pod got a status a moment ago, about whatever; the workload is visited again when it is time (Q2)."""
    not_before = max(
        (last.at + _pause(last, this_pass) for last in workload.last_status.get(pod.uid, {}).values()), default=0.0
    )
    if this_pass.now < not_before:
        this_pass.wake_at(workload.key, not_before)
        return True
    return False


def _pause(last: LastStatus, this_pass: Pass) -> float:
    """Seconds before the next write.  From the second failure on the pause doubles: a policy may refuse every write."""
    tuning = this_pass.tuning
    if last.is_first:
        return tuning.detail_fresh_s
    doubled = tuning.condition_s * 2.0 ** min(max(0, last.failures - 1), 16)
    return max(tuning.condition_s, min(tuning.backoff_max_s, doubled))


def write_job_status(new: JobStatus, workload: Workload, this_pass: Pass) -> None:
    """Plan the write of the condition and its event, unless this process or a previous one wrote that already.

    If it is too early for another write on the pod, the workload is visited again when it is time.
    """
    pod, message, now = new.pod, line(new.message), this_pass.now
    last = workload.status_about(ITS_JOB, pod.uid)
    if (
        last is not None
        and last.condition == new.reason
        and last.essence == new.essence
        and now < last.at + new.again_s
    ):
        return
    if last is None and pod.job_condition is not None and _is_still_true(pod.job_condition, new.reason, message):
        return
    if _is_too_early(pod, workload, this_pass):
        return
    this_pass.add(
        SetJobCondition(
            workload.key, pod.uid, pod.namespace, pod.name, new.reason, message, new.runs, new.warning, new.essence
        ),
        workload.key,
    )


def _is_still_true(shown: Condition, reason: str, message: str) -> bool:
    """True if a condition of a previous process needs no new message.

    It needs one only if the end of the job moved, or if the pod cannot be evicted before that end and does not show it.
    """
    if shown.reason != reason:
        return False
    if reason != names.ENDS_SOON:
        return True
    lacks_refusal = NOT_EVICTED in message and NOT_EVICTED not in shown.message
    return times(shown.message) == times(message) and not lacks_refusal
