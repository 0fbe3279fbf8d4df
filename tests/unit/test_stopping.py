"""SIGTERM ends the process within five seconds, whatever hangs; a second signal at once."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridge import stopping
from bridge.simulation.kube import objects
from integration.proxy import FaultProxy
from tests.patience import PATIENCE_S
from tests.unit.doctor.clusters import Both
from tests.unit.processes import Process, create_pod, running, settings_of, until


@asynccontextmanager
async def hung(folder: Path) -> AsyncIterator[Process]:
    """A bridge whose slurmrestd and OTLP collector accept requests and never answer; an allocation is in flight."""
    both = Both(folder)
    with socket.create_server(("127.0.0.1", 0)) as collector:
        endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}"
        async with both.served() as options:
            with FaultProxy(settings_of(options)["slurm_url"]) as proxy:
                environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
                async with running(folder, options, environment=environment, slurm_url=proxy.url) as bridge:
                    await until(bridge.is_ready, "the bridge is ready")
                    await create_pod(options, objects.pod("hpc", "one"))  # its trace is to be sent

                    async def is_bound() -> bool:
                        found = both.kube.store.get("pods", "hpc", "one")
                        return bool(found and found["spec"].get("nodeName"))

                    await until(is_bound, "a pod is bound")
                    proxy.fault, before = "no answer", proxy.seen
                    await create_pod(options, objects.pod("hpc", "two"))

                    async def is_sent() -> bool:
                        return proxy.seen >= before + 2  # a poll and the allocation

                    await until(is_sent, "an allocation hangs")
                    yield bridge


async def test_the_process_ends_in_time_though_slurmrestd_the_collector_and_a_reader_hang(tmp_path: Path) -> None:
    async with hung(tmp_path) as bridge:
        host, port = bridge.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as reader:  # a request that never comes to its end
            reader.sendall(b"GET /explain?pod=one HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            bridge.process.send_signal(signal.SIGTERM)
            assert await bridge.ends(PATIENCE_S) == 0, bridge.log
    assert "stopped; pods and jobs live on; " in bridge.log
    assert "telemetry: not all could be sent within 2 s" in bridge.log
    assert "Traceback" not in bridge.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_at_once(tmp_path: Path, number: signal.Signals) -> None:
    async with hung(tmp_path) as bridge:
        bridge.process.send_signal(number)
        await asyncio.sleep(0.2)  # two signals that are pending together are one
        assert bridge.process.returncode is None, bridge.log
        bridge.process.send_signal(number)
        assert await bridge.ends(stopping.END_S / 2) == 128 + number


async def test_nothing_hangs_and_the_process_ends_well_at_once(tmp_path: Path) -> None:
    async with Both(tmp_path).served() as options, running(tmp_path, options) as bridge:
        await until(bridge.is_ready, "the bridge is ready")
        bridge.process.send_signal(signal.SIGTERM)
        assert await bridge.ends(PATIENCE_S) == 0, bridge.log
    assert "Traceback" not in bridge.log
