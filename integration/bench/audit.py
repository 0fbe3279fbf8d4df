"""The requests that the API server answered, by client, from its audit log."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from integration.bench.clients import BenchError

WRITES = frozenset(("create", "update", "patch", "delete", "deletecollection"))


@dataclass(frozen=True, slots=True)
class Request:
    """verb, "resource" or "resource/subresource", and the user."""

    verb: str
    resource: str
    user: str


class Requests(Counter[Request]):
    """The number of answers to each request."""

    def writes(self, user: str, resource: str) -> int:
        """By that user, to such objects or parts of them."""
        return sum(
            number
            for request, number in self.items()
            if request.user == user and request.verb in WRITES and request.resource.partition("/")[0] == resource
        )

    def of(self, user: str) -> Counter[str]:
        """The number of requests of one user, by verb and resource."""
        found: Counter[str] = Counter()
        for request, number in self.items():
            if request.user == user:
                found[f"{request.verb} {request.resource}"] += number
        return found


class _User(msgspec.Struct):
    username: str = ""


class _Object(msgspec.Struct):
    resource: str = ""
    subresource: str = ""


class _Entry(msgspec.Struct):
    stage: str
    verb: str
    user: _User
    object: _Object | None = msgspec.field(default=None, name="objectRef")


_ENTRY = msgspec.json.Decoder(_Entry)


class Audit:
    """The requests that are answered after it is made."""

    def __init__(self) -> None:
        self._log = Path(_folder()) / "audit.log"
        status = self._log.stat()
        self._file, self._offset = status.st_ino, status.st_size

    def requests(self) -> Requests:
        """The requests since this object was made."""
        found = Requests()
        for line in self.lines():
            entry = _ENTRY.decode(line)
            if entry.stage == "ResponseComplete" and entry.object is not None:
                what = entry.object.resource + (f"/{entry.object.subresource}" if entry.object.subresource else "")
                found[Request(entry.verb, what, entry.user.username)] += 1
        return found

    def lines(self) -> Iterator[bytes]:
        """Its entries from where we began, also when the log was moved away in between and another begun."""
        logs = sorted(self._log.parent.glob("audit*.log"), key=lambda path: path.stat().st_mtime)
        numbers = [path.stat().st_ino for path in logs]
        if self._file not in numbers:
            raise BenchError("the API server has thrown away audit logs that were to be counted")
        for path in logs[numbers.index(self._file) :]:
            with path.open("rb") as log:
                log.seek(self._offset if path.stat().st_ino == self._file else 0)
                yield from (line for line in log if line.endswith(b"\n"))


def _folder() -> str:
    state = os.environ.get("RIG_STATE")
    if not state:
        raise BenchError("there is no audit log to read: these clusters are no rig (RIG_STATE is not set)")
    return f"{state}/log"
