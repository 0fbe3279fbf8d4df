"""A gang of one shape on free nodes: how long until all of it is bound, and what it asks of Slurm.

There is no floor beside it: a gang is one job, and what is left to do is a burst of binds, which has a floor of its own.
"""

from __future__ import annotations

import os
from functools import partial

from integration.bench import relay
from integration.bench.figures import Figure, at_most, never_more_than
from integration.bench.ground import Ground
from integration.bench.load import JobOptions, Stopwatch
from integration.bench.relay import Relay
from integration.bench.scenarios import Scenario

CPUS_A_NODE = 64
GRANT = "GET resources/N"
CALLS = 2  # the job, and what it was granted; of several shapes one more each


def gang(pods: int, *, granted_s: float, created_s: float) -> Scenario:
    """The scenario with one gang of *pods* pods.

    granted_s, created_s   the longest that is asked for, since the grant and since the last creation
    """
    name = f"gang-{pods}"
    nodes = max(4, 2 * pods // CPUS_A_NODE)
    return Scenario(name, partial(_repeat, name, pods, granted_s, created_s), nodes=nodes)


async def _repeat(scenario: str, pods: int, granted_s: float, created_s: float, ground: Ground) -> list[Figure]:
    names = [f"ring-{number}" for number in range(pods)]
    # The relay costs some tenths of a millisecond a call, and there are two.
    async with Relay(os.environ["SLURM_REST"]) as between, ground.bridge(between.url) as bridge:
        known, meter = len(between.calls), ground.processes.meter()
        async with Stopwatch(ground.kube, bridge.scheduler) as watch:
            await watch.burst(names, JobOptions(gang="ring"))
            await watch.until_bound(names, within_s=60 + pods / 20)
        await bridge.at_rest()
        spent = meter.read()
        passed = [call for call in between.calls[known:] if call.operation not in relay.POLLS]
    granted = min(call.at for call in passed if call.operation == GRANT)
    last = max(watch.bound.values())
    created, first = max(watch.sent.values()), min(watch.sent.values())
    return [
        Figure(scenario, "grant observed → all bound", "s", (last - granted,), at_most(granted_s)),
        Figure(scenario, "last create → all bound", "s", (last - created,), at_most(created_s)),
        Figure(scenario, "first create → all bound", "s", (last - first,)),
        Figure(scenario, "Slurm calls a gang", "", (len(passed),), never_more_than(CALLS)),
        Figure(scenario, "bridge: CPU a pod", "ms", (spent.cpu_s["bridge"] / pods * 1000,)),
        Figure(scenario, "others on this machine", "cores", (spent.others,)),
    ]
