"""The newest version of each resource that this process has seen, so that no list goes back in time.

A list without a resourceVersion is as new as its request: the API server promises that.  A cache in between, or an API server
that is behind, breaks the promise, and then the list lacks pods that the bridge itself bound a minute ago.  To a replica that
leads again, such pods wait, and the room that they take is free.  So a list that is older than what was seen before its
request is not taken; it is asked for again.

An etcd that was restored from a backup is older for ever.  So after OLDER_S a list is believed, however old it is.

Since Kubernetes 1.35 versions of one resource may be compared as numbers (KEP-5504), and earlier releases count them in the
same way.  A version that is no number is compared with nothing.
"""

from __future__ import annotations

from bridge.errors import RemoteError

OLDER_S = 20.0  # less than stale_s of scheduler/tuning.py: an API server that is behind stops no decision
MOST_DIGITS = 20  # of a number of 64 bits


class SeenVersions:
    """By path of the resource.  It outlives the watches, which a replica begins again each time that it stands by."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._older_since: dict[str, float] = {}

    def see(self, path: str, version: str) -> None:
        """Note that a list or a watch of that resource showed this version."""
        if (number := _number(version)) is not None:
            self._newest[path] = max(number, self._newest.get(path, 0))

    def newest(self, path: str) -> int:
        """The newest version that was seen; 0: none was.  Asked before a list is, to be compared with the list's version."""
        return self._newest.get(path, 0)

    def take(self, path: str, version: str, seen_before: int, now: float) -> None:
        """Take the version of a list.  Raises RemoteError if something newer had been seen before the list was asked for."""
        number = _number(version)
        if number is None or number >= seen_before:
            self._older_since.pop(path, None)
            self.see(path, version)
            return
        if now - self._older_since.setdefault(path, now) < OLDER_S:
            raise RemoteError(
                f"list {path}",
                "Kubernetes",
                f"the list is of version {number}, and version {seen_before} was seen before it was asked for: this API "
                "server, or a cache in front of it, is behind; it is asked again",
            )
        del self._older_since[path]
        self._newest[path] = number


def _number(version: str) -> int | None:
    return int(version) if len(version) <= MOST_DIGITS and version.isascii() and version.isdecimal() else None
