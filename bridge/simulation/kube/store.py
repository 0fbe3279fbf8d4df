"""A simulated etcd: objects with versions, and the history that watches read.

Objects are plain JSON dictionaries.  An object in the store is never changed: a write replaces it by a new one, so the
history keeps the former state.  Every write is one Change and takes one version, without gaps.  What a watch receives
follows from its selector: an object that begins to match is ADDED, an object that stops matching is DELETED, in the state in
which it last matched, under the new version.

The history is bounded, as the real one is: a request for an older version gets TooOld (410).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

Object = dict[str, Any]
Key = tuple[str, str]  # (namespace or "", name)
HISTORY = 20_000


class TooOld(Exception):
    """The requested resourceVersion is older than the history that the store keeps."""


class BadSelector(ValueError):
    """A selector that the server does not take; str() is its sentence."""


class Stored:
    """One version of one object, encoded at most once."""

    __slots__ = ("_raw", "object")

    def __init__(self, thing: Object) -> None:
        self.object = thing
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """As JSON."""
        if self._raw is None:
            self._raw = msgspec.json.encode(self.object)
        return self._raw


@dataclass(frozen=True, slots=True)
class Change:
    """One write.  after None: the object was deleted, and `last` is its final state under the version of the deletion."""

    version: int
    resource: str
    before: Stored | None
    after: Stored | None
    last: Stored


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection of objects of one resource in a request."""

    resource: str
    namespace: str
    matches: Callable[[Object], bool]


class Store:
    """Every object of the cluster."""

    def __init__(self, history: int = HISTORY) -> None:
        self.version = 1
        self._objects: dict[str, dict[Key, Stored]] = {}
        self._sorted: dict[str, list[Key]] = {}  # the keys of a resource in order, until one comes or goes
        self._history: list[Change] = []
        self._most = history
        self._forgotten = 1  # the newest version whose change is no longer remembered
        self._discards = False

    @contextmanager
    def discarding(self) -> Iterator[None]:
        """Writes return what they would write, and change nothing: a dry run."""
        self._discards = True
        try:
            yield
        finally:
            self._discards = False

    def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """The present state of the object."""
        stored = self._objects.get(resource, {}).get((namespace, name))
        return stored.object if stored else None

    def all(self, resource: str) -> Iterator[Object]:
        """Every object of one resource, in the order of their names."""
        return iter([stored.object for _key, stored in self._in_order(resource)])

    def unordered(self, resource: str) -> Iterator[Object]:
        """Every object of one resource, oldest first."""
        return (stored.object for stored in self._objects.get(resource, {}).values())

    def _in_order(self, resource: str) -> list[tuple[Key, Stored]]:
        kept = self._objects.get(resource, {})
        order = self._sorted.get(resource)
        if order is None:
            order = self._sorted[resource] = sorted(kept)
        return [(key, kept[key]) for key in order]

    def put(self, resource: str, thing: Object) -> Object:
        """Write an object; it comes back with its new version."""
        if self._discards:
            return thing
        self.version += 1
        thing = {**thing, "metadata": {**thing["metadata"], "resourceVersion": str(self.version)}}
        stored, kept = Stored(thing), self._objects.setdefault(resource, {})
        before = kept.get(key := key_of(thing))
        kept[key] = stored
        if before is None:
            self._sorted.pop(resource, None)
        self._remember(Change(self.version, resource, before, stored, stored))
        return thing

    def delete(self, resource: str, thing: Object) -> Object:
        """Remove an object; its last state comes back, under the version of the deletion."""
        if self._discards:
            return thing
        self.version += 1
        before = self._objects[resource].pop(key_of(thing))
        self._sorted.pop(resource, None)
        last = Stored({**thing, "metadata": {**thing["metadata"], "resourceVersion": str(self.version)}})
        self._remember(Change(self.version, resource, before, None, last))
        return last.object

    def matching(self, selection: Selection) -> list[bytes]:
        """Every object of the selection, encoded, in the order of their names."""
        return [
            stored.raw
            for (namespace, _name), stored in self._in_order(selection.resource)
            if (not selection.namespace or namespace == selection.namespace) and selection.matches(stored.object)
        ]

    def changes_since(self, version: int, selection: Selection) -> tuple[list[tuple[str, bytes]], int]:
        """(type, encoded object) of what happened after `version`, and the version up to which that is everything.

        Raises TooOld.
        """
        if version < self._forgotten:
            raise TooOld
        changes = [
            event
            for change in self._history[version - self._forgotten :]
            if change.resource == selection.resource and (event := _event(change, selection))
        ]
        return changes, max(version, self.version)

    def changed_since(self, version: int) -> list[Change]:
        """Every write after `version`, for the cluster's own controllers, which never fall behind."""
        assert version >= self._forgotten, "the controllers are ticked too seldom for this history"
        return self._history[version - self._forgotten :]

    def compact(self) -> None:
        """Forget the past, as etcd does every few minutes."""
        self._history.clear()
        self._forgotten = self.version

    def is_remembered(self, version: int) -> bool:
        """Can a watch, or a list in pages, go on from there?"""
        return version >= self._forgotten

    def _remember(self, change: Change) -> None:
        self._history.append(change)
        if len(self._history) > 2 * self._most:
            del self._history[: self._most]
            self._forgotten = self._history[0].version - 1


def key_of(thing: Object) -> Key:
    """(namespace or "", name)."""
    meta = thing["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _event(change: Change, selection: Selection) -> tuple[str, bytes] | None:
    """The event that a watch with this selection receives for the change."""
    if selection.namespace and key_of(change.last.object)[0] != selection.namespace:
        return None
    was = change.before is not None and selection.matches(change.before.object)
    if change.after is None:
        return ("DELETED", change.last.raw) if was else None
    if selection.matches(change.after.object):
        return ("MODIFIED" if was else "ADDED", change.after.raw)
    if not was or change.before is None:
        return None
    meta = {**change.before.object["metadata"], "resourceVersion": str(change.version)}
    return "DELETED", msgspec.json.encode({**change.before.object, "metadata": meta})


# --- selectors ------------------------------------------------------------------------------------------------------

_FIELDS = {
    "pods": {
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
    },
    "nodes": {"metadata.name", "spec.unschedulable"},
    "namespaces": {"metadata.name", "status.phase"},
    "events": {
        "metadata.name",
        "metadata.namespace",
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
    },
}
_EVERYWHERE = {"metadata.name", "metadata.namespace"}
_KEY, _VALUE = r"(?P<key>[A-Za-z0-9./_-]+)", r"[A-Za-z0-9._-]*"
_LABEL = re.compile(rf"(?P<absent>!)?{_KEY}(?:\s*(?P<op>==|=|!=)\s*(?P<value>{_VALUE}))?")
_LABEL_IN = re.compile(rf"{_KEY}\s+(?P<op>in|notin)\s+\((?P<values>\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*)\)")


def selection(resource: str, namespace: str, query: Mapping[str, str]) -> Selection:
    """The selection of a list or a watch.  Raises BadSelector."""
    tests = [*_field_tests(resource, query.get("fieldSelector", "")), *_label_tests(query.get("labelSelector", ""))]
    if not tests:
        return Selection(resource, namespace, lambda _thing: True)
    return Selection(resource, namespace, lambda thing: all(test(thing) for test in tests))


def _field_tests(resource: str, text: str) -> Iterator[Callable[[Object], bool]]:
    for part in filter(None, text.split(",")):
        field, operator, value = re.split(r"(!=|==|=)", part, maxsplit=1) if "=" in part else (part, "", "")
        if not operator:
            raise BadSelector(f"invalid selector: '{part}'; can't understand '{part}'")
        if field not in _FIELDS.get(resource, _EVERYWHERE):
            raise BadSelector(f"field label not supported: {field}")
        yield _field_test(tuple(field.split(".")), value, wanted=operator != "!=")


def _field_test(path: tuple[str, ...], value: str, *, wanted: bool) -> Callable[[Object], bool]:
    def test(thing: Object) -> bool:
        found: Any = thing
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        shown = {None: "", True: "true", False: "false"}.get(found, found) if not isinstance(found, dict) else ""
        return (shown == value) is wanted

    return test


def _label_tests(text: str) -> Iterator[Callable[[Object], bool]]:
    for part in re.findall(r"[^,(]+(?:\([^)]*\))?", text):
        if match := _LABEL_IN.fullmatch(part.strip()):
            values = {value.strip() for value in match["values"].split(",")}
            yield _label_test(match["key"], values, wanted=match["op"] == "in")
        elif not (match := _LABEL.fullmatch(part.strip())):
            raise BadSelector(f"unable to parse requirement: {part}")
        elif match["op"]:
            yield _label_test(match["key"], {match["value"]}, wanted=match["op"] != "!=")
        else:
            yield _label_test(match["key"], {None}, wanted=bool(match["absent"]))


def _label_test(key: str, values: AbstractSet[str | None], *, wanted: bool) -> Callable[[Object], bool]:
    """True for objects whose label has one of the values (None: no label), or has none of them if that is not wanted."""
    return lambda thing: ((thing["metadata"].get("labels") or {}).get(key) in values) is wanted
