"""Amounts of Kubernetes resources, and the empty mapping.

Amounts are whole numbers in one unit a resource: `cpu` in millicores, everything else in its base unit (bytes, counts).
Requests are rounded up; what a node offers is rounded down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Never

Amounts = Mapping[str, int]


class _Empty(Mapping[str, Never]):
    """No entries, and immutable: the default of a frozen noun (a dataclass of Python 3.11 takes no mapping proxy)."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Never:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def get(self, key: object, default: Any = None) -> Any:  # asked dozens of times a pod: Mapping's own tries first
        return default

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


EMPTY: Mapping[str, int] = _Empty()
NO_TEXT: Mapping[str, str] = _Empty()
