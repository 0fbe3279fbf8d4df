"""An event loop whose clock jumps: hours of waiting pass in milliseconds, in an order that is always the same.

An event loop waits for two things, sockets and timers.  Code that uses no sockets waits for timers alone, and then the
next moment at which anything can happen is known: it is the next timer.  So if nothing is ready, this loop does not
sleep, but sets its clock to that timer.  Code on this loop uses ordinary asyncio (`sleep`, `timeout`, `Event`), with
`loop.time()` as the only clock.  If no timer is set and nothing is ready, nothing can ever happen again: the loop raises
Deadlock, which names what every task waits for.

Threads and real sockets cannot be used: they do not follow the virtual clock.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START = 1_800_000_000.0
"""The start of the virtual clock, epoch seconds, so that `loop.time()` serves as the epoch clock, too."""


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: no task can go on, ever."""


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that moves the clock instead of waiting."""

    now = START

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Deadlock("deadlock: nothing is ready and no timer is set")
        self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on virtual time; `start` is its first moment in seconds."""

    def __init__(self, start: float = START) -> None:
        self._virtual = _JumpingSelector()
        self._virtual.now = start
        super().__init__(self._virtual)
        # Timers closer together than this run in one pass.  At epoch size a float resolves a quarter of a microsecond.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual.now


def run(main: Coroutine[Any, Any, T], *, start: float = START, loop_of: type[VirtualLoop] = VirtualLoop) -> T:
    """Run `main` to its end on a virtual clock, a loop of that type, and return its result.

    Raises Deadlock, naming what every task waits for, when nothing can go on.  Tasks that are left are cancelled.
    """
    with asyncio.Runner(loop_factory=lambda: loop_of(start)) as runner:
        loop = runner.get_loop()
        try:
            return runner.run(main)
        except Deadlock as deadlock:
            waiting = sorted(_where(task) for task in asyncio.all_tasks(loop))
            raise Deadlock("\n  ".join([f"{deadlock}; at {loop.time() - start:.3f} s these wait:", *waiting])) from None


def _where(task: asyncio.Task[Any]) -> str:
    """A task's name and the innermost line it waits on."""
    inner: Any = task.get_coro()
    place = "not started"
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None) or getattr(inner, "gi_frame", None)
        if frame is not None:
            place = f"{frame.f_code.co_qualname} ({frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno})"
        inner = (
            getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None) or getattr(inner, "gi_yieldfrom", None)
        )
    return f"{task.get_name()}: {place}"
