"""A defect in the bridge that one pod triggers: all other pods are scheduled (X8)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from bridge.app import Bridge
from bridge.executor import Executor
from bridge.guard import Guard
from bridge.health import Health
from bridge.simulation.kube import objects
from bridge.simulation.slurm.nodes import SlurmSimNode
from bridge.simulation.virtual_time import run
from bridge.telemetry import Telemetry
from scheduler import decide, names
from scheduler.actions import AllocateNow
from scheduler.apply import pods
from scheduler.state.phase import Phase
from scheduler.state.workload import Workload
from scheduler.state.world import World
from tests.simulation.small_clusters import SETTINGS, SPACE, SmallClusters

AGAIN_S = SETTINGS.tuning.quarantine_s


class Clusters(SmallClusters):
    """One node that both know."""

    def __init__(self) -> None:
        super().__init__(SlurmSimNode("x1", 8, 16_384), {"x1": {"cpu": "8", "memory": "16Gi"}})

    async def live(self, story: Callable[[Bridge], Any], *, guarded: bool = True) -> None:
        async with self.run_bridge(Telemetry(clock=self.now), guard=Guard(on=guarded)) as bridge:
            await story(bridge)

    def make(self, name: str, **says: str) -> None:
        pod = objects.pod(SPACE, name, requests={"cpu": "1", "memory": "512Mi"}, annotations=says, grace_s=5)
        self.kube.create(self.now(), "pods", pod)
        self.inner.wake()

    def running(self) -> int:
        """The number of jobs that hold nodes in Slurm."""
        return sum(job.state == "RUNNING" for job in self.slurm.jobs.values())

    def phase(self, name: str) -> str:
        pod = self.kube.store.get("pods", SPACE, name)
        assert pod is not None
        return str(pod["status"]["phase"])

    def said(self, name: str) -> str:
        """The reason of its PodScheduled condition; "" where it has none."""
        pod = self.kube.store.get("pods", SPACE, name)
        assert pod is not None
        conditions = pod["status"].get("conditions", [])
        return next((each.get("reason", "") for each in conditions if each["type"] == "PodScheduled"), "")


async def ready(bridge: Bridge, now: Callable[[], float]) -> tuple[int, str]:
    """The status and the text of /readyz."""
    health = Health(bridge.loop, [], Telemetry(clock=now), now)
    answer = await health.readyz(None)
    return answer.status, answer.text or ""


def test_a_pod_whose_rule_raises_stops_no_other_pod_and_runs_when_that_is_mended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole, broken = decide.RULES[Phase.UNSUBMITTED], [True]

    def rule(workload: Workload, this_pass: Any) -> Any:
        if broken and workload.readable == f"{SPACE}/bad":
            raise ZeroDivisionError("a defect")
        return whole(workload, this_pass)

    monkeypatch.setitem(decide.RULES, Phase.UNSUBMITTED, rule)
    there = Clusters()

    async def story(bridge: Bridge) -> None:
        await there.until(lambda: bridge.world.ready, 10)
        assert await ready(bridge, there.now) == (200, "ok\n")
        there.make("bad", **{objects.RUN_S: "5"})
        there.make("good", **{objects.RUN_S: "5"})
        await there.until(lambda: there.phase("good") == "Succeeded", 30)
        await asyncio.sleep(30)
        assert there.said("bad") == names.QUARANTINED
        status, text = await ready(bridge, there.now)
        assert status == 200
        assert "1 workload" in text.splitlines()[1]
        assert [job.user for job in there.slurm.jobs.values()] == ["alice"]  # that of the good one
        broken.clear()
        await there.until(lambda: there.phase("bad") == "Succeeded", AGAIN_S + 30)
        assert await ready(bridge, there.now) == (200, "ok\n")

    with caplog.at_level(logging.ERROR):
        run(there.live(story))
    traces = [each for each in caplog.records if each.exc_info]
    assert len(traces) == 1
    assert "hpc/bad" in traces[0].getMessage()


def test_a_running_pod_that_cannot_be_applied_lives_on_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = list[bool]()
    whole_pod = pods._our_pod

    def our_pod(world: World, pod: Any) -> None:
        if broken and pod.name == "bad":
            world.workloads[world.key_of_pod[pod.uid]].pod_counts.unfinished += 7  # half written
            raise RecursionError
        whole_pod(world, pod)

    monkeypatch.setattr(pods, "_our_pod", our_pod)
    there = Clusters()

    async def story(bridge: Bridge) -> None:
        there.make("bad")
        await there.until(lambda: there.phase("bad") == "Running", 30)
        broken.append(True)
        pod = there.kube.store.get("pods", SPACE, "bad")
        assert pod is not None
        there.kube.store.put("pods", {**pod, "metadata": {**pod["metadata"], "labels": {"a": "b"}}})
        there.make("good", **{objects.RUN_S: "5"})
        await there.until(lambda: there.phase("good") == "Succeeded", 30)
        await asyncio.sleep(20)
        assert "1 workload" in (await ready(bridge, there.now))[1]
        broken.clear()
        await asyncio.sleep(AGAIN_S + 20)
        assert await ready(bridge, there.now) == (200, "ok\n")
        assert there.phase("bad") == "Running"
        assert there.running() == 1
        there.kube.remove(there.now(), "pods", pod, None)
        there.inner.wake()
        await there.until(lambda: there.running() == 0, 30)

    run(there.live(story))


def test_an_error_of_an_action_is_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = Executor._allocate_now, list[str]()

    async def allocate(self: Executor, action: Any, began: float) -> Any:
        calls.append(action.key)
        if len(calls) == 1:
            raise KeyError("a defect")
        return await whole(self, action, began)

    monkeypatch.setitem(Executor._PERFORMERS, AllocateNow, allocate)
    there = Clusters()

    async def story(bridge: Bridge) -> None:
        there.make("train", **{objects.RUN_S: "5"})
        await there.until(lambda: there.phase("train") == "Succeeded", 60)
        assert bridge.guard.contained == {"action": 1}

    run(there.live(story))


def test_in_a_simulation_a_defect_ends_the_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(workload: Workload, view: Any) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setitem(decide.RULES, Phase.UNSUBMITTED, rule)
    there = Clusters()

    async def story(bridge: Bridge) -> None:
        there.make("bad")
        await asyncio.sleep(30)

    with pytest.raises(BaseExceptionGroup) as fallen:
        run(there.live(story, guarded=False))
    assert fallen.group_contains(ZeroDivisionError)
