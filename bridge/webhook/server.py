"""The HTTPS server that the API server calls: POST /intercept.  Kubelet asks /healthz and /readyz, Prometheus asks /metrics.

Any peer that reaches the port may send requests.  A response contains only data from the request, metrics without names, and
what is wrong with the certificate.  The size of a body, the time for a body and the number of bodies at a time are limited,
so a peer that floods the port costs a known amount of memory.

The certificate changes while the server runs: each handshake uses the TLS context of that moment.  Open connections keep the
certificate with which they began.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable

import msgspec
from aiohttp import web

from bridge.errors import ConfigError
from bridge.http_clients import Site
from bridge.http_log import PEERS_FAULT, without_peers
from bridge.webhook.certificates import Pair, Unusable, check
from bridge.webhook.metrics import Metrics, Outcome
from bridge.webhook.review import Intercept, answer
from scheduler.model.text import span

PATH = "/intercept"
MOST_BYTES = 4 * 2**20  # of a review: an API server takes objects of 3 MiB
MOST_AT_ONCE = 32
BODY_S = 3.0  # the API server does not wait longer (timeoutSeconds)
CLOSING_S = 2.0


class Server:
    """The server of one webhook process.

    intercept  which pods get the scheduler
    wall       returns the time in epoch seconds
    """

    def __init__(self, intercept: Intercept, wall: Callable[[], float]) -> None:
        self._intercept = intercept
        self._wall = wall
        self._pair: Pair | None = None
        self._context: ssl.SSLContext | None = None
        self._under_way = 0
        self._metrics = Metrics()
        self.trouble = ""  # why the last check of the certificate failed, in sentences; "": it succeeded

    def use(self, pair: Pair) -> None:
        """Use that certificate for new connections.  Raises Unusable; the previous certificate then stays in use."""
        if pair != self._pair:
            self._context = _context(pair)
            self._pair = pair
            self._metrics.uses(pair.ends)

    def not_ready(self) -> str:
        """Why API servers cannot use this replica, as a sentence; "": they can."""
        if self._pair is None:
            return "There is no certificate yet."
        try:
            check(self._pair, self._wall())
        except Unusable as error:
            return f"API servers refuse this replica: {error}."
        return ""

    async def listen(self, host: str, port: int) -> web.AppRunner:
        """Start to listen.  A certificate must be in use.  The caller cleans up the runner that is returned.

        Raises ConfigError if the server cannot listen on the address.
        """
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_post(PATH, self._review)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._scraped)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=CLOSING_S, logger=without_peers("slurm-bridge.webhook.http")
        )
        await runner.setup()
        try:
            await Site(runner, host or None, port, ssl_context=self._listening()).start()
        except OSError as error:
            await runner.cleanup()
            why = error.strerror or str(error)
            raise ConfigError(f"--listen {host}:{port}: {why}.", "Choose another address.") from None
        return runner

    def _listening(self) -> ssl.SSLContext:
        """A context for the listener, which gives each handshake the present context, whether or not the client sends SNI."""
        assert self._context is not None
        assert self._pair is not None
        made = _context(self._pair)

        def choose(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _made: ssl.SSLContext) -> None:
            assert self._context is not None
            connection.context = self._context

        made.sni_callback = choose
        return made

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        """200, or 503 and why.  In both cases the body says why the last check of the certificate failed, if it did."""
        why = self.not_ready()
        return web.Response(
            text="\n".join(filter(None, [why or "ok", self.trouble])) + "\n", status=503 if why else 200
        )

    async def _scraped(self, request: web.Request) -> web.Response:
        """The metrics (`Metrics.scrape`)."""
        text, content_type = self._metrics.scrape(request.headers.get("Accept", ""))
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def _review(self, request: web.Request) -> web.Response:
        began, outcome = time.monotonic(), Outcome.FAILED
        try:
            outcome, response = await self._answered(request)
            return response
        finally:
            self._metrics.reviewed(outcome, time.monotonic() - began)

    async def _answered(self, request: web.Request) -> tuple[Outcome, web.Response]:
        if self._under_way >= MOST_AT_ONCE:
            return Outcome.BUSY, _refused(503, f"{MOST_AT_ONCE} reviews are being read already: ask again.")
        self._under_way += 1
        try:
            async with asyncio.timeout(BODY_S):
                body = await request.read()
        except TimeoutError:
            return Outcome.LATE, _refused(408, f"The review did not arrive within {span(BODY_S)}.")
        except web.HTTPRequestEntityTooLarge:
            return Outcome.TOO_LARGE, _refused(413, f"The review is larger than {MOST_BYTES >> 20} MiB.")
        except PEERS_FAULT:
            return Outcome.UNREADABLE, _refused(400, "The review did not arrive whole.")
        finally:
            self._under_way -= 1
        try:
            reply = answer(msgspec.json.decode(body), self._intercept)
            encoded = msgspec.json.encode(reply)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            why = "The body is not JSON: an AdmissionReview of admission.k8s.io/v1 is expected."
            return Outcome.UNREADABLE, _refused(400, why)
        outcome = Outcome.INTERCEPTED if "patch" in reply["response"] else Outcome.LEFT_ALONE
        return outcome, web.Response(body=encoded, content_type="application/json")


def _refused(status: int, sentence: str) -> web.Response:
    return web.Response(status=status, text=f"{sentence}\n")


def _context(pair: Pair) -> ssl.SSLContext:
    """A TLS context with the pair.  Raises Unusable if TLS cannot use the pair.

    The ssl module reads a certificate only from a file.  This file is in memory, because the file system may be read-only.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_alpn_protocols(["http/1.1"])
    descriptor = os.memfd_create("slurm-bridge-webhook")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(pair.certificate.rstrip() + b"\n" + pair.key)
        made.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        raise Unusable(
            f"TLS cannot use the certificate and the key ({getattr(error, 'reason', None) or 'malformed'})"
        ) from None
    finally:
        os.close(descriptor)
    return made
