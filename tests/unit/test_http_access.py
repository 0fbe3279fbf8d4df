"""/explain and /release are for the machine that the bridge runs on, or for requests with its token."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from bridge import http_clients
from bridge.cli.release import ask
from bridge.errors import ConfigError
from bridge.event_loop import new_event_loop
from bridge.health import Health
from bridge.http_access import BearerFile, Bearers, is_loopback, refusal
from bridge.telemetry import Telemetry
from tests.builders import START, Story, pod
from tests.patience import PATIENCE_S
from tests.unit.test_health import Tokens, Turning

TOKEN = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"
RELEASE = {"X-Slurm-Bridge": "release"}


@asynccontextmanager
async def served(token_file: Path | None = None) -> AsyncIterator[str]:
    story = Story()
    story.runs(pod("secret"), 17, at=START + 20)
    loop: Any = Turning(story.world)
    tokens: Any = Tokens()
    bearers = Bearers(BearerFile(str(token_file)) if token_file else None)
    runner = await Health(loop, [tokens], Telemetry(), lambda: START, bearers).serve("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def answers(url: str, shown: Mapping[str, str]) -> tuple[int, int]:
    """The status of /explain and of /release.  What the page reads has the status of /explain."""
    async with aiohttp.ClientSession(headers=shown) as session:
        async with session.get(f"{url}/events") as events, session.get(f"{url}/workloads/secret") as workload:
            statuses = {events.status, 200 if workload.status == 404 else workload.status}
        async with session.get(f"{url}/explain?namespace=hpc&pod=secret") as explain:
            assert explain.headers["X-Content-Type-Options"] == "nosniff"
        assert statuses == {explain.status}
        async with session.post(f"{url}/release", headers=RELEASE) as release:
            return explain.status, release.status


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost@evil.example", "10.0.0.7:8080", ""],
)
async def test_a_page_that_gives_its_own_name_our_address_learns_and_releases_nothing(host: str) -> None:
    async with served() as url:
        assert await answers(url, {"Host": host}) == (421, 421)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8080", "localhost:80", "LOCALHOST", "[::1]:8080", "[::1]"])
async def test_commands_on_this_machine_are_answered(host: str) -> None:
    async with served() as url:
        assert await answers(url, {"Host": host}) == (200, 200)


async def test_what_a_proxy_on_this_machine_passes_on_is_not_from_this_machine() -> None:
    async with served() as url:
        assert await answers(url, {"X-Forwarded-For": "198.51.100.7"}) == (403, 403)


async def test_health_and_metrics_are_answered_under_any_name() -> None:
    async with served() as url, aiohttp.ClientSession(headers={"Host": "10.0.0.7:8080"}) as session:
        for path in ("/healthz", "/readyz", "/metrics"):
            async with session.get(url + path) as answer:
                assert answer.status == 200, path


def from_peer(address: str, shown: Mapping[str, str]) -> web.Request:
    class Socket:
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return (address, 40_000) if name == "peername" else default

        def is_closing(self) -> bool:
            return False

    transport: Any = Socket()
    return make_mocked_request("GET", "/explain", headers=shown, transport=transport)


@pytest.mark.parametrize("peer", ["10.0.0.7", "2001:db8::7", "::ffff:10.0.0.7"])
def test_other_machines_are_refused_whatever_name_they_use(peer: str) -> None:
    no = refusal(from_peer(peer, {"Host": "127.0.0.1:8080"}), None)
    assert no is not None
    assert no.status == 403
    assert "http_token_file" in (no.text or "")


def test_other_machines_are_answered_if_they_show_the_token(tmp_path: Path) -> None:
    bearer = BearerFile(str(written(tmp_path)))
    shown = {"Host": "slurm-bridge.hpc.svc:8080", "Authorization": f"Bearer {TOKEN}"}
    assert refusal(from_peer("10.0.0.7", shown), bearer) is None


def written(folder: Path, token: str = TOKEN) -> Path:
    path = folder / "token"
    path.write_text(f"{token}\n")
    return path


@pytest.mark.parametrize(
    "shown",
    [
        {},
        {"Authorization": f"Bearer {OTHER}"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": "Bearer \u00e9"},
    ],
)
async def test_with_a_token_file_no_request_is_answered_without_the_token(
    tmp_path: Path, shown: dict[str, str]
) -> None:
    async with served(written(tmp_path)) as url:
        assert await answers(url, shown) == (401, 401)


async def test_the_commands_send_the_token(tmp_path: Path) -> None:
    path = written(tmp_path)
    async with served(path) as url:
        assert await answers(url, {"Authorization": f"Bearer {TOKEN}"}) == (200, 200)
        assert await ask(url, str(path)) == "Nothing is held back."
        with pytest.raises(ConfigError, match="bearer token of the setting http_token_file"):
            await ask(url)


async def test_a_token_that_was_replaced_is_asked_for_at_once_and_a_removed_one_locks(tmp_path: Path) -> None:
    path = written(tmp_path)
    async with served(path) as url:
        assert await answers(url, {"Authorization": f"bearer {TOKEN}"}) == (200, 200)
        renewed = tmp_path / "renewed"
        renewed.write_text(OTHER)
        os.replace(renewed, path)
        assert await answers(url, {"Authorization": f"Bearer {TOKEN}"}) == (401, 401)
        assert await answers(url, {"Authorization": f"Bearer {OTHER}"}) == (200, 200)
        path.write_text("")  # somebody is about to write it
        assert await answers(url, {"Authorization": "Bearer "}) == (401, 401)
        path.unlink()
        assert await answers(url, {"Authorization": f"Bearer {OTHER}"}) == (401, 401)


@pytest.mark.parametrize("content", ["", "short", "two words in one line of text", "a" * 5000, "\0" * 40])
def test_a_file_that_holds_no_token_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    bearer = BearerFile(str(written(tmp_path, content)))
    with pytest.raises(ConfigError) as caught:
        bearer.token()
    assert "http_token_file" in str(caught.value)
    assert not content or content not in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match="http_token_file: /nowhere/token: No such file"):
        BearerFile("/nowhere/token").token()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_addresses(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["", "0.0.0.0", "10.0.0.1", "localhost.example", "::", "fe80::1%lo", "127.1", "1" * 400]
)
def test_no_other_address_counts_as_loopback(address: str) -> None:
    assert not is_loopback(address)


def test_a_loopback_peer_of_a_socket_for_both_families_is_one() -> None:
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("::ffff:10.0.0.1")


async def test_a_request_without_a_host_is_refused() -> None:
    async with served() as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(b"GET /explain?pod=secret HTTP/1.0\r\n\r\n")
            raw.setblocking(False)
            first = await asyncio.get_running_loop().sock_recv(raw, 200)
    assert b" 421 " in first


GARBAGE = {
    "no HTTP": b"\x00\x01garbage\r\n\r\n",
    "a bad header": b"GET /healthz HTTP/1.1\r\nHost: x\r\nbad header\x00: 1\r\n\r\n",
    "a long header": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    "a bad length": b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
}


@pytest.mark.parametrize("case", GARBAGE)
async def test_a_peer_that_sends_garbage_gets_no_traceback_into_the_log(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Off loopback /healthz answers everybody, so any client that reaches the port could fill the log."""
    async with served() as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(GARBAGE[case])
        assert b" 400 " in await reader.readline()
        writer.close()
        async with aiohttp.ClientSession() as session, session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
    assert [record for record in caplog.records if record.exc_info] == []


def test_users_of_namespaces_are_never_given_the_token_of_admins(tmp_path: Path) -> None:
    admin, nodes = tmp_path / "admin", tmp_path / "nodes"
    admin.write_text(TOKEN)
    nodes.write_text(f"{TOKEN}\n")
    with pytest.raises(ConfigError, match="http_nodes_token_file holds the token of http_token_file"):
        Bearers.of(str(admin), str(nodes))
    nodes.write_text(OTHER)
    assert Bearers.of(str(admin), str(nodes)).nodes is not None


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "the bridge's own"])
def test_clients_that_hold_connections_keep_no_other_client_out_and_take_no_more_than_the_limit(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Any client that reaches the port may open connections and stay silent; kubelet's probe must be answered."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(silent_clients())


async def silent_clients() -> None:
    async with served() as url, AsyncExitStack() as stack:
        port = int(url.rpartition(":")[2])
        silent = []
        for _ in range(http_clients.MOST + 20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            silent.append(reader)
        async with aiohttp.ClientSession() as session, session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        for reader in silent[:21]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b"", "the oldest were closed"
        assert not any(reader.at_eof() for reader in silent[21:])


async def test_a_client_that_does_not_read_its_answer_holds_little_of_it() -> None:
    body, taken = bytes(8 * 2**20), 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal taken
        async for part in http_clients.in_parts(body):
            taken += len(part)
            yield part

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=parts())

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await http_clients.Site(runner, "127.0.0.1", 0).start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1], limit=2**10)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await reader.readline()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert taken < len(body), "the server waits for its reader"
        while await reader.read(2**20):
            pass
        assert taken == len(body)
        writer.close()
    finally:
        await runner.cleanup()


async def test_a_stream_ends_when_its_token_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    async with served(file) as url, aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        async with session.get(f"{url}/events") as events:
            assert await events.content.readline()
            file.write_text(OTHER)
            async with asyncio.timeout(PATIENCE_S):
                while await events.content.readline():
                    pass  # until the end of the stream
        async with session.get(f"{url}/events") as events:
            assert events.status == 401
