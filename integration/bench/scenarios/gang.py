"""A gang of one shape on free nodes: how long until all of it is bound, and what it asks of Slurm.

A gang is one job, and what is left to do is a burst of binds.  So it is compared with as many binds of pods that exist, sent
by the benchmark itself, all at once over its own connections.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from functools import partial

import msgspec

from integration.bench import floor, relay
from integration.bench.clients import PODS, Pod
from integration.bench.figures import Figure, Target, never_more_than
from integration.bench.ground import Ground
from integration.bench.load import JobOptions, Stopwatch
from integration.bench.relay import Relay
from integration.bench.scenarios import Scenario
from integration.bench.subjects import KUBERNETES

CPUS_A_NODE = 64
GRANT = "GET resources/N"
CALLS = 2  # the job, and what it was granted; of several shapes one more each


def gang(pods: int, *, granted: Target, created: Target | None = None) -> Scenario:
    """The scenario with one gang of *pods* pods.

    granted, created   what is asked of the time since the grant, and of the time since the last creation
    """
    name = f"gang-{pods}"
    nodes = max(4, 2 * pods // CPUS_A_NODE)
    return Scenario(name, partial(_repeat, name, pods, nodes, granted, created), nodes=nodes)


async def _repeat(
    scenario: str, pods: int, nodes: int, granted: Target, created: Target | None, ground: Ground
) -> list[Figure]:
    binds_s, figures = await ground.in_turn(
        partial(_binds_alone, pods, nodes, ground), partial(_bridge, scenario, pods, created, ground)
    )
    since_grant, *others = figures
    compared = replace(since_grant, target=granted, compared=(binds_s,), compared_with="binds alone")
    return [compared, *others]


async def _binds_alone(pods: int, nodes: int, ground: Ground) -> float:
    """Seconds from the first bind to the last pod that is seen on a node."""
    await ground.clear()
    names = [f"ring-{number}" for number in range(pods)]
    async with Stopwatch(ground.kube, floor.SCHEDULER) as watch:
        await watch.burst(names)
        found = msgspec.json.decode(await ground.kube.call("GET", PODS), type=_Pods).items
        began = time.perf_counter()
        async with asyncio.TaskGroup() as binds:
            for number, pod in enumerate(found):
                body = floor.binding(pod.metadata, 1, f"k{number % nodes + 1}")
                binds.create_task(ground.kube.call("POST", f"{PODS}/{pod.metadata.name}/binding", body))
        await watch.until_bound(names, within_s=60 + pods / 20)
    return max(watch.bound.values()) - began


class _Pods(msgspec.Struct):
    items: tuple[Pod, ...]


async def _bridge(scenario: str, pods: int, created: Target | None, ground: Ground) -> list[Figure]:
    names = [f"ring-{number}" for number in range(pods)]
    # The relay costs some tenths of a millisecond a call, and there are two.
    async with Relay(os.environ["SLURM_REST"]) as between, ground.bridge(between.url) as bridge:
        before, known = (await bridge.calls())[KUBERNETES]["bind"], len(between.calls)
        meter = ground.processes.meter()
        async with Stopwatch(ground.kube, bridge.scheduler) as watch:
            await watch.burst(names, JobOptions(gang="ring"))
            await watch.until_bound(names, within_s=60 + pods / 20)
        await bridge.at_rest()
        spent = meter.read()
        bound_calls = (await bridge.calls())[KUBERNETES]["bind"] - before
        passed = [call for call in between.calls[known:] if call.operation not in relay.POLLS]
    granted_at = min(call.at for call in passed if call.operation == GRANT)
    last = max(watch.bound.values())
    last_created, first = max(watch.sent.values()), min(watch.sent.values())
    return [
        Figure(scenario, "grant observed → all bound", "s", (last - granted_at,)),
        Figure(scenario, "last create → all bound", "s", (last - last_created,), created),
        Figure(scenario, "first create → all bound", "s", (last - first,)),
        Figure(scenario, "Slurm calls a gang", "", (len(passed),), never_more_than(CALLS)),
        Figure(scenario, "binds a pod", "", (bound_calls / pods,), never_more_than(1)),
        Figure(scenario, "bridge: CPU a pod", "ms", (spent.cpu_s["bridge"] / pods * 1000,)),
        Figure(scenario, "others on this machine", "cores", (spent.others,)),
    ]
