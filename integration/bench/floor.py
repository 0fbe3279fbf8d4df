"""The floor: the steps that any scheduler needs between two such clusters, and no others.

It watches pods, allocates immediately, reads the grant, and binds.  Nothing is checked, remembered or repeated; a pod without
room ends the run.  No faster program for these steps is known, so figures of the bridge are printed beside those of the
floor, measured in the same run.

A floor needs the fastest transports that are known.  Its event loop is uvloop, as the bridge's.  aiohttp reads its watch, as
the bridge's.  Its calls go over the connections of clients.py.  Against simulated clusters, in five pairs on a busy machine,
the floor takes so 0.49 of the processor time a pod that it took with asyncio's loop and streams and with aiohttp; with uvloop
alone it took 0.91 of it, with the new connections alone 0.67.  With the bridge's pool to slurmrestd in place of these
connections it took 1.1 to 1.5 times as long, and with the bridge's transport to Kubernetes 1.7 to 2.5 times: they check more.

    python -m integration.bench.floor [ends]        KUBECONFIG, SLURM_REST, SLURM_TOKEN_FILE name the clusters; prints "ready"

With "ends" it also does what an end of a job needs: each second it reads the states of all jobs.  It writes the reason on the
pod of each job that has ended, and deletes the pod.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import NoReturn

import msgspec
import uvloop

from integration.bench.clients import PODS, TENANT, BenchError, Kube, Metadata, Slurm
from integration.bench.load import MEMORY_MIB
from integration.clusters import ENDED

SCHEDULER = "floor"
AT_ONCE = 32  # pods in hand; the connections to Slurm are eight, as the bridge's
POLL_S = 1.0  # as the bridge's
ENDS = "ends"
STRATEGIC = "application/strategic-merge-patch+json"
DISRUPTED = b'{"status":{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"Bench","message":"why"}]}}'


class _Allocated(msgspec.Struct):
    job_id: int


class _Held(msgspec.Struct):
    node: str


class _Resources(msgspec.Struct):
    nodes: tuple[_Held, ...]


class _State(msgspec.Struct):
    job_id: str | int
    state: tuple[str, ...]


class _States(msgspec.Struct):
    jobs: tuple[_State, ...]


_STATES = msgspec.json.Decoder(_States)
_ALLOCATED = msgspec.json.Decoder(_Allocated)
_RESOURCES = msgspec.json.Decoder(_Resources)


JOB = msgspec.json.encode(
    {
        "job": {
            "name": SCHEDULER,
            "flags": ["EXTERNAL_JOB"],
            "cpus_per_task": 1,
            "memory_per_node": {"set": True, "number": MEMORY_MIB},
            "time_limit": {"set": True, "number": 60},
            "immediate": True,
        }
    }
)


def binding(pod: Metadata, job_id: int, node: str) -> bytes:
    """The body of the request that binds the pod."""
    metadata = {"name": pod.name, "uid": pod.uid, "annotations": {"slurm-bridge/job-id": str(job_id)}}
    return msgspec.json.encode({"metadata": metadata, "target": {"kind": "Node", "name": node}})


async def _serve(kube: Kube, slurm: Slurm, *, ends: bool) -> None:
    """Bind every pod that names the floor as its scheduler, for ever.

    ends   delete the pods of ended jobs, too
    """
    in_hand = asyncio.Semaphore(AT_ONCE)
    bound: dict[str, str] = {}

    async def bind(pod: Metadata) -> None:
        async with in_hand:
            job_id = _ALLOCATED.decode(await slurm.call("POST", "job/allocate", JOB, user=TENANT)).job_id
            [held] = _RESOURCES.decode(await slurm.call("GET", f"resources/{job_id}")).nodes
            await kube.call("POST", f"{PODS}/{pod.name}/binding", binding(pod, job_id, held.node))
            bound[str(job_id)] = pod.name

    async with asyncio.TaskGroup() as tasks:
        if ends:
            tasks.create_task(_follow_ends(kube, slurm, bound))
        # Those without a node: a pod that is bound leaves this selection, and its later life costs nothing here.
        selector = f"spec.schedulerName={SCHEDULER},spec.nodeName="
        async for change in kube.watch(selector, ready=lambda: print("ready", flush=True)):
            if change.type == "ADDED":
                tasks.create_task(bind(change.object.metadata))


async def _follow_ends(kube: Kube, slurm: Slurm, bound: dict[str, str]) -> NoReturn:
    """Delete the pod of each job that ends, for ever.  bound: the pod's name by the id of its job"""
    in_hand = asyncio.Semaphore(AT_ONCE)

    async def delete(name: str) -> None:
        async with in_hand:
            await kube.call("PATCH", f"{PODS}/{name}/status", DISRUPTED, kind=STRATEGIC, may=(404,))
            await kube.call("DELETE", f"{PODS}/{name}", may=(404,))

    async with asyncio.TaskGroup() as tasks:
        while True:
            for job in _STATES.decode(await slurm.call("GET", "jobs/state/")).jobs:
                if ENDED & set(job.state) and (name := bound.pop(str(job.job_id), None)):
                    tasks.create_task(delete(name))
            await asyncio.sleep(POLL_S)


async def main() -> None:
    """Run until the process is ended."""
    slurm = Slurm(os.environ["SLURM_REST"], os.environ["SLURM_TOKEN_FILE"])
    async with Kube(os.environ["KUBECONFIG"]) as kube:
        await _serve(kube, slurm, ends=ENDS in sys.argv[1:])


if __name__ == "__main__":
    try:
        uvloop.run(main())
    except* BenchError as group:
        sys.exit(f"floor: {group.exceptions[0]}")
