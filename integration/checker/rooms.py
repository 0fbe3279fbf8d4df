"""What each node has room for, by the audit log: its allocatable resources, and every change of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from integration.checker.quantities import amount, amounts

ALLOCATABLE = "/status/allocatable"


@dataclass(slots=True)
class Rooms:
    """By node: its allocatable resources, each time with their time.  A node that was deleted has none."""

    since: dict[str, list[tuple[float, Mapping[str, float]]]] = field(default_factory=dict)

    def written(self, node: str, at: float, sent: Mapping[str, Any]) -> None:
        """The node is created, or its whole status is replaced."""
        self._is(node, at, amounts((sent.get("status") or {}).get("allocatable")))

    def patched(self, node: str, at: float, sent: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """A merge patch, or a JSON patch, of its status."""
        now = dict(self.since[node][-1][1]) if node in self.since else {}
        changes = _merged(sent) if isinstance(sent, Mapping) else _operations(sent)
        changed = False
        for resource, value in changes:
            changed = True
            if resource is None:
                now = amounts(value)
            elif value is None:
                now.pop(resource, None)
            else:
                now[resource] = amount(value)
        if changed:
            self._is(node, at, now)

    def deleted(self, node: str, at: float) -> None:
        self._is(node, at, {})

    def most(self, node: str, begin: float, end: float) -> Mapping[str, float] | None:
        """The most of each resource that it had at any time between the two; None: the log does not show the node by then."""
        found: dict[str, float] | None = None
        history = self.since.get(node, [])
        for number, (at, has) in enumerate(history):
            until = history[number + 1][0] if number + 1 < len(history) else float("inf")
            if at <= end and until >= begin:
                found = {key: max(has.get(key, 0.0), (found or {}).get(key, 0.0)) for key in {*has, *(found or {})}}
        return found

    def _is(self, node: str, at: float, has: Mapping[str, float]) -> None:
        self.since.setdefault(node, []).append((at, has))


def _merged(sent: Mapping[str, Any]) -> Iterator[tuple[str | None, Any]]:
    """The changes of a merge patch: resource and amount; None: it is removed."""
    yield from ((sent.get("status") or {}).get("allocatable") or {}).items()


def _operations(sent: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str | None, Any]]:
    """The same of a JSON patch; resource None: all of them."""
    for each in sent:
        path = each["path"]
        value = None if each["op"] == "remove" else each.get("value")
        if path == ALLOCATABLE:
            yield None, value
        elif path.startswith(f"{ALLOCATABLE}/"):
            yield path.removeprefix(f"{ALLOCATABLE}/").replace("~1", "/").replace("~0", "~"), value
