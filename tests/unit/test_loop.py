"""Observe, decide, act; at its own pace, and whatever comes between (ARCHITECTURE 1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import bridge.loop
from bridge.guard import Guard
from bridge.loop import HEARTBEAT_S, PASS_EVERY_S, Loop
from bridge.simulation.virtual_time import run
from scheduler.actions import Action, AllocateNow, BindPod, Outcome, Plan, SubmitJob
from scheduler.decide import decide
from scheduler.events import ActionEnded, Event, PodDeleted, PodSeen, Scope
from scheduler.state.world import World
from tests.builders import Story, grant, key_of, pod

TRAIN, OTHER = pod("train"), pod("other")


class Performer:
    """A server that grants node x1 to each request."""

    def __init__(self, takes_s: float = 0.01) -> None:
        self.takes_s = takes_s
        self.performed: list[Action] = []

    async def perform(self, action: Action) -> ActionEnded:
        self.performed.append(action)
        await asyncio.sleep(self.takes_s)
        at = asyncio.get_running_loop().time()
        if isinstance(action, AllocateNow):
            return ActionEnded(action, Outcome.DONE, at, at, job_id=17, grant=grant(17))
        return ActionEnded(action, Outcome.DONE, at, at)


class Listener:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_planned(self, action: Action, at: float) -> None:
        self.heard.append(("planned", type(action)))

    def on_ended(self, event: ActionEnded, world: World) -> None:
        self.heard.append(("ended", type(event.action)))

    def on_observed(self, event: Event, world: World) -> None:
        self.heard.append(("seen", type(event)))

    def on_passed(self, world: World, took_s: float, lag_s: float) -> None:
        """A pass is over."""


def live(
    play: Callable[[Loop, Performer], Any], performer: Performer | None = None
) -> tuple[Loop, Performer, Listener]:
    """A loop on virtual time while the play is played."""
    performer, listener = performer or Performer(), Listener()
    story = Story()

    async def life() -> Loop:
        clock = asyncio.get_running_loop().time
        loop = Loop(story.world, performer, clock, listener)
        task = asyncio.create_task(loop.run())
        try:
            await play(loop, performer)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return loop

    return run(life()), performer, listener


def test_a_pod_is_asked_for_and_bound_without_waiting_for_a_clock() -> None:
    async def play(loop: Loop, performer: Performer) -> None:
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        await asyncio.sleep(0.1)
        assert [type(each) for each in performer.performed] == [AllocateNow, BindPod]

    _, _, listener = live(play)
    assert listener.heard == [
        ("seen", PodSeen),
        ("planned", AllocateNow),
        ("ended", AllocateNow),
        ("planned", BindPod),
        ("ended", BindPod),
    ]


def test_the_decision_is_about_the_facts_as_they_are_now() -> None:
    async def play(loop: Loop, performer: Performer) -> None:
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        loop.emit(PodDeleted(Scope.OURS, TRAIN, 0.0))
        await asyncio.sleep(1)
        assert performer.performed == []

    live(play)


def test_a_slow_server_delays_no_other_connection() -> None:
    async def play(loop: Loop, performer: Performer) -> None:
        for number in range(5):
            loop.emit(PodSeen(Scope.OURS, pod(f"p{number}")))
            await asyncio.sleep(0.2)
        assert len(performer.performed) == 5  # the first alone for half a second, as it may find room for all

    live(play, Performer(takes_s=100.0))


def test_it_wakes_by_itself_when_a_time_has_come() -> None:
    """A refused try is repeated after its pause, though nothing happens."""

    class Refusing(Performer):
        async def perform(self, action: Action) -> ActionEnded:
            self.performed.append(action)
            at = asyncio.get_running_loop().time()
            return ActionEnded(action, Outcome.UNREACHED, at, at)

    async def play(loop: Loop, performer: Performer) -> None:
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        await asyncio.sleep(7.5)  # at 0, 1, 3 and 7
        assert len(performer.performed) == 4

    live(play, Refusing())


def test_a_loop_without_news_still_turns() -> None:
    async def play(loop: Loop, performer: Performer) -> None:
        await asyncio.sleep(10 * HEARTBEAT_S)
        assert asyncio.get_running_loop().time() - loop.passed <= HEARTBEAT_S

    live(play)


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_process_that_stood_still_reads_what_happened_meanwhile_before_it_decides(is_busy: bool) -> None:
    """After a SIGSTOP of a minute, what the bridge knows is a minute old, and the news are still to be read.

    is_busy   it stands still in the pause between two passes, where a loop with many events is most of the time
    """
    performer, stopped_s = Performer(), 0.0

    async def life() -> None:
        clock = asyncio.get_running_loop().time
        loop = Loop(Story().world, performer, lambda: clock() + stopped_s, Listener())
        task = asyncio.create_task(loop.run())
        await asyncio.sleep(HEARTBEAT_S / 2)
        for _ in range(2 if is_busy else 0):
            loop.emit(PodDeleted(Scope.OURS, TRAIN, 0.0))
            await asyncio.sleep(PASS_EVERY_S / 5)
        await stands_still(loop)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def stands_still(loop: Loop) -> None:
        nonlocal stopped_s
        stopped_s = 60.0
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        await asyncio.sleep(0.5)
        loop.emit(PodDeleted(Scope.OURS, TRAIN, 0.0))
        loop.emit(PodSeen(Scope.OURS, OTHER))
        await asyncio.sleep(1)
        assert {action.key for action in performer.performed if isinstance(action, AllocateNow)} == {key_of(OTHER)}

    run(life())


def test_stopping_it_stops_what_is_under_way() -> None:
    async def play(loop: Loop, performer: Performer) -> None:
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        await asyncio.sleep(1)

    loop, _, listener = live(play, Performer(takes_s=100.0))
    assert ("ended", AllocateNow) not in listener.heard
    assert loop.world.under_way["submits"] == 1


class Deaf(Listener):
    """It raises the exception that the test sets."""

    def on_planned(self, action: Action, at: float) -> None:
        raise ZeroDivisionError

    def on_observed(self, event: Event, world: World) -> None:
        raise ZeroDivisionError

    def on_ended(self, event: ActionEnded, world: World) -> None:
        raise ZeroDivisionError

    def on_passed(self, world: World, took_s: float, lag_s: float) -> None:
        raise ZeroDivisionError


def test_where_errors_are_contained_an_observer_stops_nothing() -> None:
    performer, guard = Performer(), Guard(on=True)

    async def life() -> None:
        clock = asyncio.get_running_loop().time
        loop = Loop(Story(guarded=True).world, performer, clock, Deaf(), guard)
        task = asyncio.create_task(loop.run())
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        await asyncio.sleep(1)
        task.cancel()

    run(life())
    assert [type(each) for each in performer.performed] == [AllocateNow, BindPod]
    assert set(guard.contained) == {"observer"}


def test_where_errors_are_contained_a_pass_that_cannot_decide_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [True]

    def failing_at_first(world: World, now: float) -> Plan:
        if broken:
            raise ZeroDivisionError
        return decide(world, now)

    monkeypatch.setattr(bridge.loop, "decide", failing_at_first)
    performer, guard = Performer(), Guard(on=True)

    async def life() -> None:
        clock = asyncio.get_running_loop().time
        loop = Loop(Story(guarded=True).world, performer, clock, Listener(), guard)
        task = asyncio.create_task(loop.run())
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        await asyncio.sleep(20)
        assert clock() - loop.passed >= 20  # /healthz says that nothing moves
        broken.clear()
        await asyncio.sleep(2)
        task.cancel()

    run(life())
    assert [type(each) for each in performer.performed] == [AllocateNow, BindPod]
    assert guard.contained["pass"] >= 10


def test_our_own_mistake_ends_it() -> None:
    class Broken(Performer):
        async def perform(self, action: Action) -> ActionEnded:
            raise AssertionError("impossible")

    async def life() -> None:
        loop = Loop(Story().world, Broken(), asyncio.get_running_loop().time, Listener())
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        await loop.run()

    with pytest.raises(ExceptionGroup) as caught:
        run(life())
    assert caught.group_contains(AssertionError, match="impossible")


@pytest.mark.parametrize(("takes_s", "waits_s", "left"), [(1.5, 1.4, 0), (10.0, 2.0, 1)])
def test_when_it_is_to_end_calls_under_way_get_two_seconds_and_nothing_new_begins(
    takes_s: float, waits_s: float, left: int
) -> None:
    async def play(loop: Loop, performer: Performer) -> None:
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        assert await loop.finish(2.0) == left
        assert asyncio.get_running_loop().time() - began == pytest.approx(waits_s)
        loop.emit(PodSeen(Scope.OURS, pod("other")))
        await asyncio.sleep(1.0)
        assert [type(each) for each in performer.performed] == [AllocateNow], "the grant is bound by the next process"

    live(play, Performer(takes_s))


def test_the_last_answers_before_the_process_stops_are_observed_and_applied() -> None:
    class AlmostTogether(Performer):
        async def perform(self, action: Action) -> ActionEnded:
            self.performed.append(action)
            job_id, clock = 16 + len(self.performed), asyncio.get_running_loop().time
            await answer.wait()
            await asyncio.sleep(0.001 * job_id)
            return ActionEnded(action, Outcome.DONE, clock(), clock(), job_id=job_id, grant=grant(job_id))

    async def play(loop: Loop, performer: Performer) -> None:
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        loop.emit(PodSeen(Scope.OURS, OTHER))
        await asyncio.sleep(1.0)
        asyncio.get_running_loop().call_later(0.5, answer.set)
        assert [type(each) for each in performer.performed] == [AllocateNow, SubmitJob]
        assert await loop.finish(2.0) == 0  # then the task of the loop is cancelled at once

    answer = asyncio.Event()
    loop, _, listener = live(play, AlmostTogether())
    assert listener.heard[-2:] == [("ended", AllocateNow), ("ended", SubmitJob)]
    assert {loop.world.workloads[key_of(each)].hint for each in (TRAIN, OTHER)} == {17, 18}


def test_nothing_is_left_behind_once_calls_are_answered_the_unknown_is_settled_and_the_quiet_period_over() -> None:
    class Unknown(Performer):
        async def perform(self, action: Action) -> ActionEnded:
            await asyncio.sleep(1)
            at = asyncio.get_running_loop().time()
            return ActionEnded(action, Outcome.UNKNOWN, at, at)

    async def play(loop: Loop, performer: Performer) -> None:
        quiet_s, settle_s = loop.world.config.tuning.quiet_s, loop.world.config.tuning.settle_s
        loop.world.started = asyncio.get_running_loop().time()
        assert not loop.is_drained(), "requests of the previous process may still take effect"
        await asyncio.sleep(quiet_s + 0.1)
        assert loop.is_drained()
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        await asyncio.sleep(0.5)
        assert not loop.is_drained(), "a call is under way"
        await loop.finish(5)
        assert not loop.is_drained(), "nobody knows whether it happened, or will"
        await asyncio.sleep(settle_s + 0.1)
        assert loop.is_drained()

    live(play, Unknown())


def test_a_replica_that_does_not_lead_decides_nothing() -> None:
    async def life() -> list[Action]:
        performer, story = Performer(), Story()
        clock = asyncio.get_running_loop().time
        loop = Loop(story.world, performer, clock, Listener(), leads=lambda: False)
        task = asyncio.create_task(loop.run())
        loop.emit(PodSeen(Scope.OURS, TRAIN))
        await asyncio.sleep(10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return performer.performed

    assert run(life()) == []
