"""Times, numbers, and texts of other machines and people, as printable text.

Conditions, events and explanations contain texts of tenants and servers.  A terminal that shows them must not execute
them, and every time can be shown, whatever its value.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache

NO_DATE = "a time that has no date"
MOST = 4096  # characters of a condition: far more than any sentence of the bridge has


def moment(at: float) -> datetime | None:
    """Epoch seconds as a UTC date and time; None: no such date (NaN, years before 1 or after 9999)."""
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return None


@lru_cache(4096)  # a status names the same times at each visit
def dated(at: float, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Epoch seconds in that form of strftime; NO_DATE if there is no such date."""
    then = moment(at)
    return then.strftime(form) if then is not None else NO_DATE


def line(text: str, most: int = MOST) -> str:
    """The text as one printable line with a limit of characters: unprintable characters become blanks."""
    if not text.isprintable():
        text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def decimal(number: float, digits: int = 4) -> str:
    """The number with so many significant digits, whole numbers in full, and never with an exponent: "0.5", "16,324"."""
    if not math.isfinite(number):
        return str(number)
    rounded = round(number) if abs(number) >= 10**digits else float(f"{number:.{digits}g}")
    return f"{rounded:,.15g}"


def span(seconds: float) -> str:
    """A span of time in messages, in whole seconds, at least one unless it is 0: "12 s"."""
    return f"{max(1, round(seconds)) if seconds > 0 else 0} s"
