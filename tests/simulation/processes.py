"""Processes on one virtual clock, each of which can be stopped as by SIGSTOP and wake later.

A process is all tasks that were started in its context.  While the process is paused, none of its code runs: callbacks and
timers that become ready are kept, and run in the same order when the process wakes.  The clock goes on, and requests that
were sent take effect (`outside`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from typing import Any, TypeVar

from bridge.simulation.virtual_time import START, VirtualLoop

T = TypeVar("T")


class Process:
    """Tasks that are paused together."""

    def __init__(self) -> None:
        self.paused = False
        self.kept: list[asyncio.Handle] = []

    def start(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Its first task; what that one starts is of the process, too."""
        context = Context()
        context.run(_process.set, self)
        return asyncio.get_running_loop().create_task(main, context=context)

    def pause(self, for_s: float) -> None:
        """SIGSTOP, and SIGCONT so many seconds later."""
        if not self.paused:
            self.paused = True
            asyncio.get_running_loop().call_later(for_s, self.wake, context=Context())

    def wake(self) -> None:
        """SIGCONT."""
        self.paused = False
        loop: Any = asyncio.get_running_loop()
        loop._ready.extend(self.kept)
        self.kept = []


_process: ContextVar[Process] = ContextVar("process")
_sender: ContextVar[Process | None] = ContextVar("sender", default=None)


def sender() -> Process | None:
    """The process that sent the request, while the request takes effect (`outside`)."""
    return _sender.get()


async def outside(request: Coroutine[Any, Any, T]) -> T:
    """The result of the request, which goes on while the process that sent it is paused, and after that process ends."""
    context = Context()
    context.run(_sender.set, _process.get(None))
    task = asyncio.get_running_loop().create_task(request, context=context)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to hear of it
    return await asyncio.shield(task)


class _Ready(deque[asyncio.Handle]):
    """The handles that the event loop runs next; handles of a paused process are kept back."""

    def popleft(self) -> asyncio.Handle:
        handle = super().popleft()
        context: Context = handle._context  # type: ignore[attr-defined]
        process = context.get(_process)
        if process is None or not process.paused:
            return handle
        process.kept.append(handle)
        return _NOTHING


class _Nothing:
    _cancelled = True


_NOTHING: asyncio.Handle = _Nothing()


class PausingLoop(VirtualLoop):
    """A loop on virtual time whose processes can be paused."""

    def __init__(self, start: float = START) -> None:
        super().__init__(start)
        self._ready = _Ready()
