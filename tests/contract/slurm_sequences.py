"""Random calls to Slurm: what the bridge sends, and what users and admins do meanwhile.

Each sequence has a lane: partitions of its own with two nodes of its own, in which nothing of another lane waits.  So many
are played at once on one real Slurm, each at its own pace: after a call that lets something wait, a sequence goes on when
slurmctld has looked at its queue and nothing has changed since.  The simulated Slurm of a sequence has the lane alone.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.jobs import SimPartition, SimUser
from bridge.simulation.slurm.nodes import SlurmSimNode
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken, TokenSource
from bridge.slurm.transport import Transport
from bridge.slurm.wire import API_VERSIONS
from scheduler.actions import NodeChange
from scheduler.model.slurm import UNLIMITED, Grant, Job, JobSpec, NodeSpec, SlurmNode, holds_nodes
from scheduler.translate.job_update import unchangeable
from tests.contract.sequences import (
    FEWEST_CALLS,
    MOST_CALLS,
    Call,
    Calls,
    Exemption,
    Transcript,
    compared,
    said,
    with_more,
)
from tests.in_process_slurm import InProcessSlurm
from tests.patience import PATIENCE_S

LOOK_S = 0.2
ACCOUNTING_LOOKS = 100  # until slurmdbd knows of a change
WITHOUT_BACKFILL = 3  # rounds of the scheduler after which backfill has nothing to do
LANES, NODES = 64, 2
CPUS, MEMORY_MIB, GPUS = 8, 16_000, 4
PARTITIONS = ("gpu", "short", "low")
UNKNOWN = 999_999_999  # an id that no job has

# --- the lanes ------------------------------------------------------------------------------------------------------

# What slurm.conf needs: a pass of the scheduler and of backfill every second, and the partitions of every lane.
PACE = "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,default_queue_depth=5000,bf_max_job_test=5000"


def slurm_conf() -> str:
    """The lines of slurm.conf for the lanes; `python -m tests.contract.slurm_sequences` prints them."""
    lines = [PACE]
    for lane in range(1, LANES + 1):
        lines.append(f"NodeSet=lane{lane} Feature=lane{lane}")
        there = f"Nodes=lane{lane} State=UP"
        lines.append(f"PartitionName=gpu-lane{lane} {there} MaxTime=INFINITE DefaultTime=60 PriorityTier=10")
        lines.append(f"PartitionName=short-lane{lane} {there} MaxTime=5 PriorityTier=10")
        lines.append(
            f"PartitionName=low-lane{lane} {there} MaxTime=INFINITE DefaultTime=60 PriorityTier=1 PreemptMode=REQUEUE"
        )
    return "\n".join([*lines, ""])


def partitions(lane: str) -> tuple[SimPartition, ...]:
    """The same partitions of the simulated Slurm."""
    return (
        SimPartition(f"gpu-{lane}", default_time_min=60, default=True, feature=lane),
        SimPartition(f"short-{lane}", max_time_min=5, feature=lane),
        SimPartition(f"low-{lane}", tier=1, preempted=True, default_time_min=60, feature=lane),
    )


_NAMING = ("name", "partition", "nodes", "planned_nodes", "excluded_nodes", "required_nodes", "dependency")
USERS = (  # as `integration/rig` has them; bob makes no jobs, because his limits count the jobs of all lanes together
    SimUser("alice", ("teama", "teama-dev"), ("normal", "high", "low")),
    SimUser("bob", ("teamb",), ("normal", "low")),
    SimUser("carol", ("teamb",), ("normal", "low")),
    SimUser("slurm", ("root",), ("normal", "high", "low")),
)


def node_of(lane: str, number: int) -> NodeSpec:
    """A node of the lane.  Those after the second are in none of its partitions."""
    address, of = "198.51.100.7", lane if number <= NODES else f"beside-{lane}"
    return NodeSpec(f"{lane}n{number}", address, CPUS, MEMORY_MIB, (("gpu:h100", GPUS),), (of, "fast"))


# --- the calls ------------------------------------------------------------------------------------------------------

OPTIONS: Mapping[str, Sequence[Any]] = {  # of a job: the first value is the usual one
    "cpus_per_task": (1, 1, 2, 5, 8, 9),
    "memory_mib": (100, 100, 6000, 16000, 17000),
    "gres": ((), (), (("gpu", 1),), (("gpu:h100", 2),), (("gpu", 4),), (("gpu", 5),)),
    "partition": ("gpu", "gpu", "gpu", "short", "low"),
    "time_limit_min": (None, None, 3, 10, 60, UNLIMITED),
    "qos": ("", "", "", "low", "high", "none"),
    "account": ("", "", "", "teama-dev", "teamb"),
    "comment": ("", "first", "second"),
    "nice": (None, None, 10, -5),
    "exclusive": ("", "", "", "exclusive"),
    "excluded": ((), (), (1,), (2,), (1, 2), (9,)),
    "required": ((), (), (), (), (1,), (2,)),
    "constraints": ("", "", "", "fast", "slow"),
    "tasks": (1, 1, 1, 2, 3, 12),
    "tasks_per_node": (None, None, 1, 2),
    "min_nodes": (None, None, 1, 2),
    "begin": (None, None, None, None, 3600),
    "time_least_min": (None, None, None, 2),
    "name": ("a", "a", "b", "c"),
    "user": ("alice", "alice", "alice", "carol"),
    "after": ("", "", "", "", "after", "afterany", "afterok", "afternotok"),
}
# What an update may change of a job; it gets other values for these.
CHANGES = (
    "cpus_per_task", "memory_mib", "gres", "partition", "time_limit_min", "qos", "account", "comment", "nice", "excluded",
    "constraints", "begin", "name", "time_least_min",
)  # fmt: skip
FIRST = {"cpus_per_task", "memory_mib", "gres", "partition", "name", "user"}  # options that many jobs have


def sequence(number: int) -> list[Call]:
    """The calls of that number."""
    rng = random.Random(f"slurm {number}")
    length = rng.randint(FEWEST_CALLS, MOST_CALLS)
    calls = [_new_job(rng, "j1")]
    while len(calls) < length:
        made = sum(call.verb in ("allocate", "submit") for call in calls)
        verb = rng.choices(list(_MAKERS), [weight for weight, _ in _MAKERS.values()])[0]
        if verb == "job":
            calls.append(_new_job(rng, f"j{made + 1}"))
        else:
            calls.append(_MAKERS[verb][1](rng, f"j{rng.randint(1, made)}"))
    return with_more(calls, random.Random(f"slurm more {number}"), _MORE)


def _new_job(rng: random.Random, of: str) -> Call:
    options = {
        key: rng.choice(values) for key, values in OPTIONS.items() if rng.random() < (0.7 if key in FIRST else 0.1)
    }
    if options.get("after"):
        options["of"] = f"j{rng.randint(1, max(1, int(of[1:]) - 1))}"
    if options.get("tasks", 1) > 1:
        options.pop("required", None)  # the bridge names all nodes of a gang, or none
    if rng.random() < 0.1:  # heterogeneous, and in the partition that preempts no other
        return Call("submit", of, options | {"partition": "low", "beside": rng.choice(((1,), (5,), (8,), (1, 2)))})
    return Call(rng.choice(("allocate", "submit")), of, options)


def _update(rng: random.Random, of: str) -> Call:
    keys = rng.sample(CHANGES, rng.choice((1, 1, 1, 2)))
    return Call("update", of, {key: rng.choice(OPTIONS[key]) for key in keys})


def _on_a_job(verb: str, **choices: Sequence[Any]) -> Callable[[random.Random, str], Call]:
    return lambda rng, of: Call(verb, of, {key: rng.choice(values) for key, values in choices.items()})


def _on_a_node(verb: str) -> Callable[[random.Random, str], Call]:
    return lambda rng, _: Call(verb, f"n{rng.choice((1, 2, 3) if verb in ('drain', 'down', 'resume') else (3,))}")


_MAKERS: Mapping[str, tuple[int, Callable[[random.Random, str], Call]]] = {
    "job": (10, _new_job),
    "update": (6, _update),
    "cancel": (6, _on_a_job("cancel", name=("own", "own", "own", "another"), user=("own", "own", "own", "bob"))),
    "hold": (2, _on_a_job("hold", by=("own", "slurm", "bob"))),
    "release": (2, _on_a_job("release", by=("own", "own", "slurm"))),
    "nudge": (1, _on_a_job("nudge")),
    "grant": (2, _on_a_job("grant", user=("own", "own", "bob"))),
    "read": (1, _on_a_job("read")),
    "drain": (2, _on_a_node("drain")),
    "down": (1, _on_a_node("down")),
    "resume": (3, _on_a_node("resume")),
    "register": (1, _on_a_node("register")),
    "remove": (1, _on_a_node("remove")),
}


def _about_a_job(verb: str) -> Callable[[random.Random], Call]:
    return lambda rng: Call(verb, f"j{rng.randint(1, 3)}")


# Calls that are added to each sequence.
_MORE: Mapping[str, Callable[[random.Random], Call]] = {
    "states": lambda rng: Call("states"),
    "partitions": lambda rng: Call("partitions"),
    "record end": _about_a_job("record end"),
}


# --- what stays different ---------------------------------------------------------------------------------------------

_A_PLAN = "when and where a waiting job will start is what backfill computed last, in steps of its own (Slurm facts 11)"
_AN_ESTIMATE = (
    "slurmctld guesses how many nodes the tasks of a waiting job will need; the bridge reads it of one task alone"
)
NOT_COMPARED = (
    Exemption("starts", lambda shown: "PENDING" in shown["states"], _A_PLAN),
    Exemption("ends", lambda shown: "PENDING" in shown["states"], _A_PLAN),
    Exemption("planned_nodes", lambda _shown: True, _A_PLAN),
    Exemption("least_nodes", lambda shown: shown.get("tasks", 1) > 1 and not shown["nodes"], _AN_ESTIMATE),
)


# --- playing them -----------------------------------------------------------------------------------------------------


class Cluster(Protocol):
    """A Slurm with a lane."""

    transport: Transport
    tokens: TokenSource

    def now(self) -> float: ...

    async def settle(self, waiting: Callable[[], Awaitable[object]]) -> None:
        """Let the scheduler look at the queue until what waits stays as it is."""
        ...

    async def account(self) -> None:
        """Let some time pass in which slurmctld may send to slurmdbd what it has not sent yet."""
        ...


@dataclass(slots=True)
class Made:
    """A job that a call of the sequence made."""

    id: int
    spec: JobSpec


class Player:
    """One sequence on one cluster.  run: begins the names of its jobs, and no others"""

    def __init__(self, cluster: Cluster, lane: str, run: str) -> None:
        self.cluster = cluster
        self.client = SlurmClient(cluster.transport, cluster.tokens)
        self._lane, self._run = lane, run
        self._jobs: dict[str, Made] = {}

    async def play(self, calls: Calls) -> Transcript:
        """The whole sequence, from an empty lane to an empty lane."""
        await self.client.discover()
        try:
            answers = []
            for call in calls:
                answers.append(await _PLAYED[call.verb](self, call))
                if await self._waiting():
                    await self.cluster.settle(self._waiting)
            return Transcript(answers, await self._end())
        finally:
            await self._clear()

    async def _waiting(self) -> list[tuple[str, Any, str]]:
        """The jobs that wait: those, and why."""
        read = [(of, await self.client.job(made.id)) for of, made in self._jobs.items()]
        return [(of, job.states, job.reason) for of, job in read if job is not None and "PENDING" in job.states]

    async def _end(self) -> dict[str, Any]:
        left: dict[str, Any] = {}
        for of, made in self._jobs.items():
            job = await self.client.job(made.id)
            left[of] = None if job is None else self.shown(job)
            if job is not None and holds_nodes(job.states):
                left[f"grant of {of}"] = await said(self.client.grant(made.id, job.user), self.shown_grant)
        nodes = [self.shown_node(node) for node in await self.client.nodes() if node.name.startswith(f"{self._lane}n")]
        return left | {node["name"]: node for node in nodes}

    async def _clear(self) -> None:
        for made in self._jobs.values():
            await said(self._admin("DELETE", f"job/{made.id}"))
        for number in range(1, NODES + 1):
            await said(self.client.change_node(f"{self._lane}n{number}", NodeChange.RESUME, ""))
        await said(self.client.remove_node(f"{self._lane}n{NODES + 1}"))

    # --- names

    def spec(self, options: Mapping[str, Any], base: JobSpec | None = None) -> JobSpec:
        """The job with these options, or the job *base* with these options changed."""
        known = {each.name for each in fields(JobSpec)}
        wanted = {key: value for key, value in options.items() if key in known}
        if "name" in wanted:
            wanted["name"] = f"{self._run}/{wanted['name']}"
        if "partition" in wanted:
            wanted["partition"] = f"{wanted['partition']}-{self._lane}"
        if "excluded" in options:
            wanted["excluded_nodes"] = self._hostlist(options["excluded"])
        if "required" in options:
            wanted["required_nodes"] = self._hostlist(options["required"])
        if options.get("begin"):
            wanted["begin"] = int(self.cluster.now()) + options["begin"]
        if options.get("after"):
            wanted["dependency"] = f"singleton,{options['after']}:{self.id(options['of'])}"
        plain = JobSpec(f"{self._run}/a", "alice", 1, 100, partition=f"gpu-{self._lane}")
        spec = replace(base or plain, **wanted)
        plain = replace(plain, partition=spec.partition)
        beside = tuple(
            replace(plain, name=spec.name, user=spec.user, cpus_per_task=cpus) for cpus in options.get("beside", ())
        )
        return replace(spec, parts=beside or spec.parts)

    def _hostlist(self, numbers: Sequence[int]) -> str:
        return ",".join(f"{self._lane}n{number}" for number in numbers)

    def id(self, of: str) -> int:
        """The job's id; UNKNOWN: it was not made."""
        return self._jobs[of].id if of in self._jobs else UNKNOWN

    def made(self, of: str) -> Made:
        """The job; with the id UNKNOWN if it was not made."""
        return self._jobs.get(of) or Made(UNKNOWN, self.spec({}))

    def keep(self, of: str, job_id: int, spec: JobSpec) -> str:
        """Remember the job that was made."""
        self._jobs[of] = Made(job_id, spec)
        return "made"

    async def in_time(self, ask: Callable[[], Awaitable[Any]], met: Callable[[Any], bool]) -> Any:
        """The answer as soon as it is as expected, or the last one: accounting is behind slurmctld."""
        for _ in range(ACCOUNTING_LOOKS):
            if met(answer := await ask()):
                break
            await self.cluster.account()
        return answer

    # --- what is seen

    def shown(self, job: Job) -> dict[str, Any]:
        """The fields of the job that two clusters have alike.  An id is shown as the job's name in the sequence."""
        seen = {each.name: getattr(job, each.name) for each in fields(job) if each.compare}
        del seen["sluid"]
        seen |= {key: self._plain(seen[key]) for key in _NAMING}
        seen |= {
            "id": self.which(job.id),
            "het_id": self.which(job.het_id),
            "parts": list(map(self.shown, job.parts)),
        }
        seen |= {key: seen[key] is not None for key in ("submitted", "preempted", "starts")}
        seen["ends"] = (
            job.ends - job.starts if job.ends and job.starts and holds_nodes(job.states) else job.ends is not None
        )
        return compared(seen | {"held": job.priority == 0}, NOT_COMPARED)

    def which(self, job_id: int | None) -> str | None:
        """The job of that id, by its name in the sequence; a further component: which one it is."""
        for of, made in self._jobs.items():
            if job_id is not None and made.id <= job_id <= made.id + len(made.spec.parts):
                return f"{of}+{job_id - made.id}"
        return None if job_id is None else "another"

    def shown_grant(self, grant: Grant) -> Any:
        """The grant, node by node."""
        return [
            (self._plain(node.name), node.cpus, node.memory_mib, dict(node.gres), dict(node.indices))
            for node in grant.nodes
        ]

    def shown_node(self, node: SlurmNode) -> dict[str, Any]:
        """The node."""
        seen = {each.name: getattr(node, each.name) for each in fields(node)}
        ours = [self._plain(partition) for partition in node.partitions if partition.endswith(f"-{self._lane}")]
        seen["states"] = node.states - {"PLANNED"}  # backfill's mark
        return compared(
            seen
            | {
                "name": self._plain(node.name),
                "partitions": sorted(ours),
                "features": sorted(map(self._plain, node.features)),
            },
            NOT_COMPARED,
        )

    def _plain(self, text: str) -> str:
        ids = {str(made.id): of for of, made in self._jobs.items()}
        text = re.sub(r":(\d+)\b", lambda found: f":{ids.get(found[1], found[1])}", text)
        return text.replace(f"{self._run}/", "").replace(f"-{self._lane}", "").replace(self._lane, "")

    async def _admin(self, method: str, path: str, body: Mapping[str, Any] | None = None, user: str = "") -> int:
        """A call that the bridge does not send: the number with which it is refused; 0: it is done."""
        assert self.client.discovery is not None
        headers = {"X-SLURM-USER-TOKEN": self.cluster.tokens.token(), "Content-Type": "application/json"}
        headers |= {"X-SLURM-USER-NAME": user} if user else {}
        target = f"/slurm/{self.client.discovery.api}/{path}"
        sent = json.dumps(body).encode() if body is not None else b""
        reply = await self.cluster.transport.exchange(method, target, headers, sent, deadline_s=30)
        errors = json.loads(reply.body)["errors"] if reply.body.startswith(b"{") else []
        return errors[0]["error_number"] if errors else 0


async def _job(player: Player, call: Call) -> Any:
    spec = player.spec(call.arguments)
    make = player.client.allocate_now if call.verb == "allocate" else player.client.submit
    return await said(make(spec), lambda job_id: player.keep(call.of, job_id, spec))


async def _change(player: Player, call: Call) -> Any:
    made = player.made(call.of)
    spec = player.spec(call.arguments, made.spec)
    changes = frozenset({"excluded_nodes" if key == "excluded" else key for key in call.arguments})
    possible = changes - unchangeable(spec, changes)  # as the bridge does, which never sends the others
    answer = await said(player.client.update(made.id, made.spec.user, spec, possible))
    if answer is None:
        made.spec = spec
    return answer


async def _cancel(player: Player, call: Call) -> Any:
    made = player.made(call.of)
    name = made.spec.name if call.arguments["name"] == "own" else "another"
    return await said(player.client.cancel(made.id, name, _user(made, call.arguments["user"])))


async def _hold(player: Player, call: Call) -> Any:
    made = player.made(call.of)
    body = {"hold": call.verb == "hold"}
    return await player._admin("POST", f"job/{made.id}", body, _user(made, call.arguments["by"]))


async def _nudge(player: Player, call: Call) -> Any:
    made = player.made(call.of)
    return await said(player.client.nudge(made.id, made.spec.user))


async def _grant(player: Player, call: Call) -> Any:
    made = player.made(call.of)
    return await said(player.client.grant(made.id, _user(made, call.arguments["user"])), player.shown_grant)


async def _read(player: Player, call: Call) -> Any:
    return await said(player.client.job(player.id(call.of)), lambda job: None if job is None else player.shown(job))


async def _states(player: Player, _call: Call) -> Any:
    """The states of the sequence's jobs, without when and where a waiting job is expected to start."""
    listed = await player.client.states()
    shown = {player.which(job_id): states for job_id, states in listed.items()}
    return {str(job): states for job, states in shown.items() if job != "another"}


async def _partitions(player: Player, _call: Call) -> Any:
    """The partitions of the lane; which partition is the default one is a matter of all lanes."""
    found = [part for part in await player.client.partitions() if part.name.endswith(f"-{player._lane}")]
    return sorted(player._plain(str(replace(part, default=False))) for part in found)


async def _record_end(player: Player, call: Call) -> Any:
    made = player.made(call.of)

    async def recorded() -> Any:
        return await said(player.client.record_end(made.id, made.spec.user, 3, "ns/a: Error"))

    return await player.in_time(recorded, lambda answer: made.id == UNKNOWN or answer is True)


async def _change_node(player: Player, call: Call) -> Any:
    change = {"drain": NodeChange.DRAIN, "down": NodeChange.DOWN, "resume": NodeChange.RESUME}[call.verb]
    return await said(player.client.change_node(f"{player._lane}{call.of}", change, "maintenance"))


async def _register(player: Player, call: Call) -> Any:
    return await said(player.client.register_node(node_of(player._lane, int(call.of[1:]))))


async def _remove(player: Player, call: Call) -> Any:
    return await said(player.client.remove_node(f"{player._lane}{call.of}"))


def _user(made: Made, which: str) -> str:
    return made.spec.user if which == "own" else which


_PLAYED: Mapping[str, Callable[[Player, Call], Awaitable[Any]]] = {
    "allocate": _job,
    "submit": _job,
    "update": _change,
    "cancel": _cancel,
    "hold": _hold,
    "release": _hold,
    "nudge": _nudge,
    "grant": _grant,
    "read": _read,
    "drain": _change_node,
    "down": _change_node,
    "resume": _change_node,
    "register": _register,
    "remove": _remove,
    "states": _states,
    "partitions": _partitions,
    "record end": _record_end,
}


# --- the two clusters -------------------------------------------------------------------------------------------------


class SimulatedLane:
    """A simulated Slurm that has this lane alone, and looks at its queue every second."""

    def __init__(self, lane: str) -> None:
        self._now = 1_800_000_000.0
        self.cluster = SlurmCluster((), partitions(lane), USERS, stock=False, started=self._now)
        self.cluster.gres_names = frozenset({"gpu", "shard"})
        for number in range(1, NODES + 1):
            gpus = {("gpu", "h100"): GPUS}
            name, has = f"{lane}n{number}", (lane, "fast")
            self.cluster.add_node(SlurmSimNode(name, CPUS, MEMORY_MIB, gpus, has, address="198.51.100.7"))
        self.transport: Transport = InProcessSlurm(self.cluster, self.now)
        self.tokens: TokenSource = LiteralToken(self.cluster.token("slurm"))

    def now(self) -> float:
        return self._now

    async def settle(self, waiting: Callable[[], Awaitable[object]]) -> None:
        """See Cluster."""
        before = None
        while before != (now := await waiting()):
            before = now
            self._now += 1
            self.cluster.tick(self._now)
            self.cluster.check()

    async def account(self) -> None:
        """See Cluster."""
        self.cluster.account(self._now)


class RealLane:
    """A real Slurm, of which this player has a lane."""

    def __init__(self, transport: Transport, tokens: TokenSource) -> None:
        self.transport = transport
        self.tokens = tokens

    def now(self) -> float:
        return time.time()

    async def settle(self, waiting: Callable[[], Awaitable[object]]) -> None:
        """See Cluster."""
        before = await waiting()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await self._scheduled()
                if (now := await waiting()) == before:
                    return
                before = now

    async def account(self) -> None:
        """See Cluster."""
        await asyncio.sleep(LOOK_S)

    async def _scheduled(self) -> None:
        """The scheduler and, where anything can be put forward, backfill have looked at the queue."""
        began = await self._rounds()
        while True:
            await asyncio.sleep(LOOK_S)
            now = await self._rounds()
            if now[0] > began[0] and (now[1] > began[1] or now[0] > began[0] + WITHOUT_BACKFILL):
                return

    async def _rounds(self) -> tuple[int, int]:
        """How often the scheduler and backfill looked at the queue."""
        headers = {"X-SLURM-USER-TOKEN": self.tokens.token()}
        reply = await self.transport.exchange(
            "GET", f"/slurm/{API_VERSIONS[0].name}/diag/", headers, b"", deadline_s=30
        )
        statistics = json.loads(reply.body)["statistics"]
        return statistics["schedule_cycle_total"], statistics["bf_cycle_counter"]


if __name__ == "__main__":
    print(slurm_conf(), end="")
