"""Who belongs to which workload follows from what pods show, not from when it is seen (W4, W5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from scheduler import names
from scheduler.apply import settling
from scheduler.events import PodDeleted, PodSeen, Scope
from scheduler.model.kubernetes import Pod, PodPhase
from tests.builders import START, Story, pod

SIZES = {"ring": 2, "mesh": 3}
NAMESPACES = ("hpc", "other")


@dataclass(frozen=True)
class Life:
    """What is seen of one pod, in this order.  gone: at last that it is no more."""

    shows: tuple[Pod, ...]
    gone: bool

    @property
    def events(self) -> list[PodSeen | PodDeleted]:
        seen: list[PodSeen | PodDeleted] = [PodSeen(Scope.OURS, each) for each in self.shows]
        return [*seen, PodDeleted(Scope.OURS, self.shows[-1], START + 5)] if self.gone else seen


@st.composite
def lives(draw: st.DrawFn) -> list[Life]:
    """Pods of few gangs, more than some gang needs, or fewer; gated at first, or with one succeeded pod at the end."""
    found = []
    for number in range(draw(st.integers(1, 8))):
        gang = draw(st.sampled_from(["", *SIZES]))
        namespace = draw(st.sampled_from(NAMESPACES))
        labels = {names.PREFIX + names.GANG: gang} if gang else {}
        says = {"gang-size": str(SIZES[gang])} if gang else {}
        first = pod(f"w-{number}", labels=labels, says=says, namespace=namespace, gated=draw(st.booleans()))
        shows = [first, replace(first, gated=False)]
        if draw(st.booleans()):
            shows.append(replace(first, gated=False, deleting_at=START + 4))
        found.append(Life(tuple(shows), draw(st.booleans())))
    return found


def told(story: Story, lives: list[Life], rng: Random) -> None:
    """All of it, each pod's own in its order, and these mixed in any way."""
    left = [life.events for life in lives]
    while any(left):
        story.sees(rng.choice([events for events in left if events]).pop(0))


def workloads(story: Story) -> dict[str, frozenset[str]]:
    """Names of the pods by workload; without those that are not of anything any more."""
    found = {key: frozenset(each.full_name for each in one.unfinished) for key, one in story.world.workloads.items()}
    return {key: pods for key, pods in found.items() if pods}


@given(lives(), st.randoms(use_true_random=False))
def test_the_same_news_in_another_order_makes_the_same_workloads(lives: list[Life], rng: Random) -> None:
    one, other = Story(), Story()
    told(one, lives, Random(0))
    told(other, lives, rng)
    assert workloads(one) == workloads(other)


@given(lives(), st.randoms(use_true_random=False))
def test_groups_that_are_settled_once_after_all_news_have_the_same_members(lives: list[Life], rng: Random) -> None:
    one, other = Story(), Story()
    told(one, lives, Random(0))
    with patch.multiple(settling, SETTLED_AT_ONCE=0, PODS_PER_NEWS=0):
        told(other, lives, rng)
        settling.settle_all(other.world)
    assert workloads(one) == workloads(other)


@given(lives(), st.randoms(use_true_random=False))
def test_no_gang_has_more_members_than_it_needs_and_every_pod_is_of_one_workload(
    lives: list[Life], rng: Random
) -> None:
    story = Story()
    told(story, lives, rng)
    members = [each.uid for one in story.world.workloads.values() for each in one.members]
    assert len(members) == len(set(members))
    for one in story.world.workloads.values():
        assert len(one.members) <= (SIZES[one.group.name] if one.group is not None else 1)
        assert len({each.namespace for each in one.unfinished}) <= 1


@given(st.permutations(range(4)), st.integers(0, 4))
def test_however_many_have_succeeded_the_gang_needs_the_remaining_pods(order: list[int], done: int) -> None:
    labels, says = {names.PREFIX + names.GANG: "quad"}, {"gang-size": "4"}
    pods = [pod(f"w-{number}", labels=labels, says=says) for number in range(4)]
    shown = [
        replace(each, node="x1", phase=PodPhase.SUCCEEDED) if number < done else each
        for number, each in enumerate(pods)
    ]
    story = Story()
    story.sees(*(shown[number] for number in order))
    [gang] = [one for one in story.world.workloads.values() if one.group is not None]
    assert gang.size == max(1, 4 - done)
