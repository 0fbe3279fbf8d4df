"""Sentences about wrong values in the settings file, by the kind of pydantic's error.

pydantic's own texts speak of Python ("Tuple should have at least 1 item after validation").  KINDS has each kind that the
models of the settings can raise; a test raises all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import ErrorDetails

TEXT = "must be text; a number, a date, yes or no is text if it stands in quotes"
LIST = "must be a list, as [a, b]"
MAPPING = "must be a mapping of keys to values"
WHOLE, NUMBER, SWITCH = "must be a whole number", "must be a number", "must be true or false"

MISSING = "missing"
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")  # of a model, of a dataclass

# Of each, the words; they take the bounds from pydantic's context.
KINDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    MISSING: lambda _: "is not given, and is required",
    "string_type": lambda _: TEXT,
    "string_too_short": lambda _: "must not be empty",
    "bool_type": lambda _: SWITCH,
    "bool_parsing": lambda _: SWITCH,
    "int_type": lambda _: WHOLE,
    "float_type": lambda _: NUMBER,
    "greater_than": lambda limits: f"must be more than {limits['gt']:,.10g}",
    "greater_than_equal": lambda limits: f"must be at least {limits['ge']:,.10g}",
    "less_than_equal": lambda limits: f"must be at most {limits['le']:,.10g}",
    "literal_error": lambda choices: f"must be {choices['expected'].replace(chr(39), '')}",
    "tuple_type": lambda _: LIST,
    "too_short": lambda _: "must not be an empty list",
    "dict_type": lambda _: MAPPING,
    "model_type": lambda _: MAPPING,
    "dataclass_type": lambda _: MAPPING,
    "invalid_key": lambda _: "is no key: keys are words",
}


def in_words(error: ErrorDetails) -> str:
    """The mistake, as the rest of a sentence that begins with the key."""
    if error["type"] in KINDS:
        return KINDS[error["type"]](error.get("ctx", {}))
    return error["msg"].removeprefix("Value error, ")


def place(error: ErrorDetails, written: Any) -> str:
    """The key, with dots, and entries of lists counted from 1: "policy.rules (2nd entry).user"; "": between several keys.

    People count the rules of a policy from 1, and so do all other messages (Policy.called).

    written   the settings: they show whether a number is the place in a list, or a key of a mapping that is no word
    """
    said, here = "", written
    for part in error["loc"]:
        if part == "[key]":
            continue
        if isinstance(part, int) and isinstance(here, list | tuple):
            said += f" ({_ordinal(part + 1)} entry)"
        else:
            said += f"{'.' if said else ''}{part}"
        here = _inside(here, part)
    return said


def _inside(here: Any, part: int | str) -> Any:
    """The value in that place of a list or mapping; None: there is none.  A key that is no word may be named by its text."""
    if isinstance(here, Mapping):
        return next((value for key, value in here.items() if key == part or str(key) == str(part)), None)
    return here[part] if isinstance(here, list | tuple) and isinstance(part, int) and part < len(here) else None


def _ordinal(number: int) -> str:
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
