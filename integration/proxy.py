"""A proxy before slurmrestd that answers wrongly on purpose, as a broken ingress, a wrong cluster or a sick server would.

`FAULTS` is the table.  A fault sees each request and decides what comes back: an answer of its own, slurmrestd's changed, the
same twice, or nothing at all.  It runs in a thread, so that a journey can change the fault while the bridge talks to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from integration.checker import journal

CONTENT_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
LARGEST_HEAD = 64 * 1024

Answer = bytes | None  # as it goes over the wire; None: never
Fault = Callable[[str, bytes], Answer]  # the request's target and slurmrestd's whole answer to what comes back


def _text(status: str, text: str) -> Answer:
    return f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def _changed(target: str, answer: bytes, change: Callable[[list[Any]], list[Any]]) -> Answer:
    """The same answer with other jobs in it, where it is a list of them."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not target.partition("?")[0].endswith("/jobs/state/") or not head.startswith(b"HTTP/1.1 200"):
        return answer
    told = json.loads(body)
    told["jobs"] = change(told["jobs"])
    body = json.dumps(told).encode()
    return CONTENT_LENGTH.sub(b"Content-Length: %d" % len(body), head) + b"\r\n\r\n" + body


FAULTS: Mapping[str, Fault] = {
    "404 for everything": lambda target, answer: _text("404 Not Found", "Unable to find requested URL"),
    "500 for everything": lambda target, answer: _text("500 Internal Server Error", "Unspecified error"),
    "no job at all": lambda target, answer: _changed(target, answer, lambda jobs: []),
    "half of the jobs": lambda target, answer: _changed(target, answer, lambda jobs: jobs[::2]),
    "no answer": lambda target, answer: None,
    "every answer twice": lambda target, answer: answer * 2,
}
# Of these slurmrestd is not even asked: a write that takes effect and is answered wrongly is another fault.
UNASKED = frozenset({"404 for everything", "500 for everything", "no answer"})


class FaultProxy:
    """Listens on loopback while it is entered.

    url     where it listens
    fault   a name of FAULTS; "": everything is passed on as it is
    seen    how many requests met a fault
    """

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self.url = ""
        self.fault = ""
        self.seen = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the proxy did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @contextlib.contextmanager
    def broken(self, fault: str) -> Iterator[None]:
        """Answers so meanwhile."""
        self.fault = fault
        try:
            with journal.disturbed(f"slurmrestd: {fault}"):
                yield
        finally:
            self.fault = ""

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0, limit=LARGEST_HEAD))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{self._target.path}"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        under_way = asyncio.all_tasks(self._loop)
        for task in under_way:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*under_way, return_exceptions=True))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the bridge; for each request one of its own to slurmrestd."""
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
        """The bridge gives up, or the fault ends: then the connection ends, as when a server is restarted."""
        fault = self.fault
        while self.fault == fault:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    if not await reader.read(LARGEST_HEAD):
                        return

    async def _answer(self, head: bytes, body: bytes) -> Answer:
        target, name = head.split(b" ", 2)[1].decode(), self.fault
        self.seen += bool(name)
        answer = b"" if name in UNASKED else await self._ask(head + body)
        return FAULTS[name](target, answer) if name else answer

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self._target.hostname, self._target.port, limit=LARGEST_HEAD)
        with contextlib.closing(writer):
            writer.write(request)
            head, body = await _message(reader)
            return head + body


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = CONTENT_LENGTH.search(head)
    return head, await reader.readexactly(int(length[1]) if length else 0)
