"""Text for a terminal: paragraphs, and names with their values below each other."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

INDENT = "  "


def wrapped(text: str, width: int, *, first: str | None = None, indent: str = INDENT) -> list[str]:
    """The lines of a paragraph.  first: the begin of its first line; None: the indent"""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def pairs(entries: Iterable[tuple[str, str]], width: int) -> Iterator[str]:
    """Names and values, without empty values."""
    shown = [(name, value) for name, value in entries if value]
    names = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        yield from wrapped(value, width, first=f"{INDENT}{name:<{names}}  ", indent=INDENT + " " * (names + 2))
