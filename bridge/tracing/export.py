"""Sends spans by OTLP/HTTP, in batches, from a thread of its own; the standard OTEL_* variables apply (docs/tracing.md).

The SDK's tracer would choose span ids at random.  Here the ids are given, so spans are made as values (`ReadableSpan`), and
the SDK's sampler, batch processor and exporter do the rest.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from bridge.tracing.delivery import Delivery, lower
from scheduler.model.trace_context import TraceContext, WorkloadTrace

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
QUEUE = "OTEL_BSP_MAX_QUEUE_SIZE"
QUEUE_MOST = 20_000  # spans that wait for the Collector, about 1 kB each, if QUEUE is not set; the oldest are dropped
LATEST_S = 9.2e9  # times of a span are nanoseconds in 64 bits, and some readers take the first bit for a sign
Attributes = Mapping[str, Any]  # to strings, numbers, and tuples of strings
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
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    lower("opentelemetry.exporter")
    where = next(filter(None, map(given.get, reversed(ENDPOINTS))), "")
    return Delivery(OTLPSpanExporter(), without_password(where))


@dataclass(frozen=True, slots=True)
class Destination:
    """The trace that spans belong to, as the SDK knows it.

    root     its root span, which is the parent of most spans
    sampled  False if the sampler drops the trace
    """

    root: SpanContext
    sampled: bool

    def span(self, span_id: int, *, is_remote: bool = False) -> SpanContext:
        """A span of the trace."""
        return SpanContext(self.root.trace_id, span_id, is_remote, self.root.trace_flags)


class _Hashed(Resource):
    """A resource whose hash is known: the encoder asks for it with each span, and the SDK's own writes JSON each time."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other


class SpanExport:
    """Makes and sends spans.  exporter: None: nothing is sent"""

    def __init__(self, exporter: SpanExporter | None, resource: Resource) -> None:
        self.on = exporter is not None
        self._exporter = exporter
        self._resource = _Hashed(resource.attributes, resource.schema_url)
        self._scope = InstrumentationScope("slurm-bridge")
        self._sampler = TracerProvider(resource=resource, shutdown_on_exit=False).sampler
        most = None if os.environ.get(QUEUE) else QUEUE_MOST
        self._processor = BatchSpanProcessor(exporter, max_queue_size=most) if exporter is not None else None

    def destination(self, trace: WorkloadTrace) -> Destination:
        """The same for all spans of a workload: samplers decide by the caller and the trace id."""
        root = _context(trace.root._replace(flags=TraceFlags.SAMPLED))
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
        start, end  epoch seconds; end is not before start
        error       what went wrong, in words; None: nothing did
        """
        if self._processor is None or not to.sampled:
            return
        began = nanoseconds(start)
        parent = to.root if parent_id == to.root.span_id else to.span(parent_id, is_remote=True) if parent_id else None
        span = ReadableSpan(
            name,
            to.span(span_id),
            parent,
            self._resource,
            attributes,
            (),
            tuple(Link(_context(other)) for other in links) if links else (),
            SpanKind.INTERNAL,
            status=_OK if error is None else Status(StatusCode.ERROR, error),
            start_time=began,
            end_time=max(began, nanoseconds(end)),
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(span)

    @property
    def dropped(self) -> int:
        """The number of spans that the Collector did not take."""
        return self._exporter.dropped if isinstance(self._exporter, Delivery) else 0

    def close(self) -> None:
        """Send what waits; blocks."""
        if self._processor is not None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]


_OK = Status()


def _context(span: TraceContext) -> SpanContext:
    return SpanContext(int(span.trace_id, 16), int(span.span_id, 16), True, TraceFlags(span.flags))


def nanoseconds(at: float) -> int:
    """The time in nanoseconds, as a span can carry it: 0 if it is before 1970 or not set, at most the year 2262."""
    return int(min(at, LATEST_S) * 1e9) if at > 0 else 0
