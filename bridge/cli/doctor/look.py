"""Asks both clusters every question once, and keeps each answer or failure.

A question that needs another answer waits for it; if that failed, the question is marked as not asked.  Nothing is repeated
and nothing is changed: the only writes are access reviews and the refused probe of bridge/slurm/admin_reads.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from bridge import settings
from bridge.cli import bridge_client
from bridge.cli.bridge_client import NoBridgeError
from bridge.cli.doctor import look_kubernetes, look_slurm
from bridge.cli.doctor.look_kubernetes import look_at_kubernetes
from bridge.cli.doctor.questions import MISTAKEN, not_seen, observed
from bridge.cli.doctor.views import Choice, NotSeen, Observations, Observed
from bridge.connections import Connections
from bridge.errors import ConfigError

READY_DEADLINE_S = 3.0
CORRECT = "Correct it: docs/settings.md says what each key means."
Options = Mapping[str, str | None]


async def look(options: Options, environment: Mapping[str, str]) -> Observations:
    """All observations that can be made from here: settings, both clusters, and the bridge."""
    async with _observing(options, environment) as (seen, connections):
        await asyncio.gather(
            look_at_kubernetes(seen, connections), look_slurm.look_at_slurm(seen, connections), _look_at_bridge(seen)
        )
    return seen


async def look_at_slurm(
    options: Options, environment: Mapping[str, str], filled: Sequence[Choice] = ()
) -> Observations:
    """The observations of the settings and of Slurm alone.  filled: choices that the templates of the policy give"""
    async with _observing(options, environment) as (seen, connections):
        await look_slurm.look_at_slurm(seen, connections, filled)
    return seen


async def look_at_namespaces(options: Options, environment: Mapping[str, str]) -> Observations:
    """The observations of the settings and of the namespaces of Kubernetes alone."""
    async with _observing(options, environment) as (seen, connections):
        await look_at_kubernetes(seen, connections, look_kubernetes.NAMESPACES)
    return seen


@asynccontextmanager
async def _observing(
    options: Options, environment: Mapping[str, str]
) -> AsyncIterator[tuple[Observations, Connections]]:
    """Observations that hold only the settings so far, and the connections to both clusters."""
    seen = Observations(now=time.time())
    _observe_settings(seen, options, environment)
    async with AsyncExitStack() as stack:
        yield seen, Connections(seen.usable, stack, pool_size=look_slurm.PROBES_AT_ONCE)


def _observe_settings(seen: Observations, options: Options, environment: Mapping[str, str]) -> None:
    """The settings that `run` would use; if these have a mistake, the part that can be used."""
    seen.source = settings.path_of(options, environment) or ""
    try:
        seen.usable = settings.load(options, environment)
        seen.settings = Observed(seen.usable)
    except ConfigError as error:
        seen.usable, seen.uncertain = settings.usable(options, environment)
        seen.settings = Observed(missing=not_seen(error, MISTAKEN, CORRECT))


# --- the bridge that may run here -----------------------------------------------------------------------------------


async def _look_at_bridge(seen: Observations) -> None:
    seen.bridge = await observed(lambda: _readiness(seen))


async def _readiness(seen: Observations) -> tuple[str, ...]:
    """The reasons why the bridge is not ready; after "ok", the notes about what does not work.

    Raises NotSeen if no bridge answers there, ConfigError.
    """
    if not (url := seen.usable.http_url):
        raise NotSeen("the settings name no http address", failed=False)
    try:
        answer = await bridge_client.ask("GET", f"{url}/readyz", within_s=READY_DEADLINE_S)
        lines = tuple(answer.text.splitlines()[:20])
        if answer.is_own and answer.status in (200, 503) and lines:
            return () if lines == ("ok",) else lines
    except NoBridgeError as error:
        if not error.listening:
            raise NotSeen(f"no bridge answers at {url}", failed=False) from None
    raise NotSeen(
        f"A program other than slurm-bridge answers at {url}.",
        because="another program has the http address",
        do="Choose another address with http in the settings, or --http HOST:PORT.",
    )
