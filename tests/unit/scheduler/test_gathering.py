"""What pods of a gang show and what is read while other pods of the gang are missing (W2, W5, W6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, CancelJob, Outcome, ReadOwner, SetPodCondition, SubmitJob
from scheduler.decide import decide
from scheduler.events import ClockObserved, OwnerRead, Side
from scheduler.explain import explain
from scheduler.model.kubernetes import Owner, OwnerRef, Pod
from scheduler.model.slurm import Job
from scheduler.state.phase import Phase
from scheduler.translate.grouping import GANG_SIZE, MAX_SIZE
from tests.builders import CONFIG, OWNER, START, Story, pod
from tests.unit.scheduler.test_gangs import JOB, asks, granted, member, ring
from tests.unit.scheduler.test_stages import FIRST, SET, read

NOW = START + 10
OF_JOB = {"labels": {names.PREFIX + names.GANG: "job"}, "owner": JOB}


def shown(story: Story, at: float) -> set[str]:
    return {each.message for each in story.acts(SetPodCondition, at)}


def of_job(*sizes: int | None) -> list[Pod]:
    """Pods of a Job, with these sizes in their annotations."""
    return [
        pod(f"w-{number}", says={} if size is None else {"gang-size": str(size)}, **OF_JOB)
        for number, size in enumerate(sizes)
    ]


# --- a member left -------------------------------------------------------------------------------------------------------


def test_a_gang_that_lost_a_member_shows_until_when_its_job_waits_for_another_one() -> None:
    pods, story = ring(3), Story()
    story.sees(*pods)
    story.ended(asks(story), at=NOW, job_id=17, grant=granted(17, ("x1", 3)))
    story.loses(pods[2], NOW)
    assert shown(story, NOW + 2.9) == set()
    told = "2 of 3 pods of gang ring are here in namespace hpc. Slurm job 17 is kept for them until 00:17:20 UTC."
    assert {(each.message, each.warning) for each in story.acts(SetPodCondition, NOW + 3)} == {(told, False)}
    assert shown(story, NOW + 29) == set()
    assert [each.job_id for each in story.acts(CancelJob, NOW + 30)] == [17]


def after_a_restart() -> tuple[Story, ReadOwner]:
    """Job 17 of two pods waits, which a previous process submitted.  Also the read of the owner that shows their number."""
    pods = of_job(None, None)
    before = Story()
    before.sees(*pods)
    [read] = before.acts(ReadOwner, NOW)
    before.sees(OwnerRead(JOB, Owner(JOB, members=2), NOW, "hpc"))
    before.ended(read, at=NOW)
    [asked] = before.acts(AllocateNow, NOW)
    story = Story(pods=pods)
    story.polls({17: "PENDING"}, at=NOW)
    story.reads(Job(17, asked.spec.name, "alice", frozenset({"PENDING"}), partition="main", reason="Priority"), at=NOW)
    [read] = story.acts(ReadOwner, NOW)
    return story, read


def test_after_a_restart_the_job_of_a_gang_waits_on_if_only_its_owner_shows_the_size() -> None:
    story, read = after_a_restart()
    assert story.acts(CancelJob, NOW + 60) == [], "its owner was not read yet"
    story.sees(OwnerRead(JOB, Owner(JOB, members=2), NOW + 60, "hpc"))
    story.ended(read, at=NOW + 60)
    assert story.acts(CancelJob, NOW + 60) == []
    assert len(story.world.by_phase[Phase.QUEUED]) == 1


def test_after_a_restart_the_job_of_a_gang_ends_if_its_owner_shows_no_size() -> None:
    story, read = after_a_restart()
    story.sees(OwnerRead(JOB, Owner(JOB), NOW + 1, "hpc"))
    story.ended(read, at=NOW + 1)
    assert story.acts(CancelJob, NOW + 10) == []
    [cancel] = story.acts(CancelJob, NOW + 60)
    assert cancel.reason == "it is not known how many pods hpc/train has"


# --- sizes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [None, OWNER], ids=["", "their owner is not read yet"])
def test_pods_that_name_different_sizes_show_that_at_once(owner: OwnerRef | None) -> None:
    story = Story()
    story.sees(member(0, 4, owner=owner), member(1, 5, owner=owner))
    [message] = shown(story, START + 1.5)
    assert "do not agree on their number (w-0 says 4, w-1 says 5)" in message


def test_a_pod_that_is_being_deleted_has_no_say_in_the_size() -> None:
    story = Story()
    leaving = member(0, 6, deleting_at=NOW + 100)
    story.sees(leaving, member(1, 4), member(2, 5), replace(member(3, 7), gated=True))
    [message] = shown(story, NOW)
    assert "(w-1 says 4, w-2 says 5, w-3 says 7)" in message


def test_pods_of_a_job_set_that_name_different_sizes_show_that_once_it_is_known_that_they_start_together() -> None:
    """A JobSet may make its pods in stages, and the pods of each stage are a gang of their own."""
    story = Story()
    story.sees(*(replace(each, annotations={GANG_SIZE: size}) for each, size in zip(FIRST, "34", strict=True)))
    assert {type(each) for each in decide(story.world, NOW).actions} == {ReadOwner}
    read(story, Owner(SET))
    [message] = shown(story, NOW)
    assert "do not agree on their number" in message
    assert story.acts(ReadOwner, NOW + 60) == [], "it gives no other size"


@pytest.mark.parametrize(
    ("members", "why"),
    [
        (MAX_SIZE + 1, f"Job train needs {MAX_SIZE + 1:,} pods, and a gang has at most {MAX_SIZE:,}."),
        (None, f"does not show how many pods it has: give it the annotation {GANG_SIZE} (1 to {MAX_SIZE:,})."),
    ],
)
def test_pods_show_why_the_size_of_their_owner_cannot_be_used(members: int | None, why: str) -> None:
    story = Story()
    story.sees(*of_job(None, None))
    [reads] = story.acts(ReadOwner, NOW)
    story.sees(OwnerRead(JOB, Owner(JOB, members=members), NOW, "hpc"))
    story.ended(reads, at=NOW)
    [message] = shown(story, NOW)
    assert message.endswith(why)


def test_pods_of_a_pod_group_show_nothing_of_its_size_before_the_group_was_read() -> None:
    story = Story()
    story.sees(*(pod(f"w-{number}", pod_group="ring") for number in range(2)))
    assert [type(each) for each in story.decides(NOW)] == [ReadOwner]
    [workload] = story.world.workloads.values()
    sentence = explain(story.world, workload.key, NOW).sentence
    assert sentence == "It is not known yet how many pods PodGroup ring has; 2 are here."


# --- how long ------------------------------------------------------------------------------------------------------------


def test_the_longest_timeout_of_the_pods_that_stay_counts_from_the_first_of_them() -> None:
    story = Story()
    leaving = member(0, 4, created=START - 100, deleting_at=START + 500, says={"gang-timeout": "900"})
    story.sees(leaving, member(1, 4, says={"gang-timeout": "60"}), member(2, 4, says={"gang-timeout": "30"}))
    due = START + 1 + 60
    early = story.acts(SetPodCondition, due - 10)
    assert [each.warning for each in early] == [False, False]
    for each in early:
        story.ended(each, at=due - 10)
    late = story.acts(SetPodCondition, due)
    assert [(each.warning, "The other pods are missing" in each.message) for each in late] == [(True, True)] * 2


def test_nothing_is_shown_while_a_request_for_the_whole_gang_is_in_flight() -> None:
    story = Story()
    pods = ring()
    story.sees(*pods)
    asked = asks(story, NOW)
    story.loses(pods[3], NOW + 1)
    assert story.decides(NOW + 10) == []
    story.ended(asked, Outcome.UNKNOWN, at=NOW + 10)
    assert shown(story, NOW + 11) == set(), "a job of the gang is looked for"


def test_the_job_of_a_gang_that_lost_a_member_ends_at_once_if_the_bridge_is_uninstalled() -> None:
    story = Story()
    pods = ring()
    story.sees(*pods)
    asked = asks(story, NOW)
    assert isinstance(asked, AllocateNow)
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2013)
    [submit] = story.acts(SubmitJob, NOW)
    story.ended(submit, at=NOW, job_id=17)
    story.loses(pods[3], NOW + 1)
    story.world.config = replace(CONFIG, leaving="wait")
    story.polls({17: "PENDING"}, at=NOW + 10)
    [cancel] = story.acts(CancelJob, NOW + 10)
    assert cancel.reason == "slurm-bridge is being uninstalled"


def test_a_job_keeps_its_place_in_the_queue_though_each_of_its_pods_is_replaced_in_turn() -> None:
    story = Story()
    story.sees(*(ClockObserved(side, START, START, START) for side in Side))
    pods = ring(2)
    story.sees(pods[0])
    submit = story.queues(pods[1], 17, at=NOW)
    waits = Job(17, submit.spec.name, "alice", frozenset({"PENDING"}), partition="main", submitted=NOW)
    at = NOW + 1
    for old in pods:
        story.polls({17: "PENDING"}, at=at)
        story.reads(waits, at=at)
        story.loses(old, at + 5)
        story.sees(replace(old, uid=f"{old.uid}-new", created=at + 5))
        at += 10
    story.polls({17: "PENDING"}, at=at)
    assert story.acts(CancelJob, at) == []


@pytest.mark.parametrize(
    ("ended_at", "is_read"),
    [(None, False), (NOW + 4, False), (NOW + 5, True), (NOW + 6, True)],
    ids=["there is no job", "it ended before the size was read", "it ended when the size was read", "it ended later"],
)
def test_the_size_is_read_again_at_once_if_the_job_of_the_gang_ended_because_some_pods_may_have_succeeded(
    ended_at: float | None, is_read: bool
) -> None:
    story = Story()
    pods = of_job(None, None)
    story.sees(*pods)
    [reads] = story.acts(ReadOwner, NOW)
    story.sees(OwnerRead(JOB, Owner(JOB, members=2), NOW, "hpc"))
    story.ended(reads, at=NOW)
    if ended_at is not None:
        asked = asks(story, NOW)
        story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
        story.sees(OwnerRead(JOB, Owner(JOB, members=2), NOW + 5, "hpc"))
        story.polls({17: "CANCELLED"}, at=ended_at)
    story.loses(pods[1], NOW + 6)
    assert bool(story.acts(ReadOwner, NOW + 20)) is is_read


# --- the other pods have gates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [None, JOB], ids=["no controller", "a Job"])
def test_no_quota_is_blamed_and_no_pod_is_asked_for_if_the_other_pods_of_a_gang_have_gates(
    owner: OwnerRef | None,
) -> None:
    story = Story()
    story.sees(member(0, 2, owner=owner), replace(member(1, 2, owner=owner), gated=True))
    assert shown(story, NOW + 86_400) == {
        "1 of 2 pods of gang ring are here in namespace hpc. 1 more has scheduling gates, and counts when these gates are "
        "removed. Their job is submitted when all of them are here."
    }


def test_a_quota_may_be_why_if_others_are_missing_beside_the_pods_with_gates() -> None:
    story = Story()
    story.sees(member(0, owner=JOB), *(replace(member(number, owner=JOB), gated=True) for number in (1, 2)))
    [message] = shown(story, NOW + 86_400)
    assert "2 more have scheduling gates, and count when" in message
    assert "The other pods are missing: a quota" in message
