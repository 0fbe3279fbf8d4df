"""Names that the shell's completion offers: pods and namespaces of the cluster, contexts of the kubeconfig.

A shell that completes cannot show a message.  If an error occurs, or after DEADLINE_S, there are no names.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from bridge.errors import BridgeError
from bridge.kube import auth
from bridge.kube.kubeconfig import contexts_of
from bridge.plugin.cluster import Selection, connected, namespace_of

DEADLINE_S = 3.0


def pods(options: argparse.Namespace) -> list[str]:
    """The names of the scheduler's pods in the namespace."""

    async def found() -> list[str]:
        async with AsyncExitStack() as stack:
            cluster = await connected(options.kubeconfig, options.context, stack, _quiet)
            seen = await cluster.pods(Selection(options.scheduler, namespace_of(options)))
            return [each.pod.name for each in seen.values()]

    return _in_time(found)


def namespaces(options: argparse.Namespace) -> list[str]:
    """The names of all namespaces."""

    async def found() -> list[str]:
        async with AsyncExitStack() as stack:
            return await (await connected(options.kubeconfig, options.context, stack, _quiet)).namespaces()

    return _in_time(found)


def contexts(options: argparse.Namespace) -> list[str]:
    """The names of the contexts in the kubeconfig."""

    async def found() -> list[str]:
        path = auth.path_of(options.kubeconfig or None)
        return contexts_of(path) if path else []

    return _in_time(found)


def _in_time(found: Callable[[], Coroutine[Any, Any, list[str]]]) -> list[str]:
    """The names that *found* returns; none if it raises BridgeError or takes longer than DEADLINE_S."""

    async def limited() -> list[str]:
        async with asyncio.timeout(DEADLINE_S):
            return await found()

    try:
        return asyncio.run(limited())
    except (BridgeError, TimeoutError):
        return []


def _quiet(_sentence: str) -> None:
    """Show no message."""
