"""Three Slurms for which one suite must give the same results: recordings, the simulated Slurm, a real slurmrestd.

    recorded   what a real Slurm 26.05 answered, replayed: the client's requests must still be the ones recorded
    simulated  bridge/simulation/slurm/cluster.py, in-process, on a virtual clock
    real       the slurmrestd at SLURM_REST with the token in SLURM_TOKEN_FILE (SlurmUser's)

Recordings are made by the suite itself: `pytest tests/contract --record-slurm` with a real Slurm runs the real subject and
writes one file a test.  They hold no token and no machine's name.

A real Slurm needs the users and accounts of `integration/rig` (alice in teama, bob in teamb with GrpTRES gpu=4 and
MaxSubmitJobs=50), the partitions main, gpu, short (at most 5 minutes) and low (preempted by gpu), and three idle external
nodes, alike, with eight GPUs, which the suite has for itself while it runs.  SLURM_CONTROL is a command to which `stop` and
`start` are appended to end and begin slurmctld, SLURM_ACCOUNTING_CONTROL the same for slurmdbd; without them the outage tests
are left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.slurm.client import SlurmClient
from bridge.slurm.pool import HttpPool
from bridge.slurm.token import FileToken, LiteralToken, TokenSource
from bridge.slurm.transport import Reply, Transport
from bridge.slurm.user_tokens import UserTokens
from bridge.slurm.wire import API_VERSIONS, ApiVersion
from scheduler.model.hostlist import fold
from scheduler.model.slurm import JobSpec, SlurmNode
from tests.in_process_slurm import InProcessSlurm

RECORDINGS = Path(__file__).parent / "recordings" / "slurm"
NAMES = ("recorded", "simulated", "real")

# An external node that was made by `new/node`: a static node would lose GPUs and show no indices (Slurm facts 7).
IDLE = frozenset({"IDLE", "EXTERNAL", "DYNAMIC_NORM"})

T = TypeVar("T")


def real_is_there() -> bool:
    return bool(os.environ.get("SLURM_REST") and os.environ.get("SLURM_TOKEN_FILE"))


def outage_is_possible() -> bool:
    controls = ("SLURM_CONTROL", "SLURM_ACCOUNTING_CONTROL")
    return real_is_there() and all(os.environ.get(control) for control in controls)


def lanes_are_there() -> bool:
    """True if slurm.conf has the partitions in which generated sequences are played (slurm_sequences.py)."""
    return real_is_there() and bool(os.environ.get("SLURM_LANES"))


def left_out() -> str | None:
    """Which subject this run has to do without, and why."""
    if outage_is_possible():
        return None
    if real_is_there():
        return (
            "outages of the real Slurm: SLURM_CONTROL and SLURM_ACCOUNTING_CONTROL are not both set (commands that take stop "
            "and start)"
        )
    return "real Slurm: SLURM_REST and SLURM_TOKEN_FILE are not set (make rig-up prints them)"


class Subject(Protocol):
    """A Slurm under test.

    run  begins the name of every job, so that runs on one real Slurm do not meet
    """

    name: str
    run: str

    def transport(self) -> Transport: ...

    def tokens(self) -> TokenSource: ...

    def token_of(self, user: str) -> str:
        """A token of that ordinary user."""
        ...

    async def a_moment(self) -> None:
        """Let a little time pass there."""
        ...

    def forget_last(self) -> None:
        """The last exchange was a look that saw nothing yet; a recording does without it."""
        ...

    async def controller(self, verb: str) -> None:
        """End ("stop") or begin ("start") slurmctld."""
        ...

    async def accounting(self, verb: str) -> None:
        """End ("stop") or begin ("start") slurmdbd."""
        ...

    async def close(self, *, passed: bool) -> None: ...


# --- recorded -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Exchange:
    """One request and its answer; of the headers only those that change what is asked."""

    method: str
    target: str
    user: str
    body: Any
    status: int
    answer: Any

    @classmethod
    def of(cls, method: str, target: str, headers: Mapping[str, str], body: bytes, reply: Reply) -> Exchange:
        asked = json.loads(body) if body else None
        return cls(method, target, headers.get("X-SLURM-USER-NAME", ""), asked, reply.status, _readable(reply.body))

    @property
    def asks(self) -> tuple[str, str, str, Any]:
        return (self.method, self.target, self.user, self.body)


class Replay:
    """A transport that answers from a recording, in its order, and insists on the requests recorded."""

    def __init__(self, exchanges: list[Exchange]) -> None:
        self._left = list(exchanges)

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        asked = (method, target, headers.get("X-SLURM-USER-NAME", ""), json.loads(body) if body else None)
        assert self._left, f"nothing more is recorded, yet {asked} was asked: record again (--record-slurm)"
        known = self._left.pop(0)
        assert known.asks == asked, f"recorded {known.asks}, asked {asked}: record again (--record-slurm)"
        text = known.answer if isinstance(known.answer, str) else json.dumps(known.answer)
        return Reply(known.status, {}, text.encode())

    def end(self) -> None:
        assert not self._left, f"recorded and not asked: {[e.asks for e in self._left]}"


class Recorded:
    name = "recorded"

    def __init__(self, test: str) -> None:
        file = RECORDINGS / f"{test}.json"
        assert file.exists(), (
            f"{file.name} is not recorded yet: pytest tests/contract --record-slurm, with a real Slurm"
        )
        content = json.loads(file.read_text())
        self.run = content["run"]
        self._replay = Replay([Exchange(**exchange) for exchange in content["exchanges"]])

    def transport(self) -> Transport:
        return self._replay

    def tokens(self) -> TokenSource:
        return LiteralToken("a.recorded.token")

    def token_of(self, user: str) -> str:
        return "a.recorded.token"

    async def a_moment(self) -> None:
        """Does not wait: the next answer is recorded already."""

    def forget_last(self) -> None:
        """Nothing that saw nothing was recorded."""

    async def controller(self, verb: str) -> None:
        """Does nothing: slurmctld was stopped and started while this was recorded."""

    async def accounting(self, verb: str) -> None:
        """Does nothing: slurmdbd was stopped and started while this was recorded."""

    async def close(self, *, passed: bool) -> None:
        if passed:
            self._replay.end()


# --- simulated ----------------------------------------------------------------------------------------------------


class Simulated:
    name = "simulated"
    run = "sim"

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.cluster = SlurmCluster.example(started=self.now)
        self._transport = InProcessSlurm(self.cluster, lambda: self.now)

    def transport(self) -> Transport:
        return self._transport

    def tokens(self) -> TokenSource:
        return LiteralToken(self.cluster.token("slurm"))

    def token_of(self, user: str) -> str:
        return self.cluster.token(user)

    async def a_moment(self) -> None:
        self.now += 1.0
        self.cluster.tick(self.now)

    def forget_last(self) -> None:
        """Nothing is recorded."""

    async def controller(self, verb: str) -> None:
        self.cluster.controller_up = verb == "start"

    async def accounting(self, verb: str) -> None:
        self.cluster.accounting_up = verb == "start"

    async def close(self, *, passed: bool) -> None:
        self.cluster.check()


# --- real ---------------------------------------------------------------------------------------------------------


class Recorder:
    """The real transport; remembers what was exchanged, and which jobs were made."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self.exchanges: list[Exchange] = []
        self.made: list[tuple[str, int]] = []

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        reply = await self._pool.exchange(method, target, headers, body, deadline_s=deadline_s)
        exchange = Exchange.of(method, target, headers, body, reply)
        self.exchanges.append(exchange)
        if method == "POST" and isinstance(exchange.answer, dict) and "job_id" in exchange.answer:
            self.made.append((target.split("/")[2], exchange.answer["job_id"]))
        return reply


class Real:
    name = "real"

    def __init__(self, test: str, *, recording: bool) -> None:
        self._test, self._recording = test, recording
        self.run = f"contract-{secrets.token_hex(4)}"
        self._pool = HttpPool(os.environ["SLURM_REST"])
        self._recorder = Recorder(self._pool)

    def transport(self) -> Transport:
        return self._recorder

    def tokens(self) -> TokenSource:
        return FileToken(os.environ["SLURM_TOKEN_FILE"])

    def token_of(self, user: str) -> str:
        return Path(os.environ["SLURM_TOKEN_FILE"]).with_name(user).read_text()

    async def a_moment(self) -> None:
        await asyncio.sleep(0.1)

    def forget_last(self) -> None:
        self._recorder.exchanges.pop()

    async def controller(self, verb: str) -> None:
        await self._control("SLURM_CONTROL", verb)

    async def accounting(self, verb: str) -> None:
        await self._control("SLURM_ACCOUNTING_CONTROL", verb)

    async def _control(self, variable: str, verb: str) -> None:
        command = [*shlex.split(os.environ[variable]), verb]
        process = await asyncio.create_subprocess_exec(*command)
        assert await process.wait() == 0, f"{command} failed"

    async def close(self, *, passed: bool) -> None:
        """Write the recording, where one is made, and leave no job behind."""
        if self._recording and passed:
            write_recording(self._test, self.run, self._recorder.exchanges)
        headers = {"X-SLURM-USER-TOKEN": self.tokens().token()}
        for version, job_id in self._recorder.made:
            await self._pool.exchange("DELETE", f"/slurm/{version}/job/{job_id}", headers, b"", deadline_s=12)
        self._pool.close()


def write_recording(test: str, run: str, exchanges: list[Exchange]) -> None:
    """One exchange a line: what changed between two recordings shows in a diff."""
    lines = [json.dumps({name: _trimmed(name, getattr(e, name)) for name in Exchange.__slots__}) for e in exchanges]
    RECORDINGS.mkdir(parents=True, exist_ok=True)
    text = '{"run": ' + json.dumps(run) + ', "exchanges": [\n' + ",\n".join(lines) + "\n]}\n"
    (RECORDINGS / f"{test}.json").write_text(text)


# What no client reads and what names the machine that was recorded.
_DROPPED = frozenset({"client", "command", "job_resources", "allocating_node", "batch_host", "source_host", "latency"})
_RENAMED = frozenset({"hostname"})
_OF_A_NODE = frozenset(
    {
        "name", "state", "partitions", "features", "active_features", "cpus", "effective_cpus", "sockets", "cores", "threads",
        "real_memory", "specialized_memory", "gres", "gres_used", "alloc_cpus", "alloc_memory", "reason", "address",
    }
)  # fmt: skip
_MAX_STATES = 40


def _trimmed(name: str, value: Any) -> Any:
    if name == "answer" and isinstance(value, dict) and len(value.get("jobs") or ()) > _MAX_STATES:
        value = value | {"jobs": sorted(value["jobs"], key=lambda job: str(job["job_id"]).zfill(12))[-_MAX_STATES:]}
    if isinstance(value, dict):
        if "active_features" in value:
            value = {key: part for key, part in value.items() if key in _OF_A_NODE}
        kept = {key: part for key, part in value.items() if key not in _DROPPED}
        return {key: "slurm-host" if key in _RENAMED else _trimmed("", part) for key, part in kept.items()}
    if isinstance(value, list):
        return [_trimmed("", part) for part in value]
    return value


def _readable(body: bytes) -> Any:
    try:
        return json.loads(body) if body else ""
    except ValueError:
        return body.decode("utf-8", "replace")


# --- what a test works with ---------------------------------------------------------------------------------------


class Prefixed:
    """A transport whose URL leads elsewhere."""

    def __init__(self, transport: Transport, prefix: str) -> None:
        self._transport, self._prefix = transport, prefix

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        return await self._transport.exchange(method, self._prefix + target, headers, body, deadline_s=deadline_s)


@dataclass(slots=True)
class Slurm:
    """One test's Slurm: a client that discovered it, and a node of its own.

    place   the external GPU node on which the tests' jobs run
    others  a hostlist of all other nodes
    beside  a hostlist of all nodes but `places`
    places  the three alike on which gangs run, in Slurm's order; `place` is the last
    """

    subject: Subject
    client: SlurmClient
    place: SlurmNode
    others: str
    places: tuple[SlurmNode, ...]
    beside: str
    calls: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    async def of(cls, subject: Subject) -> Slurm:
        calls: list[tuple[str, str]] = []
        client = SlurmClient(
            subject.transport(), subject.tokens(), on_call=lambda name, _seconds, outcome: calls.append((name, outcome))
        )
        await client.discover()
        nodes = await client.nodes()
        able = [node for node in nodes if node.gres.get("gpu", 0) >= 8]
        idle = [node for node in able if node.states == IDLE]
        if len(idle) < 3:  # a node that was planned for a job that is gone keeps that mark until the next backfill pass
            idle = [node for node in able if node.states - {"PLANNED"} == IDLE]
        places = tuple(sorted(idle, key=lambda node: (len(node.name), node.name))[-3:])
        assert len(places) == 3, "the suite needs three idle external nodes, made by new/node, with eight GPUs"
        place = places[-1]
        others, beside = (fold(node.name for node in nodes if node not in kept) for kept in ((place,), places))
        return cls(subject, client, place, others, places, beside, calls)

    def other(
        self,
        *,
        versions: tuple[ApiVersion, ...] = API_VERSIONS,
        prefix: str = "",
        tokens: TokenSource | None = None,
    ) -> SlurmClient:
        """Another client of the same Slurm."""
        return SlurmClient(
            Prefixed(self.subject.transport(), prefix), tokens or self.subject.tokens(), versions=versions
        )

    def with_own_tokens(self, folder: Path) -> SlurmClient:
        """A client with a token of alice, of bob, and one of carol to read with; they are kept in that folder."""
        for user in ("alice", "bob"):
            self.token_of(user, folder)
        return SlurmClient(self.subject.transport(), self.token_of("carol", folder), user_tokens=UserTokens(folder))

    def token_of(self, user: str, folder: Path) -> TokenSource:
        """A token of that user, in a file of that folder."""
        (folder / user).touch(mode=0o600)
        (folder / user).write_text(self.subject.token_of(user))
        return FileToken(folder / user)

    def spec(self, name: str, **options: Any) -> JobSpec:
        """A small job of alice on the tests' own node, in a partition where nothing else waits."""
        return JobSpec(
            **{
                "name": f"{self.subject.run}/{name}~k8f3a91c2.5d0c77aa12bb34cd",
                "user": "alice",
                "cpus_per_task": 1,
                "memory_mib": 100,
                "partition": "gpu",
                "excluded_nodes": self.others,
                **options,
            }
        )

    def gang(self, name: str, tasks: int, **options: Any) -> JobSpec:
        """A small job of several tasks on the three nodes of the tests."""
        return self.spec(name, tasks=tasks, **{"excluded_nodes": self.beside, **options})

    async def end(self, job_id: int, *, user: str = "alice") -> bool:
        """Cancel the job, by the name that it has."""
        job = await self.client.job(job_id)
        return await self.client.cancel(job_id, job.name if job is not None else "unknown", user)

    async def until(self, look: Callable[[], Awaitable[T]], holds: Callable[[T], bool], *, within: int) -> T:
        """The result of `look` once it holds.  within: number of looks, some moments apart (real: 0.1 s, simulated: 1 s)"""
        for _ in range(within):
            seen = await look()
            if holds(seen):
                return seen
            self.subject.forget_last()
            await self.subject.a_moment()
        raise AssertionError(f"not within {within} looks; last seen: {seen}")

    async def admin(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        """An act of Slurm's admin, by REST."""
        headers = {"X-SLURM-USER-TOKEN": self.subject.tokens().token(), "Content-Type": "application/json"}
        assert self.client.discovery is not None
        target = f"/slurm/{self.client.discovery.api}/{path}"
        reply = await self.subject.transport().exchange(
            method, target, headers, json.dumps(body).encode(), deadline_s=12
        )
        assert reply.status == 200, reply
        assert not json.loads(reply.body)["errors"], reply
