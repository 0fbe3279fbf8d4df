"""Containment of the bridge's own errors: what happens after an unexpected exception (X8, ARCHITECTURE 6).

Every failure of a far side has an error class (errors.py).  Any other exception is a defect of the bridge.  In tests and
simulation it is raised.  `slurm-bridge run` contains it to the object that it is about: the exception is counted and logged,
and everything else goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal, get_args

from scheduler.actions import ObjectKind
from scheduler.state.quarantined import Alarm, Origin, origin_of

AGAIN_S = 2.0  # after this time a task that ended by an error of the bridge's own begins again
MAX_LOGGED = 1000  # places in the code whose traceback is logged
log = logging.getLogger("slurm-bridge")

Step = Literal["action", "task", "pass", "observer", "page", "explanation", "nodes"]
# Each has its series of the metric from the start: Prometheus sees no increase in a series that begins with 1.
KINDS: tuple[str, ...] = (*get_args(Step), *(kind.value for kind in ObjectKind))


class Guard:
    """Contains exceptions that are defects of the bridge, and reports them.

    on          True: exceptions are contained; False: they are raised
    contained   number of contained exceptions, by kind (KINDS)
    """

    def __init__(self, *, on: bool = False) -> None:
        self.on = on
        self.contained: Counter[str] = Counter()
        self._logged: set[Origin] = set()

    def caught(self, error: Exception, kind: Step, subject: str) -> None:
        """Contain an exception; raise it if containment is off.

        kind   label of the metric
        subject   for the log: what was done, to which object
        """
        if not self.on:
            raise error
        self._contain(error, kind, subject)

    def alarm(self, alarm: Alarm) -> None:
        """Report that the scheduler has put an object in quarantine."""
        self._contain(alarm.error, alarm.kind.value, f"{alarm.kind.value} {alarm.readable}: in quarantine")

    def _contain(self, error: Exception, kind: str, subject: str) -> None:
        """Count and log the exception.  The traceback of each place in the code is logged once."""
        self.contained[kind] += 1
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):  # a task group raises a group of the exceptions of its tasks
            cause = cause.exceptions[0]
        origin = origin_of(cause)
        is_new = origin not in self._logged and len(self._logged) < MAX_LOGGED
        if is_new:
            self._logged.add(origin)
        name, file, line = origin
        place = f"{name} at {file.rpartition('/')[2]}:{line}"
        log.error(
            "an error of slurm-bridge itself, please report it: %s (%s)",
            subject,
            place,
            exc_info=error if is_new else None,
        )


async def restart_on_error(subject: str, task: Callable[[], Awaitable[None]], guard: Guard) -> None:
    """Run the task, and run it again after it ends or raises an error of the bridge's own.  Never returns."""
    while True:
        try:
            await task()
        except Exception as error:  # noqa: BLE001 - contained to this task, or raised
            guard.caught(error, "task", subject)
        await asyncio.sleep(AGAIN_S)
