"""Writes on pods whose answer was lost: the pod proves if the write took effect.

When the API server has confirmed the end of a pod, the bridge posts an event about it.  The same is done for the bind of a
pod that has shown why it waits.  If the answer is lost, no event is posted yet.  Later the watch proves the write: the pod
has its node, is being deleted, or is gone.  Then the event is posted, once.
"""

from __future__ import annotations

from scheduler import names
from scheduler.actions import BindPod, DeletePod, EvictPod, FailByDeadline
from scheduler.model.kubernetes import Pod
from scheduler.state.in_flight import Announced, InFlight
from scheduler.state.workload import Workload

AT_ONCE_S = 1  # FailByDeadline sets this deadline, so that kubelet ends the pod at once

_EVENTS = {  # the event that the executor posts when the answer comes; True: the event is a warning
    BindPod: (names.SCHEDULED, False),
    DeletePod: (names.ENDED, True),
    FailByDeadline: (names.ENDED, True),
    EvictPod: (names.ENDED, False),
}


def has_event(action: Announced) -> bool:
    """True if the write is announced as an event."""
    return not isinstance(action, BindPod) or bool(action.message)


def event_of(action: Announced) -> tuple[str, str, bool]:
    """Reason and message of the event that announces this write, and whether it is a warning."""
    reason, warning = _EVENTS[type(action)]
    return reason, action.message if isinstance(action, BindPod) else action.reason, warning


def note_unanswered(workload: Workload, action: Announced) -> None:
    """Note that the answer to this write was lost.  The watch may have shown its effect before that."""
    if not has_event(action):
        return
    workload.unanswered[action.uid] = action
    pod = workload.pods.get(action.uid)
    gone = workload.deleted_pods.get(action.uid)
    if pod is not None:
        observe(workload, pod)
    elif gone is not None:
        observe_deletion(workload, gone.pod)


def note_answered(workload: Workload, uid: str) -> None:
    """Note that the last write on the pod was confirmed, so its event was posted, or that it did not happen."""
    workload.unanswered.pop(uid, None)
    workload.confirmed_writes.pop(uid, None)


def observe(workload: Workload, pod: Pod) -> None:
    """The watch shows the pod: if this proves the unanswered write, move the write to `confirmed_writes`."""
    action = workload.unanswered.get(pod.uid)
    if action is not None and _shows(action, pod):
        workload.confirmed_writes[pod.uid] = workload.unanswered.pop(pod.uid)


def observe_deletion(workload: Workload, last: Pod, in_flight: InFlight | None = None) -> None:
    """The pod is gone, which proves an unanswered end.  It proves a bind only if the pod was seen on its node.

    last        the last state of the pod
    in_flight   the action on the pod that is in flight; if it is an end, the event is left to the answer of that end
    """
    action = workload.unanswered.pop(last.uid, None)
    if (
        in_flight is not None
        and in_flight.until is None
        and isinstance(in_flight.action, DeletePod | FailByDeadline | EvictPod)
    ):
        workload.unanswered[last.uid] = in_flight.action
    elif action is not None and (not isinstance(action, BindPod) or _shows(action, last)):
        workload.confirmed_writes[last.uid] = action


def _shows(action: Announced, pod: Pod) -> bool:
    if isinstance(action, BindPod):
        return pod.node == action.node and pod.annotations.get(names.JOB_ID) == str(action.job_id)
    if pod.deleting_at is not None:
        return True
    return isinstance(action, FailByDeadline) and pod.set_deadline_s == AT_ONCE_S
