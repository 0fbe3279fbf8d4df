"""Decodes job descriptions of slurmrestd for the simulated Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.error_numbers import SlurmRefusal
from bridge.simulation.slurm.jobs import Condition, SimJob, SimPartition, SimUser
from bridge.simulation.slurm.nodes import Wanted
from bridge.simulation.slurm.waits import conditions, licenses
from scheduler.model.hostlist import HostlistError, expand

Body = dict[str, Any]

# Fields of a job description that Slurm knows; another one earns a warning.
_KNOWN_FIELDS = frozenset(
    {
        "account", "admin_comment", "begin_time", "comment", "constraints", "cpus_per_task",
        "current_working_directory", "dependency", "environment", "excluded_nodes", "flags", "hold", "immediate",
        "licenses", "maximum_nodes", "memory_per_cpu", "memory_per_node", "minimum_cpus", "minimum_cpus_per_node",
        "minimum_nodes", "name", "nice", "nodes", "partition", "qos", "required_nodes",
        "required_switches", "reservation", "shared", "tasks", "tasks_per_node", "time_limit", "time_minimum",
        "tres_per_node", "tres_per_task", "wait_for_switch", "wckey",
    }
)  # fmt: skip


def unknown_fields(body: Body) -> tuple[Mapping[str, str], ...]:
    """The warnings that Slurm gives for what it ignores."""
    return tuple(
        {"description": f'Ignoring unknown field "{field}" in DATA_PARSER_JOB_DESC_MSG', "source": f"#/job/{field}/"}
        for field in body
        if field not in _KNOWN_FIELDS
    )


# Slurm's defaults.
_NEW: Body = {
    "name": "allocation", "nice": 0, "comment": "", "dependency": "", "constraints": "", "wckey": "", "licenses": "",
    "reservation": "",
}  # fmt: skip
MAX_SWITCH_WAIT_S = 300  # SchedulerParameters=max_switch_wait


def job_of(cluster: SlurmCluster, user: SimUser, body: Body, now: float, *, operator: bool) -> SimJob:
    """The requested job, not yet in the queue.  Checks in the order of Slurm.  Raises SlurmRefusal."""
    body = {**_NEW, **body}
    partition = _partition_of(cluster, body.get("partition", ""))
    account = body.get("account") or user.accounts[0]
    qos = body.get("qos") or user.qos[0]
    _check_user(cluster, user, account, qos, may_raise=operator or body["nice"] >= 0)
    excluded = ",".join(body.get("excluded_nodes", ()))
    limit, least = _limits(partition, body)
    wanted = _wanted(cluster, partition, body, excluded)
    if body["reservation"] not in ("", *cluster.reservations):
        raise SlurmRefusal(2053)
    return SimJob(
        id=0,
        serial=0,
        name=body["name"],
        user=user.name,
        account=account,
        partition=partition.name,
        qos=qos,
        wanted=wanted,
        gres_text=body.get("tres_per_node", ""),
        task_gres_text=body.get("tres_per_task", ""),
        excluded_text=excluded,
        required_text=",".join(body.get("required_nodes") or ()),
        time_limit_min=limit,
        time_least_min=least,
        submitted=int(now),
        comment=body["comment"],
        nice=body["nice"],
        wckey=body["wckey"],
        dependency=_dependency(cluster, body["dependency"]),
        begin=begin(body, 0),
        licenses_text=body["licenses"],
        licenses=_licenses(cluster, body["licenses"]),
        switches=switches(body, (0, 0)),
        constraints=body["constraints"],
        reservation=body["reservation"],
        shared=next(iter(body.get("shared", ())), ""),
    )


def _limits(partition: SimPartition, body: Body) -> tuple[int | None, int]:
    """The time limit (None: none) and the least time, in minutes.  Raises SlurmRefusal."""
    limit = _limit(partition, body.get("time_limit"))
    least = int((body.get("time_minimum") or {}).get("number") or 0)
    if limit is not None and least > limit:
        raise SlurmRefusal(2124)
    return limit, least


def _check_user(cluster: SlurmCluster, user: SimUser, account: str, qos: str, *, may_raise: bool) -> None:
    """Raises SlurmRefusal.  may_raise: the user may give the job the priority that it asks for"""
    if not may_raise:
        raise SlurmRefusal(2123)
    if account not in user.accounts:
        raise SlurmRefusal(2045)
    if qos not in user.qos:
        raise SlurmRefusal(2066)
    if user.max_submit_jobs is not None and cluster.live_of(user.name) >= user.max_submit_jobs:
        raise SlurmRefusal(2050)


def _partition_of(cluster: SlurmCluster, name: str) -> SimPartition:
    if not name:
        return next(partition for partition in cluster.partitions.values() if partition.default)
    if name not in cluster.partitions:
        raise SlurmRefusal(2000)
    return cluster.partitions[name]


def _wanted(cluster: SlurmCluster, partition: SimPartition, body: Body, excluded: str) -> Wanted:
    cpus, tasks = body.get("cpus_per_task", 1), body.get("tasks", 1)
    least, most = _node_counts(body)
    if cpus * tasks > sum(node.cpus for node in cluster.nodes.values()):
        raise SlurmRefusal(2005)
    if tasks < least:
        raise SlurmRefusal(2025)
    by_cpu, by_node = (body.get(field) or {} for field in ("memory_per_cpu", "memory_per_node"))
    memory_mib = by_cpu.get("number") or by_node.get("number") or max(n.memory_mib for n in cluster.nodes.values())
    gres, task_gres = (_gres(cluster, body.get(field, "")) for field in ("tres_per_node", "tres_per_task"))
    features = _features(cluster, body["constraints"]) | frozenset(filter(None, [partition.feature]))
    barred = _excluded(cluster, excluded)
    return Wanted(
        cpus=cpus,
        memory_mib=memory_mib,
        gres=gres,
        features=features,
        excluded=barred | _outside(cluster, body, barred),
        whole="none" in body.get("shared", ()),
        tasks=tasks,
        tasks_per_node=body.get("tasks_per_node") or None,
        min_nodes=least,
        max_nodes=most,
        memory_by_cpu=bool(by_cpu.get("number")),
        task_gres=task_gres,
    )


def _node_counts(body: Body) -> tuple[int, int | None]:
    """At least and at most how many nodes: "2", "2-4", or the two fields."""
    least, _, most = str(body.get("nodes", "")).partition("-")
    at_least = body.get("minimum_nodes") or int(least or 1)
    at_most = body.get("maximum_nodes") or int(most or least or 0)
    return at_least, at_most or None


def _gres(cluster: SlurmCluster, text: str) -> tuple[tuple[str, str, int], ...]:
    asked: list[tuple[str, str, int]] = []
    for item in filter(None, text.split(",")):
        name, *rest = item.removeprefix("gres/").split(":")
        if name not in cluster.gres_names:
            raise SlurmRefusal(2072)
        count = int(rest.pop()) if rest and rest[-1].isdecimal() else 1
        asked.append((name, rest[0] if rest else "", count))
    # requests with a type choose first: a request without a type takes any device, but not the last one of a requested type
    return tuple(sorted(asked, key=lambda item: not item[1]))


def _features(cluster: SlurmCluster, text: str) -> frozenset[str]:
    """Only conjunctions are simulated: "a&b"."""
    features = frozenset(filter(None, text.replace(",", "&").split("&")))
    if not features <= cluster.features:
        raise SlurmRefusal(2029)
    return features


def _excluded(cluster: SlurmCluster, text: str) -> frozenset[str]:
    try:
        names = frozenset(expand(text))
    except HostlistError:
        raise SlurmRefusal(2018) from None
    if not names <= cluster.nodes.keys():
        raise SlurmRefusal(2018)
    return names


def _outside(cluster: SlurmCluster, body: Body, excluded: frozenset[str]) -> frozenset[str]:
    """The excluded nodes.  Required nodes are simulated only as the bridge requests them: they are all nodes of the job."""
    required = _excluded(cluster, ",".join(body.get("required_nodes") or ()))
    if required & excluded:
        raise SlurmRefusal(2018)
    return frozenset(cluster.nodes.keys() - required) if required else required


def _limit(partition: SimPartition, body: Body | None) -> int | None:
    if not body or not (body.get("set") or body.get("infinite")):
        return partition.default_time_min if partition.default_time_min is not None else partition.max_time_min
    minutes = None if body.get("infinite") else int(body["number"])
    longest = partition.max_time_min
    if longest is not None and (minutes is None or minutes > longest):
        raise SlurmRefusal(2051)
    return minutes


def _dependency(cluster: SlurmCluster, text: str) -> tuple[Condition, ...]:
    try:
        return conditions(text, cluster.jobs)
    except ValueError:
        raise SlurmRefusal(2038) from None


def _licenses(cluster: SlurmCluster, text: str) -> Mapping[str, int]:
    try:
        wanted = licenses(text)
    except ValueError:
        raise SlurmRefusal(2048) from None
    if any(count > cluster.licenses.get(name, 0) for name, count in wanted.items()):
        raise SlurmRefusal(2048)
    return wanted


def begin(body: Body, before: int) -> int:
    """When the job may begin, epoch seconds; 0 changes nothing."""
    asked = body.get("begin_time") or {}
    return int(asked["number"]) if asked.get("set") and asked["number"] > 0 else before


def switches(body: Body, before: tuple[int, int]) -> tuple[int, int]:
    """The largest number of leaf switches, and for how many seconds to wait for that."""
    count = body.get("required_switches", before[0])
    wait = body.get("wait_for_switch", before[1] or (MAX_SWITCH_WAIT_S if count else 0))
    return count, min(wait, MAX_SWITCH_WAIT_S)


def layout_shown(job: SimJob, body: Body) -> Body:
    """The job's layout request, without the fields that a change replaces."""
    wanted = job.wanted
    shown: Body = {
        "tres_per_node": job.gres_text, "tres_per_task": job.task_gres_text, "cpus_per_task": wanted.cpus,
        "tasks": wanted.tasks, "tasks_per_node": wanted.tasks_per_node, "minimum_nodes": wanted.min_nodes,
        "maximum_nodes": wanted.max_nodes,
    }  # fmt: skip
    if body.get("nodes"):
        del shown["minimum_nodes"], shown["maximum_nodes"]
    if not (body.get("memory_per_node") or body.get("memory_per_cpu")):
        shown["memory_per_cpu" if wanted.memory_by_cpu else "memory_per_node"] = {
            "set": True,
            "number": wanted.memory_mib,
        }
    return shown
