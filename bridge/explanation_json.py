"""An explanation as JSON: what the running bridge sends on /explain, and what `slurm-bridge explain` reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler.explain import Explanation


def encoded(explanation: Explanation) -> bytes:
    """As the running bridge sends it; `decoded` reads it back."""
    return msgspec.json.encode(explanation, enc_hook=plain)


def decoded(body: bytes) -> Explanation:
    """Raises ValueError if it is no explanation."""
    try:
        return msgspec.json.decode(body, type=Explanation)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ValueError(str(error)) from None


def plain(value: Any) -> Any:
    """The scheduler's empty mapping is a type of its own."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(type(value).__name__)
