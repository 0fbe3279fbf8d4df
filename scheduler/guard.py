"""Rules of one pass under guard: one that raises takes back what it planned, and its object comes into quarantine.

Only in a guarded world; else the exception goes on (quarantine.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from scheduler import names
from scheduler.actions import Kind
from scheduler.model import Pod
from scheduler.quarantine import is_dropped
from scheduler.telling import say_all
from scheduler.view import View
from scheduler.workload import Workload

P = ParamSpec("P")
R = TypeVar("R")


def guarded(
    view: View, kind: Kind, name: str, otherwise: R, rule: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """What the rule returns for these arguments; `otherwise` where it raised.  kind, name: what the rule is about"""
    planned, forgotten = len(view.actions), len(view.forgotten)
    try:
        return rule(*args, **kwargs)
    except Exception as error:
        if not view.world.guarded:
            raise
        view.take_back(planned, forgotten)
        view.failed.append((kind, name, error))
        view.wake_shared(view.now + view.tuning.quarantine_s)
        return otherwise


def look(workload: Workload, view: View, rule: Callable[[Workload, View], bool]) -> None:
    """Run the rule of one workload; one in quarantine leaves it when its rule ran and did not raise.

    rule   returns whether it ran; False: it is for the next pass
    """
    key, quarantine = workload.key, view.world.quarantine
    dropped = bool(quarantine) and is_dropped(view.world, Kind.WORKLOAD, key)
    ran = None if dropped else guarded(view, Kind.WORKLOAD, key, None, rule, workload, view)
    if ran is None:
        view.looked_at.append(key)
        guarded(view, Kind.SHARED, "the words for pods in quarantine", None, _tell, workload, view)
    elif ran and quarantine and (Kind.WORKLOAD, key) in quarantine:
        view.lifted.append((Kind.WORKLOAD, key))


def _tell(workload: Workload, view: View) -> None:
    """Its pods say that it is left alone: a condition while they wait, an event where they run."""
    entry = view.world.quarantine.get((Kind.WORKLOAD, workload.key))
    pods: dict[str, Pod] = workload.pods | (entry.pods if entry is not None else {})
    concerned = [pod for pod in pods.values() if not pod.finished and pod.deleting_at is None]
    message = sentence(view.tuning.quarantine_s)
    waiting = [pod for pod in concerned if not workload.node_of(pod)]
    say_all(workload, waiting, view, names.QUARANTINED, message)
    say_all(workload, [pod for pod in concerned if workload.node_of(pod)], view, "", message, event=names.QUARANTINED)


def sentence(again_s: float) -> str:
    """What a pod in quarantine says, and what `explain` says of it."""
    return (
        "slurm-bridge made an error of its own with this pod, and leaves it alone: nothing is asked of Slurm for it, and "
        f"nothing of it is ended. It is tried again when the pod changes, and every {again_s:.0f} s. The admin finds the "
        "error in the log of slurm-bridge."
    )


def due(view: View) -> Iterator[tuple[Kind, str]]:
    """What is in quarantine and is tried again now, though nothing changed; of the rest the pass of its time is planned."""
    for subject, entry in view.world.quarantine.items():
        if entry.kind is Kind.WORKLOAD and entry.name not in view.world.workloads:
            view.lifted.append(subject)
        elif (at := entry.due_at()) <= view.now:
            if entry.dropped or entry.kind in (Kind.POD, Kind.JOB, Kind.SHARED):
                view.retried.append(subject)
                view.wake_shared(view.now)
            else:
                yield subject
        else:
            view.wake_shared(at)
