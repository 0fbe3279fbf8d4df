"""A full cluster with a queue: how soon freed capacity is used again.

Every other time it is a pod that ends, the other times its job in Slurm.  They end at times fixed beforehand that are no
multiple of what slurmctld or the bridge does once a second, and each leaves room for exactly one of those that wait; all are
of one size, so the n-th end belongs to the n-th bind.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from integration.bench.clients import PODS
from integration.bench.figures import Figure, at_most, never_more_than
from integration.bench.following import eventually
from integration.bench.ground import Ground
from integration.bench.load import JobOptions, Stopwatch, percentile
from integration.bench.scenarios import Scenario
from integration.bench.subjects import SCHEDULER
from scheduler.names import JOB_ID

NODES = 4
CPUS = 8  # of each pod
EVERY_S = 4.7  # more than the 3 s in which stock slurmctld looks at its queue once at most; drifts against its seconds
MERGE = "application/merge-patch+json"
ENDED = b'{"status":{"phase":"Succeeded"}}'


def freed(ends: int) -> Scenario:
    """So many in a repeat."""
    repeat = partial(_repeat, "freed", ends)
    return Scenario("freed", repeat, nodes=NODES)


async def _repeat(scenario: str, ends: int, ground: Ground) -> list[Figure]:
    async with ground.bridge(), Stopwatch(ground.kube, SCHEDULER) as watch:
        running = [f"running{number}" for number in range(await ground.room(CPUS))]
        waiting = [f"waiting{number}" for number in range(ends + len(running))]
        await watch.burst(running, JobOptions(cpus=CPUS))
        await watch.until_bound(running, within_s=60)
        await watch.burst(waiting, JobOptions(cpus=CPUS))

        async def all_queued() -> bool:
            return await ground.live_jobs() == len(running) + len(waiting)

        await eventually("every waiting pod has its job", all_queued, within_s=60)
        freed_at = await _end(ground, running[:ends])
        await watch.until(
            lambda: len(watch.bound) >= len(running) + ends,
            lambda: f"{len(running) + ends - len(watch.bound)} of {ends} ends were followed by no bind",
            within_s=60,
        )
        bound_at = sorted(watch.bound[name] for name in waiting if name in watch.bound)
    waits = [bound - freed for freed, bound in zip(freed_at, bound_at, strict=False)]
    return [
        Figure(scenario, "freed → next bind, p50", "s", (percentile(waits, 0.5),), at_most(2)),
        Figure(scenario, "freed → next bind, max", "s", (max(waits),), never_more_than(5)),
        Figure(scenario, "a pod ended, p50", "s", (percentile(waits[::2], 0.5),)),
        Figure(scenario, "a job was cancelled, p50", "s", (percentile(waits[1::2], 0.5),)),
    ]


async def _end(ground: Ground, names: list[str]) -> list[float]:
    """End these one after the other, and say when each was over."""
    jobs = {}
    for name in names:
        pod = await ground.kube.json("GET", f"{PODS}/{name}")
        jobs[name] = pod["metadata"]["annotations"][JOB_ID]
    over = []
    began = time.perf_counter()
    for number, name in enumerate(names):
        await asyncio.sleep(began + number * EVERY_S - time.perf_counter())
        if number % 2:
            await ground.slurm.call("DELETE", f"job/{jobs[name]}")  # as the administrator
        else:
            await ground.kube.call("PATCH", f"{PODS}/{name}/status", ENDED, kind=MERGE)
        over.append(time.perf_counter())
    return over
