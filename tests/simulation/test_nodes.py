"""One node in both simulated clusters from its label to its end: registered, cordoned, drained, removed (rules N)."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

from bridge.app import Bridge
from bridge.simulation.kube import objects
from bridge.simulation.slurm.nodes import SlurmSimNode
from bridge.simulation.virtual_time import run
from scheduler import names
from scheduler.actions import Action
from scheduler.events import ActionEnded, Event
from scheduler.state.world import World
from tests.simulation.small_clusters import SPACE, SmallClusters

LABEL = names.EXTERNAL_NODE_LABEL


class Quiet:
    """Nobody listens."""

    def on_planned(self, action: Action, at: float) -> None: ...

    def on_ended(self, event: ActionEnded, world: World) -> None: ...

    def on_observed(self, event: Event, world: World) -> None: ...
    def on_passed(self, world: World, took_s: float, lag_s: float) -> None: ...


class Clusters(SmallClusters):
    """A Kubernetes of two nodes, and a Slurm that knows neither."""

    def __init__(self) -> None:
        offers = {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2"}
        own = SlurmSimNode("n1", devices={("gpu", ""): 1}, external=False, dynamic=False)
        super().__init__(own, {"x1": offers, "x2": offers})

    def bridged(self, leaving: str = "") -> AbstractAsyncContextManager[Bridge]:
        """One run of the bridge.  leaving: as of Config"""
        return self.run_bridge(Quiet(), leaving=leaving)

    def state(self) -> object:
        return self.said(), self.slurm.nodes

    async def run_on_own_node(self, name: str) -> None:
        """Label a node, wait until it is registered, and until a pod with a GPU runs there."""
        self.label(**{LABEL: "true"})
        await self.until(self.tainted, 95)
        wants = {"cpu": "2", "nvidia.com/gpu": "1"}
        self.kube.create(self.now(), "pods", objects.pod(SPACE, name, requests=wants))
        self.inner.wake()
        await self.until(lambda: self.runs(name), 3)

    # --- what an admin does, and sees

    def node(self, name: str = "x1") -> dict[str, Any]:
        found = self.kube.store.get("nodes", "", name)
        assert found is not None
        return found

    def label(self, **labels: str) -> None:
        node = self.node()
        kept = {key: value for key, value in node["metadata"]["labels"].items() if key != LABEL}
        self.kube.store.put("nodes", {**node, "metadata": {**node["metadata"], "labels": kept | labels}})
        self.inner.wake()

    def cordon(self, cordoned: bool) -> None:
        node = self.node()
        self.kube.store.put("nodes", {**node, "spec": {**node["spec"], "unschedulable": cordoned}})
        self.inner.wake()

    def said(self) -> tuple[str, str] | None:
        """(status, reason) of our condition."""
        conditions = self.node()["status"].get("conditions", [])
        return next(((each["status"], each["reason"]) for each in conditions if each["type"] == names.IN_SLURM), None)

    def tainted(self) -> bool:
        return any(taint["key"] == names.MANAGED_TAINT for taint in self.node()["spec"].get("taints") or ())

    def pod(self, name: str) -> dict[str, Any] | None:
        return self.kube.store.get("pods", SPACE, name)

    def runs(self, name: str) -> bool:
        pod = self.pod(name)
        return pod is not None and (pod["status"]["phase"], pod["spec"].get("nodeName")) == ("Running", "x1")


def test_from_label_to_registered_to_cordoned_to_drained_to_removed() -> None:
    clusters = Clusters()

    async def story() -> None:
        async with clusters.bridged():
            await label_registers_and_cordon_drains(clusters)
        async with clusters.bridged():  # a later life knows whose drain it is
            await uncordon_resumes_and_unlabel_removes(clusters)

    run(story())


async def label_registers_and_cordon_drains(clusters: Clusters) -> None:
    await asyncio.sleep(100)
    assert clusters.slurm.nodes.keys() == {"n1"}, "nobody asked for it"

    clusters.label(**{LABEL: "true"})
    await clusters.until(lambda: "x1" in clusters.slurm.nodes, 1)
    await clusters.until(lambda: clusters.said() == ("True", names.NODE_IN_SERVICE), 2)
    await clusters.until(clusters.tainted, 2)
    made = clusters.slurm.nodes["x1"]
    assert (made.cpus, made.memory_mib, made.devices) == (7, 15 * 1024, {("gpu", ""): 2})
    assert (made.external, made.address) == (True, "192.0.2.1")

    wants = {"cpu": "2", "nvidia.com/gpu": "1"}
    clusters.kube.create(clusters.now(), "pods", objects.pod(SPACE, "train", requests=wants))
    clusters.inner.wake()
    await clusters.until(lambda: clusters.runs("train"), 3)

    clusters.cordon(True)
    await clusters.until(lambda: clusters.slurm.nodes["x1"].drained, 1)
    assert clusters.slurm.nodes["x1"].reason == "slurm-bridge: cordoned in Kubernetes"
    await clusters.until(lambda: clusters.said() == ("False", names.NODE_DRAINED), 2)


async def uncordon_resumes_and_unlabel_removes(clusters: Clusters) -> None:
    clusters.cordon(False)
    await clusters.until(lambda: not clusters.slurm.nodes["x1"].drained, 15)
    await clusters.until(lambda: clusters.said() == ("True", names.NODE_IN_SERVICE), 2)

    clusters.label()
    await clusters.until(lambda: clusters.slurm.nodes["x1"].drained, 1)
    await asyncio.sleep(300)
    assert clusters.runs("train"), "nothing that runs is harmed"
    assert "x1" in clusters.slurm.nodes

    pod = clusters.pod("train")
    assert pod is not None
    clusters.kube.remove(clusters.now(), "pods", pod, 0)
    clusters.inner.wake()
    await clusters.until(lambda: "x1" not in clusters.slurm.nodes, 90)
    await clusters.until(lambda: clusters.said() is None and not clusters.tainted(), 35)
    assert not [job for job in clusters.slurm.jobs.values() if not job.ended]


def test_a_node_whose_object_is_deleted_leaves_slurm() -> None:
    clusters = Clusters()

    async def story() -> None:
        async with clusters.bridged():
            clusters.label(**{LABEL: "true"})
            await clusters.until(clusters.tainted, 95)  # it has to be ready for a minute
            clusters.kube.remove(clusters.now(), "nodes", clusters.node(), 0)
            clusters.inner.wake()
            await clusters.until(lambda: "x1" not in clusters.slurm.nodes, 130)
            assert clusters.slurm.nodes.keys() == {"n1"}

    run(story())


def test_a_node_whose_object_is_deleted_under_a_running_pod_leaves_slurm_when_kubernetes_has_taken_the_pod_away() -> (
    None
):
    clusters = Clusters()

    async def story() -> None:
        async with clusters.bridged():
            await clusters.run_on_own_node("train")
            clusters.kube.remove(clusters.now(), "nodes", clusters.node(), 0)
            clusters.inner.wake()
            await clusters.until(lambda: clusters.slurm.nodes["x1"].drained, 1)
            await asyncio.sleep(60)
            pod = clusters.pod("train")
            assert pod is not None
            assert "deletionTimestamp" not in pod["metadata"]
            assert [job.ended for job in clusters.slurm.jobs.values()] == [False], "nothing that runs is harmed"
            clusters.kube.remove(clusters.now(), "pods", pod, 0)  # as its garbage collector does
            clusters.inner.wake()
            await asyncio.sleep(30)
            assert [job.ended for job in clusters.slurm.jobs.values()] == [False], "it may run for its grace"
            await clusters.until(lambda: "x1" not in clusters.slurm.nodes, 130)

    run(story())
