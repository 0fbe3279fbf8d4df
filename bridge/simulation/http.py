"""Serves the simulated clusters on real sockets, for `slurm-bridge dev` and the contract suite.

Nothing is decided here: each request becomes one call of the `handle` of a simulated cluster, and a watch becomes a stream of
lines.  The simulated clusters check no credentials, so the servers listen on loopback only, under loopback names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import yaml
from aiohttp import web
from multidict import CIMultiDict

from bridge.http_access import loopback_names_alone
from bridge.kube.transport import Call, StreamRefused
from bridge.simulation.kube import protobuf
from bridge.simulation.kube.discovery import described, kind_of
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.kube.protobuf import BadProtobuf
from bridge.simulation.kube.strict import unknown_fields
from bridge.simulation.kube.tables import event, table, wants_table
from bridge.simulation.slurm import rest
from bridge.simulation.slurm.cluster import SlurmCluster

MAX_BODY = 8 * 2**20
LOOPBACK = "127.0.0.1"
# kubectl reads it before it creates a list of objects.  An empty document describes no kind, so kubectl judges no field.
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


@asynccontextmanager
async def serve_kube(kube: InProcessKube, port: int = 0) -> AsyncIterator[str]:
    """Serve a simulated Kubernetes.  Yields its base URL.  port 0: any free port.  Raises OSError if the port is in use."""

    async def answer(request: web.Request) -> web.StreamResponse:
        query, body, form = dict(request.query), await request.read(), request.headers.get("Content-Type", "")
        if query.get("watch") in ("1", "true"):
            return await _watch(kube, request, query)
        if request.method == "GET" and (document := await _described(request.path)) is not None:
            return web.json_response(document)
        if request.path == "/openapi/v2":
            return web.Response(content_type=OPENAPI_V2)
        try:
            body = _as_json(body, form)
        except BadProtobuf as error:
            if kind_of(request.path):  # otherwise the cluster answers that it does not serve the kind
                return _refused(415, "UnsupportedMediaType", str(error))
        if query.get("fieldValidation") == "Strict" and (refusal := _strictly(request.path, body)) is not None:
            return refusal
        reply = await kube.exchange(
            Call(
                request.method,
                request.path,
                params=query,
                body=body,
                content_type=form,
                deadline_s=0,
            )
        )
        shown = reply.body
        if _wants_table(request) and reply.status == 200:
            shown = table(reply.body, whole=_wants_whole(query))
        return web.Response(status=reply.status, headers=reply.headers, body=shown)

    async with _served(answer, port) as url:
        yield url


@asynccontextmanager
async def serve_slurm(slurm: SlurmCluster, clock: Callable[[], float], port: int = 0) -> AsyncIterator[str]:
    """Serve a simulated slurmrestd.  Yields its base URL."""

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = await request.read()
        status, extra, text = rest.answer(slurm, clock(), request.method, request.path_qs, headers, body)
        return web.Response(status=status, headers=CIMultiDict(extra), body=text)

    async with _served(answer, port) as url:
        yield url


async def _watch(kube: InProcessKube, request: web.Request, query: Mapping[str, str]) -> web.StreamResponse:
    try:
        async with kube.stream(request.path, params=query, stall_s=float("inf")) as lines:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            as_table = _wants_table(request)
            async for line in lines:
                await response.write((event(line, whole=_wants_whole(query)) if as_table else line) + b"\n")
            return response
    except StreamRefused as refused:
        reply = refused.reply
        return web.Response(status=reply.status, headers=reply.headers, body=reply.body)


async def _described(path: str) -> dict[str, Any] | None:
    """See `described`.  The bridge of `slurm-bridge dev` runs in this process, and does not wait for OpenAPI."""
    return await asyncio.to_thread(described, path) if path.startswith("/openapi/") else described(path)


def _wants_table(request: web.Request) -> bool:
    return request.method == "GET" and wants_table(request.headers.get("Accept", ""))


def _wants_whole(query: Mapping[str, str]) -> bool:
    return query.get("includeObject") == "Object"


def _strictly(path: str, body: bytes) -> web.Response | None:
    """The refusal of a write with fields that its kind does not have."""
    kind = kind_of(path)
    try:
        thing = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None  # the cluster says so itself
    unknown = unknown_fields(thing, kind.kind) if kind and isinstance(thing, dict) else []
    if kind is None or not unknown:
        return None
    fields = ", ".join(f'unknown field "{field}"' for field in unknown)
    version = kind.api_version.rpartition("/")[2]
    message = f'{kind.kind} in version "{version}" cannot be handled as a {kind.kind}: strict decoding error: {fields}'
    return _refused(400, "BadRequest", message)


def _as_json(body: bytes, form: str) -> bytes:
    """A body in one of the forms that kubectl sends, as JSON.  Raises BadProtobuf."""
    if form.startswith(protobuf.CONTENT_TYPE) and body:
        return msgspec.json.encode(protobuf.to_object(body))
    if form.endswith("+yaml"):
        try:
            return msgspec.json.encode(yaml.safe_load(body))
        except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: an impossible date or number
            return body  # the cluster refuses it
    return body


def _refused(code: int, reason: str, message: str) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return web.json_response(status | {"reason": reason, "code": code}, status=code)


@asynccontextmanager
async def _served(answer: Callable[[web.Request], object], port: int) -> AsyncIterator[str]:
    app = web.Application(client_max_size=MAX_BODY, middlewares=[loopback_names_alone()])
    app.router.add_route("*", "/{path:.*}", answer)  # type: ignore[arg-type]
    # Watches do not end by themselves: a handler is cancelled when its client closes the connection, or at shutdown.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, port)
        await site.start()
        host, bound = runner.addresses[0][:2]
        yield f"http://{host}:{bound}"
    finally:
        await runner.cleanup()
