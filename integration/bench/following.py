"""Watches pods for a benchmark, and waits for conditions on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from integration.bench.clients import BenchError, Kube, Pod


class Following:
    """Shows every change of some pods to `observe`, from the moment when it is entered.

    selector   field selector; a pod that begins to match is ADDED, a pod that no longer matches is DELETED
    """

    def __init__(self, kube: Kube, selector: str) -> None:
        self._kube = kube
        self._selector = selector
        self._news = asyncio.Event()
        self._task: asyncio.Task[None]

    def observe(self, kind: str, pod: Pod) -> None:
        """One change."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        begun = asyncio.Event()
        self._task = asyncio.create_task(self._follow(begun.set))
        await begun.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self, ready: Callable[[], None]) -> None:
        try:
            async for change in self._kube.watch(self._selector, ready=ready):
                self.observe(change.type, change.object)
                self._news.set()
        finally:  # nothing waits for a follower that has ended
            ready()
            self._news.set()

    async def until(self, holds: Callable[[], bool], otherwise: Callable[[], str], *, within_s: float) -> None:
        """Wait until a condition on the watched pods is true.  Raises BenchError with a sentence about the present state."""
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    if self._task.done():
                        await self._task  # says why it ended
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise BenchError(f"{otherwise()} after {within_s:g} s") from None


async def eventually(what: str, ask: Callable[[], Awaitable[bool]], *, within_s: float, every_s: float = 0.1) -> None:
    """Ask until the condition is true.  Raises BenchError."""
    deadline = time.monotonic() + within_s
    while not await ask():
        if time.monotonic() > deadline:
            raise BenchError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(every_s)  # between two questions, not in place of one
