"""The automatic load: a table of kinds of work, and a random generator.

To add a kind of work is to add a line.  The pods run `sleep`, from an image that is available everywhere, so they run on a
real cluster, too; a simulated kubelet understands `sleep` as well.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from bridge.dev.backends import GPU, Size
from scheduler import names

Object = dict[str, Any]
IMAGE = "busybox:stable"
PAUSE_S = 1.9  # between two pods, on average: about as many as the simulated nodes can take, so that some wait
TIME_LIMIT_MIN = 5  # if this process dies, no job stays in a real Slurm for longer


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of work.

    weight   how often it comes, relative to the other kinds
    runs_s   the shortest and the longest run, seconds
    pods     number of pods; more than one: a gang
    """

    name: str
    weight: int
    cpus: int
    gib: int
    gpus: int
    runs_s: tuple[int, int]
    pods: int = 1


KINDS = (
    Kind("prep", weight=3, cpus=4, gib=16, gpus=0, runs_s=(4, 10)),
    Kind("eval", weight=4, cpus=8, gib=32, gpus=1, runs_s=(5, 14)),
    Kind("tune", weight=3, cpus=8, gib=64, gpus=2, runs_s=(8, 20)),
    Kind("train", weight=3, cpus=16, gib=128, gpus=4, runs_s=(10, 25)),
    Kind("ring", weight=2, cpus=8, gib=64, gpus=2, runs_s=(10, 20), pods=4),
)
BETWEEN_MEMBERS_S = 0.4
SERVICES = (Kind("serve", weight=2, cpus=2, gib=8, gpus=1, runs_s=(0, 0)),)  # replica sets; weight: how many replicas
SHORT_S = (1, 3)  # how long pods run where the end is waited for


def fitted(kinds: Iterable[Kind], nodes: Iterable[Size]) -> list[Kind]:
    """The kinds, each cut to half of the CPUs and memory of the largest node, and to all of its devices."""
    nodes = list(nodes)
    cpus = max((node.cpus for node in nodes), default=1)
    gib = max((node.memory_mib for node in nodes), default=1024) // 1024
    gpus = max((node.gpus for node in nodes), default=0)
    return [
        replace(
            kind, cpus=max(1, min(kind.cpus, cpus // 2)), gib=max(1, min(kind.gib, gib // 2)), gpus=min(kind.gpus, gpus)
        )
        for kind in kinds
    ]


class Load:
    """Makes pods of these kinds; which comes next follows from the seed."""

    def __init__(self, kinds: list[Kind], scheduler_name: str, seed: int, image: str = IMAGE) -> None:
        self._kinds = kinds
        self._scheduler_name = scheduler_name
        self._rng = random.Random(seed)  # noqa: S311 - repeatable is what it must be
        self._image = image
        self._made = 0
        self._rest: deque[tuple[Object, int]] = deque()  # the members of a gang that are still to come

    def pause_s(self) -> float:
        """Seconds until the next pod comes."""
        if self._rest:
            return BETWEEN_MEMBERS_S
        return self._rng.expovariate(1 / PAUSE_S)

    def next_pod(self, *, runs_s: tuple[int, int] | None = None, most: int | None = None) -> tuple[Object, int]:
        """A pod, and how many seconds it runs.  most: the number of pods still to come; a larger gang is not begun."""
        if self._rest:
            return self._rest.popleft()
        self._made += 1
        kinds = [kind for kind in self._kinds if most is None or kind.pods <= most]
        kind = self._rng.choices(kinds, [kind.weight for kind in kinds])[0]
        seconds = self._rng.randint(*(runs_s or kind.runs_s))
        name = f"{kind.name}-{self._made}"
        if kind.pods == 1:
            return self._pod(name, kind, ["sleep", str(seconds)]), seconds
        self._rest.extend((self._member(name, number, kind, seconds), seconds) for number in range(kind.pods))
        return self._rest.popleft()

    def _member(self, gang: str, number: int, kind: Kind, seconds: int) -> Object:
        pod = self._pod(f"{gang}-{number}", kind, ["sleep", str(seconds)])
        pod["metadata"]["labels"] = {names.PREFIX + names.GANG: gang}
        pod["metadata"]["annotations"][names.PREFIX + names.GANG_SIZE] = str(kind.pods)
        return pod

    def service(self, kind: Kind) -> Object:
        """A replica set that runs for ever."""
        template = self._pod("", kind, ["sleep", "infinity"])
        template["metadata"] = {**template["metadata"], "labels": {"app": kind.name}}
        template["spec"]["restartPolicy"] = "Always"
        del template["metadata"]["name"]
        selector = {"matchLabels": {"app": kind.name}}
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": kind.name},
            "spec": {"replicas": kind.weight, "selector": selector, "template": template},
        }

    def _pod(self, name: str, kind: Kind, command: list[str]) -> Object:
        wants = {"cpu": str(kind.cpus), "memory": f"{kind.gib}Gi"} | ({GPU: str(kind.gpus)} if kind.gpus else {})
        container = {
            "name": "main",
            "image": self._image,
            "imagePullPolicy": "IfNotPresent",
            "command": command,
            "resources": {"requests": wants, "limits": wants},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {names.PREFIX + names.TIME_LIMIT: str(TIME_LIMIT_MIN)}},
            "spec": {
                "schedulerName": self._scheduler_name,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
            },
        }
