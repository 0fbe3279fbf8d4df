"""One request and its answer; each failure says whether the request may have taken effect.

slurmrestd is a small HTTP/1.1 server whose behaviour breaks ordinary clients (Slurm facts 4, 5).  26.05 sends some error
answers twice on one connection, and a client would read the second copy as the answer to its next request.  A call may hang
for ever.  If too many connections are open, a new connection hangs.  Therefore:

* A connection carries one exchange at a time.  It is dropped if it receives bytes without a request, an answer other than
  200, or `Connection: close`.
* The number of connections is fixed.  A request waits for a free one before its deadline begins (connection_limit.py).
* If the host name has several addresses, each further address is tried a quarter of a second later, as browsers do.
* A firewall may forget an idle connection, and drop the data that is sent on it.  So a connection that was idle for long is
  closed and not used again.  The kernel probes the other idle connections, and closes those whose other end does not
  acknowledge.
* If nothing was sent (no connection was established, or none was free for too long), the error is Unreachable.  If a byte may
  have been sent and no complete answer came, it is Unanswered.  If the answer is not HTTP or is too large, it is
  ContractError.

The poller has a pool of its own with one connection, so a burst of submissions never delays it (Slurm facts 5).
No header is logged or put into an error, because one of them is the token.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohappyeyeballs

from bridge.connection_limit import ConnectionLimit
from bridge.errors import ConfigError, Unanswered, Unreachable
from bridge.slurm.connection import ClosedError, Connection, Request
from bridge.slurm.tls import TlsFiles
from bridge.slurm.transport import DEFAULT_DEADLINE_S, SIDE, Reply
from scheduler.model.text import span

# With 8 connections slurmctld is the bottleneck (Slurm facts 5).  slurmrestd accepts 124 connections in all.
DEFAULT_CONNECTIONS = 8
# jobs/state of 10,000 jobs is 0.8 MB, nodes/ of 5,000 nodes 12.8 MB (Slurm facts 5).
DEFAULT_ANSWER_LIMIT = 64 * 1024 * 1024
# In practice, proxies and address translation forget an idle connection after one minute at the earliest.
DEFAULT_IDLE_S = 30.0
NEXT_ADDRESS_S = 0.25  # RFC 8305
# TCP keepalive: seconds without traffic before the first probe, between probes, and their number; 15 s in all.
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2}


class HttpPool:
    """The real transport: a few keep-alive connections to one slurmrestd.

    base_url     "http://host:6820" or "https://host/slurm-api"; its path is the prefix of every target
    connections  the most exchanges at a time
    tls          for https; None: the system's certificate authorities, and no client certificate
    idle_s       a connection that was idle for longer is not used again
    on_unsolicited  called each time a connection sends a second answer, or an answer without a request
    may_write    an attribute, called right before a request that changes something is sent; if it returns False, the
                 request is not sent (Unreachable)
    Raises ConfigError if the URL is invalid or TLS files cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        connections: int = DEFAULT_CONNECTIONS,
        answer_limit: int = DEFAULT_ANSWER_LIMIT,
        tls: TlsFiles | None = None,
        idle_s: float = DEFAULT_IDLE_S,
        on_unsolicited: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_unsolicited = on_unsolicited
        self.may_write: Callable[[], bool] = lambda: True
        self._server = _Server.of(base_url)
        self._tls = tls or TlsFiles()
        self._context()  # raises now, at start, if the TLS files cannot be used
        self._idle_s = idle_s
        self._limit = ConnectionLimit(connections, SIDE, str(self._server))
        self._idle: list[Connection] = []
        self._answer_limit = answer_limit

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the idle connections; exchanges in flight end by themselves."""
        while self._idle:
            self._idle.pop().drop()

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        """See Transport.  If a reused connection turns out to be closed, a read is sent again on a new one."""
        operation = f"{method} {target.partition('?')[0]}"
        request = Request(operation, method, self._server.prefix + target, {"Host": str(self._server), **headers}, body)
        async with self._limit.connection(operation) as waited_s:
            reply = await self._in_time(request, deadline_s)
        return Reply(reply.status, reply.headers, reply.body, waited_s)

    async def _in_time(self, request: Request, deadline_s: float) -> Reply:
        operation = request.operation
        try:
            async with asyncio.timeout(deadline_s):
                return await self._exchange(request)
        except TimeoutError:
            if request.sent:
                raise Unanswered(operation, SIDE, f"no answer from {self._server} within {span(deadline_s)}") from None
            raise Unreachable(operation, SIDE, f"no connection to {self._server} within {span(deadline_s)}") from None

    async def _exchange(self, request: Request) -> Reply:
        if connection := self._take_idle():
            try:
                return await self._ask(connection, request)
            except ClosedError as closed:
                if closed.answer_began or request.changes_something:
                    raise self._closed(request, closed) from None
        connection = await self._connect(request)
        try:
            return await self._ask(connection, request)
        except ClosedError as closed:
            raise self._closed(request, closed, new=True) from None

    def _closed(self, request: Request, closed: ClosedError, *, new: bool = False) -> Unanswered | Unreachable:
        """The error of a request whose connection was closed.  new: the connection was made for this request"""
        why = f"{self._server} closed the connection"
        if closed.tls is not None:
            why = self._tls.why_not(str(self._server), closed.tls)
        elif new and self._server.secure and not closed.answer_began:
            why += f" without an answer. {self._tls.perhaps_refused}"
        return (Unanswered if request.sent else Unreachable)(request.operation, SIDE, why)

    async def _ask(self, connection: Connection, request: Request) -> Reply:
        try:
            reply = await connection.ask(request)
        except BaseException:
            # After a timeout or a cancellation the answer may still come.  No other caller must read it.
            connection.drop()
            raise
        if connection.reusable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.drop()
        return reply

    def _take_idle(self) -> Connection | None:
        """Take the idle connection that was used last; None: there is none.  Drops connections that were idle too long."""
        oldest = asyncio.get_running_loop().time() - self._idle_s
        context = self._context()
        kept: list[Connection] = []
        for connection in self._idle:
            if connection.reusable and connection.idle_since > oldest and connection.tls is context:
                kept.append(connection)
            else:
                connection.drop()
        self._idle = kept
        return self._idle.pop() if self._idle else None

    def _context(self) -> ssl.SSLContext | None:
        """The TLS context of new connections; None: they are not encrypted."""
        return self._tls.context() if self._server.secure else None

    async def _connect(self, request: Request) -> Connection:
        loop = asyncio.get_running_loop()
        server = self._server
        context = self._context()
        connected: socket.socket | None = None
        try:
            connected = await aiohappyeyeballs.start_connection(
                await server.addresses(), happy_eyeballs_delay=NEXT_ADDRESS_S, loop=loop
            )
            _set_keepalive(connected)
            _, connection = await loop.create_connection(
                lambda: Connection(self._answer_limit, self._on_unsolicited, lambda: self.may_write()),
                sock=connected,
                ssl=context,
                server_hostname=server.host if context is not None else None,
            )
        except BaseException as error:
            if connected is not None:
                connected.close()
            if isinstance(error, OSError):
                by_tls = self._tls.why_not(str(server), error) if isinstance(error, ssl.SSLError) else ""
                why = by_tls or server.why_not(error)
                raise Unreachable(request.operation, SIDE, why) from None
            raise
        connection.tls = context
        return connection


def _set_keepalive(connection: socket.socket) -> None:
    """Make the kernel close the connection if the other end is gone, or does not acknowledge data."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        for name, value in KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(DEFAULT_DEADLINE_S * 1000))


@dataclass(frozen=True, slots=True)
class _Server:
    """The address of slurmrestd.  prefix: the path before every target, without a slash at its end"""

    host: str
    port: int
    prefix: str
    secure: bool

    @classmethod
    def of(cls, base_url: str) -> _Server:
        try:
            url = urlsplit(base_url)
            host, port = url.hostname, url.port
            (host or "").encode("idna")
        except UnicodeError:  # no resolver takes it
            raise ConfigError(f"Slurm URL: {host!a} is not the name of a host.", "Write http://HOST:6820.") from None
        except ValueError as error:
            raise ConfigError(f"Slurm URL: {error}. Write http://HOST:6820 or https://HOST.") from None
        if "@" in url.netloc:
            raise ConfigError(
                "Slurm URL: it must not contain a user or password. Put the token into a file (--slurm-token-file)."
            )
        if url.scheme not in ("http", "https") or not host or url.query or url.fragment:
            raise ConfigError(
                f"Slurm URL {base_url!r} is not a URL of slurmrestd. Write http://HOST:6820 or https://HOST."
            )
        secure = url.scheme == "https"
        return cls(host, port or (443 if secure else 80), url.path.rstrip("/"), secure)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    async def addresses(self) -> Sequence[aiohappyeyeballs.AddrInfoType]:
        """All addresses of the server.  Raises OSError."""
        try:  # a numeric address needs neither a resolver nor its thread
            return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            return await asyncio.get_running_loop().getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)

    def why_not(self, error: OSError) -> str:
        """Why no connection could be established, in words."""
        if isinstance(error, ConnectionRefusedError):
            return f"nothing listens at {self}; is slurmrestd running there?"
        if isinstance(error, socket.gaierror):
            return f"the name {self.host} is not known ({error.strerror})"
        return f"no connection to {self} ({error.strerror or error})"
