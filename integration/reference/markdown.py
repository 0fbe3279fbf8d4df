"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, ending with a newline."""
    lines = [heads, ["---"] * len(heads), *rows]
    assert all(len(line) == len(heads) for line in lines), "each row has a cell for each column"
    return "".join("| " + " | ".join(cell(each) for each in line) + " |\n" for line in lines)


def cell(text: str) -> str:
    """The text as one cell: in one line, and with nothing in it that ends the cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """The text as code; an empty text stays empty."""
    return f"`{text}`" if text else ""
