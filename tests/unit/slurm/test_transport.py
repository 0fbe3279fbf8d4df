"""The pool against a server that misbehaves on purpose: the outcome of a request is always reported truly."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from bridge import connection_limit
from bridge.errors import ConfigError, ContractError, Invalid, Unanswered, Unreachable
from bridge.slurm.pool import HttpPool
from bridge.slurm.tls import TlsFiles
from bridge.slurm.transport import Reply
from tests.patience import PATIENCE_S
from tests.unit.kube.certificates import Certificates, made_certificates, make

__all__ = ["made_certificates"]  # a fixture

Script = Callable[["Visit"], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"
REFUSAL = b"HTTP/1.1 422 UNPROCESSABLE\r\nConnection: Close\r\nContent-Length: 2\r\n\r\n[]"


class Visit:
    """One connection as the server sees it."""

    def __init__(self, server: Server, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server, self.number, self._reader, self._writer = server, number, reader, writer

    async def request(self) -> str:
        """The head of the next request, its body read and remembered."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
        self.server.bodies.append(await self._reader.readexactly(length))
        self.server.requests.append(head)
        self.server.asked.set()
        return head

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def gone(self) -> None:
        """Until the client has closed the connection."""
        while await self._reader.read(65536):
            pass


class Server:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.visits = 0
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.asked = asyncio.Event()
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        try:
            await self.script(Visit(self, self.visits, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went away, as some of these tests want it to
        finally:
            writer.close()


@asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(script)
    listener = await asyncio.start_server(server, "127.0.0.1", 0, ssl=tls)
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        await listener.wait_closed()


async def ask(pool: HttpPool, method: str = "GET", *, body: bytes = b"", deadline_s: float = 5.0) -> Reply:
    return await pool.exchange(method, "/ping/", {"X-SLURM-USER-TOKEN": "a.secret.token"}, body, deadline_s=deadline_s)


async def always_ok(visit: Visit) -> None:
    while True:
        await visit.request()
        await visit.say(OK)


async def test_answers_come_over_one_connection_that_is_kept() -> None:
    async with serving(always_ok) as server, HttpPool(server.url) as pool:
        for _ in range(3):
            assert await ask(pool) == Reply(200, {"content-length": "2", "content-type": "application/json"}, b"{}")
        assert server.visits == 1


async def test_a_body_and_the_path_prefix_of_the_url_are_sent() -> None:
    async with serving(always_ok) as server, HttpPool(server.url + "/slurm-api/") as pool:
        await ask(pool, "POST", body=b'{"job":1}')
        assert server.requests[0].startswith("POST /slurm-api/ping/ HTTP/1.1\r\n")
        assert server.bodies == [b'{"job":1}']


async def test_an_error_that_is_sent_twice_is_read_once() -> None:
    async def twice(visit: Visit) -> None:
        await visit.request()
        await visit.say(REFUSAL + REFUSAL if visit.number == 1 else OK)
        await visit.gone()

    async with serving(twice) as server, HttpPool(server.url) as pool:
        assert (await ask(pool)).status == 422
        assert (await ask(pool)).status == 200
        assert server.visits == 2


async def test_a_connection_that_sends_without_a_request_is_never_used_again() -> None:
    async def late_double(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)
        if visit.number == 1:
            await visit.say(REFUSAL)
            await visit.gone()  # the client dropped it by itself
            seen_gone.set()
        await visit.gone()

    seen_gone = asyncio.Event()
    async with serving(late_double) as server, HttpPool(server.url) as pool:
        assert (await ask(pool)).status == 200
        await asyncio.wait_for(seen_gone.wait(), PATIENCE_S)
        assert (await ask(pool)).status == 200
        assert server.visits == 2


async def test_a_connection_is_not_used_again_after_connection_close() -> None:
    async def closing(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK.replace(b"Content-Type", b"Connection: Close\r\nContent-Type"))
        await visit.gone()

    async with serving(closing) as server, HttpPool(server.url) as pool:
        await ask(pool)
        await ask(pool)
        assert server.visits == 2


async def test_a_closed_port_means_that_nothing_was_sent() -> None:
    async with serving(always_ok) as server:
        url = server.url
    async with HttpPool(url) as pool:
        with pytest.raises(Unreachable, match="nothing listens at 127"):
            await ask(pool, "POST")


async def test_an_unknown_host_means_that_nothing_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # no question about it leaves this machine
    async with HttpPool("http://nowhere:6820") as pool:
        with pytest.raises(Unreachable, match="the name nowhere is not known"):
            await ask(pool, "POST")


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_request_without_an_answer_within_its_deadline_may_have_happened(method: str) -> None:
    async def silent(visit: Visit) -> None:
        await visit.request()
        await visit.gone()

    async with serving(silent) as server, HttpPool(server.url) as pool:
        with pytest.raises(Unanswered, match=r"within 2 s"):
            await ask(pool, method, deadline_s=1.9984)
        assert len(server.requests) == 1


async def test_an_answer_that_trickles_past_the_deadline_is_unanswered_and_its_connection_dropped() -> None:
    async def trickling(visit: Visit) -> None:
        await visit.request()
        if visit.number == 1:
            await visit.say(OK[:-1])
            await visit.gone()
        await visit.say(OK)
        await visit.gone()

    async with serving(trickling) as server, HttpPool(server.url) as pool:
        with pytest.raises(Unanswered):
            await ask(pool, "POST", deadline_s=1.9984)
        assert (await ask(pool)).body == b"{}"


async def test_a_truncated_answer_may_have_happened() -> None:
    async def cut(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK[:-1])

    async with serving(cut) as server, HttpPool(server.url) as pool:
        with pytest.raises(Unanswered, match="closed the connection"):
            await ask(pool)


async def closes_after_the_first_answer(visit: Visit) -> None:
    """A keep-alive connection that the server closes at the very moment the next request arrives."""
    await visit.request()
    await visit.say(OK)
    if visit.number == 1:
        await visit.request()
        return
    await visit.gone()


async def test_a_read_on_a_connection_that_went_stale_is_sent_once_more() -> None:
    async with serving(closes_after_the_first_answer) as server, HttpPool(server.url) as pool:
        await ask(pool)
        assert (await ask(pool)).status == 200
        assert (server.visits, len(server.requests)) == (2, 3)


async def test_a_write_on_a_connection_that_went_stale_is_never_sent_twice() -> None:
    async with serving(closes_after_the_first_answer) as server, HttpPool(server.url) as pool:
        await ask(pool)
        with pytest.raises(Unanswered):
            await ask(pool, "POST")
        assert (server.visits, len(server.requests)) == (1, 2)


async def test_a_connection_that_was_closed_while_idle_costs_a_write_nothing() -> None:
    async def once(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)
        closed.set()

    closed = asyncio.Event()
    async with serving(once) as server, HttpPool(server.url) as pool:
        await ask(pool)
        await asyncio.wait_for(closed.wait(), PATIENCE_S)
        while pool._idle[0].reusable:  # noqa: ASYNC110  (the end of the connection is on its way over loopback)
            await asyncio.sleep(0)
        assert (await ask(pool, "POST")).status == 200


@pytest.mark.parametrize("announced", [True, False])
async def test_a_huge_answer_is_refused_without_being_kept(announced: bool) -> None:
    async def huge(visit: Visit) -> None:
        await visit.request()
        if announced:
            await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n{")
        else:
            await visit.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                await visit.say(b"1000\r\n" + bytes(0x1000) + b"\r\n")
        await visit.gone()

    async with serving(huge) as server, HttpPool(server.url, answer_limit=1 << 20) as pool:
        with pytest.raises(ContractError, match="more than 1 MiB"):
            await ask(pool)


async def test_endless_headers_are_refused_without_being_kept() -> None:
    async def chatty(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\n")
        while True:
            await visit.say(b"X-More: " + b"x" * 1000 + b"\r\n")

    async with serving(chatty) as server, HttpPool(server.url) as pool:
        with pytest.raises(ContractError, match="headers of more than 64 KiB"):
            await ask(pool)


@pytest.mark.parametrize("end", [b"\r\n", b""], ids=["many", "one"])
async def test_endless_trailers_are_refused_without_being_kept(end: bytes) -> None:
    async def chatty(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-More: ")
        while True:
            await visit.say(b"X-More: " + b"x" * 1000 + end)

    async with serving(chatty) as server, HttpPool(server.url) as pool:
        with pytest.raises(ContractError, match="headers of more than 64 KiB"):
            await ask(pool)


async def test_a_trailer_does_not_replace_a_header() -> None:
    async def saying(visit: Visit) -> None:
        await visit.request()
        await visit.say(
            b"HTTP/1.1 429 Busy\r\nRetry-After: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nRetry-After: 999999\r\n\r\n"
        )

    async with serving(saying) as server, HttpPool(server.url) as pool:
        assert (await ask(pool)).headers["retry-after"] == "3"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", id="in chunks"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n{}", id="until the end of the connection"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK, id="after 100 Continue"),
        pytest.param(OK + OK, id="twice at once"),
    ],
)
async def test_an_answer_is_whole_however_it_comes(answer: bytes) -> None:
    async def saying(visit: Visit) -> None:
        await visit.request()
        await visit.say(answer)

    async with serving(saying) as server, HttpPool(server.url) as pool:
        for _ in range(2):
            reply = await ask(pool)
            assert (reply.status, reply.body) == (200, b"{}")


async def test_an_answer_that_is_not_http_is_a_contract_error() -> None:
    async def mumbling(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        await visit.gone()

    async with serving(mumbling) as server, HttpPool(server.url) as pool:
        with pytest.raises(ContractError, match="does not speak HTTP"):
            await ask(pool)


async def test_a_server_that_changes_to_another_protocol_does_not_speak_http(caplog: pytest.LogCaptureFixture) -> None:
    async def changing(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        await visit.gone()

    async with serving(changing) as server, HttpPool(server.url) as pool:
        with pytest.raises(ContractError, match="does not speak HTTP"):
            await ask(pool)
    assert caplog.text == "", "the event loop logs no traceback"


async def test_a_request_that_finds_no_free_connection_for_too_long_was_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_limit, "WAIT_S", 0.1)

    async def silent(visit: Visit) -> None:
        await visit.request()
        await visit.gone()

    async with serving(silent) as server, HttpPool(server.url, connections=1) as pool:
        first = asyncio.create_task(ask(pool, "POST"))
        await asyncio.wait_for(server.asked.wait(), PATIENCE_S)
        with pytest.raises(Unreachable, match=r"the connection to 127\.0\.0\.1:\d+ had other requests for 1 s"):
            await ask(pool, "POST")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert len(server.requests) == 1


async def test_the_deadline_of_a_request_does_not_count_its_wait_for_a_connection() -> None:
    async def slow_first(visit: Visit) -> None:
        await visit.request()
        await asyncio.sleep(1.2)  # longer than the deadline of the second
        await visit.say(OK)
        await always_ok(visit)

    async with serving(slow_first) as server, HttpPool(server.url, connections=1) as pool:
        first = asyncio.create_task(ask(pool, "POST", deadline_s=PATIENCE_S))
        await asyncio.wait_for(server.asked.wait(), PATIENCE_S)
        second = await ask(pool, "POST", deadline_s=1.0)
        assert (second.status, (await first).waited_s) == (200, 0.0)
        assert 1.0 < second.waited_s < connection_limit.WAIT_S


async def test_no_more_connections_than_allowed_are_opened() -> None:
    async with serving(always_ok) as server, HttpPool(server.url, connections=3) as pool:
        answers = await asyncio.gather(*(ask(pool, "POST", body=b"x") for _ in range(50)))
        assert {answer.status for answer in answers} == {200}
        assert server.visits <= 3


async def test_an_abandoned_exchange_leaves_no_answer_for_the_next() -> None:
    async def slow_first(visit: Visit) -> None:
        await visit.request()
        if visit.number == 1:
            await visit.gone()
            return
        await visit.say(OK)
        await visit.gone()

    async with serving(slow_first) as server, HttpPool(server.url, connections=1) as pool:
        first = asyncio.create_task(ask(pool))
        await asyncio.wait_for(server.asked.wait(), PATIENCE_S)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await ask(pool)).status == 200


async def test_https_is_used_if_the_certificate_is_trusted_and_otherwise_nothing_is_sent(
    certificates: Certificates,
) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificates.certificate, certificates.key)
    async with serving(always_ok, tls=own) as server:
        async with HttpPool(server.url) as pool:
            with pytest.raises(Unreachable, match=r"the certificate of .* is not trusted"):
                await ask(pool, "POST")
        assert server.requests == []
        async with HttpPool(server.url, tls=TlsFiles(str(certificates.authority))) as pool:
            assert (await ask(pool, "POST", body=b"x")).status == 200
            assert (await ask(pool)).status == 200
        assert server.visits == 1


async def test_no_error_holds_a_header() -> None:
    async with serving(always_ok) as server, HttpPool(server.url) as pool:
        with pytest.raises(Invalid) as caught:
            await pool.exchange("GET", "/", {"X-SLURM-USER-TOKEN": "a.secret\n.token"}, b"", deadline_s=5)
        assert "secret" not in repr(caught.value)
        assert caught.value.__context__ is None
        assert server.requests == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("slurm:6820", "is not a URL of slurmrestd"),
        ("http://", "is not a URL of slurmrestd"),
        ("http://h:99999", "Port out of range"),
        ("http://slurm..example:6820", "is not the name of a host"),
        ("http://h/?a=b", "is not a URL of slurmrestd"),
        ("http://alice:secret@h:1", "must not contain a user"),
    ],
)
def test_an_invalid_url_is_refused_in_a_sentence(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        HttpPool(url)
    assert "secret" not in str(caught.value)


# --- connections that firewalls and certificates end ------------------------------------------------------------------


def full_backlog(port: int) -> list[socket.socket]:
    """127.0.0.2 at that port swallows whatever is sent there, as a firewall does."""
    listener = socket.socket()
    listener.bind(("127.0.0.2", port))
    listener.listen(0)
    waiting = [socket.socket() for _ in range(4)]
    for each in waiting:
        each.setblocking(False)
        each.connect_ex(("127.0.0.2", port))
    return [listener, *waiting]


async def test_an_address_that_swallows_everything_does_not_keep_the_next_one_from_answering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(always_ok) as server:
        port = int(server.url.rpartition(":")[2])
        swallowing = full_backlog(port)

        async def both(*_: object, **__: object) -> list[object]:
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")
            ]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
        async with HttpPool(f"http://slurm.example:{port}") as pool:
            assert (await ask(pool, "POST", body=b"x")).status == 200
        assert server.bodies == [b"x"]
        for each in swallowing:
            each.close()


async def test_a_connection_that_was_idle_for_long_is_closed_and_not_used() -> None:
    async with serving(always_ok) as server, HttpPool(server.url, idle_s=0.0) as pool:
        for _ in range(3):
            assert (await ask(pool, "POST", body=b"x")).status == 200
        assert server.visits == 3
        assert len(pool._idle) == 1


async def test_the_kernel_probes_idle_connections_and_gives_up_on_what_is_not_acknowledged() -> None:
    async with serving(always_ok) as server, HttpPool(server.url) as pool:
        await ask(pool)
        [connection] = pool._idle
        assert connection._transport is not None
        connection = connection._transport.get_extra_info("socket")
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12_000


def mutual(certificates: Certificates) -> ssl.SSLContext:
    """A server that lets in only clients with a certificate of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    context.load_verify_locations(cafile=certificates.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_client_certificate_is_shown(certificates: Certificates) -> None:
    tls = TlsFiles(str(certificates.authority), str(certificates.certificate), str(certificates.key))
    async with serving(always_ok, tls=mutual(certificates)) as server, HttpPool(server.url, tls=tls) as pool:
        assert (await ask(pool)).status == 200


async def test_renewed_certificates_replace_connections_and_half_written_certificates_do_not(
    certificates: Certificates, tmp_path: Path
) -> None:
    pair = tmp_path / "pair.pem"
    whole = certificates.certificate.read_text() + certificates.key.read_text()
    pair.write_text(whole)
    tls = TlsFiles(str(certificates.authority), str(pair))
    async with serving(always_ok, tls=mutual(certificates)) as server, HttpPool(server.url, tls=tls) as pool:
        assert (await ask(pool)).status == 200
        for half in (whole[: len(whole) // 2], ""):
            pair.write_text(half)
            assert (await ask(pool)).status == 200
        assert server.visits == 1
        pair.write_text(whole + "\n")
        assert (await ask(pool)).status == 200
        assert server.visits == 2


PEM = "It must be a PEM file that this user may read."


def of_another_key(certificates: Certificates, folder: Path) -> list[Path]:
    other = make(folder)
    return [certificates.authority, certificates.certificate, other.key]


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (lambda c, f: [f / "nowhere"], f"slurm_ca_file {{0}}: No such file or directory. {PEM}"),
        (lambda c, f: [f], f"slurm_ca_file {{0}}: Is a directory. {PEM}"),
        (lambda c, f: [c.key], f"slurm_ca_file {{0}}: there is no certificate in it. {PEM}"),
        (lambda c, f: [c.authority, f / "nowhere"], f"slurm_cert_file {{1}}: No such file or directory. {PEM}"),
        (lambda c, f: [c.authority, *[emptied(f)] * 2], f"slurm_cert_file {{1}}: there is no certificate in it. {PEM}"),
        (
            lambda c, f: [c.authority, c.certificate],
            f"slurm_cert_file {{1}}: there is no private key in it. {PEM} If the key is in another file, name that in "
            "slurm_key_file.",
        ),
        (
            lambda c, f: [c.authority, c.certificate, emptied(f)],
            f"slurm_key_file {{2}}: there is no private key in it. {PEM}",
        ),
        (
            lambda c, f: [c.authority, c.key, c.certificate],
            "slurm_cert_file {1}, slurm_key_file {2}: the certificate and the key are swapped. Swap slurm_cert_file and "
            "slurm_key_file.",
        ),
        (
            of_another_key,
            "slurm_cert_file {1}, slurm_key_file {2}: the key does not belong to the certificate. Name the key that does.",
        ),
        (
            lambda c, f: [c.authority, c.certificate, encrypted(c, f)],
            "slurm_key_file {2}: the key has a passphrase. Store it without one.",
        ),
    ],
)
def test_tls_files_that_cannot_be_used_are_reported_at_start(
    certificates: Certificates, tmp_path: Path, broken: Callable[[Certificates, Path], list[Path]], says: str
) -> None:
    paths = [str(path) for path in broken(certificates, tmp_path)]
    with pytest.raises(ConfigError) as told:
        HttpPool("https://127.0.0.1:1", tls=TlsFiles(*paths))
    assert str(told.value) == says.format(*paths)


def emptied(folder: Path) -> Path:
    (folder / "empty").touch()
    return folder / "empty"


def encrypted(certificates: Certificates, folder: Path) -> Path:
    path = folder / "encrypted.key"
    command = ["openssl", "pkcs8", "-topk8", "-in", certificates.key, "-out", path, "-passout", "pass:secret"]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.mark.parametrize("renewed", ["not a certificate", None])
async def test_a_renewed_authority_that_cannot_be_used_is_reported_once_and_the_one_before_stays(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture, renewed: str | None
) -> None:
    caplog.set_level(logging.INFO)
    authority = tmp_path / "ca.pem"
    authority.write_bytes(certificates.authority.read_bytes())
    tls = TlsFiles(str(authority), str(certificates.certificate), str(certificates.key))
    async with serving(always_ok, tls=mutual(certificates)) as server, HttpPool(server.url, tls=tls) as pool:
        assert (await ask(pool)).status == 200
        assert tls.trouble == ""
        authority.unlink()
        if renewed is not None:
            authority.write_text(renewed)
        for _ in range(3):
            assert (await ask(pool)).status == 200
        why = "there is no certificate in it" if renewed else "No such file or directory"
        assert tls.trouble == f"slurm_ca_file {authority}: {why}. The files that were read before stay in use. {PEM}"
        assert [each.message for each in caplog.records if "slurm_ca_file" in each.message] == [tls.trouble]
        authority.write_bytes(certificates.authority.read_bytes())
        assert (await ask(pool)).status == 200
    assert tls.trouble == ""
    assert caplog.records[-1].message == "the TLS files for slurmrestd are in order again"


def test_trouble_with_a_file_begins_and_ends_with_the_file_though_no_connection_is_made(
    certificates: Certificates, tmp_path: Path
) -> None:
    """A standby makes no connection to Slurm: it showed the trouble until it led again."""
    authority = tmp_path / "ca.pem"
    authority.write_bytes(certificates.authority.read_bytes())
    tls = TlsFiles(str(authority))
    tls.context()
    authority.write_text("not a certificate")
    assert tls.trouble.startswith(f"slurm_ca_file {authority}: there is no certificate in it.")
    authority.write_bytes(certificates.authority.read_bytes())
    assert tls.trouble == ""


def test_files_that_were_never_needed_are_no_trouble(tmp_path: Path) -> None:
    assert TlsFiles(str(tmp_path / "missing")).trouble == ""


async def test_the_error_of_an_untrusted_server_names_the_setting_for_its_authority(
    certificates: Certificates, tmp_path: Path
) -> None:
    other = make(tmp_path)
    async with serving(always_ok, tls=mutual(certificates)) as server:
        where = server.url.removeprefix("https://")
        for tls, do in (
            (
                TlsFiles(str(other.authority)),
                f"Its authority is not in slurm_ca_file {other.authority}: write it there",
            ),
            (
                TlsFiles(),
                "Its authority is not among the authorities of the system: name a file with it in slurm_ca_file",
            ),
        ):
            async with HttpPool(server.url, tls=tls) as pool:
                with pytest.raises(Unreachable) as told:
                    await ask(pool)
            assert told.value.message.startswith(f"the certificate of {where} is not trusted (")
            assert told.value.message.endswith(f"). {do}")
        async with HttpPool(
            server.url.replace("127.0.0.1", "localhost"), tls=TlsFiles(str(certificates.authority))
        ) as pool:
            with pytest.raises(Unreachable, match="Name in slurm_url a host that the certificate is for"):
                await ask(pool)


@contextmanager
def refusing(certificates: Certificates, version: ssl.TLSVersion) -> Iterator[str]:
    """A server that says why it refuses a client, as nginx and HAProxy do and a server of asyncio does not."""
    context = mutual(certificates)
    context.maximum_version = version
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the end of the test
                return
            with connection.dup() as lingering, suppress(OSError):
                with suppress(ssl.SSLError):
                    context.wrap_socket(connection, server_side=True)
                lingering.shutdown(socket.SHUT_WR)
                while lingering.recv(4096):  # if it were closed before, the answer would be lost
                    pass

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        server.join()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_certificate_that_the_server_refuses_is_reported_as_that(
    certificates: Certificates, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """TLS 1.3 reports it after the handshake, in place of a response."""
    other = make(tmp_path)
    tls = TlsFiles(str(certificates.authority), str(other.certificate), str(other.key))
    with refusing(certificates, version) as where:
        async with HttpPool(f"https://{where}", tls=tls) as pool:
            with pytest.raises((Unreachable, Unanswered)) as told:
                await ask(pool)
    assert told.value.message == (
        f"{where} does not accept the client certificate: its authority is not known there. Renew slurm_cert_file "
        f"{other.certificate}, or see which authority the server wants"
    )


async def test_a_server_that_wants_a_client_certificate_is_reported_as_that(certificates: Certificates) -> None:
    tls = TlsFiles(str(certificates.authority))
    with refusing(certificates, ssl.TLSVersion.TLSv1_3) as where:
        async with HttpPool(f"https://{where}", tls=tls) as pool:
            with pytest.raises(Unanswered, match=r"wants a client certificate\. Name one in slurm_cert_file"):
                await ask(pool)


async def test_a_server_that_closes_a_new_connection_without_a_word_may_not_like_the_client_certificate(
    certificates: Certificates, tmp_path: Path
) -> None:
    other = make(tmp_path)
    async with serving(always_ok, tls=mutual(certificates)) as server:
        for files in ((), (str(other.certificate), str(other.key))):
            tls = TlsFiles(str(certificates.authority), *files)
            async with HttpPool(server.url, tls=tls) as pool:
                with pytest.raises(
                    Unanswered, match=r"closed the connection without an answer\. See in the log there whether"
                ):
                    await ask(pool)


async def test_a_write_of_a_replica_that_lost_the_lease_does_not_leave_the_process() -> None:
    async with serving(always_ok) as server, HttpPool(server.url) as pool:
        await ask(pool, "POST", body=b"1")
        pool.may_write = lambda: False
        for method in ("POST", "DELETE"):
            with pytest.raises(Unreachable, match="does not lead any more"):
                await ask(pool, method, body=b"1")
        with pytest.raises(Unreachable, match="does not lead any more"):  # a GET that reads nothing
            await pool.exchange("GET", "/slurm/v0.0.45/reconfigure/", {}, b"", deadline_s=1)
        await ask(pool)
        assert [request.split(" ")[0] for request in server.requests] == ["POST", "GET"]
