"""Clients of both clusters for the benchmarks: a request is prebuilt bytes, an answer is bytes, and nothing is repeated.

The benchmark runs on the same two cores as the programs that it measures, so it does as little as possible.  An unexpected
answer ends the run with a sentence, because a benchmark repairs nothing.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
import yaml

JSON = "application/json"
NAMESPACE = "alice-bench"
TENANT = "alice"  # who that namespace is in Slurm
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
API = "v0.0.45"
CONTENT_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
LONGEST_CALL_S = 60.0


class BenchError(Exception):
    """A failure of the run, as a sentence for a person: for example, which server was not reached, and where."""


class Metadata(msgspec.Struct):
    """The metadata that the benchmark reads."""

    name: str = ""
    uid: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")
    deleted: str = msgspec.field(default="", name="deletionTimestamp")
    annotations: dict[str, str] = {}


class Condition(msgspec.Struct, frozen=True):
    """Everything but the time."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Status(msgspec.Struct):
    """The part of the pod's status that the benchmark reads."""

    conditions: tuple[Condition, ...] = ()


class Pod(msgspec.Struct):
    """The parts of a pod that the benchmark reads."""

    metadata: Metadata
    status: Status | str = ""  # the server's own complaint has a word there

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.status.conditions if isinstance(self.status, Status) else ()


class Change(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: Pod


_CHANGE = msgspec.json.Decoder(Change)


class Kube:
    """One API server by kubeconfig, as its administrator."""

    def __init__(self, kubeconfig: str, *, connections: int = 64) -> None:
        written = yaml.safe_load(Path(kubeconfig).read_text())
        cluster, user = written["clusters"][0]["cluster"], written["users"][0]["user"]
        self.server: str = cluster["server"]
        self.authority: str = cluster["certificate-authority"]
        self._headers = {"Authorization": f"Bearer {user['token']}"}
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

    async def call(
        self, method: str, path: str, body: bytes | None = None, *, kind: str = JSON, may: tuple[int, ...] = ()
    ) -> bytes:
        """The body of a good answer, or of one whose status `may` be.  Raises BenchError.

        kind   of what is sent
        """
        async with self._session.request(method, path, data=body, headers={"Content-Type": kind}) as answer:
            said = await answer.read()
            if answer.status >= 300 and answer.status not in may:
                raise BenchError(f"{method} {path} was answered {answer.status}: {said[:300].decode(errors='replace')}")
            return said

    async def json(self, method: str, path: str, body: Any = None, *, may: tuple[int, ...] = ()) -> Any:
        """The same with plain values."""
        said = await self.call(method, path, None if body is None else msgspec.json.encode(body), may=may)
        return msgspec.json.decode(said)

    async def watch(self, selector: str, *, ready: Callable[[], None] = lambda: None) -> AsyncIterator[Change]:
        """Every change from now on of the pods that a field selector matches, for ever.  Raises BenchError.

        A pod that begins to match is ADDED; a pod that no longer matches is DELETED.
        ready   called once nothing can be missed any more
        """
        version = (await self.json("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        ready()
        endless = aiohttp.ClientTimeout(total=None)
        # The server ends a watch that is behind by a few changes (by ten, while it is new): go on from there.
        while True:
            query = urlencode({"watch": "1", "fieldSelector": selector, "resourceVersion": version})
            async with self._session.get(f"{PODS}?{query}", timeout=endless) as answer:
                if answer.status != 200:
                    raise BenchError(f"the watch of {selector} was answered {answer.status}")
                async for line in answer.content:
                    change = _CHANGE.decode(line)
                    if change.type == "ERROR":
                        raise BenchError(f"the watch of {selector} broke off: {line[:300].decode(errors='replace')}")
                    version = change.object.metadata.version
                    yield change


class Slurm:
    """One slurmrestd, over a few connections that stay open.

    The HTTP is written by hand: an ordinary client costs as much time as the call.  A connection whose answer is not 200
    is dropped, because slurmrestd answers errors twice (Slurm facts 4).
    """

    def __init__(self, url: str, token_file: str, *, connections: int = 8) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self._address = parts.hostname, parts.port or 80
        self._token = Path(token_file).read_text().strip()
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter] | None] = asyncio.Queue()
        for _ in range(connections):
            self._free.put_nowait(None)

    async def call(self, method: str, path: str, body: bytes = b"", *, user: str = "") -> bytes:
        """The body of a good answer to /slurm/<version>/<path>, as that user.  Raises BenchError."""
        connection = await self._free.get()
        try:
            reader, writer = connection or await asyncio.open_connection(*self._address)
            connection = None  # until the answer is whole, it is not to be used again
            writer.write(self._head(method, path, len(body), user) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            length = CONTENT_LENGTH.search(head)
            said = await reader.readexactly(int(length[1]) if length else 0)
            if head[9:12] != b"200":
                writer.close()
                raise BenchError(f"{method} {path} was answered {head[9:12].decode()}: {said[-400:].decode()}")
            connection = reader, writer
            return said
        finally:
            self._free.put_nowait(connection)

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
