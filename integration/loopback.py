"""A server on loopback that runs in a thread of its own, so that a test can change it while a program talks to it."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

LONGEST_LINE = 64 * 1024
STARTS_S = ENDS_S = 10.0


class LoopbackServer:
    """Listens on loopback while it is entered; a subclass says in `_accept` what it does with a connection.

    port  where it listens; 0: it was not entered yet
    """

    def __init__(self) -> None:
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(STARTS_S), f"{type(self).__name__} did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ENDS_S)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0, limit=LONGEST_LINE))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        open_connections = asyncio.all_tasks(self._loop)
        for task in open_connections:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*open_connections, return_exceptions=True))
        self._loop.close()
