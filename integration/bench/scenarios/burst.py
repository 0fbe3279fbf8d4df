"""Many pods at once on free nodes: how many are bound a second, and what each costs; also where they stand close."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import partial

from integration.bench import costs, relay
from integration.bench.audit import Audit, Requests
from integration.bench.figures import Figure, at_least_times, at_most, at_most_times, never_more_than
from integration.bench.ground import Ground
from integration.bench.load import PLAIN, JobOptions, Stopwatch
from integration.bench.processes import Spent
from integration.bench.relay import Relay
from integration.bench.scenarios import Scenario
from integration.bench.subjects import ACCOUNT, POLLS, Subject

PODS_A_NODE = 40  # of 64 CPUs: there is room
CLOSE = 50


def burst(pods: int) -> Scenario:
    """A burst of *pods* pods."""
    name = f"burst-{pods}"
    nodes = max(4, pods // PODS_A_NODE)
    return Scenario(name, partial(_repeat, name, pods), count=partial(_count, name, pods), nodes=nodes, apart=True)


def packed(pods: int) -> Scenario:
    """A burst of *pods* pods that may run only on half of the nodes and nearly fill them, beside a burst on all nodes."""
    name = f"packed-{pods}"
    few = -(-pods // CLOSE)
    return Scenario(name, partial(_packed, name, pods, few), nodes=2 * few, apart=True)


async def _packed(scenario: str, pods: int, few: int, ground: Ground) -> list[Figure]:
    async def bound(options: JobOptions) -> float:
        async with ground.bridge() as bridge:
            return await bound_per_second(ground, bridge, pods, options)

    nodes = tuple(f"k{number}" for number in range(1, few + 1))
    burst, rate = await ground.in_turn(partial(bound, PLAIN), partial(bound, JobOptions(nodes=nodes)))
    what, target = f"pods bound a second on {few} nodes", at_least_times(0.8)
    return [Figure(scenario, what, "pods/s", (rate,), target, (burst,), "on all nodes")]


async def _repeat(scenario: str, pods: int, ground: Ground) -> list[Figure]:
    best, reached = await ground.in_turn(partial(_floor, pods, ground), partial(_bridge, pods, ground))
    called, asked = reached.called.total(), reached.asked
    return [
        Figure(scenario, "pods bound a second", "pods/s", (reached.rate,), at_least_times(0.9), (best.rate,)),
        Figure(scenario, "Slurm calls a pod", "", (called / pods,), at_most(2.2)),
        Figure(scenario, "pod writes a pod", "", (asked.writes(ACCOUNT, "pods") / pods,), at_most(1)),
        Figure(scenario, "events a pod", "", (asked.writes(ACCOUNT, "events") / pods,), at_most(1)),
        *costs.per_pod(scenario, reached.spent, best.spent, pods, at_most(1.5), at_most_times(1.6)),
        *costs.memory(scenario, reached.spent),
        *(Figure(scenario, f"Slurm: {name} a pod", "", (n / pods,)) for name, n in reached.called.most_common()),
        *(Figure(scenario, f"API: {name} a pod", "", (n / pods,)) for name, n in asked.of(ACCOUNT).most_common()),
    ]


@dataclass(frozen=True, slots=True)
class Best:
    """The result of the floor: pods a second, and the resources that this took."""

    rate: float
    spent: Spent


@dataclass(frozen=True, slots=True)
class Reached(Best):
    """The result of the bridge: also its own calls, and the requests that the API server counted."""

    called: Counter[str]
    asked: Requests


async def _floor(pods: int, ground: Ground) -> Best:
    async with ground.floor() as floor:
        meter = ground.processes.meter()
        rate = await bound_per_second(ground, floor, pods)
        return Best(rate, meter.read())


async def _bridge(pods: int, ground: Ground) -> Reached:
    async with ground.bridge() as bridge:
        ground.processes.forget_peaks()
        called, audit, meter = await bridge.slurm_calls(), Audit(), ground.processes.meter()
        rate = await bound_per_second(ground, bridge, pods)
        await bridge.at_rest()
        spent = meter.read()
        called = await bridge.slurm_calls() - called
    return Reached(rate, spent, called, audit.requests())


async def _count(scenario: str, pods: int, ground: Ground) -> list[Figure]:
    """Bytes, and whether the bridge's own counters show all of its calls."""
    async with Relay(os.environ["SLURM_REST"]) as between, ground.bridge(between.url) as bridge:
        called, known = await bridge.slurm_calls(), len(between.calls)
        await bound_per_second(ground, bridge, pods)
        await bridge.at_rest()
        called = await bridge.slurm_calls() - called
        passed = between.calls[known:]
    counted = sum(number for operation, number in called.items() if operation not in POLLS)
    uncounted = sum(call.operation not in relay.POLLS for call in passed) - counted
    return [
        Figure(scenario, "sent to Slurm a pod", "bytes", (sum(call.sent for call in passed) / pods,)),
        Figure(scenario, "got from Slurm a pod", "bytes", (sum(call.got for call in passed) / pods,)),
        Figure(scenario, "calls missing in /metrics", "", (uncounted,), never_more_than(0)),
    ]


async def bound_per_second(ground: Ground, subject: Subject, pods: int, options: JobOptions = PLAIN) -> float:
    """From the first creation to the last bind."""
    names = [f"p{number}" for number in range(pods)]
    async with Stopwatch(ground.kube, subject.scheduler) as watch:
        await watch.burst(names, options)
        await watch.until_bound(names, within_s=60 + pods / 20)
        return pods / (max(watch.bound.values()) - min(watch.sent.values()))
