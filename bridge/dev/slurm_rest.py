"""The face of slurmrestd over the simulated cluster: paths, JSON, statuses.  (Job descriptions: slurm_wishes.py.)

It says what the real one was heard to say, awkward parts included: 200 with an error in `status`, warnings for fields it
does not know, 404 in plain text for a path it does not know, 403 to a cancel while slurmctld is down, job ids as strings
in jobs/state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec

from bridge.dev import slurm_survey
from bridge.dev.slurm_jobs import SimJob, SimPartition, SimUser
from bridge.dev.slurm_node_conf import node_of
from bridge.dev.slurm_nodes import Holding, SlurmSimNode
from bridge.dev.slurm_numbers import TEXTS, SlurmSaysNo
from bridge.dev.slurm_wishes import begin, job_of, layout_told, switches, unknown_fields
from scheduler.hostlist import fold

if TYPE_CHECKING:
    from bridge.dev.slurm_cluster import SlurmCluster

Answer = tuple[int, dict[str, str], bytes]
Body = dict[str, Any]

VERSIONS = ("v0.0.45", "v0.0.44")
SLURM_USER = "slurm"
RELEASE = "26.05.5"

_JSON = {"Content-Type": "application/json"}
_TEXT = {"Content-Type": "text/plain", "Connection": "Close"}
_NO_URL = b"Unable to find requested URL endpoint. Please query the '/openapi/v3' endpoint."

# Of a running job these may be changed; the rest is 2073.
_CHANGEABLE_WHILE_RUNNING = frozenset({"time_limit", "comment", "name", "nice", "account"})


class _Asked:
    """One request, taken apart."""

    __slots__ = ("acts_as", "body", "cluster", "now", "operator", "query", "version")

    def __init__(self, cluster: SlurmCluster, now: float, version: str, query: str, body: bytes) -> None:
        self.cluster, self.now, self.version = cluster, now, version
        self.query = parse_qs(query) if query else {}
        self.body = body
        self.acts_as = ""
        self.operator = False


def answer(
    cluster: SlurmCluster, now: float, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> Answer:
    """One request, one answer; see SlurmCluster.handle."""
    path, _, query = target.partition("?")
    parts = path.strip("/").split("/")
    if len(parts) < 3 or parts[0] not in ("slurm", "slurmdb") or parts[1] not in VERSIONS:
        return 404, _TEXT, _NO_URL
    route, argument = _ROUTES.get((method, parts[0], parts[2], len(parts))), parts[-1]
    if route is None:
        return 404, _TEXT, _NO_URL
    asked = _Asked(cluster, now, parts[1], query, body)
    lowered = {name.lower(): value for name, value in headers.items()}
    if body and "json" not in lowered.get("content-type", "application/json"):
        return 500, _TEXT, b"Unspecified error"
    token = lowered.get("x-slurm-user-token", "")
    if not token:
        return 401, _TEXT, b"Authentication failure"
    try:
        if route is not _ping:
            _authenticate(asked, token, lowered.get("x-slurm-user-name", ""))
            _reachable(cluster, parts[0], method, parts[2], argument)
        return route(asked, argument)
    except SlurmSaysNo as no:
        return _refusal(asked, no.number)
    except msgspec.DecodeError:
        return 400, _TEXT, b"Failure during parsing"


def _authenticate(asked: _Asked, token: str, name: str) -> None:
    user = asked.cluster.who(token, asked.now)
    if user is None or (name and name != user and user != SLURM_USER):
        raise SlurmSaysNo(1007)
    asked.acts_as = name or user
    asked.operator = asked.acts_as == SLURM_USER


def _reachable(cluster: SlurmCluster, side: str, method: str, noun: str, argument: str) -> None:
    """slurmrestd alone: what it says of each call while the daemon behind it is down."""
    if side == "slurmdb":
        if not cluster.accounting_up:
            raise SlurmSaysNo(7000)
    elif not cluster.controller_up:
        if noun == "jobs" and method == "DELETE":
            raise SlurmSaysNo(1)
        raise SlurmSaysNo(_WHILE_DOWN.get((method, noun), 1800) if argument not in ("submit", "allocate") else 1800)


# Measured with slurmctld stopped.  POST job/{id} is an update, unless it is a submission or an allocation.
_WHILE_DOWN = {("GET", "jobs"): -1, ("GET", "job"): -1, ("GET", "resources"): -1, ("POST", "job"): 1000}


# --- answers ------------------------------------------------------------------------------------------------------

_metas: dict[tuple[str, bool], msgspec.Raw] = {}


def _meta(asked: _Asked) -> msgspec.Raw:
    key = (asked.version, asked.cluster.accounting)
    if key not in _metas:
        storage = "accounting_storage/slurmdbd" if asked.cluster.accounting else ""
        meta = {
            "plugin": {
                "type": "openapi/slurmctld",
                "data_parser": f"data_parser/{asked.version}",
                "accounting_storage": storage,
            },
            "slurm": {"release": RELEASE, "cluster": "simulated"},
        }
        _metas[key] = msgspec.Raw(msgspec.json.encode(meta))
    return _metas[key]


def _yes(asked: _Asked, content: Mapping[str, Any], warnings: tuple[Mapping[str, str], ...] = ()) -> Answer:
    return 200, _JSON, msgspec.json.encode({**content, "meta": _meta(asked), "errors": (), "warnings": warnings})


def _refusal(asked: _Asked, number: int) -> Answer:
    status, text = TEXTS[number]
    errors = ({"description": "Request failed", "error_number": number, "error": text, "source": "slurmctld"},)
    body = msgspec.json.encode({"meta": _meta(asked), "errors": errors, "warnings": ()})
    return status, {**_JSON, "Connection": "Close"}, body


def _number(value: int | None) -> Mapping[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


# --- reads --------------------------------------------------------------------------------------------------------


def _ping(asked: _Asked, _: str) -> Answer:
    up = asked.cluster.controller_up
    ping: dict[str, Any] = {"hostname": "slurm-host", "responding": up, "primary": True, "latency": 100}
    if asked.version == "v0.0.44":
        ping["pinged"] = "UP" if up else "DOWN"
    return _yes(asked, {"pings": (ping,)})


def _states(asked: _Asked, _: str) -> Answer:
    jobs = asked.cluster.jobs
    if wanted := asked.query.get("job_id"):
        listed = [part for job_id in map(int, wanted) if job_id in jobs for part in _with_parts(asked, jobs[job_id])]
    else:
        listed = list(jobs.values())
    return _yes(asked, {"jobs": [{"job_id": _full_id(job), "state": (job.state, *job.flags)} for job in listed]})


def _full_id(job: SimJob) -> str:
    return f"{job.id}+{job.het_offset}" if job.het_id else str(job.id)


def _with_parts(asked: _Asked, job: SimJob) -> list[SimJob]:
    """Who asks for a leader is told of all components."""
    return asked.cluster.components(job) if job.id == job.het_id else [job]


def _job(asked: _Asked, argument: str) -> Answer:
    return _yes(asked, {"jobs": [_told(asked, job) for job in _with_parts(asked, _known(asked, argument))]})


def _told(asked: _Asked, job: SimJob) -> Mapping[str, Any]:
    limit = job.time_limit_min
    return {
        "account": job.account,
        "comment": job.comment,
        "cpus_per_task": _number(job.wanted.cpus),
        "dependency": ",".join(map(str, asked.cluster.waits_for(job, asked.now))) if job.pending else "",
        "eligible_time": _number(max(job.submitted, job.begin)),
        "end_time": _number(job.ends),
        "excluded_nodes": job.excluded_text,
        "exit_code": {"return_code": _number(job.exit_code)},
        "features": job.constraints,
        "hold": bool(job.held),
        "job_id": job.id,
        "job_state": (job.state, *job.flags),
        "licenses": job.licenses_text,
        "maximum_switch_wait_time": job.switches[1],
        "het_job_id": _number(job.het_id),
        "het_job_offset": _number(job.het_offset),
        "memory_per_cpu": _number(job.wanted.memory_mib if job.wanted.memory_by_cpu else None),
        "memory_per_node": _number(None if job.wanted.memory_by_cpu else job.wanted.memory_mib),
        "name": job.name,
        "nice": job.nice,
        "nodes": fold(job.nodes),
        "partition": job.partition,
        "preempt_time": _number(job.preempted),
        "priority": _number(0 if job.held else 1),
        "qos": job.qos,
        "required_switches": job.switches[0],
        "resv_name": job.reservation,
        "scheduled_nodes": job.planned,
        "shared": [job.shared] if job.shared and asked.version == "v0.0.44" else [],  # the newer one does not tell
        "start_time": _number(job.starts),
        "state_reason": job.reason,
        "step_id": {"sluid": f"s{job.serial:013d}"},
        "submit_time": _number(job.submitted),
        "tasks": _number(job.wanted.tasks),
        "tasks_per_node": _number(job.wanted.tasks_per_node or 0),
        "time_limit": _number(limit) if limit is not None else {"set": False, "infinite": True, "number": 0},
        "tres_per_node": job.gres_text,
        "tres_per_task": job.task_gres_text,
        "user_name": job.user,
        "wckey": job.wckey,
    }


def _resources(asked: _Asked, argument: str) -> Answer:
    job = _known(asked, argument)
    if not job.holds:
        raise SlurmSaysNo(2085)
    return _yes(asked, {"nodes": [_held(holding, asked.cluster.nodes[holding.node].cpus) for holding in job.holdings]})


def _held(holding: Holding, cores: int) -> Mapping[str, Any]:
    return {
        "node": holding.node,
        "sockets_per_node": 1,
        "cores_per_socket": cores,
        "mem_alloc": holding.memory_mib,
        "core_bitmap": f"0x{holding.cores:0{-(-cores // 4)}X}",
        "gres": [
            {"name": name, "type": kind, "count": len(indices), "index": _ranges(indices)}
            for (name, kind), indices in holding.devices.items()
        ],
    }


def _nodes(asked: _Asked, _: str) -> Answer:
    partitions = list(asked.cluster.partitions)
    return _yes(asked, {"nodes": [_node(node, partitions) for node in asked.cluster.nodes.values()]})


def _one_node(asked: _Asked, argument: str) -> Answer:
    if argument not in asked.cluster.nodes:
        raise SlurmSaysNo(0)
    return _yes(asked, {"nodes": [_node(asked.cluster.nodes[argument], list(asked.cluster.partitions))]})


def _node(node: SlurmSimNode, partitions: list[str]) -> Mapping[str, Any]:
    return {
        "name": node.name,
        "state": node.states,
        "partitions": partitions,
        "features": node.features,
        "active_features": node.features,
        "cpus": node.cpus,
        "effective_cpus": node.cpus,
        "sockets": 1,
        "cores": node.cpus,
        "threads": 1,
        "real_memory": node.memory_mib,
        "specialized_memory": 0,
        "gres": ",".join(f"{name}:{kind}:{n}" if kind else f"{name}:{n}" for (name, kind), n in node.devices.items()),
        "alloc_cpus": node.cpus - node.free_cores.bit_count(),
        "address": node.address or node.name,
        "reason": node.reason,
    }


def _partitions(asked: _Asked, _: str) -> Answer:
    return _yes(asked, {"partitions": [_partition(p, asked.version) for p in asked.cluster.partitions.values()]})


def _partition(partition: SimPartition, version: str) -> Mapping[str, Any]:
    longest = partition.max_time_min
    told: dict[str, Any] = {
        "name": partition.name,
        "partition": {"state": ("UP" if partition.up else "DOWN",)},
        "preempt_mode": ["REQUEUE"] if partition.preempted else ["CLUSTER_GLOBAL"],
        "grace_time": 0,
        "node_sets": "ALL",
        "defaults": {"time": _number(partition.default_time_min)},
        "maximums": {
            "time": _number(longest) if longest is not None else {"set": False, "infinite": True, "number": 0}
        },
    }
    if version != "v0.0.44":
        told["flags"] = ("DEFAULT",) if partition.default else ()
    return told


def _conf(asked: _Asked, _: str) -> Answer:
    if asked.version < slurm_survey.CONFIGURATION_SINCE:
        return 404, _TEXT, _NO_URL
    return _yes(asked, slurm_survey.configuration(asked.cluster))


def _diag(asked: _Asked, _: str) -> Answer:
    return _yes(asked, slurm_survey.diag(asked.now))


def _user(asked: _Asked, argument: str) -> Answer:
    level = "Operator" if argument in asked.cluster.operators else "None"
    known = argument in asked.cluster.users
    return _yes(asked, {"users": [{"name": argument, "administrator_level": [level]}] if known else []})


def _reservations(asked: _Asked, _: str) -> Answer:
    return _yes(asked, slurm_survey.reservations(asked.cluster))


def _accounted(asked: _Asked, _: str) -> Answer:
    found = [job for name in asked.query.get("job_name", ()) for job in asked.cluster.accounted.get(name, ())]
    jobs = [
        {
            "job_id": job.id,
            "name": job.name,
            "user": job.user,
            "state": {"current": (job.state,), "reason": job.reason},
            "time": {"end": job.ends if job.ended else 0, "submission": job.submitted},
            "comment": {"job": job.accounted_comment},
            "derived_exit_code": {"return_code": _number(job.derived_exit_code)},
        }
        for job in found
    ]
    nothing = {"description": "slurmdb_jobs_get() found nothing", "source": "_dump_jobs"}
    return _yes(asked, {"jobs": jobs}, () if jobs else (nothing,))


# --- writes -------------------------------------------------------------------------------------------------------


def _submit(asked: _Asked, _: str) -> Answer:
    wished = _wished(asked)
    if isinstance(wished.get("jobs"), list):
        job, warnings = _taken_together(asked, wished["jobs"])
    else:
        job, warnings = _taken(asked, wished.get("job"))
    asked.cluster.look_after_submission(asked.now)
    return _yes(asked, {"job_id": job.id, "step_id": "batch"}, warnings)


def _allocate(asked: _Asked, _: str) -> Answer:
    if "defer" in asked.cluster.slurm_conf.get("SchedulerParameters", ()):
        raise SlurmSaysNo(2125)  # and keeps no record of it
    job, warnings = _taken(asked, _wished(asked).get("job"))
    cluster = asked.cluster
    number = _not_now(cluster, job, asked.now)
    if number:
        cluster.refuse(job, asked.now)
        raise SlurmSaysNo(number)
    return _yes(asked, {"job_id": job.id}, warnings)


def _not_now(cluster: SlurmCluster, job: SimJob, now: float) -> int:
    """Start it at once; else the number that says why not."""
    if cluster.not_runnable(job, now) in ("Dependency", "DependencyNeverSatisfied", "BeginTime"):
        return 2038
    if cluster.over_limit(cluster.users[job.user], job.wanted):
        return 2050
    partition = cluster.partitions[job.partition]
    if not partition.up or cluster.blocks_immediate(partition, job, now):
        return 2013
    if not cluster.has_licenses(job):
        return 2040
    if not cluster.has_nodes_in_service(job):
        return 2068
    if cluster.place(job, now):
        return 0
    cluster.preempt_for(job, now)  # the room that this makes is for whoever asks next
    return 2016


def _wished(asked: _Asked) -> Body:
    wished = msgspec.json.decode(asked.body) if asked.body else {}
    return wished if isinstance(wished, dict) else {}


def _taken(asked: _Asked, wished: Any) -> tuple[SimJob, tuple[Mapping[str, str], ...]]:
    """The job in the queue.  Raises SlurmSaysNo."""
    draft, warnings = _drafted(asked, wished)
    _queued(asked, draft)
    if not asked.cluster.could(draft.wanted):
        asked.cluster.refuse(draft, asked.now)
        raise SlurmSaysNo(2014)
    return draft, warnings


def _taken_together(asked: _Asked, wishes: list[Any]) -> tuple[SimJob, tuple[Mapping[str, str], ...]]:
    """The components of a heterogeneous job in the queue; its leader.  Raises SlurmSaysNo."""
    cluster = asked.cluster
    if any(isinstance(wished, dict) and wished.get("immediate") for wished in wishes):
        raise SlurmSaysNo(2078)
    drafts = [_drafted(asked, wished) for wished in wishes or [None]]
    jobs = [draft for draft, _ in drafts]
    for offset, job in enumerate(jobs):
        job.het_id, job.het_offset = cluster.next_id - offset, offset
        _queued(asked, job)
    if not all(cluster.could(job.wanted) for job in jobs):
        cluster.cancel(jobs[0].id, asked.now)
        raise SlurmSaysNo(2014)
    return jobs[0], tuple(warning for _, warnings in drafts for warning in warnings)


def _drafted(asked: _Asked, wished: Any) -> tuple[SimJob, tuple[Mapping[str, str], ...]]:
    cluster = asked.cluster
    if not isinstance(wished, dict):
        raise SlurmSaysNo(9000)
    if len(cluster.jobs) >= cluster.max_job_count:
        raise SlurmSaysNo(2007)
    user = cluster.users.get(asked.acts_as)
    if user is None:
        raise SlurmSaysNo(6010)
    warnings = unknown_fields(wished)
    draft = job_of(asked.cluster, user, wished, asked.now, operator=asked.operator)
    if wished.get("hold"):
        draft.held = draft.reason = "JobHeldUser"
        warnings += (
            {"description": "Job is in held state, pending scheduler release", "source": "slurm_submit_batch_job()"},
        )
    if not cluster.partitions[draft.partition].up:
        warnings += ({"description": "Partition in DOWN state", "source": "slurm_submit_batch_job()"},)
    return draft, warnings


def _queued(asked: _Asked, draft: SimJob) -> None:
    draft.id, draft.serial = asked.cluster.new_id()
    asked.cluster.new_job(draft)
    draft.reason = asked.cluster.not_runnable(draft, asked.now) or draft.reason
    draft.starts = draft.begin if draft.reason == "BeginTime" else 0


def _update(asked: _Asked, argument: str) -> Answer:
    job = _known(asked, argument)
    wished: Body = msgspec.json.decode(asked.body)
    if job.user != asked.acts_as and not asked.operator:
        raise SlurmSaysNo(2010)
    if job.ended:
        raise SlurmSaysNo(2084)
    if job.pending:
        _change_waiting(asked, job, wished)
    else:
        _change_running(asked, job, wished)
    asked.cluster.look_soon(asked.now)
    return _yes(asked, {"results": None}, unknown_fields(wished))


def _change_waiting(asked: _Asked, job: SimJob, wished: Body) -> None:
    cluster = asked.cluster
    if (wished.get("nice", 0) < 0 or wished.get("shared")) and not asked.operator:
        raise SlurmSaysNo(2002)
    if wished.get("account") == "":
        raise SlurmSaysNo(2045)
    if "hold" in wished:
        if job.held == "JobHeldAdmin" and not asked.operator:
            raise SlurmSaysNo(2002)
        job.held = ("JobHeldAdmin" if asked.operator else "JobHeldUser") if wished["hold"] else ""
        job.reason = job.held or "None"
    excluded = ",".join(wished["excluded_nodes"]) if wished.get("excluded_nodes") else job.excluded_text
    limit: Body = {
        "set": job.time_limit_min is not None,
        "infinite": job.time_limit_min is None,
        "number": job.time_limit_min,
    }
    if (wished.get("time_limit") or {}).get("set"):
        limit = wished["time_limit"]
    merged: Body = {
        "name": job.name, "partition": job.partition, "account": job.account, "qos": job.qos, "nice": job.nice,
        "comment": job.comment, "dependency": "", "reservation": job.reservation,
        "constraints": job.constraints, "wckey": job.wckey,
        "licenses": job.licenses_text,
        "shared": ["none"] if job.wanted.whole else [], **layout_told(job, wished),
        **wished, "time_limit": limit, "excluded_nodes": [excluded],
    }  # fmt: skip
    user = cluster.users[job.user]
    unlimited = SimUser(user.name, user.accounts, user.qos)  # it is in the queue already
    changed = job_of(cluster, unlimited, merged, asked.now, operator=asked.operator)
    if any(condition.job_id == job.id for condition in changed.dependency):
        raise SlurmSaysNo(2038)
    for field in ("name", "partition", "account", "qos", "nice", "comment", "constraints", "wckey", "gres_text",
                  "task_gres_text", "excluded_text", "wanted", "time_limit_min", "licenses", "licenses_text",
                  "reservation"):  # fmt: skip
        setattr(job, field, getattr(changed, field))
    if "dependency" in wished:
        job.dependency = changed.dependency
    job.begin = begin(wished, job.begin)
    job.switches = switches(wished, job.switches)


def _change_running(asked: _Asked, job: SimJob, wished: Body) -> None:
    if not wished.keys() <= _CHANGEABLE_WHILE_RUNNING:
        raise SlurmSaysNo(2073)
    limit = wished.get("time_limit") or {}
    if limit.get("set"):
        minutes = None if limit.get("infinite") else int(limit["number"])
        now = job.time_limit_min
        if not asked.operator and now is not None and (minutes is None or minutes > now):
            raise SlurmSaysNo(2002)
        job.time_limit_min = minutes
        job.ends = job.starts + minutes * 60 if minutes is not None else 0
    job.comment = wished.get("comment", job.comment)
    job.name = wished.get("name", job.name)


def _cancel(asked: _Asked, _: str) -> Answer:
    """By id, where the name is the job's: only what failed is told of."""
    wished: Body = msgspec.json.decode(asked.body)
    codes = [code for job_id in wished["jobs"] for code in _cancel_one(asked, _id(job_id), wished["job_name"])]
    texts = [(code, _NOT_CANCELLED.get(code) or TEXTS[code][1]) for code in codes]
    return _yes(asked, {"status": [{"error": {"string": text, "code": code, "message": text}} for code, text in texts]})


_NOT_CANCELLED = {2021: "Job/step already completing or completed", 2172: "Cannot signal job"}


def _cancel_one(asked: _Asked, job_id: int, name: str) -> list[int]:
    job = asked.cluster.jobs.get(job_id)
    if job is None:
        return [2017]
    if job.name != name:
        return [2172]
    if job.user != asked.acts_as and not asked.operator and not job.ended:
        return [2002]
    ended = [2021 for each in _with_parts(asked, job) if each.ended]
    asked.cluster.cancel(job.id, asked.now)  # also where only some components of it had ended
    return ended


def _record(asked: _Asked, argument: str) -> Answer:
    job = asked.cluster.accounted_by_id.get(_id(argument))
    if job is None:
        return 304, {"Connection": "Close"}, b""
    wished: Body = msgspec.json.decode(asked.body)
    code = ((wished.get("derived_exit_code") or {}).get("return_code") or {}).get("number", 0)
    job.derived_exit_code = code >> 8
    job.accounted_comment = (wished.get("comment") or {}).get("job", job.accounted_comment)
    return _yes(asked, {"results": (f"{job.id} submitted",)})


def _reserve(asked: _Asked, _: str) -> Answer:
    wished: Body = msgspec.json.decode(asked.body)
    asked.cluster.reservations.add(wished["name"])
    return _yes(asked, {"reservation_name": wished["name"]})


def _unreserve(asked: _Asked, argument: str) -> Answer:
    asked.cluster.reservations.discard(argument)
    return _yes(asked, {})


def _new_node(asked: _Asked, argument: str) -> Answer:
    if argument != "node":
        return 404, _TEXT, _NO_URL
    if not asked.operator:
        raise SlurmSaysNo(2002)
    cluster = asked.cluster
    node = node_of(str(_wished(asked).get("node_conf", "")), cluster.gres_names)
    if node.name in cluster.nodes:
        raise SlurmSaysNo(2168)
    cluster.add_node(node)
    cluster.look_soon(asked.now)
    return _yes(asked, {})


def _remove_node(asked: _Asked, argument: str) -> Answer:
    if not asked.operator:
        raise SlurmSaysNo(2002)
    node = asked.cluster.nodes.get(argument)
    if node is None:
        raise SlurmSaysNo(2018)
    if not node.dynamic:
        raise SlurmSaysNo(2028)
    if node.jobs:
        raise SlurmSaysNo(2016)
    asked.cluster.remove_node(argument)
    return _yes(asked, {})


def _reconfigure(asked: _Asked, _: str) -> Answer:
    if not asked.operator:
        raise SlurmSaysNo(2002)
    for node in asked.cluster.nodes.values():
        node.not_responding &= node.dynamic  # those of new/node stay so
    asked.cluster.look_soon(asked.now)
    return _yes(asked, {})


def _change_node(asked: _Asked, argument: str) -> Answer:
    cluster = asked.cluster
    if argument not in cluster.nodes:
        raise SlurmSaysNo(2018)
    if not asked.operator:
        raise SlurmSaysNo(2002)
    wished: Body = msgspec.json.decode(asked.body)
    for state in wished.get("state", ()):
        if state == "DRAIN":
            cluster.drain(argument, wished.get("reason", ""))
        elif state == "DOWN":
            cluster.down(argument, asked.now, wished.get("reason", ""))
        elif state in ("RESUME", "UNDRAIN"):
            cluster.resume(argument, asked.now)
    return _yes(asked, {})


def _known(asked: _Asked, argument: str) -> SimJob:
    job = asked.cluster.jobs.get(_id(argument))
    if job is None:
        raise SlurmSaysNo(2017)
    return job


def _id(argument: str) -> int:
    return int(argument) if argument.isdecimal() and len(argument) < 12 else -1


def _ranges(indices: tuple[int, ...]) -> str:
    """(0, 1, 2, 5) -> "0-2,5"."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _job_post(asked: _Asked, argument: str) -> Answer:
    return {"submit": _submit, "allocate": _allocate}.get(argument, _update)(asked, argument)


# (method, side, noun, number of path segments)
_ROUTES: Mapping[tuple[str, str, str, int], Callable[[_Asked, str], Answer]] = {
    ("GET", "slurm", "ping", 3): _ping,
    ("GET", "slurm", "jobs", 4): _states,
    ("GET", "slurm", "job", 4): _job,
    ("GET", "slurm", "resources", 4): _resources,
    ("GET", "slurm", "nodes", 3): _nodes,
    ("GET", "slurm", "node", 4): _one_node,
    ("GET", "slurm", "partitions", 3): _partitions,
    ("POST", "slurm", "job", 4): _job_post,
    ("DELETE", "slurm", "jobs", 3): _cancel,
    ("POST", "slurm", "new", 4): _new_node,
    ("POST", "slurm", "node", 4): _change_node,
    ("DELETE", "slurm", "node", 4): _remove_node,
    ("GET", "slurm", "reconfigure", 3): _reconfigure,
    ("GET", "slurm", "conf", 3): _conf,
    ("GET", "slurm", "diag", 3): _diag,
    ("GET", "slurm", "reservations", 3): _reservations,
    ("POST", "slurm", "reservation", 3): _reserve,
    ("DELETE", "slurm", "reservation", 4): _unreserve,
    ("GET", "slurmdb", "jobs", 3): _accounted,
    ("POST", "slurmdb", "job", 4): _record,
    ("GET", "slurmdb", "user", 4): _user,
}
