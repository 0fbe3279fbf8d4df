"""Which surplus pods take a free place in their gang, and which keep their own jobs (W5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.actions import AllocateNow, BindPod, CancelJob, Outcome, SubmitJob
from scheduler.model.kubernetes import Pod, PodPhase
from scheduler.model.slurm import Job
from scheduler.state.phase import Phase
from tests.builders import START, Story, grant, key_of, node
from tests.unit.scheduler.test_gangs import (
    asks,
    granted,
    launched,
    launcher_and_workers,
    member,
    ring,
    runs,
)
from tests.unit.scheduler.test_gangs import goes_on as lasts_a_second

NOW = START + 10
MOMENTS = (0, 1, 28, 31, 32, 33, 34, 60)  # seconds; after 30 s no controller replaces the member any more


def gang_key(story: Story) -> str:
    return story.world.key_of_pod["uid-w-0"]


def is_member(story: Story, surplus: Pod) -> bool:
    return story.world.key_of_pod[surplus.uid] == gang_key(story)


def fails(story: Story, shown: Pod, at: float) -> None:
    """The member is gone, and no controller replaces it."""
    story.loses(replace(shown, phase=PodPhase.FAILED), at)


def goes_on(story: Story, jobs: dict[int, str], since: float) -> tuple[list[tuple[str, str, int]], list[int]]:
    """A minute in which all actions succeed.  Returns the binds as (pod, node, job), and the ids of the cancelled jobs."""
    done: list[BindPod | CancelJob] = []
    for at in (since + moment for moment in MOMENTS):
        done += lasts_a_second(story, jobs, at, seconds=1)
        jobs |= {each.job_id: "CANCELLED" for each in done if isinstance(each, CancelJob)}
    binds = [(each.name, each.node, each.job_id) for each in done if isinstance(each, BindPod)]
    return binds, [each.job_id for each in done if isinstance(each, CancelJob)]


# --- the place serves the pod ---------------------------------------------------------------------------------------


def waits_beside_an_incomplete_gang() -> tuple[Story, Pod, dict[int, str]]:
    """A surplus pod waits as job 18, and its gang of two, which has lost a member at NOW + 3, as job 17."""
    story = Story()
    first, second, surplus = (member(number, 2) for number in range(3))
    story.sees(first)
    story.queues(second, 17, at=NOW)
    story.queues(surplus, 18, at=NOW + 2)
    jobs = {17: "PENDING", 18: "PENDING"}
    story.loses(second, NOW + 3)
    return story, surplus, jobs


def test_a_surplus_pod_in_the_queue_joins_a_gang_that_waits_in_the_queue_too() -> None:
    story, surplus, jobs = waits_beside_an_incomplete_gang()
    _, cancelled = goes_on(story, jobs, NOW + 3)
    assert (is_member(story, surplus), 18 in cancelled) == (True, True)


def test_the_job_of_a_gang_outlives_the_time_after_which_a_surplus_pod_gives_up_its_own_turn_for_it() -> None:
    story, surplus, jobs = waits_beside_an_incomplete_gang()
    cancelled = []
    for at in (NOW + 3 + seconds for seconds in range(60)):
        story.polls(jobs, at=at)
        for action in story.decides(at):
            if isinstance(action, CancelJob):
                cancelled.append(action.job_id)
                jobs[action.job_id] = "CANCELLED"
            story.ended(action, at=at)
    assert (is_member(story, surplus), cancelled) == (True, [18])


def test_a_surplus_pod_without_a_job_joins_a_running_gang_although_its_needs_were_not_determined_yet() -> None:
    story = Story()
    shown = runs(story, ring(2), ("x1", 1), ("x2", 1))
    surplus = member(2, 2)
    story.sees(surplus)
    fails(story, shown[1], NOW + 2)
    assert is_member(story, surplus)


def test_a_surplus_pod_joins_if_it_may_not_run_on_the_node_of_another_member_but_on_the_node_with_the_free_place() -> (
    None
):
    story = Story(nodes=[node("x1"), node("x2", labels={"disk": "fast"})])
    shown = runs(story, ring(2), ("x1", 1), ("x2", 1))
    story.queues(member(2, 2, node_selector={"disk": "fast"}), 18, at=NOW + 2)
    fails(story, shown[1], NOW + 3)
    assert goes_on(story, {17: "RUNNING", 18: "PENDING"}, NOW + 3) == ([("w-2", "x2", 17)], [18])


def test_a_surplus_pod_takes_the_place_that_is_left_beside_a_member_that_waits_for_another_one() -> None:
    story = Story(nodes=[node("x1"), node("x2"), node("x3")])
    shown = runs(story, ring(3), ("x1", 1), ("x2", 1), ("x3", 1))
    story.queues(member(3, 3), 18, at=NOW + 2)
    fails(story, shown[1], NOW + 3)
    fails(story, shown[2], NOW + 3)
    story.sees(member(4, 3))
    assert goes_on(story, {17: "RUNNING", 18: "PENDING"}, NOW + 3) == ([("w-4", "x2", 17), ("w-3", "x3", 17)], [18])


def test_a_surplus_pod_that_requests_less_than_the_members_takes_a_free_place() -> None:
    story = Story()
    shown = runs(story, ring(2, cpu=2000), ("x1", 2), ("x2", 2))
    story.queues(member(2, 2, cpu=1000), 18, at=NOW + 2)
    fails(story, shown[1], NOW + 3)
    assert goes_on(story, {17: "RUNNING", 18: "PENDING"}, NOW + 3) == ([("w-2", "x2", 17)], [18])


@pytest.mark.parametrize(
    ("failed", "wants", "joins"),
    [
        (2, {"cpu": 2000, "gpu": 1}, True),
        (2, {"cpu": 1000, "gpu": 1}, False),
        (0, {"cpu": 2000, "gpu": 1}, False),
        (0, {"cpu": 1000}, True),
    ],
    ids=["a worker for a worker", "less than a worker", "a worker for the launcher", "a launcher for the launcher"],
)
def test_in_a_gang_of_several_shapes_a_surplus_pod_takes_only_the_place_of_a_pod_of_its_shape(
    failed: int, wants: dict[str, Any], joins: bool
) -> None:
    story, pods = Story(), launcher_and_workers()
    binds = {bind.uid: bind for bind in launched(story, pods)}
    for bind in binds.values():
        story.ended(bind, at=NOW + 1)
    shown = [story.bound(each, 17, binds[each.uid].node) for each in pods]
    story.sees(*shown)
    surplus = member(3, 3, **wants)
    story.queues(surplus, 20, at=NOW + 2)
    fails(story, shown[failed], NOW + 3)
    jobs = {17: "RUNNING", 18: "RUNNING", 20: "PENDING"}
    expected = ([("w-3", shown[failed].node, 17)], [20]) if joins else ([], [])
    assert goes_on(story, jobs, NOW + 3) == expected


# --- the free places are not known ----------------------------------------------------------------------------------


def bound_by_another_client(story: Story) -> list[Pod]:
    """Another client bound both members, so the bridge knows no job for which they run."""
    shown = [replace(each, node="x1", phase=PodPhase.RUNNING) for each in ring(2)]
    story.sees(*shown)
    return shown


def bound_while_their_job_waits(story: Story) -> list[Pod]:
    """Another client bound both members, and their job holds no nodes."""
    first, second = ring(2)
    story.sees(first)
    story.queues(second, 17, at=NOW)
    shown = [replace(each, node="x1", phase=PodPhase.RUNNING) for each in (first, second)]
    story.sees(*shown)
    return shown


def submitted_by_a_previous_process(story: Story) -> list[Pod]:
    """Only a read shows the job of the gang, so its specification is not known."""
    before = Story()
    shown = runs(before, ring(2), ("x1", 1), ("x2", 1))
    story.sees(*shown)
    story.polls({17: "RUNNING"}, at=NOW)
    name = before.world.placeholders[17].name
    read = Job(17, name, "alice", frozenset({"RUNNING"}), partition="main", nodes="x[1-2]", starts=NOW, tasks=2)
    story.reads(read, at=NOW, granted=granted(17, ("x1", 1), ("x2", 1)))
    return shown


@pytest.mark.parametrize(
    "gang", [bound_by_another_client, bound_while_their_job_waits, submitted_by_a_previous_process]
)
def test_a_surplus_pod_keeps_its_turn_in_the_queue_if_the_places_of_the_running_gang_are_not_known(gang: Any) -> None:
    story, surplus = Story(), member(2, 2)
    shown = gang(story)
    story.queues(surplus, 18, at=NOW + 2)
    fails(story, shown[1], NOW + 3)
    jobs = {each: "PENDING" if each == 18 else "RUNNING" for each in story.world.placeholders}
    goes_on(story, jobs, NOW + 3)
    assert story.world.phase_of[key_of(surplus)] is Phase.QUEUED


def test_a_surplus_pod_whose_job_slurm_refuses_takes_a_place_of_a_running_gang_of_a_previous_process() -> None:
    """It is not known if the place is large enough; a pod that comes only then takes it, too."""
    story, surplus = Story(), member(2, 2)
    shown = submitted_by_a_previous_process(story)
    story.sees(surplus)
    story.ended(asks(story, NOW + 2), Outcome.REFUSED, at=NOW + 2, number=2050)
    fails(story, shown[1], NOW + 3)
    goes_on(story, dict.fromkeys(story.world.placeholders, "RUNNING"), NOW + 3)
    assert is_member(story, surplus)


def asked_again(story: Story, jobs: dict[int, str], at: float) -> list[SubmitJob]:
    """The submissions to the queue.  An immediate allocation is refused."""
    story.polls(jobs, at=at)
    asked = []
    for each in story.decides(at):
        if isinstance(each, SubmitJob):
            asked.append(each)
        elif isinstance(each, AllocateNow):
            story.ended(each, Outcome.REFUSED, at=at, number=2013)
        else:
            story.ended(each, at=at)
    return asked


# --- when -----------------------------------------------------------------------------------------------------------


def test_surplus_pods_keep_their_turns_in_the_queue_as_long_as_a_member_terminates() -> None:
    story, surplus = Story(), [member(3, 3), member(4, 3)]
    shown = runs(story, ring(3), ("x1", 2), ("x2", 1))
    for job_id, each in enumerate(surplus, 18):
        story.queues(each, job_id, at=NOW + job_id)
    story.sees(replace(shown[1], deleting_at=NOW + 3600))
    fails(story, shown[2], NOW + 20)
    goes_on(story, {17: "RUNNING", 18: "PENDING", 19: "PENDING"}, NOW + 20)
    assert [story.world.phase_of[key_of(each)] for each in surplus] == [Phase.QUEUED, Phase.QUEUED]


def test_surplus_pods_keep_their_turns_in_the_queue_if_they_are_fewer_than_the_members_that_the_gang_lacks() -> None:
    story, surplus = Story(), member(3, 3)
    shown = runs(story, ring(3), ("x1", 2), ("x2", 1))
    story.queues(surplus, 18, at=NOW + 2)
    for each in shown[1:]:
        fails(story, each, NOW + 3)
    goes_on(story, {17: "RUNNING", 18: "PENDING"}, NOW + 3)
    assert story.world.phase_of[key_of(surplus)] is Phase.QUEUED


def test_surplus_pods_keep_their_turns_in_the_queue_if_all_other_pods_of_their_gang_are_gated() -> None:
    story, surplus = Story(), [member(2, 2), member(3, 2)]
    first, second = ring(2)
    story.sees(first)
    story.queues(second, 17, at=NOW)
    for job_id, each in enumerate(surplus, 18):
        story.queues(each, job_id, at=NOW + job_id)
    story.sees(member(4, 2, gated=True))
    for each in (first, second):
        story.loses(each, NOW + 20)
    goes_on(story, {17: "PENDING", 18: "PENDING", 19: "PENDING"}, NOW + 20)
    assert [story.world.phase_of[key_of(each)] for each in surplus] == [Phase.QUEUED, Phase.QUEUED]


@pytest.mark.parametrize("answered", [Outcome.REFUSED, Outcome.UNKNOWN], ids=["refused", "unknown"])
def test_a_surplus_pod_does_not_join_while_its_own_submission_may_succeed(answered: Outcome) -> None:
    story, surplus = Story(), member(2, 2)
    first, second = ring(2)
    story.sees(first)
    story.queues(second, 17, at=NOW)
    story.sees(surplus)
    asked = asks(story, NOW + 1)
    story.loses(second, NOW + 2)
    assert not is_member(story, surplus), "the request is in flight"
    story.ended(asked, answered, at=NOW + 3, **({"number": 2013} if answered is Outcome.REFUSED else {}))
    assert is_member(story, surplus) is (answered is Outcome.REFUSED)


def bind_is_in_flight(story: Story, bind: BindPod, surplus: Pod) -> None:
    """Kubernetes has not answered."""


def bind_was_not_answered(story: Story, bind: BindPod, surplus: Pod) -> None:
    story.ended(bind, Outcome.UNKNOWN, at=NOW + 2)


def bind_was_not_shown(story: Story, bind: BindPod, surplus: Pod) -> None:
    story.ended(bind, at=NOW + 2)


def bind_was_shown(story: Story, bind: BindPod, surplus: Pod) -> None:
    story.ended(bind, at=NOW + 2)
    story.sees(story.bound(surplus, 18))


@pytest.mark.parametrize("state", ["RUNNING", "CANCELLED"])
@pytest.mark.parametrize(
    "bound",
    [bind_is_in_flight, bind_was_not_answered, bind_was_not_shown, bind_was_shown],
    ids=lambda each: each.__name__,
)
def test_a_surplus_pod_that_may_run_does_not_join_although_its_own_job_ends(bound: Any, state: str) -> None:
    story, surplus = Story(), member(2, 2)
    shown = runs(story, ring(2), ("x1", 1), ("x2", 1))
    story.sees(surplus)
    story.ended(asks(story, NOW + 2), at=NOW + 2, job_id=18, grant=grant(18))
    [bind] = story.acts(BindPod, NOW + 2)
    bound(story, bind, surplus)
    fails(story, shown[1], NOW + 3)
    story.polls({17: "RUNNING", 18: state}, at=NOW + 40)
    story.sees(replace(shown[0], annotations={**shown[0].annotations, "note": "the gang is looked at again"}))
    assert not is_member(story, surplus)


@pytest.mark.parametrize("shows", [{"gated": True}, {"deleting_at": NOW + 60}], ids=["gated", "being deleted"])
def test_a_surplus_pod_that_cannot_start_leaves_the_place_to_the_next_one(shows: dict[str, Any]) -> None:
    story, pods = Story(), [member(number, 2) for number in range(4)]
    story.sees(*pods)
    story.sees(replace(pods[2], **shows))
    story.loses(pods[1], NOW)
    assert (is_member(story, pods[2]), is_member(story, pods[3])) == (False, True)


def test_a_surplus_pod_whose_own_job_was_granted_nodes_does_not_join() -> None:
    story, surplus = Story(), member(2, 2)
    shown = runs(story, ring(2), ("x1", 1), ("x2", 1))
    story.queues(surplus, 18, at=NOW + 2)
    jobs = {17: "RUNNING", 18: "RUNNING"}
    story.polls(jobs, at=NOW + 3)
    fails(story, shown[1], NOW + 4)
    goes_on(story, jobs, NOW + 4)
    assert not is_member(story, surplus)


def test_a_surplus_pod_that_was_submitted_again_joins_although_its_ended_job_is_still_known() -> None:
    story, surplus = Story(), member(2, 2)
    shown = runs(story, ring(2), ("x1", 1), ("x2", 1))
    story.queues(surplus, 18, at=NOW + 2)
    jobs = {17: "RUNNING", 18: "CANCELLED"}
    at = NOW + 3
    while not (again := asked_again(story, jobs, at)):
        at += 1
    story.ended(again[0], at=at, job_id=19)
    fails(story, shown[1], at)
    goes_on(story, {**jobs, 19: "PENDING"}, at)
    assert is_member(story, surplus)


def test_a_surplus_pod_that_leaves_its_gang_again_keeps_its_own_job_if_the_job_was_not_cancelled_yet() -> None:
    story, surplus = Story(), member(2, 2)
    first, second = ring(2)
    story.sees(first)
    story.queues(second, 17, at=NOW)
    story.queues(surplus, 18, at=NOW + 2)
    story.loses(second, NOW + 3)
    jobs, moments = {17: "PENDING", 18: "PENDING"}, iter(MOMENTS)
    while not is_member(story, surplus):
        lasts_a_second(story, jobs, NOW + 3 + next(moments), seconds=1)
    story.sees(replace(second, uid="uid-new"))
    assert story.world.workloads[key_of(surplus)].jobs == {18}
    assert not is_member(story, surplus)
