"""Objects of the API server that exist and cannot be decoded (`model.Undecoded`).

Such an object keeps its last known state, because its absence from a list proves nothing.  Nothing is done to it, because its
known state is old.  After a start, a pod that was never decoded is not known at all, but its placeholder is.  This
placeholder looks like a job without a pod, and must not be cancelled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from scheduler.events import Scope
from scheduler.model.kubernetes import Undecoded

NODE = "node"
NAMESPACE = "namespace"


class UndecodedObjects:
    """The objects that cannot be decoded now: pods by their scope, other objects by their kind."""

    def __init__(self) -> None:
        self._found: dict[Scope | str, list[Undecoded]] = {}

    def note_list(self, where: Scope | str, undecoded: Iterable[Undecoded]) -> None:
        """Note that a list showed exactly these undecoded objects."""
        self._found[where] = list(undecoded)

    def note_undecoded(self, where: Scope | str, undecoded: Undecoded) -> None:
        """Note that a watch showed this undecoded object."""
        self.note_decoded(where, undecoded.namespace, undecoded.name, undecoded.uid)
        self._found.setdefault(where, []).append(undecoded)

    def note_decoded(self, where: Scope | str, namespace: str, name: str, uid: str) -> bool:
        """Note that the object was decoded, or is gone.  Returns True if it could not be decoded before."""
        found = self._found.get(where)
        if not found:
            return False
        self._found[where] = [item for item in found if not item.name or not item.is_it(namespace, name, uid)]
        return len(self._found[where]) < len(found)

    def __iter__(self) -> Iterator[Undecoded]:
        return (item for found in self._found.values() for item in found)

    def pods(self) -> list[Undecoded]:
        """The undecoded pods of this scheduler."""
        return self._found.get(Scope.OURS, [])

    def among(self, uids: Collection[str]) -> bool:
        """True if one of these pods of this scheduler cannot be decoded now."""
        return any(pod.uid in uids for pod in self.pods())
