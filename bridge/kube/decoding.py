"""Decoding is total: any bytes give a value or a ContractError, and no other exception.

If a view does not name a field, msgspec skips the field by recursion: each level of nesting takes one level of the
interpreter's recursion limit.  `managedFields` is such a field, and a tenant decides how deep it is: an API server (1.36)
accepts objects of 10,000 levels.  So if a text exceeds the usual limit (1,000), it is decoded again with a limit that no API
server exceeds.  A level takes 48 bytes of stack (measured), so all levels take 0.6 of the main thread's 8 MiB.  The time is
small: 1.2 MB of 9,000 levels are skipped in 2 ms.  To cut such fields out in Python would take 70 to 240 ms, as often as a
tenant wants.

Python >= 3.12 limits this recursion to a number of levels that no program can change: 1,500 in 3.12.1, 10,000 in 3.13.  An
object that is nested deeper cannot be decoded there.

The first bytes of an object identify it, because the API server writes the name first.  They are used if the object cannot be
decoded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from bridge.errors import ContractError
from bridge.kube.transport import HEAD, SIDE

MOST_LEVELS = 12_000

T = TypeVar("T")
Text = bytes | msgspec.Raw


def decoded(read: Callable[[Text], T], text: Text, operation: str) -> T:
    """Decode the text by `read`.  Raises ContractError if the text cannot be decoded."""
    try:
        try:
            return read(text)
        except RecursionError:
            with _more_levels():
                return read(text)
    except RecursionError:
        why = "the answer is nested too deep to be read"
    except (msgspec.MsgspecError, ValueError, ArithmeticError) as error:  # a UnicodeError is a ValueError
        why = f"the answer does not match the API: {error}"
    raise ContractError(operation, SIDE, why)


@contextmanager
def _more_levels() -> Iterator[None]:
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(max(usual, MOST_LEVELS))
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


# --- objects that cannot be decoded --------------------------------------------------------------------------------------

_TOKEN = re.compile(
    rb'"(?P<text>(?:[^"\\]++|\\.)*+)(?:(?P<closed>")[ \t\r\n]*+(?P<named>:)?|\\?\Z)|(?P<mark>[\[\]{}])', re.DOTALL
)
_NAME = re.compile(rb"[A-Za-z0-9._:/+=-]{1,512}")
_DEEPEST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Head:
    """Path to text, near the beginning of a JSON object: ("metadata", "name"); for members of an array: ("items", "")."""

    texts: dict[tuple[str, ...], str]

    def of(self, *path: str) -> str:
        """The text at this path; "": none was found."""
        return self.texts.get(path, "")


def head_of(text: bytes) -> Head:
    """Names, numbers and versions in the first bytes of a text, which may be cut, malformed, or nested without end."""
    texts: dict[tuple[str, ...], str] = {}
    path: list[str] = []
    member = ""
    for token in _TOKEN.finditer(text[:HEAD]):
        mark = token["mark"]
        if mark is None and not token["closed"]:
            break  # here the text was cut
        if mark is None and token["named"]:
            member = token["text"].decode(errors="replace")
        elif mark is None:
            if member and len(path) <= _DEEPEST_NAMED and _NAME.fullmatch(token["text"]):
                texts.setdefault((*path[1:], member), token["text"].decode())
            member = ""
        elif mark in b"[{":
            path.append(member)
            member = ""
        elif path:
            path.pop()
            member = ""
    return Head(texts)
