"""JSON in, `scheduler.model` out: how each kind is read from a page of a list, a line of a watch, and an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from bridge.errors import ContractError
from bridge.kube.objects import to_namespace, to_node, to_owner
from bridge.kube.pods import to_pod
from bridge.kube.transport import SIDE
from bridge.kube.wire import (
    Envelope,
    Marked,
    Page,
    Status,
    TaintedNode,
    Version,
    Wire,
    WireClaim,
    WireEvent,
    WireNamespace,
    WireNode,
    WireOwner,
    WirePod,
    WireReview,
    WireStorageClass,
    WireVolume,
)
from scheduler import model

W = TypeVar("W", bound=Wire)
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Changed(Generic[M]):
    """ADDED or MODIFIED (gone False), or DELETED (gone True); `version` is where a watch may resume."""

    object: M
    version: str
    gone: bool


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing happened up to `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The server ends the watch with a Status; 410 means that the version is too old."""

    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Codec(Generic[M]):
    """How one kind is read: a page of a list and what is on it, a line of a watch, an answer that is one."""

    page: Callable[[bytes], Page]
    items: Callable[[Page], tuple[M, ...]]
    line: Callable[[bytes], Changed[M] | Bookmark | Failed]
    one: Callable[[bytes], M]


# --- reading --------------------------------------------------------------------------------------------------------


def codec(wire: type[W], to_model: Callable[[W], M]) -> Codec[M]:
    """The four readers of one kind.  Each raises ContractError where the text is not what the API promises."""
    lists: msgspec.json.Decoder[list[W] | None] = msgspec.json.Decoder(list[wire] | None)  # type: ignore[valid-type]
    objects = msgspec.json.Decoder(wire)

    def page(body: bytes) -> Page:
        return _decode(_pages, body, "list")

    def items(page: Page) -> tuple[M, ...]:
        return tuple(map(to_model, _decode(lists, page.items, "list") or ()))

    def line(text: bytes) -> Changed[M] | Bookmark | Failed:
        envelope = _decode(_envelopes, text, "watch")
        if envelope.type in ("ADDED", "MODIFIED", "DELETED"):
            read: Any = _decode(objects, envelope.object, "watch")
            return Changed(to_model(read), read.metadata.resource_version, envelope.type == "DELETED")
        if envelope.type == "BOOKMARK":
            return Bookmark(_decode(_marked, envelope.object, "watch").metadata.resource_version)
        if envelope.type == "ERROR":
            status = _decode(_statuses, envelope.object, "watch")
            return Failed(status.code, status.message)
        raise ContractError("watch", SIDE, f'an event of the unknown type "{envelope.type[:32]}"')

    def one(body: bytes) -> M:
        return to_model(_decode(objects, body, "read"))

    return Codec(page, items, line, one)


def status_of(body: bytes) -> Status | None:
    """The Status that a body is; None when it is anything else (another server's error page, say)."""
    try:
        status = _statuses.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return status if status.kind == "Status" else None


def event_count(body: bytes) -> int:
    """How often an event has been said."""
    return _decode(_events, body, "read event").count or 1


def is_allowed(body: bytes) -> bool:
    """What a SelfSubjectAccessReview answers."""
    return _decode(_reviews, body, "check rights").status.allowed


def git_version(body: bytes) -> str:
    """The server's version."""
    return _decode(_versions, body, "read version").git_version


D = TypeVar("D")


def _decode(decoder: msgspec.json.Decoder[D], text: bytes | msgspec.Raw, operation: str) -> D:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ContractError(operation, SIDE, f"the answer is not what the API promises: {error}") from None


_envelopes = msgspec.json.Decoder(Envelope)
_pages = msgspec.json.Decoder(Page)
_marked = msgspec.json.Decoder(Marked)
_statuses = msgspec.json.Decoder(Status)
_events = msgspec.json.Decoder(WireEvent)
_reviews = msgspec.json.Decoder(WireReview)
_versions = msgspec.json.Decoder(Version)

PODS: Codec[model.Pod] = codec(WirePod, to_pod)
NODES: Codec[model.Node] = codec(WireNode, to_node)
NAMESPACES: Codec[model.Namespace] = codec(WireNamespace, to_namespace)
TAINTED: Codec[TaintedNode] = codec(TaintedNode, lambda wire: wire)
CLAIMS: Codec[WireClaim] = codec(WireClaim, lambda wire: wire)
VOLUMES: Codec[WireVolume] = codec(WireVolume, lambda wire: wire)
STORAGE_CLASSES: Codec[WireStorageClass] = codec(WireStorageClass, lambda wire: wire)


def owner_codec(ref: model.OwnerRef) -> Codec[model.Owner]:
    """The reader of one controller."""
    return codec(WireOwner, to_owner(ref))


def encode(body: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """A request body."""
    return msgspec.json.encode(body)
