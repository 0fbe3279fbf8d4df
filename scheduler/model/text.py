"""What other machines and people wrote, as text for people: any time has words, any text is one printable line.

Conditions, events and explanations hold words of tenants and servers.  A terminal that shows them must not obey these words,
and no value of theirs may be too large to be said.
"""

from __future__ import annotations

from datetime import UTC, datetime

NO_DATE = "a time that has no date"
MOST = 4096  # characters of a condition: far more than any sentence of ours has


def moment(at: float) -> datetime | None:
    """Epoch seconds as a UTC date and time; None: there is no such date (NaN, years before 1 or after 9999)."""
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def dated(at: float, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Epoch seconds in that form of strftime; NO_DATE where there is none."""
    then = moment(at)
    return then.strftime(form) if then is not None else NO_DATE


def line(text: str, most: int = MOST) -> str:
    """One printable line of at most so many characters: what is not printed becomes a blank."""
    if not text.isprintable():
        text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= most else text[: most - 1] + "…"
