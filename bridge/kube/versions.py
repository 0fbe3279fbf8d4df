"""The newest version of each resource that this process has seen, so that no list goes back in time.

If a list is requested without a resourceVersion, the API server guarantees that it is as new as the request.  A cache in
between, or an API server that is behind, may return an older list.  Such a list lacks pods that the bridge bound a minute
ago.  A replica that leads again would then see these pods as waiting, and the room that they take as free.  So a list that is
older than the newest version seen before its request is rejected, and requested again.

An etcd that was restored from a backup shows older versions for ever.  So after OLDER_S a list is accepted, however
old it is.

Since Kubernetes 1.35 versions of one resource may be compared as numbers (KEP-5504), and earlier releases count them in the
same way.  If a version is not a number, the list is accepted.
"""

from __future__ import annotations

from bridge.errors import RemoteError

OLDER_S = 20.0  # less than stale_s of scheduler/tuning.py: an API server that is behind stops no decision
MOST_DIGITS = 20  # of a number of 64 bits


class SeenVersions:
    """The newest version by path of the resource.  A replica that stands by again makes new watches, and keeps this."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._older_since: dict[str, float] = {}

    def see(self, path: str, version: str) -> None:
        """Note that a list or a watch of that resource showed this version."""
        if (number := _number(version)) is not None:
            self._newest[path] = max(number, self._newest.get(path, 0))

    def newest(self, path: str) -> int:
        """The newest version that was seen; 0: none.  Call this before the list is requested, then `take` with the result."""
        return self._newest.get(path, 0)

    def take(self, path: str, version: str, seen_before: int, now: float) -> None:
        """Accept the version of a list.  Raises RemoteError if a newer version was seen before the list was requested."""
        number = _number(version)
        if number is None or number >= seen_before:
            self._older_since.pop(path, None)
            self.see(path, version)
            return
        if now - self._older_since.setdefault(path, now) < OLDER_S:
            raise RemoteError(
                f"list {path}",
                "Kubernetes",
                f"the list is of version {number}, and version {seen_before} was seen before the request: this API "
                "server, or a cache in front of it, is behind; the list is requested again",
            )
        del self._older_since[path]
        self._newest[path] = number


def _number(version: str) -> int | None:
    return int(version) if len(version) <= MOST_DIGITS and version.isascii() and version.isdecimal() else None
