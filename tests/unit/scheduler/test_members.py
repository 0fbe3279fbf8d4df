"""Which pods are members of a gang follows from its pods alone, whatever happened to them before (W5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from scheduler import names
from scheduler.apply import membership, pods
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.translate.grouping import SET_INDEX
from tests.builders import START, Story, pod

NOW = START + 30
SIZE = names.PREFIX + "gang-size"


def one(number: int, size: int) -> Pod:
    labels = {names.PREFIX + "gang": "ring", SET_INDEX: str(number % 7)}
    return pod(f"w-{number}", labels=labels, says={"gang-size": str(size)}, created=START + number)


def resized(each: Pod, size: int) -> Pod:
    return replace(each, annotations={**each.annotations, SIZE: str(size)})


CHANGES: dict[str, Callable[[Pod, Random], Pod]] = {
    "gated": lambda each, _: replace(each, gated=not each.node),
    "ungated": lambda each, _: replace(each, gated=False),
    "bound": lambda each, _: replace(each, node=each.node or "x1", gated=False),
    "succeeded": lambda each, _: replace(each, phase=PodPhase.SUCCEEDED, node=each.node or "x1"),
    "failed": lambda each, _: replace(each, phase=PodPhase.FAILED),
    "deleted with grace": lambda each, _: replace(each, deleting_at=NOW),
    "another rank": lambda each, random: replace(each, labels={**each.labels, SET_INDEX: str(random.randrange(9))}),
    "another size": lambda each, random: resized(each, random.choice([2, 3, 4])),
}
KINDS = [["gated", "ungated"], *([each] for each in CHANGES if "gated" not in each)]


def history(random: Random, changes: list[str], steps: int) -> Iterator[Pod | str]:
    """Pods of a gang come and change; a name alone: the pod is gone."""
    pods: dict[int, Pod] = {}
    size = random.choice([1, 2, 3, 4])
    for step in range(steps):
        what = random.choice(["comes", "comes", "goes", *changes])
        if what == "comes":
            pods[step] = one(step, size)
            yield pods[step]
        elif pods:
            number = random.choice(list(pods))
            if what == "goes":
                yield pods.pop(number).uid
            else:
                pods[number] = CHANGES[what](pods[number], random)
                yield pods[number]


def members_after_each(changes: Iterable[Pod | str]) -> Iterator[dict[str, tuple[int, list[str]]]]:
    """Workload to its size and members, after each change."""
    story = Story()
    last: dict[str, Pod] = {}
    for each in changes:
        if isinstance(each, Pod):
            last[each.uid] = each
            story.sees(each)
        else:
            story.loses(last[each], NOW)
        membership.settle_all(story.world)
        workloads = story.world.workloads.items()
        yield {key: (each.size, sorted(pod.uid for pod in each.members)) for key, each in workloads if each.members}


def test_a_pod_on_a_node_is_a_member_whatever_its_rank_and_the_last_of_the_others_is_not() -> None:
    story = Story()
    waiting = [one(0, 2), one(1, 2)]
    bound = replace(one(6, 2), node="x1", phase=PodPhase.RUNNING)
    story.sees(*waiting, bound)
    gang = story.world.workloads[story.world.key_of_pod[bound.uid]]
    assert {each.uid for each in gang.members} == {waiting[0].uid, bound.uid}


@pytest.mark.parametrize(
    ("before", "joins"),
    [
        ({"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "two"}}, True),
        ({"labels": {names.PREFIX + "gang": "ring"}, "says": {"gang-size": "two"}, "node": "x1"}, False),
        ({}, False),
    ],
    ids=["it was refused", "it was refused, and another client bound it", "it was a workload by itself"],
)
def test_a_pod_whose_labels_are_edited_joins_its_gang_only_if_it_was_refused_before(
    before: dict[str, Any], joins: bool
) -> None:
    story = Story()
    story.sees(pod("w-1", **before), one(0, 2))
    story.decides(NOW)
    story.sees(replace(one(1, 2), node=before.get("node", "")))
    workload = story.world.workloads[story.world.key_of_pod["uid-w-1"]]
    assert (workload.group is not None) is joins


@pytest.mark.parametrize("changes", KINDS, ids=lambda changes: changes[0])
@pytest.mark.parametrize("at_once", [64, 2], ids=["small", "large"])
def test_an_event_that_is_not_looked_into_changes_no_membership(
    monkeypatch: pytest.MonkeyPatch, at_once: int, changes: list[str]
) -> None:
    """Most events of a gang change none of its counts, and then its pods are not compared."""
    for seed in range(8):
        told = list(history(Random(seed), changes, 20))
        with monkeypatch.context() as patched:
            patched.setattr(membership, "SETTLED_AT_ONCE", at_once)
            found = list(members_after_each(told))
        with monkeypatch.context() as patched:
            patched.setattr(pods, "counts_the_same", lambda *_: False)
            patched.setattr(membership, "_takes_long", lambda *_: True)
            assert found == list(members_after_each(told)), seed
