"""A group's name comes again: its pods that ended count only together with others of their run (W5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from scheduler.actions import AllocateNow, BindPod, SetPodCondition, SubmitJob
from scheduler.events import OwnerRead
from scheduler.model.kubernetes import Owner, OwnerRef, Pod, PodPhase
from scheduler.translate.grouping import JOBSET, JOBSET_ATTEMPT, KUEUE_GROUP, KUEUE_SIZE
from tests.builders import START, Story, pod
from tests.unit.scheduler.test_gangs import member, runs

NOW = START + 10
NIGHT_S = 86_400.0
Make = Callable[[str, int, float], Pod]


def job(run: str) -> OwnerRef:
    return OwnerRef("batch/v1", "Job", f"nightly-{run}", f"uid-job-{run}")


def of_a_cron_job(run: str, number: int, at: float) -> Pod:
    """Each run is a batch Job of its own, and all carry the label of the template."""
    made = member(number, 3, gang="nightly", owner=job(run), created=at)
    return replace(made, uid=f"{run}-{number}", name=f"nightly-{run}-{number}")


def by_hand(run: str, number: int, at: float) -> Pod:
    return replace(member(number, 3, gang="nightly", created=at), uid=f"{run}-{number}", name=f"{run}-{number}")


def own_annotation(story: Story, *runs: str, at: float = NOW) -> Story:
    """Nothing is to be known of those Jobs, which are read then."""
    story.sees(*(OwnerRead(job(run), None, at, "hpc") for run in runs))
    return story


def requests(story: Story, at: float) -> list[tuple[str, int]]:
    """What is asked of Slurm: names, and how many tasks."""
    asked = [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]
    return [(each.spec.name.partition("~")[0], each.spec.tasks) for each in asked]


def one_night(story: Story, pods: Sequence[Pod], ends: Sequence[PodPhase], at: float = NOW) -> list[Pod]:
    """The gang runs as job 17 and ends with these phases, and its job ends with it; its pods are kept, and get a status."""
    shown = runs(story, list(pods), ("x1", len(pods)), at=at)
    kept = [replace(each, phase=phase) for each, phase in zip(shown, ends, strict=True)]
    story.sees(*kept)
    for action in story.decides(at + 5):
        story.ended(action, at=at + 5)
    story.polls({17: "CANCELLED"}, at=at + 6)
    return kept


SUCCEEDED = (PodPhase.SUCCEEDED,) * 3
MIXED = (PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.SUCCEEDED)


@pytest.mark.parametrize("ends", [SUCCEEDED, MIXED], ids=["well", "one failed"])
@pytest.mark.parametrize("make", [of_a_cron_job, by_hand])
def test_the_finished_pods_of_last_nights_run_do_not_split_tonights_gang(make: Make, ends: Sequence[PodPhase]) -> None:
    story = own_annotation(Story(), "first")
    one_night(story, [make("first", number, NOW) for number in range(3)], ends)
    tonight = NOW + NIGHT_S
    own_annotation(story, "second", at=tonight)
    story.polls({}, at=tonight)
    *early, last = [make("second", number, tonight) for number in range(3)]
    for each in early:
        story.sees(each)
        assert requests(story, tonight + 1) == [], "it waits for all three"
    story.sees(last)
    assert requests(story, tonight + 2) == [("hpc/nightly", 3)]


@pytest.mark.parametrize("make", [of_a_cron_job, by_hand])
def test_finished_pods_of_an_earlier_run_do_not_split_a_gang_after_a_restart(make: Make) -> None:
    first = own_annotation(Story(), "first")
    kept = one_night(first, [make("first", number, NOW) for number in range(3)], SUCCEEDED)
    story = own_annotation(Story(), "first", "second", at=NOW + NIGHT_S)
    story.sees(*kept, make("second", 0, NOW + NIGHT_S))
    assert requests(story, NOW + NIGHT_S) == []
    story.sees(*(make("second", number, NOW + NIGHT_S) for number in (1, 2)))
    assert requests(story, NOW + NIGHT_S) == [("hpc/nightly", 3)]


def test_a_gang_of_another_size_than_the_finished_one_of_its_name_agrees_with_itself() -> None:
    story = Story()
    old = [member(number, 2, gang="train", phase=PodPhase.FAILED, node="x1") for number in range(2)]
    story.sees(*(replace(each, uid=f"old-{each.name}", name=f"old-{each.name}") for each in old))
    story.sees(*(member(number, 3, gang="train") for number in range(3)))
    assert requests(story, NOW) == [("hpc/train", 3)]


def test_members_that_are_being_deleted_have_no_say_in_the_size_either() -> None:
    """A rolling update creates a group again in another size, while the last pods of the former group terminate."""
    story = Story()
    shown = runs(story, [member(number, 2) for number in range(2)], ("x1", 2))
    story.sees(*(replace(each, deleting_at=NOW + 30) for each in shown))
    new = [replace(member(number, 3), uid=f"new-{number}") for number in range(3)]
    story.sees(*new)
    assert not [each for each in story.acts(SetPodCondition, NOW + 60) if "do not agree" in each.message]


# --- one run --------------------------------------------------------------------------------------------------------


def test_a_batch_job_recreates_its_pods_except_those_that_succeeded() -> None:
    """Its job is preempted when one of three has succeeded: the same Job replaces the other two."""
    story = own_annotation(Story(), "a")
    shown = runs(story, [of_a_cron_job("a", number, NOW) for number in range(3)], ("x1", 3))
    story.sees(replace(shown[0], phase=PodPhase.SUCCEEDED))
    story.polls({17: "PREEMPTED"}, at=NOW + 5)
    for each in shown[1:]:
        story.loses(each, NOW + 6)
    story.sees(replace(of_a_cron_job("a", 1, NOW + 7), uid="again-1"))
    assert requests(story, NOW + 20) == []
    story.sees(replace(of_a_cron_job("a", 2, NOW + 7), uid="again-2"))
    assert requests(story, NOW + 40) == [("hpc/nightly", 2)]


@pytest.mark.parametrize("make", [of_a_cron_job, by_hand])
def test_a_replacement_takes_the_freed_place_though_another_member_has_succeeded(make: Make) -> None:
    story = own_annotation(Story(), "a")
    shown = runs(story, [make("a", number, NOW) for number in range(3)], ("x1", 3))
    story.sees(replace(shown[0], phase=PodPhase.SUCCEEDED))
    story.loses(replace(shown[1], phase=PodPhase.FAILED), NOW + 5)
    story.sees(replace(make("a", 1, NOW + 6), uid="again"))
    [bind] = story.acts(BindPod, NOW + 7)
    assert (bind.uid, bind.job_id) == ("again", 17)


def test_a_job_set_that_starts_again_needs_all_of_its_pods_again() -> None:
    """What succeeded in the attempt before is still there while the first pods of the next attempt come."""
    ref = OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "train", "uid-jobset")
    batch = OwnerRef("batch/v1", "Job", "train-w-0", "uid-batch")
    story = Story()
    story.sees(OwnerRead(batch, Owner(batch, owner=ref), NOW, "hpc"), OwnerRead(ref, Owner(ref, members=3), NOW, "hpc"))

    def made(number: int, attempt: int) -> Pod:
        labels = {JOBSET: "train", JOBSET_ATTEMPT: str(attempt)}
        return pod(f"w-{number}", uid=f"{attempt}-{number}", labels=labels, owner=batch)

    one_night(story, [made(number, 0) for number in range(3)], MIXED)
    story.sees(made(0, 1))
    assert requests(story, NOW + 60) == []
    story.sees(made(1, 1), made(2, 1))
    assert requests(story, NOW + 60) == [("hpc/train", 3)]


def kueue(number: int, run: str = "a", **fields: Any) -> Pod:
    made = pod(f"{run}-{number}", labels={KUEUE_GROUP: "g"}, **fields)
    return replace(made, annotations={**made.annotations, KUEUE_SIZE: "3"})


def test_failed_pods_of_a_kueue_group_are_replaced_and_succeeded_pods_are_not() -> None:
    """Kueue counts so, too: one name is one group until all of its pods are gone."""
    story = Story()
    one_night(story, [kueue(number) for number in range(3)], (PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.FAILED))
    story.sees(kueue(1, "b"))
    assert requests(story, NOW + 60) == []
    story.sees(kueue(2, "b"))
    assert requests(story, NOW + 60) == [("hpc/g", 2)]


def test_a_kueue_group_all_of_whose_pods_succeeded_is_over_and_another_of_its_name_is_whole() -> None:
    story = Story()
    one_night(story, [kueue(number) for number in range(3)], SUCCEEDED)
    story.sees(kueue(0, "b"), kueue(1, "b"))
    assert requests(story, NOW + 60) == []
    story.sees(kueue(2, "b"))
    assert requests(story, NOW + 60) == [("hpc/g", 3)]
