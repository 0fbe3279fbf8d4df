"""Two small simulated clusters, and the bridge between them as `slurm-bridge run` makes it, on a virtual clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bridge.app import Bridge
from bridge.settings import Settings
from bridge.simulation.kube import objects
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.jobs import SimPartition, SimUser
from bridge.simulation.slurm.nodes import SlurmSimNode
from bridge.simulation.virtual_time import START
from tests.in_process_slurm import InProcessSlurm
from tests.simulation.clients import connected

SPACE = "hpc"
SETTINGS = Settings.model_validate({"policy": {"default": {"user": "alice"}}, "managed_namespaces": [SPACE]})


class SmallClusters:
    """One node of Slurm, and nodes of Kubernetes: name to what it offers."""

    def __init__(self, slurm_node: SlurmSimNode, kube_nodes: dict[str, dict[str, str]]) -> None:
        self.kube = KubeCluster(1)
        self.slurm = SlurmCluster([slurm_node], (SimPartition("main", default=True),), (SimUser("alice", ("teama",)),))
        for name, offers in kube_nodes.items():
            self.kube.create(START, "nodes", objects.node(name, **offers))
        self.kube.create(START, "namespaces", objects.namespace(SPACE))
        self.inner = InProcessKube(self.kube, self.now)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @asynccontextmanager
    async def run_bridge(self, listener: Any, **more: Any) -> AsyncIterator[Bridge]:
        """One run of the bridge, which ends with the context.  more: further arguments of Bridge"""
        wire = InProcessSlurm(self.slurm, self.now)
        kube, slurm = await connected(self.inner, wire, self.slurm, self.now)
        bridge = Bridge(SETTINGS, kube, slurm, self.now, listener, random.Random(0), **more)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in (bridge.run(), self.inner.live(), self._ticks())]
            try:
                yield bridge
            finally:
                for task in tasks:
                    task.cancel()

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.slurm.tick(self.now())

    async def until(self, holds: Callable[[], bool], within_s: float) -> float:
        """Seconds until it held."""
        began = self.now()
        while not holds():
            assert self.now() - began < within_s, f"not within {within_s} s: {self.state()}"
            await asyncio.sleep(0.1)
        return self.now() - began

    def state(self) -> object:
        """What a failed wait shows."""
        return self.slurm.nodes
