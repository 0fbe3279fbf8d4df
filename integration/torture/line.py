"""A line to a server that can be cut: it passes bytes on in both directions, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

CHUNK = 64 * 1024
AT_ONCE = struct.pack("ii", 1, 0)  # linger for 0 s: a reset


class Line:
    """Listens on loopback while it is entered.

    port  where it listens
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the line did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def cut(self) -> None:
        """Ends every connection at once, in the middle of what it carries; new ones are taken."""
        self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        for writer in self._open:
            # Without this the connection would end as one that is closed, with all that was sent.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            writer.transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        under_way = asyncio.all_tasks(self._loop)
        for task in under_way:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*under_way, return_exceptions=True))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """If the server does not listen, the connection ends as it began."""
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._open |= {writer, far_writer}
            try:
                with contextlib.closing(far_writer):
                    await asyncio.wait(
                        [
                            asyncio.ensure_future(_pass_on(reader, far_writer)),
                            asyncio.ensure_future(_pass_on(far_reader, writer)),
                        ],
                        return_when=asyncio.FIRST_COMPLETED,
                    )
            finally:
                self._open -= {writer, far_writer}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one of the two ends."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
