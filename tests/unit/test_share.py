"""Requests take turns, and together take a share of the loop's time, however much each answer costs."""

from __future__ import annotations

import asyncio

import pytest

from bridge.share import MOST_WAIT, Busy, Share
from scheduler.events import PodSeen, PodsListed, Scope
from scheduler.model.kubernetes import Pod, PodTerm, Requirement
from scheduler.state.world import World
from tests.builders import CONFIG, START, Story, node, pod
from tests.unit.test_health import get, health


class Time:
    """A clock that work and sleep move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.worked = 0.0

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.worked += seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.now += seconds


async def test_answers_take_no_more_than_their_share_however_many_ask() -> None:
    time = Time()
    share = Share(0.1, lambda: time.now, time.sleep)

    async def asks(costs_s: float) -> None:
        for _ in range(5):
            async with share.turn():
                time.work(costs_s)

    await asyncio.gather(*(asks(cost) for cost in (0.005, 0.3, 0.02)))
    assert time.worked == pytest.approx(5 * 0.325)
    assert time.worked / time.now <= 0.11


async def test_the_first_does_not_wait() -> None:
    time = Time()
    async with Share(0.1, lambda: time.now, time.sleep).turn():
        assert time.now == 0.0


async def test_who_comes_when_many_wait_is_asked_to_come_again() -> None:
    time = Time()
    share, release = Share(0.1, lambda: time.now, time.sleep), asyncio.Event()

    async def asks() -> None:
        async with share.turn():
            await release.wait()

    waiting = [asyncio.create_task(asks()) for _ in range(MOST_WAIT)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        async with share.turn():
            pass
    release.set()
    await asyncio.gather(*waiting)
    async with share.turn():
        pass


async def test_a_turn_that_fails_gives_the_next_its_own() -> None:
    time = Time()
    share = Share(0.1, lambda: time.now, time.sleep)
    with pytest.raises(KeyError):
        async with share.turn():
            raise KeyError
    async with share.turn():
        pass


def crowded() -> World:
    """A pod that waits, and ten thousand terms of others that have to be compared with it."""
    story = Story(CONFIG, [node("x1")])
    everybody = frozenset({"hpc"})
    shy = tuple(PodTerm((Requirement("app", "NotIn", ("train", str(n))),), everybody) for n in range(10_000))
    story.sees(PodSeen(Scope.OTHERS, Pod("shy", "grey", "shy", node="x1", anti_affinity=shy)))
    story.sees(PodsListed(Scope.OURS, (pod(labels={"app": "train"}),), START))
    return story.world


async def test_an_explanation_that_compares_much_lets_the_loop_turn_in_between() -> None:
    world, done = crowded(), asyncio.Event()

    async def turn() -> int:
        turns = 0
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)
        return turns

    turning = asyncio.create_task(turn())
    await asyncio.sleep(0)
    await health(world)._prepare("hpc", "train")
    done.set()
    turns = await turning
    assert turns >= 2
    assert (await get(health(world), "/explain?namespace=hpc&pod=train"))[0] == 200


async def test_many_at_once_are_asked_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.share.MOST_WAIT", 0)
    for path in ("/explain?namespace=hpc&pod=train", "/metrics"):
        assert (await get(health(), path))[:2] == (429, "Too many requests at once; try again in a second.\n")
