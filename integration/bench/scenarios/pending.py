"""Many pods that wait: what the bridge asks of Slurm meanwhile, and what it writes on them."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial

from integration.bench import costs, relay
from integration.bench.audit import Audit
from integration.bench.clients import Condition, Kube, Pod
from integration.bench.figures import Figure, at_most, never_more_than
from integration.bench.following import Following, eventually
from integration.bench.ground import Ground
from integration.bench.load import Stopwatch
from integration.bench.relay import Relay
from integration.bench.scenarios import Scenario
from integration.bench.subjects import ACCOUNT, SCHEDULER

POLL, DETAIL = "GET jobs/state/", "GET job/N"
# slurmctld computes expected starts that often; the bridge sees the new ones when it has read all jobs once more.
BACKFILL_S = 30
DETAIL_RATE = 8


def pending(pods: int, seconds: float) -> Scenario:
    """So many pods for so long."""
    repeat = partial(_repeat, "pending", pods, seconds)
    why = "each takes some five minutes"
    return Scenario("pending", repeat, nodes=4, repeats=3, why=why, apart=True, judges=("K1", "V8", "L1"))


async def _repeat(scenario: str, pods: int, seconds: float, ground: Ground) -> list[Figure]:
    names = [f"p{number}" for number in range(pods)]
    async with Relay(os.environ["SLURM_REST"]) as between, ground.bridge(between.url):
        await ground.fill()
        ground.processes.forget_peaks()
        async with Conditions(ground.kube) as said, Stopwatch(ground.kube, SCHEDULER) as watch:
            await watch.burst(names)
            await said.until_on_all(names, within_s=60 + pods / 5)
            await said.until_quiet(BACKFILL_S + pods / DETAIL_RATE, within_s=600 + pods / 2)
            known, audit, meter = len(between.calls), Audit(), ground.processes.meter()
            await asyncio.sleep(seconds)  # this is what is measured
            calls, spent = between.calls[known:], meter.read()
            writes = audit.requests().writes(ACCOUNT, "pods")
    polls = [call for call in calls if call.operation == POLL]
    details = [call for call in calls if call.operation == DETAIL]
    others = len(calls) - len(polls) - len(details)
    return [
        Figure(scenario, "polls a second", "", (relay.rate(polls),), at_most(2)),
        Figure(scenario, "detail calls a second", "", (relay.rate(details),), at_most(8)),
        Figure(scenario, "detail calls in the busiest second", "", (relay.busiest_second(details),)),
        Figure(scenario, "other calls a second", "", (others / spent.seconds,)),
        Figure(scenario, "conditions written again unchanged", "", (said.repeated,), never_more_than(0)),
        Figure(scenario, "pod writes in that time", "", (writes,), never_more_than(0)),
        *costs.of_a_core(scenario, spent),
        *costs.memory(scenario, spent),
    ]


class Conditions(Following):
    """The conditions of waiting pods, followed while this context manager is entered.

    repeated   how many writes left every condition as it was, but for its time
    changed    when a condition was written last, seconds of a clock that never jumps
    """

    def __init__(self, kube: Kube) -> None:
        super().__init__(kube, f"spec.schedulerName={SCHEDULER},spec.nodeName=")
        self._said: dict[str, tuple[Condition, ...]] = {}
        self.repeated = 0
        self.changed = time.monotonic()

    def observe(self, kind: str, pod: Pod) -> None:
        """A write that changes nothing else shows as a change, too: it has another time."""
        name, said = pod.metadata.name, pod.conditions
        if kind == "MODIFIED" and said == self._said.get(name, ()):
            self.repeated += 1
        self._said[name] = said
        self.changed = time.monotonic()

    async def until_on_all(self, names: list[str], *, within_s: float) -> None:
        """Wait until each of these pods has a condition of the bridge.  Raises BenchError."""
        await self.until(
            lambda: all(map(self._said.get, names)),
            lambda: f"{sum(not self._said.get(name) for name in names)} of {len(names)} pods were told nothing",
            within_s=within_s,
        )

    async def until_quiet(self, seconds: float, *, within_s: float) -> None:
        """Wait until no condition was written for so long: Slurm tells nothing new.  Raises BenchError."""

        async def is_quiet() -> bool:
            return time.monotonic() > self.changed + seconds

        await eventually(f"no condition is written for {seconds:g} s", is_quiet, within_s=within_s, every_s=1.0)
