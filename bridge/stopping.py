"""From SIGTERM or SIGINT to the end of the process: at most END_S seconds, whatever hangs.

    calls in flight      get CALLS_S to be answered; no new work begins (Loop.finish)
    readers of HTTP      get READERS_S, then their connections are closed (Health.serve)
    telemetry            gets TELEMETRY_S to send what is left (Telemetry.close)

A call without an answer by then has an unknown outcome, which the next process finds out by reading.  If something else
hangs (a thread that resolves a name, an exec plugin, a pass that takes a minute), an alarm ends the process.  A second
signal ends it at once.

Handlers of signals are Python functions, not SIG_DFL: process 1 of a container ignores the default actions.  They run between
two instructions of the main thread, so that a busy loop does not delay them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

CALLS_S = 2.0
READERS_S = 0.3
TELEMETRY_S = 2.0
END_S = 4.8
SIGNALS = (signal.SIGTERM, signal.SIGINT)
EXIT_HUNG = 1

log = logging.getLogger("slurm-bridge")


def log_stopped(unanswered: int, *, leaving: bool) -> None:
    """Log that the bridge has stopped.

    unanswered   how many calls had no answer yet
    leaving      True if the bridge was being uninstalled
    """
    lives = "" if leaving else "; pods and jobs live on"
    log.info("stopped%s%s", lives, f"; {unanswered:,} calls had no answer yet" if unanswered else "")


@contextmanager
def listening(on_signal: Callable[[], None]) -> Iterator[None]:
    """Call `on_signal` in the running loop at the first signal.  Enter this context in the main thread."""
    loop = asyncio.get_running_loop()
    seen = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal seen
        if seen:
            os._exit(128 + number)
        seen = True
        signal.signal(signal.SIGALRM, _give_up)
        signal.setitimer(signal.ITIMER_REAL, END_S)
        loop.call_soon_threadsafe(on_signal)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        if not seen:  # after a signal, what is left to do stays bounded by the alarm
            for number, handler in before.items():
                signal.signal(number, handler)


def _give_up(_: int, __: FrameType | None) -> None:
    os.write(2, b"slurm-bridge: stopped before everything had ended: something hangs\n")
    os._exit(EXIT_HUNG)
