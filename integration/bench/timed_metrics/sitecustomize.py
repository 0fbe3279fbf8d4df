"""A bridge that also says how much processor time its metrics take: Python imports this file if its folder is in PYTHONPATH.

Only the benchmark uses it.  Two runs differ by more than metrics cost, so the time is taken within one run: each call that
observes a metric is timed, which is included in what it costs.  The sum is a metric itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from prometheus_client import Histogram

from bridge import latency, telemetry

METRIC = "bench_metrics_cpu_seconds"

_spent_s = 0.0
_inside = False


def _timed(observe: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(observe)
    def timed(*given: Any) -> Any:
        global _spent_s, _inside
        if _inside:  # an outer call is timed
            return observe(*given)
        _inside, began = True, time.thread_time()
        try:
            return observe(*given)
        finally:
            _spent_s += time.thread_time() - began
            _inside = False

    return timed


def _with_own_metric(make: Callable[..., None]) -> Callable[..., None]:
    @wraps(make)
    def made(self: telemetry.Telemetry, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        self.gauge(METRIC, "processor time of metrics", lambda: [(_spent_s, {})])
        hook = self.on_call
        self.on_call = lambda side: _timed(hook(side))  # type: ignore[method-assign]

    return made


for owner, name in (
    (latency.Latency, "bound"),
    (latency.Latency, "submitted"),
    (latency.Latency, "runs"),
    (latency.Latency, "labels_of"),
    (latency.Latency, "labels_of_spec"),
    (Histogram, "observe"),
    (telemetry.Telemetry, "_trace_id"),  # only exemplars need it
):
    setattr(owner, name, _timed(getattr(owner, name)))
telemetry.Telemetry.__init__ = _with_own_metric(telemetry.Telemetry.__init__)  # type: ignore[method-assign]
