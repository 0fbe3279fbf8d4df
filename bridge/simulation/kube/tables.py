"""Objects as rows of a Table, the form in which kubectl asks for what it prints.

A table of columns a kind: name, priority (1: only with `-o wide`) and how the cell follows from the object.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from bridge.simulation.kube.objects import epoch

Object = dict[str, Any]
Column = tuple[str, int, Callable[[Object], Any]]
NONE = "<none>"


def wants_table(accept: str) -> bool:
    """True if that Accept header prefers a table."""
    return "as=Table" in accept.partition(",")[0]


def table(body: bytes, *, whole: bool = False) -> bytes:
    """The answer to a list or a read, as a Table.  Anything else (a Status) stays what it is.

    whole  the rows hold the whole objects, by which kubectl sorts; else their metadata
    """
    read = msgspec.json.decode(body)
    kind = read.get("kind", "")
    if kind == "Status":
        return body
    listed = kind.endswith("List")
    things = read["items"] if listed else [read]
    meta = read["metadata"] if listed else {"resourceVersion": read["metadata"]["resourceVersion"]}
    return msgspec.json.encode(_table(kind.removesuffix("List"), things, meta, whole))


def event(line: bytes, *, whole: bool = False) -> bytes:
    """The same for one line of a watch."""
    read = msgspec.json.decode(line)
    thing = read["object"]
    if read["type"] in ("ADDED", "MODIFIED", "DELETED"):
        read["object"] = _table(
            thing["kind"], [thing], {"resourceVersion": thing["metadata"]["resourceVersion"]}, whole
        )
    return msgspec.json.encode(read)


def _table(kind: str, things: Iterable[Object], meta: Object, whole: bool) -> Object:
    columns = COLUMNS.get(kind, _NAMED)
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": name,
                "priority": priority,
            }
            for name, priority, _ in columns
        ],
        "rows": [
            {
                "cells": [cell(thing) for _, _, cell in columns],
                "object": thing if whole else {**partial, "metadata": thing["metadata"]},
            }
            for thing in things
        ],
    }


# --- cells --------------------------------------------------------------------------------------------------------


def _name(thing: Object) -> str:
    return str(thing["metadata"]["name"])


def _age(thing: Object) -> str:
    return short(time.time() - epoch(thing["metadata"]["creationTimestamp"]))


def short(seconds: float) -> str:
    """As kubectl writes an age: "45s", "3m20s", "17m", "5h", "2d"."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 600:
        return f"{whole // 60}m{whole % 60}s" if whole % 60 else f"{whole // 60}m"
    if whole < 7200:
        return f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 172_800 else f"{whole // 86_400}d"


def _containers(pod: Object) -> list[Object]:
    found: list[Object] = pod["status"].get("containerStatuses") or []
    return found


def _ready(pod: Object) -> str:
    return f"{sum(each['ready'] for each in _containers(pod))}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Object) -> str:
    status = pod["status"]
    said = status.get("reason") or status.get("phase", "")
    for each in _containers(pod):
        if ended := each["state"].get("terminated"):
            said = status.get("reason") or ended.get("reason") or f"ExitCode:{ended['exitCode']}"
    for each in status.get("conditions") or []:
        if each["type"] == "PodScheduled" and each.get("reason") == "SchedulingGated":
            said = "SchedulingGated"
    return "Terminating" if pod["metadata"].get("deletionTimestamp") else str(said)


def _restarts(pod: Object) -> str:
    return str(sum(each["restartCount"] for each in _containers(pod)))


def _node_status(node: Object) -> str:
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", []))
    cordoned = ",SchedulingDisabled" if node["spec"].get("unschedulable") else ""
    return f"{'Ready' if ready else 'NotReady'}{cordoned}"


def _internal_ip(node: Object) -> str:
    addresses = node["status"].get("addresses") or []
    return next((each["address"] for each in addresses if each["type"] == "InternalIP"), NONE)


def _about(thing: Object) -> str:
    about = thing["involvedObject"]
    return f"{about['kind'].lower()}/{about['name']}"


def _last_seen(thing: Object) -> str:
    return short(time.time() - epoch(thing.get("lastTimestamp") or thing["metadata"]["creationTimestamp"]))


def _of(*path: str) -> Callable[[Object], str]:
    def cell(thing: Object) -> str:
        found: Any = thing
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        return NONE if found is None else str(found)

    return cell


def _number(*path: str) -> Callable[[Object], str]:
    """A number that is left out when it is 0."""
    cell = _of(*path)
    return lambda thing: "0" if cell(thing) == NONE else cell(thing)


def _size(field: str) -> Callable[[Object], str]:
    return lambda thing: str(len(thing.get(field) or {}))


def _ratio(part: Callable[[Object], str], whole: Callable[[Object], str]) -> Callable[[Object], str]:
    return lambda thing: f"{part(thing)}/{whole(thing)}"


def _job_status(job: Object) -> str:
    ended = [each["type"] for each in (job.get("status") or {}).get("conditions") or [] if each["status"] == "True"]
    return str(ended[-1]) if ended else "Running"


def _duration(job: Object) -> str:
    status = job.get("status") or {}
    if "startTime" not in status:
        return ""
    ended = epoch(status["completionTime"]) if "completionTime" in status else time.time()
    return short(ended - epoch(status["startTime"]))


def _quota(field: str) -> Callable[[Object], str]:
    def cell(quota: Object) -> str:
        hard = (quota.get("spec") or {}).get("hard") or {}
        limits = [name for name in sorted(hard) if name.startswith("limits.") == (field == "limit")]
        return ", ".join(f"{name}: 0/{hard[name]}" for name in limits)

    return cell


def _reference(autoscaler: Object) -> str:
    target = autoscaler["spec"]["scaleTargetRef"]
    return f"{target['kind']}/{target['name']}"


def _targets(autoscaler: Object) -> str:
    """As a real server shows them before anybody has measured."""
    shown = []
    for metric in autoscaler["spec"].get("metrics") or []:
        resource = metric.get("resource") or {}
        target = resource.get("target") or {}
        wanted = f"{target['averageUtilization']}%" if "averageUtilization" in target else target.get("averageValue")
        shown.append(f"{resource['name']}: <unknown>/{wanted}" if resource else "<unknown>")
    return ", ".join(shown) or NONE


def _ports(service: Object) -> str:
    return (
        ",".join(f"{each['port']}/{each.get('protocol', 'TCP')}" for each in service["spec"].get("ports") or []) or NONE
    )


NAME: Column = ("Name", 0, _name)
AGE: Column = ("Age", 0, _age)
_NAMED: tuple[Column, ...] = (NAME, AGE)
_WANTED, _HAS, _READY = _number("spec", "replicas"), _number("status", "replicas"), _number("status", "readyReplicas")
COLUMNS: dict[str, tuple[Column, ...]] = {
    "Pod": (
        NAME,
        ("Ready", 0, _ready),
        ("Status", 0, _pod_status),
        ("Restarts", 0, _restarts),
        AGE,
        ("IP", 1, _of("status", "podIP")),
        ("Node", 1, _of("spec", "nodeName")),
        ("Nominated Node", 1, _of("status", "nominatedNodeName")),
        ("Readiness Gates", 1, lambda _pod: NONE),
    ),
    "Node": (
        NAME,
        ("Status", 0, _node_status),
        ("Roles", 0, lambda _node: NONE),
        AGE,
        ("Version", 0, lambda _node: "simulated"),
        ("Internal-IP", 1, _internal_ip),
        ("External-IP", 1, lambda _node: NONE),
        ("OS-Image", 1, lambda _node: "simulated"),
        ("Kernel-Version", 1, lambda _node: "simulated"),
        ("Container-Runtime", 1, lambda _node: "simulated"),
    ),
    "Namespace": (NAME, ("Status", 0, _of("status", "phase")), AGE),
    "ReplicaSet": (NAME, ("Desired", 0, _WANTED), ("Current", 0, _HAS), ("Ready", 0, _READY), AGE),
    "Deployment": (
        NAME,
        ("Ready", 0, _ratio(_READY, _WANTED)),
        ("Up-to-date", 0, _number("status", "updatedReplicas")),
        ("Available", 0, _number("status", "availableReplicas")),
        AGE,
    ),
    "Job": (
        NAME,
        ("Status", 0, _job_status),
        ("Completions", 0, _ratio(_number("status", "succeeded"), _number("spec", "completions"))),
        ("Duration", 0, _duration),
        AGE,
    ),
    "HorizontalPodAutoscaler": (
        NAME,
        ("Reference", 0, _reference),
        ("Targets", 0, _targets),
        ("MinPods", 0, _of("spec", "minReplicas")),
        ("MaxPods", 0, _of("spec", "maxReplicas")),
        ("Replicas", 0, _number("status", "currentReplicas")),
        AGE,
    ),
    "CronJob": (
        NAME,
        ("Schedule", 0, _of("spec", "schedule")),
        ("Timezone", 0, _of("spec", "timeZone")),
        ("Suspend", 0, lambda job: str(bool(job["spec"].get("suspend")))),
        ("Active", 0, lambda job: str(len((job.get("status") or {}).get("active") or []))),
        ("Last Schedule", 0, _of("status", "lastScheduleTime")),
        AGE,
    ),
    "ConfigMap": (NAME, ("Data", 0, _size("data")), AGE),
    "Secret": (NAME, ("Type", 0, lambda secret: secret.get("type") or "Opaque"), ("Data", 0, _size("data")), AGE),
    "ResourceQuota": (NAME, ("Request", 0, _quota("request")), ("Limit", 0, _quota("limit")), AGE),
    "Service": (
        NAME,
        ("Type", 0, lambda service: service["spec"].get("type") or "ClusterIP"),
        ("Cluster-IP", 0, _of("spec", "clusterIP")),
        ("External-IP", 0, lambda _service: NONE),
        ("Port(s)", 0, _ports),
        AGE,
    ),
    "Event": (
        ("Last Seen", 0, _last_seen),
        ("Type", 0, _of("type")),
        ("Reason", 0, _of("reason")),
        ("Object", 0, _about),
        ("Message", 0, _of("message")),
        ("Name", 1, _name),
    ),
}
