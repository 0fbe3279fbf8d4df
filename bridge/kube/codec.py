"""Decodes JSON to values of `scheduler.model`: pages of a list, lines of a watch, and answers with one object.

Items and changes are decoded one by one.  An item that cannot be decoded becomes `Undecoded` and affects no other item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from bridge.errors import ContractError
from bridge.json_text import fields, parts
from bridge.kube.decoding import Head, Text, decoded, head_of
from bridge.kube.objects import to_namespace, to_node, to_owner
from bridge.kube.pods import to_pod
from bridge.kube.transport import MAX_LINE, SIDE, Cut
from bridge.kube.wire import (
    Envelope,
    ListMeta,
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
from scheduler.model import kubernetes as model
from scheduler.model.kubernetes import Undecoded

W = TypeVar("W", bound=Wire)
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Changed(Generic[M]):
    """ADDED or MODIFIED (gone False), or DELETED (gone True).  A watch may resume at `version`."""

    object: M
    version: str
    gone: bool


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A change of an object that cannot be decoded.  version: as in Changed; "": the text has none."""

    object: Undecoded
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
    """The readers of one kind: a page of a list, an item on it, a line of a watch, an answer that is one object."""

    page: Callable[[bytes], Page]
    items: Callable[[Page], tuple[list[M], list[Undecoded]]]
    line: Callable[[bytes], Changed[M] | Undecodable | Bookmark | Failed]
    one: Callable[[bytes], M]


# --- reading --------------------------------------------------------------------------------------------------------


def codec(kind: str, wire: type[W], to_model: Callable[[W], M]) -> Codec[M]:
    """The four readers of one kind.  Each raises ContractError if the text is not as the API specifies."""
    objects = msgspec.json.Decoder(wire)

    def read(text: Text) -> M:
        return to_model(objects.decode(text))

    def read_line(text: Text) -> Changed[M] | Bookmark | Failed:
        envelope = _envelopes.decode(text)
        if envelope.type in CHANGES:
            seen: Any = objects.decode(envelope.object)
            return Changed(to_model(seen), seen.metadata.resource_version, envelope.type == "DELETED")
        return _no_change(envelope)

    def page(body: bytes) -> Page:
        try:
            return decoded(_pages.decode, body, "list")
        except ContractError as error:
            return _page_in_parts(body, error)

    def items(page: Page) -> tuple[list[M], list[Undecoded]]:
        found: list[M] = []
        others: list[Undecoded] = []
        for text in page.items or ():
            try:
                found.append(decoded(read, text, "list"))
            except ContractError as error:
                others.append(undecoded(kind, head_of(bytes(text)), (), error.message))
        return found, others

    def line(text: bytes) -> Changed[M] | Undecodable | Bookmark | Failed:
        try:
            return decoded(read_line, text, "watch")
        except ContractError as error:
            return _undecodable(kind, text, error)

    def one(body: bytes) -> M:
        return decoded(read, body, "read")

    return Codec(page, items, line, one)


def _page_in_parts(body: bytes, error: ContractError) -> Page:
    """The items of a page of which one is not JSON.  Raises the error if the items cannot be separated."""
    try:
        texts = fields(body)
        items = texts["items"]
        if not items.startswith(b"["):
            raise error
        return Page(decoded(_list_metas.decode, texts["metadata"], "list"), list(map(msgspec.Raw, parts(items))))
    except (KeyError, ValueError, msgspec.MsgspecError):
        raise error from None


def _no_change(envelope: Envelope) -> Bookmark | Failed:
    if envelope.type == "BOOKMARK":
        return Bookmark(_marked.decode(envelope.object).metadata.resource_version)
    if envelope.type == "ERROR":
        status = _statuses.decode(envelope.object)
        return Failed(status.code, status.message)
    raise ContractError("watch", SIDE, "an event of an unknown type")


def _undecodable(kind: str, line: bytes, error: ContractError) -> Undecodable:
    """The change, by the first bytes of its line.  Raises the error if these do not show the object and what happened."""
    head = head_of(line)
    why = f"it is longer than {MAX_LINE >> 20} MiB" if isinstance(line, Cut) else error.message
    found = undecoded(kind, head, ("object",), why)
    if head.of("type") not in CHANGES or not found.name:
        raise error
    return Undecodable(found, head.of("object", "metadata", "resourceVersion"), head.of("type") == "DELETED")


def undecoded(kind: str, head: Head, under: tuple[str, ...], why: str) -> Undecoded:
    """An object that cannot be decoded, with the names in its first bytes.  under: the path to the object in them."""
    namespace, name, uid = (head.of(*under, "metadata", field) for field in ("namespace", "name", "uid"))
    return Undecoded(kind, namespace, name, uid, why)


def status_of(body: bytes) -> Status | None:
    """The Status in a body; None if the body is anything else, such as the error page of another server."""
    try:
        status = decoded(_statuses.decode, body, "read")
    except ContractError:
        return None
    return status if status.kind == "Status" else None


def event_count(body: bytes) -> int:
    """The number of times that an event was posted."""
    return decoded(_events.decode, body, "read event").count or 1


def is_allowed(body: bytes) -> bool:
    """The answer of a SelfSubjectAccessReview."""
    return decoded(_reviews.decode, body, "check rights").status.allowed


def git_version(body: bytes) -> str:
    """The server's version."""
    return decoded(_versions.decode, body, "read version").git_version


CHANGES = ("ADDED", "MODIFIED", "DELETED")

_envelopes = msgspec.json.Decoder(Envelope)
_pages = msgspec.json.Decoder(Page)
_list_metas = msgspec.json.Decoder(ListMeta)
_marked = msgspec.json.Decoder(Marked)
_statuses = msgspec.json.Decoder(Status)
_events = msgspec.json.Decoder(WireEvent)
_reviews = msgspec.json.Decoder(WireReview)
_versions = msgspec.json.Decoder(Version)

PODS: Codec[model.Pod] = codec("pod", WirePod, to_pod)
NODES: Codec[model.Node] = codec("node", WireNode, to_node)
NAMESPACES: Codec[model.Namespace] = codec("namespace", WireNamespace, to_namespace)
TAINTED: Codec[TaintedNode] = codec("node", TaintedNode, lambda wire: wire)
CLAIMS: Codec[WireClaim] = codec("claim", WireClaim, lambda wire: wire)
VOLUMES: Codec[WireVolume] = codec("volume", WireVolume, lambda wire: wire)
STORAGE_CLASSES: Codec[WireStorageClass] = codec("storage class", WireStorageClass, lambda wire: wire)


def owner_codec(ref: model.OwnerRef) -> Codec[model.Owner]:
    """The reader of one controller."""
    return codec("owner", WireOwner, to_owner(ref))


def encode(body: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """A request body."""
    return msgspec.json.encode(body)
