"""A web server on loopback, for tests of programs that ask one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from bridge.http_access import sign


@asynccontextmanager
async def serving(
    answer: Callable[[web.Request], Awaitable[web.Response]], path: str = "/{path:.*}", *, own: bool = False
) -> AsyncIterator[str]:
    """The URL of a server that answers each request for *path* so.  own: as a bridge, otherwise as another program"""
    app = web.Application()
    app.router.add_route("*", path, answer)
    if own:
        app.on_response_prepare.append(sign)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
