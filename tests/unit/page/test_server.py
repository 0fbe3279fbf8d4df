"""The page over HTTP: files under a strict policy, a stream that begins with everything, independent readers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge.page.feed import Entry, Sections, entries_of
from bridge.page.server import Page
from tests.patience import PATIENCE_S


class Served:
    """A page of a state that tests change."""

    def __init__(self) -> None:
        self.state: Sections = {"pods": {"a": {"name": "one"}, "b": {"name": "two"}}}
        self.looks = 0
        self.page = Page(self._look, lambda key: {"story": [key]} if key == "known" else None, time.time)
        self.url = ""

    def _look(self) -> Iterator[Entry]:
        self.looks += 1
        return entries_of(self.state)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    it = Served()
    runner = web.AppRunner(it.page.application(), handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    it.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield it
    await runner.cleanup()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE_S)) as opened:
        yield opened


async def told(response: aiohttp.ClientResponse) -> Any:
    """The next message of a stream."""
    async for line in response.content:
        if line.strip():
            return json.loads(line)
    raise AssertionError("the stream ended")


@pytest.mark.parametrize(
    ("path", "kind", "holds"),
    [
        ("/", "text/html", "<title>slurm-bridge"),
        ("/page.css", "text/css", ":root"),
        ("/page.js", "text/javascript", "sessionStorage"),
    ],
)
async def test_its_files_need_nothing_from_elsewhere(
    served: Served, session: aiohttp.ClientSession, path: str, kind: str, holds: str
) -> None:
    async with session.get(served.url + path) as answer:
        text = await answer.text()
        assert (answer.status, answer.content_type) == (200, kind)
        assert holds in text
        assert "http://" not in text
        assert "https://" not in text
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_stream_begins_with_everything_and_goes_on_with_what_changed(
    served: Served, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{served.url}/events") as stream:
        assert stream.content_type == "application/x-ndjson"
        first = await told(stream)
        assert first["changed"] == {"pods": {"a": {"name": "one"}, "b": {"name": "two"}}}
        assert abs(first["now"] - time.time()) < 60
        served.state = {"pods": {"a": {"name": "other"}}}
        assert (await told(stream))["changed"] == {"pods": {"a": {"name": "other"}, "b": None}}


async def test_many_readers_share_one_look(served: Served, session: aiohttp.ClientSession) -> None:
    streams = [await session.get(f"{served.url}/events") for _ in range(10)]
    for stream in streams:
        await told(stream)
    assert served.looks <= 5
    for stream in streams:
        stream.close()


async def test_without_readers_nothing_is_looked_at(served: Served, session: aiohttp.ClientSession) -> None:
    assert served.looks == 0
    stream = await session.get(f"{served.url}/events")
    await told(stream)
    stream.close()
    async with asyncio.timeout(PATIENCE_S):
        while any(task.get_name() == "page" for task in asyncio.all_tasks()):  # noqa: ASYNC110
            await asyncio.sleep(0)
    looks = served.looks
    async with session.get(f"{served.url}/events") as again:
        assert set((await told(again))["changed"]["pods"]) == {"a", "b"}, "a new reader is told everything"
    assert served.looks > looks


async def test_a_reader_that_does_not_read_disturbs_no_other_reader(
    served: Served, session: aiohttp.ClientSession
) -> None:
    """What it has not read is not kept for it: the others go on, and looks go on."""
    host, port = served.url.removeprefix("http://").split(":")
    served.state = {"pods": {str(number): "x" * 1000 for number in range(8000)}}  # more than any socket buffers
    _, deaf = await asyncio.open_connection(host, int(port), limit=1024)
    deaf.write(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await deaf.drain()
    async with session.get(f"{served.url}/events", read_bufsize=2**24) as stream:
        for number in range(3):
            served.state = {"pods": {"only": number}}
            async with asyncio.timeout(PATIENCE_S):
                while (await told(stream))["changed"]["pods"].get("only") != number:
                    pass
    deaf.close()


async def test_one_workload_is_asked_for_by_its_key(served: Served, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{served.url}/workloads/known") as answer:
        assert await answer.json() == {"story": ["known"]}
    async with session.get(f"{served.url}/workloads/other") as answer:
        assert answer.status == 404


async def test_another_name_for_this_machine_is_refused(served: Served, session: aiohttp.ClientSession) -> None:
    """A foreign page could give its own name the address of the bridge (DNS rebinding), and read its answers."""
    for path in ("/", "/events", "/workloads/known"):
        async with session.get(served.url + path, headers={"Host": "evil.example:80"}) as answer:
            assert answer.status == 421


async def test_a_request_without_a_body_holds_no_stream_open(served: Served, session: aiohttp.ClientSession) -> None:
    async with session.head(f"{served.url}/events") as answer:
        assert answer.status == 405
    async with session.head(f"{served.url}/") as answer:
        assert (answer.status, await answer.text()) == (200, "")
