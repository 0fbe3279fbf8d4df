"""Slurm's way to write many node names in few characters: "n[01-03,7],gpu-a".

A hostlist is what Slurm sends for the nodes of a job and takes for the nodes to leave out (F2).  It is a compression,
so what reads it must be bounded: fifteen characters can stand for a thousand million names (X7).  Counts are
therefore multiplied before a single name is made.

Zero-padding belongs to a name: "n[08-10]" is n08, n09, n10 and "n[8-10]" is n8, n9, n10.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from math import prod

DEFAULT_LIMIT = 100_000
# Slurm cuts node names at 64 characters (MAXHOSTNAMELEN), Kubernetes at 253; beyond that it is nonsense.
MAX_NAME_LENGTH = 253
# Slurm reads numbers of a name as machine words; a longer run of digits is part of the name, never of a range.
MAX_DIGITS = 9
MAX_KNOWN = 8192  # names that are folded often: those of the cluster

_PIECE = re.compile(r"[A-Za-z0-9_.:-]+|\[[0-9,-]+\]")
_RANGE = re.compile(rf"([0-9]{{1,{MAX_DIGITS}}})(?:-([0-9]{{1,{MAX_DIGITS}}}))?")
_NAME = re.compile(r"[A-Za-z0-9_.:-]+")

# One run of equally written numbers: first, last, least number of digits.
_Run = tuple[int, int, int]


class HostlistError(ValueError):
    """This text is no hostlist, or has more names than allowed; str() says which, in words."""


def expand(text: str, limit: int = DEFAULT_LIMIT) -> list[str]:
    """The names of a hostlist, in its own order, repeated names included; [] for "".

    Raises HostlistError if it is malformed or stands for more than `limit` names.  Time and memory are bounded by `limit` and
    the length of the text.
    """
    names: list[str] = []
    if not text:
        return names
    for item in _items(text):
        parts = _parts(item)
        room = limit - len(names)
        count = prod(1 if isinstance(part, str) else sum(last - first + 1 for first, last, _ in part) for part in parts)
        if count > room:
            raise HostlistError(f"a hostlist of more than {limit} names: {_shown(text)}")
        names.extend("".join(pieces) for pieces in product(*map(_spelled, parts)))
    return names


def fold(names: Iterable[str]) -> str:
    """The shortest simple hostlist of these names: sorted, each once, numbers at the end of a name folded into ranges.

    Only trailing numbers are folded, which every Slurm reads.  expand(fold(names)) gives the names back.
    Raises HostlistError for a name that a hostlist cannot hold.
    """
    unique = set(names)
    if len(unique) == 1:
        return "".join(_split(unique.pop()))
    numbered: dict[str, list[tuple[int, str]]] = {}
    plain: set[str] = set()
    for name in unique:
        prefix, spelling = _split(name)
        if spelling:
            numbered.setdefault(prefix, []).append((int(spelling), spelling))
        else:
            plain.add(name)
    folded = [(prefix, prefix + _ranges(sorted(numbers))) for prefix, numbers in numbered.items()]
    return ",".join(text for _, text in sorted(folded + [(name, name) for name in plain]))


def folded(names: Iterable[str]) -> str:
    """As `fold`, without names that no node can have."""
    return fold(name for name in names if is_name(name))


@lru_cache(MAX_KNOWN)
def is_name(name: str) -> bool:
    """True if a hostlist can hold the name."""
    return len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name) is not None


@lru_cache(MAX_KNOWN)
def _split(name: str) -> tuple[str, str]:
    """A name and the digits at its end; "": it ends with no number that a range can hold."""
    if not is_name(name):
        raise HostlistError(f"not a node name: {_shown(name)}")
    stem = name.rstrip(string.digits)
    return (stem, name[len(stem) :]) if len(name) - len(stem) <= MAX_DIGITS else (name, "")


def _items(text: str) -> Iterator[str]:
    """The parts between commas outside brackets."""
    start, depth = 0, 0
    for at, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if depth:
        raise HostlistError(f"unmatched brackets in a hostlist: {_shown(text)}")
    yield text[start:]


def _parts(item: str) -> list[str | list[_Run]]:
    """One item as literal texts and bracketed ranges, in order."""
    parts: list[str | list[_Run]] = []
    at, length = 0, 0
    while at < len(item):
        piece = _PIECE.match(item, at)
        if piece is None:
            raise HostlistError(f"not a hostlist: {_shown(item)}")
        at = piece.end()
        if item[piece.start()] == "[":
            runs = [_run(part) for part in piece[0][1:-1].split(",")]
            length += max(len(str(last)) if last >= 10**width else width for _, last, width in runs)
            parts.append(runs)
        else:
            length += len(piece[0])
            parts.append(piece[0])
    if not parts or length > MAX_NAME_LENGTH:
        raise HostlistError(f"not a node name: {_shown(item)}")
    return parts


def _run(text: str) -> _Run:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise HostlistError(f"not a range of numbers: {_shown(text)}")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise HostlistError(f"a range that runs backwards: {_shown(text)}")
    return first, last, len(match[1])


def _spelled(part: str | list[_Run]) -> Iterable[str]:
    if isinstance(part, str):
        return (part,)
    return (str(number).zfill(width) for first, last, width in part for number in range(first, last + 1))


def _ranges(numbers: list[tuple[int, str]]) -> str:
    """Sorted numbers with their spellings as "7" or "[01-03,7]"."""
    runs: list[tuple[str, str]] = []
    expected = ""
    for number, spelling in numbers:
        if spelling == expected:
            runs[-1] = (runs[-1][0], spelling)
        else:
            runs.append((spelling, spelling))
        expected = str(number + 1).zfill(len(runs[-1][0]))
        if len(expected) > MAX_DIGITS:
            expected = ""
    if len(numbers) == 1:
        return numbers[0][1]
    return "[" + ",".join(first if first == last else f"{first}-{last}" for first, last in runs) + "]"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "…")
