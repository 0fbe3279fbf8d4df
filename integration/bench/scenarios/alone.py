"""The bridge against simulated clusters, without a rig: what the bridge itself costs, in a burst and at a restart."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from integration.bench import subjects
from integration.bench.figures import Figure, at_least, at_most, at_most_times
from integration.bench.load import percentile
from integration.bench.processes import Meter, Processes, Spent
from integration.bench.profile import profiled_if
from integration.bench.scenarios import Scenario
from integration.bench.simulated import CPUS_A_NODE, Simulated, simulated
from integration.otlp import receiver

PODS_A_NODE = 40  # of 64 CPUs: there is room
WARM_UP = 50
RESTARTS = 5
METERED_BURSTS = 5
TIMED_FOLDER, TIMED = Path(__file__).parent.parent / "timed", ("metrics", "traces", "sending")
SCRAPES = 20
SCRAPE_EVERY_S = 15  # Prometheus' default is a minute; many sites have 15 s
SENT_SOON = {"OTEL_BSP_SCHEDULE_DELAY": "500"}  # ms, so that what is measured includes the sending
MS_PER_S = 1000
FEW = 100
PODS_A_FULL_NODE = 60  # of 64 CPUs: there is room for a small pod, and none for a pod that asks for a whole node
MORE, MORE_EVERY_S = 100, 0.083
ENDS_EVERY_S = 1 / 200


def alone(pods: int) -> Scenario:
    """A burst of *pods* pods."""
    return Scenario(f"alone-{pods}", alone=partial(_burst, f"alone-{pods}", pods), apart=True)


def alone_gang(pods: int) -> Scenario:
    """One gang of *pods* pods."""
    return Scenario("alone-gang", alone=partial(_gang, "alone-gang", pods), apart=True)


def alone_bound(pods: int) -> Scenario:
    """So many bound pods, and the bridge is started again."""
    return Scenario("alone-bound", alone=partial(_restarted, "alone-bound", pods), apart=True)


def alone_ends(pods: int) -> Scenario:
    """The jobs of so many pods end, 200 a second."""
    return Scenario("alone-ends", alone=partial(_ends, "alone-ends", pods), apart=True)


def alone_large(pods: int, waiting: int) -> Scenario:
    """So many running pods and so many that wait; also one more pod, beside 100 running pods and beside all of them."""
    why = "one takes minutes, because 55,000 pods are created and four bridges start"
    return Scenario("alone-large", alone=partial(_large, "alone-large", pods, waiting), repeats=1, why=why)


def alone_metered(pods: int) -> Scenario:
    """Bursts of *pods* pods by bridges that take the time of their metrics and traces; and scrapes."""
    why = "one has five bursts, and a value of each"
    return Scenario("alone-metered", alone=partial(_metered, "alone-metered", pods), repeats=1, why=why)


async def _burst(scenario: str, pods: int, folder: Path, profile: Path | None) -> list[Figure]:
    async with simulated(folder, _nodes(pods)) as both:
        took_s, spent = await _one_burst(both, pods, profile)
    return _of_a_burst(scenario, pods, took_s, spent)


async def _gang(scenario: str, pods: int, folder: Path, profile: Path | None) -> list[Figure]:
    async with simulated(folder, _nodes(pods)) as both:
        took_s, spent = await _one_burst(both, pods, profile, gang="ring")
    return [
        Figure(scenario, "bridge: CPU a pod", "ms", (spent.cpu_s["bridge"] / pods * MS_PER_S,)),
        Figure(scenario, "first create → all bound", "s", (took_s,)),
    ]


async def _one_burst(
    both: Simulated, pods: int, profile: Path | None = None, *, gang: str = "", **environment: str
) -> tuple[float, Spent]:
    """Seconds, and what the bridge spent; all pods are gone afterwards."""
    async with _warm(both, **environment) as bridge:
        processes = Processes()
        with processes.watched(bridge.name, bridge.pid), profiled_if(bridge.pid, profile):
            meter, began = processes.meter(), time.perf_counter()
            await _bind(both, "p", pods, gang)
            took_s = time.perf_counter() - began
            await both.at_rest(within_s=60)
            spent = meter.read()
        await both.end_all(within_s=60)
    return took_s, spent


@asynccontextmanager
async def _warm(both: Simulated, **environment: str) -> AsyncIterator[subjects.Bridge]:
    """A bridge that has bound some pods."""
    with both.launched(**environment) as process:
        bridge = await subjects.until_ready(process)
        await _bind(both, "warm", WARM_UP)
        await both.end_all(within_s=60)
        await both.at_rest(within_s=60)
        yield bridge


async def _metered(scenario: str, pods: int, folder: Path, profile: Path | None) -> list[Figure]:
    """Each pod is bound, runs and ends; all of its spans are sent."""
    more: dict[str, list[float]] = {kind: [] for kind in TIMED}
    cost_ms: dict[str, list[float]] = {kind: [] for kind in TIMED}
    with receiver() as received:
        given = {"PYTHONPATH": str(TIMED_FOLDER), "OTEL_EXPORTER_OTLP_ENDPOINT": received.endpoint} | SENT_SOON
        async with simulated(folder, _nodes(pods)) as both:
            for _ in range(METERED_BURSTS):
                async with _warm(both, **given) as bridge:
                    processes, before_s = Processes(), await _timed_s(bridge)
                    with processes.watched(bridge.name, bridge.pid), profiled_if(bridge.pid, profile):
                        meter = processes.meter()
                        await _bind(both, "p", pods)
                        await both.at_rest(within_s=60)
                        await both.end_all(within_s=60)
                        await both.at_rest(within_s=60)
                        spent_s = meter.read().cpu_s["bridge"]
                    took_s = {kind: now_s - before_s[kind] for kind, now_s in (await _timed_s(bridge)).items()}
                without_s = spent_s - sum(took_s.values())
                for kind, seconds in took_s.items():
                    more[kind].append(seconds / without_s * 100)
                    cost_ms[kind].append(seconds / pods * MS_PER_S)
            scrape_s = await _scraped(both, pods)
    return [
        Figure(scenario, "metrics: CPU a pod", "ms", tuple(cost_ms["metrics"])),
        Figure(scenario, "metrics: more CPU of the bridge", "%", tuple(more["metrics"])),
        Figure(scenario, "traces: CPU a pod, in the loop", "ms", tuple(cost_ms["traces"])),
        Figure(scenario, "traces: more CPU of the bridge, in the loop", "%", tuple(more["traces"])),
        Figure(scenario, "traces: CPU a pod, sending", "ms", tuple(cost_ms["sending"])),
        Figure(scenario, "traces: more CPU of the bridge, sending", "%", tuple(more["sending"])),
        Figure(scenario, f"a scrape every {SCRAPE_EVERY_S} s: CPU", "% of a core", (scrape_s / SCRAPE_EVERY_S * 100,)),
    ]


async def _timed_s(bridge: subjects.Bridge) -> dict[str, float]:
    """Processor time until now, in seconds, by what took it, of a bridge with the folder `timed`."""
    found = re.findall(r'^bench_cpu_seconds\{.*?of="(\w+)".*?\} (\S+)$', await bridge.scrape(), re.MULTILINE)
    return {kind: float(seconds) for kind, seconds in found}


async def _scraped(both: Simulated, pods: int) -> float:
    """Processor time of the bridge for a scrape, in seconds, while so many pods are bound."""
    async with _warm(both) as bridge:
        await _bind(both, "s", pods)
        await both.at_rest(within_s=60)
        processes = Processes()
        with processes.watched(bridge.name, bridge.pid):
            meter = processes.meter()
            for _ in range(SCRAPES):
                await bridge.scrape()
            spent = meter.read()
        await both.end_all(within_s=60)
    return spent.cpu_s["bridge"] / SCRAPES


def _of_a_burst(scenario: str, pods: int, took_s: float, spent: Spent) -> list[Figure]:
    cpu_s = spent.cpu_s["bridge"]
    computed = (
        "pods a second on one core, computed as 1 / CPU a pod"  # the simulated clusters are slower than the bridge
    )
    return [
        Figure(scenario, "bridge: CPU a pod", "ms", (cpu_s / pods * MS_PER_S,), at_most(1.5)),
        Figure(scenario, computed, "pods/s", (pods / cpu_s,), at_least(700), (pods / took_s,), "observed"),
        Figure(scenario, "bridge: peak memory", "MiB", (spent.peak_mib["bridge"],)),
    ]


async def _restarted(scenario: str, pods: int, folder: Path, profile: Path | None) -> list[Figure]:
    took, cpu, peak = [], [], []
    async with simulated(folder, _nodes(pods)) as both:
        both.preload(pods)
        for number in range(RESTARTS):
            began = time.perf_counter()
            with both.launched() as process, profiled_if(process.pid, profile):
                processes = Processes()
                with processes.watched("bridge", process.pid):
                    meter = Meter(processes)
                    await _bind(both, f"restart{number}-", 1)
                    took.append(time.perf_counter() - began)
                    spent = meter.read()
                cpu.append(spent.cpu_s["bridge"])
                peak.append(spent.peak_mib["bridge"])
                process.kill()
    return [
        Figure(scenario, "restart → a pod is bound, median", "s", (percentile(took, 0.5),), at_most(1.5)),
        Figure(scenario, "restart → a pod is bound: CPU of the bridge, median", "s", (percentile(cpu, 0.5),)),
        Figure(scenario, "bridge: peak memory, median", "MiB", (percentile(peak, 0.5),), at_most(150)),
    ]


async def _ends(scenario: str, pods: int, folder: Path, profile: Path | None) -> list[Figure]:
    async with simulated(folder, _nodes(pods)) as both:
        with both.launched() as process:
            bridge = await subjects.until_ready(process)
            await _bind(both, "warm", WARM_UP)  # they run on: a list that lacks no job shows that Slurm goes on
            await _bind(both, "p", pods)
            await bridge.at_rest()
            processes = Processes()
            with processes.watched(bridge.name, bridge.pid), profiled_if(bridge.pid, profile):
                called, meter = await bridge.slurm_calls(), processes.meter()
                waits = await both.end_jobs(
                    [f"p{number}" for number in range(pods)], every_s=ENDS_EVERY_S, within_s=120
                )
                spent, called = meter.read(), await bridge.slurm_calls() - called
    last = waits[-len(waits) // 10 :]
    return [
        Figure(scenario, "200 jobs end a second: the last tenth, p99", "s", (percentile(last, 0.99),), at_most(2.5)),
        Figure(scenario, "200 jobs end a second: p50", "s", (percentile(waits, 0.5),)),
        Figure(scenario, "bridge: CPU an end", "ms", (spent.cpu_s["bridge"] / pods * MS_PER_S,)),
        Figure(scenario, "reads of jobs an end", "", (called["job"] / pods,)),
    ]


async def _large(scenario: str, pods: int, waiting: int, folder: Path, profile: Path | None) -> list[Figure]:
    async with simulated(folder, _nodes(pods)) as both:
        both.preload(FEW)
        few_s, few_cpu_ms, _ = await _one_by_one(both, "few")
    async with simulated(folder, (pods + WARM_UP + 2 * MORE) // PODS_A_FULL_NODE + 1) as both:
        both.preload(pods)
        many_s, many_cpu_ms, bound_mib = await _one_by_one(both, "many", profile)
        with both.launched() as process:
            bridge = await subjects.until_ready(process)
            await both.create([f"waits{number}" for number in range(waiting)], cpus=CPUS_A_NODE)
            # All of them show why they wait ten minutes later, at eight reads a second; that goes on meanwhile.
            await both.until_queued(waiting, within_s=300 + waiting / 10)
            processes = Processes()
            with processes.watched(bridge.name, bridge.pid):
                before, meter = await bridge.passes(), processes.meter()
                await both.create_each([f"more{number}" for number in range(MORE)], every_s=MORE_EVERY_S)
                passes, spent = await bridge.passes() - before, meter.read()
    beside = f"beside {FEW} pods"
    return [
        Figure(scenario, "one more pod: create → bind, p50", "s", (many_s,), at_most_times(2), (few_s,), beside),
        Figure(scenario, "one more pod: CPU of the bridge", "ms", (many_cpu_ms,), None, (few_cpu_ms,), beside),
        Figure(scenario, "a pass, p99: at most", "ms", (subjects.pass_bound(passes, 0.99) * MS_PER_S,), at_most(50)),
        Figure(scenario, "passes", "", (max(passes.values()),)),
        Figure(scenario, "bridge: peak memory, running pods alone", "MiB", (bound_mib,)),
        Figure(scenario, "bridge: peak memory", "MiB", (spent.peak_mib["bridge"],), at_most(700)),
        Figure(
            scenario,
            "bridge: CPU, pods that wait beside",
            "% of a core",
            (spent.cpu_s["bridge"] / spent.seconds * 100,),
        ),
    ]


async def _one_by_one(both: Simulated, prefix: str, profile: Path | None = None) -> tuple[float, float, float]:
    """Create to bind of one more pod, in s; its CPU time in the bridge, in ms; the bridge's peak memory, in MiB."""
    with both.launched() as process:
        bridge = await subjects.until_ready(process)
        await _bind(both, f"{prefix}-warm", WARM_UP)
        await both.end_all(f"{prefix}-warm", within_s=60)
        await bridge.at_rest(within_s=600)
        processes = Processes()
        with processes.watched(bridge.name, bridge.pid), profiled_if(bridge.pid, profile):
            meter = processes.meter()
            waits = await both.bind_each([f"{prefix}{number}" for number in range(MORE)], every_s=MORE_EVERY_S)
            spent = meter.read()
    return percentile(waits, 0.5), spent.cpu_s["bridge"] / MORE * MS_PER_S, spent.peak_mib["bridge"]


async def _bind(both: Simulated, prefix: str, pods: int, gang: str = "") -> None:
    """Create pods, and wait until they are bound."""
    bound = both.bound
    await both.create([f"{prefix}{number}" for number in range(pods)], gang)
    await both.until_bound(bound + pods, within_s=300 + pods / 20)


def _nodes(pods: int) -> int:
    return max(4, pods // PODS_A_NODE)
