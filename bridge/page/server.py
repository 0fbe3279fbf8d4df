"""The page over HTTP: its files, a stream of changes, and the details of one workload.  All of it is read only.

A stream begins with all items and continues with changed items.  All readers share the looks.  Each reader has its own
coroutine, and the number of the last change that it was sent.  A slow reader gets the newest state of each item when it is
ready, not each change.  A reader that does not read is dropped.  Without readers, no looks are made and nothing is kept.

The files hold nothing secret, so any client may read them.  `refused` decides which requests may read the stream and the
details.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from importlib.resources import files
from itertools import islice

import msgspec
from aiohttp import web

from bridge.http_access import loopback_names_alone
from bridge.page.feed import Entry, Feed, Item

FILES = {
    "": ("page.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
}
POLL_S = 0.25  # between two messages to a reader
ALIVE_EVERY_S = 15.0
SLOW_S = 20.0
MOST_READERS = 32
MOST_ITEMS = 500  # of one message
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def raised(_what: str, error: Exception) -> None:
    """Raise the exception, so that no error is contained."""
    raise error


class Page:
    """Serves what `look` and `detail` return.

    look      as of Feed
    detail    returns the details of a workload, by its key; None: the workload is not known
    every_s   seconds between the end of a look and the begin of the next look
    refused   returns the answer to a request that may not read; None: the request may read
    failed    as of Feed
    """

    def __init__(
        self,
        look: Callable[[], Iterable[Entry]],
        detail: Callable[[str], Item],
        clock: Callable[[], float],
        *,
        every_s: float = 0.2,
        refused: Callable[[web.Request], web.Response | None] = lambda _: None,
        failed: Callable[[str, Exception], None] = raised,
    ) -> None:
        self._look = look
        self._detail = detail
        self._clock = clock
        self._every_s = every_s
        self._refused = refused
        self._failed = failed
        self._feed = Feed(look, failed)
        self._sent: dict[object, int] = {}  # reader to the number of the last change that it was sent
        self._looking: asyncio.Task[None] | None = None

    def application(self) -> web.Application:
        """An application to serve on loopback.  Requests under a host name that is not loopback are refused."""
        app = web.Application(middlewares=[loopback_names_alone()])
        app.on_response_prepare.append(_with_headers)
        self.add_to(app)
        return app

    def add_to(self, app: web.Application) -> None:
        """Add the page to a server."""
        for name in FILES:
            app.router.add_get(f"/{name}", self._file)
        app.router.add_get("/events", self._events, allow_head=False)  # an answer to HEAD has no end, and no lines
        app.router.add_get("/workloads/{key}", self._workload)

    async def _file(self, request: web.Request) -> web.Response:
        name, content_type = FILES[request.path.rpartition("/")[2]]
        text = (files("bridge.page") / name).read_text(encoding="utf-8")
        return web.Response(text=text, content_type=content_type, headers=HEADERS)

    async def _workload(self, request: web.Request) -> web.Response:
        if (no := self._refused(request)) is not None:
            return no
        key = request.match_info["key"]
        try:
            found = self._detail(key)
        except Exception as error:  # noqa: BLE001 - contained to this answer, or raised
            self._failed(f"detail of {key}", error)
            return web.json_response({"error": "slurm-bridge had an internal error; see its log"}, status=500)
        if found is None:
            return web.json_response({"error": "nothing is known of this workload any more"}, status=404)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json", headers=HEADERS)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """A stream of lines; each is {"now": epoch seconds, "changed": {section: {key: item or null}}}, or empty."""
        if (no := self._refused(request)) is not None:
            return no
        if len(self._sent) >= MOST_READERS:
            return web.Response(status=503, text="Too many pages are open; close one, and load this one again.\n")
        async with self._reader() as reader:
            response = web.StreamResponse(headers={**HEADERS, "Content-Type": "application/x-ndjson"})
            try:
                await response.prepare(request)
                await self._send_changes(response, reader, request)
            except (TimeoutError, ConnectionResetError):
                pass  # the reader has closed the connection, or does not read
        return response

    @asynccontextmanager
    async def _reader(self) -> AsyncIterator[object]:
        """Add a reader, until the context ends.  As long as there are readers, looks are made."""
        reader = object()
        self._sent[reader] = 0
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_ever(), name="page")
        try:
            yield reader
        finally:
            del self._sent[reader]
            if not self._sent:
                self._looking.cancel()
                self._looking, self._feed = None, Feed(self._look, self._failed)

    async def _look_for_ever(self) -> None:
        while True:
            try:
                await self._feed.refresh()
            except Exception as error:  # noqa: BLE001 - contained to this look, or raised
                self._failed("look", error)
            self._feed.forget(min(self._sent.values(), default=0))
            await asyncio.sleep(self._every_s)

    async def _send_changes(self, response: web.StreamResponse, reader: object, request: web.Request) -> None:
        """Send the changes; if there are none for ALIVE_EVERY_S, send an empty line.

        Returns when the request may not read any more.  If the looks end with an exception, it is raised.
        """
        alive = self._clock()
        while self._looking is not None and not self._looking.done() and self._refused(request) is None:
            changed = iter(self._feed.since(self._sent[reader]))
            while part := list(islice(changed, MOST_ITEMS)):
                alive = self._clock()
                await _write(response, _message(alive, part))
                self._sent[reader] = part[-1][0]
            if self._clock() - alive >= ALIVE_EVERY_S:
                alive = self._clock()
                await _write(response, b"\n")
            await asyncio.sleep(POLL_S if self._feed.looked else POLL_S / 10)
        if self._looking is not None and self._looking.done():
            self._looking.result()


async def _with_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


async def _write(response: web.StreamResponse, line: bytes) -> None:
    """Send the line.  Raises TimeoutError if the reader does not read within SLOW_S."""
    async with asyncio.timeout(SLOW_S):
        await response.write(line)


def _message(now: float, part: Iterable[tuple[int, str, str, bytes]]) -> bytes:
    """A line of the stream with these changes, whose items are JSON already."""
    sections: dict[str, list[bytes]] = {}
    for _, section, key, text in part:
        sections.setdefault(section, []).append(msgspec.json.encode(key) + b":" + text)
    return b'{"now":%r,"changed":{%s}}\n' % (now, b",".join(_joined(sections)))


def _joined(sections: dict[str, list[bytes]]) -> Iterator[bytes]:
    for section, items in sections.items():
        yield msgspec.json.encode(section) + b":{" + b",".join(items) + b"}"
