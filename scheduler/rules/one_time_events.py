"""Events and conditions that pods show once, whatever the phase: rejected observations, proven writes, released grants.

A proven write is a write on a pod whose answer was lost, and whose effect the pod shows (scheduler/state/confirmation.py).
This file also reads the job that a waiting pod names, because that read, too, is due in several phases.
"""

from __future__ import annotations

from scheduler import actions as act
from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.rules.decision import NOTHING, Decision, combine, plan_action
from scheduler.rules.identity import read_job
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import status
from scheduler.state.confirmation import event_of
from scheduler.state.workload import Workload


def one_time_events(workload: Workload, this_pass: Pass) -> Decision:
    """Events that the pods of a workload in any phase show once; and the read of a job that a waiting pod names."""
    found = NOTHING
    if workload.anomalies:
        found += _report_anomaly(workload)
    if workload.confirmed_writes:
        found += _report_proven(workload)
    if workload.release_messages:
        found += _report_release(workload)
    if workload.jobs - {workload.hint}:
        found += _read_what_waiting_pods_show(workload, this_pass)
    return found


def _read_what_waiting_pods_show(workload: Workload, this_pass: Pass) -> Decision:
    """Read the job that a previous process wrote on a waiting pod: without this read, the job holds its nodes in vain.

    No scan reads a job that a pod names.  The job of running pods needs no read here: a hint is enough to leave them alone.
    """
    for job in this_pass.world.jobs_of(workload):
        if job.key is None and job.alive and job.id != workload.hint:
            if all(map(workload.node_of, workload.members)):
                return NOTHING
            return read_job(job, workload, this_pass, f"is job {job.id} the placeholder of {workload.readable}?")
    return NOTHING


def _report_anomaly(workload: Workload) -> Decision:
    """Show each rejected observation of the workload's job once."""
    found = []
    for uid, message in workload.anomalies.items():
        if (pod := workload.pods.get(uid)) is not None:  # otherwise the pod is in another workload now
            found.append(event_alone(workload, pod, names.REJECTED, message))
    return combine(found)


def _report_proven(workload: Workload) -> Decision:
    """Post the event of a write whose answer was lost, and which the pod shows now.

    If another write on that pod is in flight, the event follows its answer.
    """
    found = []
    for uid, action in workload.confirmed_writes.items():
        in_flight = workload.pods_in_flight.get(uid)
        if in_flight is None or in_flight.until is not None:
            event, message, warning = event_of(action)
            report = act.SetPodCondition(
                workload.key, uid, action.namespace, action.name, "", message, event=event, warning=warning
            )
            found.append(plan_action(report))
    return combine(found)


def _report_release(workload: Workload) -> Decision:
    """The grant could not be used, and its job has ended: condition and event (S11, F6).

    A bound pod gets only the event, because the condition says that the pod is not scheduled.
    """
    found = []
    for uid, message in workload.release_messages.items():
        condition = "" if workload.node_of(workload.pods[uid]) else names.GRANT_RELEASED
        found.append(status(workload.pods[uid], condition, message, warning=True, event=names.GRANT_RELEASED))
    return combine(found)


def event_alone(workload: Workload, pod: Pod, event: str, message: str) -> Decision:
    """The status as an event, without a condition."""
    report = act.SetPodCondition(workload.key, pod.uid, pod.namespace, pod.name, "", message, event=event, warning=True)
    return plan_action(report)
