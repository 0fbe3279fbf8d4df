"""The exporter of spans: the SDK's, with an encoder for `Finished`, by which a span takes a fifth of the time.

Each pod has a dozen spans, and the SDK makes some ten Python objects of each.  Here a span is encoded from a tuple, and
attributes that many spans share are encoded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, SpanFlags, Status
from opentelemetry.sdk.trace.export import SpanExporter

from bridge.tracing.delivery import LeaveOut
from bridge.tracing.finished import Finished, nanoseconds

SCOPE = "slurm-bridge"
KEPT = 4096  # encoded attributes
# The parent may be a span of a caller, or of a former process of the bridge.
OF_A_ROOT = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
OF_A_CHILD = OF_A_ROOT | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


def exporter(leave_out: LeaveOut) -> SpanExporter:
    """An exporter of `Finished`, as the OTEL_* variables say."""
    # The SDK has no other way to give its exporter an encoder.  A test sends spans by it to a receiver.
    vars(trace_exporter)["encode_spans"] = partial(request, leave_out=leave_out)
    return trace_exporter.OTLPSpanExporter()


def request(spans: Sequence[Finished], leave_out: LeaveOut | None = None) -> ExportTraceServiceRequest:
    """The request with these spans, at least one, which are all of one resource.

    leave_out   a span that cannot be encoded is given to it, and the others are sent; None: the exception is raised
    """
    made, resource = ExportTraceServiceRequest(), spans[0].resource
    of_resource = made.resource_spans.add(schema_url=resource.schema_url)
    of_resource.resource.attributes.extend(_encoded(resource.attributes))
    of_scope = of_resource.scope_spans.add()
    of_scope.scope.name = SCOPE
    for span in spans:
        number = len(of_scope.spans)
        try:
            _add(span, of_scope)
        except Exception as error:
            if leave_out is None:
                raise
            del of_scope.spans[number:]
            leave_out(span, error)
    return made


def _add(span: Finished, of_scope: ScopeSpans) -> None:
    began = nanoseconds(span.start)
    sent = of_scope.spans.add(
        trace_id=span.context.trace_id.to_bytes(16),
        span_id=span.span_id.to_bytes(8),
        name=span.name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=began,
        end_time_unix_nano=max(began, nanoseconds(span.end)),
        flags=OF_A_CHILD if span.parent_id else OF_A_ROOT,
    )
    if span.parent_id:
        sent.parent_span_id = span.parent_id.to_bytes(8)
    if span.attributes:
        sent.attributes.extend(_encoded(span.attributes))
    if span.error is not None:
        sent.status.code, sent.status.message = Status.STATUS_CODE_ERROR, span.error
    for link in span.links:
        trace_id, span_id = bytes.fromhex(link.trace_id), bytes.fromhex(link.span_id)
        sent.links.add(trace_id=trace_id, span_id=span_id, flags=OF_A_CHILD)


def _encoded(attributes: Mapping[str, Any]) -> list[KeyValue]:
    return [_attribute(key, value) for key, value in attributes.items()]


@lru_cache(KEPT, typed=True)  # typed: 1, 1.0 and True are three values
def _attribute(key: str, value: Any) -> KeyValue:
    return KeyValue(key=key, value=_value(value))


def _value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case str():
            return AnyValue(string_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case tuple() | list():
            return AnyValue(array_value=ArrayValue(values=map(_value, value)))
    raise TypeError(f"an attribute of a span is {value!r}")
