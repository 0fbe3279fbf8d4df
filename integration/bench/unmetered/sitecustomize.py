"""A bridge that observes no metrics: Python imports this file from PYTHONPATH.

Only the benchmark uses it, to compare bursts with and without metrics; the bridge itself cannot be told to leave them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import Histogram

from bridge import latency, telemetry

NO_LABELS: latency.Labels = ("", "")


def _nothing(*_: Any) -> None:
    """Observe nothing."""


def _no_hook(*_: Any) -> Callable[[str, float, str], None]:
    return _nothing


for owner, name, instead in (
    (latency.Latency, "bound", _nothing),
    (latency.Latency, "submitted", _nothing),
    (latency.Latency, "runs", _nothing),
    (latency.Latency, "labels_of", lambda *_: NO_LABELS),
    (latency.Latency, "labels_of_spec", lambda *_: NO_LABELS),
    (Histogram, "observe", _nothing),
    (telemetry.Telemetry, "_trace_id", lambda *_: ""),  # only exemplars need it
    (telemetry.Telemetry, "on_call", _no_hook),
):
    setattr(owner, name, instead)
