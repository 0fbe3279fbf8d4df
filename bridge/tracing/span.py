"""The spans of one workload: their ids, which follow from the workload's key, and their parents.

workload (of a gang: gang)
 ├─ create, gather, submit          creation of the pod → submission of the job
 │       └─ queue …                 of former jobs of the workload
 ├─ queue                           submission → grant
 │   └─ Resources, Priority, …      each of Slurm's reasons in turn
 ├─ grant, bind, start, run         in a gang below a span `pod` for each member
 │               └─ kubelet, sandbox, init, containers
 └─ release                         the end of the last pod → the end of the job
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from bridge.tracing.export import SpanExport
from bridge.tracing.finished import Attributes
from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.model.trace_context import WorkloadTrace, trace_of

WORKLOAD = "slurm_bridge.workload"  # the key of the workload
JOB = "slurm.job.id"
NOTHING: Attributes = {}


class Spans(NamedTuple):
    """Sends the spans of one workload.

    root      the id of its root span
    sampled   False if the trace is dropped
    """

    trace: WorkloadTrace
    trace_id: bytes
    root: int
    sampled: bool
    export: SpanExport

    def id(self, step: str, *which: object) -> int:
        """The id of a span, which is the same in every process.  The id of the root span depends only on the workload."""
        return self.root ^ _hash(step, which)

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

        which       distinguishes steps of the same name
        start, end  epoch seconds
        parent      a span id; 0: the root span
        error       what went wrong, in words; None: nothing did
        """
        if self.sampled:
            span_id, parent = self.root ^ _hash(name, which), parent or self.root
            export = self.export
            export.add((export.resource, self.trace_id, name, span_id, parent, start, end, attributes, (), error))

    def send_root(self, name: str, start: float, end: float, attributes: Attributes, error: str | None) -> None:
        """Send the span of the whole workload; it is a child of the caller's span, and linked to further callers."""
        if self.sampled:
            caller = int(self.trace.caller.span_id, 16) if self.trace.caller is not None else 0
            links, export = self.trace.others, self.export
            export.add((export.resource, self.trace_id, name, self.root, caller, start, end, attributes, links, error))


@lru_cache(1024)  # most workloads have the same steps
def _hash(step: str, which: tuple[object, ...]) -> int:
    text = ".".join((step, *map(str, which)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def spans_of(export: SpanExport, cluster: str, key: str, pods: Iterable[Pod]) -> Spans:
    """The sender of the spans of a workload with these pods."""
    own = names.traceparent(cluster, key)
    trace = trace_of(own, [pod.annotations[names.TRACEPARENT] for pod in pods if names.TRACEPARENT in pod.annotations])
    root = trace.root
    return Spans(trace, bytes.fromhex(root.trace_id), int(root.span_id, 16), export.samples(trace), export)
