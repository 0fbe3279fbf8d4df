"""Two replicas without random faults, for stories about one event; and the story of a handover, disturbed at one place."""

from __future__ import annotations

import asyncio

from bridge.simulation.kube import objects
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.virtual_time import run
from tests.simulation.disturbed import SEED, Place, Played, WatchedKube, Wire
from tests.simulation.life import Life
from tests.simulation.processes import PausingLoop, sender
from tests.simulation.replicas import Replicas

CALMS_DOWN_S = 3.0  # after the handover: some renewals of the Lease


class CalmReplicas(Replicas):
    """No faults, and nothing happens but what a story does."""

    def __post_init__(self) -> None:
        Replicas.__post_init__(self)
        self.faults.on = False

    def pod(self, name: str) -> None:
        self.kube.create(self.kube_clock(), "pods", objects.pod("alice-a", name, requests={"cpu": "1"}))
        self.inner.wake()

    async def bound(self, name: str) -> float:
        """Seconds until the pod is bound."""
        began = self.clock()
        while not (self.kube.store.get("pods", "alice-a", name) or {"spec": {}})["spec"].get("nodeName"):
            assert self.clock() - began < 60, f"{name} is not bound"
            await asyncio.sleep(0.01)
        return self.clock() - began

    async def leader(self) -> str:
        """The name of the replica that leads, as soon as one does."""
        for _ in range(1000):
            for name, each in self.running.items():
                if each.replica is not None and each.replica.lease.holds():
                    return name
            await asyncio.sleep(0.01)
        raise AssertionError("nobody leads")

    def tell(self, story: object) -> None:
        """Play a story, then see that every invariant held."""

        async def played() -> None:
            await asyncio.wait_for(Life.live(self), 600)

        self.story = story
        run(played(), loop_of=PausingLoop)

    async def _chaos(self) -> None:
        await self.story()


class Handover(CalmReplicas):
    """A pod comes, the leader stops cleanly, another pod comes.  A kill ends the replica that sent the request."""

    def __post_init__(self) -> None:
        CalmReplicas.__post_init__(self)
        self.wire = self.faults = Wire(self.rng, kill=self._kill_sender)

    @classmethod
    def played(cls, place: Place | None = None) -> Played:
        """Play the story, disturbed at that place.  Raises AssertionError if an invariant is broken."""
        life = cls(SEED)
        life.wire.place = place
        life.tell(life.hand_over)
        running = [job.name.split("~")[0] for job in life.slurm.jobs.values() if job.state == "RUNNING"]
        end = sorted(running) + [pod["status"]["phase"] for pod in life.kube.store.all("pods")]
        assert isinstance(life.inner, WatchedKube)
        return Played(end, life.wire.seen, life.wire.times, life.wire.news, life.inner.lines)

    def new_inner(self) -> InProcessKube:
        return WatchedKube(self.kube, self.kube_clock, self.wire)

    def _kill_sender(self) -> None:
        [killed] = [each for each in self.running.values() if each.process is sender()]
        killed.task.cancel()

    async def hand_over(self) -> None:
        """The story."""
        await self.leader()
        await asyncio.sleep(20)
        self.wire.counts = True
        self.pod("first")
        await self.bound("first")
        self.running[await self.leader()].stop.set()
        self.pod("second")
        await self.bound("second")
        await asyncio.sleep(CALMS_DOWN_S)
        self.wire.counts = False
