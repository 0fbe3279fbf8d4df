"""Requests that change the simulated Slurm: jobs, nodes, reservations, accounting.  (Job descriptions: job_request.py.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from bridge.simulation.slurm.error_numbers import NOT_CANCELLED, TEXTS, SlurmRefusal
from bridge.simulation.slurm.job_request import begin, job_of, layout_shown, switches, unknown_fields
from bridge.simulation.slurm.jobs import SimJob, SimUser
from bridge.simulation.slurm.node_conf import node_of
from bridge.simulation.slurm.requests import NO_URL, TEXT, Answer, Asked, Body, job_id_of, known, with_parts, yes
from scheduler.model.hostlist import expand

# Fields that may be changed of a running job; any other is refused with 2073.
_CHANGEABLE_WHILE_RUNNING = frozenset({"time_limit", "time_minimum", "comment", "name", "nice", "hold"})
Warnings = tuple[Mapping[str, str], ...]
_NOT_YET = ("Dependency", "DependencyNeverSatisfied", "BeginTime")  # why a job cannot start at once, room or not
_MEMORY = frozenset({"memory_per_node", "memory_per_cpu"})
# Fields of a job whose names in a submission are the same.
_KEPT_AS_NAMED = ("name", "partition", "account", "qos", "nice", "comment", "reservation", "constraints", "wckey")
_CHANGEABLE_WHILE_PENDING = (
    "name", "partition", "account", "qos", "nice", "comment", "constraints", "wckey", "gres_text", "task_gres_text",
    "excluded_text", "wanted", "time_limit_min", "time_least_min", "licenses", "licenses_text", "reservation",
)  # fmt: skip


def submit(asked: Asked, _: str) -> Answer:
    body = _body(asked)
    if isinstance(body.get("jobs"), list):
        job, warnings = _taken_together(asked, body["jobs"])
    else:
        job, warnings = _taken(asked, body.get("job"))
    asked.cluster.look_after_submission(asked.now)
    return yes(asked, {"job_id": job.id, "step_id": "batch"}, warnings)


def allocate(asked: Asked, _: str) -> Answer:
    if "defer" in asked.cluster.slurm_conf.get("SchedulerParameters", ()):
        raise SlurmRefusal(2125)  # and keeps no record of it
    body = _body(asked).get("job")
    job, warnings = _drafted(asked, body)
    _queue(asked, job)
    number = _not_now(asked, job, body)
    if number:
        asked.cluster.refuse(job, asked.now)
        raise SlurmRefusal(number)
    return yes(asked, {"job_id": job.id}, warnings)


def _not_now(asked: Asked, job: SimJob, body: Any) -> int:
    """Start it at once; else the number that says why not."""
    cluster, now = asked.cluster, asked.now
    if cluster.not_runnable(job, now) in _NOT_YET:
        return 2038
    if cluster.over_limit(cluster.users[job.user], job.wanted):
        return 2050
    partition = cluster.partitions[job.partition]
    if cluster.blocks_immediate(partition, job, now):
        return 2013
    if not partition.up:
        return 2101
    if not _possible(asked, job, body):
        return 2014
    if not cluster.has_licenses(job):
        return 2040
    if not cluster.has_nodes_in_service(job):
        return 2068
    if cluster.place(job, now):
        return 0
    cluster.preempt_for(job, now)  # the next request gets the room that this makes
    return 2016


def _body(asked: Asked) -> Body:
    body = msgspec.json.decode(asked.body) if asked.body else {}
    return body if isinstance(body, dict) else {}


def _taken(asked: Asked, body: Any) -> tuple[SimJob, Warnings]:
    """The job in the queue.  Raises SlurmRefusal."""
    draft, warnings = _drafted(asked, body)
    _queue(asked, draft)
    if not _possible(asked, draft, body):
        asked.cluster.refuse(draft, asked.now)
        raise SlurmRefusal(2014)
    return draft, (*warnings, *_waits_for_nodes(draft))


def _possible(asked: Asked, job: SimJob, body: Any) -> bool:
    """True if the empty cluster could run it.  If a node that it must have is out of service, devices are not looked at."""
    required = expand(",".join(body.get("required_nodes") or ()))
    waits = not all(asked.cluster.nodes[name].in_service for name in required)
    return asked.cluster.could(replace(job.wanted, gres=(), task_gres=()) if waits else job.wanted)


def _waits_for_nodes(job: SimJob) -> Warnings:
    """The warning for a job that no node in service could run now."""
    if job.reason != "ReqNodeNotAvail":
        return ()
    return ({"description": TEXTS[2068][1], "source": "slurm_submit_batch_job()"},)


def _taken_together(asked: Asked, components: list[Any]) -> tuple[SimJob, Warnings]:
    """The components of a heterogeneous job in the queue; its leader.  Raises SlurmRefusal."""
    cluster = asked.cluster
    if any(isinstance(body, dict) and body.get("immediate") for body in components):
        raise SlurmRefusal(2078)
    drafts = [_drafted(asked, body) for body in components or [None]]
    jobs = [draft for draft, _ in drafts]
    _keep_apart(jobs, components)
    for offset, job in enumerate(jobs):
        job.het_id, job.het_offset = cluster.next_id - offset, offset
        _queue(asked, job)
    if not all(cluster.could(job.wanted) for job in jobs):
        cluster.cancel(jobs[0].id, asked.now)
        raise SlurmRefusal(2014)
    warnings = [each for job, of_draft in drafts for each in (*of_draft, *_waits_for_nodes(job))]
    if warnings:
        said = f"HetJob submission resulted in non-zero return code: {warnings[0]['description']}"
        warnings.insert(0, {"description": said, "source": "slurm_submit_batch_het_job()"})
    return jobs[0], tuple(warnings)


def _keep_apart(jobs: list[SimJob], components: list[Any]) -> None:
    """The nodes that one component must have are excluded for the others."""
    for job in jobs:
        for other, body in zip(jobs, components, strict=True):
            required = ",".join(body.get("required_nodes") or ()) if other is not job else ""
            job.excluded_text = ",".join(filter(None, [job.excluded_text, required]))
            job.wanted = replace(job.wanted, excluded=job.wanted.excluded | frozenset(expand(required)))


def _drafted(asked: Asked, body: Any) -> tuple[SimJob, Warnings]:
    cluster = asked.cluster
    if not isinstance(body, dict):
        raise SlurmRefusal(9000)
    if len(cluster.jobs) >= cluster.max_job_count:
        raise SlurmRefusal(2007)
    user = cluster.users.get(asked.as_user)
    if user is None:
        raise SlurmRefusal(6010)
    warnings = unknown_fields(body)
    draft = job_of(asked.cluster, user, body, asked.now, operator=asked.operator)
    if body.get("hold"):
        draft.held = draft.reason = "JobHeldUser"
        warnings += (
            {"description": "Job is in held state, pending scheduler release", "source": "slurm_submit_batch_job()"},
        )
    if not cluster.partitions[draft.partition].up:
        warnings += ({"description": "Partition in DOWN state", "source": "slurm_submit_batch_job()"},)
    return draft, warnings


def _queue(asked: Asked, draft: SimJob) -> None:
    draft.id, draft.serial = asked.cluster.new_id()
    asked.cluster.new_job(draft)
    draft.reason = asked.cluster.not_runnable(draft, asked.now) or draft.reason
    if draft.reason == "None" and not asked.cluster.has_nodes_in_service(draft):
        draft.reason = "ReqNodeNotAvail"
    draft.starts = draft.begin if draft.reason == "BeginTime" else 0


def update(asked: Asked, argument: str) -> Answer:
    job = known(asked, argument)
    body: Body = msgspec.json.decode(asked.body)
    if job.user != asked.as_user and not asked.operator:
        raise SlurmRefusal(2010)
    if job.ended:
        raise SlurmRefusal(2084)
    if job.pending:
        _change_waiting(asked, job, body)
    else:
        _change_running(asked, job, body)
    asked.cluster.note_name(job)
    asked.cluster.look_soon(asked.now)
    return yes(asked, {"results": None}, unknown_fields(body))


def _change_waiting(asked: Asked, job: SimJob, body: Body) -> None:
    """Change a pending job as `sbatch` would have made it with these values, in all that it may change."""
    _check_change(asked, body)
    if "hold" in body:
        _hold(asked, job, bool(body["hold"]))
    user = asked.cluster.users[job.user]
    unlimited = SimUser(user.name, user.accounts, user.qos)  # it is in the queue already
    changed = job_of(asked.cluster, unlimited, _merged(job, body), asked.now, operator=asked.operator)
    if any(condition.job_id == job.id for condition in changed.dependency):
        raise SlurmRefusal(2038)
    for field in _CHANGEABLE_WHILE_PENDING:
        setattr(job, field, getattr(changed, field))
    if "dependency" in body:
        job.dependency = changed.dependency
    job.begin = begin(body, job.begin)
    job.switches = switches(body, job.switches)


def _check_change(asked: Asked, body: Body) -> None:
    """Raises SlurmRefusal for what a user may not ask for."""
    if (body.get("nice", 0) < 0 or body.get("shared")) and not asked.operator:
        raise SlurmRefusal(2002)
    if body.get("account") == "":
        raise SlurmRefusal(2045)


def _hold(asked: Asked, job: SimJob, hold: bool) -> None:
    """Hold or release it; a hold of an operator is released by an operator alone.  Raises SlurmRefusal."""
    if job.held == "JobHeldAdmin" and not asked.operator:
        raise SlurmRefusal(2002)
    job.held = ("JobHeldAdmin" if asked.operator else "JobHeldUser") if hold else ""
    job.reason = job.held or "None"


def _merged(job: SimJob, body: Body) -> Body:
    """A submission that would make the same job, with these values in place of the job's own."""
    limit: Body = {
        "set": job.time_limit_min is not None,
        "infinite": job.time_limit_min is None,
        "number": job.time_limit_min,
    }
    if (body.get("time_limit") or {}).get("set"):
        limit = body["time_limit"]
    excluded = ",".join(body["excluded_nodes"]) if body.get("excluded_nodes") else job.excluded_text
    return {
        **{field: getattr(job, field) for field in _KEPT_AS_NAMED},
        "dependency": "", "licenses": job.licenses_text,
        "time_minimum": {"set": True, "number": job.time_least_min},
        "shared": ["none"] if job.wanted.whole else [], **layout_shown(job, body),
        **body, "time_limit": limit, "excluded_nodes": [excluded],
    }  # fmt: skip


def _change_running(asked: Asked, job: SimJob, body: Body) -> None:
    if body.get("qos", job.qos) not in ("", *asked.cluster.users[job.user].qos):
        raise SlurmRefusal(2066)
    same = {field for field in ("partition", "qos", "account") if body.get(field) == getattr(job, field)}
    same |= {"qos"} if body.get("qos") == "" and job.qos == asked.cluster.users[job.user].qos[0] else set()
    if not body.keys() <= _CHANGEABLE_WHILE_RUNNING | _MEMORY | same:
        raise SlurmRefusal(2073)
    if body.get("nice", 0) < 0 and not asked.operator:
        raise SlurmRefusal(2002)
    job.comment = body.get("comment", job.comment)  # also if the next is refused
    if body.keys() & _MEMORY:
        raise SlurmRefusal(2036)
    if "hold" in body:
        _hold(asked, job, bool(body["hold"]))
    limit = body.get("time_limit") or {}
    if limit.get("set"):
        minutes = None if limit.get("infinite") else int(limit["number"])
        now = job.time_limit_min
        if not asked.operator and now is not None and (minutes is None or minutes > now):
            raise SlurmRefusal(2002)
        job.time_limit_min = minutes
        job.ends = job.starts + minutes * 60 if minutes is not None else 0
    job.name = body.get("name", job.name)


def cancel(asked: Asked, _: str) -> Answer:
    """Cancel jobs by id if the name is the job's; the answer lists only failures."""
    body: Body = msgspec.json.decode(asked.body)
    numbers = [each for job_id in body["jobs"] for each in _cancel_one(asked, job_id_of(job_id), body["job_name"])]
    texts = [(each, NOT_CANCELLED.get(each) or TEXTS[each][1]) for each in numbers]
    return yes(asked, {"status": [{"error": {"string": text, "code": each, "message": text}} for each, text in texts]})


def _cancel_one(asked: Asked, job_id: int, name: str) -> list[int]:
    job = asked.cluster.jobs.get(job_id)
    if job is None:
        return [2017]
    if job.name != name:
        return [2172]
    if job.user != asked.as_user and not asked.operator and not job.ended:
        return [2002]
    ended = [2021 for each in with_parts(asked, job) if each.ended]
    asked.cluster.cancel(job.id, asked.now)  # also where only some components of it had ended
    return ended


def record(asked: Asked, argument: str) -> Answer:
    job = asked.cluster.accounted_by_id.get(job_id_of(argument))
    if job is None:
        return 304, {"Connection": "Close"}, b""
    if not asked.may_look_into(job):
        raise SlurmRefusal(2002)
    body: Body = msgspec.json.decode(asked.body)
    code = ((body.get("derived_exit_code") or {}).get("return_code") or {}).get("number", 0)
    job.derived_exit_code = code >> 8
    job.accounted_comment = (body.get("comment") or {}).get("job", job.accounted_comment)
    return yes(asked, {"results": (f"{job.id} submitted",)})


def reserve(asked: Asked, _: str) -> Answer:
    body: Body = msgspec.json.decode(asked.body)
    asked.cluster.reservations.add(body["name"])
    return yes(asked, {"reservation_name": body["name"]})


def unreserve(asked: Asked, argument: str) -> Answer:
    asked.cluster.reservations.discard(argument)
    return yes(asked, {})


def new_node(asked: Asked, argument: str) -> Answer:
    if argument != "node":
        return 404, TEXT, NO_URL
    if not asked.operator:
        raise SlurmRefusal(2010)
    cluster = asked.cluster
    node = node_of(str(_body(asked).get("node_conf", "")), cluster.gres_names)
    if node.name in cluster.nodes:
        raise SlurmRefusal(2168)
    cluster.add_node(node)
    cluster.look_soon(asked.now)
    return yes(asked, {})


def remove_node(asked: Asked, argument: str) -> Answer:
    if not asked.operator:
        raise SlurmRefusal(2010)
    node = asked.cluster.nodes.get(argument)
    if node is None:
        raise SlurmRefusal(2018)
    if not node.dynamic:
        raise SlurmRefusal(2028)
    if node.jobs:
        raise SlurmRefusal(2016)
    asked.cluster.remove_node(argument)
    return yes(asked, {})


def reconfigure(asked: Asked, _: str) -> Answer:
    if not asked.operator:
        raise SlurmRefusal(2010)
    for node in asked.cluster.nodes.values():
        node.not_responding &= node.dynamic  # nodes of new/node stay so
        node.find_devices()
    asked.cluster.look_soon(asked.now)
    return yes(asked, {})


def change_node(asked: Asked, argument: str) -> Answer:
    cluster = asked.cluster
    if argument not in cluster.nodes:
        raise SlurmRefusal(2018)
    if not asked.operator:
        raise SlurmRefusal(2010)
    body: Body = msgspec.json.decode(asked.body)
    for state in body.get("state", ()):
        if state == "DRAIN":
            cluster.drain(argument, body.get("reason", ""))
        elif state == "DOWN":
            cluster.down(argument, asked.now, body.get("reason", ""))
        elif state in ("RESUME", "UNDRAIN"):
            if not (cluster.nodes[argument].drained or cluster.nodes[argument].down):
                raise SlurmRefusal(2180)
            cluster.resume(argument, asked.now)
    return yes(asked, {})


def post_job(asked: Asked, argument: str) -> Answer:
    return {"submit": submit, "allocate": allocate}.get(argument, update)(asked, argument)
