"""Many pods at once on free nodes: how many are bound a second, and what each costs."""

from __future__ import annotations

from functools import partial

from integration.bench import counters
from integration.bench.figures import Figure, at_least_floors, at_most
from integration.bench.ground import Ground
from integration.bench.load import Stopwatch
from integration.bench.scenarios import Scenario
from integration.bench.subjects import Subject

MS = 1000


def burst(pods: int) -> Scenario:
    """That many pods."""
    name = f"burst-{pods}"
    return Scenario(name, partial(_repeat, name, pods), nodes=max(4, pods // 40), apart=True)


async def _repeat(scenario: str, pods: int, ground: Ground) -> list[Figure]:
    names = [f"p{number}" for number in range(pods)]

    async with ground.floor() as subject:
        ground.processes.named["floor"] = subject.pid
        before = ground.processes.usage()
        floor = await _bound_per_second(ground, subject, names)
        floor_cpu = counters.spent(before, ground.processes.usage())
        del ground.processes.named["floor"]
    async with ground.bridge() as bridge:
        calls, before = await bridge.calls("slurm"), ground.processes.usage()
        ground.processes.forget_peaks()
        reached = await _bound_per_second(ground, bridge, names)
        await bridge.at_rest()
        usage = ground.processes.usage()
        cpu = counters.spent(before, usage)
        called = counters.difference(await bridge.calls("slurm"), calls)
    per_pod = {operation: number / pods for operation, number in called.items()}
    return [
        Figure(scenario, "pods bound a second", "pods/s", (reached,), at_least_floors(0.8), (floor,)),
        Figure(scenario, "Slurm calls a pod", "", (sum(per_pod.values()),), at_most(2.2)),
        Figure(
            scenario,
            "bridge CPU a pod",
            "ms",
            (cpu["bridge"] / pods * MS,),
            at_most(1.0),
            (floor_cpu["floor"] / pods * MS,),
        ),
        *(
            Figure(scenario, f"{name} CPU a pod", "ms", (cpu[name] / pods * MS,), None, (floor_cpu[name] / pods * MS,))
            for name in ("slurmctld", "slurmrestd", "kube-apiserver", "etcd", "kwok")
        ),
        Figure(scenario, "bridge memory, peak", "MiB", (usage["bridge"].peak_mib,)),
    ]


async def _bound_per_second(ground: Ground, subject: Subject, names: list[str]) -> float:
    """From the first creation to the last bind."""
    async with Stopwatch(ground.kube, subject.scheduler) as watch:
        await watch.burst(names)
        await watch.until_bound(names, within_s=60 + len(names) / 20)
        return len(names) / (max(watch.bound.values()) - min(watch.sent.values()))
