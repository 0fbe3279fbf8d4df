"""Transports between the bridge and each cluster: they report requests to the invariants, and inject faults.

They work with simulated and with real clusters.  The faults are: no request reaches slurmrestd, one answer of slurmrestd is
lost, or the API server is down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bridge.errors import Unanswered, Unreachable
from bridge.kube.transport import NO_PARAMS, SIDE, Call
from bridge.kube.transport import Reply as KubeReply
from bridge.kube.transport import Transport as KubeTransport
from bridge.simulation.invariants.checks import Invariants
from bridge.slurm.transport import SIDE as SLURM
from bridge.slurm.transport import Reply as SlurmReply
from bridge.slurm.transport import Transport as SlurmTransport

END = b"the end of a stream"


@dataclass(slots=True)
class Cable:
    """The connection to slurmrestd.

    cut        no request reaches slurmrestd
    lose_next  the answer to the next write is lost
    on_lost    called with the operation when that happens
    """

    cut: bool = False
    lose_next: bool = False
    on_lost: Callable[[str], None] = field(default=lambda _what: None)


class Outage:
    """An outage of the API server: no request reaches it, and open streams end when the outage begins."""

    def __init__(self) -> None:
        self._began = asyncio.Event()

    @property
    def lasts(self) -> bool:
        """True during an outage."""
        return self._began.is_set()

    def begin(self) -> None:
        """Begin the outage."""
        self._began.set()

    def end(self) -> None:
        """End the outage."""
        self._began.clear()

    def check(self, operation: str) -> None:
        """Raises Unreachable during an outage."""
        if self.lasts:
            raise Unreachable(operation, SIDE, "connection refused (simulated: the API server is down)")

    async def until(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The lines of a stream.  Raises Unanswered when the outage begins."""
        began: asyncio.Future[Any] = asyncio.ensure_future(self._began.wait())
        line: asyncio.Future[Any] = asyncio.ensure_future(anext(lines, END))
        try:
            while True:
                await asyncio.wait({line, began}, return_when=asyncio.FIRST_COMPLETED)
                if began.done():
                    raise Unanswered("watch", SIDE, "simulated: the API server is down")
                if (received := line.result()) is END:
                    return
                yield received
                line = asyncio.ensure_future(anext(lines, END))
        finally:
            began.cancel()
            line.cancel()
            await asyncio.gather(began, line, return_exceptions=True)


class SlurmFaults:
    """A transport to slurmrestd over a Cable."""

    def __init__(self, inner: SlurmTransport, cable: Cable, invariants: Invariants) -> None:
        self._inner, self._cable, self._invariants = inner, cable, invariants

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> SlurmReply:
        """See bridge.slurm.transport.Transport."""
        operation = f"{method} {target.partition('?')[0]}"
        if self._cable.cut:
            raise Unreachable(operation, SLURM, "connection refused (an injected fault)")
        self._invariants.sent_to_slurm(method, target, headers, body)
        reply = await self._inner.exchange(method, target, headers, body, deadline_s=deadline_s)
        if method != "GET":
            if self._invariants.exact:
                self._invariants.after()
            if self._cable.lose_next:
                self._cable.lose_next = False
                self._cable.on_lost(operation)
                raise Unanswered(operation, SLURM, "the answer was lost (an injected fault)")
        return reply


class KubeFaults:
    """A transport to the API server."""

    def __init__(self, inner: KubeTransport, invariants: Invariants, outage: Outage) -> None:
        self._inner, self._invariants, self._outage = inner, invariants, outage

    async def exchange(self, call: Call) -> KubeReply:
        """See bridge.kube.transport.Transport."""
        self._outage.check(f"{call.method} {call.path}")
        self._invariants.sent_to_kube(call.method, call.path, call.body)
        reply = await self._inner.exchange(call)
        if call.method != "GET" and self._invariants.exact:
            self._invariants.after()
        return reply

    def stream(
        self, path: str, *, params: Mapping[str, str] = NO_PARAMS, stall_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See bridge.kube.transport.Transport."""
        return self._stream(path, params, stall_s)

    @asynccontextmanager
    async def _stream(
        self, path: str, params: Mapping[str, str], stall_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self._outage.check(f"watch {path}")
        async with self._inner.stream(path, params=params, stall_s=stall_s) as lines:
            yield self._outage.until(lines)

    async def close(self) -> None:
        """See bridge.kube.transport.Transport."""
        await self._inner.close()
