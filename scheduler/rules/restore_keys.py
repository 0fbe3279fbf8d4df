"""Restore the annotations that only the bridge writes, after another client changed them (K5)."""

from __future__ import annotations

from scheduler import actions as act
from scheduler import names
from scheduler.events import Side
from scheduler.model.clocks import EXACT_S
from scheduler.model.text import dated
from scheduler.rules.decision import Decision, combine, plan_action, wake
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.submission import is_managed
from scheduler.state.named_job import TIME_FORMAT, names_job
from scheduler.state.own_keys import without_edits
from scheduler.state.placeholder import Placeholder
from scheduler.state.workload import Workload


def restore(workload: Workload, job: Placeholder, this_pass: Pass) -> Decision:
    """Write the right values again, if the namespace is managed.  job: the job of the running pods, proven by a read"""
    found = []
    for uid, edited in workload.edited.items():
        pod = workload.pods.get(uid)
        if pod is None or pod.finished or edited.under_way or not edited.right:
            continue
        if not is_managed(pod, this_pass.world):
            continue
        if this_pass.now < edited.next_at:
            found.append(wake(edited.next_at))
            continue
        right = dict(edited.right)
        if right.get(names.JOB_ID, str(job.id)) != str(job.id):
            right |= keys_of(job, this_pass)
        elif names.JOB_ID not in right and not names_job(without_edits(workload, pod), job, this_pass.world):
            continue  # reacquire.show_new_job writes both in this pass
        why = f"Changed by another client and written back: {', '.join(sorted(right))}. Only slurm-bridge writes there."
        restore = act.RestoreKeys(workload.key, uid, pod.namespace, pod.name, right, why, say=edited.put_back == 0)
        found.append(plan_action(restore))
    return combine(found)


def keys_of(job: Placeholder, this_pass: Pass) -> dict[str, str]:
    """The annotations that name this job on a pod that was bound for another one.

    `job-since` is a time by which Slurm had the job, by Slurm's clock: when it was submitted, or, if it has not been read
    yet, a moment from now.  If a job with this id was submitted later, Slurm has lost this one and given its id out again.
    Pods still in the job of their bind need no `job-since`; their start serves for that.
    """
    since = job.job.submitted if job.job is not None else None
    if since is None:
        since = this_pass.world.clocks[Side.SLURM].theirs(this_pass.now) + EXACT_S
    return {names.JOB_ID: str(job.id), names.JOB_SINCE: dated(since, TIME_FORMAT)}
