"""What a Collector gets from the bridge, and what the bridge says about a Collector that does not take spans."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from bridge.tracing.delivery import Delivery, lower
from bridge.tracing.export import SpanExport, exporter_of_environment, without_password
from bridge.tracing.span import spans_of
from integration.otlp import receiver


class Collector(SpanExporter):
    """Takes spans, or not."""

    takes = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        return SpanExportResult.SUCCESS if self.takes else SpanExportResult.FAILURE


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


def test_attempts_of_the_exporter_are_in_the_debug_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    lower("opentelemetry.exporter")
    with caplog.at_level(logging.DEBUG, "slurm-bridge"):
        logging.getLogger("opentelemetry.exporter.otlp").warning("Transient error %s", "HTTPConnectionPool")
    assert [(record.name, record.levelname) for record in caplog.records] == [("slurm-bridge", "DEBUG")]


def test_the_log_has_no_password_of_an_endpoint() -> None:
    assert without_password("https://bridge:secret@collector:4318/v1/traces") == "https://collector:4318/v1/traces"
    assert without_password("http://collector:4318") == "http://collector:4318"
    assert without_password("http://[bridge:secret@collector") == "the Collector"
