"""Annotations of bound pods that only the bridge writes (K5).

Programs in the pod and device drivers rely on these annotations, so edits by other clients are undone.  The right value is
the value that the bridge wrote last.  The bridge writes all of them with the bind.  When another job replaces a lost job, it
writes `job-id` and `job-since` again (reacquire.show_new_job).

While the pod is bound, the right value is the value before the first edit.  An edit while no bridge ran is not noticed,
except an edit of the job id: the job itself shows if the id is right (reacquire.show_new_job).

A controller may write the same edit again and again.  So each restoration of one pod waits twice as long as the restoration
before, and only the first restoration gets an event.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.state.pod_records import Edited
from scheduler.state.workload import Workload


def note_edits(workload: Workload, before: Pod | None, pod: Pod) -> None:
    """Note the right value of each key that another client changed, and forget keys whose value is right again.

    before   the former state of the pod; None: the pod is new
    """
    known = workload.edited.get(pod.uid)
    bind = workload.unconfirmed_binds.pop(pod.uid, None) if pod.node else None
    if bind is not None and bind.node == pod.node:
        shown = {key: bind.annotations.get(key) for key in names.ONLY_OURS if key in pod.annotations}
    elif before is not None and before.node and before.annotations != pod.annotations:
        shown = {key: before.annotations.get(key) for key in names.ONLY_OURS}
        shown |= (known.right if known else {}) | dict(workload.renewed.get(pod.uid, {}))
    else:
        return
    right = {key: value for key, value in shown.items() if pod.annotations.get(key) != value}
    if names.JOB_ID in right and pod.annotations.get(names.JOB_ID) == str(workload.hint):
        # A previous process wrote the id of a job that replaced a lost job (reacquire.show_new_job).
        del right[names.JOB_ID]
        right.pop(names.JOB_SINCE, None)
    if known is not None:
        known.right = right
    elif right:
        workload.edited[pod.uid] = Edited(right)


def own_annotation(workload: Workload, pod: Pod, key: str) -> str | None:
    """The right value of that key: what the bridge wrote, or a bind in flight writes; None: no value."""
    if (bind := workload.unconfirmed_binds.get(pod.uid)) is not None:
        return bind.annotations.get(key)
    edited = workload.edited.get(pod.uid)
    return edited.right[key] if edited is not None and key in edited.right else pod.annotations.get(key)


def without_edits(workload: Workload, pod: Pod) -> Pod:
    """The pod with the right value of each key that another client changed."""
    edited = workload.edited.get(pod.uid)
    if edited is None or not edited.right:
        return pod
    annotations = {**pod.annotations, **edited.right}
    return replace(pod, annotations={key: text for key, text in annotations.items() if text is not None})
