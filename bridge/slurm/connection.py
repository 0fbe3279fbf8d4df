"""One connection to slurmrestd, one exchange at a time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import httptools

from bridge.errors import ContractError, Invalid, not_sent
from bridge.slurm.transport import SIDE, Reply

MOST_HEAD_BYTES = 64 * 1024


@dataclass(slots=True)
class Request:
    """One request.  target: path and query; operation: what to call it in an error; no header is ever shown."""

    operation: str
    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    sent: bool = False  # a byte of it may have left this machine

    @property
    def changes_something(self) -> bool:
        """False for a read.  Slurm's `GET reconfigure/` is none."""
        return self.method != "GET" or self.target.partition("?")[0].endswith("/reconfigure/")


class ClosedError(Exception):
    """The connection ended before a whole answer.

    answer_began   True if a part of the answer had come
    tls            the TLS error in the place of an answer: a server refuses a client certificate so; None: no TLS error
    """

    def __init__(self, answer_began: bool, tls: ssl.SSLError | None = None) -> None:
        super().__init__("closed")
        self.answer_began = answer_began
        self.tls = tls


class Connection(asyncio.Protocol):
    """One connection.

    A protocol rather than a pair of streams: it notices at once if an idle connection is closed or receives bytes, so
    no request is sent on such a connection.

    on_unsolicited  called if the server sends bytes without a request, or answers twice
    may_write   asked at the last moment before a request that changes something is sent
    reusable    True if it can carry another exchange
    idle_since  when its last exchange ended, by the clock of the event loop
    tls         the context that it was made with
    """

    def __init__(
        self,
        answer_limit: int,
        on_unsolicited: Callable[[], None] = lambda: None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._limit = answer_limit
        self._on_unsolicited = on_unsolicited
        self._may_write = may_write
        self._transport: asyncio.Transport | None = None
        self._asked: Request | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._begin()
        self._answer_began = False
        self._bytes = 0  # of all that came since it was asked
        self.reusable = True
        self.idle_since = float("inf")
        self.tls: ssl.SSLContext | None = None
        self._lost: ClosedError | None = None

    async def ask(self, request: Request) -> Reply:
        """Send the request; its whole answer.  Raises ClosedError, ContractError, Invalid, Unreachable."""
        assert self._transport is not None, "a connection is used only after it is connected"
        assert self._answer is None, "one exchange at a time"
        data = _encoded(request)
        if request.changes_something and not self._may_write():
            raise not_sent(request.operation, SIDE)
        if self._lost is not None:  # before it was ever asked
            raise self._lost
        self._answer = asyncio.get_running_loop().create_future()
        self._asked, self._answer_began, self._bytes = request, False, 0
        self._begin()
        request.sent = True
        self._transport.write(data)
        try:
            return await self._answer
        finally:
            self._answer = None

    def drop(self) -> None:
        """Close the connection at once; what still arrives on it is discarded."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    @property
    def _waiting(self) -> asyncio.Future[Reply] | None:
        """The future of the caller that waits for an answer; None: no caller waits."""
        return self._answer if self._answer is not None and not self._answer.done() else None

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self._on_unsolicited()
            self.drop()
            return
        self._answer_began = True
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse("what answers there does not speak HTTP/1.1")
        # Headers and framing may take MOST_HEAD_BYTES more than the body.  Without a limit, trailers might never end.
        if self._bytes - self._body_bytes > MOST_HEAD_BYTES + self._body_bytes and self._waiting is not None:
            self._refuse(f"headers of more than {MOST_HEAD_BYTES >> 10} KiB")

    def eof_received(self) -> None:
        # A body without a length ends with the connection.  Any other body was cut off, which connection_lost reports.
        if self._in_body and not self._headers.keys() & {"content-length", "transfer-encoding"}:
            self.on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        self._lost = ClosedError(self._answer_began, exc if isinstance(exc, ssl.SSLError) else None)
        if (waiting := self._waiting) is not None:
            waiting.set_exception(self._lost)

    # --- called by the parser

    def on_message_begin(self) -> None:
        if self._waiting is None:  # a second answer to one request
            self._on_unsolicited()
            self.reusable = False
        self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # trailers are not used
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._in_body = True
        # The parser has refused a value that is not a number.
        self._check(int(self._headers.get("content-length", "0")))

    def on_body(self, part: bytes) -> None:
        self._body.append(part)
        self._body_bytes += len(part)
        self._check(self._body_bytes)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        waiting = self._waiting
        if waiting is None or status < 200:  # "100 Continue": the answer is still to come
            return
        if status != 200 or not self._parser.should_keep_alive():
            self.reusable = False  # the server closes it, or may send the same error a second time
        waiting.set_result(Reply(status, self._headers, b"".join(self._body)))

    def _begin(self) -> None:
        """Nothing of an answer has come."""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._in_body = False

    def _check(self, length: int) -> None:
        if length > self._limit:
            self._refuse(f"an answer of more than {self._limit >> 20} MiB")

    def _refuse(self, why: str) -> None:
        if (waiting := self._waiting) is not None:
            assert self._asked is not None
            waiting.set_exception(ContractError(self._asked.operation, SIDE, why))
        self.drop()


def _encoded(request: Request) -> bytes:
    """The bytes of the request.  Raises Invalid, whose text never quotes a header, because it may hold the token."""
    given = "".join((request.method, request.target, *request.headers.values()))
    if not (given.isascii() and given.isprintable()) or " " in request.target:
        raise Invalid(request.operation, SIDE, "a header or the path would hold a forbidden character")
    lines = [f"{request.method} {request.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body or request.method == "POST":
        lines.append(f"Content-Length: {len(request.body)}")
    return "\r\n".join((*lines, "", "")).encode() + request.body
