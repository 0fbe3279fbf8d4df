"""A connection to a server that a test can cut: bytes pass in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Coroutine

from integration.loopback import LoopbackServer

CHUNK = 64 * 1024
AT_ONCE = struct.pack("ii", 1, 0)  # linger for 0 s: a reset


class Line(LoopbackServer):
    """Passes bytes between its clients and the server at *host* and *port*."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._target = host, port
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """End all connections at once, in the middle of what they carry.  New connections are accepted."""
        self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        for writer in self._open:
            # Otherwise the connection would be closed in order, after all bytes that were sent.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on.  If the server does not listen, the connection ends."""
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._open |= {writer, far_writer}
            try:
                with contextlib.closing(far_writer):
                    await _first_of(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
            finally:
                self._open -= {writer, far_writer}


async def _first_of(*each: Coroutine[object, object, None]) -> None:
    """Run all of them until the first ends; the others are cancelled."""
    tasks = [asyncio.create_task(one) for one in each]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one of the two connections ends."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
