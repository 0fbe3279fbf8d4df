"""Nodes whose kubelet does not report: the pods that are being deleted there count as over after a time (S8)."""

from __future__ import annotations

from scheduler.model.kubernetes import Pod
from scheduler.model.text import span
from scheduler.rules.decision import Decision
from scheduler.rules.identity import cancel
from scheduler.rules.scheduling_pass import Pass
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload


def over_at(pod: Pod, this_pass: Pass) -> float | None:
    """When the pods of this pod's node count as over because the node's kubelet does not report; None: kubelet reports."""
    since = this_pass.world.kubelet_silent_since.get(pod.node)
    return since + this_pass.tuning.silent_node_s if since is not None else None


def silent_until(workload: Workload, this_pass: Pass) -> float | None:
    """When to end a job whose pods are being deleted on nodes whose kubelets do not report (S8); None: not for that.

    The job ends if all of its pods are being deleted on such nodes.  The job of a gang also ends if new members wait for the
    places of such pods.  Slurm may then grant these places again; new pods are bound there when the old pods are gone (F6).
    """
    if not this_pass.world.kubelet_silent_since:
        return None
    until = float("-inf")
    in_vain = any(not workload.node_of(pod) for pod in workload.members)
    leaving = _being_deleted(workload)
    for pod in leaving if in_vain and leaving else workload.unfinished:
        silent = over_at(pod, this_pass)
        ends = this_pass.world.grace_ends(pod)
        if ends is None or silent is None:
            return None
        until = max(until, ends, silent)
    return until


def end_job_of_silent_node(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """End the job of pods that are being deleted on nodes whose kubelets will never report their end (S8)."""
    where = ", ".join(sorted({pod.node for pod in _being_deleted(workload)}))
    silent_s = this_pass.tuning.silent_node_s
    why = f"its pods are being deleted, and node {where} has said nothing for {span(silent_s)}"
    return cancel(job, workload, this_pass, why)


def _being_deleted(workload: Workload) -> list[Pod]:
    return [pod for pod in workload.unfinished if pod.deleting_at is not None]
