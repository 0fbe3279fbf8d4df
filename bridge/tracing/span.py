"""The spans of one workload: their ids, which follow from the workload's key, and their parents.

workload (of a gang: gang)
 ├─ create, gather, submit          create → submission of the job
 │       └─ queue …                 of former jobs of the workload
 ├─ queue                           submission → grant
 │   └─ Resources, Priority, …      each of Slurm's reasons in turn
 ├─ grant, bind, start, run         of a gang below a span `pod` for each member
 │               └─ kubelet, sandbox, init, containers
 └─ release                         the end of the last pod → the end of the job
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from bridge.tracing.export import Destination, SpanExport
from bridge.tracing.finished import Attributes
from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.model.trace_context import TraceContext, WorkloadTrace, trace_of

WORKLOAD = "slurm_bridge.workload"  # the key of the workload
JOB = "slurm.job.id"
NOTHING: Attributes = {}


@dataclass(frozen=True, slots=True)
class Spans:
    """Sends the spans of one workload.  root: the id of its root span"""

    key: str
    trace: WorkloadTrace
    root: int
    to: Destination
    export: SpanExport

    def id(self, step: str, *which: object) -> int:
        """The id of a span: the same in every process.  The id of the root follows from the workload alone."""
        return self.root ^ _mark(step, which)

    def send(
        self,
        name: str,
        which: tuple[object, ...],
        start: float,
        end: float,
        attributes: Attributes,
        *,
        parent: int = 0,
        error: str | None = None,
    ) -> None:
        """Send the span of a step.

        which   distinguishes steps of the same name
        parent  a span id; 0: the root span
        """
        span_id = self.id(name, *which)
        self.export.send(self.to, name, span_id, parent or self.root, start, end, attributes, error=error)

    def send_root(self, name: str, start: float, end: float, attributes: Attributes, error: str | None) -> None:
        """Send the span of the whole workload; it is a child of the caller's span, and linked to further callers."""
        caller = int(self.trace.caller.span_id, 16) if self.trace.caller is not None else 0
        links: tuple[TraceContext, ...] = self.trace.others
        self.export.send(self.to, name, self.root, caller, start, end, attributes, links=links, error=error)


@lru_cache(1024)  # most steps are of all workloads
def _mark(step: str, which: tuple[object, ...]) -> int:
    text = ".".join((step, *map(str, which)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def spans_of(export: SpanExport, cluster: str, key: str, pods: Iterable[Pod]) -> Spans:
    """The spans of a workload with these pods."""
    own = names.traceparent(cluster, key)
    trace = trace_of(own, (pod.annotations[names.TRACEPARENT] for pod in pods if names.TRACEPARENT in pod.annotations))
    return Spans(key, trace, int(trace.root.span_id, 16), export.destination(trace), export)
