"""What the bridge says about a Collector that does not take spans."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from bridge.tracing.delivery import Delivery, lower
from bridge.tracing.export import without_password


class Collector(SpanExporter):
    """Takes spans, or not."""

    takes = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        return SpanExportResult.SUCCESS if self.takes else SpanExportResult.FAILURE


def test_a_collector_that_takes_no_spans_is_reported_once_and_so_is_its_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector = Collector()
    delivery = Delivery(collector, "http://collector:4318")
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
