"""Pods and gangs that come and go, so that there is something to look at: `load` of the compose stack.

Every LOAD_EVERY_S seconds one workload is created in one of the two tenants' namespaces: a pod, one in three with GPUs; every
eighth time a gang of four.  Each runs for 5 to 45 seconds (kwok ends it, compose/kwok.yaml), and is deleted after its end.
While LOAD_MOST pods exist nothing is created, so a stopped bridge or a full Slurm does not fill the API server.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

EVERY_S = float(os.environ.get("LOAD_EVERY_S", "1.5"))
MOST = int(os.environ.get("LOAD_MOST", "60"))
NAMESPACES = ("team-a", "team-b")
GANG_EVERY, GANG_SIZE = 8, 4
RUNS_S = (5, 45)
LABEL = "compose/load"
ALIVE = Path("/tmp/alive")  # noqa: S108 - in a container of its own
STALE_S = 60.0


def main(arguments: list[str]) -> int:
    """Make load until it is stopped; --healthy: exit code 0 if the load generator in this container still runs."""
    if arguments == ["--healthy"]:
        return 0 if ALIVE.exists() and time.time() - ALIVE.stat().st_mtime < STALE_S else 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # process 1 has no default
    config.load_kube_config()
    core = client.CoreV1Api()
    rng = random.Random()  # noqa: S311 - which pod comes next is no secret
    number = 0
    while True:
        number += 1
        try:
            _round(core, rng, number)
            ALIVE.touch()
        except (ApiException, HTTPError) as error:  # the API server is away for a while: the health check shows it
            print(f"load: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
        time.sleep(EVERY_S)


def _round(core: client.CoreV1Api, rng: random.Random, number: int) -> None:
    pods = core.list_pod_for_all_namespaces(label_selector=LABEL, resource_version="0").items
    for pod in pods:
        if pod.status.phase in ("Succeeded", "Failed") and not pod.metadata.deletion_timestamp:
            with contextlib.suppress(ApiException):  # gone already
                core.delete_namespaced_pod(pod.metadata.name, pod.metadata.namespace)
    if len(pods) < MOST:
        namespace = rng.choice(NAMESPACES)
        for body in workload(rng, f"{int(time.time())}-{number}", gang=number % GANG_EVERY == 0):
            core.create_namespaced_pod(namespace, body)


def workload(rng: random.Random, name: str, *, gang: bool) -> list[dict[str, Any]]:
    """The pods of one workload, of random size and duration."""
    # On average three in four of the GPUs of compose/cluster/nodes.yaml: some pods wait for a while, and never all.
    gpus = rng.choice((1, 2)) if gang else rng.choice((1, 2, 4)) if rng.random() < 1 / 3 else 0
    amounts = {"cpu": str(rng.choice((1, 2, 4, 8))), "memory": f"{rng.choice((1, 4, 16))}Gi"}
    annotations = {"compose/runs-for": f"{rng.randint(*RUNS_S)}s", "slurm-bridge/time-limit": "2"}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
        annotations["slurm-bridge/partition"] = "gpu"
    if not gang:
        return [_pod(f"load-{name}", {LABEL: "pod"}, annotations, amounts)]
    labels = {LABEL: "gang", "slurm-bridge/gang": f"load-{name}"}
    annotations["slurm-bridge/gang-size"] = str(GANG_SIZE)
    return [_pod(f"load-{name}-{rank}", labels, annotations, amounts) for rank in range(GANG_SIZE)]


def _pod(name: str, labels: dict[str, str], annotations: dict[str, str], amounts: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "example", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"schedulerName": "slurm-bridge", "restartPolicy": "Never", "containers": [container]},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
