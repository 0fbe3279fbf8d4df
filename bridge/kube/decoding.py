"""Decoding is total: any bytes give a value or a ContractError, and no other exception.

msgspec skips a field that a narrow view does not name by recursion, one level of the interpreter's recursion limit a level of
nesting.  `managedFields` is such a field, and a tenant decides how deep it is: an API server (1.36) accepts objects of 10,000
levels.  So a text that exceeds the usual limit (1,000) is decoded once more under a limit that no API server exceeds.  A
level takes 48 bytes of stack (measured), all of them 0.6 of the main thread's 8 MiB, and no noticeable time: 1.2 MB of
9,000 levels are skipped in 2 ms.  A scan in Python for what can be cut away takes 70 to 240 ms, which a tenant could repeat.

The first bytes of an object that cannot be decoded identify it: the API server writes the name first.
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
        why = f"the answer is nested deeper than {MOST_LEVELS} levels"
    except (msgspec.MsgspecError, ValueError, ArithmeticError) as error:  # a UnicodeError is a ValueError
        why = f"the answer is not what the API promises: {error}"
    raise ContractError(operation, SIDE, why)


@contextmanager
def _more_levels() -> Iterator[None]:
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(max(usual, MOST_LEVELS))
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


# --- of what cannot be decoded --------------------------------------------------------------------------------------

_TOKEN = re.compile(
    rb'"(?P<text>(?:[^"\\]++|\\.)*+)(?:(?P<closed>")[ \t\r\n]*+(?P<named>:)?|\\?\Z)|(?P<mark>[\[\]{}])', re.DOTALL
)
_NAME = re.compile(rb"[A-Za-z0-9._:/+=-]{1,512}")
_DEEPEST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Head:
    """Texts near the beginning of a JSON object by their path: ("metadata", "name"); of an array's members: ("items", "")."""

    texts: dict[tuple[str, ...], str]

    def of(self, *path: str) -> str:
        """The text at this path; "" where none was found."""
        return self.texts.get(path, "")


def head_of(text: bytes) -> Head:
    """Plain names, numbers and versions in the first bytes of what may be cut, malformed, or nested without end."""
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
