"""The load and the stopwatch: pods that come at times fixed beforehand, and when each was created and seen bound.

The load is open: answers, and their times, do not change when the next pod comes.  A time begins when the request that
creates the pod is sent.  It ends when this program's own watch shows the pod on a node, whichever program binds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from integration.bench.clients import PODS, Kube, Pod
from integration.bench.following import Following

CREATORS = 16  # creations under way at once in a burst
MEMORY_MIB = 100


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of the pods of a burst.

    gang    they are a gang of this name, all of them; "": each is alone
    nodes   where they may stand; nothing: anywhere
    owner   name and UID of the config map that is their controller; nothing: they have none
    labels  that they have besides
    """

    cpus: int = 1
    gang: str = ""
    nodes: tuple[str, ...] = ()
    owner: tuple[str, str] | None = None
    labels: tuple[tuple[str, str], ...] = ()


PLAIN = JobOptions()


def pod(name: str, scheduler: str, options: JobOptions = PLAIN, *, of: int = 1) -> bytes:
    """A pod as it is sent.  of: how many they are."""
    wants = {"cpu": str(options.cpus), "memory": f"{MEMORY_MIB}Mi"}
    container = {"name": "main", "image": "none", "resources": {"requests": wants}}
    metadata: dict[str, Any] = {"name": name, "labels": dict(options.labels)}
    spec: dict[str, Any] = {"schedulerName": scheduler, "containers": [container]}
    if options.gang:
        metadata["labels"] |= {"slurm-bridge/gang": options.gang}
        metadata["annotations"] = {"slurm-bridge/gang-size": str(of)}
    if options.nodes:
        these = {"key": "kubernetes.io/hostname", "operator": "In", "values": options.nodes}
        required = {"nodeSelectorTerms": [{"matchExpressions": [these]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if options.owner:
        name, uid = options.owner
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": True}
        ]
    return msgspec.json.encode({"metadata": metadata, "spec": spec})


class Stopwatch(Following):
    """Makes the pods of one scheduler, and follows them while it is entered.

    sent    when the request that creates it was sent, by pod; seconds of one clock that never jumps
    bound   when it was seen on a node
    """

    def __init__(self, kube: Kube, scheduler: str) -> None:
        super().__init__(kube, f"spec.schedulerName={scheduler},spec.nodeName!=")
        self._scheduler = scheduler
        self.sent: dict[str, float] = {}
        self.bound: dict[str, float] = {}

    def observe(self, kind: str, pod: Pod) -> None:
        """A pod with a node is new in this selection."""
        if kind == "ADDED":
            self.bound[pod.metadata.name] = time.perf_counter()

    async def create(self, name: str, body: bytes) -> None:
        """Create one pod, and note when."""
        self.sent[name] = time.perf_counter()
        await self._kube.call("POST", PODS, body)

    async def burst(self, names: Sequence[str], options: JobOptions = PLAIN) -> None:
        """Create all pods, as fast as some creators can."""
        todo = iter([(name, pod(name, self._scheduler, options, of=len(names))) for name in names])

        async def creator() -> None:
            for name, body in todo:
                await self.create(name, body)

        async with asyncio.TaskGroup() as creators:
            for _ in range(CREATORS):
                creators.create_task(creator())

    async def one_by_one(self, names: Sequence[str], options: JobOptions = PLAIN, *, every_s: float) -> None:
        """Create one pod every so many seconds, even if earlier requests go on."""
        bodies = {name: pod(name, self._scheduler, options) for name in names}
        await at_times(names, lambda name: self.create(name, bodies[name]), every_s=every_s)

    async def until_bound(self, names: Iterable[str], *, within_s: float) -> None:
        """Wait until all of these are bound.  Raises BenchError."""
        wanted = set(names)
        await self.until(
            lambda: wanted <= self.bound.keys(),
            lambda: f"{len(wanted - self.bound.keys())} of {len(wanted)} pods of {self._scheduler} were not bound",
            within_s=within_s,
        )

    def waits(self, names: Iterable[str]) -> list[float]:
        """The time from creation to bind of each pod, in seconds."""
        return [self.bound[name] - self.sent[name] for name in names]


async def at_times(names: Sequence[str], act: Callable[[str], Coroutine[Any, Any, None]], *, every_s: float) -> None:
    """Call the function for one item every so many seconds, even if earlier calls go on.  Returns when all have ended."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as actors:
        for number, name in enumerate(names):
            await asyncio.sleep(began + number * every_s - time.perf_counter())
            actors.create_task(act(name))


def percentile(values: Iterable[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
