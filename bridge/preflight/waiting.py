"""At start: wait until both clusters answer, and show the reason meanwhile; end only for what waiting does not mend.

If a cluster does not answer, or its answer makes no sense (an ingress that starts, an API server before its caches are
filled), it is asked again with a backoff of at most MOST_S seconds.  /readyz shows the reason, and the log has each change
once.

A mistake (ConfigError: the policy names an unknown partition, the token or the rights are refused) ends the process with exit
code 2, if it lasts for LASTS_S: an API server refuses everything for a moment while it starts.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bridge.errors import ConfigError, NotYet

K = TypeVar("K")
S = TypeVar("S")
T = TypeVar("T")

FIRST_S = 0.25
MOST_S = 5.0
LASTS_S = 3.0

log = logging.getLogger("slurm-bridge")


class Waiting:
    """Waits for the clusters.  reasons: a sentence for each cluster that has not answered."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    async def both(self, kubernetes: Callable[[], Awaitable[K]], slurm: Callable[[], Awaitable[S]]) -> tuple[K, S]:
        """Await both at the same time and return both results.  Raises ConfigError for the first mistake that lasts."""
        try:
            async with asyncio.TaskGroup() as group:
                one = group.create_task(self.wait_for("Kubernetes", kubernetes))
                other = group.create_task(self.wait_for("Slurm", slurm))
        except ExceptionGroup as failed:
            mistake = next((error for error in failed.exceptions if isinstance(error, ConfigError)), None)
            raise mistake or failed from None
        return one.result(), other.result()

    async def wait_for(self, side: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Call `ask` until it returns, and return its result.

        ask   raises NotYet if waiting may mend it, else ConfigError
        Raises ConfigError for a mistake that lasts.
        """
        self.reasons[side] = f"{side} has not answered yet."
        loop = asyncio.get_running_loop()
        said, mistaken_since = "", None
        for attempt in range(2**63):
            try:
                answer = await ask()
            except NotYet as error:
                why, mistaken_since = str(error), None
            except ConfigError as error:
                mistaken_since = loop.time() if mistaken_since is None else mistaken_since
                if loop.time() - mistaken_since >= LASTS_S:
                    raise
                why = str(error)
            else:
                del self.reasons[side]
                return answer
            self.reasons[side] = why
            if why != said and mistaken_since is None:  # a mistake is logged once, when the process ends for it
                log.warning("waiting for %s: %s", side, why)
                said = why
            most = LASTS_S / 3 if mistaken_since is not None else MOST_S
            pause_s = min(most, FIRST_S * 2 ** min(attempt, 10))
            await asyncio.sleep(pause_s * random.uniform(0.75, 1.0))  # noqa: S311 - jitter

        raise AssertionError("the loop has no end")


async def unless(signalled: asyncio.Event, work: Awaitable[T]) -> T | None:
    """The result of `work`.  If `signalled` is set before `work` ends, `work` is cancelled, and None is returned."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(signalled.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for ending in (task, stopped):
            ending.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
