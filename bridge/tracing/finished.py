"""A finished span, as the loop hands it to the thread that sends (otlp.py makes the request)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.resources import Resource

from scheduler.model.trace_context import TraceContext

Attributes = Mapping[str, Any]  # to strings, numbers, and tuples of strings
LATEST_S = 9.2e9  # times of a span are nanoseconds in 64 bits, and some readers take the first bit for a sign

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
    """The time in nanoseconds, as a span can carry it: 0 if it is before 1970 or not set, at most the year 2262."""
    return int(min(at, LATEST_S) * 1e9) if at > 0 else 0
