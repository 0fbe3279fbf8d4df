"""The wire: what each way to fail says about whether anything was sent, and what a stream is at its edges."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bridge import connection_limit
from bridge.errors import ConfigError, ContractError, RemoteError, Unanswered, Unauthorized, Unreachable
from bridge.kube import transport as module
from bridge.kube.access import Access, Credentials
from bridge.kube.transport import Call, Cut, HttpTransport, StreamRefused, TooLong, opened
from tests.raw_server import Handle, server
from tests.unit.kube.certificates import Certificates, made_certificates, make  # noqa: F401 -- a fixture

SECRET = "s3cr3t-t0k3n"


class Who:
    """Credentials of a test: the token now, and the token that a renewal finds.

    slow_s   how long each look at them takes
    """

    def __init__(self, token: str = SECRET, newer: str | ConfigError = "", slow_s: float = 0.0) -> None:
        self.token = token
        self.newer = newer
        self.slow_s = slow_s
        self.generation = 1
        self.tls: ssl.SSLContext | None = None

    async def credentials(self) -> Credentials:
        await asyncio.sleep(self.slow_s)
        return Credentials(self.generation, (("Authorization", f"Bearer {self.token}"),), self.tls)

    async def renew(self, used: int) -> bool:
        if isinstance(self.newer, ConfigError):
            raise self.newer
        if self.newer and self.newer != self.token:
            self.token, self.generation = self.newer, self.generation + 1
        return self.generation != used


@asynccontextmanager
async def wire(url: str, who: Who | None = None, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpTransport]:
    who = who or Who()
    who.tls = tls
    made = HttpTransport(Access(url, None, None, who.credentials, who.renew))
    try:
        yield made
    finally:
        await made.close()


def answer(text: bytes, status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(text)}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + text


def says(*parts: bytes) -> Handle:
    async def handle(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()

    return handle


def says_then_closes(*parts: bytes) -> Handle:
    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await says(*parts)(head, reader, writer)
        writer.close()

    return handle


async def never_answers(_head: bytes, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text: bytes) -> bytes:
    return f"{len(text):x}\r\n".encode() + text + b"\r\n"


# --- one exchange ---


async def test_an_answer_with_the_headers_of_the_request_has_no_token() -> None:
    async with server(says(answer(SECRET.encode(), "500 Oops"))) as url, wire(url) as far:
        assert (await far.exchange(Call("GET", "/api", deadline_s=5))).body == b"[token]"


async def test_an_answer_comes_whole_whatever_its_status() -> None:
    async with server(says(answer(b"no such thing", "404 Not Found", **{"Retry-After": "7"}))) as url, wire(url) as far:
        reply = await far.exchange(Call("GET", "/api/v1/pods", params={"limit": "5"}, deadline_s=5))
    assert (reply.status, reply.body, reply.headers["retry-after"]) == (404, b"no such thing", "7")


async def test_a_request_is_sent_as_the_call_describes_it() -> None:
    heads: list[bytes] = []

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head + await reader.readexactly(2))
        writer.write(answer(b"{}"))

    async with server(handle) as url, wire(url) as far:
        patch = "application/merge-patch+json"
        await far.exchange(
            Call("PATCH", "/x/..%2Fy", params={"fieldManager": "a b"}, body=b"{}", content_type=patch, deadline_s=5)
        )
    [head] = heads
    text = head.decode()
    assert text.startswith("PATCH /x/..%2Fy?fieldManager=a+b HTTP/1.1\r\n")
    assert f"Authorization: Bearer {SECRET}\r\n" in text
    assert "Content-Type: application/merge-patch+json\r\n" in text
    assert "User-Agent: slurm-bridge/" in text


async def test_the_audit_log_shows_which_of_several_bridges_sent_a_request() -> None:
    heads: list[bytes] = []

    async def handle(head: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(answer(b"{}"))

    async with server(handle) as url, AsyncExitStack() as stack:
        access = Access(url, None, None, (who := Who()).credentials, who.renew)
        for scheduler in ("second", ""):
            await opened(access, stack, scheduler=scheduler).exchange(Call("GET", "/x", deadline_s=5))
    agents = [re.search(r"User-Agent: slurm-bridge/\S+(.*)\r\n", head.decode()) for head in heads]
    assert [agent[1] for agent in agents if agent] == [" (second)", ""]


async def test_no_server_is_unreachable() -> None:
    async with server(never_answers) as url:
        pass
    async with wire(url) as far:
        with pytest.raises(Unreachable) as failed:
            await far.exchange(Call("POST", "/x", body=b"{}", deadline_s=5))
    assert str(failed.value) == f"Kubernetes: post: {url}: Connection refused"


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    async with wire("http://no-such-host.invalid:6443") as far:
        with pytest.raises(Unreachable, match="cannot be resolved"):
            await far.exchange(Call("POST", "/x", body=b"{}", deadline_s=5))


async def test_a_server_that_never_answers_is_unanswered() -> None:
    async with server(never_answers) as url, wire(url) as far:
        with pytest.raises(Unanswered, match="did not answer within 2 s"):
            await far.exchange(Call("POST", "/x", body=b"{}", deadline_s=2))


@pytest.mark.parametrize(
    "parts", [[], [b"HTTP/1.1 200 OK\r\nContent-Le"], [b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{"]]
)
async def test_half_an_answer_is_unanswered(parts: list[bytes]) -> None:
    async with server(says_then_closes(*parts)) as url, wire(url) as far:
        with pytest.raises(Unanswered):
            await far.exchange(Call("POST", "/x", body=b"{}", deadline_s=5))


async def test_an_answer_that_is_not_http_is_unanswered() -> None:
    async with server(says_then_closes(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")) as url, wire(url) as far:
        with pytest.raises(Unanswered) as failed:
            await far.exchange(Call("POST", "/x", body=b"{}", deadline_s=5))
    assert SECRET not in str(failed.value)


async def test_a_connection_that_the_server_had_closed_is_replaced_for_a_read() -> None:
    served: list[bytes] = []

    async def once_each(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(head)
        writer.write(answer(b"{}"))
        await writer.drain()
        writer.close()  # without having said "Connection: close"

    async with server(once_each) as url, wire(url) as far:
        for _ in range(3):
            assert (await far.exchange(Call("GET", "/x", deadline_s=5))).status == 200
    assert len(served) == 3


async def test_a_redirection_is_an_answer_and_not_followed() -> None:
    async with server(says(answer(b"", "302 Found", Location="http://127.0.0.1:1/"))) as url, wire(url) as far:
        assert (await far.exchange(Call("GET", "/x", deadline_s=5))).status == 302


async def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BODY", 1000)
    async with server(says_then_closes(CHUNKED, *[chunk(b"x" * 400)] * 5)) as url, wire(url) as far:
        with pytest.raises(ContractError, match="longer than"):
            await far.exchange(Call("GET", "/x", deadline_s=5))


async def test_more_calls_than_connections_wait_for_their_turn() -> None:
    async with server(says(answer(b"{}"))) as url, wire(url) as far:
        replies = await asyncio.gather(
            *(far.exchange(Call("GET", "/x", deadline_s=5)) for _ in range(3 * module.MAX_CALLS))
        )
    assert {reply.status for reply in replies} == {200}


async def test_a_call_that_finds_no_free_connection_for_too_long_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 1)
    monkeypatch.setattr(connection_limit, "WAIT_S", 0.2)
    async with server(never_answers) as url, wire(url) as far:
        first = asyncio.create_task(far.exchange(Call("POST", "/x", body=b"{}", deadline_s=3)))
        await asyncio.sleep(0)  # the first takes the only connection
        with pytest.raises(Unreachable, match=r"the connection to http://127\.0\.0\.1:\d+ had other requests for 1 s"):
            await far.exchange(Call("POST", "/x", body=b"{}", deadline_s=5))
        with pytest.raises(Unanswered):
            await first


async def test_the_deadline_of_a_call_does_not_count_its_wait_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise most binds of a large gang run out of time before they are sent, if the API server is slow."""
    monkeypatch.setattr(module, "MAX_CALLS", 2)

    async def slow(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(answer(b"{}"))

    async with server(slow) as url, wire(url) as far:
        # The last of them waits for longer than its deadline.
        replies = await asyncio.gather(*(far.exchange(Call("GET", "/x", deadline_s=1)) for _ in range(10)))
    assert {reply.status for reply in replies} == {200}


# --- calls that fail one after the other ---


async def test_calls_that_fail_for_a_while_are_trouble_until_one_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The watches may be open all the while, on connections that were made with other credentials."""
    caplog.set_level(logging.INFO)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    status = "200 OK"

    async def handle(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"{}", status))

    async with server(handle) as url, wire(url) as far:
        far.access.refused = lambda: "its token expired"
        recovered: list[float] = []
        far.on_answered(lambda: recovered.append(now[0]))

        async def ask() -> None:
            await far.exchange(Call("GET", "/x", deadline_s=5))

        await ask()
        status = "401 Unauthorized"
        for now[0], trouble in ((0.0, ""), (2.0, ""), (3.0, "Kubernetes: authenticate: its token expired (error 401)")):
            with pytest.raises(Unauthorized):
                await ask()
            assert far.trouble() == trouble
        status = "403 Forbidden"
        await ask()
        assert far.trouble() == "", "whatever the answer is, it is one"
        assert recovered == [3.0], "failed actions are repeated at once"
        status, now[0] = "401 Unauthorized", 9.0
        with pytest.raises(Unauthorized):
            await ask()
        assert far.trouble() == "", "one failure is a hiccup"
    assert [each.message for each in caplog.records] == [
        "Kubernetes: authenticate: its token expired (error 401)",
        "Kubernetes answers calls again",
    ]


@pytest.mark.parametrize("path", ["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/version"])
async def test_what_the_api_server_answers_without_etcd_does_not_hide_that_etcd_is_away(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The bridge checks its rights every 30 s, and a frozen etcd does not disturb that."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    async def handle(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"{}", "200 OK" if path.encode() in head else "500 Internal Server Error"))

    async with server(handle) as url, wire(url) as far:
        for now[0] in (0.0, 3.0):
            assert (await far.exchange(Call("GET", "/api/v1/pods", deadline_s=5))).status == 500
            assert (await far.exchange(Call("GET", path, deadline_s=5))).status == 200
        assert far.trouble() == f"Kubernetes: get: {url} answered with HTTP status 500"
        now[0] = 3.0 + module.TRIED_S
        await far.exchange(Call("GET", path, deadline_s=5))
        assert far.trouble() == "", "nothing is tried any more"


async def test_a_write_that_the_bridge_stopped_itself_shows_nothing_about_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FAILING_S", 0.0)
    async with server(says(answer(b"{}"))) as url, wire(url) as far:
        far.may_write = lambda: False
        for _ in range(2):
            with pytest.raises(Unreachable, match="does not lead any more"):
                await far.exchange(Call("DELETE", "/x", deadline_s=5))
        assert far.trouble() == ""


async def test_a_watch_whose_credentials_are_not_accepted_says_which() -> None:
    async with server(says(answer(b"{}", "401 Unauthorized"))) as url, wire(url) as far:
        far.access.refused = lambda: "its token expired"
        with pytest.raises(Unauthorized, match="its token expired"):
            async with far.stream("/x", stall_s=5):
                pass


async def test_the_error_of_an_untrusted_server_names_the_source_of_the_authority(
    certificates: Certificates, tmp_path: Path
) -> None:
    tls = make(tmp_path).trusted()
    async with server(says(answer(b"{}")), server_tls(certificates)) as url, wire(url, tls=tls) as far:
        far.access.named = "kubeconfig k"
        with pytest.raises(Unreachable) as told:
            await far.exchange(Call("GET", "/x", deadline_s=5))
    assert told.value.message.startswith(f"TLS with {url} failed: ")
    assert told.value.message.endswith(". Its authority has to be the one that kubeconfig k names")


# --- credentials ---


async def only_newer(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(b"{}") if b"Bearer newer" in head else answer(b"Unauthorized", "401 Unauthorized"))


async def test_a_401_is_tried_once_more_with_newer_credentials() -> None:
    async with server(only_newer) as url, wire(url, Who("older", "newer")) as far:
        assert (await far.exchange(Call("POST", "/x", deadline_s=5))).status == 200
        async with far.stream("/x", stall_s=5):
            pass
    async with server(only_newer) as url, wire(url, Who("older")) as far:
        assert (await far.exchange(Call("POST", "/x", deadline_s=5))).status == 401
        with pytest.raises(StreamRefused):
            async with far.stream("/x", stall_s=5):
                pass


async def test_credentials_that_cannot_be_renewed_say_why() -> None:
    why = ConfigError("its exec plugin aws failed with exit code 1.")
    async with server(only_newer) as url, wire(url, Who("older", why)) as far:
        with pytest.raises(Unauthorized, match="exec plugin aws failed"):
            await far.exchange(Call("POST", "/x", deadline_s=5))


async def test_the_deadline_holds_for_credentials_too_and_nothing_was_sent_then() -> None:
    async with server(says(answer(b"{}"))) as url, wire(url, Who(slow_s=60)) as far:
        with pytest.raises(Unreachable, match=r"no credentials for .* in time"):
            await far.exchange(Call("POST", "/x", body=b"{}", deadline_s=0.2))


async def test_the_deadline_holds_for_both_tries_together() -> None:
    async def slowly(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)
        await only_newer(head, reader, writer)

    async with server(slowly) as url, wire(url, Who("older", "newer")) as far:
        with pytest.raises(Unanswered, match="did not answer"):
            await far.exchange(Call("POST", "/x", deadline_s=1.8))


async def test_a_deadline_that_passes_while_credentials_are_renewed_after_a_401_proves_that_nothing_was_done() -> None:
    class Slow(Who):
        async def renew(self, used: int) -> bool:
            await asyncio.sleep(60)
            return False

    async with server(only_newer) as url, wire(url, Slow("older")) as far:
        with pytest.raises(Unreachable, match="no credentials"):
            await far.exchange(Call("POST", "/x", deadline_s=2))


# --- what is repeated ---


async def resets_every_second(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers "first" and keeps the connection; on it, the next request is read and then the connection is reset."""
    if head.split(b" ")[1] == b"/first":
        writer.write(answer(b"{}"))
    else:
        writer.transport.abort()


@pytest.mark.parametrize(("method", "sent"), [("DELETE", 1), ("PUT", 1), ("PATCH", 1), ("POST", 1), ("GET", 2)])
async def test_after_a_reset_of_its_connection_a_read_is_sent_once_more_and_a_write_never(
    method: str, sent: int
) -> None:
    heads: list[bytes] = []

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        await resets_every_second(head, reader, writer)

    async with server(handle) as url, wire(url) as far:
        await far.exchange(Call("GET", "/first", deadline_s=5))
        with pytest.raises(Unanswered):
            await far.exchange(Call(method, "/second", deadline_s=5))
    assert [head.split(b" ")[0].decode() for head in heads] == ["GET"] + [method] * sent


# --- TLS ---


async def test_the_server_sees_new_certificates_with_the_next_request(certificates: Certificates) -> None:
    """A pooled connection still has the old ones."""
    connections: list[asyncio.StreamWriter] = []

    async def handle(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if writer not in connections:
            connections.append(writer)
        writer.write(answer(b"{}"))

    def trusting() -> ssl.SSLContext:
        made = certificates.trusted()
        made.load_cert_chain(certificates.certificate, certificates.key)
        return made

    who = Who()
    async with server(handle, server_tls(certificates)) as url, wire(url, who, trusting()) as far:
        for _ in range(3):
            await far.exchange(Call("GET", "/x", deadline_s=5))
        assert len(connections) == 1
        who.tls = trusting()
        for _ in range(3):
            await far.exchange(Call("GET", "/x", deadline_s=5))
        assert len(connections) == 2


def server_tls(certificates: Certificates) -> ssl.SSLContext:
    """Only clients with a certificate of the authority."""
    context = certificates.trusted(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.certificate, certificates.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_client_certificate_opens_the_door(certificates: Certificates) -> None:
    trusting = certificates.trusted()
    trusting.load_cert_chain(certificates.certificate, certificates.key)
    async with server(says(answer(b"{}")), server_tls(certificates)) as url, wire(url, tls=trusting) as far:
        assert (await far.exchange(Call("GET", "/x", deadline_s=5))).status == 200


async def test_a_server_that_is_not_trusted_is_sent_nothing(certificates: Certificates) -> None:
    async with (
        server(never_answers, server_tls(certificates)) as url,
        wire(url, tls=ssl.create_default_context()) as far,
    ):
        with pytest.raises(Unreachable, match=r"TLS with .* failed: self-signed certificate"):
            await far.exchange(Call("POST", "/x", body=b"{}", deadline_s=5))


async def test_plain_http_to_a_tls_port_is_a_failure_in_words(certificates: Certificates) -> None:
    async with server(never_answers, server_tls(certificates)) as url, wire(url.replace("https", "http")) as far:
        with pytest.raises(RemoteError) as failed:
            await far.exchange(Call("POST", "/x", body=b"{}", deadline_s=5))
    assert SECRET not in str(failed.value)


# --- streams ---


async def lines_of(
    parts: list[bytes], *, stall_s: float = 5, close: bool = True
) -> tuple[list[bytes], RemoteError | None]:
    """What a stream gives, and how it ends."""
    heard: list[bytes] = []
    handle = says_then_closes(*parts) if close else says(*parts)
    async with server(handle) as url, wire(url) as far:
        try:
            async with far.stream("/x", params={"watch": "true"}, stall_s=stall_s) as lines:
                async for line in lines:
                    heard.append(line)  # noqa: PERF401 -- what came before an error must be kept
        except RemoteError as error:
            return heard, error
    return heard, None


async def test_lines_come_one_by_one_however_the_bytes_are_divided() -> None:
    parts = [
        CHUNKED,
        chunk(b'{"a":1}\n{"b"'),
        chunk(b":2}"),
        chunk(b"\n\n"),
        chunk(b'{"c":3}\n{"d":4}\n'),
        b"0\r\n\r\n",
    ]
    assert await lines_of(parts) == ([b'{"a":1}', b'{"b":2}', b'{"c":3}', b'{"d":4}'], None)


async def test_a_broken_stream_gives_no_partial_line_and_raises_an_error() -> None:
    heard, error = await lines_of([CHUNKED, chunk(b'{"a":1}\n{"b"')])
    assert heard == [b'{"a":1}']
    assert isinstance(error, Unanswered)


async def test_a_stream_that_falls_silent_is_given_up() -> None:
    heard, error = await lines_of([CHUNKED, chunk(b'{"a":1}\n')], stall_s=2, close=False)
    assert heard == [b'{"a":1}']
    assert isinstance(error, Unanswered)


async def test_of_a_line_that_is_too_long_the_first_bytes_come_and_the_stream_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_LINE", 1000)
    monkeypatch.setattr(module, "HEAD", 10)
    parts = [b'{"a":1}\n', b'{"long":"', *[b"x" * 600] * 5, b'"}\n{"b":2}\n', b'{"c":3}', b"\n"]
    heard, error = await lines_of([CHUNKED, *map(chunk, parts), b"0\r\n\r\n"])
    assert error is None
    assert heard == [b'{"a":1}', b'{"long":"x', b'{"b":2}', b'{"c":3}']
    assert [isinstance(line, Cut) for line in heard] == [False, True, False, False]


async def test_of_an_answer_that_is_too_long_the_first_bytes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BODY", 1000)
    monkeypatch.setattr(module, "HEAD", 10)
    async with server(says_then_closes(answer(b'{"long":"' + b"x" * 2000))) as url, wire(url) as far:
        with pytest.raises(TooLong) as failed:
            await far.exchange(Call("GET", "/x", deadline_s=5))
    assert failed.value.head == b'{"long":"x'


async def test_a_stream_that_is_refused_gives_the_answer() -> None:
    async with server(says(answer(b"too old", "410 Gone"))) as url, wire(url) as far:
        with pytest.raises(StreamRefused) as refused:
            async with far.stream("/x", stall_s=5):
                pytest.fail("it was refused")
    assert (refused.value.reply.status, refused.value.reply.body) == (410, b"too old")


@pytest.mark.parametrize("half", [says_then_closes, says])
async def test_a_stream_whose_refusal_does_not_come_whole_is_unanswered(
    half: Callable[[bytes], Handle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_DEADLINE_S", 0.2)
    cut = answer(b"no room", "500 Oops")[:-3]
    async with server(half(cut)) as url, wire(url) as far:
        with pytest.raises(Unanswered):
            async with far.stream("/x", stall_s=600):
                pytest.fail("it was refused")


async def test_a_stream_to_a_closed_port_is_unreachable() -> None:
    async with server(never_answers) as url:
        pass
    async with wire(url) as far:
        with pytest.raises(Unreachable):
            async with far.stream("/x", stall_s=5):
                pytest.fail("nobody is there")


async def test_a_stream_that_is_never_accepted_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_DEADLINE_S", 0.2)
    async with server(never_answers) as url, wire(url) as far:
        with pytest.raises(Unanswered):
            async with far.stream("/x", stall_s=600):
                pytest.fail("it was never accepted")


async def test_watches_do_not_take_the_connections_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 1)

    async def handle(head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED if b"watch" in head else answer(b"{}"))

    async with server(handle) as url, wire(url) as far:
        watching = {"watch": "true"}
        async with far.stream("/x", params=watching, stall_s=5), far.stream("/x", params=watching, stall_s=5):
            assert (await far.exchange(Call("GET", "/x", deadline_s=5))).status == 200


async def test_a_write_of_a_replica_that_lost_the_lease_does_not_leave_the_process() -> None:
    """Asked when the connection is there and the first byte is about to go: until then the lease may have been lost."""
    heard: list[bytes] = []

    async def handle(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(head.split(b" ")[0])
        writer.write(answer(b"{}"))

    async with server(handle) as url, wire(url) as far:
        assert (await far.exchange(Call("DELETE", "/", deadline_s=5))).status == 200
        far.may_write = lambda: False
        for _ in range(3):
            with pytest.raises(Unreachable, match="does not lead any more"):
                await far.exchange(Call("DELETE", "/", deadline_s=5))
        assert (await far.exchange(Call("GET", "/", deadline_s=5))).status == 200
    assert heard == [b"DELETE", b"GET"]
