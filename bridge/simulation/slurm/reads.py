"""The simulated slurmrestd's answers to reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from bridge.simulation.slurm import admin_reads
from bridge.simulation.slurm.billing import tres_asked
from bridge.simulation.slurm.error_numbers import SlurmRefusal
from bridge.simulation.slurm.jobs import Condition, SimJob, SimPartition
from bridge.simulation.slurm.nodes import Holding, SlurmSimNode
from bridge.simulation.slurm.requests import NO_URL, TEXT, Answer, Asked, known, number, refusal, with_parts, yes
from scheduler.model.hostlist import fold

YEAR_S = 365 * 24 * 3600


def ping(asked: Asked, _: str) -> Answer:
    up = asked.cluster.controller_up
    ping: dict[str, Any] = {"hostname": "slurm-host", "responding": up, "primary": True, "latency": 100}
    if asked.version == "v0.0.44":
        ping["pinged"] = "UP" if up else "DOWN"
    return yes(asked, {"pings": (ping,)})


def states(asked: Asked, _: str) -> Answer:
    jobs = asked.cluster.jobs
    if wanted := asked.query.get("job_id"):
        listed = [part for job_id in map(int, wanted) if job_id in jobs for part in with_parts(asked, jobs[job_id])]
    else:
        listed = list(jobs.values())
    return yes(asked, {"jobs": [{"job_id": _full_id(job), "state": (job.state, *job.flags)} for job in listed]})


def _full_id(job: SimJob) -> str:
    return f"{job.id}+{job.het_offset}" if job.het_id else str(job.id)


def job(asked: Asked, argument: str) -> Answer:
    shown = [_job_shown(asked, job) for job in with_parts(asked, known(asked, argument))]
    return yes(asked, {"jobs": shown, "last_update": number(int(asked.now))})


def _job_shown(asked: Asked, job: SimJob) -> Mapping[str, Any]:
    return {**_request(asked, job), **_state(asked, job)}


def _request(asked: Asked, job: SimJob) -> Mapping[str, Any]:
    """The fields that the job was submitted with."""
    limit = job.time_limit_min
    return {
        "account": job.account,
        "comment": job.comment,
        "cpus_per_task": number(job.wanted.cpus),
        "excluded_nodes": job.excluded_text,
        "features": job.constraints,
        "licenses": job.licenses_text,
        "maximum_switch_wait_time": job.switches[1],
        "memory_per_cpu": number(job.wanted.memory_mib if job.wanted.memory_by_cpu else None),
        "memory_per_node": number(None if job.wanted.memory_by_cpu else job.wanted.memory_mib),
        "name": job.name,
        "nice": job.nice,
        "partition": job.partition,
        "qos": job.qos,
        "required_nodes": job.required_text,
        "required_switches": job.switches[0],
        "resv_name": job.reservation,
        "shared": [job.shared]
        if job.shared and asked.version == "v0.0.44"
        else [],  # the newer version does not show it
        "tasks": number(job.wanted.tasks),
        "tasks_per_node": number(job.wanted.tasks_per_node or 0),
        "time_limit": number(limit) if limit is not None else {"set": False, "infinite": True, "number": 0},
        "time_minimum": number(job.time_least_min),
        "tres_per_node": job.gres_text,
        "tres_per_task": job.task_gres_text,
        "tres_req_str": tres_asked(job, asked.cluster.partitions[job.partition].billing_weights),
        "user_name": job.user,
        "wckey": job.wckey,
    }


def _state(asked: Asked, job: SimJob) -> Mapping[str, Any]:
    """The fields of the state and the result of the job."""
    return {
        "dependency": ",".join(map(str, _dependency(asked, job))),
        "eligible_time": number(max(job.submitted, job.begin)),
        "end_time": number(_end(job)),
        "exit_code": {"return_code": number(job.exit_code)},
        "hold": bool(job.held),
        "job_id": job.id,
        "job_state": (job.state, *job.flags),
        "het_job_id": number(job.het_id),
        "het_job_offset": number(job.het_offset),
        "node_count": number(len(job.holdings) or job.wanted.min_nodes),
        "nodes": fold(job.nodes),
        "preempt_time": number(job.preempted),
        "priority": number(0 if job.held else 1),
        "scheduled_nodes": job.planned,
        "start_time": number(job.starts),
        "state_reason": job.reason,
        "step_id": {"sluid": f"s{job.serial:013d}"},
        "submit_time": number(job.submitted),
    }


def _dependency(asked: Asked, job: SimJob) -> tuple[Condition, ...]:
    """The conditions that the job waits for.  A job that was cancelled while it waited shows those that did not hold yet."""
    if job.pending:
        return asked.cluster.drop_met_conditions(job, asked.now)
    return () if job.holdings else job.dependency


def _end(job: SimJob) -> int:
    """When it ended, or is to end: of a waiting one by its expected start.  Without a limit a year after that."""
    if job.ended or not job.starts:
        return job.ends
    return job.starts + (job.time_limit_min * 60 if job.time_limit_min is not None else YEAR_S)


def resources(asked: Asked, argument: str) -> Answer:
    job = known(asked, argument)
    if not asked.may_look_into(job):
        raise SlurmRefusal(2010)
    if not job.holds or job.state == "SUSPENDED":
        raise SlurmRefusal(2085)
    return yes(asked, {"nodes": [_held(holding, asked.cluster.nodes[holding.node]) for holding in job.holdings]})


def _held(holding: Holding, node: SlurmSimNode) -> Mapping[str, Any]:
    cores, with_indices = node.cpus, node.dynamic or not node.external  # external nodes of slurm.conf show no indices
    return {
        "node": holding.node,
        "sockets_per_node": 1,
        "cores_per_socket": cores,
        "mem_alloc": holding.memory_mib,
        "core_bitmap": f"0x{holding.cores:0{-(-cores // 4)}X}",
        "gres": [
            {"name": name, "type": kind, "count": len(indices), "index": _ranges(indices) if with_indices else None}
            for (name, kind), indices in holding.devices.items()
        ],
    }


def nodes(asked: Asked, _: str) -> Answer:
    partitions = asked.cluster.partitions.values()
    return yes(asked, {"nodes": [_node(node, partitions) for node in asked.cluster.nodes.values()]})


def one_node(asked: Asked, argument: str) -> Answer:
    if argument not in asked.cluster.nodes:
        raise SlurmRefusal(0)
    return yes(asked, {"nodes": [_node(asked.cluster.nodes[argument], asked.cluster.partitions.values())]})


def _node(node: SlurmSimNode, partitions: Collection[SimPartition]) -> Mapping[str, Any]:
    return {
        "name": node.name,
        "state": node.states,
        "partitions": [each.name for each in partitions if each.has(node.features)],
        "features": node.features,
        "active_features": node.features,
        "cpus": node.cpus,
        "effective_cpus": node.cpus,
        "sockets": 1,
        "cores": node.cpus,
        "threads": 1,
        "real_memory": node.memory_mib,
        "specialized_memory": 0,
        "gres": _gres(node.devices),
        "alloc_cpus": node.cpus - node.free_cores.bit_count(),
        "alloc_memory": node.memory_mib - node.free_memory_mib,
        "gres_used": _gres({kind: count - len(node.free_devices[kind]) for kind, count in node.devices.items()}),
        "address": node.address or node.name,
        "reason": node.reason,
    }


def _gres(counts: Mapping[tuple[str, str], int]) -> str:
    return ",".join(f"{name}:{kind}:{count}" if kind else f"{name}:{count}" for (name, kind), count in counts.items())


def partitions(asked: Asked, _: str) -> Answer:
    """slurmrestd needs the names of trackable resources from slurmdbd to answer these calls."""
    if asked.cluster.accounting and not asked.cluster.accounting_up:
        return refusal(asked, 111, "slurmdb_tres_get")
    return yes(asked, {"partitions": [_partition(p, asked.version) for p in asked.cluster.partitions.values()]})


def one_partition(asked: Asked, argument: str) -> Answer:
    """As `partitions`; of a partition that does not exist 200 and a warning."""
    if asked.cluster.accounting and not asked.cluster.accounting_up:
        return refusal(asked, 111, "slurmdb_tres_get")
    if argument not in asked.cluster.partitions:
        return yes(asked, {}, ({"description": f"Unable to find partition {argument}", "source": "_partition_get"},))
    return yes(asked, {"partitions": [_partition(asked.cluster.partitions[argument], asked.version)]})


def _partition(partition: SimPartition, version: str) -> Mapping[str, Any]:
    longest = partition.max_time_min
    shown: dict[str, Any] = {
        "name": partition.name,
        "partition": {"state": ("UP" if partition.up else "DOWN",)},
        "preempt_mode": ["REQUEUE"] if partition.preempted else ["CLUSTER_GLOBAL"],
        "grace_time": 0,
        "node_sets": "ALL",
        "qos": {"allowed": "", "deny": "", "assigned": ""},
        "tres": {"billing_weights": partition.billing_weights},
        "defaults": {"time": number(partition.default_time_min)},
        "maximums": {
            "time": number(longest) if longest is not None else {"set": False, "infinite": True, "number": 0},
            "partition_memory_per_node": number(0),
        },
    }
    if version != "v0.0.44":
        shown["flags"] = ("DEFAULT",) if partition.default else ()
    return shown


def conf(asked: Asked, _: str) -> Answer:
    if asked.version < admin_reads.CONFIGURATION_SINCE:
        return 404, TEXT, NO_URL
    return yes(asked, admin_reads.configuration(asked.cluster))


def diag(asked: Asked, _: str) -> Answer:
    return yes(asked, admin_reads.diag(asked.now))


def user(asked: Asked, argument: str) -> Answer:
    level = "Operator" if argument in asked.cluster.operators else "None"
    known = argument in asked.cluster.users
    return yes(asked, {"users": [{"name": argument, "administrator_level": [level]}] if known else []})


def reservations(asked: Asked, _: str) -> Answer:
    return yes(asked, admin_reads.reservations(asked.cluster))


def accounted(asked: Asked, _: str) -> Answer:
    """`GET slurmdb/…/jobs/`: the jobs of some names, or all that are in a state."""
    if "RUNNING" in asked.query.get("state", ()):
        found = [job for job in asked.cluster.jobs.values() if job.holds]
    else:
        names = asked.query.get("job_name", ())
        found = [job for job in asked.cluster.accounted if job.name in names]
    jobs = [
        {
            "job_id": job.id,
            "name": job.name,
            "user": job.user,
            "state": {"current": (job.state,), "reason": job.reason},
            "time": {"end": job.ends if job.ended else 0, "submission": job.submitted},
            "comment": {"job": job.accounted_comment},
            "derived_exit_code": {"return_code": number(job.derived_exit_code)},
            "account": job.account,
            "qos": job.qos,
            "tres": {"allocated": _allocated(job)},
        }
        for job in found
    ]
    nothing = {"description": "slurmdb_jobs_get() found nothing", "source": "_dump_jobs"}
    return yes(asked, {"jobs": jobs}, () if jobs else (nothing,))


def _allocated(job: SimJob) -> list[Mapping[str, Any]]:
    """What a job holds, or held."""
    devices: Counter[str] = Counter()
    for holding in job.holdings:
        for (name, kind), indices in holding.devices.items():
            devices.update({each: len(indices) for each in {name, f"{name}:{kind}" if kind else name}})
    cpus = sum(holding.cores.bit_count() for holding in job.holdings)
    held = [{"type": "cpu", "name": "", "count": cpus}, {"type": "node", "name": "", "count": len(job.holdings)}]
    return [*held, *({"type": "gres", "name": name, "count": count} for name, count in devices.items())]


def _ranges(indices: tuple[int, ...]) -> str:
    """(0, 1, 2, 5) -> "0-2,5"."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
