"""Workloads until their pods are bound: the spans from `create` to `bind`, and Slurm's reasons (reasons.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bridge.tracing import describe
from bridge.tracing.export import SpanExport
from bridge.tracing.memory import remember
from bridge.tracing.reasons import QUEUE, Waiting
from bridge.tracing.runs import Bound
from bridge.tracing.span import JOB, NOTHING, Spans, spans_of
from bridge.tracing.times import Clocks, Queued, asked_at, clocks_of, queued
from scheduler.events import JobRead
from scheduler.model.kubernetes import Pod
from scheduler.state.workload import Workload
from scheduler.state.world import World


class Granted(NamedTuple):
    """A pod that was bound, and epoch seconds of the steps before.

    job      the id of the pod's Slurm job
    asked    when the job was submitted
    granted  when the grant was seen
    sent     when the bind was sent
    at       when the pod was bound
    """

    pod: Pod
    job: int
    node: str
    asked: float
    granted: float
    sent: float
    at: float


class Allocations:
    """Makes the spans up to the bind.  first_seen: pod UID to when this process first saw the pod"""

    def __init__(self, export: SpanExport, first_seen: dict[str, float]) -> None:
        self._export = export
        self._first_seen = first_seen
        # These three are by workload key.
        self._waiting: dict[str, Waiting] = {}
        self._gangs: dict[str, tuple[int, Queued]] = {}  # the job for which the gang's spans were sent, and their times
        # Kept, so that an event of a large gang is cheap; with the number of pods whose traceparent the sender knows.
        self._spans: dict[str, tuple[int, Spans]] = {}

    def note_submitted(self, workload: Workload, job: int, asked: float, world: World) -> None:
        """A job was submitted for the workload."""
        if workload.pod_counts.unbound:  # otherwise the job replaces the lost job of running pods (S7)
            self._wait(workload, job, asked, asked, world)

    def note_read(self, event: JobRead, world: World) -> None:
        """A job was read: note why it waits."""
        job, known = event.job, world.placeholders.get(event.job_id)
        if job is None or known is None or known.key is None or "PENDING" not in job.states:
            return
        workload = world.workloads.get(known.key)
        if workload is None or not workload.pods or not workload.pod_counts.unbound:
            return
        asked = asked_at(known, clocks_of(world))
        waiting = self._waiting.get(known.key)
        if waiting is None or waiting.job != event.job_id:
            waiting = self._wait(workload, event.job_id, asked, event.ended, world)
        since = asked if known.asked_at is not None else _shown_since(workload, job.reason, world)
        waiting.read(job.reason, event.ended, since if since is not None else event.ended)

    def _wait(self, workload: Workload, job: int, asked: float | None, at: float, world: World) -> Waiting:
        """Note that the job waits for the workload, and end the wait of a former job.

        asked   when the job was submitted; None: not known
        at      when the former job stopped waiting
        """
        former = self._waiting.pop(workload.key, None)
        spans = former.spans if former is not None else self.spans(workload, world)
        if former is None and workload.hint is not None and workload.hint != job:  # of an earlier process
            former = Waiting(spans, workload.hint, None)
        if former is not None and former.job != job:
            former.end(at)
            began, keys = former.asked if former.asked is not None else at, {JOB: former.job}
            spans.send(QUEUE, (former.job,), began, max(began, at), keys, parent=spans.id("submit"))
        waiting = Waiting(spans, job, asked)
        remember(self._waiting, workload.key, waiting)
        return waiting

    def note_bound(self, workload: Workload, granted: Granted, world: World) -> Bound:
        """A pod was bound: send its spans up to the bind.  With the first pod of a job, send the spans of the workload."""
        waiting, clocks = self._waiting.pop(workload.key, None), clocks_of(world)
        spans = waiting.spans if waiting is not None else self.spans(workload, world)
        job, times = self._gangs.get(workload.key, (None, None))
        if times is None or job != granted.job:
            pods = workload.pods.values()
            times = queued(clocks, pods, self._first_seen, granted.asked, granted.granted)
            if waiting is not None and waiting.job == granted.job:
                waiting.end(times.granted)
            self._send(spans, times, clocks, workload, world, granted.job)
            if workload.group is not None:
                remember(self._gangs, workload.key, (granted.job, times))
        sent = max(times.granted, granted.sent)
        bound = max(sent, granted.at)
        which = (granted.pod.uid,) if workload.group is not None else ()
        parent = spans.id("pod", granted.pod.uid) if which else 0
        spans.send("grant", which, times.granted, sent, NOTHING, parent=parent)
        keys = {"k8s.node.name": granted.node}
        spans.send("bind", which, sent, bound, keys, parent=parent)
        return Bound(spans, which, parent, sent, bound, keys, clocks)

    def note_end(
        self,
        workload: Workload,
        spans: Spans,
        pods: tuple[Pod, ...],
        first_seen: Mapping[str, float],
        job: int | None,
        at: float,
        clocks: Clocks,
        world: World,
    ) -> float | None:
        """The workload ended: if its pods were never bound, send the spans of their wait.

        first_seen   as of the class, of these pods
        job          its last job; None: not known
        Returns when the workload was created, as in the spans of a gang or of a wait; None: this call knows no such time.
        """
        waiting, (_, times) = self._waiting.pop(workload.key, None), self._gangs.pop(workload.key, (None, None))
        self._spans.pop(workload.key, None)
        job = waiting.job if waiting is not None else job
        known = world.placeholders.get(job) if job is not None else None
        if any(pod.node for pod in pods) or (not pods and known is not None and known.holds_nodes):
            return times.created if times is not None else None
        asked = waiting.asked if waiting is not None else asked_at(known, clocks) if known is not None else None
        times = queued(clocks, pods, first_seen, asked if asked is not None else at, at)
        times = Queued(*(min(each, at) for each in times))
        if waiting is not None:
            waiting.end(at)
        self._send(spans, times, clocks, workload, world, job)
        return times.created

    def _send(
        self, spans: Spans, times: Queued, clocks: Clocks, workload: Workload, world: World, job: int | None
    ) -> None:
        spans.send("create", (), times.created, times.seen, describe.kubernetes_clock(clocks))
        if workload.group is not None:
            spans.send("gather", (), times.seen, times.gathered, describe.gang(workload))
        spans.send("submit", (), times.gathered, times.asked, NOTHING)
        if job is not None:
            about = describe.job(job, world) | describe.slurm_clock(clocks)
            spans.send(QUEUE, (job,), times.asked, times.granted, about)

    def spans(self, workload: Workload, world: World) -> Spans:
        """The sender of the workload's spans.  It is kept, and made again if pods were added."""
        known = self._spans.get(workload.key)
        if known is not None and len(workload.pods) <= known[0]:
            return known[1]
        spans = spans_of(self._export, world.cluster, workload.key, workload.pods.values())
        remember(self._spans, workload.key, (len(workload.pods), spans))
        return spans


def _shown_since(workload: Workload, reason: str, world: World) -> float | None:
    """When the condition of the workload's first pod came to show that reason; None: the condition does not show it."""
    pod = workload.pod
    condition, reported = workload.shown_condition(pod), pod.times.reported
    if condition is None or reported is None or f"({reason}" not in condition.message:
        return None
    return clocks_of(world).begin(reported)
