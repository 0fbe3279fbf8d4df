"""W3C trace contexts: which trace a workload belongs to (O3).

A workload has a trace of its own, whose ids follow from its key (`names.traceparent`).  If its pods name the trace of a
caller, the workload continues that trace: its root span is a child of the caller's span, and keeps its own span id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

MOST_CALLERS = 128  # of one workload: so many links has a span at most by default in OpenTelemetry
SAMPLED = 1  # the flag that says that the caller records its trace
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class TraceContext(NamedTuple):
    """A span, as a `traceparent` names it: 32 and 16 hexadecimal digits, not all zero, and the flags."""

    trace_id: str
    span_id: str
    flags: int = SAMPLED

    def __str__(self) -> str:
        """The `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


class WorkloadTrace(NamedTuple):
    """The trace of a workload.

    root    its root span
    caller  the parent of the root span; None: the workload's trace is its own
    others  further spans that pods of the workload name, at most MOST_CALLERS in all
    """

    root: TraceContext
    caller: TraceContext | None = None
    others: tuple[TraceContext, ...] = ()


@lru_cache(1024)
def parsed(traceparent: str) -> TraceContext | None:
    """The span that the text names; None: the text is no `traceparent`."""
    found = _FORM.fullmatch(traceparent)
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return TraceContext(found[1], found[2], int(found[3], 16))


def trace_of(own: str, said: Iterable[str]) -> WorkloadTrace:
    """The trace of a workload.  own: its own `traceparent`; said: the values of `traceparent` on its pods.

    Of several callers the first in the order of their texts counts, so that the order of the pods does not matter.
    """
    root = TraceContext(own[3:35], own[36:52])  # `own` has the form of names.traceparent
    texts = {text for text in said if text != own}
    callers = list(islice(filter(None, map(parsed, sorted(texts))), MOST_CALLERS))
    if not callers:
        return WorkloadTrace(root)
    caller, *others = callers
    return WorkloadTrace(TraceContext(caller.trace_id, root.span_id, caller.flags), caller, tuple(others))
