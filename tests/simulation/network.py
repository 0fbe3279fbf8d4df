"""The network between the bridge and the two simulated clusters, which loses, delays and distorts.

One seeded random generator chooses a fault for each request.  The request may be lost before it takes effect; its answer may
be lost; or it may take effect after its caller has given up.  An answer may be late, so that it shows an old state, or make
no sense.  With `faults.on` False no request has a fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from bridge.errors import Unanswered, Unreachable
from bridge.kube.transport import NO_PARAMS, Call
from bridge.kube.transport import Reply as KubeReply
from bridge.simulation.fault_injection import Outage
from bridge.simulation.invariants.violation import Violation
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.slurm import rest
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.slurm.transport import Reply as SlurmReply
from tests.simulation.arrivals import ArrivalInvariants

T = TypeVar("T")
LATEST_EFFECT_S = 10.0  # within the settle time: that is what the settle time is for (docs/core.md)


@dataclass(slots=True)
class Faults:
    """Probabilities of faults, from 0 to 1; each request draws one number.

    api          whether the API server is away, for a while
    stale_once   of each list, the next answer is an old one, whatever the dice say; by path and field selector
    """

    rng: random.Random
    on: bool = True
    api: Outage = field(default_factory=Outage)
    lost_request: float = 0.02
    lost_answer: float = 0.03
    late_effect: float = 0.02
    slow: float = 0.05
    nonsense: float = 0.01
    late: set[asyncio.Task[None]] = field(default_factory=set)
    stale_once: set[tuple[str, str]] = field(default_factory=set)

    async def through(self, side: str, what: str, act: Callable[[], T], *, nonsense: T) -> T:
        """One request by way of these faults."""
        rng = self.rng
        await asyncio.sleep(rng.uniform(0.0005, 0.004))
        if not self.on:
            return act()
        dice = rng.random()
        for limit, fault in (
            (self.lost_request, self._lost_request),
            (self.lost_answer, self._lost_answer),
            (self.late_effect, self._late_effect),
        ):
            if dice < limit:
                return await fault(side, what, act)
            dice -= limit
        answer = act()
        if dice < self.slow:
            await asyncio.sleep(rng.uniform(0.1, 3.0))
        elif dice < self.slow + self.nonsense:
            return nonsense
        return answer

    async def _lost_request(self, side: str, what: str, act: Callable[[], T]) -> T:
        raise Unreachable(what, side, "simulated: the request was lost")

    async def _lost_answer(self, side: str, what: str, act: Callable[[], T]) -> T:
        act()
        await asyncio.sleep(self.rng.uniform(0.1, 5.0))
        raise Unanswered(what, side, "simulated: the answer was lost")

    async def _late_effect(self, side: str, what: str, act: Callable[[], T]) -> T:
        given_up_s = self.rng.uniform(0.1, 5.0)

        async def happens_later() -> None:
            await asyncio.sleep(given_up_s + self.rng.uniform(0.0, LATEST_EFFECT_S))
            with contextlib.suppress(Violation):  # it is on record
                act()

        task = asyncio.create_task(happens_later())
        self.late.add(task)
        task.add_done_callback(self.late.discard)
        await asyncio.sleep(given_up_s)
        raise Unanswered(what, side, "simulated: nobody knows")


class FaultySlurm:
    """slurmrestd, as bridge.slurm.transport.Transport.  Every request that takes effect is shown to the invariants."""

    def __init__(
        self, cluster: SlurmCluster, faults: Faults, invariants: ArrivalInvariants, clock: Callable[[], float]
    ) -> None:
        self._cluster, self._faults, self._invariants, self._clock = cluster, faults, invariants, clock

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> SlurmReply:
        self._invariants.sent_to_slurm(method, target, headers, body)
        sent = self._invariants.clock()

        def act() -> SlurmReply:
            self._invariants.reaches_slurm(method, target, body, sent)
            reply = SlurmReply(*rest.answer(self._cluster, self._clock(), method, target, headers, body))
            if method != "GET":
                self._invariants.after()
            return reply

        broken = SlurmReply(500, {}, b"Unspecified error")
        return await self._faults.through("Slurm", f"{method} {target}", act, nonsense=broken)


class FaultyKube:
    """The API server, as bridge.kube.transport.Transport.  Lists may be old, watches break off.

    process  number of the bridge process that sends by this; None: the present one, as the invariants know it
    """

    def __init__(self, inner: InProcessKube, faults: Faults, invariants: ArrivalInvariants) -> None:
        self._inner, self._faults, self._invariants = inner, faults, invariants
        self._lists: dict[tuple[str, str], KubeReply] = {}
        self.process: int | None = None
        self._watches = 0  # counts up when those that are open begin to hang

    async def exchange(self, call: Call) -> KubeReply:
        self._faults.api.check(f"{call.method} {call.path}")
        self._invariants.sent_to_kube(call.method, call.path, call.body)
        sent_in = self._invariants.process if self.process is None else self.process

        def act() -> KubeReply:
            self._invariants.reaches_kube(call.path, call.body, sent_in)
            reply = self._inner.answer(call)
            if call.method != "GET":
                self._invariants.after()
            return self._perhaps_stale(call.path, call.params, reply)

        broken = KubeReply(503, {}, b"upstream connect error")
        return await self._faults.through("Kubernetes", f"{call.method} {call.path}", act, nonsense=broken)

    def _perhaps_stale(self, path: str, params: Mapping[str, str], reply: KubeReply) -> KubeReply:
        """Now and then the list of another API server, which is behind; its version is too, so the watch catches up."""
        if "limit" not in params or "continue" in params or reply.status != 200:
            return reply
        key = (path, params.get("fieldSelector", ""))
        before = self._lists.get(key)
        self._lists[key] = reply
        stale = before is not None and self._faults.on and self._faults.rng.random() < 0.2
        if before is not None and key in self._faults.stale_once:
            self._faults.stale_once.discard(key)
            stale = True
        if not stale or before is None:
            return reply
        return KubeReply(before.status, {**before.headers, "date": reply.headers["date"]}, before.body)

    def stream(
        self, path: str, *, params: Mapping[str, str] = NO_PARAMS, stall_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._stream(path, params, stall_s)

    @asynccontextmanager
    async def _stream(
        self, path: str, params: Mapping[str, str], stall_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self._faults.api.check(f"watch {path}")
        async with self._inner.stream(path, params=params, stall_s=stall_s) as lines:
            yield self._faults.api.until(self._breaking(lines))

    def hang(self) -> None:
        """The watches that are open now tell nothing more, and do not end."""
        self._watches += 1

    async def _breaking(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        watches = self._watches
        async for line in lines:
            if watches != self._watches:
                await asyncio.get_running_loop().create_future()
            if self._faults.on and self._faults.rng.random() < 0.01:
                raise Unanswered("watch", "Kubernetes", "simulated: the stream broke off")
            yield line

    async def close(self) -> None:
        """Nothing is held."""
