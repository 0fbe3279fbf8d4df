"""Notes in the World which objects of the API server cannot be decoded (scheduler/state/undecoded.py).

Such an object exists.  It keeps its last known state, and does not count as deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from scheduler import events as ev
from scheduler.events import Scope
from scheduler.model.kubernetes import Namespace, Node, Pod, Undecoded
from scheduler.state.phase import Phase
from scheduler.state.world import World

_Listed = TypeVar("_Listed", Node, Namespace)


def note_list(world: World, where: Scope | str, undecoded: tuple[Undecoded, ...]) -> None:
    if undecoded or any(True for _ in world.undecoded):
        world.undecoded.note_list(where, undecoded)
        # Their jobs may have been kept because of such an object (`end_job`).
        world.dirty.update(world.by_phase[Phase.DONE])


def note_decoded(world: World, where: Scope | str, thing: Pod | Node | Namespace) -> None:
    namespace = thing.namespace if isinstance(thing, Pod) else ""
    if world.undecoded.note_decoded(where, namespace, thing.name, thing.uid):
        world.dirty.update(world.by_phase[Phase.DONE])


def with_undecoded(
    listed: Iterable[_Listed], before: Mapping[str, _Listed] | None, undecoded: Collection[Undecoded]
) -> dict[str, _Listed]:
    """The objects of a list, by name.  An object that cannot be decoded keeps its last known state."""
    found = {item.name: item for item in listed}
    if undecoded:
        kept = (item for item in (before or {}).values() if item.name not in found)
        found |= {item.name: item for item in kept if any(mark.is_it("", item.name, item.uid) for mark in undecoded)}
    return found


def _object_undecoded(world: World, event: ev.ObjectUndecoded) -> None:
    world.undecoded.note_undecoded(event.scope or event.object.kind, event.object)


APPLIERS: Mapping[type, Callable[[World, Any], None]] = {ev.ObjectUndecoded: _object_undecoded}
