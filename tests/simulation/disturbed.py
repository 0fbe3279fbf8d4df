"""A story with one disturbance at one chosen place: the bridge is killed, or one observation is lost, late or repeated.

The place is the number of a request, or of a line of a watch, since the story began.  A killed process leaves only the
effects of its requests.  So all moments between two requests are one place: a kill at any `await` between them has the same
effect on both clusters as a kill just before the second request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from bridge.errors import Unanswered
from bridge.kube.transport import NO_PARAMS
from bridge.simulation.invariants.violation import Violation
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.virtual_time import run
from scheduler import names
from tests.simulation.calm import Calm
from tests.simulation.chaos import GANG
from tests.simulation.ends import Faults

T = TypeVar("T")
SEED = 16  # clocks that agree, Slurm as shipped, with accounting
SETTLES_S = 60.0  # after the story: what is still to do is done within a minute
LATE_S = 8.0  # within the settle time: a request is not known to take effect later than that (docs/core.md)
GIVEN_UP_S = 1.0
LOST_WATCH_S = 10.0
LONGEST_DELAY_S = 15.0
LINE = "line-"  # how a line of a watch is disturbed begins with this
LEASES = "/leases"


class Place(NamedTuple):
    """Where, and how, a story is disturbed.

    number  of the request or the line
    how     of a request: killed-before (it is not sent), killed-after (it takes effect, nothing hears the answer),
            killed-late (it takes effect when the next process runs), unanswered-late (it takes effect when its caller has
            given up); of a poll: lost, old (the answer comes after the next
            write), again (the answer of the next poll, too); of a line: dropped (and what follows, until a new list), twice,
            after-N-writes (the watch stands still until then)
    """

    number: int
    how: str


@dataclass
class Wire(Faults):
    """The way of all requests: counts them, and disturbs one.

    seen    each request since the story began, "Slurm DELETE /slurm/…"
    writes  those of them that change something, as far as they were answered
    kill    kills the bridge
    """

    place: Place | None = None
    counts: bool = False
    seen: list[str] = field(default_factory=list)
    writes: int = 0
    kill: Callable[[], object] = lambda: None
    written: asyncio.Event = field(default_factory=asyncio.Event)
    again: dict[str, Any] = field(default_factory=dict)

    async def through(self, side: str, what: str, act: Callable[[], T], *, nonsense: T) -> T:
        await asyncio.sleep(0.001)
        if not self.counts:
            return act()
        request = f"{side} {what}"
        number = len(self.seen)
        self.seen.append(request)
        if self.place is not None and number == self.place.number and not self.place.how.startswith(LINE):
            return await self._disturbed(self.place.how, request, act)
        if request in self.again:
            return self.again.pop(request)  # type: ignore[no-any-return]
        answer = act()
        if is_write(request):
            self._wrote()
        return answer

    async def _disturbed(self, how: str, request: str, act: Callable[[], T]) -> T:
        if how == "killed-before":
            return await self._die()
        if how == "killed-after":
            act()
            self._wrote()
            return await self._die()
        if how == "killed-late":
            asyncio.get_running_loop().call_later(LATE_S, self._late, act, context=Context())
            return await self._die()
        if how == "unanswered-late":
            asyncio.get_running_loop().call_later(LATE_S, self._late, act, context=Context())
            await asyncio.sleep(GIVEN_UP_S)
            raise Unanswered(request, request.split()[0], "simulated: nobody knows")
        if how == "lost":
            raise Unanswered(request, "Slurm", "simulated: the answer was lost")
        answer = act()
        if how == "old":
            await self.after_writes(1)
        else:
            self.again[request] = answer
        return answer

    def _late(self, act: Callable[[], object]) -> None:
        with suppress(Violation):  # it is on record
            act()

    async def _die(self) -> Any:
        self.kill()
        await asyncio.get_running_loop().create_future()

    def _wrote(self) -> None:
        self.writes += 1
        self.written.set()
        self.written = asyncio.Event()

    async def after_writes(self, count: int) -> None:
        """Wait until so many more writes are answered, or for LONGEST_DELAY_S."""
        until = self.writes + count
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_DELAY_S):
                while self.writes < until:
                    await self.written.wait()


class WatchedKube(InProcessKube):
    """The simulated Kubernetes, one line of whose watches is disturbed.  lines: how many there were since the story began"""

    def __init__(self, cluster: KubeCluster, clock: Callable[[], float], wire: Wire) -> None:
        super().__init__(cluster, clock)
        self.wire = wire
        self.lines = 0

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] = NO_PARAMS, stall_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with super().stream(path, params=params, stall_s=stall_s) as lines:
            yield self._through(lines)

    async def _through(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            if not self.wire.counts or b'"BOOKMARK"' in line:
                yield line
                continue
            self.lines += 1
            place = self.wire.place
            if place is None or not place.how.startswith(LINE) or self.lines - 1 != place.number:
                yield line
                continue
            how = place.how.removeprefix(LINE)
            if how == "dropped":
                await asyncio.sleep(LOST_WATCH_S)
                self.cluster.compact()
                raise Unanswered("watch", "Kubernetes", "simulated: the stream broke off")
            if how == "twice":
                yield line
            else:
                await self.wire.after_writes(int(how.split("-")[1]))
            yield line


class Played(NamedTuple):
    """How a story ended, and where it could be disturbed.

    end    one line for each pod, job and node
    seen   its requests
    lines  how many lines its watches had
    """

    end: list[str]
    seen: list[str]
    lines: int


Story = Callable[[Calm], Awaitable[None]]


class Disturbed(Calm):
    """A life in which a story is disturbed at one place."""

    def new_inner(self) -> InProcessKube:
        assert isinstance(self.faults, Wire)
        return WatchedKube(self.kube, self.clock, self.faults)


def play(story: Story, place: Place | None = None) -> Played:
    """Play the story, and return how it ended.  Raises AssertionError if an invariant is broken."""
    life = Disturbed(SEED)
    wire = life.faults = Wire(life.rng, place=place, kill=lambda: life.kill and life.kill())
    ended: list[str] = []

    async def whole(life: Calm) -> None:
        wire.counts = True
        await story(life)
        await asyncio.sleep(SETTLES_S)
        assert not life.invariants.violations, life.invariants.violations
        assert not (unrest := list(life.invariants.at_rest())), unrest
        ended.extend(_end(life))

    run(life.act(whole))
    assert isinstance(life.inner, WatchedKube)
    return Played(ended, wire.seen, life.inner.lines)


def _end(life: Calm) -> list[str]:
    """What both clusters show, without names and numbers that differ from run to run.

    Of jobs: those that a pod shows, and those that live.  Others had no pod, and end without harm: the process that submitted
    them was killed before the answer came.  The accounting record of a job tells how its pods ended.  If the pods are gone,
    or other pods of their gang have come, only the process that saw them end knows that, so a kill may cost the record.
    """
    shown: dict[str | None, bool] = {}
    jobs_of: dict[str | None, set[str | None]] = {}
    for pod in life.last.values():
        meta = pod["metadata"]
        job_id, gang = (meta.get("annotations") or {}).get(names.JOB_ID), (meta.get("labels") or {}).get(GANG)
        jobs_of.setdefault(gang, set()).add(job_id)
        shown[job_id] = life.there(pod)
    several = set().union(*(jobs for gang, jobs in jobs_of.items() if gang is not None and len(jobs) > 1))
    jobs = []
    for job in life.slurm.jobs.values():
        record = (
            f"{job.derived_exit_code} {_base(job.accounted_comment)}"
            if shown.get(str(job.id)) and str(job.id) not in several
            else ""
        )
        if str(job.id) in shown or not job.ended:
            state = "preempted" if job.ended and job.preempted else job.state  # by Slurm or the bridge, as one is first
            jobs.append(f"job {_base(job.name.split('~')[0])} {state} {record}")
    nodes = [
        f"Slurm node {name} {'drained' if node.drained else 'in service'}" for name, node in life.slurm.nodes.items()
    ]
    for each in life.kube.store.all("nodes"):
        taints = sorted(taint["key"] for taint in each["spec"].get("taints") or ())
        said = {one["type"]: one["status"] for one in each["status"].get("conditions") or ()}
        nodes.append(f"node {each['metadata']['name']} {taints} {said.get(names.IN_SLURM)}")
    return sorted(_pod(life, pod) for pod in life.last.values()) + sorted(jobs) + sorted(nodes)


def _pod(life: Calm, pod: dict[str, Any]) -> str:
    shows = sorted(key for key in pod["metadata"].get("annotations") or {} if key.startswith(names.PREFIX))
    bound = "bound" if pod["spec"].get("nodeName") else "not bound"
    return f"pod {_base(pod['metadata']['name'])} {life.end_of(pod)}, {bound}, shows {' '.join(shows)}"


def _base(name: str) -> str:
    """Without the random end that controllers give to names."""
    return re.sub(r"-[a-z0-9]{5}\b", "-…", name)


def is_write(request: str) -> bool:
    """True if the request changes something."""
    return " GET " not in request


def kills(seen: list[str], *, leases: bool = False) -> Iterator[Place]:
    """Each place where a kill makes a difference: at every write; and at the first read of its kind since a write.

    leases   writes of the Lease count: the story is about them
    """
    since: set[str] = set()
    for number, request in enumerate(seen):
        if is_write(request) and (leases or LEASES not in request):
            since.clear()
            for how in ("killed-before", "killed-after", "killed-late"):
                yield Place(number, how)
            continue
        kind = re.sub(r"\d+", "N", request.split("?")[0])
        if kind not in since:
            since.add(kind)
            yield Place(number, "killed-before")


def unanswered(seen: list[str], *, leases: bool = False) -> Iterator[Place]:
    """Each write: its answer is lost, and it takes effect later, while the same process goes on.  leases: as in `kills`"""
    for number, request in enumerate(seen):
        if is_write(request) and (leases or LEASES not in request):
            yield Place(number, "unanswered-late")


def observations(whole: Played) -> Iterator[Place]:
    """Each observation: every line of a watch, and the first poll of Slurm after each write."""
    for number in range(whole.lines):
        for how in ("dropped", "twice", "after-1-writes", "after-2-writes", "after-9-writes"):
            yield Place(number, LINE + how)
    polled = False
    for number, request in enumerate(whole.seen):
        if is_write(request):
            polled = False
        elif request.startswith("Slurm") and "/jobs/state" in request and not polled:
            polled = True
            for how in ("lost", "old", "again"):
                yield Place(number, how)


def swept(play: Callable[[Place | None], Played], places: Callable[[Played], Iterable[Place]]) -> list[str]:
    """How a story ends otherwise when it is disturbed: a paragraph for each place.

    play   plays the story, disturbed at that place; None: as it is
    """
    whole = play(None)
    wrong = []
    for place in places(whole):
        where = f"{place.how} at {place.number}" + (
            "" if place.how.startswith("line") else f", {whole.seen[place.number]}"
        )
        try:
            end = play(place).end
        except (AssertionError, TimeoutError) as failed:
            wrong.append(f"{where}: {failed!r}")
            continue
        if end != whole.end:
            lacks = [f"  - {line}" for line in whole.end if line not in end]
            has = [f"  + {line}" for line in end if line not in whole.end]
            wrong.append("\n".join([f"{where}:", *(lacks + has or ["  in another order or number"])]))
    return wrong
