"""The connections of the benchmarks' clients: which are used again, and what a broken one raises."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import pytest
import uvloop

from integration.bench.clients import JSON, BenchError, Cut, Pool
from tests.raw_server import server
from tests.unit.kube.certificates import Certificates, made_certificates  # noqa: F401 -- a fixture

Loop = Callable[[], asyncio.AbstractEventLoop]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"
ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno"


async def answers(*sent: bytes, of: int) -> tuple[list[tuple[int, bytes]], int]:
    """What a pool of one connection returns for *of* requests, which are answered so in turn; and the connections made."""
    todo = iter(sent)
    made: set[asyncio.StreamWriter] = set()

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.add(writer)
        writer.write(next(todo))

    async with server(handle) as url:
        pool = Pool(url, 1)
        got = [await pool.exchange("GET", "/", "", JSON, b"") for _ in range(of)]
        pool.close()
    return got, len(made)


async def test_a_connection_carries_one_request_after_the_other() -> None:
    assert await answers(ANSWER, CHUNKED, ANSWER, of=3) == ([(200, b"ok"), (201, b"ok"), (200, b"ok")], 1)


async def test_an_error_that_is_answered_twice_is_not_taken_for_the_next_answer() -> None:
    assert await answers(ERROR + ERROR, ANSWER, of=2) == ([(500, b"no"), (200, b"ok")], 2)


async def test_a_second_answer_is_not_taken_for_the_next_answer() -> None:
    assert await answers(ANSWER + CHUNKED, ANSWER, of=2) == ([(200, b"ok"), (200, b"ok")], 2)


async def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    assert await answers(last, ANSWER, of=2) == ([(200, b"ok"), (200, b"ok")], 2)


async def test_an_answer_that_ends_too_soon_is_an_error_and_the_next_request_has_a_new_connection() -> None:
    todo = iter((ANSWER[:-1], ANSWER))

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(next(todo))
        writer.close()

    async with server(handle) as url:
        pool = Pool(url, 1)
        with pytest.raises(Cut, match="GET /: the connection ended before the answer was complete"):
            await pool.exchange("GET", "/", "", JSON, b"")
        assert await pool.exchange("GET", "/", "", JSON, b"") == (200, b"ok")
        pool.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_calls_are_encrypted_on_both_event_loops(certificates: Certificates, loop: Loop) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates.certificate, certificates.key)
    trust = certificates.trusted()

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)

    async def calls() -> list[tuple[int, bytes]]:
        async with server(handle, tls) as url:
            pool = Pool(url, 2, trust)
            return await asyncio.gather(*(pool.exchange("GET", "/", "", JSON, b"") for _ in range(5)))

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(calls()) == [(201, b"ok")] * 5


async def test_a_server_that_does_not_listen_is_named() -> None:
    with pytest.raises(BenchError, match=r"no connection to 127\.0\.0\.1:9"):
        await Pool("http://127.0.0.1:9", 1).exchange("GET", "/", "", JSON, b"")
