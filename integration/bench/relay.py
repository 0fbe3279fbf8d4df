"""A relay between the bridge and slurmrestd that counts what passes: calls and bytes by operation.

It reads just enough HTTP/1.1 to know where a request and its answer end, and changes nothing.  It takes processor time and
some tenths of a millisecond a call, so it has no place where time is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

CONTENT_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
VERSION = re.compile(r"/slurm(db)?/v[\d.]+/")
NUMBER = re.compile(r"\d+")
POLLS = frozenset(("GET jobs/state/", "GET nodes/", "GET partitions/"))
LARGEST_HEAD = 64 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """One request and its answer.

    operation  method and path, without version and query, ids as "N": "GET job/N"
    at         when it came, in seconds of a clock that never jumps
    sent, got  bytes of the two bodies
    """

    operation: str
    at: float
    sent: int
    got: int


@dataclass(slots=True)
class Relay:
    """Listens while it is entered.

    target   URL of slurmrestd
    url      where it listens
    calls    all calls that were answered
    """

    target: str
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=LARGEST_HEAD)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open.values():
            writer.close()
        if self._open:
            await asyncio.wait(self._open)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        parts = urlsplit(self.target)
        # Either side may end a connection between two calls; a call whose connection ends is not counted.
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            far = await asyncio.open_connection(parts.hostname, parts.port, limit=LARGEST_HEAD)
            with contextlib.closing(far[1]):
                while await self._one((reader, writer), far):
                    pass
        del self._open[task]

    async def _one(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> bool:
        """Pass one call on; False where the connection is of no use after it."""
        head, body = await _message(near[0])
        at = time.perf_counter()
        far[1].write(head + body)
        answer, said = await _message(far[0])
        self.calls.append(Call(_operation(head), at, len(body), len(said)))
        near[1].write(answer + said)
        await near[1].drain()
        return answer[9:12] == b"200"  # slurmrestd answers an error twice, and nobody wants the second


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = CONTENT_LENGTH.search(head)
    return head, await reader.readexactly(int(length[1]) if length else 0)


def _operation(head: bytes) -> str:
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
    path = VERSION.sub(lambda found: "slurmdb/" if found[1] else "", target.partition("?")[0])
    return f"{method} {NUMBER.sub('N', path)}"


def rate(calls: list[Call]) -> float:
    """Calls a second, from the first to the last of them; 0 where there are fewer than two."""
    times = [call.at for call in calls]
    return (len(times) - 1) / (max(times) - min(times)) if len(times) > 1 else 0.0


def busiest_second(calls: list[Call]) -> int:
    """The most of these calls that came within one second, wherever it begins."""
    times, first, most = sorted(call.at for call in calls), 0, 0
    for last, at in enumerate(times):
        while at - times[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most
