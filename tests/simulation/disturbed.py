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
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn, TypeVar

from bridge.errors import Unanswered
from bridge.kube.transport import NO_PARAMS
from bridge.simulation.invariants.violation import Violation
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.virtual_time import run
from scheduler import names
from tests.simulation.calm import Calm
from tests.simulation.chaos import GANG
from tests.simulation.network import Faults

T = TypeVar("T")
SEED = 16  # clocks that agree, Slurm as shipped, with accounting
SETTLES_S = 75.0  # after the story: what is still to do is done then, also what waits for two lists of nodes
LATE_S = 8.0  # within the settle time: a request is not known to take effect later than that (docs/core.md)
GIVEN_UP_S = 1.0
LOST_WATCH_S = 10.0
LONGEST_DELAY_S = 15.0  # of a watch: longer than the settle time and the quiet period
ONE_PASS_S = 0.005  # events of this time share a pass (docs/core.md)
LONGEST_READ_S = 11.0  # a read that takes a second longer fails
LINE = "line-"  # how a line of a watch is disturbed begins with this
LEASES = "/leases"
POLL = "/jobs/state/"
SURVEYS = ("/nodes/", "/partitions/")  # lists that the bridge reads every half minute


class Place(NamedTuple):
    """Where, and how, a story is disturbed.

    number  of the request or the line
    how     of a request: killed-before (it is not sent), killed-after (it takes effect, nothing hears the answer),
            killed-late (it takes effect when the next process runs), unanswered-late (it takes effect when its caller has
            given up); of a read: lost, after-N-writes (the answer comes so much later, and is old then); of a poll also:
            again (the next poll gets this answer, too); of a line: dropped (and what follows, until a new list), twice,
            after-N-writes (the watch stands still until then)
    """

    number: int
    how: str


@dataclass
class Wire(Faults):
    """The way of all requests: counts them, and disturbs one.

    seen    each request since the story began, "Slurm DELETE /slurm/…"
    times   when each of them was sent
    news    True for the reads among them whose answer was another than that of the read before of the kind
    writes  those of them that change something, as far as they were answered
    kill    kills the bridge
    """

    place: Place | None = None
    counts: bool = False
    seen: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    news: list[bool] = field(default_factory=list)
    writes: int = 0
    kill: Callable[[], object] = lambda: None
    written: asyncio.Event = field(default_factory=asyncio.Event)
    again: dict[str, Any] = field(default_factory=dict)
    _answers: dict[str, bytes] = field(default_factory=dict)

    async def through(self, side: str, what: str, act: Callable[[], T], *, nonsense: T) -> T:
        await asyncio.sleep(0.001)
        if not self.counts:
            return act()
        request = f"{side} {what}"
        number = len(self.seen)
        self.seen.append(request)
        self.times.append(asyncio.get_running_loop().time())
        self.news.append(False)
        if self.place is not None and number == self.place.number and not self.place.how.startswith(LINE):
            return await self._disturbed(self.place.how, request, act)
        if request in self.again:
            return self.again.pop(request)  # type: ignore[no-any-return]
        answer = act()
        if is_write(request):
            self._wrote()
        else:
            self.news[number] = self._is_news(request, answer)
        return answer

    def _is_news(self, request: str, answer: Any) -> bool:
        """True if the answer is another than the answer before to this request."""
        body = re.sub(rb'"last_update":{[^}]*}', b"", answer.body)
        before, self._answers[request] = self._answers.get(request), body
        return before is not None and body != before

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
            raise Unanswered(request, request.split()[0], "simulated: the answer was lost")
        answer = act()
        if how == "again":
            self.again[request] = answer
        else:
            await self.after_writes(_count_of(how), LONGEST_READ_S)
        return answer

    def _late(self, act: Callable[[], object]) -> None:
        with suppress(Violation):  # it is on record
            act()

    async def _die(self) -> NoReturn:
        self.kill()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("it was killed and goes on")

    def _wrote(self) -> None:
        self.writes += 1
        self.written.set()
        self.written = asyncio.Event()

    async def after_writes(self, count: int, longest_s: float) -> None:
        """Wait until so many more writes are answered, at most for *longest_s*."""
        until = self.writes + count
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                while self.writes < until:
                    await self.written.wait()


class WatchedKube(InProcessKube):
    """The simulated Kubernetes, one line of whose watches is disturbed.  lines: when each came since the story began"""

    def __init__(self, cluster: KubeCluster, clock: Callable[[], float], wire: Wire) -> None:
        super().__init__(cluster, clock)
        self.wire = wire
        self.lines: list[float] = []

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
            self.lines.append(self.clock())
            place = self.wire.place
            if place is None or not place.how.startswith(LINE) or len(self.lines) - 1 != place.number:
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
                await self.wire.after_writes(_count_of(how), LONGEST_DELAY_S)
            yield line


class Played(NamedTuple):
    """How a story ended, and where it could be disturbed.

    end                one line for each pod, job and node
    seen, times, news  its requests, as in Wire
    lines              when each line of its watches came
    """

    end: list[str]
    seen: list[str]
    times: list[float]
    news: list[bool]
    lines: list[float]


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
    return Played(ended, wire.seen, wire.times, wire.news, life.inner.lines)


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
        if _kind(request) not in since:
            since.add(_kind(request))
            yield Place(number, "killed-before")


def unanswered(seen: list[str], *, leases: bool = False) -> Iterator[Place]:
    """Each write: its answer is lost, and it takes effect later, while the same process goes on.  leases: as in `kills`"""
    for number, request in enumerate(seen):
        if is_write(request) and (leases or LEASES not in request):
            yield Place(number, "unanswered-late")


def observations(whole: Played) -> Iterator[Place]:
    """Each observation, lost, doubled, and delayed past each later write.

    An observation is a line of a watch; a read whose answer is news; and the first read of its kind since a write, apart from
    the lists of nodes and partitions.  A line is delayed for LONGEST_DELAY_S at most, and a read for LONGEST_READ_S.
    """
    writes = [at for at, request in zip(whole.times, whole.seen, strict=True) if is_write(request)]
    for number, at in enumerate(whole.lines):
        for how in ("dropped", "twice", *_delays(at, writes, LONGEST_DELAY_S)):
            yield Place(number, LINE + how)
    since: set[str] = set()
    for number, request in enumerate(whole.seen):
        if is_write(request):
            since.clear()
        elif whole.news[number] or not (_kind(request) in since or _kind(request).endswith(SURVEYS)):
            since.add(_kind(request))
            for how in ("lost", *_delays(whole.times[number], writes, LONGEST_READ_S)):
                yield Place(number, how)
            if _kind(request).endswith(POLL):
                yield Place(number, "again")


def _delays(at: float, writes: list[float], longest_s: float) -> Iterator[str]:
    """Delays past each write within *longest_s*, past the writes of one pass together, and for as long as that."""
    later = [write for write in writes if at < write <= at + longest_s]
    for count, (write, following) in enumerate(pairwise([*later, float("inf")]), start=1):
        if following - write > ONE_PASS_S:
            yield f"after-{count}-writes"
    yield f"after-{len(later) + 1}-writes"


def _count_of(how: str) -> int:
    """The number of writes in "after-N-writes"."""
    return int(how.split("-")[1])


def _kind(request: str) -> str:
    """The request without its numbers and its query."""
    return re.sub(r"\d+", "N", request.split("?")[0])


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
