"""Decodes lists of slurmrestd; one item that makes no sense does not hide the others.

A list is decoded as a whole first: that is fast, and nearly always enough.  If that fails, each item is decoded alone, and
an item that cannot be decoded is left out.  The object of an item that is left out exists: what was known of it before stays
true.  So the items that were left out are part of the answer, with their ids or names as far as these can be read.

msgspec refuses a whole text if any part is nested too deep (RecursionError; 1,000 levels or more, by the version of Python)
or is not JSON (NaN, a lone surrogate).  `parts` splits such a text without recursion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import msgspec

from bridge.json_text import fields, parts
from bridge.slurm.wire import Envelope

_I = TypeVar("_I")
_I_co = TypeVar("_I_co", covariant=True)

# What a decoder raises for a text that it cannot read.  UnicodeDecodeError is a ValueError.
UNDECODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class UndecodedItem:
    """An item that cannot be read.  key: its id or name as the server wrote it; None if that cannot be read either."""

    key: str | int | None
    why: str


class ListAnswer(Envelope, Generic[_I_co], kw_only=True):
    """An answer that is a list."""

    items: tuple[_I_co, ...]
    undecoded: tuple[UndecodedItem, ...] = ()


class ListDecoder(Generic[_I]):
    """Decodes a text to a ListAnswer.

    field   the field of the answer that holds the list
    item    the struct of one item
    key     the field of an item that holds its id or name
    """

    def __init__(self, field: str, item: type[_I], key: str) -> None:
        self._field = field
        self._key = key
        self._whole = msgspec.json.Decoder(_answer(field, tuple[item, ...]))  # type: ignore[valid-type]
        self._apart = msgspec.json.Decoder(_answer(field, tuple[msgspec.Raw, ...]))
        self._item = msgspec.json.Decoder(item)
        self._name = msgspec.json.Decoder(msgspec.defstruct("Named", [(key, str | int)]))

    def decode(self, body: bytes, /) -> ListAnswer[_I]:
        """The answer.  Raises UNDECODABLE if not even the items of the list can be separated."""
        try:
            whole = self._whole.decode(body)
        except UNDECODABLE:
            return self._one_by_one(body)
        return ListAnswer(
            errors=whole.errors, warnings=whole.warnings, meta=whole.meta, items=getattr(whole, self._field)
        )

    def _one_by_one(self, body: bytes) -> ListAnswer[_I]:
        envelope, texts = self._split(body)
        items: list[_I] = []
        undecoded: list[UndecodedItem] = []
        for text in texts:
            try:
                items.append(self._item.decode(text))
            except UNDECODABLE as error:
                undecoded.append(UndecodedItem(self._name_of(text), str(error)))
        return ListAnswer(
            errors=envelope.errors,
            warnings=envelope.warnings,
            meta=envelope.meta,
            items=tuple(items),
            undecoded=tuple(undecoded),
        )

    def _split(self, body: bytes) -> tuple[Envelope, list[bytes]]:
        try:
            apart = self._apart.decode(body)
            return apart, [bytes(item) for item in getattr(apart, self._field)]
        except UNDECODABLE:
            texts = fields(body)
            wanted = texts.pop(self._field, None)
            if wanted is None or not wanted.startswith(b"["):
                raise
            rest = b",".join(b'"%s":%s' % (name.encode(), text) for name, text in texts.items())
            return msgspec.json.decode(b"{" + rest + b"}", type=Envelope), list(parts(wanted))

    def _name_of(self, text: bytes) -> str | int | None:
        try:
            return getattr(self._name.decode(text), self._key)  # type: ignore[no-any-return]
        except UNDECODABLE:
            pass
        try:
            return msgspec.json.decode(fields(text)[self._key], type=str | int)
        except (KeyError, *UNDECODABLE):
            return None


def _answer(field: str, items: object) -> type[Envelope]:
    return cast(type[Envelope], msgspec.defstruct("Answer", [(field, items)], bases=(Envelope,), kw_only=True))
