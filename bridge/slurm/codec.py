"""slurmrestd's answers as the core's nouns.

A number that is none is a ValueError, of which the client makes a ContractError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from bridge.slurm import wire
from scheduler.model import UNLIMITED, Grant, GrantedNode, Job, Partition, SlurmNode, States, is_ended

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


def job_states(answer: wire.StatesAnswer) -> dict[int, States]:
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


def job(answer: wire.JobAnswer, job_id: int) -> Job:
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


def grant(answer: wire.ResourcesAnswer, job_id: int, threads_per_core: Mapping[str, int]) -> Grant:
    """What the job holds.  Slurm tells cores; CPUs are cores times the node's threads a core (1 where not known)."""
    return Grant(job_id, tuple(_granted_node(node, threads_per_core.get(node.node, 1)) for node in answer.nodes))


def _granted_node(node: wire.GrantedNode, threads: int) -> GrantedNode:
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


def nodes(answer: wire.NodesAnswer) -> tuple[SlurmNode, ...]:
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


def node(answer: wire.NodesAnswer, name: str) -> SlurmNode:
    """The one of that name.  Raises ValueError where it is another."""
    found = nodes(answer)
    if [each.name for each in found] != [name]:
        raise ValueError(f"asked for node {name}, told of {', '.join(each.name for each in found) or 'none'}")
    return found[0]


def threads_per_core(answer: wire.NodesAnswer) -> dict[str, int]:
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


def partitions(answer: wire.PartitionsAnswer) -> tuple[Partition, ...]:
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


def live_ids(answer: wire.AccountedAnswer, name: str) -> tuple[int, ...]:
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


def _moment(number: wire.Number) -> float | None:
    """Epoch seconds; Slurm writes 0 for "not known"."""
    return float(number.number) if number.set and not number.infinite and number.number > 0 else None
