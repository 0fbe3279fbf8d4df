"""How one pod is ended, and how long the bridge waits for that end before it acts again (S4, S4b)."""

from __future__ import annotations

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.kubernetes import Pod
from scheduler.model.text import span
from scheduler.place.feasible import slurm_name
from scheduler.place.fit import needs
from scheduler.rules.decision import NOTHING, Decision, plan_action
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import status
from scheduler.state.backoff import NO_FAILURE, Attempt
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload

SHOWN_AFTER_FAILURES = 3  # after so many failures in a row the pod shows that it cannot be ended
OUTLIVES_S = 30.0  # a pod that still runs so long after its deadline and its grace is ended by other means
AT_ONCE_S = 1  # grace of a second deletion, after the first grace; with 0 the object would go before its containers


def end_pod(
    workload: Workload,
    pod: Pod,
    why: str,
    this_pass: Pass,
    *,
    job: Placeholder | None = None,
    counts: bool = False,
    grace_s: int | None = None,
    bucket: str = "",
) -> Decision:
    """End one pod (S4).

    A pod with a controller is deleted, so that the controller recreates it.  Any other pod is ended by kubelet, by a
    deadline, and its object stays.  If that pod still runs after the longest grace that counts, it is deleted.  A pod that is
    being deleted is deleted again, with a shorter grace.

    job       the pod's job, which has ended; None: the job lives, or the pod never had one
    counts    True if the controller shall count the end as a failure: then kubelet ends the pod, unless it is a service
    grace_s   grace of the deletion; None: the pod's own grace, at most `_most_grace`
    bucket    the token bucket from which this action takes a token; "": none
    """
    deadline = pod.deleting_at is None and (pod.owner is None or (counts and not is_service(pod)))
    if grace_s is None and _outlives(workload, pod, job, this_pass):
        grace_s = AT_ONCE_S
        why += ". It did not end in its grace"
    elif deadline:
        end = act.FailByDeadline(workload.key, pod.uid, pod.namespace, pod.name, why, counts, bucket)
        return plan_action(end, bucket)
    elif grace_s is None:
        most_s, because = _most_grace(workload, pod, this_pass)
        if pod.grace_s > most_s:
            grace_s = most_s
            why += f". It has {span(most_s)} to end, because {because}"
    return plan_action(act.DeletePod(workload.key, pod.uid, pod.namespace, pod.name, why, grace_s, bucket), bucket)


def why_not_ended(workload: Workload, pod: Pod, why: str, this_pass: Pass) -> Decision:
    """Show on the pod that Kubernetes does not let it end, until the next attempt.  why: as for `end_pod`"""
    refused = ends_refused(workload, pod, Attempt.END_POD)
    if not refused:
        return NOTHING
    again = f"slurm-bridge tries again every {span(this_pass.tuning.backoff_max_s)}, or more often."
    message = f"The pod is to end: {why}. But slurm-bridge cannot end it. {refused} {again}"
    return status(pod, "", message, warning=True, event=names.REFUSED)


def ends_refused(workload: Workload, pod: Pod, attempt: Attempt) -> str:
    """Why Kubernetes refuses again and again to end or evict the pod, a sentence; "": it does not."""
    refused, backoff = workload.end_refused.get(pod.uid), workload.backoffs.get(attempt, NO_FAILURE)
    return f"{refused.rstrip('. ')}." if refused is not None and backoff.failures >= SHOWN_AFTER_FAILURES else ""


def _most_grace(workload: Workload, pod: Pod, this_pass: Pass) -> tuple[int, str]:
    """The longest grace that the pod may have to end, in seconds, and the reason, for a person.

    While it ends, no job holds its node (S4) and, on a shared node, its devices (G3).
    """
    world, tuning = this_pass.world, this_pass.tuning
    counts_s = max(AT_ONCE_S, int(tuning.silent_node_s)), "a longer grace does not count (tuning: silent_node_s)"
    node = (world.nodes or {}).get(workload.node_of(pod))
    known = (world.slurm_nodes or {}).get(slurm_name(node)) if node is not None else None
    devices = any(needs(pod).get(resource) for resource in world.config.translation.gres)
    if known is None or known.external or not devices:
        return counts_s
    return min(counts_s, (tuning.revoke_grace_max_s, "Slurm may give its devices to others"))


def end_awaited_until(workload: Workload, pod: Pod, job: Placeholder | None, this_pass: Pass) -> float:
    """Until when to wait for an action in flight that ends the pod, or for the deadline that was set (S4b); -inf: neither."""
    in_flight = workload.pods_in_flight.get(pod.uid)
    until = _outlives_at(pod, job, this_pass)
    if in_flight is None:
        return until
    if in_flight.until is None:
        return float("inf")
    return max(until, in_flight.until) if isinstance(in_flight.action, act.DeletePod | act.FailByDeadline) else until


def _outlives_at(pod: Pod, job: Placeholder | None, this_pass: Pass) -> float:
    """Until when to wait for kubelet to end the pod by the deadline that was set; -inf: no such deadline has passed."""
    started = this_pass.world.started_at(pod)
    if not is_out_of_time(job) or started is None or pod.set_deadline_s is None:
        return float("-inf")
    deadline = started + pod.set_deadline_s
    if deadline > this_pass.now:  # the job's time was shortened after that
        return float("-inf")
    return deadline + this_pass.tuning.grace_counts_s(pod.grace_s) + OUTLIVES_S


def _outlives(workload: Workload, pod: Pod, job: Placeholder | None, this_pass: Pass) -> bool:
    """True if the pod still runs after the longest grace that counts.  Only a deletion can shorten kubelet's grace."""
    if pod.grace_s <= this_pass.tuning.silent_node_s:
        return False
    in_flight = workload.pods_in_flight.get(pod.uid)
    if in_flight is not None and isinstance(in_flight.action, act.FailByDeadline) and in_flight.until is not None:
        return this_pass.now >= in_flight.until
    return float("-inf") < _outlives_at(pod, job, this_pass) <= this_pass.now


def deletion_awaited_until(workload: Workload, pod: Pod, this_pass: Pass) -> float:
    """Until when to wait for the end of a pod that is being deleted.

    -inf: do not wait, because the pod is not being deleted, or its grace is longer than `_most_grace`.  The client that
    deletes a pod chooses the grace; a second deletion can shorten it.
    """
    if pod.deleting_at is None:
        return float("-inf")
    most_s, _ = _most_grace(workload, pod, this_pass)
    if pod.grace_s <= most_s:
        return float("inf")
    ends = this_pass.world.clocks[Side.KUBERNETES].ours(pod.deleting_at)
    return ends + OUTLIVES_S if ends <= this_pass.now + most_s else float("-inf")


def is_out_of_time(job: Placeholder | None) -> bool:
    """True if the job reached its time limit, which does not count as a disruption (S4b)."""
    return job is not None and job.ended and not job.states.isdisjoint({"TIMEOUT", "DEADLINE"})


def is_service(pod: Pod) -> bool:
    """True if the pod's controller replaces the pod whenever it ends, and counts no failures."""
    return pod.owner is not None and pod.restart_policy == "Always"
