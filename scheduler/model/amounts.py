"""Amounts of Kubernetes resources, and the empty mapping.

Amounts are whole numbers in one unit a resource: `cpu` in millicores, everything else in its base unit (bytes, counts).
Requests are rounded up; what a node offers is rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Never

Amounts = Mapping[str, int]


class _Empty(dict[str, Never]):
    """No entries, and nothing may be added: the default of a frozen noun.

    A dict, because it is asked dozens of times a pod.  (A dataclass of Python 3.11 takes no mapping proxy as a default.)
    """

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # nothing changes it
        return 0

    def _refuse(self, *_: Any, **__: Any) -> Never:
        raise TypeError("the empty mapping is shared: nothing may be added")

    __setitem__ = update = setdefault = __ior__ = _refuse


EMPTY: Mapping[str, int] = _Empty()
NO_TEXT: Mapping[str, str] = _Empty()
