"""`slurm-bridge dev`: the main job in a terminal, with the real bridge between two simulated clusters.

Everything between the two state machines is real: HTTP on loopback, both clients, the list-watch, the poller, the loop and
the core.  What is printed is read off the two clusters, not off the bridge: a pod appears, a job appears, one follows the
other.  More pods than GPUs, so that some wait in Slurm's queue; and one job is cancelled, so that its pod is recreated.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

from bridge.app import Bridge
from bridge.dev import kube_objects as objects
from bridge.dev.http import serve_kube, serve_slurm
from bridge.dev.in_process import InProcessKube
from bridge.dev.kube_cluster import KubeCluster
from bridge.dev.slurm_cluster import SlurmCluster
from bridge.dev.slurm_jobs import SimPartition, SimUser
from bridge.dev.slurm_nodes import SlurmSimNode
from bridge.kube import auth
from bridge.kube.client import KubeClient
from bridge.kube.transport import HttpTransport
from bridge.settings import Settings
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken
from bridge.slurm.transport import HttpPool
from bridge.telemetry import Telemetry
from scheduler import names

NODES = ("x1", "x2")
GPUS = 4
SPACE = "hpc"
RUN_S = "4"
LOOK_EVERY_S = 0.005
GIVE_UP_S = 90.0
POLICY = {"rules": [{"namespaces": [SPACE], "user": "alice", "account": {"default": "teama"}}]}


def main(*, seed: int, pods: int) -> int:
    """Exit code 0 when every pod was bound and no job is left over."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    return asyncio.run(_Demo(seed, pods).run())


class _Demo:
    def __init__(self, seed: int, pods: int) -> None:
        self.began = time.time()
        self.pods = pods
        self.kube = KubeCluster(seed)
        self.slurm = SlurmCluster(
            [SlurmSimNode(name, devices={("gpu", "h100"): GPUS}) for name in NODES],
            (SimPartition("main", default_time_min=60, default=True),),
            (SimUser("alice", ("teama",)),),
            seed=seed,
            started=self.began,
        )
        self.inner = InProcessKube(self.kube, time.time)
        self.shown: dict[tuple[str, str], str] = {}
        self.bound_after: dict[str, float] = {}
        self.created: dict[str, float] = {}

    async def run(self) -> int:
        """The whole story."""
        self._say(
            "", f"simulated Kubernetes and Slurm with nodes {' and '.join(NODES)}, {GPUS} GPUs each; the real bridge"
        )
        for name in NODES:
            self.kube.create(self.began, "nodes", _node(name))
        labels = {names.MANAGED_LABEL: "true"}
        self.kube.create(self.began, "namespaces", objects.namespace(SPACE, labels))
        async with AsyncExitStack() as stack:
            bridge = await self._bridge(stack)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(each) for each in (self.inner.live(), self._ticks(), self._watch(), bridge.run())
                ]
                try:
                    await self._story(bridge)
                finally:
                    for task in tasks:
                        task.cancel()
        return self._summary()

    async def _bridge(self, stack: AsyncExitStack) -> Bridge:
        kube_url = await stack.enter_async_context(serve_kube(self.inner))
        slurm_url = await stack.enter_async_context(serve_slurm(self.slurm, time.time))
        telemetry = Telemetry()
        stack.callback(telemetry.close)
        transport = HttpTransport(auth.anonymous(kube_url))
        stack.push_async_callback(transport.close)
        pool, polls = HttpPool(slurm_url), HttpPool(slurm_url, connections=1)
        stack.callback(pool.close)
        stack.callback(polls.close)
        slurm = SlurmClient(pool, LiteralToken(self.slurm.token("slurm")), polls=polls)
        await slurm.discover()
        settings = Settings.model_validate({"slurm_url": slurm_url, "policy": POLICY, "tuning": {"quiet_s": 1}})
        return Bridge(
            settings, KubeClient(transport, "slurm-bridge", time.time), transport, slurm, time.time, telemetry
        )

    # --- what happens ---------------------------------------------------------------------------------------------

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.slurm.tick(time.time())

    async def _story(self, bridge: Bridge) -> None:
        await self._until("the bridge is ready", lambda: bridge.world.ready)
        self._say(
            "", f"{self.pods} pods of 2 GPUs: {GPUS * len(NODES) // 2} fit at a time, the others stand in Slurm's queue"
        )
        for number in range(1, self.pods + 1):
            wants = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "2"}
            says = {objects.RUN_S: RUN_S}
            self._create("pods", objects.pod(SPACE, f"train-{number}", requests=wants, limits=wants, annotations=says))
            await asyncio.sleep(0.05)
        await self._until("all have ended", lambda: self._ended() == self.pods)
        self._say("", "a ReplicaSet of one; its job is cancelled in Slurm, its pod follows and is recreated")
        template = objects.pod(SPACE, "web", requests={"cpu": "1"}, restart_policy="Always", grace_s=1)
        self._create("replicasets", objects.replica_set(SPACE, "web", 1, template))
        first = await self._until("web runs", lambda: self._running("web") and self._claims("web"))
        self.slurm.cancel(first[0], time.time())
        await self._until("another web runs", lambda: self._claims("web") not in ([], first) and self._running("web"))
        self._say("", "the ReplicaSet is deleted; its pod ends, and so does its job")
        self.kube.remove(time.time(), "replicasets", next(iter(self.kube.store.all("replicasets"))))
        self.inner.wake()
        await self._until("no job is left", lambda: not [job for job in self.slurm.jobs.values() if not job.ended])

    def _create(self, resource: str, thing: objects.Object) -> None:
        made = self.kube.create(time.time(), resource, {**thing, "metadata": {**thing["metadata"], "namespace": SPACE}})
        if resource == "pods":
            self.created[made["metadata"]["uid"]] = time.time()
        self.inner.wake()

    async def _until(self, what: str, ask: Callable[[], Any]) -> Any:
        async with asyncio.timeout(GIVE_UP_S):
            while not (answer := ask()):  # noqa: ASYNC110 - it reads two clusters that know nothing of events
                await asyncio.sleep(LOOK_EVERY_S)
        return answer

    def _ended(self) -> int:
        return sum(pod["status"].get("phase") == "Succeeded" for pod in self.kube.store.all("pods"))

    def _running(self, prefix: str) -> list[objects.Object]:
        pods = [pod for pod in self.kube.store.all("pods") if pod["metadata"]["name"].startswith(prefix)]
        return [pod for pod in pods if pod["status"].get("phase") == "Running"]

    def _claims(self, prefix: str) -> list[int]:
        """Job ids of bound pods whose names begin so."""
        return [
            int(pod["metadata"]["annotations"][names.JOB_ID])
            for pod in self.kube.store.all("pods")
            if pod["metadata"]["name"].startswith(prefix) and pod["spec"].get("nodeName")
        ]

    # --- what is shown --------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Print what is new in either cluster."""
        while True:
            for job in list(self.slurm.jobs.values()):
                where = f" on {job.holding.node}" if job.holding else ""
                self._show("job", f"{job.id}", f"{job.state}{where}  ({job.user}, {job.name.partition('~')[0]})")
            there = set()
            for pod in list(self.kube.store.all("pods")):
                meta, status = pod["metadata"], pod["status"]
                there.add(meta["name"])
                self._show("pod", meta["name"], self._pod_line(pod, status))
            for kind, name in [key for key in self.shown if key[0] == "pod" and key[1] not in there]:
                self._show(kind, name, "gone")
            await asyncio.sleep(LOOK_EVERY_S)

    def _pod_line(self, pod: objects.Object, status: objects.Object) -> str:
        node = pod["spec"].get("nodeName")
        if node:
            uid = pod["metadata"]["uid"]
            if uid in self.created:
                self.bound_after.setdefault(uid, time.time() - self.created[uid])
            return f"{status.get('phase', '')} on {node}, job {pod['metadata']['annotations'].get(names.JOB_ID)}"
        for condition in status.get("conditions", []):
            if condition["type"] == "PodScheduled" and condition.get("message"):
                return f"waits: {condition['message']}"
        return "created"

    def _show(self, kind: str, name: str, line: str) -> None:
        if self.shown.get((kind, name)) != line:
            self.shown[kind, name] = line
            self._say(f"{kind} {name}", line)

    def _say(self, who: str, what: str) -> None:
        print(f"{time.time() - self.began:8.3f}  {who:<16}{what}" if who else f"\n{'':10}— {what}", flush=True)  # noqa: T201

    def _summary(self) -> int:
        fast = sorted(self.bound_after.values())[: GPUS * len(NODES) // 2]
        left = [job for job in self.slurm.jobs.values() if not job.ended]
        bound = len(self.bound_after)
        self._say(
            "",
            f"{bound} of {self.pods} pods were bound; created → bound of those that did not have to wait: "
            f"{median(fast) * 1000:.0f} ms; jobs left over: {len(left)}",
        )
        return 0 if bound == self.pods and not left else 1


def _node(name: str) -> objects.Object:
    devices = {"nvidia.com/gpu": str(GPUS)}
    return objects.node(name, cpu="64", memory="500Gi", pods=110, labels={}, **devices)
