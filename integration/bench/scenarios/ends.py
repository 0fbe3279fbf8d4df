"""Ten thousand running pods, of which some end, or their jobs do: how soon the other side follows, one by one and amid many.

A pod ends when the API server has answered the patch of its status that says so; its job has ended when slurmctld says so,
asked about those that are awaited, over and over.  A job ends when slurmctld has answered its cancellation; its pod is
being deleted when the benchmark's own watch shows it.  All ends come at times fixed beforehand, whatever happened to earlier
ends, so a program that falls behind is later with each end: that shows in the last ends.

An end of a job is a cancellation, two writes to the API server and two more of the simulated kubelet, and 200 a second are
more than a small machine takes.  So the floor is shown beside the bridge: as many jobs of the floor's own pods are cancelled
at the same times, while no bridge runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from integration.bench import costs
from integration.bench.clients import NAMESPACE, PODS, BenchError, Kube, Pod, Slurm
from integration.bench.figures import Figure, Target, at_most
from integration.bench.following import eventually
from integration.bench.ground import Ground
from integration.bench.load import JobOptions, Stopwatch, at_times, percentile
from integration.bench.processes import Spent
from integration.bench.scenarios import Scenario
from integration.bench.subjects import Subject
from integration.clusters import ENDED
from scheduler.names import JOB_ID

PODS_A_NODE = 60  # of 64 CPUs
SINGLE_EVERY_S = 0.083  # no part of a second, so that ends come at all moments of what the bridge does once a second
MANY_EVERY_S = 1 / 200
SINGLES, MANY = 50, 5  # a fiftieth of the pods ends one by one, and a fifth all together; the same again of their jobs
LOOK_EVERY_S = 0.01
LOOKED_AT_MOST = 200  # jobs that are asked about in one call
SLOWEST = 20  # ends a second: the wait for a slower program is cut
MERGE = "application/merge-patch+json"
SUCCEEDED = b'{"status":{"phase":"Succeeded"}}'
POLLS = "states"

Times = dict[str, float]


def ends(pods: int) -> Scenario:
    """The scenario in which some of *pods* running pods end."""
    nodes = pods // PODS_A_NODE + 4
    return Scenario(
        "ends",
        partial(_repeat, "ends", pods),
        nodes=nodes,
        repeats=2,
        why="one takes some five minutes, because 10,000 pods are bound first",
        apart=True,
    )


async def _repeat(scenario: str, pods: int, ground: Ground) -> list[Figure]:
    names = iter(f"p{number}" for number in range(pods))

    def some(share: int) -> list[str]:
        return [next(names) for _ in range(pods // share)]

    async with ground.bridge() as bridge, Ends(ground.kube, ground.slurm, bridge) as watch:
        await watch.burst([f"p{number}" for number in range(pods)], JobOptions(owner=await _owner(ground.kube)))
        await watch.until_bound([f"p{number}" for number in range(pods)], within_s=60 + pods / 20)
        await bridge.at_rest(within_s=120 + pods / 20)
        polled, polled_at, meter = (await bridge.slurm_calls())[POLLS], time.perf_counter(), ground.processes.meter()
        singles = some(SINGLES), some(SINGLES)
        single_pods = await watch.pods_end(singles[0], every_s=SINGLE_EVERY_S)
        single_jobs = await watch.jobs_end(singles[1], every_s=SINGLE_EVERY_S)
        poll_bytes = await _poll_bytes(ground.slurm)
        many_pods = await watch.pods_end(some(MANY), every_s=MANY_EVERY_S)
        ends_meter = ground.processes.meter()
        many_jobs = await watch.jobs_end(some(MANY), every_s=MANY_EVERY_S)
        ends_spent = ends_meter.read()
        polls = ((await bridge.slurm_calls())[POLLS] - polled) / (time.perf_counter() - polled_at)
        spent = meter.read()
    floor, floor_spent = await _floor(pods // MANY, ground)
    return [
        *_waits(scenario, "pod end → job end", single_pods, at_most(0.1), None),
        *_waits(scenario, "job end → deletion", single_jobs, at_most(1.1), at_most(2.5)),
        *_through(scenario, "200 pods end a second", many_pods),
        *_through(scenario, "200 jobs end a second", many_jobs, floor),
        *costs.of_ends(scenario, "200 jobs end a second", ends_spent, floor_spent, pods // MANY),
        Figure(scenario, "polls a second", "", (polls,), at_most(1)),
        Figure(scenario, "a poll, for each job", "bytes", (poll_bytes,), at_most(90)),
        *costs.of_a_core(scenario, spent),
        *costs.memory(scenario, spent),
    ]


async def _floor(ends: int, ground: Ground) -> tuple[list[float], Spent]:
    """How long the floor takes from the end of a job to the deletion of its pod, beside what the bridge left behind."""
    names = [f"f{number}" for number in range(ends)]
    async with ground.floor(cleared=False, ends=True) as subject, Ends(ground.kube, ground.slurm, subject) as watch:
        await watch.burst(names, JobOptions(owner=await _owner(ground.kube)))
        await watch.until_bound(names, within_s=60 + ends / 20)

        async def run() -> bool:
            running = f"fieldSelector=status.phase=Running,spec.schedulerName={subject.scheduler}"
            return len((await ground.kube.json("GET", f"{PODS}?{running}"))["items"]) >= ends

        await eventually("the pods of the floor run", run, within_s=_patience_s(names), every_s=2.0)
        meter = ground.processes.meter()
        waits = await watch.jobs_end(names, every_s=MANY_EVERY_S)
        return waits, meter.read()


def _waits(scenario: str, what: str, waits: list[float], p50: Target, p99: Target | None) -> list[Figure]:
    return [
        Figure(scenario, f"{what}, p50", "s", (percentile(waits, 0.5),), p50),
        Figure(scenario, f"{what}, p99", "s", (percentile(waits, 0.99),), p99),
    ]


def _through(scenario: str, what: str, waits: list[float], floor: Sequence[float] = ()) -> list[Figure]:
    """Figures of the first and the last tenth: if the bridge keeps up, the last tenth takes no longer than the first."""

    def figure(name: str, part: slice, share: float, target: Target | None = None) -> Figure:
        compared = (percentile(floor[part], share),) if floor else ()
        return Figure(scenario, f"{what}: {name}", "s", (percentile(waits[part], share),), target, compared)

    tenth = -(-len(waits) // 10)
    return [
        figure("the last tenth, p99", slice(-tenth, None), 0.99, at_most(2.5, or_times=1.3 if floor else None)),
        figure("the first tenth, p99", slice(tenth), 0.99),
        figure("p50", slice(None), 0.5),
    ]


class Ends(Stopwatch):
    """Follows pods and jobs to their ends.

    deleted     when a pod was seen on its way out, by pod
    job_of      the id of its job, by pod
    job_ended   when its job was seen to have ended, by pod
    """

    def __init__(self, kube: Kube, slurm: Slurm, subject: Subject) -> None:
        super().__init__(kube, subject.scheduler)
        self._slurm = slurm
        # An admin cancels the floor's jobs: the checker would take a cancellation as the tenant for the bridge's.
        self.deleted: Times = {}
        self.job_of: dict[str, str] = {}
        self.job_ended: Times = {}

    def observe(self, kind: str, pod: Pod) -> None:
        """One change."""
        super().observe(kind, pod)
        if kind == "ADDED":
            self.job_of[pod.metadata.name] = pod.metadata.annotations[JOB_ID]
        if pod.metadata.deleted or kind == "DELETED":
            self.deleted.setdefault(pod.metadata.name, time.perf_counter())

    async def pods_end(self, names: Sequence[str], *, every_s: float) -> list[float]:
        """Pods succeed; how long each job lived on, in the order in which they did."""
        over: Times = {}

        async def succeeds(name: str) -> None:
            await self._kube.call("PATCH", f"{PODS}/{name}/status", SUCCEEDED, kind=MERGE)
            over[name] = time.perf_counter()

        async with self._looking(names, over):
            await at_times(names, succeeds, every_s=every_s)
        return [self.job_ended[name] - over[name] for name in names]

    async def jobs_end(self, names: Sequence[str], *, every_s: float) -> list[float]:
        """Jobs are cancelled in Slurm; how long it took until each pod was being deleted, in the order in which they were."""
        over: Times = {}

        async def cancelled(name: str) -> None:
            await self._slurm.call("DELETE", f"job/{self.job_of[name]}")  # as the administrator
            over[name] = time.perf_counter()

        await at_times(names, cancelled, every_s=every_s)
        return await self._until_deleted(names, over)

    async def _until_deleted(self, names: Sequence[str], since: Times) -> list[float]:
        wanted = set(names)
        await self.until(
            lambda: wanted <= self.deleted.keys(),
            lambda: f"{len(wanted - self.deleted.keys())} of {len(wanted)} pods live on, which were to end",
            within_s=_patience_s(names),
        )
        return [self.deleted[name] - since[name] for name in names]

    @asynccontextmanager
    async def _looking(self, names: Sequence[str], over: Times) -> AsyncIterator[None]:
        """Looks at the jobs of pods that are over, until all have ended.  Raises BenchError."""
        wanted = set(names)

        async def look() -> None:
            while wanted - self.job_ended.keys():
                awaited = [name for name in over if name not in self.job_ended][:LOOKED_AT_MOST]
                if awaited:
                    await self._look_at(awaited)
                await asyncio.sleep(LOOK_EVERY_S)

        task = asyncio.create_task(look())
        try:
            yield
            async with asyncio.timeout(_patience_s(names)):
                await task
        except TimeoutError:
            left = len(wanted - self.job_ended.keys())
            raise BenchError(f"{left} of {len(wanted)} jobs live on though their pods are over") from None
        finally:
            task.cancel()

    async def _look_at(self, names: Iterable[str]) -> None:
        pod_of = {self.job_of[name]: name for name in names}
        query = "&".join(f"job_id={job_id}" for job_id in pod_of)
        jobs = (await self._slurm.json("GET", f"jobs/state/?{query}"))["jobs"]
        now = time.perf_counter()
        for job in jobs:
            if ENDED & set(job["state"]):
                self.job_ended[pod_of[str(job["job_id"])]] = now


def _patience_s(names: Sequence[str]) -> float:
    return 60 + len(names) / SLOWEST


async def _poll_bytes(slurm: Slurm) -> float:
    """The bytes of a poll for each job, from the same request that the bridge's poll sends."""
    before = await slurm.call("GET", "jobs/state/")
    return len(before) / before.count(b'"job_id"')


async def _owner(kube: Kube) -> tuple[str, str]:
    """A controller that replaces no pod: only the cost of ends is measured."""
    path, name = f"/api/v1/namespaces/{NAMESPACE}/configmaps", "owner"
    await kube.json("POST", path, {"metadata": {"name": name}}, may=(409,))
    return name, (await kube.json("GET", f"{path}/{name}"))["metadata"]["uid"]
