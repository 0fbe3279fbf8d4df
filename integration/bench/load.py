"""The load and the stopwatch: pods that come at times fixed beforehand, and when each was created and seen bound.

The load is open: what is answered, or how fast, changes nothing of when the next pod comes.  A time begins when the
request that creates the pod is sent and ends when this program's own watch shows the pod on a node; the same for whoever
binds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from integration.bench.ends import BenchError, Kube

NAMESPACE = "alice-bench"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
TENANT = "alice"  # who that namespace is in Slurm
CREATORS = 16  # creations under way at once in a burst
MEMORY_MIB = 100


def pod(name: str, scheduler: str, *, cpus: int = 1) -> bytes:
    """A pod as it is sent."""
    wants = {"cpu": str(cpus), "memory": f"{MEMORY_MIB}Mi"}
    container = {"name": "main", "image": "none", "resources": {"requests": wants}}
    return msgspec.json.encode(
        {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": [container]}}
    )


class _Metadata(msgspec.Struct):
    name: str
    version: str = msgspec.field(name="resourceVersion")


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _Change(msgspec.Struct):
    type: str
    object: _Pod


_CHANGE = msgspec.json.Decoder(_Change)


class Stopwatch:
    """Follows the pods of one scheduler while it is entered.

    sent    when the request that creates it was sent, by pod; seconds of one clock that never jumps
    bound   when it was seen on a node
    """

    def __init__(self, kube: Kube, scheduler: str) -> None:
        self._kube = kube
        self._scheduler = scheduler
        self._news = asyncio.Event()
        self._following: asyncio.Task[None]
        self.sent: dict[str, float] = {}
        self.bound: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        version = await self._kube.version(PODS)
        self._following = asyncio.create_task(self._follow(version))
        self._following.add_done_callback(lambda _: self._news.set())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._following.cancel()
        await asyncio.wait([self._following])

    async def _follow(self, version: str) -> None:
        # A pod enters this selection when it is bound.
        async for line in self._kube.watch(PODS, f"spec.schedulerName={self._scheduler},spec.nodeName!=", version):
            change = _CHANGE.decode(line)
            if change.type == "ADDED":
                self.bound[change.object.metadata.name] = time.perf_counter()
                self._news.set()
        raise BenchError("the API server ended the stopwatch's watch")

    async def create(self, name: str, body: bytes) -> None:
        """Create one pod, and note when."""
        self.sent[name] = time.perf_counter()
        await self._kube.call("POST", PODS, body)

    async def burst(self, names: Sequence[str], *, cpus: int = 1) -> None:
        """All of them, as fast as some creators can."""
        todo = iter([(name, pod(name, self._scheduler, cpus=cpus)) for name in names])

        async def creator() -> None:
            for name, body in todo:
                await self.create(name, body)

        async with asyncio.TaskGroup() as creators:
            for _ in range(CREATORS):
                creators.create_task(creator())

    async def one_by_one(self, names: Sequence[str], *, every_s: float) -> None:
        """One every so many seconds, whatever became of those before."""
        bodies = [(name, pod(name, self._scheduler)) for name in names]
        began = time.perf_counter()
        async with asyncio.TaskGroup() as creators:
            for number, (name, body) in enumerate(bodies):
                await asyncio.sleep(began + number * every_s - time.perf_counter())
                creators.create_task(self.create(name, body))

    async def until_bound(self, names: Iterable[str], *, within_s: float) -> None:
        """Wait until all of these are bound.  Raises BenchError."""
        wanted = set(names)
        await self.until(
            lambda: wanted <= self.bound.keys(),
            lambda: f"{len(wanted - self.bound.keys())} of {len(wanted)} pods of {self._scheduler} are not bound",
            within_s=within_s,
        )

    async def until(self, holds: Callable[[], bool], otherwise: Callable[[], str], *, within_s: float) -> None:
        """Wait until something holds of what was seen.  Raises BenchError, with what is the case otherwise."""
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    if self._following.done():
                        await self._following  # says why it ended
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise BenchError(f"{otherwise()} after {within_s:g} s") from None

    def waits(self, names: Iterable[str]) -> list[float]:
        """Create to bind of each, in seconds."""
        return [self.bound[name] - self.sent[name] for name in names]


def percentile(values: Iterable[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def eventually(what: str, ask: Callable[[], Any], *, within_s: float, every_s: float = 0.1) -> None:
    """Ask (an awaitable answer) until it is true.  Raises BenchError."""
    deadline = time.monotonic() + within_s
    while not await ask():
        if time.monotonic() > deadline:
            raise BenchError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(every_s)  # between two questions, not in place of one
