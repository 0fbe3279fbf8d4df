"""One exchange with the API server, or one stream of lines from it; each failure says whether anything was sent.

A `Transport` knows HTTP and nothing of Kubernetes.  There are two transports: `HttpTransport` here, and the in-process one
of the simulated cluster.  The client interprets the status of an answer (client.py).  A broken connection is classified here,
because only this module knows how far the request got:

    Unreachable   no byte of the request was sent (no route, no connection, TLS refused, no connection free for too long)
    Unanswered    a byte may have been sent, and no complete answer came back

If a pooled connection turns out to be closed, only a GET is repeated.  aiohttp itself would also repeat a PUT or DELETE,
which may have taken effect.

Calls and watches have separate connections, so that a burst of calls cannot delay a watch.  TCP keepalive finds a dead
connection within half a minute, long before a watch would notice that no data comes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Protocol

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from bridge.connection_limit import ConnectionLimit
from bridge.errors import BridgeError, ConfigError, ContractError, Unanswered, Unauthorized, Unreachable, not_sent
from bridge.kube import auth
from bridge.kube.access import Access, Credentials
from bridge.redaction import without
from scheduler.model.text import span

SIDE = "Kubernetes"
USER_AGENT = f"slurm-bridge/{version('slurm-bridge')}"
MAX_CALLS = 48  # calls at a time; with 16, a burst is a fifth slower, because each call waits for the server
CONNECT_DEADLINE_S = 5.0
OPEN_DEADLINE_S = 15.0  # until the server accepts a watch; and, if it refuses, until its answer is complete
FAILING_S = 3.0  # if all calls fail for so long, `trouble` reports it
# Calls that the API server answers alone, so that they show nothing about etcd behind it.
WITHOUT_ETCD = ("/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/", "/version")
TRIED_S = 120.0  # a failed action is repeated at least so often; after that time nothing more is tried that fails
# An object is at most 1.5 MiB in etcd, and six times that in JSON (every character escaped).  An answer is decoded in one
# piece, and the event loop waits meanwhile.  If a page of a list is longer than this, smaller pages are requested.
MAX_BODY = MAX_LINE = 16 * 2**20
HEAD = 64 * 2**10  # bytes that are kept of a longer answer or line: they show which object it is about
NO_PARAMS: Mapping[str, str] = {}
KEEPALIVE = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 25_000),
)

log = logging.getLogger("slurm-bridge")


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer.  The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    path        with its leading slash
    deadline_s  seconds until the last byte of the answer.  The reading of credentials and a second try are included, the
                wait for a free connection is not (connection_limit.py)
    """

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    deadline_s: float = field(kw_only=True)


class TooLong(ContractError):
    """The answer is longer than MAX_BODY.  head: its first bytes."""

    def __init__(self, operation: str, side: str, message: str, number: int = 0, head: bytes = b"") -> None:
        super().__init__(operation, side, message, number)
        self.head = head


class Cut(bytes):
    """The first bytes of a line, or of an object, that is longer than MAX_LINE."""


class StreamRefused(Exception):
    """The server answered the opening of a stream with something else than 200."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"HTTP {reply.status}")
        self.reply = reply


class Transport(Protocol):
    """Carries requests to one API server."""

    async def exchange(self, call: Call) -> Reply:
        """Send one request and read its whole answer, whatever its status.

        Raises Unreachable, Unanswered; Unauthorized if the bridge's credentials cannot be renewed after a 401.
        """
        ...

    def stream(
        self, path: str, *, params: Mapping[str, str] = NO_PARAMS, stall_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a stream.  Inside the `async with` the server has accepted it, and the iterator gives its lines.

        A line longer than MAX_LINE comes as `Cut`.  The iterator ends when the server ends the stream.  Entering raises
        StreamRefused, Unreachable, Unanswered; iterating raises Unanswered when the stream breaks or no byte came for
        `stall_s` seconds.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(slots=True)
class _Progress:
    """The progress of a request, by which a failure is classified.

    authenticated   the credentials were read
    sent            a byte of the request may have been sent
    may_send        called right before the first byte; if it returns False, nothing is sent
    """

    authenticated: bool = False
    sent: bool = False
    may_send: Callable[[], bool] = lambda: True


@dataclass(slots=True)
class _CallHealth:
    """Records whether calls are answered.  Watches do not show this: an open watch goes on while all new connections fail.

    A status of 500 or more is no answer: so the API server answers while etcd is away.

    since      when the present series of failed calls began, monotonic seconds; None: the last call was answered
    lasted_s   seconds from the first failed call of the series to the last one
    why        the error of the last failed call of the series
    ever       a call was answered at some time; before that, the checks at start report failures
    is_logged  the trouble was logged
    on_answered  called when a call is answered after trouble
    """

    since: float | None = None
    lasted_s: float = 0.0
    why: str = ""
    ever: bool = False
    is_logged: bool = False
    on_answered: Callable[[], None] = lambda: None

    @property
    def trouble(self) -> str:
        """The last error, if all calls have failed for FAILING_S or longer; "": otherwise."""
        return self.why if self.lasted_s >= FAILING_S else ""

    def note_call(self, error: BridgeError | None, *, needs_etcd: bool) -> None:
        """Record the end of a call.  error: why it was not answered; None: it was answered"""
        now = time.monotonic()
        if error is None:
            self.ever = True
            if not needs_etcd and self.since is not None and now < self.since + self.lasted_s + TRIED_S:
                return
            self.since, self.lasted_s, self.why = None, 0.0, ""
        else:
            self.since = now if self.since is None else self.since
            self.lasted_s, self.why = now - self.since, str(error)
        if self.trouble and self.ever and not self.is_logged:
            log.warning("%s", self.trouble)
            self.is_logged = True
        elif self.is_logged and not self.trouble:
            log.info("Kubernetes answers calls again")
            self.is_logged = False
            self.on_answered()


TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_DEADLINE_S)
TLS_FAILED = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError, aiohttp.ClientSSLError)


@dataclass(slots=True)
class HttpTransport:
    """A Transport over aiohttp.

    agent       the User-Agent of its requests
    may_write   called right before a request that changes something is sent; if it returns False, the request is not sent
    """

    access: Access
    agent: str = USER_AGENT
    may_write: Callable[[], bool] = lambda: True
    _call_health: _CallHealth = field(default_factory=_CallHealth)
    _limit: ConnectionLimit = field(init=False)
    _server: str = field(init=False)
    _calls: aiohttp.ClientSession | None = None
    _watches: aiohttp.ClientSession | None = None

    def __post_init__(self) -> None:
        self._limit = ConnectionLimit(MAX_CALLS, SIDE, self.access.server)
        self._server = str(URL(self.access.server)).rstrip("/")  # encoded once, as paths are (client.py)

    async def exchange(self, call: Call) -> Reply:
        """See Transport."""
        progress = _Progress() if call.method == "GET" else _Progress(may_send=self.may_write)
        try:
            reply = await self._in_time(call, progress)
        except (Unreachable, Unanswered, Unauthorized) as error:
            if progress.may_send():  # otherwise `may_write` stopped the request, which shows nothing about the server
                self._call_health.note_call(error, needs_etcd=True)
            raise
        failed = Unanswered(call.method.lower(), SIDE, f"{self.access.server} answered with HTTP status {reply.status}")
        needs_etcd = not call.path.startswith(WITHOUT_ETCD)
        self._call_health.note_call(failed if reply.status >= 500 else None, needs_etcd=needs_etcd)
        return reply

    def on_answered(self, report: Callable[[], None]) -> None:
        """Call *report* each time a call is answered after `trouble`."""
        self._call_health.on_answered = report

    def trouble(self) -> str:
        """Why no call was answered for a while, as a sentence; "": calls are answered, or none was made."""
        return self._call_health.trouble

    async def _in_time(self, call: Call, progress: _Progress) -> Reply:
        try:
            async with self._limit.connection(call.method.lower()), asyncio.timeout(call.deadline_s):
                return await self._authenticated(call, progress)
        except TimeoutError as error:
            raise self._broken(call.method, error, progress, call.deadline_s) from None

    async def _authenticated(self, call: Call, progress: _Progress) -> Reply:
        if self._calls is None:
            self._calls = _session()
        credentials = await self.access.credentials()
        reply = await self._exchange_once(self._calls, credentials, call, progress)
        if reply.status == 401:
            # A request with answer 401 had no effect, so it may be sent again with other credentials.
            progress.sent = progress.authenticated = False
            if await self._renew(credentials):
                reply = await self._exchange_once(self._calls, await self.access.credentials(), call, progress)
            if reply.status == 401:
                self._raise_if_rejected()
        return reply

    async def _exchange_once(
        self, session: aiohttp.ClientSession, credentials: Credentials, call: Call, progress: _Progress
    ) -> Reply:
        progress.authenticated = True
        try:
            return await self._send(session, credentials, call, progress)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            stale = progress.sent and not isinstance(error, aiohttp.ClientConnectorError)
            if not stale or call.method != "GET":
                raise self._broken(call.method, error, progress, call.deadline_s) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._broken(call.method, error, progress, call.deadline_s) from None
        try:
            return await self._send(session, credentials, call, progress)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._broken(call.method, error, progress, call.deadline_s) from None

    async def _send(
        self, session: aiohttp.ClientSession, credentials: Credentials, call: Call, progress: _Progress
    ) -> Reply:
        _progress.set(progress)
        async with session.request(
            call.method,
            self._url(call.path, call.params),
            data=call.body,
            headers=self._headers(credentials, call.content_type if call.body is not None else None),
            timeout=TIMEOUT,
            allow_redirects=False,
            **self._target(credentials),
        ) as response:
            return await _whole(response, call.method)

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] = NO_PARAMS, stall_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See Transport."""
        progress = _Progress()
        try:
            async with asyncio.timeout(OPEN_DEADLINE_S):
                response = await self._opened(path, params, stall_s, progress)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._broken("watch", error, progress, OPEN_DEADLINE_S) from None
        try:
            if response.status != 200:
                raise StreamRefused(await self._refusal(response, progress))
            yield _lines(response, self.access.server, stall_s)
        finally:
            # Abort instead of close: most watches are left before their end, and a TLS shutdown would outlive the session.
            if response.connection and response.connection.transport:
                response.connection.transport.abort()
            response.close()

    async def _refusal(self, response: aiohttp.ClientResponse, progress: _Progress) -> Reply:
        """The answer of a server that does not accept the stream.  Raises Unanswered if it does not come whole."""
        try:
            async with asyncio.timeout(OPEN_DEADLINE_S):
                return await _whole(response, "GET")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._broken("watch", error, progress, OPEN_DEADLINE_S) from None

    async def _opened(
        self, path: str, params: Mapping[str, str], stall_s: float, progress: _Progress
    ) -> aiohttp.ClientResponse:
        if self._watches is None:
            self._watches = _session()
        credentials = await self.access.credentials()
        response = await self._open(self._watches, credentials, path, params, stall_s, progress)
        if response.status == 401:
            progress.sent = progress.authenticated = False
            if await self._renew(credentials):
                response.release()
                credentials = await self.access.credentials()
                response = await self._open(self._watches, credentials, path, params, stall_s, progress)
            if response.status == 401 and self.access.refused():
                response.release()
                self._raise_if_rejected()
        return response

    async def _open(
        self,
        session: aiohttp.ClientSession,
        credentials: Credentials,
        path: str,
        params: Mapping[str, str],
        stall_s: float,
        progress: _Progress,
    ) -> aiohttp.ClientResponse:
        progress.authenticated = True
        _progress.set(progress)
        return await session.get(
            self._url(path, params),
            headers=self._headers(credentials, None),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_DEADLINE_S, sock_read=stall_s),
            allow_redirects=False,
            **self._target(credentials),
        )

    def _url(self, path: str, params: Mapping[str, str]) -> URL:
        url = URL(self._server + path, encoded=True)
        return url.with_query(params) if params else url

    def _headers(self, credentials: Credentials, content_type: str | None) -> CIMultiDict[str]:
        headers = CIMultiDict(credentials.headers)
        # Not gzip: compression costs the server more time than it saves on a cluster's network.
        headers.update({"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": self.agent})
        if content_type:
            headers["Content-Type"] = content_type
        return headers

    def _target(self, credentials: Credentials) -> dict[str, Any]:
        """The options by which aiohttp pools connections: a connection with an older certificate is not used again."""
        return {
            "ssl": credentials.tls or True,
            "server_hostname": self.access.server_hostname,
            "proxy": self.access.proxy,
        }

    async def close(self) -> None:
        """See Transport."""
        for session in (self._calls, self._watches):
            if session is not None:
                await session.close()
        self._calls = self._watches = None

    def _raise_if_rejected(self) -> None:
        """Raise Unauthorized if the source of the credentials knows why the server rejects them."""
        if why := self.access.refused():
            raise Unauthorized("authenticate", SIDE, why, 401)

    async def _renew(self, credentials: Credentials) -> bool:
        """Renew the credentials that the server rejected.  Returns True if there are newer ones."""
        try:
            return await self.access.renew(credentials.generation)
        except ConfigError as error:
            raise Unauthorized("authenticate", SIDE, str(error), 401) from None

    def _broken(
        self, operation: str, error: Exception, progress: _Progress, deadline_s: float
    ) -> Unreachable | Unanswered:
        if isinstance(error, TLS_FAILED):
            self.access.recheck()
        if isinstance(error, TimeoutError) and not progress.authenticated:
            return Unreachable(operation.lower(), SIDE, f"no credentials for {self.access.server} in time")
        broken = _broken(operation, self.access.server, error, progress.sent, deadline_s)
        if isinstance(error, aiohttp.ClientConnectorCertificateError) and self.access.named:
            why = f"{broken.message}. Its authority has to be the one that {self.access.named} names"
            return type(broken)(broken.operation, SIDE, why)
        return broken


_progress: ContextVar[_Progress] = ContextVar("progress")  # of the request that this task sends


class _Request(aiohttp.ClientRequest):
    """A request that notes when its first byte is sent: a request that failed before then had no effect."""

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        """aiohttp calls this right before the first byte is sent.  A hook of aiohttp's tracing would take twice the time."""
        progress = _progress.get()
        if not progress.may_send():
            raise not_sent("write", SIDE)
        progress.sent = True
        return await super().send(conn)


def _session() -> aiohttp.ClientSession:
    # TLS is an option of each request, and Access has the environment's proxy.  trust_env would also read ~/.netrc.
    made = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, socket_factory=_socket),
        cookie_jar=aiohttp.DummyCookieJar(),
        request_class=_Request,
        read_bufsize=2**20,
        auto_decompress=False,
    )
    made._retry_connection = False  # aiohttp's own test client sets this; there is no public option
    return made


def _socket(address: Any) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    if family in (socket.AF_INET, socket.AF_INET6):
        for level, option, value in KEEPALIVE:
            if hasattr(socket, option):  # some options exist only on Linux
                made.setsockopt(level, getattr(socket, option), value)
    return made


async def _whole(response: aiohttp.ClientResponse, method: str) -> Reply:
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > MAX_BODY:
            why = f"the answer is longer than {MAX_BODY >> 20} MiB"
            raise TooLong(method.lower(), SIDE, why, response.status, bytes(body[:HEAD]))
    sent = response.request_info.headers.get("Authorization", "")
    return Reply(response.status, response.headers, without(sent, bytes(body)))


async def _lines(response: aiohttp.ClientResponse, server: str, stall_s: float) -> AsyncIterator[bytes]:
    """The lines of a stream, without line ends.  If a line is longer than MAX_LINE: its first bytes, as `Cut`."""
    rest, cut = bytearray(), False
    try:
        async for chunk in response.content.iter_any():
            parts = chunk.split(b"\n")
            for place, part in enumerate(parts, 1 - len(parts)):
                if not cut:
                    rest += part
                if len(rest) > MAX_LINE:
                    del rest[HEAD:]
                    cut = True
                if place < 0:  # a line ended here
                    if rest:
                        yield Cut(rest) if cut else bytes(rest)
                    rest, cut = bytearray(), False
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _broken("watch", server, error, True, stall_s) from None


def _broken(operation: str, server: str, error: Exception, sent: bool, deadline_s: float) -> Unreachable | Unanswered:
    """The error of an exchange.  Its text is not the library's text, which may quote headers."""
    if isinstance(error, TLS_FAILED):
        why = f"TLS with {server} failed: {_tls_reason(error)}"
    elif isinstance(error, aiohttp.ClientConnectorDNSError):
        why = f"the name in {server} cannot be resolved"
    elif isinstance(error, TimeoutError):
        why = f"{server} did not answer within {span(deadline_s)}" if sent else f"no connection to {server} in time"
    elif isinstance(error, OSError) and error.errno and error.errno > 0:
        why = f"{server}: {os.strerror(error.errno)}"  # not .strerror, in which asyncio puts another text
    else:
        why = f"{server} closed the connection" if sent else f"no connection to {server}"
    return (Unanswered if sent else Unreachable)(operation.lower(), SIDE, why)


def _tls_reason(error: BaseException) -> str:
    for inner in (error, getattr(error, "os_error", None), getattr(error, "certificate_error", None), error.__cause__):
        if message := getattr(inner, "verify_message", "") or getattr(inner, "reason", ""):
            return str(message)
    return "the certificate is not trusted" if "ertificate" in type(error).__name__ else "no common ground"


async def connect(kubeconfig: str | None, stack: AsyncExitStack, *, scheduler: str = "") -> HttpTransport:
    """A transport to the API server of that kubeconfig ("", None: as `auth.load` finds it), which `stack` closes.

    scheduler   as in `opened`
    Raises ConfigError.
    """
    return opened(await auth.load(kubeconfig or None), stack, scheduler=scheduler)


def opened(access: Access, stack: AsyncExitStack, *, scheduler: str = "") -> HttpTransport:
    """A transport with this access, which `stack` closes.

    scheduler   schedulerName of the bridge that uses it, so that an audit log distinguishes bridges; "": no bridge uses it
    """
    transport = HttpTransport(access, f"{USER_AGENT} ({scheduler})" if scheduler else USER_AGENT)
    stack.push_async_callback(transport.close)
    return transport
