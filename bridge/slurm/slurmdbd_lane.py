"""The requests that slurmrestd answers with the help of slurmdbd: few at a time, and none behind one without an answer.

If slurmdbd or its database is frozen, slurmrestd waits for it for 45 to 90 seconds.  For that time the request holds one of
slurmrestd's few threads (two a core), also after the client has given up.  If such requests held all threads, slurmrestd
would answer nothing at all, and the bridge would lose Slurm with slurmdbd.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bridge.errors import AccountingUnavailable, Unanswered
from bridge.slurm.transport import SIDE, Reply
from scheduler.model.slurm_errors import ACCOUNTING_AWAY

MOST = 2  # at a time


def asks_slurmdbd(target: str) -> bool:
    """True if slurmrestd asks slurmdbd to answer the request for this target.  All others are answered without slurmdbd."""
    return target.startswith("/slurmdb/") or "/partition" in target


class SlurmdbdLane:
    """See the module."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MOST)
        self._unanswered = 0

    async def send(self, operation: str, request: Callable[[], Awaitable[Reply]]) -> Reply:
        """The answer.  Raises AccountingUnavailable if there is none, or if another request got none meanwhile."""
        before = self._unanswered
        async with self._free:
            if self._unanswered != before:
                raise _away(operation, "another request got no answer")
            try:
                return await request()
            except Unanswered as error:
                self._unanswered += 1
                raise _away(operation, error.message) from None


def _away(operation: str, why: str) -> AccountingUnavailable:
    return AccountingUnavailable(operation, SIDE, f"slurmdbd does not answer ({why})", ACCOUNTING_AWAY)
