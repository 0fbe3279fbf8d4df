"""Sends spans by OTLP/HTTP, in batches, from a thread of its own; the standard OTEL_* variables apply (docs/tracing.md).

The SDK's tracer would choose span ids at random.  Here the ids are given, so spans are made as values (`Finished`), and
the SDK's sampler, batch processor and exporter do the rest.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from bridge.tracing.delivery import Delivery, lower
from bridge.tracing.finished import Attributes, Finished
from scheduler.model.trace_context import TraceContext, WorkloadTrace

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
QUEUE = "OTEL_BSP_MAX_QUEUE_SIZE"
QUEUE_MOST = 20_000  # spans that wait for the Collector, about 1 kB each, if QUEUE is not set; the oldest are dropped
log = logging.getLogger("slurm-bridge")


def without_password(url: str) -> str:
    """The URL without the user and password that it may have."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no URL
        return "the Collector"
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def exporter_of_environment() -> SpanExporter | None:
    """An exporter as the OTEL_* variables ask for it; None: they ask for none."""
    given = os.environ
    off = given.get("OTEL_SDK_DISABLED", "").lower() == "true" or given.get("OTEL_TRACES_EXPORTER") == "none"
    if off or not any(given.get(name) for name in ENDPOINTS):
        return None
    if (protocol := next(filter(None, map(given.get, PROTOCOLS)), "http/protobuf")) != "http/protobuf":
        log.warning("traces are sent by http/protobuf (port 4318), not by %s, which the environment asks for", protocol)
    # Imported late: it loads an HTTP client and protobuf, which are needed for an export alone.
    from bridge.tracing import otlp

    lower("opentelemetry.exporter")
    where = next(filter(None, map(given.get, reversed(ENDPOINTS))), "")
    return Delivery(otlp.exporter, without_password(where))


@dataclass(frozen=True, slots=True)
class Destination:
    """The trace that spans belong to, as the SDK knows it.

    root     its root span, which is the parent of most spans
    sampled  False if the sampler drops the trace
    """

    root: SpanContext
    sampled: bool


class SpanExport:
    """Makes and sends spans.  exporter: None: nothing is sent"""

    def __init__(self, exporter: SpanExporter | None, resource: Resource) -> None:
        self.on = exporter is not None
        self._exporter = exporter
        self._resource = resource
        self._sampler = TracerProvider(resource=resource, shutdown_on_exit=False).sampler
        most = None if os.environ.get(QUEUE) else QUEUE_MOST
        self._processor = BatchSpanProcessor(exporter, max_queue_size=most) if exporter is not None else None

    def destination(self, trace: WorkloadTrace) -> Destination:
        """The same for all spans of a workload: samplers decide by the caller and the trace id."""
        root = SpanContext(int(trace.root.trace_id, 16), int(trace.root.span_id, 16), True, _SAMPLED)
        if not self.on or (trace.caller is None and self._sampler is DEFAULT_ON):
            return Destination(root, sampled=self.on)
        parent = set_span_in_context(NonRecordingSpan(_context(trace.caller))) if trace.caller is not None else None
        result = self._sampler.should_sample(parent, root.trace_id, "workload")
        return Destination(root, sampled=result.decision is Decision.RECORD_AND_SAMPLE)

    def send(
        self,
        to: Destination,
        name: str,
        span_id: int,
        parent_id: int,
        start: float,
        end: float,
        attributes: Attributes,
        *,
        links: tuple[TraceContext, ...] = (),
        error: str | None = None,
    ) -> None:
        """Queue one span.

        parent_id   0: none
        start, end  epoch seconds
        error       what went wrong, in words; None: nothing did
        """
        if self._processor is None or not to.sampled:
            return
        span = Finished(self._resource, to.root, name, span_id, parent_id, start, end, attributes, links, error)
        self._processor.on_end(span)  # type: ignore[arg-type]  # it wants the SDK's span, of which it reads `context`

    @property
    def dropped(self) -> int:
        """The number of spans that the Collector did not take."""
        return self._exporter.dropped if isinstance(self._exporter, Delivery) else 0

    def close(self) -> None:
        """Send what waits; blocks."""
        if self._processor is not None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]


_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def _context(span: TraceContext) -> SpanContext:
    return SpanContext(int(span.trace_id, 16), int(span.span_id, 16), True, TraceFlags(span.flags))
