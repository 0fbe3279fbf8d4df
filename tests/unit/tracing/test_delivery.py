"""What a Collector gets from the bridge, and what the bridge says about a Collector that does not take spans."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from bridge.tracing.delivery import Delivery, lower
from bridge.tracing.export import SpanExport, exporter_of_environment, without_password
from bridge.tracing.otlp import request
from bridge.tracing.span import Spans, spans_of
from integration.otlp import receiver
from tests.traces import Backend


class Collector(SpanExporter):
    """Takes spans, or not.

    batches   how many spans it was given each time
    took      it was given spans
    goes_on   it answers
    """

    def __init__(self) -> None:
        self.takes = True
        self.batches: list[int] = []
        self.took, self.goes_on = Event(), Event()
        self.goes_on.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        self.batches.append(len(spans))
        self.took.set()
        self.goes_on.wait(timeout=60)
        return SpanExportResult.SUCCESS if self.takes else SpanExportResult.FAILURE


def exporting(exporter: SpanExporter) -> tuple[SpanExport, Spans]:
    """What sends spans of a workload to that exporter."""
    export = SpanExport(exporter, Resource({"service.instance.id": "here"}))
    return export, spans_of(export, "cluster", "key", ())


def test_a_collector_gets_spans_with_all_that_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"text": "ä", "number": 1, "part": 1.5, "yes": True, "list": ("a", "b")}
    with receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        export = SpanExport(exporter_of_environment(), Resource({"service.instance.id": "here"}))
        spans = spans_of(export, "cluster", "key", ())
        spans.send("run", (), 10.0, 12.5, about, error="it failed")
        spans.send_root("workload", 1.0, 0.5, {}, None)
        export.close()
    run, root = collector.spans
    assert (run.start, run.end, run.attributes, run.error, run.process) == (10.0, 12.5, about, "it failed", "here")
    assert (root.start, root.end, root.attributes, root.error) == (1.0, 1.0, {}, None), "no negative duration"
    assert (run.parent, root.parent) == (root.id, "")
    assert [type(value) for value in run.attributes.values()] == [str, int, float, bool, tuple]


@pytest.mark.parametrize("bad", ["\udce4", 2**70, {"a": 1}, object()], ids=["text", "number", "mapping", "object"])
def test_a_span_that_cannot_be_encoded_is_dropped_and_the_others_of_its_batch_are_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, bad: object
) -> None:
    """One attribute lost all spans that were sent with it."""
    with receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        export = SpanExport(exporter_of_environment(), Resource({"service.instance.id": "here"}))
        spans = spans_of(export, "cluster", "key", ())
        spans.send("create", (), 10.0, 11.0, {"k8s.pod.name": "good"})
        spans.send("run", (), 11.0, 12.0, {"k8s.pod.name": bad})
        spans.send("run", ("b",), 11.0, 12.0, {"k8s.pod.name": bad})
        spans.send("release", (), 12.0, 13.0, {})
        export.close()
    assert [each.name for each in collector.spans] == ["create", "release"]
    assert export.dropped == 2
    [said] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "a span 'run' cannot be sent and is dropped; the others are sent" in said.getMessage()
    assert said.exc_info is not None


@pytest.mark.parametrize("length", [0, 127, 128, 16_383, 16_384, 300_000])
def test_texts_of_any_length_arrive(length: int) -> None:
    about = {"k8s.pod.name": "n" * length, "slurm_bridge.images": ("i" * length, "b")}
    backend = Backend()
    export = SpanExport(Collector(), Resource({"service.instance.id": "h" * length}))
    span = (export.resource, b"t" * 16, "create", 1, 2, 10.0, 11.0, about, (), "e" * length)
    backend.takes(ExportTraceServiceRequest.FromString(request([span, span])))
    export.close()
    first, second = backend.sent
    assert first == second
    assert (first.attributes, first.error, first.process) == (about, "e" * length, "h" * length)


def test_spans_are_sent_in_batches_before_the_delay_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "3")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    collector = Collector()
    export, spans = exporting(collector)
    for number in range(7):
        spans.send("run", (number,), 1.0, 2.0, {})
        if number == 3:
            assert collector.took.wait(timeout=60)
    export.close()
    assert sum(collector.batches) == 7
    assert max(collector.batches) <= 3


def test_spans_that_cannot_wait_for_the_collector_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    collector = Collector()
    collector.goes_on.clear()
    export, spans = exporting(collector)
    for number in range(4):
        spans.send("run", (number,), 1.0, 2.0, {})
    assert collector.took.wait(timeout=60), "the Collector has a batch, and does not answer"
    for number in range(10):
        spans.send("run", (number,), 1.0, 2.0, {})
    assert export.dropped == 6
    collector.goes_on.set()
    export.close()
    assert collector.batches == [4, 4]


def test_a_variable_that_is_no_number_is_reported_and_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "5s")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "9" * 20)
    collector = Collector()
    export, spans = exporting(collector)
    spans.send("run", (), 1.0, 2.0, {})
    export.close()
    assert collector.batches == [1]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "OTEL_BSP_SCHEDULE_DELAY=5s",
        "OTEL_BSP_MAX_QUEUE_SIZE=0",
        f"OTEL_BSP_MAX_EXPORT_BATCH_SIZE={'9' * 20}",
    ]


def test_an_exporter_that_raises_is_reported_as_a_collector_that_takes_no_spans(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Collector):
        """Fails in a way that the SDK does not expect."""

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            """See SpanExporter."""
            raise ValueError("no URL")

    export, spans = exporting(Delivery(lambda _leave_out: Broken(), "http://collector:4318"))
    spans.send("run", (), 1.0, 2.0, {})
    export.close()
    assert export.dropped == 1
    [said] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said.startswith("traces: http://collector:4318 does not take spans")


def test_a_collector_that_takes_no_spans_is_reported_once_and_so_is_its_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector = Collector()
    delivery = Delivery(lambda _leave_out: collector, "http://collector:4318")
    batch = [ReadableSpan("create")] * 3
    for takes in (True, False, False, True):
        collector.takes = takes
        delivery.export(batch)
    assert delivery.dropped == 6
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith(
        "traces: http://collector:4318 does not take spans, so they are dropped; pods and jobs go on."
    )
    assert second == "traces: http://collector:4318 takes spans again"


@contextmanager
def answering(head: bytes, body: bytes, over: Event) -> Iterator[str]:
    """A server that is no Collector: its answer has that head, and that body again and again until the client closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(2**16)
                try:
                    peer.sendall(head + b"\r\n\r\n")
                    while body:
                        peer.sendall(body)
                        over.wait(0.05 if len(body) == 1 else 0)
                except OSError:
                    over.set()

        thread = Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(timeout=60)
        assert not thread.is_alive()


@pytest.mark.parametrize("body", [b"x", b"x" * 2**16], ids=["slow", "long"])
def test_an_answer_without_an_end_takes_no_memory_and_holds_nothing_back(
    monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    over = Event()
    with answering(b"HTTP/1.1 200 OK", body, over) as endpoint:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        export = SpanExport(exporter_of_environment(), Resource({}))
        spans_of(export, "cluster", "key", ()).send("run", (), 1.0, 2.0, {})
        export.close()
        assert over.wait(60), "the bridge closed the connection"
    assert export.dropped == 1


def test_spans_that_are_redirected_elsewhere_count_as_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"HTTP/1.1 308 Permanent Redirect\r\nLocation: https://127.0.0.1/v1/traces\r\nContent-Length: 0"
    with answering(head, b"", Event()) as endpoint:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        export = SpanExport(exporter_of_environment(), Resource({}))
        spans_of(export, "cluster", "key", ()).send("run", (), 1.0, 2.0, {})
        export.close()
    assert export.dropped == 1


def test_attempts_of_the_exporter_are_in_the_debug_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    lower("opentelemetry.exporter")
    with caplog.at_level(logging.DEBUG, "slurm-bridge"):
        logging.getLogger("opentelemetry.exporter.otlp").warning("Transient error %s", "HTTPConnectionPool")
    assert [(record.name, record.levelname) for record in caplog.records] == [("slurm-bridge", "DEBUG")]


def test_the_log_has_no_password_of_an_endpoint() -> None:
    assert without_password("https://bridge:secret@collector:4318/v1/traces") == "https://collector:4318/v1/traces"
    assert without_password("http://collector:4318") == "http://collector:4318"
    assert without_password("http://[bridge:secret@collector") == "the Collector"
