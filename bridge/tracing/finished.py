"""A finished span, as the loop passes it to the thread that sends spans; otlp.py makes the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.resources import Resource

from scheduler.model.trace_context import TraceContext

Attributes = Mapping[str, Any]  # to strings, numbers, and tuples of strings
LATEST_S = 9.2e9  # a time is nanoseconds in 64 bits, and some readers take the highest bit for a sign

# A plain tuple: each pod has a dozen spans, and a NamedTuple takes six times as long to make.
Finished = tuple[
    Resource,  # the process that sends it
    bytes,  # the id of its trace
    str,  # its name
    int,  # its id
    int,  # the id of its parent; 0: none
    float,  # when it began, epoch seconds
    float,  # when it ended
    Attributes,
    tuple[TraceContext, ...],  # links
    str | None,  # what went wrong, in words; None: nothing did
]


def nanoseconds(at: float) -> int:
    """Epoch seconds as nanoseconds in the range of a span: 0 for a time before 1970, at most the year 2261."""
    return int(min(at, LATEST_S) * 1e9) if at > 0 else 0
