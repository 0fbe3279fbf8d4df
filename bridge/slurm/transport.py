"""One request, one answer, and the truth about what became of the request.

slurmrestd is a small HTTP/1.1 server with habits that ordinary clients stumble over (ARCHITECTURE 8): 26.05 answers
errors twice on one connection, so the second copy would be read as the answer to the next request; a call may hang for
ever; a server with too many connections does not refuse a new one, it lets it hang.  Hence:

* One lane is one connection with one exchange at a time.  A lane that speaks unasked, answers with anything but 200, or
  says `Connection: close`, is dropped, never reused.
* A fixed number of lanes; whoever finds none free waits its turn, and its deadline runs meanwhile.
* Nothing was sent (no connection, or the deadline passed before a lane was free): Unreachable.  A byte may have left
  and no whole answer came: Unanswered.  An answer that is no HTTP, or larger than the limit: ContractError.

The poller has a pool of its own with one lane, so a burst of submissions never delays it (FACTS 5).
No header is ever logged or put into an error: one of them is the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, cast
from urllib.parse import urlsplit

import h11

from bridge.errors import ConfigError, ContractError, Invalid, Unanswered, Unreachable

# 8 connections carry all that slurmctld can do (FACTS 5), and slurmrestd takes 124 in all.
DEFAULT_CONNECTIONS = 8
# slurmrestd itself gives up on a silent slurmctld after 9–10 s (FACTS 4): its own word is better than our silence.
DEFAULT_DEADLINE_S = 12.0
# jobs/state of 10,000 jobs is 0.8 MB, nodes/ of 5,000 nodes 12.8 MB (FACTS 5).
DEFAULT_ANSWER_LIMIT = 64 * 1024 * 1024

SIDE = "Slurm"


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer.  headers: names in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Transport(Protocol):
    """What carries requests: a pool of connections, recordings, or a simulated Slurm."""

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        """Send one request and return its whole answer, whatever its status.

        target      path and query, "/slurm/v0.0.45/ping/"
        deadline_s  for all of it: waiting for a free lane, connecting, sending, reading
        Raises Unreachable (nothing was sent), Unanswered (it may have happened), ContractError (no HTTP, too large).
        """
        ...


class HttpPool:
    """The real transport: a few keep-alive connections to one slurmrestd.

    base_url     "http://host:6820" or "https://host/slurm-api": a path is put before every target
    connections  how many exchanges may be under way at once
    ssl_context  for https; None: the system's trust
    Raises ConfigError for a URL that is none.
    """

    def __init__(
        self,
        base_url: str,
        *,
        connections: int = DEFAULT_CONNECTIONS,
        answer_limit: int = DEFAULT_ANSWER_LIMIT,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._server = _Server.of(base_url, ssl_context)
        self._free = asyncio.Semaphore(connections)
        self._idle: list[_Lane] = []
        self._answer_limit = answer_limit

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the idle connections; exchanges under way end by themselves."""
        while self._idle:
            self._idle.pop().drop()

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        """See Transport.  A GET whose reused connection turns out to be closed is sent once more, on a fresh one."""
        operation = f"{method} {target.partition('?')[0]}"
        request = _Request(operation, method, self._server.prefix + target, headers, body)
        try:
            async with asyncio.timeout(deadline_s), self._free:
                return await self._exchange(request)
        except TimeoutError:
            if request.sent:
                raise Unanswered(operation, SIDE, f"no answer from {self._server} within {deadline_s:g} s") from None
            raise Unreachable(operation, SIDE, f"{self._server} could not be asked within {deadline_s:g} s") from None

    async def _exchange(self, request: _Request) -> Reply:
        if lane := self._take_idle():
            try:
                return await self._ask(lane, request)
            except _ClosedError as closed:
                if closed.heard or request.method != "GET":
                    raise Unanswered(request.operation, SIDE, f"{self._server} closed the connection") from None
        lane = await self._connect(request)
        try:
            return await self._ask(lane, request)
        except _ClosedError:
            raise Unanswered(request.operation, SIDE, f"{self._server} closed the connection") from None

    async def _ask(self, lane: _Lane, request: _Request) -> Reply:
        try:
            reply = await lane.ask(request, self._server)
        except BaseException:  # a deadline or a cancelled caller leaves an answer on its way: nobody else may read it
            lane.drop()
            raise
        if lane.reusable:
            self._idle.append(lane)
        else:
            lane.drop()
        return reply

    def _take_idle(self) -> _Lane | None:
        while self._idle:
            lane = self._idle.pop()
            if lane.reusable:
                return lane
            lane.drop()
        return None

    async def _connect(self, request: _Request) -> _Lane:
        loop = asyncio.get_running_loop()
        server = self._server
        try:
            _, lane = await loop.create_connection(
                lambda: _Lane(self._answer_limit), server.host, server.port, ssl=server.ssl_context
            )
        except OSError as error:
            raise Unreachable(request.operation, SIDE, server.why_not(error)) from None
        return lane


@dataclass(slots=True)
class _Request:
    operation: str
    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    sent: bool = False  # a byte of it may have left this machine


@dataclass(frozen=True, slots=True)
class _Server:
    """Where slurmrestd is.  prefix: a path before every target, without a slash at its end."""

    host: str
    port: int
    prefix: str
    ssl_context: ssl.SSLContext | None

    @classmethod
    def of(cls, base_url: str, ssl_context: ssl.SSLContext | None) -> _Server:
        try:
            url = urlsplit(base_url)
            host, port = url.hostname, url.port
        except ValueError as error:
            raise ConfigError(f"Slurm URL: {error}. It looks like http://host:6820.") from None
        if "@" in url.netloc:
            raise ConfigError("Slurm URL: it must not hold a user or password; the token has a file of its own.")
        if url.scheme not in ("http", "https") or not host or url.query or url.fragment:
            raise ConfigError(f"Slurm URL {base_url!r} is none. It looks like http://host:6820.")
        secure = url.scheme == "https"
        context = (ssl_context or ssl.create_default_context()) if secure else None
        return cls(host, port or (443 if secure else 80), url.path.rstrip("/"), context)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def why_not(self, error: OSError) -> str:
        """Why no connection came about, for a person."""
        if isinstance(error, ConnectionRefusedError):
            return f"nothing listens at {self}; is slurmrestd running there?"
        if isinstance(error, socket.gaierror):
            return f"the name {self.host} is not known ({error.strerror})"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the certificate of {self} is not trusted ({error.verify_message})"
        if isinstance(error, ssl.SSLError):
            return f"{self} does not speak TLS as expected ({error.reason or error})"
        return f"no connection to {self} ({error.strerror or error})"


class _ClosedError(Exception):
    """The connection ended before a whole answer.  heard: some of the answer had come."""

    def __init__(self, heard: bool) -> None:
        super().__init__("closed")
        self.heard = heard


class _Lane(asyncio.Protocol):
    """One connection.

    A protocol rather than a pair of streams: it hears at once when an idle connection is closed or speaks unasked, so
    neither is ever found out by the next request.
    """

    def __init__(self, answer_limit: int) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._limit = answer_limit
        self._transport: asyncio.Transport | None = None
        self._asked: _Request | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._head: h11.Response | None = None
        self._body = bytearray()
        self._heard = False
        self.reusable = True

    async def ask(self, request: _Request, server: _Server) -> Reply:
        """Send the request; its whole answer.  Raises _ClosedError, ContractError, Invalid."""
        assert self._transport is not None, "a lane is asked only once it is connected"
        assert self._answer is None, "one exchange at a time"
        data = b"".join(self._encoded(request, server))
        self._answer = asyncio.get_running_loop().create_future()
        self._asked, self._head, self._heard = request, None, False
        self._body = bytearray()
        request.sent = True
        self._transport.write(data)
        try:
            return await self._answer
        finally:
            self._answer = None

    def drop(self) -> None:
        """End the connection at once; whatever still comes on it is nobody's."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _encoded(self, request: _Request, server: _Server) -> Iterator[bytes]:
        headers = [("Host", str(server)), *request.headers.items()]
        if request.body or request.method == "POST":
            headers.append(("Content-Length", str(len(request.body))))
        try:
            head = h11.Request(method=request.method, target=request.target, headers=headers)
            yield self._http.send(head) or b""
        except h11.LocalProtocolError:  # its text quotes the header, which may be the token
            raise Invalid(request.operation, SIDE, "a header or the path would hold a forbidden character") from None
        if request.body:
            yield self._http.send(h11.Data(data=request.body)) or b""
        yield self._http.send(h11.EndOfMessage()) or b""

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.drop()
            return
        self._heard = True
        self._http.receive_data(data)
        self._read()

    def eof_received(self) -> None:
        if self._answer is not None and not self._answer.done():
            with contextlib.suppress(h11.RemoteProtocolError):  # cut off in the middle: connection_lost says so
                self._http.receive_data(b"")
                self._read(at_end=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(_ClosedError(self._heard))

    def _read(self, *, at_end: bool = False) -> None:
        """Take what has come of the answer; at its end hand it over."""
        announced = 0
        try:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                if isinstance(event, h11.Response):
                    self._head = event
                    announced = int(dict(event.headers).get(b"content-length", b"0"))
                elif isinstance(event, h11.Data):
                    self._body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    self._finish()
                    return
                elif isinstance(event, h11.ConnectionClosed):
                    return
                if max(announced, len(self._body)) > self._limit:
                    self._refuse(f"an answer of more than {self._limit >> 20} MiB")
                    return
        except h11.RemoteProtocolError:
            if at_end:
                raise
            self._refuse("what answers there does not speak HTTP/1.1")

    def _finish(self) -> None:
        assert self._head is not None
        assert self._answer is not None
        status = self._head.status_code
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._head.headers}
        if status == 200 and self._http.our_state is h11.DONE and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
        else:  # closed by its own word, or it may send the same error a second time
            self.reusable = False
        self._answer.set_result(Reply(status, headers, bytes(self._body)))

    def _refuse(self, why: str) -> None:
        assert self._asked is not None
        assert self._answer is not None
        self._answer.set_exception(ContractError(self._asked.operation, SIDE, why))
        self.drop()
