"""What metrics and traces cost of the rate of a burst: bursts with both, one of them, or neither, in turn on one rig.

Traces go to a program that takes them and keeps nothing.  A bridge without metrics is a bridge with the folder `unmetered`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from integration.bench.figures import Figure, Target, at_least_times
from integration.bench.ground import Ground
from integration.bench.processes import Spent
from integration.bench.scenarios import Scenario
from integration.bench.scenarios.burst import PODS_A_NODE, bound_per_second
from integration.otlp import sink

UNMETERED = {"PYTHONPATH": str(Path(__file__).parent.parent / "unmetered")}
MS_PER_S = 1000
AS_USUAL, TRACED, BARE = "metrics", "metrics and traces", "neither"


def metered(pods: int) -> Scenario:
    """Bursts of *pods* pods: with metrics, as usual; with metrics and traces; with neither."""
    name = f"metered-{pods}"
    nodes = max(4, pods // PODS_A_NODE)
    return Scenario(name, partial(_repeat, name, pods), nodes=nodes, repeats=6, apart=True)


async def _repeat(scenario: str, pods: int, ground: Ground) -> list[Figure]:
    with sink() as endpoint:
        given: dict[str, Mapping[str, str]] = {
            AS_USUAL: {},
            TRACED: {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "500"},
            BARE: UNMETERED,
        }
        order = list(given)  # the later a burst, the fuller the clusters: each takes each place in turn
        order = order[ground.turn % 3 :] + order[: ground.turn % 3]
        found = {which: await _burst(pods, ground, given[which]) for which in order}
    (rate, spent), (traced, more), (bare, less) = found[AS_USUAL], found[TRACED], found[BARE]

    def figure(name: str, unit: str, value: float, without: str, compared: float, target: Target | None) -> Figure:
        return Figure(scenario, name, unit, (value,), target, (compared,), f"without {without}")

    cpu, cpu_more, cpu_less = (_ms(each, pods) for each in (spent, more, less))
    return [
        figure("pods bound a second, with metrics", "pods/s", rate, "metrics", bare, at_least_times(0.98)),
        figure("pods bound a second, also with traces", "pods/s", traced, "traces", rate, at_least_times(0.95)),
        figure("bridge: CPU a pod, with metrics", "ms", cpu, "metrics", cpu_less, None),
        figure("bridge: CPU a pod, also with traces", "ms", cpu_more, "traces", cpu, None),
        Figure(scenario, "others on this machine", "cores", (spent.others,)),
    ]


async def _burst(pods: int, ground: Ground, environment: Mapping[str, str]) -> tuple[float, Spent]:
    """Pods a second, and what was spent until all pods run and all is sent."""
    async with ground.bridge(environment=environment) as bridge:
        meter = ground.processes.meter()
        rate = await bound_per_second(ground, bridge, pods)
        await bridge.at_rest()
        return rate, meter.read()


def _ms(spent: Spent, pods: int) -> float:
    return spent.cpu_s["bridge"] / pods * MS_PER_S
