"""Ten thousand bound pods: what the bridge costs while nothing happens, how soon one more is bound, and how soon a bridge
that was killed is at work again."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from functools import partial

from integration.bench import costs, relay, subjects
from integration.bench.figures import Figure, at_most, at_most_times, never_more_than
from integration.bench.ground import Ground
from integration.bench.load import Stopwatch, percentile, pod
from integration.bench.relay import Relay
from integration.bench.scenarios import Scenario
from integration.bench.scenarios.one import latency, waits
from integration.bench.subjects import SCHEDULER

PODS_A_NODE = 60  # of 64 CPUs: there is room for more
SINGLE = 100
RESTARTS = 5
POLL, ALL_JOBS = "GET jobs/state/", "GET jobs/"


def bound(pods: int, seconds: float) -> Scenario:
    """So many pods, idle for so long."""
    repeat = partial(_repeat, "bound", pods, seconds)
    nodes = pods // PODS_A_NODE + 4
    return Scenario(
        "bound",
        repeat,
        nodes=nodes,
        repeats=2,
        why="one takes some five minutes, because 10,000 pods are bound first",
        apart=True,
    )


async def _repeat(scenario: str, pods: int, seconds: float, ground: Ground) -> list[Figure]:
    async with ground.bridge() as bridge, Stopwatch(ground.kube, SCHEDULER) as watch:
        names = [f"p{number}" for number in range(pods)]
        await watch.burst(names)
        await watch.until_bound(names, within_s=60 + pods / 20)
        await bridge.at_rest()
    return [
        *await _one_more(scenario, ground),
        *await _restarted(scenario, ground),
        *await _idle(scenario, pods, seconds, ground),
    ]


async def _one_more(scenario: str, ground: Ground) -> list[Figure]:
    """Each of the two is measured twice, once as the first, and begins when the servers have nothing left to do."""
    best, reached = list[float](), list[float]()

    async def floor(turn: int) -> None:
        await ground.servers_at_rest()
        async with ground.floor(cleared=False) as subject:
            best.extend(await waits(ground, subject, SINGLE // 2, f"floor{turn}-"))

    async def bridge(turn: int) -> None:
        await ground.servers_at_rest()
        async with ground.bridge(cleared=False) as subject:
            reached.extend(await waits(ground, subject, SINGLE // 2, f"single{turn}-"))

    for turn in (ground.turn, ground.turn + 1):
        await replace(ground, turn=turn).in_turn(partial(floor, turn), partial(bridge, turn))
    return [
        latency(scenario, 0.5, reached, at_most_times(3), best),
        latency(scenario, 0.99, reached, None, best),
    ]


async def _restarted(scenario: str, ground: Ground) -> list[Figure]:
    """Killed, and started again in the moment in which a pod is created."""
    took = []
    for number in range(RESTARTS):
        name = f"restart{number}"
        async with Stopwatch(ground.kube, SCHEDULER) as watch:
            began = time.perf_counter()
            with ground.launched() as process:
                await watch.create(name, pod(name, SCHEDULER))
                await watch.until_bound([name], within_s=60)
                took.append(watch.bound[name] - began)
                process.kill()
    return [
        Figure(scenario, "restart → a pod is bound, median", "s", (percentile(took, 0.5),), at_most(1.5)),
        Figure(scenario, "restart → a pod is bound, longest", "s", (max(took),)),
    ]


async def _idle(scenario: str, pods: int, seconds: float, ground: Ground) -> list[Figure]:
    async with Relay(os.environ["SLURM_REST"]) as between:
        with ground.launched(between.url) as process:
            bridge = await subjects.until_ready(process)
            with ground.processes.watched(bridge.name, bridge.pid):
                await bridge.at_rest()
                known, meter = len(between.calls), ground.processes.meter()
                await asyncio.sleep(seconds)  # this is what is measured
                spent, calls, jobs = meter.read(), between.calls[known:], await ground.all_jobs()
    polls = [call.got / jobs for call in calls if call.operation == POLL]
    return [
        Figure(scenario, "idle: Slurm calls a second", "", (relay.rate(calls),), at_most(1)),
        Figure(scenario, "idle: a poll, for each job", "bytes", (percentile(polls, 0.5),), at_most(90)),
        *costs.of_a_core(scenario, spent, at_most(2)),
        *costs.memory(scenario, spent, at_most(150)),
        Figure(
            scenario,
            "GET /jobs since the start",
            "",
            (sum(c.operation == ALL_JOBS for c in between.calls),),
            never_more_than(0),
        ),
    ]
