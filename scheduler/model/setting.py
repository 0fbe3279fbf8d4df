"""A setting is declared once: as a field of the dataclass of the scheduler that uses it.

The metadata of the field has the names of pydantic's `Field`, and pydantic reads them there.  So the bridge validates these
dataclasses as they are, and the scheduler imports nothing but the standard library.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

LARGEST = 1_000_000  # of a time, a rate or a count


def setting(default: object, description: str = "", **limits: object) -> Any:
    """A field that is a setting.

    default       the value, or a function that makes it
    description   one line with the meaning, one line when to change it; "": an internal setting (scheduler/tuning.py)
    limits        ge, gt, le: bounds of a number
    """
    # Strict: true is not 1, and "1" is a text.  YAML has lists where the scheduler has tuples, so tuples are not strict.
    limits["strict"] = not isinstance(default, bool | tuple)
    metadata = {"description": description, **limits} if description else limits
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)
