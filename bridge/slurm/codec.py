"""The core's nouns in slurmrestd's words, and back.

Only the fields that decisions need are read; everything else in an answer (a job is 20 kB) is skipped without being
built.  What is read is checked: a field of another type than Slurm documents is a msgspec.ValidationError, a number
that is none a ValueError, and the client makes a ContractError of both.

slurmrestd's own ways (FACTS 4): numbers that may be absent are {"set", "infinite", "number"}; job ids are strings in
jobs/state ("53+0" is a component of a heterogeneous job, "12_[0-3]" tasks of an array); hostlists stay strings; an
external job's cores are a hexadecimal bitmap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from scheduler.actions import NodeChange
from scheduler.edits import unchangeable
from scheduler.model import (
    UNLIMITED,
    Grant,
    GrantedNode,
    Job,
    JobSpec,
    NodeSpec,
    Partition,
    SlurmNode,
    States,
    is_ended,
)


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """One version of slurmrestd's interface.

    name    as it stands in every path
    since   the first Slurm release that serves it, for people
    """

    name: str
    since: str


# Newest first.  Both serve external jobs and resources/{id} with the same fields; Slurm before 25.11 has neither, and
# its versions need a placeholder of another kind (ARCHITECTURE 5).
API_VERSIONS = (ApiVersion("v0.0.45", "26.05"), ApiVersion("v0.0.44", "25.11"))


# --- what slurmrestd sends ----------------------------------------------------------------------------------------


class Number(msgspec.Struct):
    """A number that may be absent or infinite."""

    set: bool = False
    infinite: bool = False
    number: float = 0

    @property
    def value(self) -> int | None:
        """None where it is absent or infinite."""
        return int(self.number) if self.set and not self.infinite else None


class ErrorEntry(msgspec.Struct):
    """One of `errors`.  error: Slurm's text for the number; description: what was tried."""

    error_number: int = 0
    error: str = ""
    description: str = ""


class WarningEntry(msgspec.Struct):
    """One of `warnings`: Slurm ignored something that we sent."""

    description: str = ""
    source: str = ""


class _Plugin(msgspec.Struct):
    accounting_storage: str = ""


class _SlurmVersion(msgspec.Struct):
    release: str = ""
    cluster: str = ""


class Meta(msgspec.Struct):
    """Who answered."""

    plugin: _Plugin | None = None
    slurm: _SlurmVersion | None = None


class Envelope(msgspec.Struct):
    """What every answer of slurmrestd has around it."""

    errors: tuple[ErrorEntry, ...] | None = ()
    warnings: tuple[WarningEntry, ...] | None = ()
    meta: Meta | None = None


class _Ping(msgspec.Struct):
    responding: bool = False


class PingAnswer(Envelope, kw_only=True):
    """`GET ping/`."""

    pings: tuple[_Ping, ...]


class IdAnswer(Envelope, kw_only=True):
    """`POST job/submit`, `POST job/allocate`."""

    job_id: int


class _JobState(msgspec.Struct, gc=False):
    job_id: str | int
    state: tuple[str, ...]


class StatesAnswer(Envelope, kw_only=True):
    """`GET jobs/state/`."""

    jobs: tuple[_JobState, ...]


class _ExitCode(msgspec.Struct):
    return_code: Number = msgspec.field(default_factory=Number)


class _StepId(msgspec.Struct):
    sluid: str = ""


class _Job(msgspec.Struct):
    job_id: int
    name: str
    user_name: str
    job_state: tuple[str, ...]
    account: str = ""
    partition: str = ""
    qos: str = ""
    state_reason: str = ""
    comment: str = ""
    submit_time: Number = msgspec.field(default_factory=Number)
    start_time: Number = msgspec.field(default_factory=Number)
    end_time: Number = msgspec.field(default_factory=Number)
    preempt_time: Number = msgspec.field(default_factory=Number)
    scheduled_nodes: str = ""
    nodes: str = ""
    excluded_nodes: str = ""
    dependency: str = ""
    step_id: _StepId = msgspec.field(default_factory=_StepId)
    time_limit: Number = msgspec.field(default_factory=Number)
    tasks: Number = msgspec.field(default_factory=Number)
    het_job_id: Number = msgspec.field(default_factory=Number)
    het_job_offset: Number = msgspec.field(default_factory=Number)
    exit_code: _ExitCode = msgspec.field(default_factory=_ExitCode)


class JobAnswer(Envelope, kw_only=True):
    """`GET job/{id}`."""

    jobs: tuple[_Job, ...]


class _GrantedGres(msgspec.Struct):
    name: str
    type: str | None = None
    count: int = 0
    index: str | None = None


class _GrantedNode(msgspec.Struct):
    node: str
    mem_alloc: int
    core_bitmap: str
    gres: tuple[_GrantedGres, ...] | None = ()


class ResourcesAnswer(Envelope, kw_only=True):
    """`GET resources/{id}`."""

    nodes: tuple[_GrantedNode, ...]


class _Node(msgspec.Struct):
    name: str
    state: tuple[str, ...]
    partitions: tuple[str, ...] | None = ()
    active_features: tuple[str, ...] | None = ()
    cpus: int = 0
    effective_cpus: int = 0
    sockets: int = 0
    cores: int = 0
    threads: int = 1
    real_memory: int = 0
    specialized_memory: int = 0
    gres: str = ""
    reason: str = ""


class NodesAnswer(Envelope, kw_only=True):
    """`GET nodes/`."""

    nodes: tuple[_Node, ...]


class _PartitionState(msgspec.Struct):
    state: tuple[str, ...] = ()


class _Maximums(msgspec.Struct):
    time: Number = msgspec.field(default_factory=Number)


class _Partition(msgspec.Struct):
    name: str
    partition: _PartitionState
    maximums: _Maximums = msgspec.field(default_factory=_Maximums)
    flags: tuple[str, ...] | None = ()


class PartitionsAnswer(Envelope, kw_only=True):
    """`GET partitions/`."""

    partitions: tuple[_Partition, ...]


class _KillError(msgspec.Struct):
    code: int = 0
    message: str = ""
    string: str = ""


class _KillStatus(msgspec.Struct):
    error: _KillError = msgspec.field(default_factory=_KillError)


class KillAnswer(Envelope, kw_only=True):
    """`DELETE jobs/`: 200 says little, `status` says what became of it."""

    status: tuple[_KillStatus, ...] | None = ()


class _AccountedState(msgspec.Struct):
    current: tuple[str, ...] = ()


class _AccountedTime(msgspec.Struct):
    end: int = 0


class _AccountedJob(msgspec.Struct):
    job_id: int
    name: str
    state: _AccountedState
    time: _AccountedTime = msgspec.field(default_factory=_AccountedTime)


class AccountedAnswer(Envelope, kw_only=True):
    """`GET /slurmdb/…/jobs/`."""

    jobs: tuple[_AccountedJob, ...]


# --- answers -> the core's nouns -----------------------------------------------------------------------------------

# A cluster uses a few dozen combinations of states; the bound keeps hostile answers from filling memory (X7).
MAX_INTERNED = 4096
_interned: dict[tuple[str, ...], States] = {}


def states(words: tuple[str, ...]) -> States:
    """The same set for the same words, so that polls of 10,000 jobs make no 10,000 sets."""
    known = _interned.get(words)
    if known is None:
        known = frozenset(words)
        if len(_interned) < MAX_INTERNED:
            _interned[words] = known
    return known


def job_states(answer: StatesAnswer) -> dict[int, States]:
    """Job id to states.  Tasks of an array share an id here; of those, one that has not ended is shown."""
    found: dict[int, States] = {}
    for job in answer.jobs:
        text = job.job_id
        if isinstance(text, int) or text.isdecimal():
            found[int(text)] = states(job.state)
        else:
            job_id, now = leading_number(text), states(job.state)
            if job_id not in found or not is_ended(now):
                found[job_id] = now
    return found


def leading_number(text: str) -> int:
    """The job id in "53+0", "12_3", "12_[0-3]".  Raises ValueError."""
    match = re.match(r"[0-9]{1,10}", text)
    if match is None:
        raise ValueError(f"not a job id: {text[:40]!r}")
    return int(match[0])


def job(answer: JobAnswer, job_id: int) -> Job:
    """The job of that id; the leader of a heterogeneous one with its further components, in their order.

    Slurm answers with all components where the leader was asked for, and of an array with all its tasks.
    Raises ValueError where the answer does not hold it.
    """
    seen = next((candidate for candidate in answer.jobs if candidate.job_id == job_id), None)
    if seen is None:
        raise ValueError(f"the answer for job {job_id} does not hold it")
    found = _one_job(seen)
    if found.het_id != job_id:
        return found
    others = (_one_job(other) for other in answer.jobs if other is not seen and other.het_job_id.value == job_id)
    return replace(found, parts=tuple(sorted(others, key=lambda part: part.het_offset or 0)))


def _one_job(seen: _Job) -> Job:
    het_id = seen.het_job_id.value or None
    return Job(
        id=seen.job_id,
        name=seen.name,
        user=seen.user_name,
        states=states(seen.job_state),
        account=seen.account,
        partition=seen.partition,
        qos=seen.qos,
        reason=seen.state_reason,
        comment=seen.comment,
        submitted=_moment(seen.submit_time),
        starts=_moment(seen.start_time),
        ends=_moment(seen.end_time),
        preempted=_moment(seen.preempt_time),
        planned_nodes=seen.scheduled_nodes,
        nodes=seen.nodes,
        sluid=seen.step_id.sluid,
        time_limit_min=UNLIMITED if seen.time_limit.infinite else seen.time_limit.value,
        excluded_nodes=seen.excluded_nodes,
        dependency=seen.dependency,
        exit_code=seen.exit_code.return_code.value or 0,
        tasks=seen.tasks.value or 1,
        het_id=het_id,
        het_offset=None if het_id is None else seen.het_job_offset.value,
    )


def grant(answer: ResourcesAnswer, job_id: int, threads_per_core: Mapping[str, int]) -> Grant:
    """What the job holds.  Slurm tells cores; CPUs are cores times the node's threads a core (1 where not known)."""
    return Grant(job_id, tuple(_granted_node(node, threads_per_core.get(node.node, 1)) for node in answer.nodes))


def _granted_node(node: _GrantedNode, threads: int) -> GrantedNode:
    counts: dict[str, int] = {}
    indices: dict[str, list[str]] = {}
    for device in node.gres or ():
        for name in _names(device.name, device.type or ""):
            counts[name] = counts.get(name, 0) + device.count
            indices.setdefault(name, []).extend([device.index] if device.index else [])
    return GrantedNode(
        name=node.node,
        cpus=int(node.core_bitmap, 16).bit_count() * threads,
        memory_mib=node.mem_alloc,
        gres=counts,
        indices={name: ",".join(parts) for name, parts in indices.items()},
    )


def nodes(answer: NodesAnswer) -> tuple[SlurmNode, ...]:
    """What Slurm can give away of each node: CPUs and memory that it keeps for itself are left out."""
    return tuple(
        SlurmNode(
            name=node.name,
            states=states(node.state),
            partitions=node.partitions or (),
            features=node.active_features or (),
            cpus=node.effective_cpus or node.cpus,
            memory_mib=node.real_memory - node.specialized_memory,
            gres=gres_counts(node.gres),
            reason=node.reason,
        )
        for node in answer.nodes
    )


def node(answer: NodesAnswer, name: str) -> SlurmNode:
    """The one of that name.  Raises ValueError where it is another."""
    found = nodes(answer)
    if [each.name for each in found] != [name]:
        raise ValueError(f"asked for node {name}, told of {', '.join(each.name for each in found) or 'none'}")
    return found[0]


def threads_per_core(answer: NodesAnswer) -> dict[str, int]:
    """Node name to threads a core, only where that is not 1."""
    return {node.name: node.threads for node in answer.nodes if node.threads > 1}


_SOCKETS = re.compile(r"\([^)]*\)")
_COUNT = re.compile(r"([0-9]+)([KMGTP]?)", re.IGNORECASE)


def gres_counts(text: str) -> dict[str, int]:
    """ "gpu:h100:8(S:0-1),shard:32" -> {"gpu": 8, "gpu:h100": 8, "shard": 32}.  Raises ValueError."""
    counts: dict[str, int] = {}
    for item in filter(None, _SOCKETS.sub("", text).split(",")):
        parts = [part for part in item.split(":") if part != "no_consume"]
        count = 1
        if len(parts) > 1 and (match := _COUNT.fullmatch(parts[-1])):
            count = int(match[1]) << (10 * "KMGTP".find(match[2].upper()) + 10 if match[2] else 0)
            parts.pop()
        if len(parts) > 2 or not parts[0]:
            raise ValueError(f"not a GRES: {item[:80]!r}")
        for name in _names(parts[0], parts[1] if len(parts) == 2 else ""):
            counts[name] = counts.get(name, 0) + count
    return counts


def _names(name: str, kind: str) -> tuple[str, ...]:
    """A typed device counts under its plain name too: whoever asks for a "gpu" takes any."""
    return (name, f"{name}:{kind}") if kind else (name,)


def partitions(answer: PartitionsAnswer) -> tuple[Partition, ...]:
    """The partitions.  v0.0.44 does not tell which is the default one."""
    return tuple(
        Partition(
            name=seen.name,
            default="DEFAULT" in (seen.flags or ()),
            up="UP" in seen.partition.state,
            max_time_min=seen.maximums.time.value,
        )
        for seen in answer.partitions
    )


def live_ids(answer: AccountedAnswer, name: str) -> tuple[int, ...]:
    """Ids of the jobs of exactly this name that accounting believes to live, oldest first, each once."""
    return tuple(
        sorted(
            {
                j.job_id
                for j in answer.jobs
                if j.name == name and not j.time.end and not is_ended(states(j.state.current))
            }
        )
    )


def _moment(number: Number) -> float | None:
    """Epoch seconds; Slurm writes 0 for "not known"."""
    return float(number.number) if number.set and not number.infinite and number.number > 0 else None


# --- the core's nouns -> requests ----------------------------------------------------------------------------------

_EXCLUSIVE = {"exclusive": "none", "user": "user", "mcs": "mcs"}

# Each field of a JobSpec in slurmrestd's words.  For a new job a field with nothing in it is left out; in an update it
# is sent, and clears.  `user` is no field of a job but who sends the request (I2).
_FIELDS: Mapping[str, Callable[[JobSpec], Mapping[str, Any]]] = {
    "name": lambda spec: {"name": spec.name},
    "cpus_per_task": lambda spec: _cpus(spec),
    "memory_mib": lambda spec: _memory(spec),
    "gres": lambda spec: _gres(spec),
    "account": lambda spec: {"account": spec.account},
    "partition": lambda spec: {"partition": spec.partition},
    "qos": lambda spec: {"qos": spec.qos},
    "reservation": lambda spec: {"reservation": spec.reservation},
    "constraints": lambda spec: {"constraints": spec.constraints},
    "wckey": lambda spec: {"wckey": spec.wckey},
    "comment": lambda spec: {"comment": spec.comment},
    "time_limit_min": lambda spec: {"time_limit": _time_limit(spec.time_limit_min)},
    "nice": lambda spec: {"nice": spec.nice or 0},
    "exclusive": lambda spec: {"shared": [_EXCLUSIVE[spec.exclusive]]},
    # one element: slurmctld reads a folded hostlist as fast as it reads none, a list of names 20 times slower (F2)
    # and an empty one clears, where an empty list would change nothing
    "excluded_nodes": lambda spec: {"excluded_nodes": [spec.excluded_nodes]},
    "required_nodes": lambda spec: {"required_nodes": [spec.required_nodes]},
    "licenses": lambda spec: {"licenses": ",".join(f"{name}:{count}" for name, count in spec.licenses)},
    # 0 would leave it as it is; the second after it is long past, which clears
    "begin": lambda spec: {"begin_time": {"set": True, "number": spec.begin or 1}},
    "dependency": lambda spec: {"dependency": spec.dependency},
    "switches": lambda spec: dict(zip(("required_switches", "wait_for_switch"), spec.switches or (0, 0), strict=True)),
}

_ALWAYS = frozenset({"name", "cpus_per_task", "memory_mib"})


def job_body(spec: JobSpec, *, immediate: bool) -> bytes:
    """A new placeholder without a script (`EXTERNAL_JOB`), one job or a heterogeneous one."""
    if not spec.parts:
        return msgspec.json.encode({"job": _job(spec) | ({"immediate": True} if immediate else {})})
    assert not immediate, "Slurm starts heterogeneous jobs from its queue alone (2078)"
    assert all(part.user == spec.user and not part.parts for part in spec.parts), "one job of one user"
    return msgspec.json.encode({"jobs": [_job(component) for component in (spec, *spec.parts)]})


def _job(spec: JobSpec) -> dict[str, Any]:
    wanted: dict[str, Any] = {"flags": ["EXTERNAL_JOB"], **_layout(spec)}
    for field, render in _FIELDS.items():
        if field in _ALWAYS or getattr(spec, field) not in ("", (), None):
            wanted |= render(spec)
    return wanted


def _layout(spec: JobSpec) -> dict[str, Any]:
    """How many tasks on how many nodes; of what is not said, Slurm packs them on as few as it can."""
    if spec.tasks == 1:
        return {"tasks": 1, "nodes": "1"}
    said = {"tasks_per_node": spec.tasks_per_node, "minimum_nodes": spec.min_nodes, "maximum_nodes": spec.max_nodes}
    return {"tasks": spec.tasks, **{field: number for field, number in said.items() if number is not None}}


def _places(spec: JobSpec) -> int | None:
    """On every node that it gets; None where that is Slurm's to decide."""
    return 1 if spec.tasks == 1 else spec.tasks_per_node


def _cpus(spec: JobSpec) -> Mapping[str, Any]:
    if spec.tasks == 1:
        return {"cpus_per_task": spec.cpus_per_task}
    # without the tasks beside them Slurm would go on counting the CPUs of before; and memory goes by CPUs
    return {"tasks": spec.tasks, "cpus_per_task": spec.cpus_per_task, **_memory(spec)}


def _memory(spec: JobSpec) -> Mapping[str, Any]:
    """Of a node where it is known how many tasks that has, else for each CPU, so that no task gets less than it asks for.

    (For each CPU is the lesser choice: an exclusive job is charged for all CPUs of its nodes.)
    """
    places = _places(spec)
    if places is not None:
        return {"memory_per_node": {"set": True, "number": places * spec.memory_mib}}
    return {"memory_per_cpu": {"set": True, "number": -(-spec.memory_mib // spec.cpus_per_task)}}


def _gres(spec: JobSpec) -> Mapping[str, Any]:
    """Of a node, which static external nodes count rightly too (FACTS 7), else of each task."""
    places = _places(spec)
    text = ",".join(f"gres/{name}:{count * (places or 1)}" for name, count in spec.gres)
    return {"tres_per_task" if places is None else "tres_per_node": text}


def update_body(spec: JobSpec, changes: frozenset[str]) -> bytes:
    """The named fields of `spec`, empty ones too; only what Slurm changes of a waiting job (edits.py)."""
    assert not unchangeable(spec, changes), "decided against Slurm's rules"
    wanted: dict[str, Any] = {}
    for field in sorted(changes):
        wanted |= _FIELDS[field](spec)
    return msgspec.json.encode(wanted)


def comment_body(comment: str) -> bytes:
    """An update that changes nothing but makes slurmctld look at its queue (the kick)."""
    return msgspec.json.encode({"comment": comment})


def end_body(exit_code: int, comment: str) -> bytes:
    """What accounting is told at the end.  Slurm wants the wait status: the code in the high byte (FACTS 2)."""
    return msgspec.json.encode(
        {
            "derived_exit_code": {"return_code": {"set": True, "number": (exit_code & 0xFF) << 8}},
            "comment": {"job": comment},
        }
    )


def _time_limit(minutes: int | None) -> Mapping[str, Any]:
    assert minutes is not None, "left out for a new job, unchangeable in an update"
    return {"set": True, "infinite": True} if minutes == UNLIMITED else {"set": True, "number": minutes}


def node_body(spec: NodeSpec) -> bytes:
    """A new external node, as a line of slurm.conf tells it (N1, FACTS 7): no slurmd, and every device by a file's name.

    The files need not exist; they give Slurm's devices their indices.
    """
    words = {
        "NodeName": spec.name,
        "NodeAddr": spec.address,
        "Sockets": 1,
        "CoresPerSocket": spec.cpus,
        "ThreadsPerCore": 1,
        "RealMemory": spec.memory_mib,
        "Gres": ",".join(f"{name}:{count}" for name, count in spec.gres),
        "GresConf": "+".join(_device_files(spec)),
        "Feature": ",".join(spec.features),
        "Topology": ",".join(f"{name}:{unit}" for name, unit in spec.topology),
        "State": "EXTERNAL",
    }
    line = " ".join(f"{key}={value}" for key, value in words.items() if value != "")
    assert len(line.split()) == sum(value != "" for value in words.values()), "a value with a blank in it"
    return msgspec.json.encode({"node_conf": line})


def _device_files(spec: NodeSpec) -> Iterator[str]:
    """One item a GRES, with types of one name numbered one after the other."""
    used: dict[str, int] = {}
    for gres, count in spec.gres:
        name, _, kind = gres.partition(":")
        first = used.get(name, 0)
        used[name] = first + count
        indices = f"[{first}-{first + count - 1}]" if count > 1 else str(first)
        yield f"count={count},name={name}" + (f",type={kind}" if kind else "") + f",file=/dev/{name}{indices}"


def node_change_body(change: NodeChange, reason: str) -> bytes:
    """What is done to a node; a resume takes no reason, it clears the one that is there."""
    told = {} if change is NodeChange.RESUME else {"reason": reason}
    return msgspec.json.encode({"state": [change.value], **told})
