"""The page over HTTP: its files, one stream of changes, one detail at a time.

A stream begins with everything and goes on with what changed: four looks a second at most, shared by all readers.  Each
reader has its own coroutine and remembers what it has sent; one that reads slowly is sent the newest state when it is
ready, not what it missed, and a reader that does not read is dropped.  Without readers there is no work.

A request under a name other than an address of this machine is refused: a page of another site must not read here by
giving its own name our address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib.resources import files

import msgspec
from aiohttp import web

from bridge.http_access import loopback_names_alone
from bridge.page.snapshot import Item, Sections

FILES = {
    "": ("page.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
}
LOOK_EVERY_S = 0.25
ALIVE_EVERY_S = 15.0
SLOW_S = 20.0
MOST_READERS = 32
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def changes(before: Sections, after: Sections) -> dict[str, dict[str, Item]]:
    """The changes to send to a reader that has `before`: the items that differ, and None for items that are gone."""
    changed: dict[str, dict[str, Item]] = {}
    for section in before.keys() | after.keys():
        old, new = before.get(section, {}), after.get(section, {})
        items = {key: item for key, item in new.items() if key not in old or old[key] != item}
        items |= dict.fromkeys(old.keys() - new.keys())
        if items:
            changed[section] = items
    return changed


class Page:
    """Serves what `look` and `detail` return.

    look     everything, now
    detail   one workload by its key; None: not known
    """

    def __init__(self, look: Callable[[], Sections], detail: Callable[[str], Item], clock: Callable[[], float]) -> None:
        self._look = look
        self._detail = detail
        self._clock = clock
        self._looked: tuple[float, Sections] = (float("-inf"), {})
        self._readers = 0

    def application(self) -> web.Application:
        """To be served on loopback; requests under another name are refused."""
        app = web.Application(middlewares=[loopback_names_alone()])
        app.on_response_prepare.append(_with_headers)
        for name in FILES:
            app.router.add_get(f"/{name}", self._file)
        app.router.add_get("/events", self._events)
        app.router.add_get("/workloads/{key}", self._workload)
        return app

    async def _file(self, request: web.Request) -> web.Response:
        name, content_type = FILES[request.path.rpartition("/")[2]]
        text = (files("bridge.page") / name).read_text(encoding="utf-8")
        return web.Response(text=text, content_type=content_type)

    async def _workload(self, request: web.Request) -> web.Response:
        found = self._detail(request.match_info["key"])
        if found is None:
            return web.json_response({"error": "nothing is known of this workload any more"}, status=404)
        return _json(found)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events; each is one JSON object {"now": epoch seconds, "changed": {section: {key: item or null}}}."""
        if self._readers >= MOST_READERS:
            return web.Response(status=503, text="too many pages are open\n")
        self._readers += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await self._tell(response)
        except (TimeoutError, ConnectionResetError):
            pass  # it went, or does not read
        finally:
            self._readers -= 1
        return response

    async def _tell(self, response: web.StreamResponse) -> None:
        sent: Sections = {}
        alive = self._clock()
        while True:
            now, state = self._clock(), self._state()
            changed = changes(sent, state)
            if changed:
                async with asyncio.timeout(SLOW_S):
                    await response.write(b"data: " + msgspec.json.encode({"now": now, "changed": changed}) + b"\n\n")
                sent, alive = state, now
            elif now - alive >= ALIVE_EVERY_S:
                async with asyncio.timeout(SLOW_S):
                    await response.write(b": still here\n\n")
                alive = now
            await asyncio.sleep(LOOK_EVERY_S)

    def _state(self) -> Sections:
        """One look for all readers."""
        now = self._clock()
        if now - self._looked[0] >= LOOK_EVERY_S * 0.8:
            self._looked = (now, self._look())
        return self._looked[1]


def _json(content: Mapping[str, Item]) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), content_type="application/json")


async def _with_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
