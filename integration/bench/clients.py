"""Clients of both clusters for the benchmarks: a request is prebuilt bytes, an answer is bytes, and nothing is repeated.

The benchmark runs on the same two cores as the programs that it measures, so it does as little as possible.  The head of a
request is written here, and httptools reads the answer: each of aiohttp, asyncio's streams and the bridge's own pool takes
longer, because they do more.  aiohttp carries only the watches.  An unexpected answer ends the run with a sentence, because a
benchmark repairs nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import urlencode, urlsplit

import aiohttp
import httptools
import msgspec
import yaml

JSON = "application/json"
NAMESPACE = "alice-bench"
TENANT = "alice"  # who that namespace is in Slurm
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
API = "v0.0.45"
LONGEST_CALL_S = 60.0
LONGEST_IDLE_S = 15.0  # as aiohttp's: servers close idle connections, and a request on such a connection is lost


class BenchError(Exception):
    """A failure of the run, as a sentence for a person: for example, which server was not reached, and where."""


class Cut(BenchError):
    """A server closed the connection before its answer was complete, or did not answer in time."""


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
        self._trust = ssl.create_default_context(cafile=self.authority)
        self._authorization = f"Bearer {user['token']}"
        self._pool = Pool(self.server, connections, self._trust)
        self._watches: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._watches = aiohttp.ClientSession(
            self.server,
            headers={"Authorization": self._authorization},
            connector=aiohttp.TCPConnector(ssl=self._trust),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=1 << 20,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()
        await self._watches.close()

    async def call(
        self, method: str, path: str, body: bytes = b"", *, kind: str = JSON, may: tuple[int, ...] = ()
    ) -> bytes:
        """The body of a good answer, or of one whose status `may` be.  Raises BenchError.

        kind   of what is sent
        """
        headers = f"Authorization: {self._authorization}\r\n"
        status, said = await self._pool.exchange(method, path, headers, kind, body)
        if status >= 300 and status not in may:
            raise BenchError(f"{method} {path} was answered {status}: {said[:300].decode(errors='replace')}")
        return said

    async def json(self, method: str, path: str, body: Any = None, *, may: tuple[int, ...] = ()) -> Any:
        """The same with plain values."""
        said = await self.call(method, path, b"" if body is None else msgspec.json.encode(body), may=may)
        return msgspec.json.decode(said)

    async def watch(self, selector: str, *, ready: Callable[[], None] = lambda: None) -> AsyncIterator[Change]:
        """Every change from now on of the pods that a field selector matches, for ever.  Raises BenchError.

        A pod that begins to match is ADDED; a pod that no longer matches is DELETED.
        ready   called once nothing can be missed any more
        """
        version = (await self.json("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        ready()
        # The server ends a watch that is behind by a few changes (by ten, while it is new): go on from there.
        while True:
            query = urlencode({"watch": "1", "fieldSelector": selector, "resourceVersion": version})
            async with self._watches.get(f"{PODS}?{query}") as answer:
                if answer.status != 200:
                    raise BenchError(f"the watch of {selector} was answered {answer.status}")
                async for line in answer.content:
                    change = _CHANGE.decode(line)
                    if change.type == "ERROR":
                        raise BenchError(f"the watch of {selector} broke off: {line[:300].decode(errors='replace')}")
                    version = change.object.metadata.version
                    yield change


class Slurm:
    """One slurmrestd."""

    def __init__(self, url: str, token_file: str, *, connections: int = 8) -> None:
        self._pool = Pool(url, connections)
        self._token = Path(token_file).read_text().strip()

    async def call(self, method: str, path: str, body: bytes = b"", *, user: str = "") -> bytes:
        """The body of a good answer to /slurm/<version>/<path>, as that user.  Raises BenchError."""
        headers = f"X-SLURM-USER-TOKEN: {self._token}\r\n" + (f"X-SLURM-USER-NAME: {user}\r\n" if user else "")
        status, said = await self._pool.exchange(method, f"/slurm/{API}/{path}", headers, JSON, body)
        if status != 200:
            raise BenchError(f"{method} {path} was answered {status}: {said[-400:].decode()}")
        return said

    async def json(self, method: str, path: str, body: Any = None, *, user: str = "") -> Any:
        """The same with plain values."""
        sent = b"" if body is None else msgspec.json.encode(body)
        return msgspec.json.decode(await self.call(method, path, sent, user=user))


class Pool:
    """At most so many connections to one server, which stay open.  url: "http://HOST:PORT", or https with *trust*"""

    def __init__(self, url: str, connections: int, trust: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self._address = parts.hostname, parts.port or (443 if trust else 80)
        self._host = parts.netloc
        self._trust = trust
        self._turns = asyncio.Semaphore(connections)
        self._idle: list[_Connection] = []

    async def exchange(self, method: str, path: str, headers: str, kind: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer.  Raises BenchError, Cut.  kind: of the body that is sent"""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\n{headers}"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with self._turns:
            connection = self._take_idle() or await self._connect()
            try:
                answer = await connection.ask(head.encode() + body)
            except Cut as error:
                raise Cut(f"{method} {path}: {error}") from None
            finally:
                self._give_back(connection)
        return answer

    def close(self) -> None:
        """Drop the idle connections."""
        while self._idle:
            self._idle.pop().drop()

    def _take_idle(self) -> _Connection | None:
        """Take the idle connection that was used last; None: no idle connection is open.  Drops those that are not."""
        oldest = asyncio.get_running_loop().time() - LONGEST_IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since > oldest:
                return connection
            connection.drop()
        return None

    def _give_back(self, connection: _Connection) -> None:
        if connection.is_reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.drop()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            return (await loop.create_connection(_Connection, *self._address, ssl=self._trust))[1]
        except OSError as error:
            raise BenchError(f"no connection to {self._host}: {error}") from None


class _Connection(asyncio.Protocol):
    """One connection, one exchange at a time.

    is_reusable   it can carry another exchange; after an error it cannot, because slurmrestd answers errors twice
                  (Slurm facts 4)
    idle_since    when its last exchange ended, by the clock of the event loop
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._answer: asyncio.Future[tuple[int, bytes]]
        self._transport: asyncio.Transport
        self.is_reusable = False
        self.idle_since = 0.0

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send the request.  Returns the status and the body of its answer.  Raises Cut."""
        loop = asyncio.get_running_loop()
        self.is_reusable, self._body, self._answer = False, [], loop.create_future()
        if self._transport.is_closing():
            raise Cut("the connection ended before the request was sent")
        self._transport.write(request)
        too_late = loop.call_later(LONGEST_CALL_S, self._transport.abort)
        try:
            return await self._answer
        finally:
            too_late.cancel()

    @property
    def is_open(self) -> bool:
        """It can carry another exchange now."""
        return self.is_reusable and not self._transport.is_closing()

    def drop(self) -> None:
        """Close it at once."""
        self.is_reusable = False
        self._transport.abort()

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._answer = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_reusable = False
        if not self._answer.done():
            self._answer.set_exception(Cut("the connection ended before the answer was complete"))

    # --- called by the parser

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        if self._answer.done():  # a second answer
            self.is_reusable = False
            return
        status = self._parser.get_status_code()
        self.is_reusable = status < 300 and self._parser.should_keep_alive()
        self._answer.set_result((status, b"".join(self._body)))
