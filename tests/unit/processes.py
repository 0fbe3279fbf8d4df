"""`slurm-bridge run` as a process of its own, between the simulated clusters behind real HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from integration.clusters import free_port
from tests.patience import PATIENCE_S


class Process:
    """One run of the bridge.

    url    of its own HTTP server
    """

    def __init__(self, process: asyncio.subprocess.Process, port: int, log: Path) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text; 0 while it does not listen."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def is_ready(self) -> bool:
        assert self.process.returncode is None, self.log
        return (await self.get("/readyz"))[0] == 200

    async def ends(self, within_s: float) -> int:
        """The exit code."""
        async with asyncio.timeout(within_s):
            return await self.process.wait()


async def until(true: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await true():  # noqa: ASYNC110 - asked, not told
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE_S:g} s: {what}") from None


@asynccontextmanager
async def running(
    folder: Path,
    options: Mapping[str, str | None],
    *,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = ("run",),
    **settings: Any,
) -> AsyncIterator[Process]:
    """The bridge with the options of `Both.served`, and those settings besides; killed at the end if it still runs."""
    port = free_port()
    path = _written(folder, options, {"http": f"127.0.0.1:{port}"} | settings, command[0])
    arguments = ["-m", "bridge", *command, "--config", str(path), "--kubeconfig", options["kubeconfig"] or ""]
    arguments += ["--slurm-token-file", options["slurm_token_file"] or ""]
    log = folder / f"{command[0]}.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=out, stderr=out, env={**os.environ, **(environment or {})}
        )
    try:
        yield Process(process, port, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _written(folder: Path, options: Mapping[str, str | None], changed: Mapping[str, Any], name: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings_of(options) | changed))
    return path


def settings_of(options: Mapping[str, str | None]) -> dict[str, Any]:
    """What `Both.served` wrote."""
    found: dict[str, Any] = yaml.safe_load(Path(options["config"] or "").read_text())
    return found


async def create_pod(options: Mapping[str, str | None], pod: Mapping[str, Any]) -> None:
    """As a user does."""
    url = f"{_server_of(options)}/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
    async with aiohttp.ClientSession() as session, session.post(url, json=pod) as answer:
        assert answer.status == 201, await answer.text()


def _server_of(options: Mapping[str, str | None]) -> str:
    found = yaml.safe_load(Path(options["kubeconfig"] or "").read_text())
    server: str = found["clusters"][0]["cluster"]["server"]
    return server
