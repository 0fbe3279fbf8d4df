"""An explanation as JSON, between the running bridge and `slurm-bridge explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler.explain import Explanation


def encoded(explanation: Explanation) -> bytes:
    """The explanation as the running bridge sends it; `decoded` reads it."""
    return msgspec.json.encode(explanation, enc_hook=plain)


def decoded(body: bytes) -> Explanation:
    """Raises ValueError if the body is no explanation."""
    try:
        return msgspec.json.decode(body, type=Explanation)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def plain(value: Any) -> Any:
    """A mapping that msgspec does not know (amounts.EMPTY), as a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(type(value).__name__)
