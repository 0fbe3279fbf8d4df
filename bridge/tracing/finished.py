"""A finished span, as the loop hands it to the thread that sends (otlp.py makes the request)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import SpanContext

from scheduler.model.trace_context import TraceContext

Attributes = Mapping[str, Any]  # to strings, numbers, and tuples of strings
LATEST_S = 9.2e9  # times of a span are nanoseconds in 64 bits, and some readers take the first bit for a sign


class Finished(NamedTuple):
    """A span.

    resource    the process that sends it
    context     the root span of its trace, which is sampled; the SDK's processor looks at that alone
    parent_id   0: none
    start, end  epoch seconds
    error       what went wrong, in words; None: nothing did
    """

    resource: Resource
    context: SpanContext
    name: str
    span_id: int
    parent_id: int
    start: float
    end: float
    attributes: Attributes
    links: tuple[TraceContext, ...]
    error: str | None


def nanoseconds(at: float) -> int:
    """The time in nanoseconds, as a span can carry it: 0 if it is before 1970 or not set, at most the year 2262."""
    return int(min(at, LATEST_S) * 1e9) if at > 0 else 0
