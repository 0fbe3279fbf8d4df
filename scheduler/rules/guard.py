"""Rules of one pass under guard: if a rule raises, its actions leave the plan and its object comes into quarantine.

Only in a guarded world; otherwise the exception propagates (quarantine.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from scheduler import names
from scheduler.actions import ObjectKind
from scheduler.model.kubernetes import Pod
from scheduler.model.text import span
from scheduler.rules.driver import apply
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import statuses
from scheduler.state.quarantine import is_dropped
from scheduler.state.workload import Workload

P = ParamSpec("P")
R = TypeVar("R")


def guarded(
    this_pass: Pass, kind: ObjectKind, name: str, otherwise: R, rule: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """The result of the rule for these arguments; `otherwise` if it raised.  kind, name: the object of the rule"""
    planned, forgotten = len(this_pass.actions), len(this_pass.forgotten)
    try:
        return rule(*args, **kwargs)
    except Exception as error:
        if not this_pass.world.guarded:
            raise
        this_pass.take_back(planned, forgotten)
        this_pass.failed.append((kind, name, error))
        this_pass.wake_shared(this_pass.now + this_pass.tuning.quarantine_s)
        return otherwise


def visit(workload: Workload, this_pass: Pass, rule: Callable[[Workload, Pass], bool]) -> None:
    """Run the rule of one workload.  If the rule does not raise, the workload leaves the quarantine.

    rule   returns True if it ran; False: the next pass runs it
    """
    key, quarantine = workload.key, this_pass.world.quarantine
    dropped = bool(quarantine) and is_dropped(this_pass.world, ObjectKind.WORKLOAD, key)
    ran = None if dropped else guarded(this_pass, ObjectKind.WORKLOAD, key, None, rule, workload, this_pass)
    if ran is None:
        this_pass.visited.append(key)
        guarded(this_pass, ObjectKind.SHARED, "the words for pods in quarantine", None, _show, workload, this_pass)
    elif ran and quarantine and (ObjectKind.WORKLOAD, key) in quarantine:
        this_pass.lifted.append((ObjectKind.WORKLOAD, key))


def _show(workload: Workload, this_pass: Pass) -> None:
    """Show on the pods that the workload is in quarantine: a condition if they wait, an event if they run."""
    entry = this_pass.world.quarantine.get((ObjectKind.WORKLOAD, workload.key))
    pods: dict[str, Pod] = workload.pods | (entry.pods if entry is not None else {})
    concerned = [pod for pod in pods.values() if not pod.finished and pod.deleting_at is None]
    message = sentence(this_pass.tuning.quarantine_s)
    waiting = [pod for pod in concerned if not workload.node_of(pod)]
    running = [pod for pod in concerned if workload.node_of(pod)]
    shown = statuses(waiting, names.QUARANTINED, message) + statuses(running, "", message, event=names.QUARANTINED)
    apply(shown, workload, this_pass)


def sentence(again_s: float) -> str:
    """The status of a pod in quarantine, which `explain` shows, too."""
    return (
        "slurm-bridge had an internal error with this pod, and leaves the pod alone: no job is requested, and nothing is "
        f"ended. It tries again when the pod changes, and every {span(again_s)}. The admin finds the error in the log of "
        "slurm-bridge."
    )


def plan_retries(this_pass: Pass) -> Iterator[tuple[ObjectKind, str]]:
    """Workloads and nodes in quarantine that are tried again now; for the others, plans a pass at their time."""
    for subject, entry in this_pass.world.quarantine.items():
        if entry.kind is ObjectKind.WORKLOAD and entry.name not in this_pass.world.workloads:
            this_pass.lifted.append(subject)
        elif (at := entry.due_at()) <= this_pass.now:
            if entry.dropped or entry.kind in (ObjectKind.POD, ObjectKind.JOB, ObjectKind.SHARED):
                this_pass.retried.append(subject)
                this_pass.wake_shared(this_pass.now)
            else:
                yield subject
        else:
            this_pass.wake_shared(at)
