"""Calls the rules of one pass, so that an error in a rule concerns only the object of the rule (X8).

If a rule raises, its actions leave the plan, and its object comes into quarantine.  This holds in a guarded World; in another
World the exception propagates (scheduler/state/quarantine.py).  bridge/guard.py contains exceptions outside the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec, TypeVar

from scheduler import names
from scheduler.actions import ObjectKind
from scheduler.model.kubernetes import Pod
from scheduler.model.text import span
from scheduler.rules.decision import SharedStep
from scheduler.rules.driver import enter, enter_shared
from scheduler.rules.node_condition import Actions
from scheduler.rules.scheduling_pass import Pass
from scheduler.rules.status import statuses
from scheduler.state.quarantine import is_dropped
from scheduler.state.workload import Workload

P = ParamSpec("P")
R = TypeVar("R")
SharedRule = Callable[[Pass], Iterable[SharedStep]]


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
    elif ran and (ObjectKind.WORKLOAD, key) in quarantine:
        this_pass.lifted.append((ObjectKind.WORKLOAD, key))


def visit_node(name: str, this_pass: Pass, rule: Callable[[str, Pass], Actions]) -> None:
    """Run the rule of one node, and enter its actions in the plan.  If an action has no room, the node is visited again.

    If the rule does not raise, the node leaves the quarantine.  A node whose facts were dropped is left alone.
    """
    subject, quarantine = (ObjectKind.NODE, name), this_pass.world.quarantine
    dropped = is_dropped(this_pass.world, *subject)
    actions = None if dropped else guarded(this_pass, *subject, None, rule, name, this_pass)
    if actions is not None and subject in quarantine:
        this_pass.lifted.append(subject)
    if all(map(this_pass.add, actions or ())):
        this_pass.visited_nodes.append(name)


def visit_shared(work: str, rules: Iterable[SharedRule], this_pass: Pass) -> None:
    """Run rules for all workloads together (periodic.py), and enter their steps in the plan as far as limits allow.

    work   what these rules do, for the log
    """
    guarded(this_pass, ObjectKind.SHARED, work, None, _visit_shared, rules, this_pass)


def _visit_shared(rules: Iterable[SharedRule], this_pass: Pass) -> None:
    for rule in rules:
        for step in rule(this_pass):
            if not enter_shared(step, this_pass):
                break


def _show(workload: Workload, this_pass: Pass) -> None:
    """Show on the pods that the workload is in quarantine: a condition if they wait, an event if they run."""
    entry = this_pass.world.quarantine.get((ObjectKind.WORKLOAD, workload.key))
    pods: dict[str, Pod] = workload.pods | (entry.pods if entry is not None else {})
    concerned = [pod for pod in pods.values() if not pod.finished and pod.deleting_at is None]
    message = sentence(this_pass.tuning.quarantine_s)
    waiting = [pod for pod in concerned if not workload.node_of(pod)]
    running = [pod for pod in concerned if workload.node_of(pod)]
    shown = statuses(waiting, names.QUARANTINED, message) + statuses(running, "", message, event=names.QUARANTINED)
    enter(shown, workload, this_pass)


def sentence(again_s: float) -> str:
    """The status of a pod in quarantine, which `explain` shows, too."""
    return (
        "slurm-bridge had an internal error with this pod, and leaves the pod alone: no job is requested, and nothing is "
        f"ended. It tries again when the pod changes, and every {span(again_s)}. The admin finds the error in the log of "
        "slurm-bridge."
    )


def plan_retries(this_pass: Pass) -> Mapping[ObjectKind, Sequence[str]]:
    """The names of the workloads and of the nodes in quarantine that are visited again now.

    Pods, jobs and dropped objects whose time has come are noted in the plan, which rebuilds them when it is applied.  If the
    time of an object has not come, a pass is planned for that time.
    """
    due: dict[ObjectKind, list[str]] = {}
    for subject, entry in this_pass.world.quarantine.items():
        if entry.kind is ObjectKind.WORKLOAD and entry.name not in this_pass.world.workloads:
            this_pass.lifted.append(subject)
        elif (at := entry.due_at()) <= this_pass.now:
            if entry.dropped or entry.kind in (ObjectKind.POD, ObjectKind.JOB, ObjectKind.SHARED):
                this_pass.retried.append(subject)
                this_pass.wake_shared(this_pass.now)
            else:
                due.setdefault(entry.kind, []).append(entry.name)
        else:
            this_pass.wake_shared(at)
    return due
