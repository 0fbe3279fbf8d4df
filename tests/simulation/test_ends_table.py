"""Every row of docs/ends.md, made to happen: the whole bridge between the two simulated clusters, on a virtual clock.

The table is read from the document.  This file makes each row happen, and describes each end in the words of the table.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bridge.simulation.kube import objects
from bridge.simulation.kube.objects import Object
from bridge.simulation.slurm.jobs import SimJob
from integration.ends_table import table
from scheduler import names
from tests.simulation.calm import SPACE, Calm, lived

KINDS = ("alone", "batch", "service")


# --- the pod ends first -------------------------------------------------------------------------------------------


async def _kubelet_says(life: Calm, pod: Object, status: Object) -> None:
    life.kube.write_status("pods", pod, {**pod["status"], "phase": "Failed", **status})
    life.inner.wake()


async def _memory(life: Calm) -> None:
    await _kubelet_says(life, await life.first("alone"), _killed("OOMKilled"))


async def _evicted(life: Calm) -> None:
    await _kubelet_says(life, await life.first("alone"), {"reason": "Evicted", **_killed("Error")})


def _killed(reason: str) -> Object:
    ended = {"exitCode": 137, "reason": reason}
    return {"containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}


async def _deleted(life: Calm, grace: int | None = None, phase: str = "Running") -> None:
    pod = await life.first("alone", phase)
    if phase == "Pending":
        await life.until(lambda: any("~k" in job.name and job.pending for job in life.slurm.jobs.values()))
    life.kube.remove(life.kube_clock(), "pods", life.kube.store.get("pods", SPACE, "alone") or pod, grace)
    life.inner.wake()


async def _node_stops(life: Calm) -> None:
    pod = await life.first("alone")
    life.kube.actors.stop_kubelet(life.kube_clock(), pod["spec"]["nodeName"])


async def _nothing(life: Calm) -> None:
    """Does nothing, because the end comes by itself."""


Happens = Callable[[Calm], Awaitable[None]]
POD_ENDS: dict[str, tuple[dict[str, Any], Happens]] = {
    "its containers end with 0": ({"says": {objects.RUN_S: "5"}}, _nothing),
    "a container ends with 3": ({"says": {objects.RUN_S: "5", objects.EXIT_CODE: "3"}}, _nothing),
    "a container needs more memory than it may": ({}, _memory),
    "kubelet evicts it": ({}, _evicted),
    "its own `activeDeadlineSeconds` passes": ({"activeDeadlineSeconds": 5}, _nothing),
    "it is deleted while it runs": ({}, _deleted),
    "it is deleted by force while it runs": ({}, lambda life: _deleted(life, 0)),
    "it is deleted while it waits": (
        {"says": {"slurm-bridge/begin": "now+1hour"}},
        lambda life: _deleted(life, phase="Pending"),
    ),
    "it never starts (an image that is not there)": ({"says": {objects.WAITS: "ImagePullBackOff"}}, _nothing),
    "its node stops answering": ({}, _node_stops),
}
POD_TABLE = table("The pod ends first")


def test_every_end_of_a_pod_is_in_the_document() -> None:
    assert list(POD_TABLE) == list(POD_ENDS)


@pytest.mark.parametrize("row", POD_ENDS)
def test_when_the_pod_ends_first(row: str) -> None:
    pod_becomes, job_becomes, code, comment = POD_TABLE[row]
    given, happens = POD_ENDS[row]

    async def story(life: Calm) -> None:
        life.creates("alone", **given)
        await happens(life)
        ended = asyncio.get_running_loop().time()
        stays = pod_becomes == "stays"
        if not stays:
            within = 700.0 if "start_timeout_s" in pod_becomes else 60.0
            await life.until(lambda: life.slurm.jobs and all(job.ended for job in life.slurm.jobs.values()), within)
        took = life.clock() - ended
        await asyncio.sleep(300 if stays else 5)
        [pod] = life.pods_of("alone")
        job = life.job_of(pod)
        assert (took >= 30) == ("later" in job_becomes or "after" in pod_becomes), "its grace, and its patience"
        assert f"`{job.state}`" == job_becomes.split(",")[0]
        if stays:
            assert life.there(pod)
            assert pod["status"]["phase"] == "Running"
        else:
            assert life.ends("alone").replace("deleted", "gone") == pod_becomes.split(" after ")[0]
        own = f"{SPACE}/alone: "
        assert job.derived_exit_code == int(code)
        assert job.accounted_comment == (own + comment.strip("`") if comment else "")

    lived(story)


def test_without_accounting_all_ends_the_same_and_nothing_is_written() -> None:
    async def story(life: Calm) -> None:
        for kind in KINDS:
            life.creates(kind, {objects.RUN_S: "5", objects.EXIT_CODE: "3"} if kind == "alone" else None)
        pods = {kind: await life.first(kind) for kind in KINDS}
        jobs = {kind: life.job_of(pod) for kind, pod in pods.items()}
        await life.until(lambda: jobs["alone"].ended)
        life.slurm.cancel(jobs["batch"].id, life.slurm_clock())
        life.kube.remove(life.kube_clock(), "pods", pods["service"])
        await asyncio.sleep(60)
        assert life.ends("alone") == "`Failed`, `Error`"
        assert life.ends("batch") == "deleted, disrupted, replaced"
        assert life.ends("service") == "deleted, replaced"
        assert all(job.ended and not job.accounted_comment for job in jobs.values())
        assert life.processes == 1, "the bridge never fell over"

    lived(story, accounting=False)


# --- the job ends first -------------------------------------------------------------------------------------------


def _state(state: str) -> Callable[[Calm, SimJob], None]:
    return lambda life, job: life.slurm.end(job.id, state, life.slurm_clock())


def _near_its_end(life: Calm, job: SimJob) -> None:
    job.time_limit_min, job.ends = 3, int(life.slurm_clock()) + 150


def _lost_for_good(life: Calm, job: SimJob) -> None:
    life.loses(job)
    for node in life.slurm.nodes:
        life.slurm.drain(node, "an admin works on it")
    asyncio.get_running_loop().call_later(150, life._resume)


JOB_ENDS: dict[str, Callable[[Calm, SimJob], None]] = {
    "`CANCELLED` (scancel)": lambda life, job: life.slurm.cancel(job.id, life.slurm_clock()),
    **{
        f"`{state}`": _state(state)
        for state in (
            "COMPLETED",
            "FAILED",
            "NODE_FAIL",
            "PREEMPTED",
            "BOOT_FAIL",
            "OUT_OF_MEMORY",
            "REVOKED",
        )
    },
    "`TIMEOUT`, before kubelet had the deadline": _state("TIMEOUT"),
    "`DEADLINE`": _state("DEADLINE"),
    "its time limit is two minutes away": _near_its_end,
    "it is preempted and has a grace": lambda life, job: life.slurm.preempt(job.id, life.slurm_clock(), grace_s=60),
    "Slurm lost it, and does not grant its nodes again": _lost_for_good,
}
JOB_TABLE = table("The job ends first")


def test_every_end_of_a_job_is_in_the_document() -> None:
    assert list(JOB_TABLE) == list(JOB_ENDS)


@pytest.mark.parametrize("row", JOB_ENDS)
def test_when_the_job_ends_first(row: str) -> None:
    async def story(life: Calm) -> None:
        for kind in KINDS:
            life.creates(kind)
        firsts = {kind: await life.first(kind) for kind in KINDS}
        for pod in firsts.values():
            JOB_ENDS[row](life, life.job_of(pod))
        await asyncio.sleep(160 if "away" in row else 200 if "does not grant" in row else 70)
        assert [life.ends(kind) for kind in KINDS] == JOB_TABLE[row]
        for kind in ("batch", "service"):
            assert life.pods_of(kind)[-1]["status"]["phase"] == "Running", "the next one has a job of its own"

    lived(story)


# --- neither ends -------------------------------------------------------------------------------------------------


async def _suspend(life: Calm, pods: list[Object]) -> None:
    for pod in pods:
        life.slurm.suspend(life.job_of(pod).id)


async def _resume(life: Calm, pods: list[Object]) -> None:
    await _suspend(life, pods)
    await asyncio.sleep(20)
    for pod in pods:
        life.slurm.unsuspend(life.job_of(pod).id)


async def _more_time(life: Calm, pods: list[Object]) -> None:
    await asyncio.sleep(60)  # they have been read once
    for pod in pods:
        job = life.job_of(pod)
        job.time_limit_min, job.ends = 120, int(life.slurm_clock()) + 7200


async def _hold(life: Calm, pods: list[Object]) -> None:
    for pod in pods:
        life.slurm.hold(life.job_of(pod).id)


async def _loses(life: Calm, pods: list[Object]) -> None:
    for pod in pods:
        life.loses(life.job_of(pod))


STAYS: dict[str, Callable[[Calm, list[Object]], Awaitable[None]]] = {
    "Slurm lost it": _loses,
    "an admin suspends it": _suspend,
    "an admin resumes it": _resume,
    "an admin gives it more time": _more_time,
    "an admin holds it while it waits": _hold,
}
STAYS_TABLE = table("Neither ends")


def test_everything_else_that_an_admin_does_to_a_job_is_in_the_document() -> None:
    assert list(STAYS_TABLE) == list(STAYS)


@pytest.mark.parametrize("row", STAYS)
def test_when_neither_ends(row: str) -> None:
    async def story(life: Calm) -> None:
        waits = "waits" in row
        for kind in KINDS:
            life.creates(kind, {"slurm-bridge/begin": "now+1hour"} if waits else None)
        pods = [await life.first(kind, "Pending" if waits else "Running") for kind in KINDS]
        await asyncio.sleep(10)
        jobs = {life.job_of(pod).id for pod in pods}
        await STAYS[row](life, pods)
        await asyncio.sleep(90)
        assert [_stays(life, kind, jobs) for kind in KINDS] == STAYS_TABLE[row]

    lived(story)


def _stays(life: Calm, kind: str, jobs: set[int]) -> str:
    """In the words of the document.  jobs: those of before"""
    [pod] = life.pods_of(kind)
    told = life.told(pod)
    if pod["status"]["phase"] == "Running":
        named = pod["metadata"]["annotations"][names.JOB_ID]
        assert named == str(life.job_of(pod).id)
        if int(named) not in jobs:
            return "runs on, in another job"
        return f"runs on, says `{told[names.RUNNING_CONDITION]['reason']}`"
    [why] = re.findall(r"\((\w+):", told["PodScheduled"]["message"])
    return f"waits, says `{why}`"
