"""Telemetry: metrics, one trace for each workload, one log line for each action (O2, O3).

The only module that imports the OpenTelemetry SDK; the latency histograms are in latency.py.  Metrics carry no pod or job
ids.  The trace id of a workload is derived from its key, so a restart continues the same trace; a caller's own `traceparent`
is kept.  The last traces can also be kept in memory, for the page.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from prometheus_client import CollectorRegistry, ProcessCollector

from bridge.exposition import scraped
from bridge.latency import IMMEDIATE, QUEUED, Labels, Latency
from bridge.latency_history import LatencyHistory
from bridge.stopping import TELEMETRY_S
from scheduler import actions as act
from scheduler import names
from scheduler.actions import Action, Outcome
from scheduler.events import (
    AbsenceConfirmed,
    AccountingLost,
    ActionEnded,
    Event,
    PodGone,
    PodSeen,
    Scope,
    SideBack,
    SideLost,
)
from scheduler.model.anomaly import Anomaly
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.state.anomalies import claims_held_back, held_back
from scheduler.state.rivals import another_bridge
from scheduler.state.world import World

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400)
MAX_FIRST_SEEN = 20_000
MAX_SPANS_A_TRACE = 32
LATEST_S = 9.2e9  # times of a span are nanoseconds in 64 bits, and some readers take the first bit for a sign
WORKLOAD = "slurm_bridge.workload"  # attribute of a span: the key of its workload
log = logging.getLogger("slurm-bridge")


class _Ids(RandomIdGenerator):
    """Generates ids; the root span of a workload gets the ids that its traceparent names."""

    next_trace: int | None = None
    next_span: int | None = None

    def generate_trace_id(self) -> int:
        """The id that was set, once; then random ids."""
        wanted, self.next_trace = self.next_trace, None
        return wanted if wanted is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """The id that was set, once; then random ids."""
        wanted, self.next_span = self.next_span, None
        return wanted if wanted is not None else super().generate_span_id()


@dataclass(frozen=True, slots=True)
class Span:
    """One step of a workload's trace; epoch seconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class _Starting:
    """A bound pod that does not run yet.

    at       when it was bound, epoch seconds
    root     the root span of its workload
    keys     attributes of its spans
    """

    at: float
    labels: Labels
    root: SpanContext
    keys: dict[str, Any]


class RecentSpans:
    """The steps of the last workloads, by workload key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._spans: OrderedDict[str, list[Span]] = OrderedDict()

    def add(self, key: str, span: Span) -> None:
        """Keep it."""
        kept = self._spans.setdefault(key, [])
        if len(kept) < MAX_SPANS_A_TRACE:
            kept.append(span)
        self._spans.move_to_end(key)
        while len(self._spans) > self._most:
            self._spans.popitem(last=False)

    def of(self, key: str) -> tuple[Span, ...]:
        """The spans of that workload, in the order in which they ended."""
        return tuple(self._spans.get(key, ()))


class Telemetry:
    """Observer of the loop, and hooks of both clients.

    exporter   receives spans; None: OTLP/HTTP if OTEL_EXPORTER_OTLP_ENDPOINT is set, else spans are dropped
    recent     how many workloads' traces are kept in memory
    """

    def __init__(
        self, exporter: SpanExporter | None = None, clock: Callable[[], float] = time.time, *, recent: int = 0
    ) -> None:
        self._clock = clock
        self._first_seen: dict[str, float] = {}
        self._starting: dict[str, _Starting] = {}  # by pod UID
        self._immediate: dict[int, None] = {}  # ids of jobs that got their nodes at their submission
        resource = Resource.create({"service.name": "slurm-bridge"})
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(registry=self._registry)  # its own, so that two bridges do not mix
        view = View(instrument_type=Histogram, aggregation=ExplicitBucketHistogramAggregation(SECONDS))
        self._meters = MeterProvider([reader], resource=resource, views=[view], shutdown_on_exit=False)
        self._meter = self._meters.get_meter("slurm-bridge")
        self._make_instruments(self._meter)
        self._latency = Latency(self._registry, SECONDS)
        ProcessCollector(registry=self._registry)
        self._unreadable_logged: dict[str, str] = {}
        self.latencies = LatencyHistory()  # of binds
        self._ids = _Ids()
        self._tracers = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._export_traces(exporter, recent)
        self._tracer = self._tracers.get_tracer("slurm-bridge")
        self.lost_sides: dict[str, str] = {}
        self.rejected: Counter[str] = Counter()  # answers rejected before they reach the core, by reason
        self._logged: Counter[Anomaly] = Counter()  # rejected observations that are in the log, by reason
        self._held_back = False
        self._accounting_lost: AccountingLost | None = None
        self._beside_another = False
        self._claims_held_back = False

    def _make_instruments(self, meter: Meter) -> None:
        self._calls = meter.create_histogram("slurm_bridge_call_seconds", "s", "calls by side, operation and outcome")
        self._passes = meter.create_histogram(
            "slurm_bridge_pass_seconds", "s", "one pass: news taken in, and decisions"
        )
        what = "how long the oldest event of a pass waited for it"
        self._lag = meter.create_histogram("slurm_bridge_loop_lag_seconds", "s", what)
        self._grants_released = meter.create_counter(
            "slurm_bridge_grants_released", "1", "grants that could not be used"
        )
        self._conditions_written = meter.create_counter(
            "slurm_bridge_pod_conditions_written", "1", "conditions and events written on bound pods, by reason"
        )
        self._unreadable = meter.create_counter(
            "slurm_bridge_unreadable_items", "1", "items of lists that were left out"
        )
        # Counted here and read at each scrape: an OpenTelemetry instrument takes ten times as long, and each pod has several.
        self._actions: Counter[tuple[str, str]] = Counter()
        self.counter("slurm_bridge_actions", "actions by kind and outcome", self._actions_so_far)
        self._events_dropped = 0
        what = "Kubernetes events that were not posted"
        self.counter("slurm_bridge_events_dropped", what, lambda: [(self._events_dropped, {})])

    def _export_traces(self, exporter: SpanExporter | None, recent: int) -> None:
        if exporter is None and os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
            # Imported late: it loads an HTTP client and protobuf, which are needed for an export alone.
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter()
        self.recent = RecentSpans(recent)
        self._traces = exporter is not None or recent > 0
        self._exports, self._keeps = exporter is not None, recent > 0
        if exporter is not None:
            self._tracers.add_span_processor(BatchSpanProcessor(exporter))

    def left_out(self, side: str) -> Callable[[str, str, str], None]:
        """The hook for items of lists that could not be read: each is counted each time, and logged once."""

        def on_left_out(what: str, which: str, why: str) -> None:
            self._unreadable.add(1, {"side": side, "list": what})
            if (key := f"{side} {what} {which}") not in self._unreadable_logged:
                _remember(self._unreadable_logged, key, why)
                log.warning(
                    "%s: %s: item %s cannot be read and is left out: %s", side, what, which or "without a name", why
                )

        return on_left_out

    def unsolicited(self) -> None:
        """A connection to slurmrestd answered twice, or without a request."""
        self.rejected["doubled answer"] += 1

    def event_dropped(self) -> None:
        """A Kubernetes event was not posted."""
        self._events_dropped += 1

    # --- hooks ----------------------------------------------------------------------------------------------------

    def on_call(self, side: str) -> Callable[[str, float, str], None]:
        """The hook for the calls of one client."""

        def called(operation: str, seconds: float, outcome: str) -> None:
            self._calls.record(seconds, {"side": side, "operation": operation, "outcome": outcome})
            if outcome == "contracterror":  # a 404 without a Slurm error number, a text that is no JSON, …
                self.rejected[f"nonsense from {side}"] += 1

        return called

    def gauge(self, name: str, description: str, values: Callable[[], Iterable[tuple[float, dict[str, str]]]]) -> None:
        """Register a gauge whose values are read at each scrape."""

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, labels) for value, labels in values()]

        self._meter.create_observable_gauge(name, [observe], description=description)

    def counter(
        self, name: str, description: str, values: Callable[[], Iterable[tuple[float, dict[str, str]]]]
    ) -> None:
        """Register a counter that other code counts; its values are read at each scrape."""

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, labels) for value, labels in values()]

        self._meter.create_observable_counter(name, [observe], description=description)

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as text, and its content type.  accept: the header `Accept` of the request"""
        return scraped(self._registry, accept)

    def close(self, within_s: float = TELEMETRY_S) -> None:
        """Send what is left, for at most *within_s* seconds."""

        def send() -> None:
            self._tracers.shutdown()
            self._meters.shutdown()

        sender = threading.Thread(target=send, name="telemetry", daemon=True)
        sender.start()
        sender.join(within_s)
        if sender.is_alive():
            log.warning("telemetry: not all could be sent within %g s", within_s)

    # --- Observer -------------------------------------------------------------------------------------------------

    def planned(self, action: Action, at: float) -> None:
        """Log one line for each action that changes something; reads go to the debug log."""
        level = logging.DEBUG if action.effect is act.Effect.NOTHING else logging.INFO
        if log.isEnabledFor(level):
            log.log(level, "%s %s: %s", type(action).__name__, action.subject, action.reason)

    def seen(self, event: Event) -> None:
        """Log when a side is lost or back; remember when a new pod was first seen."""
        if isinstance(event, PodSeen):
            if event.scope is Scope.OURS and not event.pod.node and event.pod.uid not in self._first_seen:
                _remember(self._first_seen, event.pod.uid, self._clock())
            elif self._starting and event.pod.phase is not PodPhase.PENDING:
                self._started(event.pod)
        elif isinstance(event, PodGone):
            self._starting.pop(event.pod.uid, None)
            first_seen = self._first_seen.pop(event.pod.uid, None)
            if first_seen is not None and not event.pod.node:
                self._latency.deleted_unbound(event.at - event.pod.created)
        elif isinstance(event, SideLost):
            self.lost_sides[event.side.value] = event.why
            log.warning("%s", event.why)
        elif isinstance(event, SideBack) and self.lost_sides.pop(event.side.value, None) is not None:
            log.warning("%s answers again", event.side.value)
        elif isinstance(event, AbsenceConfirmed):
            log.warning(
                "an admin says that the jobs which Slurm lists no more are gone: their pods are ended, unless Slurm grants "
                "their nodes to them again"
            )

    def passed(self, world: World, took_s: float, lag_s: float) -> None:
        """Log what the scheduler rejects or holds back, at most one line a pass for each kind, and the end of it."""
        self._passes.record(took_s)
        self._lag.record(lag_s)
        for why, count in world.rejected.items():
            if new := count - self._logged[why]:
                log.warning("not believed: %s%s", why.value, f", {new} times" if new > 1 else "")
                self._logged[why] = count
        if bool(beside := another_bridge(world, self._clock())) != self._beside_another:
            self._beside_another = not self._beside_another
            log.warning("%s", beside or "no other slurm-bridge has been seen for a while")
        if (lost := world.accounting_lost) != self._accounting_lost:
            self._accounting_lost = lost
            log.warning("%s", lost.why if lost is not None else "slurmdbd answers again")
        if (world.held_back_since is not None) != self._held_back:
            self._held_back = not self._held_back
            log.warning("%s", held_back(world) or "nothing is held back any more: what was missing is settled")
        if (world.claims_held_back_since is not None) != self._claims_held_back:
            self._claims_held_back = not self._claims_held_back
            log.warning("%s", claims_held_back(world) or "the jobs that pods from before the start show are settled")

    def ended(self, event: ActionEnded, world: World) -> None:
        """Count the action; a bind and a release add spans to the trace."""
        kind = type(event.action).__name__
        self._actions[kind, event.outcome.value] += 1
        if event.outcome is not Outcome.DONE:
            why = event.refusal.message if event.refusal else ""
            log.log(_level(event), "%s %s: %s: %s", kind, event.action.subject, event.outcome.value, why)
            return
        match event.action:
            case act.AllocateNow() | act.SubmitJob() as submission:
                self._latency.submitted(self._latency.labels_of_spec(submission.spec, world.default_partition))
                if isinstance(submission, act.AllocateNow) and event.job_id is not None:
                    _remember(self._immediate, event.job_id, None)
            case act.BindPod() as bind:
                self._bound(bind, event, world)
            case act.CancelJob() as cancel:
                if cancel.pod_message:  # only the cancel of a grant that cannot be used has news for its pods
                    self._grants_released.add(1)
                if cancel.record:
                    self._trace_release(cancel.key, cancel.job_id, cancel.record, event, world)
            case act.SetJobCondition() as written:
                self._conditions_written.add(1, {"reason": written.condition})
            case (act.DeletePod() | act.FailByDeadline()) as end:
                workload = world.workloads.get(end.key)
                job_id = workload.hint if workload and workload.hint is not None else 0
                job = world.placeholders.get(job_id)
                if job is None or not job.alive:  # the job ended first, which is the end of the workload
                    self._trace_release(end.key, job_id, end.reason, event, world)

    def _bound(self, bind: act.BindPod, event: ActionEnded, world: World) -> None:
        created = self._created(bind)
        labels = self._latency.labels_of(world.placeholders.get(bind.job_id), world.default_partition)
        self.latencies.record("created", event.at - created, event.at)
        if bind.granted is not None:
            self.latencies.record("granted", event.at - bind.granted, event.at)
        outcome = IMMEDIATE if bind.job_id in self._immediate else QUEUED
        workload = world.workloads.get(bind.key)
        pod = workload.pods.get(bind.uid) if workload else None
        if pod is None:
            self._latency.bound(bind, created, event.at, labels, outcome, "")
            return
        _, root = _contexts(pod, world, bind.key)
        self._latency.bound(bind, created, event.at, labels, outcome, f"{root.trace_id:032x}")
        keys: dict[str, Any] = {"slurm.job.id": bind.job_id, "k8s.node.name": bind.node, WORKLOAD: bind.key}
        _remember(self._starting, bind.uid, _Starting(event.at, labels, root, keys))
        if self._traces:
            self._trace_bind(bind, created, event, root, keys)

    def _started(self, pod: Pod) -> None:
        """The containers of a bound pod started; a pod that ended unseen has started, too."""
        starting = self._starting.pop(pod.uid, None)
        if starting is None:
            return
        now = self._clock()
        self._latency.runs(now - starting.at, starting.labels, f"{starting.root.trace_id:032x}")
        if self._traces:
            context = trace.set_span_in_context(NonRecordingSpan(starting.root))
            self._span("started", context, starting.at, now, starting.keys)

    def _actions_so_far(self) -> Iterable[tuple[float, dict[str, str]]]:
        return [(count, {"action": kind, "outcome": outcome}) for (kind, outcome), count in self._actions.items()]

    def _created(self, bind: act.BindPod) -> float:
        """When the pod was created; creationTimestamp has whole seconds, so the watch's time is used if it is within that."""
        seen = self._first_seen.pop(bind.uid, None)
        return seen if seen is not None and 0 <= seen - bind.created < 1.5 else bind.created

    # --- traces ---------------------------------------------------------------------------------------------------

    def _trace_bind(
        self, bind: act.BindPod, created: float, event: ActionEnded, root: SpanContext, keys: dict[str, Any]
    ) -> None:
        # Slurm's times are in whole seconds: a submission is never before the creation.
        asked = max(created, bind.asked) if bind.asked is not None else event.began
        granted = bind.granted if bind.granted is not None else event.began
        for name, start, end in (
            ("submitted", created, asked),
            ("granted", asked, granted),
            ("bound", granted, event.at),
        ):
            self._span(name, trace.set_span_in_context(NonRecordingSpan(root)), start, end, keys)

    def _trace_release(self, key: str, job_id: int, how: str, event: ActionEnded, world: World) -> None:
        """Add the span of the release, at the first end of the pods or of their job, and that of the whole workload."""
        workload = world.workloads.get(key)
        pods = [*workload.pods.values(), *(gone.pod for gone in workload.gone.values())] if workload else []
        if not self._traces or not pods:
            return
        pod = pods[0]
        caller, root = _contexts(pod, world, key)
        keys: dict[str, Any] = {"slurm.job.id": job_id, "slurm_bridge.end": how, WORKLOAD: key}
        self._span("released", trace.set_span_in_context(NonRecordingSpan(root)), event.began, event.at, keys)
        keys |= {"k8s.namespace.name": pod.namespace, "k8s.pod.name": pod.name, "k8s.pod.uid": pod.uid}
        self._ids.next_trace, self._ids.next_span = root.trace_id, root.span_id
        self._span(f"workload {pod.full_name}", caller, pod.created, event.at, keys)

    def _span(self, name: str, context: Context, start: float, end: float, attributes: dict[str, Any]) -> None:
        began = _nanoseconds(start)
        if self._keeps:
            self.recent.add(attributes[WORKLOAD], Span(name, began / 1e9, max(began, _nanoseconds(end)) / 1e9))
        if not self._exports:
            return
        span = self._tracer.start_span(name, context, start_time=began, attributes=attributes)
        span.end(max(began, _nanoseconds(end)))


def _nanoseconds(at: float) -> int:
    """The time in nanoseconds, as a span can carry it: 0 if it is before 1970 or not set, at most the year 2262."""
    return int(min(at, LATEST_S) * 1e9) if at > 0 else 0


def _remember(kept: dict[Any, Any], uid: str | int, what: Any) -> None:
    """Bounded: the oldest goes first."""
    kept[uid] = what
    while len(kept) > MAX_FIRST_SEEN:
        del kept[next(iter(kept))]


def _contexts(pod: Pod, world: World, key: str) -> tuple[Context, SpanContext]:
    """The parent of the workload's root span, and the root span itself.

    If the pod names the trace of a caller, that is used; otherwise the trace id is derived from the workload's key.  The id
    of the root span always is, so that its children can be sent before it, also by an earlier process.
    """
    own = names.traceparent(world.cluster, key)
    said = pod.annotations.get(names.TRACEPARENT, "")
    _, own_trace, own_span, _ = own.split("-")
    if said == own or not _well_formed(said):
        return Context(), SpanContext(int(own_trace, 16), int(own_span, 16), is_remote=True, trace_flags=TraceFlags(1))
    _, trace_id, span_id, _ = said.split("-")
    caller = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(1))
    root = SpanContext(caller.trace_id, int(own_span, 16), is_remote=True, trace_flags=TraceFlags(1))
    return trace.set_span_in_context(NonRecordingSpan(caller)), root


def _well_formed(traceparent: str) -> bool:
    fields = traceparent.split("-")
    if [len(part) for part in fields] != [2, 32, 16, 2]:
        return False
    try:
        return all(int(part, 16) >= 0 for part in fields) and int(fields[1], 16) > 0 and int(fields[2], 16) > 0
    except ValueError:
        return False


def _level(event: ActionEnded) -> int:
    """DEBUG for an ordinary refusal (a full partition), else WARNING."""
    expected = event.outcome is Outcome.REFUSED and isinstance(event.action, act.AllocateNow | act.NudgeScheduler)
    return logging.DEBUG if expected else logging.WARNING
