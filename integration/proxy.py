"""A proxy before slurmrestd that answers wrongly on purpose, as a broken ingress, a wrong cluster or a sick server would.

`FAULTS` is the table.  A fault sees each request and decides what comes back: an answer of its own, slurmrestd's answer with
changes, that answer twice, or nothing at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from integration.checker import journal
from integration.loopback import LONGEST_LINE, LoopbackServer

CONTENT_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
USER = re.compile(rb"x-slurm-user-name: *(\S+)", re.IGNORECASE)

Answer = bytes | None  # as it goes over the wire; None: never
Fault = Callable[[str, bytes], Answer]  # from the request's target and slurmrestd's whole answer to what comes back


def _text(status: str, text: str) -> Answer:
    return f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def _changed(target: str, answer: bytes, change: Callable[[list[Any]], list[Any]]) -> Answer:
    """The answer, with *change* applied to its jobs if it is a list of all jobs."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not target.partition("?")[0].endswith("/jobs/state/") or not head.startswith(b"HTTP/1.1 200"):
        return answer
    content = json.loads(body)
    content["jobs"] = change(content["jobs"])
    body = json.dumps(content).encode()
    return CONTENT_LENGTH.sub(b"Content-Length: %d" % len(body), head) + b"\r\n\r\n" + body


FAULTS: Mapping[str, Fault] = {
    "404 for everything": lambda target, answer: _text("404 Not Found", "Unable to find requested URL"),
    "500 for everything": lambda target, answer: _text("500 Internal Server Error", "Unspecified error"),
    "no job at all": lambda target, answer: _changed(target, answer, lambda jobs: []),
    "half of the jobs": lambda target, answer: _changed(target, answer, lambda jobs: jobs[::2]),
    "no answer": lambda target, answer: None,
    "every answer twice": lambda target, answer: answer * 2,
}
# With these slurmrestd gets no request: a write that takes effect and is answered wrongly would be another fault.
UNASKED = frozenset({"404 for everything", "500 for everything", "no answer"})


class FaultProxy(LoopbackServer):
    """Passes requests to the slurmrestd at *target*, and answers as the present fault says.

    fault   a name of FAULTS; "": everything is passed on as it is
    seen    number of requests that came while there was a fault
    """

    def __init__(self, target: str) -> None:
        super().__init__()
        self._target = urlsplit(target)
        self.fault = ""
        self.seen = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}{self._target.path}"

    @contextlib.contextmanager
    def broken(self, fault: str) -> Iterator[None]:
        """While this is entered, the proxy answers as that fault says."""
        self.fault = fault
        try:
            with journal.disturbed(f"slurmrestd: {fault}"):
                yield
        finally:
            self.fault = ""

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the bridge.  Each of its requests gets a connection to slurmrestd."""
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head, body = await _message(reader)
                answer = await self._answer(head, body)
                if answer is None:
                    await self._until_over(reader)
                    return
                writer.write(answer)
                await writer.drain()
                if not answer.startswith(b"HTTP/1.1 200"):
                    return

    async def _until_over(self, reader: asyncio.StreamReader) -> None:
        """Wait until the bridge closes the connection, or the fault ends."""
        fault = self.fault
        while self.fault == fault:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    if not await reader.read(LONGEST_LINE):
                        return

    async def _answer(self, head: bytes, body: bytes) -> Answer:
        target, name = head.split(b" ", 2)[1].decode(), self.fault
        self.seen += bool(name)
        answer = b"" if name in UNASKED else await self._ask(head + body)
        return FAULTS[name](target, answer) if name else answer

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self._target.hostname, self._target.port, limit=LONGEST_LINE)
        with contextlib.closing(writer):
            writer.write(request)
            head, body = await _message(reader)
            return head + body


@dataclass(frozen=True, slots=True)
class Request:
    """A request to slurmrestd.  user: whom its header names; "": nobody"""

    method: str
    path: str
    user: str
    body: bytes


class RecordingProxy(FaultProxy):
    """Keeps every request."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.requests: list[Request] = []

    async def _answer(self, head: bytes, body: bytes) -> Answer:
        method, target, _ = head.decode().split(" ", 2)
        user = USER.search(head)
        self.requests.append(Request(method, target.partition("?")[0], user[1].decode() if user else "", body))
        return await super()._answer(head, body)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = CONTENT_LENGTH.search(head)
    return head, await reader.readexactly(int(length[1]) if length else 0)
