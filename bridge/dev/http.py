"""The simulated clusters behind real sockets: what `slurm-bridge dev` and the contract suite talk to.

Only a shell: a request becomes one call of a state machine's `handle`, a watch becomes a stream of lines.  It listens on
loopback alone; the simulated clusters ask nobody who he is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web
from multidict import CIMultiDict

from bridge.dev.in_process import InProcessKube
from bridge.kube.transport import StreamRefused

MAX_BODY = 8 * 2**20
LOOPBACK = "127.0.0.1"


class SlurmHandler(Protocol):
    """The simulated Slurm, as far as HTTP goes; `target` is path and query."""

    def handle(
        self, now: float, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Answer one request."""
        ...


@asynccontextmanager
async def serve_kube(kube: InProcessKube, port: int = 0) -> AsyncIterator[str]:
    """Serve a simulated Kubernetes; gives its base URL.  Port 0: any free one.  Raises OSError: the port is in use."""

    async def answer(request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        if query.get("watch") in ("1", "true"):
            return await _watch(kube, request, query)
        reply = await kube.exchange(
            request.method,
            request.path,
            params=query,
            body=await request.read(),
            content_type=request.headers.get("Content-Type", ""),
            deadline_s=0,
        )
        return web.Response(status=reply.status, headers=reply.headers, body=reply.body)

    async with _served(answer, port) as url:
        yield url


@asynccontextmanager
async def serve_slurm(slurm: SlurmHandler, clock: Callable[[], float], port: int = 0) -> AsyncIterator[str]:
    """Serve a simulated slurmrestd; gives its base URL."""

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        status, extra, text = slurm.handle(clock(), request.method, request.path_qs, headers, body)
        return web.Response(status=status, headers=CIMultiDict(extra), body=text)

    async with _served(answer, port) as url:
        yield url


async def _watch(kube: InProcessKube, request: web.Request, query: Mapping[str, str]) -> web.StreamResponse:
    try:
        async with kube.stream(request.path, params=query, stall_s=float("inf")) as lines:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            async for line in lines:
                await response.write(line + b"\n")
            return response
    except StreamRefused as refused:
        reply = refused.reply
        return web.Response(status=reply.status, headers=reply.headers, body=reply.body)


@asynccontextmanager
async def _served(answer: Callable[[web.Request], object], port: int) -> AsyncIterator[str]:
    app = web.Application(client_max_size=MAX_BODY)
    app.router.add_route("*", "/{path:.*}", answer)  # type: ignore[arg-type]
    # Watches never end by themselves: handlers are cancelled as their clients go, and at shutdown at once.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, port)
        await site.start()
        host, bound = runner.addresses[0][:2]
        yield f"http://{host}:{bound}"
    finally:
        await runner.cleanup()
