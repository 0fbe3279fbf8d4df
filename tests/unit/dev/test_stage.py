"""The stage of `slurm-bridge dev` without a terminal: what stalls is told, which faults can be made where, and by whom."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from bridge.dev import kube_objects as objects
from bridge.dev import sides
from bridge.dev.faults import FAULTS
from bridge.dev.hands import Hands
from bridge.dev.load import KINDS, SERVICES, Load, fitted
from bridge.dev.promises import Violation
from bridge.dev.sides import KubeSide, SlurmSide
from bridge.dev.sight import KubeTruth, SlurmLooks
from bridge.dev.stage import Stage
from bridge.dev.story import Run, StalledError, exit_code
from bridge.kube import auth
from bridge.kube.transport import HttpTransport
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken
from scheduler import names

GIVE_UP_S = 3.0


@asynccontextmanager
async def performing() -> AsyncIterator[tuple[Stage, Run]]:
    """Two simulated ends and a bridge, and two pods that are about to come."""
    async with AsyncExitStack() as stack:
        kube, slurm = await sides.both(stack, kubeconfig="", slurm_url="", token_file="", user="", seed=1)
        transport = HttpTransport(kube.access)
        stack.push_async_callback(transport.close)
        hands, load = Hands(transport, kube.space, time.time), Load(fitted(KINDS, kube.nodes), kube.scheduler_name, 1)
        stage = Stage(kube, slurm, 1)
        playing = [asyncio.create_task(stage.run()), asyncio.create_task(hands.watch())]
        yield stage, Run(stage, hands, load, 2, lambda _who, _what: None, GIVE_UP_S)
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)


async def test_a_slurm_that_is_away_from_the_start_is_told_as_what_is_missing() -> None:
    async with performing() as (stage, run):
        stage.cable.cut = True
        with pytest.raises(StalledError) as stalled:
            await run.go(SERVICES)
    assert str(stalled.value).startswith("waited 3 s for the bridge to be ready: the bridge has not started")


async def test_pods_that_are_not_bound_are_told_by_name_with_what_they_say() -> None:
    async with performing() as (stage, run):
        await run._until("the bridge", lambda: stage.world is not None and stage.world.ready)
        for name in sorted(stage.slurm.simulated.nodes):  # type: ignore[union-attr]
            stage.slurm.simulated.drain(name)  # type: ignore[union-attr]
        with pytest.raises(
            StalledError, match=r"waited 3 s for every pod to have been bound and ended: \w+-1 is not bound"
        ):
            await run.go(SERVICES)
        assert run.result()["bound"] == 0
        assert run.result()["failed"] == 2
        assert exit_code(run.result()) == 1


async def test_a_broken_promise_is_told_with_its_words_and_fails_the_run() -> None:
    async with performing() as (stage, run):
        run.pods = 0
        assert exit_code(run.result()) == 0
        stage.promises.violations.append(Violation("V2", "hpc/train is bound to x1, job 17 holds x2", stage.clock()))
        told = run.result()
        assert (told["violations"], told["broken"]) == (1, ["V2: hpc/train is bound to x1, job 17 holds x2"])
        assert exit_code(told) == 1
        assert [each["what"] for each in stage.look()["violations"].values()] == told["broken"]
        assert stage.look()["promises"]["V2"]["broken"] == 1


async def test_a_pod_of_another_scheduler_on_a_node_of_slurm_is_nothing_that_is_left() -> None:
    """Tidying up waited for one in vain, because the bridge knows of it since it stands there without a job."""
    async with performing() as (stage, run):
        await run._until("the bridge", lambda: stage.world is not None and stage.world.ready)
        assert stage.world is not None
        assert not stage.left
        assert stage.kube.simulated is not None
        [space, node] = stage.kube.space, next(iter(stage.slurm.simulated.nodes))  # type: ignore[union-attr]
        bystander = objects.pod(space, "resident", scheduler="another", nodeName=node)
        stage.kube.simulated.cluster.create(stage.clock(), "pods", bystander)
        world = stage.world
        await run._until("it is known", lambda: any(each.others for each in world.workloads.values()))
        assert not stage.left


async def test_what_the_page_shows_names_every_fault_and_every_promise() -> None:
    async with performing() as (stage, run):
        await run._until("the bridge", lambda: stage.world is not None and stage.world.ready)
        shown = stage.look()
        assert shown["faults"].keys() == FAULTS.keys()
        assert not any(fault["unavailable"] for fault in shown["faults"].values())
        assert list(shown["promises"]) == ["V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8", "L1", "L2", "L3", "L4"]
        assert shown["violations"] == {}
        assert stage.detail("nobody") is None


def test_faults_that_would_break_a_real_end_are_not_made_there() -> None:
    nowhere: Any = None
    client = SlurmClient(nowhere, LiteralToken("a.b.c"))
    real = SlurmSide(
        "http://127.0.0.1:1", LiteralToken("a.b.c"), "alice", "26.05", (), frozenset(), 12.0, SlurmLooks(client)
    )
    kube = KubeSide(auth.anonymous("http://127.0.0.1:1"), "v1.36", (), "k0", "dev", "dev", KubeTruth(nowhere))
    stage = Stage(kube, real, 1)
    can = {name for name, fault in FAULTS.items() if not fault.unavailable(stage)}
    assert can == {"slurmrestd-down", "lose-answer", "cancel-job", "restart-bridge"}
    assert stage.promises.exact is False
    stage.telemetry.close()


async def test_a_fault_that_cannot_be_made_says_why_and_does_nothing() -> None:
    async with performing() as (stage, _run):
        stage.slurm.simulated = None
        said = await stage.make("drain-node")
        assert said == "Only in a simulated Slurm: a real one is not ours to break."
        assert stage.note == ""


async def test_an_admins_hold_and_suspension_end_when_pressed_again() -> None:
    async with performing() as (stage, _run):
        slurm = stage.slurm.simulated
        assert slurm is not None
        assert await stage.make("hold-job") == "No job waits that could be held."
        assert await stage.make("suspend-job") == "No job runs that could be suspended."
        user = sorted(stage.promises.users.values())[0]
        headers = {"X-SLURM-USER-TOKEN": slurm.token("slurm"), "X-SLURM-USER-NAME": user}
        name = names.job_name("dev/p", stage.promises.cluster, names.workload_key("uid"))
        job = {
            "name": name,
            "flags": ["EXTERNAL_JOB"],
            "cpus_per_task": 1,
            "memory_per_node": {"set": True, "number": 1},
        }
        now = int(stage.clock())
        path = "/slurm/v0.0.45/job/submit"
        made = json.loads(slurm.handle(now, "POST", path, headers, json.dumps({"job": job}).encode())[2])["job_id"]
        assert "is held by an admin" in await stage.make("hold-job")
        assert slurm.jobs[made].held == "JobHeldAdmin"
        assert "is released" in await stage.make("hold-job")
        slurm.tick(now + 5)
        assert slurm.jobs[made].state == "RUNNING"
        assert "is suspended by an admin" in await stage.make("suspend-job")
        assert slurm.jobs[made].state == "SUSPENDED"
        assert "runs again" in await stage.make("suspend-job")
        assert "The time limit of job" in await stage.make("shorten-job")
        assert slurm.jobs[made].ends <= now + 300


async def test_a_kubelet_falls_silent_and_is_back_when_pressed_again() -> None:
    async with performing() as (stage, _run):
        assert stage.kube.simulated is not None
        actors = stage.kube.simulated.cluster.actors
        said = await stage.make("silent-kubelet")
        [silent] = actors.silent
        assert silent in said
        assert stage.troubled
        assert await stage.make("silent-kubelet") == f"The kubelet of {silent} is back."
        assert not stage.troubled
