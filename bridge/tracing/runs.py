"""Bound pods, until they end: the spans `start` and `run`.

Kubelet tells in whole seconds when containers start and end.  Between the bind and the start, a step that ended in the second
of the bind has the length 0, and what is left over counts for the last step: the images and the start of the containers.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.tracing import describe
from bridge.tracing.memory import remember
from bridge.tracing.span import Spans
from bridge.tracing.times import Clocks, ended_at, running_at
from scheduler.model.kubernetes import Pod, PodPhase

BEGAN = (PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound pod that does not run yet.

    which, parent   of its spans
    at              when it was bound
    """

    spans: Spans
    which: tuple[object, ...]
    parent: int
    at: float
    clocks: Clocks


class Runs:
    """The pods between their bind and their end."""

    def __init__(self) -> None:
        self._bound: dict[str, Bound] = {}  # by pod UID
        self._began: dict[
            str, float
        ] = {}  # when the pods that run began to; kubelet forgets it if containers start again

    def bound(self, uid: str, bound: Bound) -> None:
        """The pod was bound."""
        remember(self._bound, uid, bound)

    def shown(self, pod: Pod, at: float) -> None:
        """The pod is not pending any more: if its start is to be sent, send it."""
        if (bound := self._bound.pop(pod.uid, None)) is None:
            return
        if not self._has_run(pod):
            ended = max(bound.at, ended_at(pod, bound.clocks, at))
            _send_start(bound, pod, ended, describe.failure(pod) or "the pod was deleted before it ran")
            return
        began = running_at(pod, bound.clocks)
        until = max(bound.at, began if began is not None else at)
        if not pod.finished:
            remember(self._began, pod.uid, until)
        _send_start(bound, pod, until, None)

    def ended(self, spans: Spans, which: tuple[object, ...], parent: int, pod: Pod, clocks: Clocks, at: float) -> float:
        """The pod ended, at the latest at *at*: send how long it ran.  Returns when it ended."""
        bound, ended = self._bound.get(pod.uid), ended_at(pod, clocks, at)
        began = self._began.pop(pod.uid, None)
        has_run = began is not None or self._has_run(pod)
        self.shown(pod, at)
        if began is None:
            began = running_at(pod, clocks)
        if bound is not None:
            ended = max(bound.at, ended)
            began = max(bound.at, began) if began is not None else ended
        if not has_run or began is None:
            return ended
        ended = max(began, ended)
        keys = describe.kubernetes_clock(clocks) | describe.exit_code(pod)
        spans.send("run", which, began, ended, keys, parent=parent, error=describe.failure(pod))
        return ended

    def _has_run(self, pod: Pod) -> bool:
        return pod.uid in self._began or pod.times.running is not None or pod.phase in BEGAN


def _send_start(bound: Bound, pod: Pod, until: float, error: str | None) -> None:
    spans, keys = bound.spans, describe.kubernetes_clock(bound.clocks)
    spans.send("start", bound.which, bound.at, until, keys, parent=bound.parent, error=error)
    parent, begin = spans.id("start", *bound.which), bound.at
    initialized = pod.times.initialized if pod.init_containers else None
    for name, theirs in (("kubelet", pod.started), ("sandbox", pod.times.sandbox), ("init", initialized)):
        if theirs is not None:
            end = min(until, max(begin, bound.clocks.begin(theirs)))
            spans.send(name, bound.which, begin, end, keys, parent=parent)
            begin = end
    about = describe.containers(pod)
    spans.send("containers", bound.which, begin, until, keys | about, parent=parent, error=error)
