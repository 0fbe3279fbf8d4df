"""The interval of expected starts holds at its stated rate in a queue of jobs of unknown length (Q2).

The simulated Slurm estimates starts from time limits, as the real one does.  Jobs end after a random share of their limit.
Each interval that the World gives is compared with the start of its job.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.jobs import SimJob, SimPartition, SimUser
from bridge.simulation.slurm.nodes import SlurmSimNode
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken
from scheduler.actions import AllocateNow, Outcome, SubmitJob
from scheduler.events import JobRead, JobsPolled
from scheduler.model.kubernetes import Pod
from scheduler.state.estimates import Estimate
from tests.builders import START, Story, pod
from tests.in_process_slurm import InProcessSlurm

STEP_S = 30.0
JOBS = 250
SLOTS = 4  # jobs that run at once
LIMITS_MIN = (10, 30, 60)
STATED = 0.8


@dataclass
class Queue:
    """Pods of which some run and some wait, in the World and in the simulated Slurm, on one virtual clock.

    ends    when each job that runs is done
    shown   the estimates of each job, as the World kept them
    """

    share_of_limit: Callable[[random.Random], float]
    seed: int
    now: float = START + 20
    ends: dict[int, float] = field(default_factory=dict)
    pods: dict[int, Pod] = field(default_factory=dict)
    shown: dict[int, tuple[Estimate, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        node = SlurmSimNode("x1", cpus=SLOTS)
        user = SimUser("alice", ("teama",))
        self.cluster = SlurmCluster([node], [SimPartition("main", default=True)], [user], started=self.now, stock=False)
        tokens = LiteralToken(self.cluster.token("slurm"))
        self.client = SlurmClient(InProcessSlurm(self.cluster, lambda: self.now), tokens)
        self.story = Story(started=START)

    async def create(self, number: int) -> None:
        """A pod comes, and its job is submitted; where nodes are asked for at once first, there is no room."""
        new = pod(f"p{number}")
        self.story.sees(new)
        while (job_id := await self._decided()) is None:
            pass
        self.pods[job_id] = new

    async def _decided(self) -> int | None:
        """One pass, of which every action ends at once.  Returns the id of the job that was submitted."""
        submitted = None
        for action in self.story.decides(self.now):
            if isinstance(action, AllocateNow):
                self.story.ended(action, Outcome.REFUSED, at=self.now, number=2013)
            elif isinstance(action, SubmitJob):
                spec = replace(action.spec, time_limit_min=self.dice.choice(LIMITS_MIN), excluded_nodes="")
                submitted = await self.client.submit(spec)
                self.story.ended(action, at=self.now, job_id=submitted)
            else:
                self.story.ended(action, at=self.now)
        return submitted

    async def step(self) -> None:
        """Half a minute passes: jobs that are done end, Slurm schedules, and the World sees all of it."""
        self.now += STEP_S
        for job_id in [job_id for job_id, at in self.ends.items() if at <= self.now]:
            self.cluster.end(job_id, "COMPLETED", self.now)
            self.story.loses(self.pods[job_id], at=self.now)
            del self.ends[job_id]
        self.cluster.tick(self.now)
        states = await self.client.states()
        self.story.world.apply(JobsPolled(self.now, self.now, states))
        for job in list(self.cluster.jobs.values()):
            await self._look_at(job)

    async def _look_at(self, job: SimJob) -> None:
        known = self.story.world.placeholders.get(job.id)
        if known is None or job.ended:
            return
        self.shown[job.id] = known.estimates or self.shown.get(job.id, ())
        if job.holds and job.id not in self.ends:
            self.ends[job.id] = self.now + max(STEP_S, 60 * (job.time_limit_min or 0) * self.share_of_limit(self.dice))
        self.story.world.apply(JobRead(job.id, self.now, self.now, await self.client.job(job.id)))

    def judged(self) -> list[bool]:
        """Of each interval: whether the job started in it."""
        return [
            each.interval.earliest <= self.cluster.accounted_by_id[job_id].starts <= each.interval.latest
            for job_id, estimates in self.shown.items()
            if self.cluster.accounted_by_id[job_id].ended
            for each in estimates
            if each.interval is not None
        ]


async def lived(queue: Queue) -> None:
    """Jobs come so fast that some ten wait."""
    await queue.client.discover()
    for number in range(JOBS):
        await queue.create(number)
        while queue.story.world.waiting_order.waiting("main") > 10:
            await queue.step()
    while queue.ends or queue.story.world.waiting_order.waiting("main"):
        await queue.step()


@pytest.mark.parametrize(
    "share",
    [lambda dice: dice.uniform(0.1, 1.0), lambda _: 0.5, lambda dice: dice.choice((0.02, 0.9))],
    ids=["any", "half", "short-or-long"],
)
async def test_intervals_hold_at_their_stated_rate(share: Callable[[random.Random], float]) -> None:
    """8 of 10, for jobs that end after any share of their limit, after half of it, or very early or late."""
    queue = Queue(share, seed=1)
    await lived(queue)
    judged = queue.judged()
    assert len(judged) > JOBS
    assert sum(judged) >= STATED * len(judged)
