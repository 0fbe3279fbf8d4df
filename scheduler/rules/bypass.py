"""Pods on a node that Slurm allocates, and for which Slurm granted nothing (N10, V7).

A pod may name a node (spec.nodeName), or another scheduler and a toleration of our taint.  Placement counts the resources of
such a pod, but Slurm does not.  In a managed namespace the pod shows that, is counted, and is ended if the settings say
so.

Another process of the bridge may have bound the pod, and the pod's job may not be read yet.  So the rule does nothing until
every job that Slurm listed when the pod came to its node was read, and until no request of a previous process can be in
flight.  Static pods and
pods of system namespaces belong to their nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.kubernetes import Pod
from scheduler.model.slurm import tasks_of
from scheduler.rules.decision import NOTHING, Decision, combine, plan_action, wake
from scheduler.rules.end_pod import deletion_awaited_until, end_pod
from scheduler.rules.identity import scan_until, search_for_job
from scheduler.rules.running import wait_to_act
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import status
from scheduler.rules.submission import is_managed
from scheduler.state.backoff import Attempt
from scheduler.state.named_job import shown_id
from scheduler.state.other_schedulers import is_on_slurm_node
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload

LOOK_AGAIN_S = 1.0
END = "end"  # of the setting `bypass`


def without_a_job(workload: Workload, this_pass: Pass) -> Decision:
    """No job of Slurm is known for these bound pods."""
    if workload.renamed is not None:  # that job may be theirs
        return NOTHING
    if (
        workload.job_search is not None
        and (search := search_for_job(workload, workload.job_search, this_pass)) is not None
    ):
        return search
    return _judge(workload, workload.unfinished, this_pass)


def beside_its_job(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """If more pods are bound for a job than it was submitted for, the pods that the bridge did not bind are too many."""
    if job.spec is None:
        return NOTHING
    too_many = len(workload.unfinished) - tasks_of(job.spec)  # all of them have nodes
    if too_many <= 0:
        return NOTHING
    latest = sorted(workload.strays.items(), key=lambda item: item[1])[-too_many:]
    return _judge(workload, [workload.pods[uid] for uid, _ in latest], this_pass)


def _judge(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> Decision:
    """The decision about the strays among these pods that are on a node of Slurm in a managed namespace.

    Strays that are about to end are left alone until then.
    """
    world, now = this_pass.world, this_pass.now
    strays = [
        pod for pod in pods if pod.uid in workload.strays and is_on_slurm_node(world, pod) and is_managed(pod, world)
    ]
    awaited = {pod.uid: deletion_awaited_until(workload, pod, this_pass) for pod in strays}
    staying = [pod for pod in strays if awaited[pod.uid] <= now]
    decided = _show_and_end(workload, staying, this_pass) if staying else NOTHING
    return combine((decided, *(wake(until) for until in awaited.values() if until > now)))


def _show_and_end(workload: Workload, pods: list[Pod], this_pass: Pass) -> Decision:
    """Show on these pods that no job holds their place, and end them if the settings say so."""
    if (wait := _wait_for_reads(workload, pods, this_pass)) is not None:
        return wait
    ends, found = this_pass.world.config.bypass == END, []
    for pod in pods:
        why = f"The pod runs on node {pod.node}, which Slurm allocates, and no Slurm job holds resources for it"
        how = (
            f"scheduler {pod.scheduler_name} bound it"
            if workload.of_other_scheduler
            else "slurm-bridge did not bind it"
        )
        then = "It is ended (settings: bypass)." if ends else "Slurm may give these resources to other jobs."
        message = f"{why}: {how}. {then} Give it schedulerName {this_pass.world.config.scheduler_name} and no nodeName."
        found.append(status(pod, "", message, essence=("bypass", pod.node), warning=True, event=names.BYPASS))
        if ends:
            wait = wait_to_act(workload, pod, Attempt.END_POD, this_pass)
            found.append(wait if wait is not None else end_pod(workload, pod, f"{why}: {how}", this_pass))
    return combine(found)


def _wait_for_reads(workload: Workload, pods: Iterable[Pod], this_pass: Pass) -> Decision | None:
    """The wait for reads of jobs that may belong to these pods.  None: all listed jobs were read, and none is theirs."""
    world = this_pass.world
    settled = max(workload.strays[pod.uid] for pod in pods) + this_pass.tuning.settle_s
    at = max(settled, world.quiet_until(), scan_until(workload, this_pass))
    if this_pass.now < at:
        return wake(at)
    polled = world.polled is not None and world.polled.began >= settled and Side.SLURM not in world.outages
    may_be_theirs = any(
        world.first_listed_at.get(job_id, settled) <= settled for job_id in (*world.unread, *world.unreadable)
    )
    if not polled or may_be_theirs:
        return wake(this_pass.now + LOOK_AGAIN_S)
    other = _of_another_bridge(workload, this_pass)
    return other + wake(this_pass.now + LOOK_AGAIN_S) if other is not None else None


def _of_another_bridge(workload: Workload, this_pass: Pass) -> Decision | None:
    """Read the job that a pod of another scheduler names: it may be another bridge's.  None: it is not, or no job."""
    shown = shown_id(workload.pod) if workload.of_other_scheduler else None
    if shown is None or workload.job_of_other_bridge is False:
        return None
    if workload.job_of_other_bridge or this_pass.now < workload.retry_from(Attempt.READ_JOB):
        return NOTHING
    why = f"is job {shown} the placeholder of {workload.readable}?"
    return plan_action(act.ReadJob(shown, why, workload.key, grant=False))
