"""The bridge is uninstalled among faults: the invariants hold meanwhile, and in the end nothing of the bridge is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bridge.simulation.invariants.violation import Violation
from bridge.simulation.virtual_time import run
from scheduler import names
from scheduler.rules import uninstall
from tests.simulation.chaos import CHAOS_S
from tests.simulation.life import Life, live_together
from tests.simulation.test_nodes import Clusters

SEEDS = 12
SEEN_S = 20.0  # so long after the faults the bridge has seen every pod
GRACE_S = 30  # of the pods that their users end
TAKES_S = 400.0  # after the faults: a dead node's pods, slurmdbd, a job that cannot be read


class LeavingLife(Life):
    """For half of the chaos a bridge works; then it is killed, and from then on each process of it leaves."""

    async def _chaos(self) -> None:
        self.chaos_s = CHAOS_S / 2
        await super()._chaos()
        self.invariants.note("the admin: slurm-bridge uninstall")
        self.leaving = uninstall.END if self.seed % 2 else uninstall.WAIT
        self.invariants.ends_pods = self.leaving == uninstall.END
        self._kill_bridge()
        await super()._chaos()

    async def _comes_to_rest(self) -> None:
        await asyncio.sleep(SEEN_S)
        if self.leaving == uninstall.WAIT or self.invariants.renamed:  # pods whose jobs were renamed are not ended
            self._users_end_their_pods()
            await asyncio.sleep(SEEN_S)
        until = self.clock() + TAKES_S
        while self._is_at_work():
            await asyncio.sleep(1.0)
            self._release()
            if self.clock() > until:
                bridge = self.bridge
                assert bridge is not None
                world = bridge.world
                still = [uninstall.waits_for(world, self.clock()), *uninstall.left_to_remove(world, self.clock())]
                raise Violation("uninstall", f"still at work: {still}", self.clock())
        for what in self._left():
            raise Violation("uninstall", what, self.clock())

    def _users_end_their_pods(self) -> None:
        for kind in ("replicasets", "jobs"):
            for made in list(self.kube.store.all(kind)):
                self.kube.remove(self.kube_clock(), kind, made, 0)
        for pod in self.invariants.pods():
            if pod["spec"].get("nodeName"):  # also pods that terminate already, with a grace longer than this test
                self.kube.remove(
                    self.kube_clock(), "pods", pod, min(GRACE_S, pod["spec"]["terminationGracePeriodSeconds"])
                )
        self.inner.wake()

    def _is_at_work(self) -> bool:
        if self.bridge is None or not self.bridge.world.config.leaving:
            return True
        now = self.clock()
        return bool(uninstall.waits_for(self.bridge.world, now) or uninstall.left_to_remove(self.bridge.world, now))

    def _left(self) -> Iterator[str]:
        """What the bridge made and is still there, a sentence for each, from the state of both simulated clusters."""
        for job in self.invariants.ours():
            yield f"job {job.id} ({job.name}) is {job.state}"
        for name, node in self.slurm.nodes.items():
            if node.drained and node.reason.startswith(names.NODE_REASON):
                yield f"Slurm node {name} is drained: {node.reason}"
        for node in self.kube.store.all("nodes"):
            said = [each["type"] for each in node["status"].get("conditions", [])]
            if names.IN_SLURM in said:
                yield f"Kubernetes node {node['metadata']['name']} has the condition {names.IN_SLURM}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_after_an_uninstall_among_faults_nothing_is_left(seed: int) -> None:
    live_together(seed, LeavingLife(seed))


@pytest.mark.parametrize("how", [uninstall.WAIT, uninstall.END])
def test_an_own_node_leaves_slurm_when_its_last_pod_has_ended_also_if_the_uninstall_is_started_twice(how: str) -> None:
    clusters = Clusters()

    async def story() -> None:
        async with clusters.bridged():
            await clusters.run_on_own_node("train")
        async with clusters.bridged(how):
            await clusters.until(lambda: clusters.slurm.nodes["x1"].drained, 20)
        async with clusters.bridged(how) as bridge:
            if how == uninstall.WAIT:
                await asyncio.sleep(300)
                assert clusters.runs("train"), "nothing that runs is harmed"
                pod = clusters.pod("train")
                assert pod is not None
                clusters.kube.remove(clusters.now(), "pods", pod, 0)
                clusters.inner.wake()
            await clusters.until(lambda: not uninstall.left_to_remove(bridge.world, clusters.now()), 120)
            await clusters.until(lambda: not uninstall.waits_for(bridge.world, clusters.now()), 60)
            assert clusters.slurm.nodes.keys() == {"n1"}
            assert not clusters.tainted()
            assert clusters.said() is None
            assert all(job.ended for job in clusters.slurm.jobs.values())
            await asyncio.sleep(120)
            assert clusters.slurm.nodes.keys() == {"n1"}, "it is not registered again"

    run(story())
