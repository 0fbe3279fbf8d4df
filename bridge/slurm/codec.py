"""Decodes slurmrestd's answers to values of the scheduler.

A malformed number is a ValueError.  In an answer about one object the client raises a ContractError for it; in a list the one
item is left out and reported (lists.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from bridge.slurm import wire
from bridge.slurm.lists import ListAnswer, UndecodedItem
from bridge.slurm.responses import plain
from bridge.slurm.wire import moment
from scheduler.model.amounts import EMPTY
from scheduler.model.cache import BoundedDict
from scheduler.model.slurm import UNLIMITED, Grant, GrantedNode, Job, Partition, SlurmNode, States, is_ended

# A cluster uses a few dozen combinations of states; the bound keeps hostile answers from filling memory (X7).
MAX_INTERNED = 4096
MOST_LETTERS = 256
MOST_REASON = 1024  # characters of a node's reason
MOST_COMMENT = 2048  # characters at the end of a job's comment, which hold the name of its pod
_interned: dict[tuple[str, ...], States] = {}


def states(words: tuple[str, ...]) -> States:
    """The set of these states; equal states give the same object, so that a poll of 10,000 jobs does not make 10,000 sets."""
    known = _interned.get(words)
    if known is None:
        known = frozenset(words)
        if len(_interned) < MAX_INTERNED and sum(map(len, words)) <= MOST_LETTERS and len(words) <= MOST_LETTERS:
            _interned[words] = known
    return known


_T = TypeVar("_T")
_I = TypeVar("_I")


@dataclass(frozen=True, slots=True)
class Listed(Generic[_T]):
    """A decoded list.  undecoded: its items that could not be read; their objects exist all the same."""

    found: _T
    undecoded: tuple[UndecodedItem, ...] = ()


def job_states(answer: ListAnswer[wire.JobState]) -> Listed[Mapping[int, States]]:
    """Job id to states.  The tasks of an array share an id; a task that has not ended is shown first."""
    found: dict[int, States] = {}
    undecoded: list[UndecodedItem] = list(answer.undecoded)
    for job in answer.items:
        text, now = job.job_id, states(job.state)
        if isinstance(text, str) and text.isdecimal() and len(text) < 10:  # nearly all, so this goes first
            found[int(text)] = now
            continue
        try:
            job_id = job_number(text)
        except ValueError as error:
            undecoded.append(UndecodedItem(None, str(error)))
            continue
        if job_id not in found or not is_ended(now):
            found[job_id] = now
    return Listed(found, tuple(undecoded))


_JOB_ID = re.compile(r"[0-9]{1,10}(?![0-9])")
MAX_JOB_ID = 2**32 - 1


def job_number(value: str | int) -> int:
    """The job id in 53, "53", "53+0", "12_3", "12_[0-3]".  Raises ValueError."""
    match = _JOB_ID.match(value) if isinstance(value, str) else None
    number = value if isinstance(value, int) else int(match[0]) if match else 0
    if not 0 < number <= MAX_JOB_ID:
        raise ValueError(f"not a job id: {str(value)[:40]!r}")
    return number


# Reasons of a component that waits for its turn, or for the other components.
_TURN = frozenset({"", "None", "Priority", "Resources", "Dependency"})


def job(answer: wire.JobAnswer, job_id: int) -> Job:
    """The job of that id; the leader of a heterogeneous job comes with its further components, in their order.

    If the leader is requested, Slurm answers with all components; for an array it answers with all tasks.
    Raises ValueError if the answer does not hold it.
    """
    seen = next((candidate for candidate in answer.jobs if candidate.job_id == job_id), None)
    if seen is None:
        raise ValueError(f"the answer for job {job_id} does not hold it")
    found = replace(_one_job(seen), as_of=moment(answer.last_update))
    if found.het_id != job_id:
        return found
    others = (_one_job(other) for other in answer.jobs if other is not seen and other.het_job_id.value == job_id)
    parts = sorted(others, key=lambda part: part.het_offset or 0)
    return replace(found, parts=tuple(parts), reason=_reason(found, parts))


def _reason(leader: Job, parts: Iterable[Job]) -> str:
    """Why the heterogeneous job waits.  If one component is held, Slurm starts none, and the leader still shows "None".

    New components may show for a moment that they depend on each other (docs/decisions/0002).
    """
    waiting = (each.reason for each in (leader, *parts) if "PENDING" in leader.states)
    return next((reason for reason in waiting if reason not in _TURN), leader.reason)


def _one_job(seen: wire.Job) -> Job:
    het_id = seen.het_job_id.value or None
    return Job(
        id=seen.job_id,
        name=seen.name,
        user=seen.user_name,
        states=states(seen.job_state),
        account=seen.account,
        partition=seen.partition,
        qos=seen.qos,
        reason=plain(seen.state_reason),
        comment=seen.comment[-MOST_COMMENT:],
        submitted=moment(seen.submit_time),
        starts=moment(seen.start_time),
        ends=moment(seen.end_time),
        preempted=moment(seen.preempt_time),
        planned_nodes=seen.scheduled_nodes,
        priority=seen.priority.value,
        nodes=seen.nodes,
        sluid=seen.step_id.sluid,
        time_limit_min=UNLIMITED if seen.time_limit.infinite else seen.time_limit.value,
        excluded_nodes=seen.excluded_nodes,
        required_nodes=seen.required_nodes,
        least_nodes=seen.node_count.value,
        constraints=seen.features,
        memory_mib=seen.memory_per_node.value,
        dependency=seen.dependency,
        exit_code=seen.exit_code.return_code.value or 0,
        tasks=seen.tasks.value or 1,
        het_id=het_id,
        het_offset=None if het_id is None else seen.het_job_offset.value,
    )


def grant(
    answer: wire.ResourcesAnswer, job_id: int, threads_per_core: Mapping[str, int], cpus: Mapping[str, int] = EMPTY
) -> Grant:
    """The nodes of the job.  Slurm shows cores; CPUs are cores times the node's CPUs a core (1 if not known).

    cpus   node name to the CPUs of the job there, if that is known exactly
    """
    return Grant(
        job_id,
        tuple(
            _granted_node(node, cpus.get(node.node) or _bits(node.core_bitmap) * threads_per_core.get(node.node, 1))
            for node in answer.nodes
        ),
    )


def cpus_held(answer: wire.JobResourcesAnswer, job_id: int) -> tuple[bool | None, Mapping[str, int]]:
    """True if this Slurm allocates single CPUs (CR_CPU…: threads, not cores), and the CPUs of the job on each node.

    None: the answer does not show it, because the job holds nothing (any more): it waits again, or has ended.
    """
    held = next((job.job_resources for job in answer.jobs if job.job_id == job_id), None)
    if held is None or not held.select_type:
        return None, {}
    single = any(word.upper().startswith("CR_CPU") for word in held.select_type)
    allocation = held.nodes.allocation or () if held.nodes is not None else ()
    return single, {node.name: node.cpus.count for node in allocation}


def _granted_node(node: wire.GrantedNode, cpus: int) -> GrantedNode:
    counts: dict[str, int] = {}
    indices: dict[str, list[str]] = {}
    for device in node.gres or ():
        for name in _names(device.name, device.type or ""):
            counts[name] = counts.get(name, 0) + device.count
            indices.setdefault(name, []).extend([device.index] if device.index else [])
    return GrantedNode(
        name=node.node,
        cpus=cpus,
        memory_mib=node.mem_alloc,
        gres=counts,
        indices={name: ",".join(parts) for name, parts in indices.items()},
    )


_BITMAP = re.compile(r"(?:0x)?[0-9A-Fa-f]*")


def _bits(bitmap: str) -> int:
    """The number of bits that are set in a hexadecimal number.  Raises ValueError."""
    if not _BITMAP.fullmatch(bitmap):
        raise ValueError(f"not a bitmap: {bitmap[:40]!r}")
    return int(bitmap or "0", 16).bit_count()


def nodes(answer: ListAnswer[wire.Node]) -> Listed[tuple[SlurmNode, ...]]:
    """Every node that could be read."""
    return _each(answer, slurm_node, lambda node: node.name)


def _each(answer: ListAnswer[_I], make: Callable[[_I], _T], key: Callable[[_I], str]) -> Listed[tuple[_T, ...]]:
    found: list[_T] = []
    undecoded = list(answer.undecoded)
    for item in answer.items:
        try:
            found.append(make(item))
        except ValueError as error:
            undecoded.append(UndecodedItem(key(item), str(error)))
    return Listed(tuple(found), tuple(undecoded))


def slurm_node(node: wire.Node) -> SlurmNode:
    """The node's resources that Slurm can allocate, without the CPUs and memory that it reserves.  Raises ValueError."""
    return SlurmNode(
        name=node.name,
        states=states(node.state),
        partitions=node.partitions or (),
        features=node.active_features or (),
        cpus=node.effective_cpus or node.cpus,
        memory_mib=max(0, node.real_memory - node.specialized_memory),
        gres=gres_counts(node.gres),
        reason=node.reason[:MOST_REASON],
        held_cpus=node.alloc_cpus,
        held_memory_mib=node.alloc_memory,
        held_gres=gres_counts(node.gres_used),
    )


def node(answer: wire.NodesAnswer, name: str) -> SlurmNode:
    """The node of that name.  Raises ValueError if it is another one, or cannot be read."""
    if [node.name for node in answer.nodes] != [name]:
        raise ValueError(f"asked for node {name}, told of {', '.join(node.name for node in answer.nodes) or 'none'}")
    return slurm_node(answer.nodes[0])


def cpus_per_core(nodes: Iterable[wire.Node]) -> dict[str, int]:
    """Node name to CPUs a core, of nodes with more than 1.

    Its threads, unless slurm.conf says that the node has no more CPUs than cores.
    """
    counts = {node.name: _cpus_per_core(node) for node in nodes}
    return {name: count for name, count in counts.items() if count > 1}


def _cpus_per_core(node: wire.Node) -> int:
    cores = node.sockets * node.cores
    return min(node.threads, max(1, node.cpus // cores)) if cores else node.threads


_SOCKETS = re.compile(r"\([^()]*\)")  # no bracket inside: many that open and never close would be searched without end
_COUNT = re.compile(r"([0-9]+)([KMGTP]?)", re.IGNORECASE)
GRES_WEIGHT = 256  # of the counts of a short text, in characters
_known_gres: BoundedDict[str, Mapping[str, int]] = BoundedDict(2**20)
MOST_DEVICES = 2**63 - 1  # of a kind on a node, as of all counts (wire.Count)


def gres_counts(text: str) -> Mapping[str, int]:
    """ "gpu:h100:8(S:0-1),shard:32" -> {"gpu": 8, "gpu:h100": 8, "shard": 32}.  Raises ValueError.

    Slurm writes what jobs hold in the same way: "gpu:h100:2(IDX:0-1)", and "gpu:(null):2(IDX:0-1)" without a type.

    Thousands of nodes have the same devices: equal texts give the same object.
    """
    known = _known_gres.get(text)
    return known if known is not None else _known_gres.keep(text, _counted(text), GRES_WEIGHT + len(text))


def _counted(text: str) -> Mapping[str, int]:
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
            if counts[name] > MOST_DEVICES:
                raise ValueError(f"more devices than Slurm can count: {item[:80]!r}")
    return counts


def _names(name: str, kind: str) -> tuple[str, ...]:
    """A typed device counts under its plain name, too: a request for "gpu" takes any type."""
    return (name, f"{name}:{kind}") if kind else (name,)


def partitions(answer: ListAnswer[wire.Partition]) -> Listed[tuple[Partition, ...]]:
    """The partitions.  v0.0.44 does not show which one is the default."""
    return _each(answer, _partition, lambda partition: partition.name)


def _partition(seen: wire.Partition) -> Partition:
    return Partition(
        name=seen.name,
        default="DEFAULT" in (seen.flags or ()),
        up="UP" in seen.partition.state,
        max_time_min=seen.maximums.time.value,
        qos=seen.qos.assigned,
        accepts=(
            *(text for names in (seen.accounts, seen.groups, seen.qos) for text in (names.allowed, names.deny)),
            seen.minimums.nodes,
            *(
                limit.value
                for limit in (
                    seen.maximums.nodes,
                    seen.maximums.cpus_per_node,
                    seen.maximums.cpus_per_socket,
                    seen.maximums.partition_memory_per_cpu,
                    seen.maximums.partition_memory_per_node,
                )
            ),
            *sorted(flag for flag in seen.flags or () if flag != "DEFAULT"),
        ),
    )


def live_ids(answer: ListAnswer[wire.AccountedJob], name: str) -> tuple[int, ...]:
    """Ids of the jobs of exactly this name that accounting believes to live, oldest first, each once.

    A record that cannot be read may be such a job: its id is among them.  Raises ValueError if it has none.
    """
    alive = {
        job.job_id
        for job in answer.items
        if job.name == name and not job.time.end and not is_ended(states(job.state.current))
    }
    for record in answer.undecoded:
        alive.add(job_number(record.key if record.key is not None else "a record without an id"))
    return tuple(sorted(alive))
