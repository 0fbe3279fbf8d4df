"""The session of `slurm-bridge dev` without a terminal: it names what stalls, and which faults can be made where."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from bridge.dev import backends
from bridge.dev.backends import KubeBackend, SlurmBackend
from bridge.dev.faults import FAULTS
from bridge.dev.headless import Run, StalledError, exit_code
from bridge.dev.load import KINDS, SERVICES, Load, fitted
from bridge.dev.session import Session
from bridge.dev.workload_client import WorkloadClient
from bridge.kube.access import anonymous
from bridge.kube.transport import HttpTransport
from bridge.page.feed import sections_of
from bridge.simulation.invariants.violation import Violation
from bridge.simulation.kube import objects
from bridge.simulation.observations import KubeSimulatedObservations, SlurmPolledObservations
from bridge.simulation.slurm import rest
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken
from scheduler import names
from tests.patience import PATIENCE_S

GIVE_UP_S = 3.0


@asynccontextmanager
async def performing() -> AsyncIterator[tuple[Session, Run]]:
    """Two simulated ends and a bridge, and two pods that are about to come."""
    async with AsyncExitStack() as stack:
        kube, slurm = await backends.both(stack, kubeconfig="", slurm_url="", token_file="", user="", seed=1)
        transport = HttpTransport(kube.access)
        stack.push_async_callback(transport.close)
        workload_client, load = (
            WorkloadClient(transport, kube.space, time.time),
            Load(fitted(KINDS, kube.nodes), kube.scheduler_name, 1),
        )
        session = Session(kube, slurm, 1)
        playing = [asyncio.create_task(session.run()), asyncio.create_task(workload_client.watch())]
        yield session, Run(session, workload_client, load, 2, lambda _who, _what: None, PATIENCE_S)
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)


async def test_a_slurm_that_is_away_from_the_start_is_reported_as_what_is_missing() -> None:
    async with performing() as (session, run):
        session.cable.cut = True
        run.give_up_s = GIVE_UP_S
        with pytest.raises(StalledError) as stalled:
            await run.go(SERVICES)
    assert str(stalled.value).startswith("waited 3 s for the bridge to be ready: the bridge has not started")


async def test_pods_that_are_not_bound_are_reported_by_name_with_what_they_say() -> None:
    async with performing() as (session, run):
        await run._until("the bridge", lambda: session.world is not None and session.world.ready)
        for name in sorted(session.slurm.simulated.nodes):
            session.slurm.simulated.drain(name)
        run.give_up_s = GIVE_UP_S
        with pytest.raises(
            StalledError, match=r"waited 3 s for every pod to have been bound and ended: \w+-1 is not bound"
        ):
            await run.go(SERVICES)
        assert run.result()["bound"] == 0
        assert run.result()["failed"] == 2
        assert exit_code(run.result()) == 1


async def test_a_broken_invariant_is_reported_with_its_words_and_fails_the_run() -> None:
    async with performing() as (session, run):
        run.pods = 0
        assert exit_code(run.result()) == 0
        session.invariants.violations.append(
            Violation("V2", "hpc/train is bound to x1, job 17 holds x2", session.clock())
        )
        told = run.result()
        assert (told["violations"], told["broken"]) == (1, ["V2: hpc/train is bound to x1, job 17 holds x2"])
        assert exit_code(told) == 1
        shown = sections_of(session.look())
        assert [each["what"] for each in shown["violations"].values()] == told["broken"]
        assert shown["invariants"]["V2"]["broken"] == 1


async def test_a_pod_of_another_scheduler_on_a_node_of_slurm_is_nothing_that_is_left() -> None:
    """Tidying up waited in vain for a pod that is on a node without a job, because the bridge knows it."""
    async with performing() as (session, run):
        await run._until("the bridge", lambda: session.world is not None and session.world.ready)
        assert session.world is not None
        assert not session.left
        assert session.kube.simulated is not None
        [space, node] = session.kube.space, next(iter(session.slurm.simulated.nodes))
        bystander = objects.pod(space, "resident", scheduler="another", nodeName=node)
        session.kube.simulated.cluster.create(session.clock(), "pods", bystander)
        world = session.world
        await run._until("it is known", lambda: any(each.of_other_scheduler for each in world.workloads.values()))
        assert not session.left


async def test_the_page_lists_every_fault_and_every_invariant() -> None:
    async with performing() as (session, run):
        await run._until("the bridge", lambda: session.world is not None and session.world.ready)
        shown = sections_of(session.look())
        assert shown["faults"].keys() == FAULTS.keys()
        assert not any(fault["unavailable"] for fault in shown["faults"].values())
        assert list(shown["invariants"]) == ["V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8", "L1", "L2", "L3", "L4"]
        assert "violations" not in shown
        assert session.detail("nobody") is None


def test_faults_that_would_break_a_real_end_are_not_made_there() -> None:
    nowhere: Any = None
    client = SlurmClient(nowhere, LiteralToken("a.b.c"))
    real = SlurmBackend(
        "http://127.0.0.1:1",
        LiteralToken("a.b.c"),
        "alice",
        "26.05",
        (),
        frozenset(),
        12.0,
        SlurmPolledObservations(client),
    )
    kube = KubeBackend(
        anonymous("http://127.0.0.1:1"), "v1.36", (), "k0", "dev", "dev", KubeSimulatedObservations(nowhere)
    )
    session = Session(kube, real, 1)
    can = {name for name, fault in FAULTS.items() if not fault.unavailable(session)}
    assert can == {"slurmrestd-down", "lose-answer", "cancel-job", "restart-bridge"}
    assert session.invariants.exact is False
    session.telemetry.close()


async def test_a_fault_that_cannot_be_injected_returns_the_reason_and_does_nothing() -> None:
    async with performing() as (session, _run):
        session.slurm.simulated = None
        said = await session.make("drain-node")
        assert said == "Only in a simulated Slurm: `slurm-bridge dev` does not break a real one."
        assert session.note == ""


async def test_an_admins_hold_and_suspension_end_when_pressed_again() -> None:
    async with performing() as (session, _run):
        slurm = session.slurm.simulated
        assert slurm is not None
        assert await session.make("hold-job") == "No job waits, so none can be held."
        assert await session.make("suspend-job") == "No job runs, so none can be suspended."
        user = sorted(session.invariants.users.values())[0]
        headers = {"X-SLURM-USER-TOKEN": slurm.token("slurm"), "X-SLURM-USER-NAME": user}
        name = names.job_name("dev/p", session.invariants.cluster, names.workload_key("uid"))
        job = {
            "name": name,
            "flags": ["EXTERNAL_JOB"],
            "cpus_per_task": 1,
            "memory_per_node": {"set": True, "number": 1},
        }
        now = int(session.clock())
        path = "/slurm/v0.0.45/job/submit"
        made = json.loads(rest.answer(slurm, now, "POST", path, headers, json.dumps({"job": job}).encode())[2])[
            "job_id"
        ]
        assert "is held, as by scontrol hold of an admin" in await session.make("hold-job")
        assert slurm.jobs[made].held == "JobHeldAdmin"
        assert "is released" in await session.make("hold-job")
        slurm.tick(now + 5)
        assert slurm.jobs[made].state == "RUNNING"
        assert "is suspended, as by an admin" in await session.make("suspend-job")
        assert slurm.jobs[made].state == "SUSPENDED"
        assert "runs again" in await session.make("suspend-job")
        assert "The time limit of job" in await session.make("shorten-job")
        assert slurm.jobs[made].ends <= now + 300


async def test_a_kubelet_falls_silent_and_is_back_when_pressed_again() -> None:
    async with performing() as (session, _run):
        assert session.kube.simulated is not None
        actors = session.kube.simulated.cluster.actors
        said = await session.make("silent-kubelet")
        [silent] = actors.silent
        assert silent in said
        assert session.troubled
        assert await session.make("silent-kubelet") == f"The kubelet of {silent} is back."
        assert not session.troubled
