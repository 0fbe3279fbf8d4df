"""The floor: the steps that any scheduler needs between two such clusters, and no others.

It watches pods, allocates immediately, reads the grant, and binds.  Nothing is checked, remembered or repeated; a pod without
room ends the run.  No scheduler can be faster on the same machine, so every figure of the bridge is printed beside that of
the floor, measured in the same run.

    python -m integration.bench.floor        KUBECONFIG, SLURM_REST, SLURM_TOKEN_FILE name the clusters; prints "ready"
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from integration.bench.ends import PODS, TENANT, BenchError, Kube, Metadata, Slurm
from integration.bench.load import MEMORY_MIB

SCHEDULER = "floor"
AT_ONCE = 32  # pods in hand; the connections to Slurm are eight, as the bridge's


class _Allocated(msgspec.Struct):
    job_id: int


class _Held(msgspec.Struct):
    node: str


class _Resources(msgspec.Struct):
    nodes: tuple[_Held, ...]


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


async def _serve(kube: Kube, slurm: Slurm) -> None:
    """Bind every pod that names the floor as its scheduler, for ever."""
    in_hand = asyncio.Semaphore(AT_ONCE)

    async def bind(pod: Metadata) -> None:
        async with in_hand:
            job_id = _ALLOCATED.decode(await slurm.call("POST", "job/allocate", JOB, user=TENANT)).job_id
            [held] = _RESOURCES.decode(await slurm.call("GET", f"resources/{job_id}")).nodes
            await kube.call("POST", f"{PODS}/{pod.name}/binding", binding(pod, job_id, held.node))

    async with asyncio.TaskGroup() as tasks:
        # Those without a node: a pod that is bound leaves this selection, and its later life costs nothing here.
        selector = f"spec.schedulerName={SCHEDULER},spec.nodeName="
        async for change in kube.watch(selector, ready=lambda: print("ready", flush=True)):
            if change.type == "ADDED":
                tasks.create_task(bind(change.object.metadata))


async def main() -> None:
    """Run until the process is ended."""
    slurm = Slurm(os.environ["SLURM_REST"], os.environ["SLURM_TOKEN_FILE"])
    async with Kube(os.environ["KUBECONFIG"]) as kube:
        await _serve(kube, slurm)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except* BenchError as group:
        sys.exit(f"floor: {group.exceptions[0]}")
