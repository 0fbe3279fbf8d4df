"""The two clusters of a measurement: prepared once, emptied before each repeat, with one measured program at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from integration.bench import costs, subjects
from integration.bench.clients import NAMESPACE, PODS, TENANT, Cut, Kube, Slurm
from integration.bench.floor import SCHEDULER as FLOOR
from integration.bench.following import eventually
from integration.bench.load import Stopwatch
from integration.bench.processes import Processes
from integration.bench.profile import profiled_if
from integration.bench.subjects import NO_VARIABLES, Bridge, Subject
from integration.clusters import ENDED, BridgeProcess

Best = TypeVar("Best")
Reached = TypeVar("Reached")
STRANGER = "carol"  # a Slurm user without jobs of the bridge
BREAK_IN = 1000
WARM_UP = [f"warm-{number}" for number in range(20)]
AT_ONCE = "gracePeriodSeconds=0"
LOOK_S, QUIET_LOOKS = 1.0, 3
AT_REST = 0.25  # cores; beside 10,000 pods and an idle bridge the servers use 0.2 of a core


@dataclass(frozen=True, slots=True)
class Ground:
    """Both clusters, and the settings of the measurement.

    folder      for files of this run
    kubeconfig  of the bridge's service account
    thorough    False: measure at once, without a warm-up, to see if the scenario works at all
    profile     file for the stacks of the bridge; None: no profile is taken
    turn        the number of this repeat
    """

    kube: Kube
    slurm: Slurm
    folder: Path
    kubeconfig: Path
    thorough: bool = True
    profile: Path | None = None
    turn: int = 0
    processes: Processes = field(default_factory=Processes)

    @asynccontextmanager
    async def floor(self, *, cleared: bool = True, ends: bool = False) -> AsyncIterator[Subject]:
        """The floor, warm; on empty clusters, or on clusters as they are.  ends: it also deletes the pods of ended jobs"""
        if cleared:
            await self.clear()
        async with subjects.floor_process(ends=ends) as subject:
            if self.thorough:
                await self._warm_up(subject)
            with self.processes.watched(subject.name, subject.pid):
                yield subject
        await self._delete_pods(f"fieldSelector=spec.schedulerName={subject.scheduler}")
        await self._end_jobs(job_name=FLOOR)

    @asynccontextmanager
    async def bridge(
        self, slurm_url: str = "", *, cleared: bool = True, environment: Mapping[str, str] = NO_VARIABLES
    ) -> AsyncIterator[Bridge]:
        """A warm bridge whose quiet period is over; on empty clusters, or on clusters as they are."""
        if cleared:
            await self.clear()
        with self.launched(slurm_url, environment) as process:
            subject = await subjects.until_ready(process)
            if self.thorough:
                await self._warm_up(subject)
                await subject.at_rest()
            with self.processes.watched(subject.name, subject.pid), profiled_if(subject.pid, self.profile):
                yield subject

    @contextmanager
    def launched(self, slurm_url: str = "", environment: Mapping[str, str] = NO_VARIABLES) -> Iterator[BridgeProcess]:
        """A bridge that has just been started; ended afterwards."""
        url = slurm_url or os.environ["SLURM_REST"]
        with subjects.launched(self.folder, self.kubeconfig, url, environment) as process:
            yield process

    async def in_turn(
        self, floor: Callable[[], Awaitable[Best]], bridge: Callable[[], Awaitable[Reached]]
    ) -> tuple[Best, Reached]:
        """Measure both, in every other repeat the bridge first: the second measurement finds warmer and fuller clusters."""
        if self.turn % 2:
            reached = await bridge()
            return await floor(), reached
        best = await floor()
        return best, await bridge()

    async def servers_at_rest(self) -> None:
        """Wait until the servers of both clusters have used little processor time for some seconds.  Raises BenchError."""
        quiet = 0

        async def rest() -> bool:
            nonlocal quiet
            meter = self.processes.meter()
            await asyncio.sleep(LOOK_S)  # the time over which processor time is counted
            spent = meter.read()
            used = sum(spent.cpu_s[name] for name in costs.SERVERS) / spent.seconds
            quiet = quiet + 1 if used < AT_REST else 0
            return quiet >= QUIET_LOOKS

        await eventually("the servers have nothing left to do", rest, within_s=600)

    async def _warm_up(self, subject: Subject) -> None:
        """A few pods there and gone again, so that connections are open and code is loaded.

        After its start a bridge ends nothing for some seconds (ARCHITECTURE 3, the quiet period); that it has ended the
        jobs of these pods shows that this is over.
        """
        live = await self.live_jobs()
        async with Stopwatch(self.kube, subject.scheduler) as watch:
            await watch.burst(WARM_UP)
            await watch.until_bound(WARM_UP, within_s=30)
        for name in WARM_UP:
            # With its grace: the simulated kubelet ends it, as pods are ended.
            await self.kube.call("DELETE", f"{PODS}/{name}")
        if not isinstance(subject, Bridge):
            await self._end_jobs(job_name=FLOOR)

        async def gone() -> bool:
            return await self.live_jobs() <= live

        await eventually("the jobs of the first pods have ended", gone, within_s=60)

    async def broken_in(self) -> None:
        """New servers are slower: their caches are small, and grow with what passes."""
        names = [f"new{number}" for number in range(min(BREAK_IN, await self.room(1) // 2))]
        async with self.floor() as floor, Stopwatch(self.kube, floor.scheduler) as watch:
            await watch.burst(names)
            await watch.until_bound(names, within_s=60)

    async def clear(self) -> None:
        """Remove all pods of the benchmark, and all jobs."""
        await self._delete_pods()
        for user in (TENANT, STRANGER):
            await self._end_jobs(user_name=user)

    async def _delete_pods(self, which: str = "") -> None:
        async def none() -> bool:
            # The simulated kubelet is not asked.  The server gives up after a minute, in the middle of its answer or
            # before; the rest is for the next time.
            with suppress(Cut):
                await self.kube.call("DELETE", f"{PODS}?{AT_ONCE}&{which}", may=(504,))
            return not (await self.kube.json("GET", f"{PODS}?limit=1&{which}"))["items"]

        await eventually("the pods are deleted", none, within_s=300)

    async def _end_jobs(self, **which: str) -> None:
        await self.slurm.json("DELETE", "jobs/", which)

    async def live_jobs(self) -> int:
        """The number of jobs that have not ended."""
        states = (await self.slurm.json("GET", "jobs/state/"))["jobs"]
        return sum(not ENDED & set(job["state"]) for job in states)

    async def versions(self) -> dict[str, str]:
        meta = (await self.slurm.json("GET", "ping/"))["meta"]
        kubernetes = await self.kube.json("GET", "/version")
        return {"slurm": meta["slurm"]["release"], "kubernetes": kubernetes["gitVersion"].removeprefix("v")}

    async def all_jobs(self) -> int:
        """The number of jobs that Slurm lists, including those that ended recently."""
        return len((await self.slurm.json("GET", "jobs/state/"))["jobs"])

    async def room(self, cpus: int) -> int:
        """The number of jobs of *cpus* CPUs for which all nodes together have room while they are empty."""
        return sum(node["cpus"] // cpus for node in (await self.slurm.json("GET", "nodes/"))["nodes"])

    async def fill(self) -> None:
        """Take every CPU of every node, by jobs of another user."""
        nodes = (await self.slurm.json("GET", "nodes/"))["nodes"]
        for node in nodes:
            job = {
                "name": "native",
                "flags": ["EXTERNAL_JOB"],
                "required_nodes": [node["name"]],
                "cpus_per_task": node["cpus"],
                "memory_per_node": {"set": True, "number": 100},
                "time_limit": {"set": True, "number": 600},
                "immediate": True,
            }
            await self.slurm.json("POST", "job/allocate", {"job": job}, user=STRANGER)


@asynccontextmanager
async def furnished(folder: Path, *, thorough: bool = True, profile: Path | None = None) -> AsyncIterator[Ground]:
    """The clusters that KUBECONFIG, SLURM_REST and SLURM_TOKEN_FILE name, with a namespace and a service account."""
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(Kube(os.environ["KUBECONFIG"]))
        slurm = Slurm(os.environ["SLURM_REST"], os.environ["SLURM_TOKEN_FILE"])
        metadata = {"name": NAMESPACE, "labels": {"slurm-bridge/managed": "true"}}
        await kube.json("POST", "/api/v1/namespaces", {"metadata": metadata}, may=(409,))

        async def has_account() -> bool:
            accounts = await kube.json("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts")
            return bool(accounts["items"])

        await eventually(f"{NAMESPACE} has its service account", has_account, within_s=30)
        kubeconfig = folder / "kubeconfig"
        subjects.write_kubeconfig(kube, kubeconfig)
        ground = Ground(kube, slurm, folder, kubeconfig, thorough, profile)
        if thorough:
            await ground.broken_in()
        yield ground
        await ground.clear()  # after a failure the error is shown, and the clusters stay as they are for inspection
