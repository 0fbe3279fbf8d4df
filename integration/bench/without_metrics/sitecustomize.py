"""A bridge that observes no metric: Python imports this file at its start if its folder is in PYTHONPATH.

Nothing but the benchmark uses it, to measure what metrics cost.  The bridge itself always counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge import latency, telemetry


def _nothing(*_given: Any, **_named: Any) -> None:
    """Observe nothing."""


def _hook(_telemetry: telemetry.Telemetry, _side: str) -> Callable[[str, float, str], None]:
    return _nothing


latency.Latency.bound = latency.Latency.submitted = latency.Latency.runs = _nothing  # type: ignore[method-assign]
telemetry.Telemetry.on_call = _hook  # type: ignore[method-assign]
telemetry.Histogram.observe = _nothing
telemetry.Telemetry._trace_id = lambda *_given: ""  # type: ignore[method-assign]  # only exemplars need it
