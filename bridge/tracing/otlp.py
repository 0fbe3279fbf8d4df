"""The exporter of spans: the SDK's, with an encoder that writes spans in the format of protobuf (protobuf.dev, "Encoding").

Each pod has a dozen spans, and the protobuf library takes twice as long as this encoder.  An encoded message is its encoded
fields, one after the other.  So the fields that many spans share, such as names and attributes, are encoded once, each as a
message with only this field.  For each span, only ids, times and lengths are encoded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as OfResource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, SpanFlags, Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter

from bridge.tracing.delivery import LeaveOut
from bridge.tracing.finished import Finished, nanoseconds

KEPT = 4096  # encoded attributes, and encoded lengths
MOST_ANSWER = 4096  # bytes of an answer that are read; the answer of a Collector has a few bytes
PROVIDERS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)
SCOPE = ScopeSpans(scope=InstrumentationScope(name="slurm-bridge")).SerializeToString()
# The parent may be a span of a caller, or of a former process of the bridge.
OF_A_ROOT = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
OF_A_CHILD = OF_A_ROOT | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
# Tags of fields: of the request, of a resource, of a scope, of a span, of an attribute, and of its value.
RESOURCE_SPANS, SCOPE_SPANS, SPANS, ATTRIBUTES, VALUE, TEXT = b"\x0a", b"\x12", b"\x12", b"\x4a", b"\x12", b"\x0a"
PARENT = b"\x22\x08"  # of a span, with the length
IDS_AND_TIMES = Struct("<2s16s2s8ssQsQ")  # each with its tag


class Request(bytes):
    """An encoded ExportTraceServiceRequest."""

    def SerializePartialToString(self) -> bytes:  # noqa: N802 - as the SDK calls it
        """The bytes."""
        return self


def exporter(leave_out: LeaveOut) -> SpanExporter:
    """An exporter of `Finished`, configured by the OTEL_* variables."""
    # The SDK has no other way to replace the encoder of its exporter.  A test checks that this way works.
    vars(trace_exporter)["encode_spans"] = partial(request, leave_out=leave_out)
    own_session = any(map(os.environ.get, PROVIDERS))
    return trace_exporter.OTLPSpanExporter(session=None if own_session else BriefAnswers())


class BriefAnswers(requests.Session):
    """Fails if an answer cannot be the answer of a Collector: a redirect, or a body that is long or slow.

    The SDK takes a redirect for success, and reads each body to its end.  An endless body would fill the memory, and a slow
    body would delay all later spans without a line in the log.
    """

    def send(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:
        """See requests.Session.  Raises also requests.exceptions.InvalidHeader and ContentDecodingError."""
        until = time.monotonic() + (how.get("timeout") or 0.0)
        with super().send(request, **{**how, "stream": True}) as answer:
            if answer.is_redirect:
                raise requests.exceptions.InvalidHeader("a redirect to another address")
            for number, _ in enumerate(answer.iter_content(1), start=1):
                if number > MOST_ANSWER or time.monotonic() > until:
                    raise requests.exceptions.ContentDecodingError(
                        "an answer that is longer or slower than a Collector's"
                    )
            return answer


def request(spans: Sequence[Finished], leave_out: LeaveOut | None = None) -> Request:
    """The request with these spans: at least one, all of one resource.

    leave_out   is called with a span that cannot be encoded, and the others are sent; None: the exception is raised
    """
    of_scope = [SCOPE]
    for span in spans:
        try:
            of_scope.append(_field(SPANS, _span(span)))
        except Exception as error:
            if leave_out is None:
                raise
            leave_out(span[2], error)
    resource = _resource(spans[0][0]) + _field(SCOPE_SPANS, b"".join(of_scope))
    return Request(_field(RESOURCE_SPANS, resource))


def _resource(what: Resource) -> bytes:
    attributes = [KeyValue(key=key, value=_value(value)) for key, value in what.attributes.items()]
    made = ResourceSpans(resource=OfResource(attributes=attributes), schema_url=what.schema_url)
    return bytes(made.SerializeToString())


def _span(span: Finished) -> bytes:
    _, trace_id, name, span_id, parent_id, start, end, attributes, links, error = span
    began = nanoseconds(start)
    ended = max(began, nanoseconds(end))
    parts = [
        IDS_AND_TIMES.pack(b"\x0a\x10", trace_id, b"\x12\x08", span_id.to_bytes(8), b"\x39", began, b"\x41", ended),
        _kind(name, OF_A_CHILD if parent_id else OF_A_ROOT),
    ]
    if parent_id:
        parts.append(PARENT + parent_id.to_bytes(8))
    for key, value in attributes.items():
        parts.append(_attribute(key, value))
    if error is not None:
        parts.append(Span(status=Status(code=Status.STATUS_CODE_ERROR, message=error)).SerializeToString())
    for link in links:
        trace_id, linked = bytes.fromhex(link.trace_id), bytes.fromhex(link.span_id)
        parts.append(Span(links=[Span.Link(trace_id=trace_id, span_id=linked, flags=OF_A_CHILD)]).SerializeToString())
    return b"".join(parts)


@lru_cache(KEPT)
def _kind(name: str, flags: int) -> bytes:
    return bytes(Span(name=name, kind=Span.SPAN_KIND_INTERNAL, flags=flags).SerializeToString())


@lru_cache(KEPT, typed=True)  # typed: 1, 1.0 and True are three values
def _attribute(key: str, value: Any) -> bytes:
    # Most values are texts, and for a text the protobuf library takes four times as long.
    content = _field(TEXT, value.encode()) if type(value) is str else _value(value).SerializeToString()
    return _field(ATTRIBUTES, _key(key) + _field(VALUE, content))


@lru_cache(KEPT)
def _key(name: str) -> bytes:
    return bytes(KeyValue(key=name).SerializeToString())


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


def _field(tag: bytes, content: bytes) -> bytes:
    return b"%b%b%b" % (tag, _length(len(content)), content)


@lru_cache(KEPT)
def _length(number: int) -> bytes:
    """The number as a varint: seven bits in each byte, the lowest first.  All bytes but the last have the highest bit set."""
    if number < 0x80:
        return bytes((number,))
    return bytes((number & 0x7F | 0x80,)) + _length(number >> 7)
