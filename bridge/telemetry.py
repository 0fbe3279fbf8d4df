"""Telemetry: metrics, one log line for each action, and the steps of the last workloads for the page (O2).

The latency histograms are in latency.py, the traces in tracing/.  Metrics carry no pod or job ids.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace.export import SpanExporter
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector

from bridge.exposition import scraped
from bridge.latency import IMMEDIATE, QUEUED, Labels, Latency
from bridge.latency_history import LatencyHistory
from bridge.stopping import TELEMETRY_S
from bridge.tracing.environment import sdk_reads
from bridge.tracing.export import SpanExport, exporter_of_environment
from bridge.tracing.finished import nanoseconds
from bridge.tracing.recorder import Recorder
from bridge.tracing.times import clocks_of, running_at
from scheduler import actions as act
from scheduler import names
from scheduler.actions import Action, Outcome
from scheduler.events import (
    AbsenceConfirmed,
    AccountingOutageBegan,
    ActionEnded,
    Event,
    OutageBegan,
    OutageEnded,
    PodDeleted,
    PodSeen,
    PodsListed,
    Scope,
    Side,
)
from scheduler.model.anomaly import OVERTAKEN, Anomaly
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.trace_context import trace_of
from scheduler.state.anomalies import held_back, hints_held_back
from scheduler.state.rivals import another_bridge
from scheduler.state.world import World

# The limits of the histograms' buckets.
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400)
REJECTED_EVERY_S = 10.0  # between two lines of the log about observations that are rejected for the same reason
MAX_FIRST_SEEN = 20_000  # entries of each dictionary that `_remember` fills
MAX_SPANS_A_TRACE = 32
log = logging.getLogger("slurm-bridge")


@dataclass(frozen=True, slots=True)
class Span:
    """One step of a workload, as the page shows it; epoch seconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class _Starting:
    """A bound pod that does not run yet.

    at        when it was bound, epoch seconds
    outcome   of its bind, as in bridge/latency.py
    key       of its workload
    trace_id  "": not known
    """

    at: float
    labels: Labels
    outcome: str
    key: str
    trace_id: str


class RecentSpans:
    """The steps of the last workloads, by workload key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._spans: OrderedDict[str, list[Span]] = OrderedDict()

    def add(self, key: str, span: Span) -> None:
        """Keep the step, unless the workload has MAX_SPANS_A_TRACE steps already."""
        kept = self._spans.setdefault(key, [])
        if len(kept) < MAX_SPANS_A_TRACE:
            kept.append(span)
        self._spans.move_to_end(key)
        while len(self._spans) > self._most:
            self._spans.popitem(last=False)

    def of(self, key: str) -> tuple[Span, ...]:
        """The spans of that workload, in the order in which they ended."""
        return tuple(self._spans.get(key, ()))


class _Meters(MeterProvider):
    """Metrics that OTEL_SDK_DISABLED does not switch off: it is about traces here, and alerts need the metrics."""

    def __init__(self, *readers: Any, **how: Any) -> None:
        super().__init__(*readers, **how)
        self._disabled = False  # the SDK has no other way; a test checks that this way works


class Telemetry:
    """The observer of the loop (loop.Observer), and the hooks of both clients.

    exporter   receives spans; None: the exporter that the environment configures (tracing/export.py)
    recent     number of workloads whose steps are kept in memory

    Raises ConfigError if the SDK does not accept a variable of the environment.
    """

    def __init__(
        self, exporter: SpanExporter | None = None, clock: Callable[[], float] = time.time, *, recent: int = 0
    ) -> None:
        self._clock = clock
        self._first_seen: dict[str, float] = {}
        self._starting: dict[str, _Starting] = {}  # by pod UID
        self._immediate: dict[int, None] = {}  # ids of jobs that got their nodes at their submission
        with sdk_reads():
            given = Resource.create()  # of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME
        named = not str(given.attributes[SERVICE_NAME]).startswith("unknown_service")
        resource = given if named else given.merge(Resource({SERVICE_NAME: "slurm-bridge"}))
        self._registry = CollectorRegistry()
        with sdk_reads():
            # A registry of its own, so that the metrics of two bridges in one process do not mix.
            reader = PrometheusMetricReader(registry=self._registry)
            self._meters = _Meters([reader], resource=resource, shutdown_on_exit=False)
            self._meter = self._meters.get_meter("slurm-bridge")
        self._make_instruments(self._meter)
        self._latency = Latency(self._registry, SECONDS)
        ProcessCollector(registry=self._registry)
        self._unreadable_logged: dict[str, str] = {}
        self.latencies = LatencyHistory()  # of binds
        self.recent = RecentSpans(recent)
        self._keeps_steps = recent > 0
        self._export = SpanExport(exporter or exporter_of_environment(), resource)
        help_text = "spans that the Collector did not take, or that could not wait for it, or that could not be encoded"
        self.counter("slurm_bridge_spans_dropped", help_text, lambda: [(self._export.dropped, {})])
        self._recorder = Recorder(self._export, clock, self._first_seen) if self._export.on else None
        self.outages: dict[str, str] = {}
        self.rejected: Counter[str] = Counter()  # answers rejected before they reach the core, by reason
        self._world: World | None = None  # of the last pass
        self._forget_logged()

    def _forget_logged(self) -> None:
        """Forget what the log said of the World: a replica that leads again has a new World, which knows nothing of that."""
        # By reason: how many rejected observations the log has mentioned, and when it did last.
        self._logged: dict[Anomaly, tuple[int, float]] = {}
        self._held_back = False
        self._accounting_outage: AccountingOutageBegan | None = None
        self._beside_another = False
        self._hints_held_back = False

    def _make_instruments(self, meter: Meter) -> None:
        # Of prometheus_client: an observation with OpenTelemetry takes five times as long, and each pod has several.
        self._calls = self._histogram(
            "slurm_bridge_call_seconds", "calls by side, operation and outcome", "side", "operation", "outcome"
        )
        self._passes = self._histogram("slurm_bridge_pass_seconds", "one pass: news taken in, and decisions")
        self._lag = self._histogram(
            "slurm_bridge_loop_lag_seconds", "how long the oldest event of a pass waited for it"
        )
        self._grants_released = meter.create_counter(
            "slurm_bridge_grants_released", "1", "grants that could not be used"
        )
        self._conditions_written = meter.create_counter(
            "slurm_bridge_pod_conditions_written", "1", "conditions and events written on bound pods, by reason"
        )
        self._unreadable = meter.create_counter(
            "slurm_bridge_unreadable_items", "1", "items of lists that were left out"
        )
        # Counted here and read at each scrape: an OpenTelemetry counter takes ten times as long, and a pod has several.
        self._actions: Counter[tuple[str, str]] = Counter()
        self.counter("slurm_bridge_actions", "actions by kind and outcome", self._actions_so_far)
        self._events_dropped = 0
        help_text = "Kubernetes events that were not posted"
        self.counter("slurm_bridge_events_dropped", help_text, lambda: [(self._events_dropped, {})])

    def _histogram(self, name: str, help_text: str, *labels: str) -> Histogram:
        return Histogram(name, help_text, labels, registry=self._registry, buckets=SECONDS)

    def on_undecodable(self, side: Side) -> Callable[[str, str, str], None]:
        """The hook for items of lists that could not be read.  Each item is counted each time, and logged once."""

        def on_undecoded(list_name: str, which: str, why: str) -> None:
            self._unreadable.add(1, {"side": side.value, "list": list_name})
            if (key := f"{side.value} {list_name} {which}") not in self._unreadable_logged:
                _remember(self._unreadable_logged, key, why)
                log.warning(
                    "%s: %s: item %s cannot be read and is left out: %s",
                    side.value,
                    list_name,
                    which or "without a name",
                    why,
                )

        return on_undecoded

    def on_unsolicited(self) -> None:
        """Count that a connection to slurmrestd answered twice, or without a request."""
        self.rejected["doubled answer"] += 1

    def on_event_dropped(self) -> None:
        """Count a Kubernetes event that was not posted."""
        self._events_dropped += 1

    @property
    def traces(self) -> bool:
        """True if traces are sent."""
        return self._export.on

    # --- hooks ----------------------------------------------------------------------------------------------------

    def on_call(self, side: Side) -> Callable[[str, float, str], None]:
        """The hook for the calls of one client."""

        # `labels()` costs as much as an observation, so its results are kept.
        known: dict[tuple[str, str], Histogram] = {}

        def called(operation: str, seconds: float, outcome: str) -> None:
            if (series := known.get((operation, outcome))) is None:
                series = known[operation, outcome] = self._calls.labels(side.value, operation, outcome)
            series.observe(seconds)
            if outcome == "contracterror":  # a 404 without a Slurm error number, a text that is no JSON, …
                self.rejected[f"nonsense from {side.value.lower()}"] += 1

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
            self._export.close()
            self._meters.shutdown()

        sender = threading.Thread(target=send, name="telemetry", daemon=True)
        sender.start()
        sender.join(within_s)
        if sender.is_alive():
            log.warning("telemetry: not all could be sent within %g s", within_s)

    # --- Observer -------------------------------------------------------------------------------------------------

    def on_planned(self, action: Action, at: float) -> None:
        """Log one line for each action that changes something; reads go to the debug log."""
        level = logging.DEBUG if action.effect is act.Effect.NOTHING else logging.INFO
        if log.isEnabledFor(level):
            log.log(level, "%s %s: %s", type(action).__name__, action.subject, action.reason)

    def on_observed(self, event: Event, world: World) -> None:
        """Log when an outage begins or ends, and record the times at which a pod is first seen, starts, and is deleted."""
        if self._recorder is not None:
            self._recorder.on_observed(event, world)
        if isinstance(event, PodSeen):
            if event.scope is Scope.OURS:
                self._pod_seen(event.pod, world)
        elif isinstance(event, PodsListed):
            # The pods of the first list may have been seen long ago, by the process that led before.
            if event.scope is Scope.OURS and Scope.OURS in world.listed:
                for pod in event.pods:
                    self._pod_seen(pod, world, is_late=True)
        elif isinstance(event, PodDeleted):
            self._starting.pop(event.pod.uid, None)
            first_seen = self._first_seen.pop(event.pod.uid, None)
            if first_seen is not None and not event.pod.node:
                self._latency.note_deleted_unbound(event.at - event.pod.created)
        elif isinstance(event, OutageBegan):
            self.outages[event.side.value] = event.why
            log.warning("%s", event.why)
        elif isinstance(event, OutageEnded) and self.outages.pop(event.side.value, None) is not None:
            log.warning("%s answers again", event.side.value)
        elif isinstance(event, AbsenceConfirmed):
            log.warning(
                "an admin says that the jobs which Slurm lists no more are gone: their pods are ended, unless Slurm grants "
                "their nodes to them again"
            )

    def _pod_seen(self, pod: Pod, world: World, *, is_late: bool = False) -> None:
        """Note when a new pod is first seen, and when a bound pod starts.

        world     as it was before
        is_late   the pod may have changed long ago, while the watch was interrupted
        """
        if not pod.node:
            if pod.uid not in self._first_seen and pod.uid not in world.key_of_pod:
                _remember(self._first_seen, pod.uid, self._clock())
        elif self._starting and pod.phase is not PodPhase.PENDING:
            self._started(pod, world, is_late=is_late or pod.finished)

    def on_passed(self, world: World, took_s: float, lag_s: float) -> None:
        """Record how long the pass took; log what the scheduler rejects or holds back, and when it ceases to."""
        self._passes.observe(took_s)
        self._lag.observe(lag_s)
        if world is not self._world:
            self._world = world
            self._forget_logged()
        self._log_rejected(world)
        if bool(beside := another_bridge(world, self._clock())) != self._beside_another:
            self._beside_another = not self._beside_another
            log.warning("%s", beside or "no other slurm-bridge has been seen for a while")
        if (away := world.accounting_outage) != self._accounting_outage:
            self._accounting_outage = away
            log.warning("%s", away.why if away is not None else "slurmdbd answers again")
        if (world.held_back_since is not None) != self._held_back:
            self._held_back = not self._held_back
            log.warning(
                "%s", held_back(world) or "no job is missing any more: pods are ended again when their jobs are gone"
            )
        if (world.hints_held_back_since is not None) != self._hints_held_back:
            self._hints_held_back = not self._hints_held_back
            log.warning("%s", hints_held_back(world) or "the jobs that pods from before the start show are settled")

    def _log_rejected(self, world: World) -> None:
        """Log a line for each reason, at most one within REJECTED_EVERY_S; it has the number since the last line."""
        now = self._clock()
        for why, count in world.rejected.items():
            logged, at = self._logged.get(why, (0, float("-inf")))
            if count == logged or now < at + REJECTED_EVERY_S:
                continue
            new, level = count - logged, logging.DEBUG if why in OVERTAKEN else logging.WARNING
            log.log(level, "observation rejected: %s%s", why.value, f", {new:,} times" if new > 1 else "")
            self._logged[why] = count, now

    def on_ended(self, event: ActionEnded, world: World) -> None:
        """Count the action, log it if it failed, and add the steps that the page shows of a bind or of an end."""
        if self._recorder is not None:
            self._recorder.on_ended(event, world)
        kind = type(event.action).__name__
        self._actions[kind, event.outcome.value] += 1
        if event.outcome is not Outcome.DONE:
            why = event.refusal.message if event.refusal else ""
            log.log(_level(event), "%s %s: %s: %s", kind, event.action.subject, event.outcome.value, why)
            return
        match event.action:
            case act.AllocateNow() | act.SubmitJob() as submission:
                self._latency.note_submitted(self._latency.labels_of_spec(submission.spec, world.default_partition))
                if isinstance(submission, act.AllocateNow) and event.job_id is not None:
                    _remember(self._immediate, event.job_id, None)
            case act.BindPod() as bind:
                self._bound(bind, event, world)
            case act.CancelJob() as cancel:
                if cancel.pod_message:  # only the cancel of a grant that cannot be used has news for its pods
                    self._grants_released.add(1)
                if cancel.record:
                    self._add_step(cancel.key, "ended", event.began, event.at)
            case act.SetJobCondition() as written:
                self._conditions_written.add(1, {"reason": written.condition})
            case (act.DeletePod() | act.FailByDeadline()) as end:
                workload = world.workloads.get(end.key)
                job_id = workload.hint if workload and workload.hint is not None else 0
                job = world.placeholders.get(job_id)
                if job is None or not job.alive:  # the job ended first, which is the end of the workload
                    self._add_step(end.key, "ended", event.began, event.at)

    def _bound(self, bind: act.BindPod, event: ActionEnded, world: World) -> None:
        created = self._take_created(bind)
        labels = self._latency.labels_of(world.placeholders.get(bind.job_id), world.default_partition)
        self.latencies.record("created", event.at - created, event.at)
        if bind.granted is not None:
            self.latencies.record("granted", event.at - bind.granted, event.at)
        outcome = IMMEDIATE if bind.job_id in self._immediate else QUEUED
        workload = world.workloads.get(bind.key)
        pod = workload.pods.get(bind.uid) if workload else None
        if pod is None:
            self._latency.note_bound(bind, created, event.at, labels, outcome, "")
            return
        trace_id = self._trace_id(pod, bind.key, world)
        self._latency.note_bound(bind, created, event.at, labels, outcome, trace_id)
        _remember(self._starting, bind.uid, _Starting(event.at, labels, outcome, bind.key, trace_id))
        if self._keeps_steps:
            # Slurm's times are in whole seconds: a submission is never before the creation.
            asked = max(created, bind.asked) if bind.asked is not None else event.began
            granted = bind.granted if bind.granted is not None else event.began
            for name, start, end in (
                ("submitted", created, asked),
                ("granted", asked, granted),
                ("bound", granted, event.at),
            ):
                self._add_step(bind.key, name, start, end)

    def _started(self, pod: Pod, world: World, *, is_late: bool) -> None:
        """Record that the containers of a bound pod started, unless it failed and kubelet shows no start.

        is_late   the start is not news: the time counts that kubelet shows, if it shows one
        """
        starting = self._starting.pop(pod.uid, None)
        if starting is None or (pod.phase is PodPhase.FAILED and pod.times.running is None):
            return
        now = self._clock()
        shown = running_at(pod, clocks_of(world)) if is_late else None
        at = min(now, max(starting.at, shown)) if shown is not None else now
        self._latency.note_running(at - starting.at, starting.labels, starting.outcome, starting.trace_id)
        self._add_step(starting.key, "started", starting.at, at)

    def _trace_id(self, pod: Pod, key: str, world: World) -> str:
        """The id of the workload's trace, for exemplars."""
        own, said = names.traceparent(world.cluster, key), pod.annotations.get(names.TRACEPARENT)
        return trace_of(own, (said,) if said is not None else ()).root.trace_id

    def _add_step(self, key: str, name: str, start: float, end: float) -> None:
        """Keep a step for the page, with times that a browser can show."""
        if self._keeps_steps:
            began = nanoseconds(start)
            self.recent.add(key, Span(name, began / 1e9, max(began, nanoseconds(end)) / 1e9))

    def _actions_so_far(self) -> Iterable[tuple[float, dict[str, str]]]:
        return [(count, {"action": kind, "outcome": outcome}) for (kind, outcome), count in self._actions.items()]

    def _take_created(self, bind: act.BindPod) -> float:
        """When the pod was created; the time at which the watch showed it is forgotten.

        creationTimestamp has whole seconds.  So the time at which the watch showed the pod is used if it is near enough.
        """
        seen = self._first_seen.pop(bind.uid, None)
        return seen if seen is not None and 0 <= seen - bind.created < 1.5 else bind.created


def _remember(kept: dict[Any, Any], uid: str | int, entry: Any) -> None:
    """Add the entry, and remove the oldest entries if there are more than MAX_FIRST_SEEN."""
    kept[uid] = entry
    while len(kept) > MAX_FIRST_SEEN:
        del kept[next(iter(kept))]


def _level(event: ActionEnded) -> int:
    """DEBUG for an ordinary refusal (a full partition), else WARNING."""
    expected = event.outcome is Outcome.REFUSED and isinstance(event.action, act.AllocateNow | act.NudgeScheduler)
    return logging.DEBUG if expected else logging.WARNING
