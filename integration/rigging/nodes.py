"""The rig's nodes, on both sides: as Kubernetes Nodes, and as nodes of Slurm.

External nodes are made by slurmrestd's `new/node` and not in slurm.conf: GPUs of static external nodes have no indices and
are lost by some requests.  Each gets its address, because slurmctld otherwise resolves the name at every allocation.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

from . import places, rest, slurm
from .places import Rig
from .shell import RigError, wait

CPUS, MEMORY_MIB, GPUS, PODS = 64, 512000, 8, 110
PLATFORM = {"os": "linux", "arch": "amd64"}
UNITS = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4}
CONNECTIONS = 8


def create_played(rig: Rig) -> None:
    """Make the Node objects that kwok plays: k1..kN, and n1..nN, which have a slurmd."""
    options = rig.read_options()
    wanted = [(f"k{i}", places.kwok_address(i)) for i in range(1, options.kwok + 1)]
    wanted += [(f"n{i}", places.slurmd_address(i)) for i in range(1, options.slurmd + 1)]
    own = threading.local()

    def create(node: tuple[str, str]) -> None:
        if not hasattr(own, "api"):
            own.api = rest.kubernetes(rig)
        own.api("POST", "/api/v1/nodes", _node(*node))

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for _ in pool.map(create, wanted):
            pass


def register_played(rig: Rig) -> None:
    """Make k1..kN known to Slurm as external nodes.  (n1..nN are in slurm.conf.)

    Few are created one a call, each with its devices.  Several in one call are impossible: Slurm reads GresConf for the first
    and finds nothing left of it for the next ("Missing value in str: count", 500/22).  Each call costs slurmctld milliseconds
    for each node that it has, so many nodes have their devices in gres.conf (slurm.py), and are created by the hundred.
    """
    api, count = rest.slurm(rig), rig.read_options().kwok
    size = f"{slurm.NODE} {slurm.GPUS} Feature=h100"
    if count <= slurm.MOST_ONE_BY_ONE:
        for i in range(1, count + 1):
            _register(api, f"NodeName=k{i} NodeAddr={places.kwok_address(i)} {size} GresConf={slurm.GPU_CONF}")
        return
    for first in range(1, count + 1, places.KWOK_PER_NETWORK):
        last = min(first + places.KWOK_PER_NETWORK - 1, count)
        network, low = places.kwok_address(first).rsplit(".", 1)
        high = places.kwok_address(last).rsplit(".", 1)[1]
        _register(api, f"NodeName=k[{first}-{last}] NodeAddr={network}.[{low}-{high}] {size}")


def register_kubelets(rig: Rig) -> None:
    """Make the nodes with a kubelet known to Slurm, as large as kubelet says that they are."""
    api, far = rest.kubernetes(rig), rest.slurm(rig)
    for number, name in enumerate(rig.read_options().kubelets, 1):
        has = api("GET", f"/api/v1/nodes/{name}")["status"]["allocatable"]
        cpus, memory = int(has["cpu"]), mebibytes(has["memory"])
        size = f"Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={memory}"
        _register(far, f"NodeName={name} NodeAddr={places.kubelet_address(number)} {size} Feature=kubelet")


def wait_ready(rig: Rig, *, seconds: float) -> None:
    """Wait until every node can take pods in Kubernetes."""
    options = rig.read_options()
    count = options.kwok + options.slurmd + len(options.kubelets)
    api = rest.kubernetes(rig)
    wait(f"{count} nodes to be Ready in Kubernetes", lambda: sum(1 for _ in _ready(api)) == count, seconds=seconds)
    for played in ("k1" if options.kwok else "", "n1" if options.slurmd else ""):
        if played:  # they are Ready as they were made; that kwok works shows in their heartbeats
            lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{played}"
            wait(
                f"kwok to renew the lease of {played}",
                partial(api.answers, lease),
                seconds=seconds,
                log=rig.log / "kwok.log",
            )


def wait_usable(rig: Rig, *, seconds: float = 60) -> None:
    """Wait until Slurm can give away every node."""
    options = rig.read_options()
    count = options.kwok + options.slurmd + len(options.kubelets)
    api = rest.slurm(rig)

    def usable() -> bool:
        states = [set(node["state"]) for node in api("GET", "/slurm/v0.0.45/nodes/")["nodes"]]
        able = ["IDLE" in state and not state & {"NOT_RESPONDING", "DOWN", "UNKNOWN"} for state in states]
        return all(able) and len(able) >= count  # --slurm-conf may name more

    wait(f"{count} nodes to be idle in Slurm", usable, seconds=seconds)


def mebibytes(quantity: str) -> int:
    """Kubelet's memory in whole MiB, rounded down; kubelet writes it in the largest exact unit, or in bytes."""
    unit = quantity[-2:]
    return int(quantity[:-2]) * UNITS[unit] // 1024**2 if unit in UNITS else int(quantity) // 1024**2


def _register(api: rest.Rest, line: str) -> None:
    answer = api("POST", "/slurm/v0.0.45/new/node/", {"node_conf": f"{line} State=EXTERNAL"})
    if answer["errors"] or answer["warnings"]:
        raise RigError(f"Slurm did not take {line}: {json.dumps(answer['errors'] + answer['warnings'])}")


def _ready(api: rest.Rest) -> Iterator[str]:
    """Names of the nodes that are Ready and have lost the taint of those that are not."""
    more = ""
    while True:
        page = api("GET", f"/api/v1/nodes?limit=500&continue={more}")
        for node in page["items"]:
            conditions = node["status"].get("conditions", [])
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions) and not _tainted(node):
                yield node["metadata"]["name"]
        more = page["metadata"].get("continue", "")
        if not more:
            return


def _tainted(node: dict[str, Any]) -> bool:
    return any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints", []))


def _node(name: str, address: str) -> dict[str, Any]:
    size = {
        "cpu": str(CPUS),
        "memory": f"{MEMORY_MIB}Mi",
        "nvidia.com/gpu": str(GPUS),
        "pods": str(PODS),
        "ephemeral-storage": "1Ti",
    }
    # The old names too, as kubelets set them: a controller would add them, a write a node.
    labels = {f"{old}kubernetes.io/{key}": value for old in ("", "beta.") for key, value in PLATFORM.items()}
    labels |= {"kubernetes.io/hostname": name, "type": "kwok"}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played by kwok", **times}
            ],
            "capacity": size,
            "allocatable": size,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "kwok",
                "kernelVersion": "kwok",
                "kubeProxyVersion": f"v{places.KUBERNETES}",
                "kubeletVersion": f"v{places.KUBERNETES}",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "kwok",
                "systemUUID": "",
            },
        },
    }
