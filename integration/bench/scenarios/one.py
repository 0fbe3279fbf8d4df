"""One pod at a time on free nodes: how long it waits to be bound."""

from __future__ import annotations

from functools import partial

from integration.bench import costs
from integration.bench.figures import Figure, Target, at_most, at_most_times
from integration.bench.ground import Ground
from integration.bench.load import PLAIN, JobOptions, Stopwatch, percentile
from integration.bench.processes import Spent
from integration.bench.scenarios import Scenario
from integration.bench.subjects import Subject

EVERY_S = 0.083  # no part of a second, so that pods come at all moments of what the bridge does once a second
MS_PER_S = 1000


def one(pods: int) -> Scenario:
    """So many in a repeat."""
    return Scenario("one", partial(_repeat, "one", pods))


async def _repeat(scenario: str, pods: int, ground: Ground) -> list[Figure]:
    async def measured(subject: Subject) -> tuple[list[float], Spent]:
        meter = ground.processes.meter()
        return await waits(ground, subject, pods), meter.read()

    async def floor() -> tuple[list[float], Spent]:
        async with ground.floor() as subject:
            return await measured(subject)

    async def bridge() -> tuple[list[float], Spent]:
        async with ground.bridge() as subject:
            return await measured(subject)

    (best, best_spent), (reached, spent) = await ground.in_turn(floor, bridge)
    return [
        latency(scenario, 0.5, reached, at_most_times(2), best),
        latency(scenario, 0.9, reached, None, best),
        latency(scenario, 0.99, reached, at_most(100), best),
        latency(scenario, 1, reached, None, best),
        *costs.per_pod(scenario, spent, best_spent, pods),
    ]


async def waits(
    ground: Ground, subject: Subject, pods: int, prefix: str = "p", options: JobOptions = PLAIN
) -> list[float]:
    """Create to bind of pods that come one by one, in seconds."""
    names = [f"{prefix}{number}" for number in range(pods)]
    async with Stopwatch(ground.kube, subject.scheduler) as watch:
        await watch.one_by_one(names, options, every_s=EVERY_S)
        await watch.until_bound(names, within_s=60)
        return watch.waits(names)


def latency(scenario: str, share: float, waited: list[float], target: Target | None, best: list[float]) -> Figure:
    """The figure of the time from creation to bind.  share: 0.5 for p50, 1 for the longest."""
    name = f"create → bind, {'max' if share == 1 else f'p{share * 100:g}'}"
    values = (percentile(waited, share) * MS_PER_S,), (percentile(best, share) * MS_PER_S,)
    return Figure(scenario, name, "ms", values[0], target, values[1])
