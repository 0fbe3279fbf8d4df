"""A bridge that measures the processor time of its metrics and traces: Python imports this file from PYTHONPATH.

Only the benchmark uses it.  Two runs of one burst differ by more than metrics and traces cost.  So their time is taken within
one run: each call that observes a metric or makes a span is timed, and so is each sending.  The time of the timing counts,
too.  The sums are metrics themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from prometheus_client import Histogram

from bridge import latency, telemetry
from bridge.tracing.delivery import Delivery
from bridge.tracing.recorder import Recorder

METRICS, TRACES, SENDING = KINDS = ("metrics", "traces", "sending")

_spent_s = dict.fromkeys(KINDS, 0.0)
_inside: set[str] = set()


def _timed(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def timed(*given: Any) -> Any:
        if kind in _inside:  # an outer call is timed
            return call(*given)
        _inside.add(kind)
        began = time.thread_time()
        try:
            return call(*given)
        finally:
            _spent_s[kind] += time.thread_time() - began
            _inside.discard(kind)

    return timed


def _with_own_metrics(make: Callable[..., None]) -> Callable[..., None]:
    @wraps(make)
    def made(self: telemetry.Telemetry, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        what = "processor time of metrics, of traces, and of sending traces"
        self.gauge("bench_cpu_seconds", what, lambda: [(_spent_s[kind], {"of": kind}) for kind in KINDS])
        hook = self.on_call
        self.on_call = lambda side: _timed(METRICS, hook(side))  # type: ignore[method-assign]

    return made


for kind, owner, name in (
    (METRICS, latency.Latency, "bound"),
    (METRICS, latency.Latency, "submitted"),
    (METRICS, latency.Latency, "runs"),
    (METRICS, latency.Latency, "labels_of"),
    (METRICS, latency.Latency, "labels_of_spec"),
    (METRICS, Histogram, "observe"),
    (METRICS, telemetry.Telemetry, "_trace_id"),  # only exemplars need it
    (TRACES, Recorder, "seen"),
    (TRACES, Recorder, "ended"),
    (SENDING, Delivery, "export"),  # in a thread of its own
):
    setattr(owner, name, _timed(kind, getattr(owner, name)))
telemetry.Telemetry.__init__ = _with_own_metrics(telemetry.Telemetry.__init__)  # type: ignore[method-assign]
