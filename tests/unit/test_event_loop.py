"""What a process that serves logs of errors that no caller can catch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from bridge.event_loop import new_event_loop


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        yield runner


CLOSED = "unable to perform operation on <TCPTransport closed=True>; the handler is closed"


async def _fails(text: str, *, closed: bool) -> None:
    """Report an error of a connection to the loop, as uvloop does when TLS goes on after a timeout closed the connection."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    if closed:
        writer.transport.abort()
    context = {"message": "Fatal error on SSL protocol", "exception": RuntimeError(text), "transport": writer.transport}
    asyncio.get_running_loop().call_exception_handler(context)
    writer.close()
    server.close()


@pytest.mark.parametrize(("text", "closed"), [("any error", True), (CLOSED, False)], ids=["closing", "aborted"])
def test_tls_that_fails_on_a_closed_connection_leaves_no_traceback(
    text: str, closed: bool, runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "slurm-bridge"):
        runner.run(_fails(text, closed=closed))
    [record] = [each for each in caplog.records if "SSL" in each.getMessage()]
    assert record.levelno == logging.DEBUG
    assert record.exc_info is None


def test_an_error_on_an_open_connection_is_logged_as_the_bug_that_it_is(
    runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    runner.run(_fails("any error", closed=False))
    [record] = [each for each in caplog.records if "SSL" in each.getMessage()]
    assert record.levelno == logging.ERROR
    assert record.exc_info
