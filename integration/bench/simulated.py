"""Both clusters simulated in this process, and a bridge in another: what the bridge costs when no server is slow.

The bridge speaks plain HTTP to them.  Each pod has what a real API server shows of a pod besides (`managedFields`, defaults),
because the bridge reads all of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bridge.simulation.http import serve_kube, serve_slurm
from bridge.simulation.kube import objects
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.job_request import job_of
from bridge.simulation.slurm.jobs import SimPartition, SimUser
from bridge.simulation.slurm.nodes import SlurmSimNode
from integration.bench.clients import NAMESPACE, TENANT, BenchError
from integration.bench.subjects import POLICY
from integration.clusters import BridgeProcess
from scheduler import names

CPUS_A_NODE = 64
MEMORY_MIB = 512_000
MAX_JOBS = 100_000  # Slurm's default is 10,000
AT_ONCE = 16  # pods that are created before anybody can react
LOOK_EVERY_S = 0.02
LOOK_CLOSELY_S = 0.001
ONE_BIND_S = 60.0
REST_S = 1.5
TICK_S = 1.0
KUBECONFIG = "kubeconfig"
_JOB = {"cpus_per_task": 1, "memory_per_node": {"set": True, "number": 100}, "time_limit": {"set": True, "number": 600}}


@dataclass(slots=True)
class Simulated:
    """Two clusters that live, and what a bridge needs to reach them.

    settings   of the bridge, as in its file
    bound      how many pods were bound
    """

    kube: InProcessKube
    slurm: SlurmCluster
    folder: Path
    settings: dict[str, Any]
    bound: int = 0
    _seen: int = 0  # the version up to which pods were started

    @contextmanager
    def launched(self, **environment: str) -> Iterator[BridgeProcess]:
        """A bridge that has just been started, with these variables besides; ended afterwards."""
        process = BridgeProcess(self.settings, self.folder, str(self.folder / KUBECONFIG), environment)
        process.launch()
        try:
            yield process
        finally:
            process.stop()

    async def create(self, these: Sequence[str], gang: str = "", cpus: int = 1) -> None:
        """Create pods, a few at a time.  gang: they are a gang of that name; "": each is alone."""
        for first in range(0, len(these), AT_ONCE):
            for name in these[first : first + AT_ONCE]:
                self.kube.cluster.create(time.time(), "pods", _pod(name, gang, len(these), cpus))
            self.kube.wake()
            await asyncio.sleep(0)

    def preload(self, pods: int) -> None:
        """So many pods that run, with their jobs, as a former bridge left them; to be called before a bridge is launched."""
        cluster, now = self.kube.cluster, time.time()
        space = cluster.store.get("namespaces", "", "kube-system")
        assert space is not None
        mark = names.cluster_id(space["metadata"]["uid"])
        user, nodes = self.slurm.users[TENANT], list(self.slurm.nodes)
        for number in range(pods):
            pod = cluster.create(now, "pods", _pod(f"old{number}", "", 1))
            key = names.workload_key(pod["metadata"]["uid"])
            asked = {**_JOB, "name": names.job_name(f"{NAMESPACE}/old{number}", mark, key)}
            job = job_of(self.slurm, user, asked, now, operator=False)
            job.id, job.serial = self.slurm.new_id()
            self.slurm.new_job(job)
            node = nodes[number % len(nodes)]
            self.slurm.start(job, node, now)
            meta = {**pod["metadata"], "annotations": {names.JOB_ID: str(job.id), names.JOB_NODES: node}}
            cluster.store.put(
                "pods", _running({**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": node}}, now)
            )
        cluster.store.compact()
        self._seen = cluster.store.version

    async def create_each(self, these: Sequence[str], *, every_s: float) -> None:
        """Create one pod every so many seconds."""
        for name in these:
            await self.create([name])
            await asyncio.sleep(every_s)

    async def bind_each(self, these: Sequence[str], *, every_s: float) -> list[float]:
        """Create one pod, and wait until it is bound, then the next.  Returns how long each took, in seconds."""
        took = []
        for name in these:
            began = time.perf_counter()
            await self.create([name])
            await self._until(partial(self._has_node, name), lambda: "a pod was not bound", ONE_BIND_S, LOOK_CLOSELY_S)
            took.append(time.perf_counter() - began)
            await asyncio.sleep(every_s)
        return took

    async def end_jobs(self, these: Sequence[str], *, every_s: float, within_s: float) -> list[float]:
        """Cancel the jobs of these pods, one every so many seconds.

        Returns how long it took until each pod was being ended, in seconds, in their order.  Raises BenchError.
        """
        began = time.perf_counter()
        cancelled, ended = dict[str, float](), dict[str, float]()

        def all_end() -> bool:
            for name in [name for name in cancelled if name not in ended]:
                if "activeDeadlineSeconds" in self._pod(name)["spec"]:
                    ended[name] = time.perf_counter()
            return len(ended) == len(these)

        async def cancel() -> None:
            for number, name in enumerate(these):
                await asyncio.sleep(began + number * every_s - time.perf_counter())
                self.slurm.cancel(int(self._pod(name)["metadata"]["annotations"][names.JOB_ID]), time.time())
                cancelled[name] = time.perf_counter()

        task = asyncio.create_task(cancel())
        await self._until(all_end, lambda: f"{len(these) - len(ended)} pods live on", within_s, LOOK_CLOSELY_S * 5)
        await task
        return [ended[name] - cancelled[name] for name in these]

    def _pod(self, name: str) -> objects.Object:
        pod = self.kube.cluster.store.get("pods", NAMESPACE, name)
        assert pod is not None, "nobody deletes it"
        return pod

    def _has_node(self, name: str) -> bool:
        return "nodeName" in self._pod(name)["spec"]

    async def until_queued(self, jobs: int, *, within_s: float) -> None:
        """Wait until so many jobs wait in Slurm.  Raises BenchError."""
        await self._until(
            lambda: self.slurm.waiting >= jobs, lambda: f"{self.slurm.waiting} of {jobs} jobs waited", within_s
        )

    async def until_bound(self, pods: int, *, within_s: float) -> None:
        """Wait until so many pods have been bound since the beginning.  Raises BenchError."""
        await self._until(lambda: self.bound >= pods, lambda: f"{self.bound} of {pods} pods were bound", within_s)

    async def end_all(self, prefix: str = "", *, within_s: float) -> None:
        """Delete all pods with such names, which are bound, and wait until their jobs have ended.  Raises BenchError.

        The quiet period of a bridge is over then.
        """
        cluster = self.kube.cluster
        these = [pod for pod in cluster.store.unordered("pods") if pod["metadata"]["name"].startswith(prefix)]
        jobs = {pod["metadata"]["annotations"][names.JOB_ID] for pod in these}  # the pods of a gang have one
        left = self.slurm.live_of(TENANT) - len(jobs)
        for pod in these:
            cluster.remove(time.time(), "pods", pod, grace_s=0)
        self.kube.wake()
        await self._until(
            lambda: self.slurm.live_of(TENANT) <= left, lambda: f"{self.slurm.live_of(TENANT)} jobs were left", within_s
        )

    async def at_rest(self, *, within_s: float) -> None:
        """Wait until Kubernetes has been as it is for REST_S seconds.  Nobody is asked, so it costs the bridge nothing."""
        store, since = self.kube.cluster.store, time.monotonic()
        version = store.version

        def rests() -> bool:
            nonlocal version, since
            if store.version != version:
                version, since = store.version, time.monotonic()
            return time.monotonic() >= since + REST_S

        await self._until(rests, lambda: "Kubernetes still changed", within_s)

    async def _until(
        self, holds: Callable[[], bool], otherwise: Callable[[], str], within_s: float, every_s: float = LOOK_EVERY_S
    ) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > deadline:
                raise BenchError(f"{otherwise()} after {within_s:g} s")
            await asyncio.sleep(every_s)  # between two questions, not in place of one

    async def tick(self) -> None:
        """Let Slurm's controller pass once a second.  Never returns."""
        while True:
            await asyncio.sleep(TICK_S)
            self.slurm.tick(time.time())

    async def start_pods(self) -> None:
        """Start each pod that was bound, as a kubelet does, and count it.  Never returns.

        The kubelets of the simulated cluster compare the pod with all others before that, which takes too long here.
        """
        store = self.kube.cluster.store
        self._seen = store.version
        while True:
            changes, self._seen = store.changed_since(self._seen), store.version
            for pod in [change.after.object for change in changes if change.resource == "pods" and change.after]:
                if "nodeName" in pod["spec"] and pod["status"]["phase"] == "Pending":
                    self.bound += 1
                    store.put("pods", _running(pod, time.time()))
            if store.version != self._seen:
                self.kube.wake()
            await asyncio.sleep(LOOK_EVERY_S)  # between two looks, not in place of a condition


@asynccontextmanager
async def simulated(folder: Path, nodes: int) -> AsyncIterator[Simulated]:
    """Two clusters with so many nodes, served and alive meanwhile."""
    now = time.time()
    nodes_named = [f"x{number}" for number in range(1, nodes + 1)]
    cluster = KubeCluster(started=now)
    for name in nodes_named:
        cluster.create(now, "nodes", objects.node(name, cpu=str(CPUS_A_NODE), memory=f"{MEMORY_MIB}Mi"))
    cluster.create(now, "namespaces", objects.namespace(NAMESPACE, {"slurm-bridge/managed": "true"}))
    kube = InProcessKube(cluster, time.time)
    slurm = SlurmCluster(
        [SlurmSimNode(name, CPUS_A_NODE, MEMORY_MIB) for name in nodes_named],
        (SimPartition("main", default_time_min=60, default=True),),
        (SimUser(TENANT, ("teama",)), SimUser("slurm", ("root",))),
        started=now,
        max_job_count=MAX_JOBS,
    )
    async with AsyncExitStack() as stack:
        _write_kubeconfig(folder / KUBECONFIG, await stack.enter_async_context(serve_kube(kube)))
        token = folder / "token"
        token.write_text(slurm.token("slurm"))
        url = await stack.enter_async_context(serve_slurm(slurm, time.time))
        both = Simulated(kube, slurm, folder, {"slurm_url": url, "slurm_token_file": str(token), "policy": POLICY})
        tasks = [asyncio.create_task(both.start_pods()), asyncio.create_task(both.tick())]
        try:
            yield both
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def _write_kubeconfig(path: Path, server: str) -> None:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "simulated", "cluster": {"server": server}}],
        "users": [{"name": "simulated", "user": {}}],
        "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "simulated"}}],
        "current-context": "simulated",
    }
    path.write_text(yaml.safe_dump(content))


def _pod(name: str, gang: str, many: int, cpus: int = 1) -> objects.Object:
    """As an API server shows it."""
    labels = {"app": "bench"} | ({"slurm-bridge/gang": gang} if gang else {})
    annotations = {"slurm-bridge/gang-size": str(many)} if gang else {}
    made = objects.pod(
        NAMESPACE,
        name,
        requests={"cpu": str(cpus), "memory": "100Mi"},
        labels=labels,
        annotations=annotations,
        dnsPolicy="ClusterFirst",
        enableServiceLinks=True,
        preemptionPolicy="PreemptLowerPriority",
        priority=0,
        securityContext={},
        serviceAccount="default",
        serviceAccountName="default",
        tolerations=[
            {"effect": "NoExecute", "key": f"node.kubernetes.io/{what}", "operator": "Exists", "tolerationSeconds": 300}
            for what in ("not-ready", "unreachable")
        ],
        volumes=[{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": _SOURCES}}],
    )
    container = made["spec"]["containers"][0]
    mount = {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access", "readOnly": True}
    container |= {
        "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [mount],
    }
    made["metadata"]["managedFields"] = _MANAGED
    return made


def _running(pod: objects.Object, now: float) -> objects.Object:
    """The pod with the status that a kubelet reports once the containers run."""
    began = objects.rfc3339(now)
    container = {"name": "main", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": began}}}
    status = {**pod["status"], "phase": "Running", "startTime": began, "containerStatuses": [container]}
    return objects.with_condition({**pod, "status": status}, objects.condition("Ready", "True", "", "", now))


_SOURCES = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
    {
        "downwardAPI": {
            "items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]
        }
    },
]
_MANAGED = [
    {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:containers": {
                    'k:{"name":"main"}': {
                        ".": {},
                        "f:image": {},
                        "f:imagePullPolicy": {},
                        "f:name": {},
                        "f:resources": {".": {}, "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}}},
                        "f:terminationMessagePath": {},
                        "f:terminationMessagePolicy": {},
                    }
                },
                "f:dnsPolicy": {},
                "f:enableServiceLinks": {},
                "f:restartPolicy": {},
                "f:schedulerName": {},
                "f:securityContext": {},
                "f:terminationGracePeriodSeconds": {},
            },
        },
        "manager": "bench",
        "operation": "Update",
        "time": "2026-01-01T00:00:00Z",
    }
]
