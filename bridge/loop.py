"""The one loop: observe, decide, act; always in this order, at its own pace (ARCHITECTURE 1).

Nobody acts straight from an event.  Events wait in a queue; when the loop is ready it applies all of them, decides once,
and starts what was decided.  However many events came between, the decision is about the facts as they are now.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import ParamSpec, Protocol

from bridge.executor import Executor
from bridge.guard import Guard
from scheduler.actions import Action, Outcome
from scheduler.decide import decide
from scheduler.events import ActionEnded, Event, Planned
from scheduler.state.world import World

P = ParamSpec("P")

HEARTBEAT_S = 5.0
AGAIN_S = 1.0  # after a pass in which nothing could be decided


class Observer(Protocol):
    """Who listens: metrics, traces and logs.  It must not raise and must not take long."""

    def planned(self, action: Action, at: float) -> None:
        """It was decided and is about to be performed."""
        ...

    def ended(self, event: ActionEnded, world: World) -> None:
        """It ended; the world has not heard of it yet."""
        ...

    def seen(self, event: Event) -> None:
        """Something was observed."""
        ...

    def passed(self, world: World, took_s: float) -> None:
        """A pass is over: the world is as it was decided on."""
        ...


class Loop:
    """Owns the world: nothing else changes it.

    passed   when the last pass ended, by the loop's clock: a loop that stands still is not healthy
    guard    reports the bridge's own errors
    leads    whether this replica may act; while it may not, nothing is decided
    """

    def __init__(
        self,
        world: World,
        executor: Executor,
        clock: Callable[[], float],
        observer: Observer,
        guard: Guard | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._leads = leads
        self._unknown_at = float("-inf")  # when the last action ended of which nobody knows whether it happened
        self.world = world
        self.guard = guard or Guard()
        self._executor = executor
        self._clock = clock
        self._observer = observer
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._finishing = False
        self.passed = clock()

    def emit(self, event: Event) -> None:
        """Queue an event; may be called from any task of the same asyncio loop."""
        self._events.append(event)
        self._news.set()

    async def finish(self, within_s: float) -> int:
        """Start nothing new, and wait so long for the calls under way; returns how many of them have no answer yet.

        `run` goes on without deciding anything; it is cancelled next.
        """
        self._finishing = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=within_s)
        return len(self._under_way)

    def is_drained(self) -> bool:
        """Whether no request of this process, or of one before it, can take effect any more."""
        now, world = self._clock(), self.world
        is_settled = now >= self._unknown_at + world.config.tuning.settle_s
        return not self._under_way and is_settled and now >= world.quiet_until()

    async def run(self) -> None:
        """For ever.  Cancelling it cancels the actions under way: their outcome is then found by looking, as ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                wake_at = self._pass(tasks)
                await self._rest(wake_at)

    def _pass(self, tasks: asyncio.TaskGroup) -> float | None:
        began = time.perf_counter()
        while self._events:
            event = self._events.popleft()
            if isinstance(event, ActionEnded):
                self._tell(self._observer.ended, event, self.world)
            else:
                self._tell(self._observer.seen, event)
            self.world.apply(event)
        self._news.clear()
        if self._finishing or not self._leads():
            return None
        now = self._clock()
        try:
            plan = decide(self.world, now)
        except Exception as error:  # noqa: BLE001 - contained, or raised
            self.guard.caught(error, "pass", "nothing could be decided")
            return now + AGAIN_S  # /healthz says after a while that nothing moves
        self.world.apply(Planned(plan, now))
        self._tell(self._observer.passed, self.world, time.perf_counter() - began)
        for action in plan.actions:
            if not self.world.is_under_way(action):
                continue
            self._tell(self._observer.planned, action, now)
            task = tasks.create_task(self._perform(action))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        self._sound_alarms()
        self.passed = now
        return plan.wake_at

    def _tell(self, hear: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """What an observer cannot bear is no reason to stop."""
        try:
            hear(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - contained, or raised
            self.guard.caught(error, "observer", "metrics, traces and log")

    def _sound_alarms(self) -> None:
        alarms, self.world.alarms = self.world.alarms, []
        for alarm in alarms:
            self.guard.alarm(alarm)

    async def _perform(self, action: Action) -> None:
        ended = await self._executor.perform(action)
        if ended.outcome is Outcome.UNKNOWN:
            self._unknown_at = self._clock()
        self.emit(ended)

    async def _rest(self, wake_at: float | None) -> None:
        """Until there is news, or a time has come; at least every few seconds, so that standing still shows."""
        rest_s = HEARTBEAT_S if wake_at is None else min(HEARTBEAT_S, max(0.0, wake_at - self._clock()))
        try:
            async with asyncio.timeout(rest_s):
                await self._news.wait()
        except TimeoutError:
            pass  # the time has come: that is what was waited for
