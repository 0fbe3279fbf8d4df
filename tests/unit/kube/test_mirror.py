"""A standby knows the events of its watches, and hands over exactly these."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bridge.kube.mirror import Mirror
from bridge.simulation.virtual_time import run
from scheduler import events as ev
from scheduler.events import Event, Scope, Side
from scheduler.model.kubernetes import Namespace, Undecoded
from tests.builders import node, pod

SYSTEM, HPC = Namespace("kube-system", "1"), Namespace("hpc", "2")


class Watches:
    """Watches by hand; on each start they list what `lists` says.  begun: how often they were started"""

    def __init__(self, emit: Callable[[Event], None], on_undecoded: Callable[[Undecoded], None]) -> None:
        self.emit = emit
        self.on_undecoded = on_undecoded
        self.lists: list[Event] = []
        self.begun = 0

    async def run(self) -> None:
        self.begun += 1
        for event in self.lists:
            await asyncio.sleep(0.1)
            self.emit(event)
        await asyncio.get_running_loop().create_future()


def mirror() -> tuple[Mirror, Watches]:
    made: list[Watches] = []

    def watches(emit: Callable[[Event], None], on_undecoded: Callable[[Undecoded], None]) -> Any:
        made.append(Watches(emit, on_undecoded))
        return made[0]

    return Mirror(watches), made[0]


def handed_over(told: Mirror) -> list[Event]:
    heard: list[Event] = []
    told.hand_over(heard.append, lambda _: None, 100.0, drained=False)
    return heard


def test_listed_objects_and_later_changes_are_handed_over_as_lists() -> None:
    made, watches = mirror()
    a, b, c = pod("a"), pod("b"), pod("c")
    for event in (
        ev.ClockObserved(Side.KUBERNETES, 90.0, 90.0, 90.1),
        ev.PodsListed(Scope.OURS, (a, b), 91.0),
        ev.PodsListed(Scope.OTHERS, (), 91.0),
        ev.NodesListed((node("x1"), node("x2")), 91.0),
        ev.NamespacesListed((SYSTEM,)),
        ev.PodSeen(Scope.OURS, c, 92.0),
        ev.PodDeleted(Scope.OURS, a, 93.0),
        ev.NodeDeleted("x1"),
        ev.NodeSeen(node("x3"), 94.0),
        ev.NamespaceSeen(HPC),
        ev.NamespaceDeleted("hpc"),
    ):
        watches.emit(event)
    assert made.missing() == []
    assert handed_over(made) == [
        ev.ClockObserved(Side.KUBERNETES, 90.0, 90.0, 90.1),
        ev.NamespacesListed((SYSTEM,)),
        ev.NodesListed((node("x2"), node("x3")), 100.0),
        ev.PodsListed(Scope.OURS, (b, c), 100.0, inherited=True),
        ev.PodsListed(Scope.OTHERS, (), 100.0, inherited=True),
    ]


def test_lists_that_have_not_arrived_are_reported_as_missing_and_not_handed_over() -> None:
    made, _ = mirror()
    assert len(made.missing()) == 4
    assert handed_over(made) == []


def test_a_pod_that_cannot_be_decoded_is_handed_over_in_its_last_known_state_and_as_undecoded() -> None:
    made, watches = mirror()
    spoiled = Undecoded("pod", "hpc", "a", pod("a").uid, "its labels are no mapping")
    watches.emit(ev.PodsListed(Scope.OURS, (pod("a"),), 91.0))
    watches.emit(ev.PodsListed(Scope.OURS, (), 92.0, (spoiled,)))
    assert handed_over(made) == [
        ev.PodsListed(Scope.OURS, (pod("a"),), 100.0, inherited=True),
        ev.ObjectUndecoded(spoiled, Scope.OURS),
    ]


def test_an_object_that_can_be_decoded_again_is_handed_over_like_any_other() -> None:
    made, watches = mirror()
    spoiled = Undecoded("pod", "hpc", "a", pod("a").uid, "its labels are no mapping")
    watches.emit(ev.PodsListed(Scope.OURS, (), 91.0))
    watches.emit(ev.ObjectUndecoded(spoiled, Scope.OURS))
    watches.emit(ev.PodSeen(Scope.OURS, pod("a"), 92.0))
    assert handed_over(made) == [ev.PodsListed(Scope.OURS, (pod("a"),), 100.0, inherited=True)]


def test_that_kubernetes_does_not_answer_is_handed_over_last() -> None:
    made, watches = mirror()
    outage = ev.OutageBegan(Side.KUBERNETES, 95.0, "closed")
    watches.emit(outage)
    watches.emit(ev.PodsListed(Scope.OURS, (), 91.0))
    assert handed_over(made)[-1] == made.outage == outage
    watches.emit(ev.OutageEnded(Side.KUBERNETES, 96.0))
    assert made.outage is None


def test_after_the_handover_each_event_is_passed_on_at_once() -> None:
    made, watches = mirror()
    heard: list[Event] = []
    spoiled: list[Undecoded] = []
    made.hand_over(heard.append, spoiled.append, 100.0, drained=False)
    watches.emit(ev.PodSeen(Scope.OURS, pod("a"), 101.0))
    watches.on_undecoded(Undecoded("pod", "", "", "", "why"))
    assert heard == [ev.PodSeen(Scope.OURS, pod("a"), 101.0)]
    assert len(spoiled) == 1


def test_after_a_clean_stop_all_is_listed_again_and_then_nothing_of_an_earlier_life_is_waited_for() -> None:
    async def story() -> list[Event]:
        made, watches = mirror()
        lists = [ev.PodsListed(Scope.OURS, (pod("a"),), 91.0), ev.PodsListed(Scope.OTHERS, (), 91.0)]
        watches.lists = list(lists)
        task = asyncio.create_task(made.run())
        await asyncio.sleep(1)
        heard: list[Event] = []
        made.hand_over(heard.append, lambda _: None, 100.0, drained=True)
        watches.emit(ev.PodsListed(Scope.OURS, (), 92.0))  # of a list that began before
        watches.emit(ev.PodsListed(Scope.OTHERS, (), 92.0))
        assert not any(isinstance(each, ev.PredecessorDrained) for each in heard)
        await asyncio.sleep(1)
        assert watches.begun == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return heard

    heard = run(story())
    assert heard[-1] == ev.PredecessorDrained(91.0)
    assert sum(isinstance(each, ev.PredecessorDrained) for each in heard) == 1


def test_after_a_crash_all_is_listed_again_too_and_only_lists_asked_for_since_then_are_of_now() -> None:
    async def story() -> list[Event]:
        made, watches = mirror()
        watches.lists = [ev.PodsListed(Scope.OURS, (pod("a"),), 91.0)]
        task = asyncio.create_task(made.run())
        await asyncio.sleep(1)
        heard: list[Event] = []
        made.hand_over(heard.append, lambda _: None, 100.0, drained=False)
        watches.emit(ev.PodsListed(Scope.OURS, (), 92.0))  # of a list that began before
        await asyncio.sleep(1)
        assert watches.begun == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return heard

    assert run(story()) == [
        ev.PodsListed(Scope.OURS, (pod("a"),), 100.0, inherited=True),
        ev.PodsListed(Scope.OURS, (), 92.0, inherited=True),
        ev.PodsListed(Scope.OURS, (pod("a"),), 91.0),
    ]
