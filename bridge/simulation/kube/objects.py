"""Objects of the simulated cluster, as a client would write them, and the small parts that they share.

How a simulated pod behaves is written on it, as annotations; without any it starts within half a second and runs as long as
its command `sleep` says, else for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from scheduler.model.kubernetes import HostPort

Object = dict[str, Any]
NONE: Mapping[str, str] = {}

RUN_S = "simulated/run-s"  # how long its containers run
EXIT_CODE = "simulated/exit-code"  # how they end then
WAITS = "simulated/waits"  # why its container never starts: kubelet's reason
START_S = "simulated/start-s"  # from the bind to Running
STOP_S = "simulated/stop-s"  # how long they take to end after a TERM; the grace caps it


def pod(
    namespace: str,
    name: str,
    *,
    scheduler: str = "slurm-bridge",
    requests: Mapping[str, str] = NONE,
    limits: Mapping[str, str] = NONE,
    annotations: Mapping[str, str] = NONE,
    labels: Mapping[str, str] = NONE,
    restart_policy: str = "Never",
    grace_s: int = 30,
    host_port: int = 0,
    **spec: Any,
) -> Object:
    """A pod of one container; further fields of its spec by their API names.  host_port: of its container; 0: none"""
    container: Object = {
        "name": "main",
        "image": "simulated",
        "resources": {"requests": dict(requests), "limits": dict(limits)},
    }
    if host_port:
        container["ports"] = [{"containerPort": host_port, "hostPort": host_port, "protocol": "TCP"}]
    return {
        "metadata": {"namespace": namespace, "name": name, "annotations": dict(annotations), "labels": dict(labels)},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": restart_policy,
            "terminationGracePeriodSeconds": grace_s,
            "containers": [container],
            **spec,
        },
    }


def node(
    name: str, *, cpu: str = "64", memory: str = "500Gi", pods: int = 110, labels: Mapping[str, str] = NONE, **more: str
) -> Object:
    """A node that is ready; further resources by name, `**{"nvidia.com/gpu": "8"}`."""
    amounts = {"cpu": cpu, "memory": memory, "pods": str(pods), **more}
    labels = {"kubernetes.io/hostname": name, **labels}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
        },
    }


def namespace(name: str, labels: Mapping[str, str] = NONE) -> Object:
    """A namespace."""
    return {"metadata": {"name": name, "labels": dict(labels)}}


def replica_set(name_space: str, name: str, replicas: int, template: Object) -> Object:
    """A ReplicaSet of pods like `template` (what `pod` makes)."""
    return {
        "metadata": {"namespace": name_space, "name": name},
        "spec": {"replicas": replicas, "template": template},
    }


def host_ports(pod: Object) -> list[HostPort]:
    """The ports of its node that its containers listen on."""
    return [
        HostPort(port["hostPort"], port.get("protocol", "TCP"), port.get("hostIP", ""))
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def rfc3339(epoch: float) -> str:
    """As the server writes times, in whole seconds."""
    return _second(int(epoch))


@lru_cache(1024)
def _second(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(1024)
def epoch(text: str) -> float:
    """The opposite of `rfc3339`."""
    return datetime.fromisoformat(text).timestamp()


def condition(kind: str, status: str, reason: str, message: str, now: float) -> Object:
    """One of `status.conditions`."""
    said = {"reason": reason, "message": message} if reason else {}
    return {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": rfc3339(now), **said}


def with_condition(thing: Object, added: Object) -> Object:
    """The object with this condition in its status; the transition time stays where the status is the same."""
    status = dict(thing.get("status") or {})
    kept = []
    for old in status.get("conditions") or []:
        if old["type"] != added["type"]:
            kept.append(old)
        elif old["status"] == added["status"]:
            added = {**added, "lastTransitionTime": old.get("lastTransitionTime")}
    return {**thing, "status": {**status, "conditions": [*kept, added]}}
