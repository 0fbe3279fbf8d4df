"""The spans that a backend of traces received, and questions about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

EXACT_S = 0.001


@dataclass(frozen=True)
class Span:
    """A span; ids in hexadecimal digits, times in epoch seconds.

    error    None: its status is no error
    process  which process of the bridge sent it (`service.instance.id`)
    """

    name: str
    trace: str
    id: str
    parent: str
    start: float
    end: float
    attributes: dict[str, Any]
    links: tuple[str, ...]
    error: str | None
    process: str

    @property
    def took(self) -> float:
        return self.end - self.start


def spans_of(request: ExportTraceServiceRequest) -> Iterator[Span]:
    """The spans of a request by OTLP."""
    for resource in request.resource_spans:
        about = {each.key: _value(each.value) for each in resource.resource.attributes}
        for scope in resource.scope_spans:
            yield from (_span_of(sent, about["service.instance.id"]) for sent in scope.spans)


def _span_of(sent: trace_pb2.Span, process: str) -> Span:
    failed = sent.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    return Span(
        sent.name,
        sent.trace_id.hex(),
        sent.span_id.hex(),
        sent.parent_span_id.hex(),
        sent.start_time_unix_nano / 1e9,
        sent.end_time_unix_nano / 1e9,
        {each.key: _value(each.value) for each in sent.attributes},
        tuple(link.trace_id.hex() for link in sent.links),
        sent.status.message if failed else None,
        process,
    )


def _value(sent: AnyValue) -> Any:
    kind = sent.WhichOneof("value")
    if kind == "array_value":
        return tuple(map(_value, sent.array_value.values))
    return getattr(sent, kind) if kind is not None else None


class Backend:
    """Keeps the spans of all processes of the bridge; a span that is sent again replaces the former."""

    def __init__(self) -> None:
        self.sent: list[Span] = []

    def takes(self, request: ExportTraceServiceRequest) -> None:
        """A request by OTLP."""
        self.sent += spans_of(request)

    @property
    def spans(self) -> list[Span]:
        """All spans, in the order in which they were sent first."""
        return list({(each.trace, each.id): each for each in self.sent}.values())

    def one(self, name: str, **about: Any) -> Span:
        """The span of that name, with these attributes (dots as underscores)."""
        [span] = [
            each
            for each in self.spans
            if each.name == name
            and about.items() <= {k.replace(".", "_"): v for k, v in each.attributes.items()}.items()
        ]
        return span

    def names(self) -> list[str]:
        """The names of all spans, in the order in which they were sent."""
        return [each.name for each in self.spans]

    def below(self, parent: Span) -> list[Span]:
        """Its children, in the order of time."""
        return below(parent, self.spans)

    def orphans(self) -> list[Span]:
        """Spans whose parent is missing."""
        return orphans(self.spans)


def below(parent: Span, spans: Iterable[Span]) -> list[Span]:
    """The children of a span, in the order of time."""
    return sorted((each for each in spans if each.parent == parent.id), key=lambda each: (each.start, each.end))


def orphans(spans: Iterable[Span]) -> list[Span]:
    """Spans whose parent is missing."""
    spans = list(spans)
    ids = {each.id for each in spans}
    return [each for each in spans if each.parent and each.parent not in ids]


def adds_up(parts: Iterable[Span], whole: Span) -> bool:
    """True if the parts follow each other without gap, from the begin of the whole to its end."""
    at = whole.start
    for part in parts:
        if abs(part.start - at) > EXACT_S or part.end < part.start:
            return False
        at = part.end
    return abs(at - whole.end) <= EXACT_S
