"""The bridge's HTTP endpoints: /healthz, /readyz, /metrics, /explain, /nodes, /release, and the page.

/healthz answers 200 while the loop makes passes.  /readyz answers 200 while the bridge can do its work; if not, it says why.
These two and /metrics show no pod, and need no authentication.  /explain (one pod), /nodes (sums by node), the data of the
page (all pods) and /release (the only request that changes anything) require a client on the same machine, or a bearer token
(bridge/http_access.py).

`Starting` (starting.py) answers until a bridge acts, and while this replica stands by; `Health` (health.py) answers while a
bridge acts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from aiohttp import web

from bridge.errors import ConfigError
from bridge.http_access import Bearers, refusal, refusal_of_nodes, sign
from bridge.http_clients import Site, in_parts
from bridge.http_log import without_peers
from bridge.page.feed import Entry, Item
from bridge.page.server import Page
from bridge.share import Busy, Share
from bridge.stopping import READERS_S
from bridge.telemetry import Telemetry

PAGE_EVERY_S = 1.0  # between two updates of the page, while a browser shows it


class Endpoints(ABC):
    """One method for each path.  `Health` and `Starting` share /metrics, the checks of access, and the time."""

    def __init__(self, telemetry: Telemetry, clock: Callable[[], float], bearers: Bearers) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._bearers = bearers
        self._scraping = Share()

    async def metrics(self, request: web.Request) -> web.Response:
        """See `Telemetry.scrape`."""
        try:
            async with self._scraping.turn():
                await self.prepare_scrape()
                body, content_type = self._telemetry.scrape(request.headers.get("Accept", ""))
        except Busy:
            return too_many()
        return web.Response(body=in_parts(body), headers={"Content-Type": content_type})

    @abstractmethod
    async def prepare_scrape(self) -> None:
        """Do the long part of a scrape, in slices."""

    def refused(self, request: web.Request) -> web.Response | None:
        """As http_access.refusal."""
        return refusal(request, self._bearers.admin)

    def nodes_refused(self, request: web.Request) -> web.Response | None:
        """As http_access.refusal_of_nodes."""
        return refusal_of_nodes(request, self._bearers)

    def now(self) -> float:
        """The bridge's time, epoch seconds."""
        return self._clock()

    @abstractmethod
    async def healthz(self, request: web.Request, /) -> web.Response:
        """Answer 200 unless the process must be restarted."""

    @abstractmethod
    async def readyz(self, request: web.Request, /) -> web.Response:
        """Answer 200 if this replica can do its work, and otherwise 503 and the reasons."""

    @abstractmethod
    async def explain(self, request: web.Request) -> web.Response:
        """Answer with what the bridge knows of one pod."""

    @abstractmethod
    async def nodes(self, request: web.Request) -> web.Response:
        """Answer with sums by node."""

    @abstractmethod
    async def release(self, request: web.Request) -> web.Response:
        """Take an admin's confirmation that missing jobs are gone (X6)."""

    @abstractmethod
    def look(self) -> Iterator[Entry]:
        """What the page shows."""

    @abstractmethod
    def detail(self, key: str, /) -> Item:
        """What the page shows of one workload; None if it is not known."""

    @abstractmethod
    def page_failed(self, what: str, error: Exception, /) -> None:
        """An item of the page could not be computed."""


def too_many() -> web.Response:
    """429: too many requests at a time; to answer them all would delay the bridge's work."""
    text = "Too many requests at once; try again in a second.\n"
    return web.Response(text=text, status=429, headers={"Retry-After": "1"})


async def serve(answers: Callable[[], Endpoints], host: str, port: int) -> web.AppRunner:
    """Start listening; each request is answered by what `answers` returns at that moment.

    The caller calls `cleanup` of the runner.  Raises ConfigError if the address cannot be used.
    """
    app = web.Application()
    app.on_response_prepare.extend((_with_headers, sign))

    def route(method: str, path: str, name: str) -> None:
        async def answer(request: web.Request) -> web.Response:
            found: web.Response = await getattr(answers(), name)(request)
            return found

        app.router.add_route(method, path, answer)

    for name in ("healthz", "readyz", "metrics", "explain", "nodes"):
        route("GET", f"/{name}", name)
    route("POST", "/release", "release")
    page = Page(
        lambda: answers().look(),
        lambda key: answers().detail(key),
        lambda: answers().now(),
        every_s=PAGE_EVERY_S,
        refused=lambda request: answers().refused(request),
        failed=lambda what, error: answers().page_failed(what, error),
    )
    page.add_to(app)
    quiet = without_peers("slurm-bridge.http")
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=READERS_S, logger=quiet)
    await runner.setup()
    try:
        await Site(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        why = error.strerror or str(error)
        raise ConfigError(f"http {host}:{port}: {why}. Choose another address with --http HOST:PORT.") from None
    return runner


async def _with_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Forbid browsers to cache an answer, or to guess another content type."""
    response.headers.update({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"})
