"""Sends spans by OTLP/HTTP, in batches, from a thread of its own; the standard OTEL_* variables apply (docs/tracing.md).

The SDK's tracer chooses span ids at random, and with its batch processor a span takes five times as much time of the loop.
So spans are made as values (`Finished`) with given ids, and wait in a queue here.  The SDK's sampler and exporter do the
rest.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from urllib.parse import urlsplit, urlunsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from bridge.tracing.delivery import Delivery, lower
from bridge.tracing.environment import sdk_reads
from bridge.tracing.finished import Finished
from scheduler.model.trace_context import TraceContext, WorkloadTrace

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
# Variables of the SDK's batch processor, and what applies without them.
DELAY_MS = "OTEL_BSP_SCHEDULE_DELAY", 5_000
BATCH = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 2_048  # as soon as so many spans wait, they are sent
QUEUE = "OTEL_BSP_MAX_QUEUE_SIZE", 20_000  # spans that wait for the Collector, about 1 kB each; the oldest are dropped
MOST = 1_000_000_000  # a queue, and a thread that waits, take no numbers of any size
log = logging.getLogger("slurm-bridge")


def without_password(url: str) -> str:
    """The URL without user and password; "the Collector" if the text is no URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the Collector"
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def exporter_of_environment() -> SpanExporter | None:
    """The exporter that the OTEL_* variables configure; None: they configure none.  Raises ConfigError."""
    given = os.environ
    off = given.get("OTEL_SDK_DISABLED", "").lower() == "true" or given.get("OTEL_TRACES_EXPORTER") == "none"
    if off or not any(given.get(name) for name in ENDPOINTS):
        return None
    if (protocol := next(filter(None, map(given.get, PROTOCOLS)), "http/protobuf")) != "http/protobuf":
        log.warning("traces are sent by http/protobuf (port 4318), not by %s, which the environment asks for", protocol)
    # Imported late: it loads an HTTP client and protobuf, which are needed only for an export.
    from bridge.tracing import otlp

    where = next(filter(None, map(given.get, reversed(ENDPOINTS))), "")
    with sdk_reads():
        delivery = Delivery(otlp.exporter, without_password(where))
    lower("opentelemetry.exporter")  # from now on it logs attempts to send, and not its variables
    return delivery


class SpanExport:
    """The queue of finished spans, and the thread that sends them.

    exporter   None: nothing is sent
    resource   the process that sends the spans
    """

    def __init__(self, exporter: SpanExporter | None, resource: Resource) -> None:
        self.on = exporter is not None
        self.resource = resource
        self._exporter = exporter
        with sdk_reads():
            self._sampler = TracerProvider(resource=resource, shutdown_on_exit=False).sampler
        self._delay_s = _number(*DELAY_MS) / 1000
        most = _number(*QUEUE)
        self._batch = min(_number(*BATCH), most)
        self._waiting = deque[Finished](maxlen=most)  # thread-safe
        self._overflowed = 0  # spans that were dropped because the queue was full
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._send, name="traces", daemon=True)
        if exporter is not None:
            self._thread.start()

    def samples(self, trace: WorkloadTrace) -> bool:
        """True if the spans of the trace are to be sent.  The sampler decides by the caller and the trace id."""
        if not self.on or (trace.caller is None and self._sampler is DEFAULT_ON):
            return self.on
        parent = set_span_in_context(NonRecordingSpan(_context(trace.caller))) if trace.caller is not None else None
        result = self._sampler.should_sample(parent, int(trace.root.trace_id, 16), "workload")
        return result.decision is Decision.RECORD_AND_SAMPLE

    def add(self, span: Finished) -> None:
        """Put a span of a sampled trace into the queue.  If the queue is full, the oldest span is dropped."""
        waiting = self._waiting
        self._overflowed += len(waiting) == waiting.maxlen
        waiting.append(span)
        if len(waiting) >= self._batch and not self._wake.is_set():
            self._wake.set()

    def flush(self) -> None:
        """Send the spans that are in the queue now.  Blocks."""
        assert self._exporter is not None, "nothing waits"
        left = len(self._waiting)  # spans that come meanwhile are left for the next batch, which is larger then
        while left:
            number = min(left, self._batch)
            self._exporter.export([self._waiting.popleft() for _ in range(number)])  # type: ignore[misc]
            left -= number

    def _send(self) -> None:
        while not self._closing:
            self._wake.wait(self._delay_s)
            self._wake.clear()
            self.flush()

    @property
    def dropped(self) -> int:
        """The number of spans that were lost: the queue was full, or `Delivery` could not deliver them."""
        return self._overflowed + (self._exporter.dropped if isinstance(self._exporter, Delivery) else 0)

    def close(self) -> None:
        """Stop the thread, and send the spans that are in the queue.  Blocks."""
        if self._exporter is not None:
            self._closing = True
            self._wake.set()
            self._thread.join()
            self.flush()
            self._exporter.shutdown()


def _number(variable: str, otherwise: int) -> int:
    """The number from 1 to MOST in a variable of the environment; *otherwise* if it has none, and then it is logged."""
    said = os.environ.get(variable, "")
    if said.isascii() and said.isdecimal() and len(said) <= len(str(MOST)) and 1 <= int(said) <= MOST:
        return int(said)
    if said:
        log.warning("%s=%s: is no number from 1 to %s; %d is used", variable, said[:40], f"{MOST:,}", otherwise)
    return otherwise


def _context(span: TraceContext) -> SpanContext:
    return SpanContext(int(span.trace_id, 16), int(span.span_id, 16), True, TraceFlags(span.flags))
