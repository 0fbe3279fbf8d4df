"""How much of this process the clients of its own HTTP server can hold: connections, and answers that they do not read.

A connection costs a file descriptor, which calls to both clusters need, too.  aiohttp keeps a connection open for as long as
its client sends no request, or does not read its answer, and limits neither their number nor the memory of such answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

MOST = 256  # connections; the usual limit of a process is 1024 files
PART = 64 * 2**10  # bytes of an answer that wait for its reader; aiohttp waits for the reader beyond that


class Site(web.TCPSite):
    """Listens on an address.  Beyond MOST connections, a new one closes the oldest: a probe of kubelet is answered."""

    async def start(self) -> None:
        """See TCPSite."""
        await web.BaseSite.start(self)
        server = self._runner.server
        assert server is not None, "the runner was set up"

        def connected() -> asyncio.Protocol:
            _close_oldest(server)
            return server()

        self._server = await asyncio.get_running_loop().create_server(
            connected, self._host, self._port, ssl=self._ssl_context, backlog=self._backlog
        )


def _close_oldest(server: web.Server) -> None:
    alive = [
        connection.transport
        for connection in server.connections
        if connection.transport and not connection.transport.is_closing()
    ]
    for transport in alive[: max(0, len(alive) - MOST + 1)]:
        transport.abort()  # close() would wait until the client has read what it was sent


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    """The body of an answer in parts, sent as its client reads: so no copy of the body waits for a slow client."""
    for begin in range(0, len(body), PART):
        yield body[begin : begin + PART]
