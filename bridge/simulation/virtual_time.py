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
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Args = TypeVarTuple("Args")

START = 1_800_000_000.0
"""The start of the virtual clock, epoch seconds, so that `loop.time()` serves as the epoch clock, too."""


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set, so no task can ever continue."""


class _Clock:
    """Replaces the selector of the loop.  There are no sockets, so it advances the time instead of waiting."""

    def __init__(self, now: float) -> None:
        self.now = now

    def select(self, timeout: float | None) -> tuple[()]:
        """The next timer is due after *timeout* seconds.  0: something is ready; None: there is no timer."""
        if timeout is None:
            raise Deadlock("deadlock: nothing is ready and no timer is set")
        self.now += timeout
        return ()


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop on virtual time; `start` is its first moment in seconds.

    `call_soon` and `call_at` are those of asyncio without its debug mode: a simulated hour calls them a million times.
    """

    _closed: bool
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, start: float = START) -> None:
        super().__init__()
        self._selector = _Clock(start)
        # Timers closer together than this run in one pass.  At epoch size a float resolves a quarter of a microsecond.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._selector.now

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        if self._closed:
            raise RuntimeError("the loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        if self._closed:
            raise RuntimeError("the loop is closed")
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def get_debug(self) -> bool:
        """False: asyncio asks this for every handle."""
        return False

    def _process_events(self, events: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Do nothing: this loop never sleeps, so it need not be woken."""


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
