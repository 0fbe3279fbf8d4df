"""The two far sides for a stopwatch: a request is prebuilt bytes, an answer is bytes, and nothing is done twice.

Whoever measures takes its time from the same two cores as those who are measured, so this is as lean as it can be read.
Anything unexpected ends the run with a sentence: a benchmark repairs nothing.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
import yaml

API = "v0.0.45"
CONTENT_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
LONGEST_CALL_S = 60.0


class BenchError(Exception):
    """What a person has to know: what was not reached, where."""


class Kube:
    """One API server by kubeconfig, as its administrator."""

    def __init__(self, kubeconfig: str, *, connections: int = 64) -> None:
        written = yaml.safe_load(Path(kubeconfig).read_text())
        cluster, user = written["clusters"][0]["cluster"], written["users"][0]["user"]
        self.server: str = cluster["server"]
        self.authority: str = cluster["certificate-authority"]
        self._headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}
        self._connections = connections
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        trust = ssl.create_default_context(cafile=self.authority)
        self._session = aiohttp.ClientSession(
            self.server,
            headers=self._headers,
            connector=aiohttp.TCPConnector(ssl=trust, limit=self._connections),
            timeout=aiohttp.ClientTimeout(total=LONGEST_CALL_S),
            read_bufsize=1 << 20,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: bytes | None = None, *, may: tuple[int, ...] = ()) -> bytes:
        """The body of a good answer, or of one whose status `may` be.  Raises BenchError."""
        async with self._session.request(method, path, data=body) as answer:
            said = await answer.read()
            if answer.status >= 300 and answer.status not in may:
                raise BenchError(f"{method} {path} was answered {answer.status}: {said[:300].decode(errors='replace')}")
            return said

    async def json(self, method: str, path: str, body: Any = None, *, may: tuple[int, ...] = ()) -> Any:
        """The same with plain values."""
        said = await self.call(method, path, None if body is None else msgspec.json.encode(body), may=may)
        return msgspec.json.decode(said)

    async def version(self, path: str) -> str:
        """The resourceVersion of a list as it is now: where a watch begins."""
        version: str = (await self.json("GET", f"{path}?limit=1"))["metadata"]["resourceVersion"]
        return version

    async def watch(self, path: str, selector: str, version: str) -> AsyncIterator[bytes]:
        """Every change after that version, one line of JSON each.  Ends when the server ends it."""
        query = urlencode({"watch": "1", "fieldSelector": selector, "resourceVersion": version})
        endless = aiohttp.ClientTimeout(total=None)
        async with self._session.get(f"{path}?{query}", timeout=endless) as answer:
            if answer.status != 200:
                raise BenchError(f"the watch of {path} was answered {answer.status}")
            async for line in answer.content:
                yield line


class Slurm:
    """One slurmrestd, over a few connections that stay open.

    The HTTP is written by hand: an ordinary client costs as much time as the call.  A connection whose answer is not 200
    is dropped, because slurmrestd answers errors twice (FACTS 7).
    """

    def __init__(self, url: str, token_file: str, *, lanes: int = 8) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self._address = parts.hostname, parts.port or 80
        self._token = Path(token_file).read_text().strip()
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None] = asyncio.Queue()
        for _ in range(lanes):
            self._free.put_nowait(None)

    async def call(self, method: str, path: str, body: bytes = b"", *, user: str = "") -> bytes:
        """The body of a good answer to /slurm/<version>/<path>, as that user.  Raises BenchError."""
        lane = await self._free.get()
        try:
            reader, writer = lane or await asyncio.open_connection(*self._address)
            lane = None  # until the answer is whole, it is not to be used again
            writer.write(self._head(method, path, len(body), user) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            length = CONTENT_LENGTH.search(head)
            said = await reader.readexactly(int(length[1]) if length else 0)
            if head[9:12] != b"200":
                writer.close()
                raise BenchError(f"{method} {path} was answered {head[9:12].decode()}: {said[-400:].decode()}")
            lane = reader, writer
            return said
        finally:
            self._free.put_nowait(lane)

    async def json(self, method: str, path: str, body: Any = None, *, user: str = "") -> Any:
        """The same with plain values."""
        sent = b"" if body is None else msgspec.json.encode(body)
        return msgspec.json.decode(await self.call(method, path, sent, user=user))

    def _head(self, method: str, path: str, length: int, user: str) -> bytes:
        acting = f"X-SLURM-USER-NAME: {user}\r\n" if user else ""
        return (
            f"{method} /slurm/{API}/{path} HTTP/1.1\r\nHost: slurm\r\nX-SLURM-USER-TOKEN: {self._token}\r\n{acting}"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        ).encode()
