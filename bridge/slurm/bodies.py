"""Encodes specifications of jobs and nodes as bodies of requests to slurmrestd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from scheduler.actions import NodeChange
from scheduler.model.slurm import UNLIMITED, JobSpec, NodeSpec
from scheduler.translate.job_update import unchangeable

_EXCLUSIVE = {"exclusive": "none", "user": "user", "mcs": "mcs"}

# Each field of a JobSpec in slurmrestd's words.  A request for a new job leaves out empty fields.  An update sends an empty
# field, which clears the value.  `user` is not a field of a job: the request is sent as that user (I2).
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
    "time_least_min": lambda spec: {"time_minimum": {"set": True, "number": spec.time_least_min or 0}},  # 0 clears
    "nice": lambda spec: {"nice": spec.nice or 0},
    "exclusive": lambda spec: {"shared": [_EXCLUSIVE[spec.exclusive]]},
    # one element: slurmctld reads a folded hostlist 20 times as fast as a list of names (F2)
    # an empty text clears the field; an empty list would change nothing
    "excluded_nodes": lambda spec: {"excluded_nodes": [spec.excluded_nodes]},
    "required_nodes": lambda spec: {"required_nodes": [spec.required_nodes]},
    "licenses": lambda spec: {"licenses": ",".join(f"{name}:{count}" for name, count in spec.licenses)},
    # 0 would change nothing; 1 is a time in 1970, which clears the begin time
    "begin": lambda spec: {"begin_time": {"set": True, "number": spec.begin or 1}},
    "dependency": lambda spec: {"dependency": spec.dependency},
    "switches": lambda spec: dict(zip(("required_switches", "wait_for_switch"), spec.switches or (0, 0), strict=True)),
}

_ALWAYS = frozenset({"name", "cpus_per_task", "memory_mib"})


def is_job(spec: JobSpec) -> bool:
    """True if a job can be requested by this specification, which another version of the bridge may have written."""
    one_user = all(part.user == spec.user and not part.parts for part in spec.parts)
    return one_user and all(each.exclusive in ("", *_EXCLUSIVE) for each in (spec, *spec.parts))


def job_body(spec: JobSpec, *, immediate: bool) -> bytes:
    """A new placeholder without a script (`EXTERNAL_JOB`), one job or a heterogeneous one."""
    if not spec.parts:
        return msgspec.json.encode({"job": _job(spec) | ({"immediate": True} if immediate else {})})
    assert not immediate, "Slurm starts heterogeneous jobs from its queue alone (2078)"
    assert is_job(spec), "one job of one user"
    return msgspec.json.encode({"jobs": [_job(component) for component in (spec, *spec.parts)]})


def _job(spec: JobSpec) -> dict[str, Any]:
    wanted: dict[str, Any] = {"flags": ["EXTERNAL_JOB"], **_layout(spec)}
    for field, render in _FIELDS.items():
        if field in _ALWAYS or getattr(spec, field) not in ("", (), None):
            wanted |= render(spec)
    return wanted


def _layout(spec: JobSpec) -> dict[str, Any]:
    """The numbers of tasks and nodes.  Without a number of nodes, Slurm packs the tasks on as few as it can."""
    if spec.tasks == 1:
        return {"tasks": 1, "nodes": "1"}
    layout = {"tasks_per_node": spec.tasks_per_node, "minimum_nodes": spec.min_nodes, "maximum_nodes": spec.max_nodes}
    return {"tasks": spec.tasks, **{field: number for field, number in layout.items() if number is not None}}


def _places(spec: JobSpec) -> int | None:
    """Tasks on every node of the job; None: Slurm decides."""
    return 1 if spec.tasks == 1 else spec.tasks_per_node


def _cpus(spec: JobSpec) -> Mapping[str, Any]:
    if spec.tasks == 1:
        return {"cpus_per_task": spec.cpus_per_task}
    # without the tasks in the same update, Slurm keeps counting the former CPUs; and memory is given for each CPU
    return {"tasks": spec.tasks, "cpus_per_task": spec.cpus_per_task, **_memory(spec)}


def _memory(spec: JobSpec) -> Mapping[str, Any]:
    """Memory of a node if the number of tasks on it is known, else for each CPU, so that no task gets too little.

    (Memory for each CPU is the second choice: an exclusive job is charged for all CPUs of its nodes.)
    """
    places = _places(spec)
    if places is not None:
        return {"memory_per_node": {"set": True, "number": places * spec.memory_mib}}
    return {"memory_per_cpu": {"set": True, "number": -(-spec.memory_mib // spec.cpus_per_task)}}


def _gres(spec: JobSpec) -> Mapping[str, Any]:
    """GRES by node, which Slurm counts correctly on static external nodes, too (Slurm facts 7); else by task."""
    places = _places(spec)
    text = ",".join(f"gres/{name}:{count * (places or 1)}" for name, count in spec.gres)
    return {"tres_per_task" if places is None else "tres_per_node": text}


def update_body(spec: JobSpec, changes: frozenset[str]) -> bytes:
    """The named fields of `spec`, also empty ones; only fields that Slurm changes in a pending job (job_update.py)."""
    assert not unchangeable(spec, changes), "decided against Slurm's rules"
    wanted: dict[str, Any] = {}
    for field in sorted(changes):
        wanted |= _FIELDS[field](spec)
    if "cpus_per_task" in changes:  # Slurm keeps both numbers, which a new job gets from its tasks (Slurm facts 8)
        wanted["minimum_cpus"] = spec.tasks * spec.cpus_per_task
        wanted["minimum_cpus_per_node"] = (_places(spec) or 1) * spec.cpus_per_task
    return msgspec.json.encode(wanted)


# An update without any field (the nudge).  slurmctld looks at its queue after every update that it accepts.
NO_CHANGE = b"{}"


def end_body(exit_code: int, comment: str) -> bytes:
    """The record for accounting at the end.  Slurm expects the wait status: the code in the high byte (Slurm facts 2)."""
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
    """A new external node, as a line of slurm.conf (N1, Slurm facts 7): without slurmd, each device with the name of a file.

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
    """One item for each GRES; types of one name are numbered one after the other."""
    used: dict[str, int] = {}
    for gres, count in spec.gres:
        name, _, kind = gres.partition(":")
        first = used.get(name, 0)
        used[name] = first + count
        indices = f"[{first}-{first + count - 1}]" if count > 1 else str(first)
        yield f"count={count},name={name}" + (f",type={kind}" if kind else "") + f",file=/dev/{name}{indices}"


def node_change_body(change: NodeChange, reason: str) -> bytes:
    """The change of a node.  A resume takes no reason: it clears the present one."""
    extra = {} if change is NodeChange.RESUME else {"reason": reason}
    return msgspec.json.encode({"state": [change.value], **extra})
