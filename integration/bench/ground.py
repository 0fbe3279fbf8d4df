"""Where measuring happens: the two clusters, furnished once, emptied before each repeat, and one subject at a time."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from integration.bench import subjects
from integration.bench.counters import Processes
from integration.bench.ends import Kube, Slurm
from integration.bench.load import NAMESPACE, PODS, TENANT, Stopwatch, eventually
from integration.bench.subjects import Bridge, Subject

ENDED = frozenset(
    ("CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "DEADLINE", "OUT_OF_MEMORY")
)
STRANGER = "carol"  # a Slurm user who has nothing to do with the bridge
WARM_UP = [f"warm-{number}" for number in range(20)]


@dataclass(frozen=True, slots=True)
class Ground:
    """Both ends and what belongs to them.

    folder      for files of this run
    kubeconfig  of the bridge's service account
    thorough    False: do not wait until a bridge is old enough to end jobs; for a look whether it works at all
    """

    kube: Kube
    slurm: Slurm
    folder: Path
    kubeconfig: Path
    thorough: bool = True
    processes: Processes = field(default_factory=Processes)

    @asynccontextmanager
    async def floor(self) -> AsyncIterator[Subject]:
        """The floor on empty clusters, warm."""
        await self.clear()
        async with subjects.floor_process() as subject:
            await self._warm_up(subject)
            yield subject

    @asynccontextmanager
    async def bridge(self, slurm_url: str = "", *, cleared: bool = True) -> AsyncIterator[Bridge]:
        """A bridge on empty clusters, warm, and so old that it holds nothing back."""
        if cleared:
            await self.clear()
        url = slurm_url or os.environ["SLURM_REST"]
        token_file = os.environ["SLURM_TOKEN_FILE"]
        async with subjects.bridge_process(self.folder, self.kubeconfig, url, token_file) as subject:
            self.processes.named["bridge"] = subject.pid
            await self._warm_up(subject)
            await subject.at_rest()
            yield subject
        del self.processes.named["bridge"]

    async def _warm_up(self, subject: Subject) -> None:
        """A few pods there and gone again, so that connections are open and code is loaded.

        After its start a bridge ends nothing for some seconds (ARCHITECTURE, the quiet period); that it has ended the
        jobs of these pods shows that this is over.
        """
        live = await self.live_jobs()
        async with Stopwatch(self.kube, subject.scheduler) as watch:
            await watch.burst(WARM_UP)
            await watch.until_bound(WARM_UP, within_s=30)
        await self.delete_pods()
        if not isinstance(subject, Bridge):
            await self.end_jobs(TENANT)
        elif not self.thorough:
            return

        async def gone() -> bool:
            return await self.live_jobs() <= live

        await eventually("the jobs of the first pods have ended", gone, within_s=60)

    async def clear(self) -> None:
        """No pod of ours, and no job of anybody."""
        await self.delete_pods()
        for user in (TENANT, STRANGER):
            await self.end_jobs(user)

    async def delete_pods(self) -> None:
        """At once; whoever plays the kubelet is not asked."""
        await self.kube.call("DELETE", f"{PODS}?gracePeriodSeconds=0")

        async def none() -> bool:
            return not (await self.kube.json("GET", f"{PODS}?limit=1"))["items"]

        await eventually("the pods are deleted", none, within_s=120)

    async def end_jobs(self, user: str) -> None:
        await self.slurm.json("DELETE", "jobs/", {"user_name": user})

    async def live_jobs(self) -> int:
        """How many jobs have not ended."""
        states = (await self.slurm.json("GET", "jobs/state/"))["jobs"]
        return sum(not ENDED & set(job["state"]) for job in states)


@asynccontextmanager
async def furnished(folder: Path, *, thorough: bool = True) -> AsyncIterator[Ground]:
    """The clusters that KUBECONFIG, SLURM_REST and SLURM_TOKEN_FILE name, with a namespace and a service account."""
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(Kube(os.environ["KUBECONFIG"]))
        slurm = Slurm(os.environ["SLURM_REST"], os.environ["SLURM_TOKEN_FILE"])
        metadata = {"name": NAMESPACE, "labels": {"slurm-bridge/managed": "true"}}
        await kube.json("POST", "/api/v1/namespaces", {"metadata": metadata}, may=(409,))

        async def furnished() -> bool:
            accounts = await kube.json("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts")
            return bool(accounts["items"])

        await eventually(f"{NAMESPACE} has its service account", furnished, within_s=30)
        kubeconfig = folder / "kubeconfig"
        subjects.write_kubeconfig(kube, kubeconfig)
        ground = Ground(kube, slurm, folder, kubeconfig, thorough)
        try:
            yield ground
        finally:
            await ground.clear()
