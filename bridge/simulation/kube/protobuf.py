"""Decodes protobuf of kubectl's typed clients to the JSON that they would have sent.

`kubectl create`, `drain` and `auth` send protobuf and do not fall back to JSON.  Answers may be JSON.  `protobuf.json` says
how the kinds that are served are written: message to field number to (JSON name, type).  It is made from the Go types
(integration/protobuf), because Kubernetes' .proto files, which a protobuf library reads, lack what JSON needs: which
fields are inlined, and which zero values mean "not set".

A type is a scalar, a message, or a form of its own (`_FORMS`).  Prefixes of a type:

    *        a zero value counts: the field is a pointer in Go, or JSON always has it
    []  {}   a list; an object whose keys are strings
    [items]  a message whose one field is a list
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

import msgspec

Object = dict[str, Any]
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
NEGATIVE, WRAP = 1 << 63, 1 << 64
LONGEST_VARINT = 63  # bits before the last byte


class BadProtobuf(ValueError):
    """A body that is not protobuf of a kind that is served; str() is a sentence."""


class _Fields(msgspec.Struct):
    kinds: dict[str, str]
    messages: dict[str, dict[int, tuple[str, str]]]


def to_object(body: bytes) -> Object:
    """The object in a protobuf body.  Raises BadProtobuf."""
    if not body.startswith(MAGIC):
        raise BadProtobuf("the body has no protobuf envelope")
    try:
        envelope = dict(_wire(body[len(MAGIC) :]))
        meta = {number: bytes(value).decode() for number, value in _wire(envelope[1])}
        version, kind = meta[1], meta[2]
        # Each group of the API has the same DeleteOptions.
        name = fields().kinds.get("v1 DeleteOptions" if kind == "DeleteOptions" else f"{version} {kind}")
        if name is None:
            raise BadProtobuf(f"the simulated API server does not serve the kind {kind} of {version}")
        return {"kind": kind, "apiVersion": version, **_message(name, envelope.get(2, b""))}
    except BadProtobuf:
        raise
    except (LookupError, AttributeError, TypeError, ValueError, OverflowError, OSError) as error:  # OSError: a time
        raise BadProtobuf(f"the body is not valid protobuf: {error!r}") from None


@cache
def fields() -> _Fields:
    """How the kinds are written."""
    text = resources.files("bridge.simulation.kube").joinpath("protobuf.json").read_bytes()
    return msgspec.json.decode(text, type=_Fields)


def _wire(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, int or bytes) of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, form = key >> 3, key & 7
        if form == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        size, at = _varint(data, at) if form == BYTES else ({FIXED64: 8, FIXED32: 4}[form], at)
        if at + size > len(data):
            raise IndexError(f"field {number} is cut off")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned integer, and where the next byte is."""
    value = shift = 0
    while True:
        if shift > LONGEST_VARINT:
            raise ValueError("an integer has too many bytes")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at


def _message(name: str, data: bytes) -> Object:
    if name in _FORMS:
        return _FORMS[name](data)  # type: ignore[no-any-return]
    known = fields().messages[name]
    result: Object = {}
    for number, raw in _wire(data):
        if number in known:  # else it is a field of a newer kubectl, which a real server ignores too
            _add(result, *known[number], raw)
    return result


def _add(result: Object, name: str, kind: str, raw: Any) -> None:
    """Enter one field of a message in its JSON."""
    zero_counts, kind = kind.startswith("*"), kind.removeprefix("*")
    if kind.startswith("[]"):
        result.setdefault(name, []).append(_value(kind[2:], raw))
        return
    if kind.startswith("{}"):
        entry = dict(_wire(raw))
        key = bytes(entry.get(1, b"")).decode()
        result.setdefault(name, {})[key] = _value(kind[2:], entry.get(2, b""))
        return
    value = _value(kind, raw)
    if not name:
        result.update(value)
    elif value or (zero_counts and value is not None):
        result[name] = value


def _value(kind: str, raw: Any) -> Any:
    if kind == "string":
        return raw.decode()
    if kind == "bytes":
        return base64.b64encode(raw).decode()
    if kind in _INTEGERS:
        return _INTEGERS[kind](raw)
    if kind.startswith("[items]"):
        return [_value(kind.removeprefix("[items]"), item) for _, item in _wire(raw)]
    return _message(kind, raw)


def _signed(raw: int) -> int:
    return raw - WRAP if raw >= NEGATIVE else raw


def _time(data: bytes) -> str | None:
    """As JSON writes a Time; None: the zero value."""
    sent = dict(_wire(data))
    if not sent:
        return None
    at = datetime.fromtimestamp(_signed(sent.get(1, 0)), UTC)
    nanos = sent.get(2, 0)
    return at.strftime("%Y-%m-%dT%H:%M:%S") + (f".{nanos // 1000:06d}Z" if nanos else "Z")


def _int_or_string(data: bytes) -> int | str:
    sent = dict(_wire(data))
    return bytes(sent.get(3, b"")).decode() if sent.get(1) else _signed(sent.get(2, 0))


_INTEGERS: dict[str, Callable[[int], Any]] = {"int": _signed, "bool": bool}
_FORMS: dict[str, Callable[[bytes], Any]] = {
    "Quantity": lambda data: bytes(dict(_wire(data)).get(1, b"0")).decode(),
    "Time": _time,
    "MicroTime": _time,
    "IntOrString": _int_or_string,
    "FieldsV1": lambda data: msgspec.json.decode(dict(_wire(data)).get(1, b"{}")),
}
