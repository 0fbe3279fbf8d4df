"""The server over real TLS: it answers reviews, changes its certificate while it runs, and takes no flood."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bridge.errors import ConfigError
from bridge.webhook import server as module
from bridge.webhook.certificate_files import CertificateFiles
from bridge.webhook.certificates import Made, Unusable, make
from bridge.webhook.review import Intercept
from bridge.webhook.server import MOST_BYTES, Server
from integration.clusters import free_port
from tests.unit.webhook.pem import DAY, NOW, another_key
from tests.unit.webhook.test_review import PATCH, patch, pod, review

HERE = ("127.0.0.1", "localhost")
EXPIRY = "slurm_bridge_webhook_certificate_expiry_timestamp_seconds"


def made(now: float = NOW) -> Made:
    return make(HERE, now)


class Running:
    """A server that listens, and a client that trusts some authorities."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port

    async def ask(
        self, trusted: bytes, path: str = "/intercept", body: Any = b"", host: str = "127.0.0.1", **more: Any
    ) -> tuple[int, bytes]:
        """Over a new connection; GET where there is no body.  Raises aiohttp.ClientError."""
        tls = ssl.create_default_context(cadata=trusted.decode())
        tls.verify_flags |= ssl.VERIFY_X509_STRICT
        # The certificates of these tests are of another time than today's.
        tls.verify_flags |= 0x200000  # X509_V_FLAG_NO_CHECK_TIME
        method = "POST" if path == "/intercept" else "GET"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"https://{host}:{self.port}{path}", data=body, ssl=tls, **more) as answer,
        ):
            return answer.status, await answer.read()


@asynccontextmanager
async def running(first: Made, now: float = NOW, intercept: Intercept = Intercept.UNNAMED) -> AsyncIterator[Running]:
    server, port = Server(intercept, lambda: now), free_port()
    server.use(first.pair)
    runner = await server.listen("127.0.0.1", port)
    try:
        yield Running(server, port)
    finally:
        await runner.cleanup()


async def test_a_review_is_answered() -> None:
    one = made()
    async with running(one) as there:
        status, body = await there.ask(one.authority, body=json.dumps(review(pod())).encode())
        assert status == 200
        assert patch(json.loads(body)) == PATCH


async def test_any_json_is_allowed_and_other_text_is_refused_in_a_sentence() -> None:
    one = made()
    async with running(one) as there:
        for body in (b"null", b"[]", b'{"request": 7}'):
            status, text = await there.ask(one.authority, body=body)
            assert (status, patch(json.loads(text))) == (200, None)
        for body in (b"", b"{", b"\xff", b"[" * 100_000, b'"\\ud800"'):
            status, text = await there.ask(one.authority, body=body)
            assert (status, text) == (
                400,
                b"The body is not JSON: an AdmissionReview of admission.k8s.io/v1 is expected.\n",
            )


async def test_a_review_that_is_too_large_is_refused() -> None:
    one = made()
    async with running(one) as there:
        status, text = await there.ask(one.authority, body=io.BytesIO(b" " * (MOST_BYTES + 1)))
        assert (status, text) == (413, b"The review is larger than 4 MiB.\n")


async def test_a_review_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_S", 0.05)
    monkeypatch.setattr(module, "MOST_AT_ONCE", 1)
    one, slow = made(), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await slow.wait()

    async with running(one) as there:
        status, text = await there.ask(one.authority, body=endless())
        assert (status, text) == (408, b"The review did not arrive within 1 s.\n")
        assert 'slurm_bridge_webhook_reviews_total{outcome="late"}' in await counted(there, one.authority)
        status, _ = await there.ask(one.authority, body=b"{}")
        assert status == 200, "its place is free again"


async def test_more_reviews_at_once_than_there_is_memory_for_are_asked_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", 0)
    one = made()
    async with running(one) as there:
        assert (await there.ask(one.authority, body=b"{}"))[0] == 503


async def counted(there: Running, authority: bytes) -> dict[str, float]:
    """What /metrics says now, by series, without those that count nothing."""
    status, text = await there.ask(authority, "/metrics")
    assert status == 200
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if float(value)}


async def test_reviews_are_counted_by_outcome_and_the_expiry_of_the_certificate_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = made(), made(NOW + DAY)
    async with running(one) as there:
        assert await counted(there, one.authority) == {EXPIRY: one.pair.ends}
        for body in (review(pod()), review(pod()), review(pod("volcano")), None):
            await there.ask(one.authority, body=json.dumps(body).encode())
        await there.ask(one.authority, body=b"{")
        await there.ask(one.authority, body=io.BytesIO(b" " * (MOST_BYTES + 1)))
        monkeypatch.setattr(module, "MOST_AT_ONCE", 0)
        await there.ask(one.authority, body=b"{}")
        there.server.use(other.pair)
        found = await counted(there, other.authority)
    reviews = {name: value for name, value in found.items() if name.startswith("slurm_bridge_webhook_reviews_total")}
    assert reviews == {
        f'slurm_bridge_webhook_reviews_total{{outcome="{outcome}"}}': count
        for outcome, count in {"intercepted": 2, "left_alone": 2, "unreadable": 1, "too_large": 1, "busy": 1}.items()
    }
    assert found["slurm_bridge_webhook_review_seconds_count"] == 7
    assert 0 < found["slurm_bridge_webhook_review_seconds_sum"] < 60
    assert found[EXPIRY] == other.pair.ends == one.pair.ends + DAY


GARBAGE = {
    "no HTTP": b"\x00\x01garbage\r\n\r\n",
    "a bad header": b"POST /intercept HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a long header": b"POST /intercept HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    "a bad chunk": b"POST /intercept HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a bad encoding": b"POST /intercept HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\njunk",
    "half a body": b"POST /intercept HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
}


@pytest.mark.parametrize("case", GARBAGE)
async def test_a_peer_that_sends_garbage_gets_no_traceback_into_the_log(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = made()
    tls = ssl.create_default_context(cadata=one.authority.decode())
    tls.verify_flags |= 0x200000
    async with running(one) as there:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port, ssl=tls)
        writer.write(GARBAGE[case])
        if case == "half a body":
            writer.transport.abort()
        else:
            assert b" 400 " in await reader.readline()
        writer.close()
        plain = await asyncio.open_connection("127.0.0.1", there.port)
        plain[1].write(b"GET / HTTP/1.1\r\n\r\n")
        assert await plain[0].read() == b""
        plain[1].close()
        assert (await there.ask(one.authority, body=b"{}"))[0] == 200
    assert [record.getMessage() for record in caplog.records if record.levelno > 20 or record.exc_info] == []


async def test_an_error_of_our_own_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(*_: object) -> None:
        raise AssertionError("ours")

    monkeypatch.setattr(module, "answer", defect)
    one = made()
    async with running(one) as there:
        assert (await there.ask(one.authority, body=b"{}"))[0] == 500
        assert 'slurm_bridge_webhook_reviews_total{outcome="failed"}' in await counted(there, one.authority)
    assert "ours" in caplog.text


@pytest.mark.parametrize("host", HERE)
async def test_a_new_certificate_is_for_new_connections_under_a_name_or_an_address(host: str) -> None:
    one, other = made(), made()
    async with running(one) as there:
        assert (await there.ask(one.authority, "/healthz", host=host))[0] == 200
        there.server.use(other.pair)
        assert (await there.ask(other.authority, "/healthz", host=host))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await there.ask(one.authority, "/healthz", host=host)


async def test_a_connection_outlives_a_change_of_the_certificate() -> None:
    one, other = made(), made()
    tls = ssl.create_default_context(cadata=one.authority.decode())
    tls.verify_flags |= 0x200000
    async with running(one) as there, aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.get(f"https://127.0.0.1:{there.port}/healthz", ssl=tls) as answer:
                assert answer.status == 200
                await answer.read()
            there.server.use(other.pair)


async def test_it_is_ready_while_its_certificate_is_valid() -> None:
    one = made()
    async with running(one) as there:
        there.server.trouble = "The Secret cannot be read."
        assert await there.ask(one.authority, "/readyz") == (200, b"ok\nThe Secret cannot be read.\n")
    async with running(one, NOW + 91 * DAY) as there:
        status, text = await there.ask(one.authority, "/readyz")
        assert status == 503
        assert text.startswith(b"API servers refuse this replica: the certificate expired at ")


async def test_an_address_that_is_taken_is_reported() -> None:
    async with running(made()) as there:
        with pytest.raises(ConfigError, match=rf"^--listen 127.0.0.1:{there.port}: .*Choose another address.$"):
            await there.server.listen("127.0.0.1", there.port)


# --- files that somebody else renews ------------------------------------------------------------------------------


class Files:
    """Two files, and what is used of them at NOW."""

    def __init__(self, folder: Path, pair: Made) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.write(pair)
        self.server = Server(Intercept.UNNAMED, lambda: NOW)
        self.given = CertificateFiles(str(self.certificate), str(self.key), self.server.use, lambda: NOW)

    def write(self, made: Made) -> None:
        self.certificate.write_bytes(made.pair.certificate)
        self.key.write_bytes(made.pair.key)

    async def says(self) -> str:
        with pytest.raises(ConfigError) as told:
            await self.given.look()
        return str(told.value)


async def test_files_are_read_again_when_they_change_and_a_mistake_leaves_the_pair_in_use(tmp_path: Path) -> None:
    one, other = made(), made()
    files = Files(tmp_path, one)
    await files.given.look()
    files.certificate.write_bytes(other.pair.certificate)
    assert await files.says() == (
        f"--tls-cert-file {files.certificate}, --tls-key-file {files.key}: the key does not belong to the certificate. "
        "Write a valid certificate, and the key that belongs to it, without a passphrase, as PEM."
    )
    assert files.server.not_ready() == ""
    files.write(other)
    await files.given.look()
    port = free_port()
    runner = await files.server.listen("127.0.0.1", port)
    try:
        assert (await Running(files.server, port).ask(other.authority, "/healthz"))[0] == 200
    finally:
        await runner.cleanup()


async def test_what_is_wrong_with_files_is_a_sentence(tmp_path: Path) -> None:
    files = Files(tmp_path, made(NOW - 100 * DAY))
    assert "the certificate expired at 2027-01-05T08:00:00Z." in await files.says()
    files.write(made())
    files.certificate, files.key = files.key, files.certificate
    swapped = CertificateFiles(str(files.certificate), str(files.key), files.server.use, lambda: NOW)
    with pytest.raises(ConfigError, match="the certificate and the key are swapped"):
        await swapped.look()
    files.certificate.unlink()
    assert "No such file or directory. Name a PEM file that this user may read." in await files.says()
    files.certificate.mkdir()
    assert "Is a directory" in await files.says()


def test_a_pair_that_tls_cannot_use_leaves_the_one_before() -> None:
    one = made()
    server = Server(Intercept.UNNAMED, lambda: NOW)
    server.use(one.pair)
    with pytest.raises(Unusable, match=r"^TLS cannot use the certificate and the key"):
        server.use(replace(one.pair, key=another_key()))
    assert server.not_ready() == ""
