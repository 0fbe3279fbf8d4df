"""The requests that slurmrestd answers with the help of slurmdbd: few at a time, and none soon after one without an answer.

If slurmdbd or its database is frozen, slurmrestd waits for it for 45 to 90 seconds.  For that time the request holds one of
slurmrestd's few threads (two a core), also after the client has given up.  If such requests held all threads, slurmrestd
would answer nothing at all, and the bridge would lose Slurm with slurmdbd.

If slurmctld or slurmrestd is frozen, these requests get no answer either.  Then slurmdbd is not to blame, so no outage of it
is concluded from them, and none is sent until slurmrestd answers another request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bridge.errors import AccountingUnavailable, Unanswered, Unreachable
from bridge.slurm.transport import SIDE, Reply
from scheduler.model.slurm_errors import ACCOUNTING_AWAY

MOST = 2  # at a time
PAUSE_S = 30.0  # after a request without an answer


def asks_slurmdbd(target: str) -> bool:
    """True if slurmrestd asks slurmdbd to answer the request for this target.  All others are answered without slurmdbd."""
    return target.startswith("/slurmdb/") or "/partition" in target


class SlurmdbdLane:
    """See the module."""

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        self._stopwatch = stopwatch
        self._free = asyncio.Semaphore(MOST)
        self._paused_until = float("-inf")
        self._all_silent = False

    def note_other(self, *, is_answered: bool) -> None:
        """A request that slurmrestd answers without slurmdbd has ended, with an answer or without one."""
        self._all_silent = not is_answered

    async def send(self, operation: str, request: Callable[[], Awaitable[Reply]]) -> Reply:
        """The answer.  Raises AccountingUnavailable if there is none, or if another request got none lately.

        Raises Unreachable or Unanswered instead while slurmrestd does not answer other requests either.
        """
        async with self._free:
            if self._all_silent:
                raise Unreachable(operation, SIDE, "not sent, because the request before got no answer")
            if self._stopwatch() < self._paused_until:
                raise _away(operation, "another request got no answer just now")
            try:
                reply = await request()
            except Unanswered as error:
                if self._all_silent:
                    raise
                self._paused_until = self._stopwatch() + PAUSE_S
                raise _away(operation, error.message) from None
            self._paused_until = float("-inf")
            return reply


def _away(operation: str, why: str) -> AccountingUnavailable:
    return AccountingUnavailable(operation, SIDE, f"slurmdbd does not answer ({why})", ACCOUNTING_AWAY)
