"""At start a cluster that is away is waited for and said; a mistake that no waiting mends ends the process (exit code 2)."""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from bridge.errors import ConfigError, NotYet
from bridge.preflight.waiting import LASTS_S, MOST_S, Waiting
from bridge.simulation.http import serve_kube, serve_slurm
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.virtual_time import run
from integration.clusters import free_port
from tests.patience import PATIENCE_S
from tests.unit.doctor.clusters import Both, kubeconfig
from tests.unit.processes import Process, running, until

# --- the waiting itself, on virtual time ---------------------------------------------------------------------------


class Cluster:
    """Fails as the test sets, one attempt after the other; then it answers."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = iter(failures)
        self.asked_at: list[float] = []

    async def __call__(self) -> str:
        self.asked_at.append(asyncio.get_running_loop().time())
        for failure in self.failures:
            raise failure
        return "here"


def test_a_cluster_that_is_away_for_long_is_asked_every_few_seconds() -> None:
    cluster, waiting = Cluster(*[NotYet("connection refused")] * 20), Waiting()
    assert run(waiting.wait_for("Slurm", cluster)) == "here"
    pauses = [after - before for before, after in zip(cluster.asked_at, cluster.asked_at[1:], strict=False)]
    assert pauses[0] <= 0.25
    assert max(pauses) <= MOST_S
    assert pauses[-1] >= MOST_S / 2
    assert waiting.reasons == {}


def test_the_reason_is_there_from_the_first_moment_and_logged_once_for_each_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting = Waiting()
    cluster = Cluster(*[NotYet("connection refused")] * 3, *[NotYet("it answers 502")] * 3)
    seen: list[str] = []

    async def play() -> None:
        task = asyncio.create_task(waiting.wait_for("Slurm", cluster))
        while not task.done():
            await asyncio.sleep(0)
            seen.extend(waiting.reasons.values())
            await asyncio.sleep(0.1)

    run(play())
    assert list(dict.fromkeys(seen)) == ["connection refused", "it answers 502"]
    assert [each.message for each in caplog.records] == [
        "waiting for Slurm: connection refused",
        "waiting for Slurm: it answers 502",
    ]


def test_a_refusal_of_the_first_seconds_is_not_believed() -> None:
    """An API server refuses everything until its caches are filled."""
    cluster = Cluster(NotYet("connection refused"), *[ConfigError("may not list pods")] * 3)
    assert run(Waiting().wait_for("Kubernetes", cluster)) == "here"


def test_a_refusal_that_lasts_ends_the_waiting_for_both() -> None:
    slurm, kubernetes = Cluster(*[ConfigError("the token is refused")] * 99), Cluster(*[NotYet("away")] * 99)

    async def play() -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConfigError, match="the token is refused"):
            await Waiting().both(kubernetes, slurm)
        assert LASTS_S <= asyncio.get_running_loop().time() - began <= LASTS_S + 1.0

    run(play())


def test_our_own_mistake_is_not_waited_for() -> None:
    with pytest.raises(ExceptionGroup) as failed:
        run(Waiting().both(Cluster(ZeroDivisionError()), Cluster()))
    assert isinstance(failed.value.exceptions[0], ZeroDivisionError)


# --- the process ----------------------------------------------------------------------------------------------------


class Servers:
    """Ports at which both clusters will listen some day."""

    def __init__(self, folder: Path) -> None:
        self.both = Both(folder)
        self.kube_port, self.slurm_port = free_port(), free_port()
        config, access, token = (folder / name for name in ("settings.yaml", "kubeconfig", "token"))
        config.write_text(yaml.safe_dump({"slurm_url": f"http://127.0.0.1:{self.slurm_port}", **self.both.settings}))
        access.write_text(yaml.safe_dump(kubeconfig(f"http://127.0.0.1:{self.kube_port}")))
        token.write_text(self.both.token)
        token.chmod(0o600)
        self.options = {"config": str(config), "kubeconfig": str(access), "slurm_token_file": str(token)}

    def kubernetes(self) -> Any:
        return serve_kube(InProcessKube(self.both.kube, time.time), self.kube_port)

    def slurm(self) -> Any:
        return serve_slurm(self.both.slurm, time.time, self.slurm_port)


@asynccontextmanager
async def nonsense(port: int, answer: Callable[[web.Request], web.Response]) -> AsyncIterator[None]:
    """A server that is not the cluster yet."""

    async def any_of_them(request: web.Request) -> web.Response:
        return answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", any_of_them)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
    finally:
        await runner.cleanup()


async def waits(bridge: Process, *words: str) -> None:
    """It lives, is not ready, and /readyz has a line with each of those words."""

    async def says_so() -> bool:
        status, text = await bridge.get("/readyz")
        return status == 503 and all(any(word in line for line in text.splitlines()) for word in words)

    await until(says_so, f"/readyz says {words}")
    assert (await bridge.get("/healthz")) == (200, "ok\n")
    assert (await bridge.get("/metrics"))[0] == 200
    assert (await bridge.get("/explain?pod=a"))[0] == 503


async def test_a_bridge_that_starts_before_both_clusters_waits_and_says_why(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    async with running(tmp_path, servers.options) as bridge:
        await waits(bridge, f"127.0.0.1:{servers.kube_port}", f"127.0.0.1:{servers.slurm_port}")
        async with servers.slurm():
            await waits(bridge, f"127.0.0.1:{servers.kube_port}")
            async with servers.kubernetes():
                await until(bridge.is_ready, "the bridge is ready")
    assert bridge.log.count(f"waiting for Kubernetes: kubeconfig's server http://127.0.0.1:{servers.kube_port}") == 1
    assert "Traceback" not in bridge.log


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: web.Response(text="<html>welcome</html>", content_type="text/html"),
        lambda _: web.Response(status=404, text="no such site"),
        lambda _: web.Response(status=502, text="bad gateway"),
        lambda _: web.Response(status=429, headers={"Retry-After": "60"}),
        lambda _: web.json_response([1, 2]),
    ],
    ids=["a page", "404", "502", "429", "another JSON"],
)
async def test_nonsense_of_both_is_waited_for(tmp_path: Path, answer: Callable[[web.Request], web.Response]) -> None:
    servers = Servers(tmp_path)
    async with running(tmp_path, servers.options) as bridge:
        async with nonsense(servers.kube_port, answer), nonsense(servers.slurm_port, answer):
            await waits(bridge, "kubeconfig's server", "slurm_url")
        async with servers.slurm(), servers.kubernetes():
            await until(bridge.is_ready, "the bridge is ready")


@pytest.mark.parametrize(
    ("side", "answer", "says"),
    [
        ("kube", lambda _: web.json_response({"kind": "Status", "reason": "Unauthorized"}, status=401), "kubeconfig"),
        ("slurm", lambda _: web.json_response({"errors": [{"error_number": 1007}]}, status=511), "token"),
    ],
)
async def test_refused_rights_end_it_with_exit_code_2_though_the_other_side_is_away(
    tmp_path: Path, side: str, answer: Callable[[web.Request], web.Response], says: str
) -> None:
    servers = Servers(tmp_path)
    port = servers.kube_port if side == "kube" else servers.slurm_port
    async with nonsense(port, answer), running(tmp_path, servers.options) as bridge:
        assert await bridge.ends(20.0) == 2
    last = bridge.log.splitlines()[-1]
    assert last.startswith("slurm-bridge: ")
    assert says in last
    assert "Traceback" not in bridge.log


async def test_a_bridge_that_waits_ends_well_when_it_is_asked_to(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    async with running(tmp_path, servers.options) as bridge:
        await waits(bridge, "slurm_url")
        bridge.process.send_signal(signal.SIGTERM)
        assert await bridge.ends(2.0) == 0
    assert "stopped before both clusters had answered" in bridge.log


async def test_systemd_is_notified_when_it_is_ready_and_when_it_stops_and_not_before(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        told = functools.partial(asyncio.wait_for, timeout=PATIENCE_S)
        loop = asyncio.get_running_loop()
        async with running(tmp_path, servers.options, environment={"NOTIFY_SOCKET": manager.getsockname()}) as bridge:
            await waits(bridge, "slurm_url")
            with pytest.raises(BlockingIOError):
                manager.recv(100)
            async with servers.slurm(), servers.kubernetes():
                assert await told(loop.sock_recv(manager, 100)) == b"READY=1"
                assert await bridge.is_ready()
                bridge.process.send_signal(signal.SIGTERM)
                assert await told(loop.sock_recv(manager, 100)) == b"STOPPING=1"
                assert await bridge.ends(5.0) == 0
