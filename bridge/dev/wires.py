"""Between the bridge and each end: where requests are shown to the promises, and where faults of the way there are made.

The same for simulated and for real ends, so that these faults can be made with either: nothing reaches slurmrestd, or one
answer of it is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from bridge.dev.promises import Promises
from bridge.errors import Unanswered, Unreachable
from bridge.kube.transport import NO_PARAMS, Call
from bridge.kube.transport import Reply as KubeReply
from bridge.kube.transport import Transport as KubeTransport
from bridge.slurm.transport import SIDE as SLURM
from bridge.slurm.transport import Reply as SlurmReply
from bridge.slurm.transport import Transport as SlurmTransport


@dataclass(slots=True)
class Cable:
    """The way to slurmrestd.

    cut        nothing reaches it
    lose_next  the answer to the next write is lost
    on_lost    told what was asked when that happened
    """

    cut: bool = False
    lose_next: bool = False
    on_lost: Callable[[str], None] = field(default=lambda _what: None)


class SlurmWire:
    """A transport to slurmrestd over that cable."""

    def __init__(self, inner: SlurmTransport, cable: Cable, promises: Promises) -> None:
        self._inner, self._cable, self._promises = inner, cable, promises

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> SlurmReply:
        """See bridge.slurm.transport.Transport."""
        operation = f"{method} {target.partition('?')[0]}"
        if self._cable.cut:
            raise Unreachable(operation, SLURM, "connection refused (a fault that you made)")
        self._promises.sent_to_slurm(method, target, headers, body)
        reply = await self._inner.exchange(method, target, headers, body, deadline_s=deadline_s)
        if method != "GET":
            if self._promises.exact:
                self._promises.after()
            if self._cable.lose_next:
                self._cable.lose_next = False
                self._cable.on_lost(operation)
                raise Unanswered(operation, SLURM, "the answer was lost (a fault that you made)")
        return reply


class KubeWire:
    """A transport to the API server."""

    def __init__(self, inner: KubeTransport, promises: Promises) -> None:
        self._inner, self._promises = inner, promises

    async def exchange(self, call: Call) -> KubeReply:
        """See bridge.kube.transport.Transport."""
        self._promises.sent_to_kube(call.method, call.path, call.body)
        reply = await self._inner.exchange(call)
        if call.method != "GET" and self._promises.exact:
            self._promises.after()
        return reply

    def stream(
        self, path: str, *, params: Mapping[str, str] = NO_PARAMS, stall_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See bridge.kube.transport.Transport."""
        return self._inner.stream(path, params=params, stall_s=stall_s)

    async def close(self) -> None:
        """See bridge.kube.transport.Transport."""
        await self._inner.close()
