"""Reads the partitions of Slurm, which shows outages of slurmdbd: slurmrestd asks slurmdbd for the partitions.

If slurmdbd is away, slurmrestd says so at once.  If slurmdbd or its database is frozen, slurmrestd waits for it, and holds a
thread for the request (slurmdbd_lane.py).  So the other polls do not wait for the partitions, and after such a request the
next one is sent when the former has surely ended.  Meanwhile slurmrestd answers all requests that do not ask slurmdbd.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.errors import AccountingUnavailable, said
from bridge.slurm.client import SlurmClient
from bridge.slurm.codec import Listed
from bridge.slurm.transport import SIDE
from scheduler.events import AccountingOutageBegan, AccountingOutageEnded, Event
from scheduler.model.slurm import Partition
from scheduler.model.slurm_errors import ACCOUNTING_AWAY
from scheduler.model.text import span

PATIENCE_S = 3.0  # polls of jobs wait so long for the partitions; then slurmdbd counts as frozen,
SLOWER = 2  # unless slurmrestd is slow altogether: then they wait this many times as long as the last poll of jobs took
RETRY_S = 5.0
FROZEN_RETRY_S = 90.0


class PartitionReads:
    """At most one request for the partitions at a time.

    in_outage   returns True during an outage of slurmdbd
    """

    def __init__(
        self,
        client: SlurmClient,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        in_outage: Callable[[], bool],
    ) -> None:
        self._client = client
        self._emit = emit
        self._clock = clock
        self._in_outage = in_outage
        self._request: asyncio.Task[Listed[tuple[Partition, ...]]] | None = None
        self._asked_at = float("-inf")  # when the request was sent
        self._due = float("-inf")

    def is_due(self) -> bool:
        """True if slurmdbd is to be tried again, or has no outage."""
        return not self._in_outage() or self._clock() >= self._due

    async def read(self, poll_took_s: float) -> Listed[tuple[Partition, ...]] | None:
        """The partitions; None: slurmdbd does not answer, or not yet.  Raises RemoteError.

        Callers at the same time wait for the same request.

        poll_took_s   the duration of the last poll of jobs
        """
        if self._request is None:
            self._request, self._asked_at = asyncio.create_task(self._client.listed_partitions()), self._clock()
        request, patience_s = self._request, max(PATIENCE_S, SLOWER * poll_took_s)
        left_s = max(0.0, self._asked_at + patience_s - self._clock())
        await asyncio.wait((request,), timeout=left_s)
        if not request.done():
            why = f"slurmdbd does not answer (no answer within {span(patience_s)})"
            self._note_away(AccountingUnavailable("partitions", SIDE, why, ACCOUNTING_AWAY), RETRY_S)
            return None
        if self._request is request:
            self._request = None
        try:
            found = request.result()
        except AccountingUnavailable as error:
            self._note_away(error, RETRY_S if left_s else FROZEN_RETRY_S)
            return None
        if self._in_outage():
            self._emit(AccountingOutageEnded(self._clock()))
        return found

    def _note_away(self, error: AccountingUnavailable, again_s: float) -> None:
        self._due = self._clock() + again_s
        if not self._in_outage():
            self._emit(AccountingOutageBegan(self._clock(), said(error)))

    def close(self) -> None:
        """Give up the request that is not answered yet."""
        if self._request is not None:
            self._request.cancel()
