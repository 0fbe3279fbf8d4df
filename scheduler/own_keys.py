"""Annotations that only the bridge writes, with the bind, and that others edit later (BEHAVIOUR K).

Programs in the pod and device drivers go by these annotations, so an edit by anybody else is written back.  The right value
of a key is the one that the bind wrote.  While the pod is bound that is the value before the first edit; an edit that was
made while no bridge ran is not noticed, except for the job id, which the job itself proves or disproves (retaking.show).

A controller may write the same edit again and again.  So each put-back of one pod waits twice as long as the one before, and
only the first is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler import actions as act
from scheduler import names
from scheduler.model import Pod
from scheduler.workload import Edited, Placeholder, Workload

if TYPE_CHECKING:
    from scheduler.view import View


def note_edits(workload: Workload, before: Pod | None, pod: Pod) -> None:
    """Remember the right value of each key that somebody else changed; forget those that are right again.

    before   the same pod as it was seen last, or None
    """
    known = workload.edited.get(pod.uid)
    bind = workload.to_show.pop(pod.uid, None) if pod.node else None
    if bind is not None and bind.node == pod.node:
        shown = {key: bind.annotations.get(key) for key in names.ONLY_OURS if key in pod.annotations}
    elif before is not None and before.node and before.annotations != pod.annotations:
        shown = {key: before.annotations.get(key) for key in names.ONLY_OURS} | (known.right if known else {})
    else:
        return
    right = {key: value for key, value in shown.items() if pod.annotations.get(key) != value}
    if pod.annotations.get(names.JOB_ID) == str(workload.hint):  # the pods have another job since (retaking.show)
        right.pop(names.JOB_ID, None)
    if known is not None:
        known.right = right
    elif right:
        workload.edited[pod.uid] = Edited(right)


def told_of(workload: Workload, pod: Pod, key: str) -> str | None:
    """What the bind wrote there, or is about to write; None: nothing."""
    if (bind := workload.to_show.get(pod.uid)) is not None:
        return bind.annotations.get(key)
    edited = workload.edited.get(pod.uid)
    return edited.right[key] if edited is not None and key in edited.right else pod.annotations.get(key)


def put_back(workload: Workload, job: Placeholder, view: View) -> None:
    """Write the right values again.  job: proven theirs; the pods run in it"""
    for uid, edited in workload.edited.items():
        pod = workload.pods.get(uid)
        if pod is None or pod.finished or edited.under_way or not edited.right:
            continue
        if view.now < edited.next_at:
            view.wake_at(workload.key, edited.next_at)
            continue
        right = dict(edited.right)
        if names.JOB_ID in right:
            right[names.JOB_ID] = str(job.id)
        why = f"Changed by somebody else and written back: {', '.join(sorted(right))}. Only slurm-bridge writes there."
        restore = act.RestoreKeys(workload.key, uid, pod.namespace, pod.name, right, why, say=edited.put_back == 0)
        view.add(restore, workload.key)
