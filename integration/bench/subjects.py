"""The two measured programs, each a process of its own: the floor, and the bridge as its users run it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from integration import own_account
from integration.bench import floor
from integration.bench.clients import NAMESPACE, TENANT, BenchError, Kube
from integration.bench.following import eventually
from integration.clusters import BridgeProcess
from scheduler.events import Side

ROOT = Path(__file__).resolve().parents[2]
PLAYED_START_S = 600  # kwok plays the kubelets, and starts ten thousand pods slowly: that is not what is measured
START_S = 120.0  # on a busy machine; a start is timed by the scenario that is about it
SCHEDULER = "slurm-bridge"
ACCOUNT = "system:serviceaccount:slurm-bridge:slurm-bridge"
HOSTILE = "alice-hostile"  # a second namespace that may use the bridge
POLICY = {"rules": [{"namespaces": [NAMESPACE, HOSTILE], "user": TENANT}]}
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
SLURM, KUBERNETES = Side.SLURM.value, Side.KUBERNETES.value
POLLS = frozenset(("states", "nodes", "partitions"))  # asked for whether or not there is anything to do
LOOKS = POLLS | {"job", "grant"}  # jobs whose pods run are read in turn, for ever


@dataclass(frozen=True, slots=True)
class Subject:
    """A measured program, which binds pods.

    name       in figures
    scheduler  schedulerName of its pods
    pid        of its process
    """

    name: str
    scheduler: str
    pid: int


@asynccontextmanager
async def floor_process(*, ends: bool = False) -> AsyncIterator[Subject]:
    """The floor, watching.  ends: it also deletes the pods of ended jobs"""
    command = (sys.executable, "-m", floor.__name__, *((floor.ENDS,) if ends else ()))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if await asyncio.wait_for(process.stdout.readline(), START_S) != b"ready\n":
            raise BenchError("the floor did not start; what it said is above")
        yield Subject("floor", floor.SCHEDULER, process.pid)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@dataclass(frozen=True, slots=True)
class Bridge(Subject):
    """A running bridge, with its own metrics."""

    process: BridgeProcess

    async def calls(self) -> dict[str, Counter[str]]:
        """The number of calls since the bridge started, by side (SLURM, KUBERNETES) and operation."""
        metrics = await self.scrape()
        return {side: _calls(metrics, side) for side in (SLURM, KUBERNETES)}

    async def passes(self) -> Counter[float]:
        """The number of passes since the bridge started, by the seconds that they took at most; cumulative."""
        return Counter(
            {
                float(sample.labels["le"]): int(sample.value)
                for sample in _samples(await self.scrape(), "slurm_bridge_pass_seconds")
                if sample.name.endswith("_bucket")
            }
        )

    async def scrape(self) -> str:
        """Its metrics, as Prometheus reads them."""
        url = f"http://127.0.0.1:{self.process.port}/metrics"
        headers = {"Accept": "application/openmetrics-text"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
            return await answer.text()

    async def slurm_calls(self) -> Counter[str]:
        return (await self.calls())[SLURM]

    async def at_rest(self, *, within_s: float = 120.0) -> None:
        """Wait until it has changed nothing on either side for a second.  Raises BenchError."""
        before = -1

        async def unchanged() -> bool:
            nonlocal before
            called = await self.calls()
            known = before
            before = called[KUBERNETES].total() + sum(n for name, n in called[SLURM].items() if name not in LOOKS)
            return known == before

        await eventually("the bridge has nothing left to do", unchanged, within_s=within_s, every_s=1.0)


def pass_bound(passes: Counter[float], share: float) -> float:
    """The bound that this share of the passes (Bridge.passes) did not exceed, in seconds."""
    return min(bound for bound, count in passes.items() if count >= share * max(passes.values()))


def _calls(metrics: str, side: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for sample in _samples(metrics, "slurm_bridge_call_seconds"):
        if sample.name.endswith("_count") and sample.labels["side"] == side:
            found[sample.labels["operation"]] += int(sample.value)
    return found


def _samples(metrics: str, name: str) -> list[Any]:
    """The samples of one metric."""
    families = text_string_to_metric_families(metrics)  # type: ignore[no-untyped-call]
    return [sample for family in families if family.name == name for sample in family.samples]


@contextmanager
def launched(
    folder: Path, kubeconfig: Path, slurm_url: str, environment: Mapping[str, str] = NO_VARIABLES
) -> Iterator[BridgeProcess]:
    """`slurm-bridge run` with settings as on the rig, started just now; ended afterwards, if it has not been killed."""
    settings = {
        "slurm_url": slurm_url,
        "slurm_token_file": os.environ["SLURM_TOKEN_FILE"],
        "policy": POLICY,
        "tuning": {"start_said_s": PLAYED_START_S},
    }
    process = BridgeProcess(settings, folder, str(kubeconfig), environment)
    process.launch()
    try:
        yield process
    except BenchError as error:
        raise BenchError(f"{error}; the bridge's last words:\n{process.log.read_text()[-1500:]}") from error
    finally:
        process.stop()


async def until_ready(process: BridgeProcess) -> Bridge:
    """Wait until a bridge that was launched says that it is ready.  Raises BenchError."""
    url = f"http://127.0.0.1:{process.port}/readyz"

    async def ready() -> bool:
        if process.last_words:
            raise BenchError(f"the bridge ended: {process.last_words}")
        try:
            async with session.get(url) as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False  # it does not listen yet

    async with aiohttp.ClientSession() as session:
        await eventually("the bridge is ready", ready, within_s=START_S, every_s=0.02)
    return Bridge("bridge", SCHEDULER, process.pid, process)


def write_kubeconfig(kube: Kube, path: Path) -> None:
    """Make the bridge's own account, with the rights that its users give it, and a kubeconfig of it."""
    own_account.write_kubeconfig(_kubectl, kube.server, kube.authority, path)


def _kubectl(*arguments: str) -> str:
    done = subprocess.run(("kubectl", *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
