"""Tables as kubectl prints them: columns of text, with colours only on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bridge.cli.terminal import printable

GAP = "   "
WIDEST = 120  # columns; a longer cell shifts the rest of its row, and costs no other row any blanks
RESET = "\x1b[0m"
CLEAR = "\x1b[H\x1b[2J"
# Colours of states; other words have none.
COLOURS = {
    **dict.fromkeys(("Running", "Completed", "idle", "mixed", "allocated", "up"), "\x1b[32m"),
    **dict.fromkeys(
        ("Pending", "Granted", "Starting", "Gathering", "Limited", "Waiting", "Gated", "Ending", "planned"), "\x1b[33m"
    ),
    **dict.fromkeys(("Refused", "Failed", "Stopped", "Crashing", "Suspended"), "\x1b[31m"),
    **dict.fromkeys(("down", "drained", "draining", "down*", "drained*"), "\x1b[31m"),
}


@dataclass(frozen=True, slots=True)
class Screen:
    """What the output can show.

    width    in columns; longer lines are cut.  None: nothing is cut
    colours  True if the output shows colours
    live     True if the output can be redrawn
    height   in lines, of an output that can be redrawn
    """

    width: int | None = None
    colours: bool = False
    live: bool = False
    height: int = 24

    def redrawn(self, lines: Sequence[str]) -> list[str]:
        """The lines, to be drawn over the former lines.  Lines that do not fit on the screen are left out and counted."""
        most = max(2, self.height - 1)
        if len(lines) > most:
            lines = [*lines[: most - 1], f"… {len(lines) - most + 1:,} more lines"]
        return [CLEAR + lines[0], *lines[1:]] if lines else []


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], screen: Screen, *, coloured: int | None = None
) -> list[str]:
    """The lines of a table, with its head.

    coloured   the column with the state, which decides its colour
    """
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [min(WIDEST, max(map(len, column))) for column in zip(heads, *shown, strict=True)]
    lines = [_line(heads, widths, screen.width, None, "")]
    for row in shown:
        colour = COLOURS.get(row[coloured], "") if coloured is not None and screen.colours else ""
        lines.append(_line(row, widths, screen.width, coloured, colour))
    return lines


def _line(row: Sequence[str], widths: Sequence[int], most: int | None, coloured: int | None, colour: str) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
    text = GAP.join(cells).rstrip()
    if most is not None and len(text) > most:
        text = text[: most - 1] + "…"
    if coloured is None or not colour:
        return text
    begins = sum(len(cell) + len(GAP) for cell in cells[:coloured])
    ends = begins + len(row[coloured])
    return text[:begins] + colour + text[begins:ends] + RESET + text[ends:]


def age(seconds: float | None) -> str:
    """A duration as kubectl writes it: 12s, 5m3s, 2h10m, 3d4h.  Of None, which means not known: "-"."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    units = (("d", whole // 86400), ("h", whole // 3600 % 24), ("m", whole // 60 % 60), ("s", whole % 60))
    first = next((place for place, (_, number) in enumerate(units) if number), len(units) - 1)
    return "".join(f"{number}{unit}" for unit, number in units[first : first + 2] if number) or "0s"


def pairs(shown: Mapping[str, str]) -> list[str]:
    """Names and values below each other, without empty values."""
    filled = {name: value for name, value in shown.items() if value}
    width = max(map(len, filled), default=0)
    return [f"{name + ':':<{width + 1}}  {printable(value)}" for name, value in filled.items()]
