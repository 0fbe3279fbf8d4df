"""The one loop: observe, decide, act; always in this order, at its own pace (ARCHITECTURE 1).

No event triggers an action directly.  Events wait in a queue.  In each pass the loop applies all queued events to the World,
decides once, and starts the actions of that plan.  So a plan is about the present facts, however many events came.
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
# Events that come within this time share one pass, because a pass without any visit costs as much as two visits.
PASS_EVERY_S = 0.005
AGAIN_S = 1.0  # pause after a pass in which an exception prevented every decision
# If a pass and the rest after it take this long, the process stood still: stopped by a signal, a frozen container, no CPU.
STOOD_STILL_S = 2 * HEARTBEAT_S
CATCH_UP_S = 1.0  # then what the clusters have sent meanwhile is read for this time, before anything is decided


class Observer(Protocol):
    """Receives what happens, for metrics, traces and logs.  It must not raise and must not take long."""

    def on_planned(self, action: Action, at: float) -> None:
        """An action was decided and is about to be performed."""
        ...

    def on_ended(self, event: ActionEnded, world: World) -> None:
        """An action ended; the event has not been applied to the world yet."""
        ...

    def on_observed(self, event: Event, world: World) -> None:
        """Something was observed; the event has not been applied to the world yet."""
        ...

    def on_passed(self, world: World, took_s: float, lag_s: float) -> None:
        """A pass is over.

        world    the facts of its decisions
        took_s   duration of the pass
        lag_s    how long the oldest event that the pass applied had waited in the queue; 0: it applied none
        """
        ...


class Loop:
    """Owns the World: no other code changes it.

    passed   when the last pass began to decide, by the loop's clock; if that is long ago, the process is not healthy
    guard    contains and reports the bridge's own errors
    leads    returns True if this replica may act; otherwise nothing is decided
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
        self._unknown_at = float("-inf")  # when the last action with an unknown outcome ended
        self.world = world
        self.guard = guard or Guard()
        self._executor = executor
        self._clock = clock
        self._observer = observer
        self._events: deque[Event] = deque()
        self._oldest_at = 0.0  # when the oldest event of the queue came, by time.perf_counter
        self._news = asyncio.Event()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._finishing = False
        self.passed = clock()

    def emit(self, event: Event) -> None:
        """Queue an event; may be called from any task of the same asyncio loop."""
        if not self._events:
            self._oldest_at = time.perf_counter()
        self._events.append(event)
        self._news.set()

    async def finish(self, within_s: float) -> int:
        """Start nothing new, wait up to `within_s` seconds for the calls in flight, and return how many have no answer yet.

        `run` goes on without deciding anything; it is cancelled next.  So the last answers are applied here: the observer
        counts each call, and a trace may end with it.
        """
        self._finishing = True
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=within_s)
        self._apply_queued()
        return len(self._in_flight)

    def is_drained(self) -> bool:
        """True if no request that this process or a previous one sent can take effect any more."""
        now, world = self._clock(), self.world
        is_settled = now >= self._unknown_at + world.config.tuning.settle_s
        return not self._in_flight and is_settled and now >= world.quiet_until()

    async def run(self) -> None:
        """Run passes.  Never returns.

        If the task of this call is cancelled, the actions in flight are cancelled, too.  The next process reads whether they
        took effect.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while True:
                began, next_at = self._clock(), loop.time() + PASS_EVERY_S
                wake_at = self._pass(tasks)
                await self._rest(wake_at)
                if (pause_s := next_at - loop.time()) > 0:
                    await asyncio.sleep(pause_s)
                if self._clock() - began > STOOD_STILL_S:
                    await asyncio.sleep(CATCH_UP_S)

    def _pass(self, tasks: asyncio.TaskGroup) -> float | None:
        began = time.perf_counter()
        lag_s = began - self._oldest_at if self._events else 0.0
        self._apply_queued()
        if self._finishing or not self._leads():
            return None  # the facts are kept up to date, and nothing is decided
        now = self._clock()
        try:
            plan = decide(self.world, now)
        except Exception as error:  # noqa: BLE001 - contained, or raised
            self.guard.caught(error, "pass", "nothing could be decided")
            return now + AGAIN_S  # `passed` stays as it is, so /healthz reports an exception that lasts
        self.world.apply(Planned(plan, now))
        self._notify(self._observer.on_passed, self.world, time.perf_counter() - began, lag_s)
        for action in plan.actions:
            if not self.world.is_under_way(action):
                continue
            self._notify(self._observer.on_planned, action, now)
            task = tasks.create_task(self._perform(action))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
        self._report_alarms()
        self.passed = now
        return plan.wake_at

    def _apply_queued(self) -> None:
        while self._events:
            event = self._events.popleft()
            if isinstance(event, ActionEnded):
                self._notify(self._observer.on_ended, event, self.world)
            else:
                self._notify(self._observer.on_observed, event, self.world)
            self.world.apply(event)
        self._news.clear()

    def _notify(self, hear: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call an observer; an exception that it raises is contained."""
        try:
            hear(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - contained, or raised
            self.guard.caught(error, "observer", "metrics, traces and log")

    def _report_alarms(self) -> None:
        alarms, self.world.alarms = self.world.alarms, []
        for alarm in alarms:
            self.guard.alarm(alarm)

    async def _perform(self, action: Action) -> None:
        ended = await self._executor.perform(action)
        if ended.outcome is Outcome.UNKNOWN:
            self._unknown_at = self._clock()
        self.emit(ended)

    async def _rest(self, wake_at: float | None) -> None:
        """Wait for an event or for *wake_at*, but for HEARTBEAT_S at most.

        So an idle loop is not taken for a loop that hangs.
        """
        rest_s = HEARTBEAT_S if wake_at is None else min(HEARTBEAT_S, max(0.0, wake_at - self._clock()))
        try:
            async with asyncio.timeout(rest_s):
                await self._news.wait()
        except TimeoutError:
            pass  # *wake_at* has come
