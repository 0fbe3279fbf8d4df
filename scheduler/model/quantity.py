"""Kubernetes quantities ("500m", "1.5Gi", "2e3"), exactly.

The grammar is that of the API (`resource.Quantity`): a sign, a decimal number, and either a suffix (binary Ki … Ei,
decimal n … E) or a decimal exponent, never both.  "1E" is an exa, "1E3" an exponent.  Values are exact fractions until
they are rounded once, up for requests and down for the resources of a node: a float would lose bytes of large memories.

Text can come from a person (annotations), so little is accepted: ASCII digits, 64 characters, exponents of realistic sizes.
Python's own number parsers also accept NaN, Infinity, "1_000" and Arabic digits, which are no quantities.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

MAX_LENGTH = 64
MAX_EXPONENT = 24
MOST = 2**63 - 1  # the API reduces larger quantities to this value

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_SCALE = {
    "": Fraction(1),
    **{
        suffix: Fraction(10) ** power
        for suffix, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{letter + "i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


class QuantityError(ValueError):
    """The text is no quantity; str() says which text and what is wrong with it."""


def parse(text: str) -> Fraction:
    """The exact value of a quantity: parse("500m") == Fraction(1, 2).

    Raises QuantityError.  Source: the grammar in the documentation of the API's `Quantity`.
    """
    if len(text) > MAX_LENGTH:
        raise QuantityError(f'"{text[:16]}…" has {len(text):,} characters, a quantity has at most {MAX_LENGTH}')
    match = _QUANTITY.fullmatch(text)
    if not match or not (match["whole"] or match["part"]):
        raise QuantityError(f"{_shown(text)} is not a quantity such as 500m, 2 or 1.5Gi")
    part = match["part"] or ""
    value = Fraction(int(match["whole"] + part), 10 ** len(part)) * _SCALE[match["suffix"] or ""]
    if match["exponent"]:
        exponent = int(match["exponent"])
        if abs(exponent) > MAX_EXPONENT:
            raise QuantityError(f"{_shown(text)} has an exponent beyond {MAX_EXPONENT}")
        value *= Fraction(10) ** exponent
    return -value if match["sign"] == "-" else value


@lru_cache(maxsize=8192)
def amount(resource: str, text: str, round_up: bool) -> int:
    """A quantity in the units of model.Amounts: cpu in millicores, everything else in its base unit.

    Raises QuantityError, also for a negative quantity.
    """
    value = min(parse(text), Fraction(MOST))
    if value < 0:
        raise QuantityError(f"{_shown(text)} is negative")
    if resource == "cpu":
        value *= 1000
    return math.ceil(value) if round_up else math.floor(value)


def _shown(text: str) -> str:
    """The text as a message may show it: quoted, control characters and other scripts escaped."""
    return '"' + text.encode("unicode_escape").decode("ascii") + '"'
