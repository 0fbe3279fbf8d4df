"""Bound pods, until they end: the spans `start` and `run`.

Kubelet shows in whole seconds when containers start and end.  If a step between the bind and the start ended in the second of
the bind, it has the length 0.  The remaining time counts for the last step: the images and the start of the containers.
"""

from __future__ import annotations

from typing import NamedTuple

from bridge.tracing import describe
from bridge.tracing.finished import Attributes
from bridge.tracing.memory import remember
from bridge.tracing.span import Spans
from bridge.tracing.times import Clocks, ended_at, running_at
from scheduler.model.kubernetes import Pod, PodPhase

BEGAN = (PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.UNKNOWN)


class Bound(NamedTuple):
    """A bound pod that does not run yet.

    which, parent   arguments of `Spans.send` for the spans of the pod
    sent, at        when the bind was sent, and when it was answered
    keys            attributes of the span of the bind
    """

    spans: Spans
    which: tuple[object, ...]
    parent: int
    sent: float
    at: float
    keys: Attributes
    clocks: Clocks


class Runs:
    """The spans of pods between their bind and their end.

    starting   pod UID to the bound pod that does not run yet
    """

    def __init__(self) -> None:
        self.starting: dict[str, Bound] = {}
        # When running pods started: kubelet does not show the first start of a container that was restarted.
        self._began: dict[str, float] = {}

    def note_bound(self, uid: str, bound: Bound) -> None:
        """Note that the pod was bound."""
        remember(self.starting, uid, bound)

    def note_start(self, pod: Pod, at: float) -> float | None:
        """Send the start of a pod that is not pending any more.

        Returns when the pod started; None: the pod never ran, or its start was sent already.
        """
        if (bound := self.starting.pop(pod.uid, None)) is None:
            return None
        if not self._has_run(pod):
            ended = max(bound.at, ended_at(pod, bound.clocks, at))
            _send_start(bound, pod, ended, describe.failure(pod) or "the pod was deleted before it ran")
            return None
        began = running_at(pod, bound.clocks)
        began = max(bound.sent, began) if began is not None else max(bound.at, at)
        if began < bound.at:  # the pod started before the answer to the bind came
            bound.spans.send("bind", bound.which, bound.sent, began, bound.keys, parent=bound.parent)
            bound = bound._replace(at=began)
        remember(self._began, pod.uid, began)
        _send_start(bound, pod, began, None)
        return began

    def note_end(
        self, spans: Spans, which: tuple[object, ...], parent: int, pod: Pod, clocks: Clocks, at: float
    ) -> float:
        """The pod ended, at the latest at *at*: send its start, if not sent, and how long it ran.  Returns when it ended."""
        bound, ended = self.starting.get(pod.uid), ended_at(pod, clocks, at)
        if self.note_start(pod, at) is None and bound is not None:
            return max(bound.at, ended)
        has_run = self._has_run(pod)
        began = self._began.pop(pod.uid, None)
        if began is None and has_run:
            began = running_at(pod, clocks)
        if began is None:
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
