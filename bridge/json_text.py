"""JSON text split into its parts without recursion and without decoding them.

msgspec refuses a whole text if any part is nested too deep or is not JSON (NaN, a lone surrogate).  A text that is split here
can be decoded part by part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

# A string that never ends is one token, too: a search that began again at each quote inside it would take time without end.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)
_FIELD = re.compile(rb'\s*("(?:[^"\\]++|\\.)*+")\s*:', re.DOTALL)
_CLOSES = {b"[": b"]", b"{": b"}"}


def parts(text: bytes) -> Iterator[bytes]:
    """The elements of a JSON array, or the fields of an object, each as its text.  Raises ValueError if it is neither."""
    text = text.strip()
    if text[:1] not in _CLOSES or text[-1:] != _CLOSES[text[:1]]:
        raise ValueError("neither an array nor an object")
    depth, start = 0, 1
    for token in _TOKEN.finditer(text):
        kind = token[0][:1]
        if kind in b"[{":
            depth += 1
        elif kind in b"]}":
            depth -= 1
        if depth == 0 and token.end() != len(text):
            raise ValueError("brackets that do not match")
        if (depth == 1 and kind == b",") or depth == 0:
            if part := text[start : token.start()].strip():
                yield part
            start = token.end()
    if depth:
        raise ValueError("brackets that do not match")


def fields(text: bytes) -> dict[str, bytes]:
    """The fields of a JSON object by name, each value as its text; text that is not a field is left out."""
    found: dict[str, bytes] = {}
    for part in parts(text):
        if match := _FIELD.match(part):
            found[msgspec.json.decode(match[1], type=str)] = part[match.end() :].strip()
    return found
