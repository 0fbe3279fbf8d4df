"""Gang labels and sizes as they should not be: a sentence where it is wrong, and no more work than other pods make."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, SetPodCondition, SubmitJob
from scheduler.apply import gang_size, surplus
from scheduler.events import OwnerRead
from scheduler.explain import explain
from scheduler.model.kubernetes import Owner, OwnerRef, Pod, PodTerm, Requirement
from scheduler.translate import grouping
from tests.builders import START, Story, node, pod

NOW = START + 10
GANG_SIZE = names.PREFIX + names.GANG_SIZE
RING = {names.PREFIX + names.GANG: "ring"}


def member(number: int, size: str | None = None, **fields: Any) -> Pod:
    says = {} if size is None else {"gang-size": size}
    return pod(f"w-{number}", labels={**RING, **fields.pop("labels", {})}, says=says | fields.pop("says", {}), **fields)


def calls_while(act: Any) -> int:
    """How many functions the scheduler has and calls meanwhile, those in C too: work that no busy machine changes.

    The marks by which SlipCover measures the coverage do not count: they are calls until they have been reached.
    """
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        is_call = event == "call" or (event == "c_call" and getattr(argument, "__module__", "") != "slipcover.probe")
        count += is_call and frame.f_globals.get("__name__", "").startswith("scheduler.")

    sys.setprofile(counted)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("size", [None, "10", "200", "10000"])
def test_a_gang_label_on_many_pods_costs_each_of_them_the_same(size: str | None) -> None:
    def seen(count: int) -> int:
        story, pods = Story(), [member(number, size) for number in range(count)]

        def all_seen() -> None:
            story.sees(*pods)
            story.decides(NOW)

        return calls_while(all_seen)

    assert seen(2_000) < 4.5 * seen(500)


def test_pods_beyond_what_a_gang_may_have_say_so_and_are_not_submitted_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (grouping, gang_size, surplus):
        monkeypatch.setattr(module, "MAX_SIZE", 3)
    story = Story()
    story.sees(*[member(number) for number in range(5)])
    acts = story.decides(NOW)
    assert not [each for each in acts if isinstance(each, AllocateNow | SubmitJob)]
    said = {each.name: each.message for each in acts if isinstance(each, SetPodCondition)}
    assert "does not show how many pods it has" in said["w-0"]
    assert said["w-3"] == said["w-4"]
    assert said["w-3"].startswith("More than 3 pods of namespace hpc are of gang ring, and they do not show its size")
    assert GANG_SIZE in said["w-3"]


def test_a_member_whose_size_is_mended_joins_the_others() -> None:
    story = Story()
    story.sees(member(0, "3"), member(1, "3"), member(2, "three"))
    acts = story.decides(NOW)
    assert not [each for each in acts if isinstance(each, AllocateNow | SubmitJob)]
    said = {each.name: each.message for each in acts if isinstance(each, SetPodCondition)}
    assert said["w-2"] == f"Annotation {GANG_SIZE}: 'three' is not a whole number from 1 to 10,000."
    assert said["w-0"].startswith("2 of 3 pods of gang ring are here in namespace hpc. Their job is submitted when ")
    story.sees(member(2, "3"))
    [asked] = [each for each in story.decides(NOW + 1) if isinstance(each, AllocateNow | SubmitJob)]
    assert asked.spec.tasks == 3


def test_a_member_without_a_size_among_members_with_one_is_named() -> None:
    story = Story()
    story.sees(member(0, "2"), member(1))
    assert {each.message for each in story.acts(SetPodCondition, NOW)} == {
        "The pods of gang ring do not agree on their number (w-0 says 2, w-1 says none): "
        f"give all of them the same annotation {GANG_SIZE}."
    }


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"says": {"time-limit": "5"}}, "must agree on time-limit (in minutes): w-0 has none, w-1 has 5"),
        ({"says": {"licenses": "matlab:2"}}, "must agree on licenses: w-0 has none, w-1 has matlab:2"),
    ],
)
def test_what_they_do_not_agree_on_is_called_as_users_call_it(odd: dict[str, Any], why: str) -> None:
    story = Story()
    story.sees(member(0, "2"), member(1, "2", **odd))
    assert all(why in each.message for each in story.acts(SetPodCondition, NOW))


def test_an_anti_affinity_that_leaves_too_few_nodes_is_reported_before_a_submission() -> None:
    apart = (PodTerm((Requirement("app", "In", ("ring",)),), frozenset({"hpc"})),)
    story = Story(nodes=(node("x1"), node("x2")))
    story.sees(*[member(number, "3", labels={"app": "ring"}, anti_affinity=apart) for number in range(3)])
    acts = story.decides(NOW)
    assert not [each for each in acts if isinstance(each, AllocateNow | SubmitJob)]
    assert {each.message for each in acts if isinstance(each, SetPodCondition)} == {
        "The pod anti-affinity requires a node of its own for each of 3 pods of hpc/ring, and only 2 nodes can run them."
    }


def test_fewer_nodes_at_most_than_the_anti_affinity_needs_is_reported_as_well() -> None:
    apart = (PodTerm((Requirement("app", "In", ("ring",)),), frozenset({"hpc"})),)
    story = Story(nodes=(node("x1"), node("x2")))
    one = {"max-nodes": "1"}
    story.sees(*[member(number, "2", labels={"app": "ring"}, says=one, anti_affinity=apart) for number in range(2)])
    assert {each.message for each in story.acts(SetPodCondition, NOW)} == {
        "The pod anti-affinity requires a node of its own for each of 2 pods of hpc/ring, and annotation "
        "slurm-bridge/max-nodes or the policy (max_nodes) allows 1."
    }


def test_a_controller_that_means_to_have_two_thousand_million_pods_is_refused_in_words_and_is_explained_at_once() -> (
    None
):
    """Kubernetes takes any parallelism of 32 bits; an explanation made that many jobs of one, and ran out of memory."""
    story, job = Story(), OwnerRef("batch/v1", "Job", "ring", "uid-ring")
    first = pod("w-0", labels={names.PREFIX + names.GANG: "job"}, owner=job)
    story.sees(first, OwnerRead(job, Owner(job, members=2**31 - 1), NOW - 1, "hpc"))
    why = "batch Job ring needs 2,147,483,647 pods, and a gang has at most 10,000."
    assert [each.message for each in story.acts(SetPodCondition, NOW)] == [why]
    assert why in explain(story.world, names.workload_key(f"job\0hpc\0ring\0{job.uid}"), NOW).sentence
    story.sees(OwnerRead(job, Owner(job, members=1), NOW + 40, "hpc"))
    assert [each.spec.tasks for each in story.acts(AllocateNow, NOW + 40)] == [1]


def test_a_gang_that_lacks_thousands_of_pods_is_explained_at_once() -> None:
    story = Story()
    story.sees(first := member(0, str(grouping.MAX_SIZE)))
    found = explain(story.world, story.world.key_of_pod[first.uid], NOW)
    assert found.spec is not None
    assert found.spec.tasks == grouping.MAX_SIZE


APART = (PodTerm((Requirement("app", "In", ("ring",)),), frozenset({"hpc"})),)


@pytest.mark.parametrize(
    ("terms", "pods_per_node", "most", "least"),
    [(APART, 110, 3, 0), (APART, 110, 2, 3), ((), 1, 3, 0), ((), 1, 2, 3), ((), 2, 2, 0), ((), 2, 1, 2)],
)
def test_a_gang_of_two_kinds_that_may_not_use_as_many_nodes_as_it_needs_is_refused_in_words(
    terms: tuple[PodTerm, ...], pods_per_node: int, most: int, least: int
) -> None:
    """Two pods of one kind are kept apart by their anti-affinity, or because a node takes one pod.  least: 0, not refused"""
    story = Story(nodes=[node(name, pods=pods_per_node) for name in ("x1", "x2", "x3", "x4")])
    says = {"max-nodes": str(most)}
    workers = [member(rank, "3", labels={"app": "ring"}, says=says, anti_affinity=terms) for rank in (1, 2)]
    story.sees(member(0, "3", cpu=2000, says=says), *workers)
    acts = story.decides(NOW)
    assert any(isinstance(each, AllocateNow | SubmitJob) for each in acts) is (least == 0)
    for said in (each.message for each in acts if isinstance(each, SetPodCondition)):
        assert f"gives each kind nodes of its own: at least {least} nodes in all." in said
        assert ("If some pods of a kind have anti-affinity" in said) is (least == 3)
