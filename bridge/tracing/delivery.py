"""Logs that the Collector does not take spans, once, and that it takes spans again; also spans that cannot be encoded.

The SDK's exporter logs each attempt, with names of Python classes.  These lines go to the debug log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from bridge.tracing.environment import without_headers

LeaveOut = Callable[[str, Exception], None]  # receives the name of a span that cannot be encoded, and why

log = logging.getLogger("slurm-bridge")


class Delivery(SpanExporter):
    """Passes spans to another exporter, and logs when that exporter begins to fail and when it works again.

    exporter   makes the other exporter; its argument is `leave_out`
    where      the endpoint, for the log
    dropped    how many spans were not taken by the Collector, or could not be encoded
    """

    def __init__(self, exporter: Callable[[LeaveOut], SpanExporter], where: str) -> None:
        self._exporter = exporter(self.leave_out)
        self._where = where
        self._fails = False
        self._has_left_out = False
        self.dropped = 0

    def leave_out(self, name: str, error: Exception) -> None:
        """Count a span that cannot be encoded.  The first is logged with its traceback, the others for `log_level: debug`."""
        self.dropped += 1
        log.log(
            logging.DEBUG if self._has_left_out else logging.ERROR,
            "an error of slurm-bridge itself, please report it: a span %r cannot be sent and is dropped; the others are sent",
            name,
            exc_info=error,
        )
        self._has_left_out = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - these spans are dropped, which is counted and logged
            log.debug("traces: the exporter failed: %s: %s", type(error).__name__, without_headers(str(error)))
            result = SpanExportResult.FAILURE
        fails = result is not SpanExportResult.SUCCESS
        if fails:
            self.dropped += len(spans)
        if fails != self._fails:
            self._fails = fails
            if fails:
                log.warning(
                    "traces: %s does not take spans, so they are dropped; pods and jobs go on. Look at the Collector, and at "
                    "the variables OTEL_EXPORTER_OTLP_*; `log_level: debug` shows each attempt",
                    self._where,
                )
            else:
                log.warning("traces: %s takes spans again", self._where)
        return result

    def shutdown(self) -> None:
        """See SpanExporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See SpanExporter."""
        return self._exporter.force_flush(timeout_millis)


class ToDebugLog(logging.Handler):
    """Writes the lines of another logger to the debug log."""

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        log.debug("%s", without_headers(record.getMessage()))


def lower(logger: str) -> None:
    """Let the lines of that logger go to the debug log."""
    found = logging.getLogger(logger)
    found.propagate = False
    found.handlers = [ToDebugLog()]
