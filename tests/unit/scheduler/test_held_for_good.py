"""slurmctld holds some waiting jobs for good, and their user may not release them (Q4, Slurm facts 9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.actions import AllocateNow, CancelJob, Outcome, ReadOwner, SetPodCondition, SubmitJob, UpdateJob
from scheduler.events import OwnerRead, SlurmNodesPolled
from scheduler.model.kubernetes import Owner, OwnerRef
from scheduler.model.slurm import Job, Partition
from scheduler.policy.rules import Choice, Policy, Rule
from tests.builders import ALICE, CONFIG, START, Story, job_of, pod, slurm_node

NOW = START + 20
JOB = OwnerRef("batch/v1", "Job", "train", "uid-train-job")
MAIN, GPU = Partition("main", default=True), Partition("gpu", max_time_min=600)
RESERVATIONS = Choice("", ("maint",))
MAY_RESERVE = replace(CONFIG, policy=Policy((Rule(("hpc",), replace(ALICE, reservations=RESERVATIONS)),)))
NODES = (slurm_node("x1"), slurm_node("x2"))


def held(reason: str, **says: str) -> Story:
    """The job 17 of the pod waited, and slurmctld holds it now."""
    story = Story(config=MAY_RESERVE)
    story.queues(pod(says=says), 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.reads(_held(reason), at=NOW + 4)
    return story


def _held(reason: str) -> Job:
    return replace(job_of(pod(), 17, "PENDING"), reason=reason, priority=0)


def is_replaced(story: Story, at: float) -> None:
    """The job is cancelled, and the pod gets another one."""
    [cancel] = story.acts(CancelJob, at)
    assert cancel.job_id == 17
    story.ended(cancel, at=at)
    story.polls({17: "CANCELLED"}, at=at + 1)
    assert story.acts(AllocateNow, at + 3) + story.acts(SubmitJob, at + 3)


def is_looked_at_again(story: Story, at: float) -> None:
    """The job is updated without a change, and keeps its age in the queue."""
    [update] = story.acts(UpdateJob, at)
    assert (update.job_id, update.changes) == (17, frozenset())
    assert update.reason == "job 17 is held by Slurm, which looks at it again"
    story.ended(update, at=at)
    assert story.acts(UpdateJob, at + 2) == []


def test_a_job_that_slurm_holds_because_of_a_limit_of_its_partition_may_start_when_an_admin_raises_the_limit() -> None:
    """An admin lowers MaxCPUsPerNode, and slurmctld sets the priority of waiting jobs to 0.  It never raises it again."""
    story = held("BadConstraints")
    assert story.acts(UpdateJob, NOW + 5) == []
    story.sees(SlurmNodesPolled(NODES, (replace(MAIN, accepts=(64,)), GPU), NOW + 6))
    is_looked_at_again(story, NOW + 6)


def test_a_limit_that_is_raised_before_the_job_is_read_again_counts_too() -> None:
    """The limit was lowered further first.  Jobs that wait are read every 15 s only."""
    story = held("BadConstraints")
    story.sees(SlurmNodesPolled(NODES, (replace(MAIN, accepts=(4,)), GPU), NOW + 6))
    is_looked_at_again(story, NOW + 6)
    story.sees(SlurmNodesPolled(NODES, (replace(MAIN, accepts=(64,)), GPU), NOW + 9))
    is_looked_at_again(story, NOW + 9)


def test_a_job_that_slurm_holds_because_of_its_constraints_may_start_when_a_node_gets_the_feature() -> None:
    story = held("BadConstraints")
    story.decides(NOW + 5)
    story.sees(SlurmNodesPolled((replace(NODES[0], features=("h100",)), NODES[1]), (MAIN, GPU), NOW + 6))
    is_looked_at_again(story, NOW + 6)


def test_slurm_looks_every_five_minutes_at_a_job_that_it_holds_and_the_pod_says_so() -> None:
    story = held("BadConstraints")
    [said] = story.acts(SetPodCondition, NOW + 5)
    assert said.message.endswith(
        "Slurm does not look at job 17 again by itself: slurm-bridge has it look every 300 s, and when the pod or Slurm's "
        "configuration changes."
    )
    is_looked_at_again(story, NOW + 304)
    story.reads(_held("BadConstraints"), at=NOW + 310)
    assert story.acts(UpdateJob, NOW + 312) == []
    is_looked_at_again(story, NOW + 610)


def test_a_pod_is_not_written_each_time_slurm_looks_at_its_job_without_a_change() -> None:
    story, looks = held("BadConstraints"), 0
    [said] = story.acts(SetPodCondition, NOW + 5)
    story.ended(said, at=NOW + 5)
    for at in range(int(NOW) + 20, int(NOW) + 1500, 15):
        story.reads(_held("BadConstraints"), at=at)
        for action in story.decides(at):
            assert not isinstance(action, SetPodCondition), f"{at - NOW} s: {action.message}"
            looks += isinstance(action, UpdateJob)
            story.ended(action, at=at)
    assert looks == 4


def test_slurm_refuses_to_look_at_a_job_that_it_holds_and_is_asked_again_after_five_minutes() -> None:
    """A plugin of slurmctld (job_submit) may refuse every update."""
    story = held("BadConstraints")
    [update] = story.acts(UpdateJob, NOW + 304)
    story.ended(update, Outcome.REFUSED, at=NOW + 304, number=2002)
    assert story.acts(UpdateJob, NOW + 603) == []
    is_looked_at_again(story, NOW + 604)


@pytest.mark.parametrize("answer", [{"number": 511, "later": True}, {"number": 2018}])
def test_a_job_that_slurm_could_not_look_at_now_is_soon_looked_at(answer: dict[str, Any]) -> None:
    """The token of the user has expired, or the update names a node that Slurm has no more: slurmctld did not look."""
    story = held("BadConstraints")
    [update] = story.acts(UpdateJob, NOW + 304)
    story.ended(update, Outcome.REFUSED, at=NOW + 304, **answer)
    story.sees(SlurmNodesPolled(NODES, (MAIN, GPU), NOW + 305))
    is_looked_at_again(story, NOW + 306)


def test_an_edit_of_the_pod_is_the_update_after_which_slurm_looks_again() -> None:
    story = held("BadConstraints", qos="high")
    story.decides(NOW + 5)
    story.sees(pod())
    [update] = story.acts(UpdateJob, NOW + 6)
    assert update.changes == {"qos"}
    story.ended(update, at=NOW + 6)
    assert story.acts(UpdateJob, NOW + 8) == []


@pytest.mark.parametrize("leader", [{}, {"priority": 5, "reason": "Resources"}], ids=["the leader", "a component"])
def test_another_job_takes_the_place_of_a_heterogeneous_job_that_slurm_holds(leader: dict[str, Any]) -> None:
    """Of such a job each component would need an update."""
    story = held("BadConstraints")
    read = _held("BadConstraints")
    story.reads(replace(read, **leader, parts=(replace(read, id=18),)), at=NOW + 5)
    is_replaced(story, NOW + 306)


def test_a_job_whose_reservation_was_deleted_is_submitted_again_when_its_user_removes_the_annotation() -> None:
    """This is what the pod advises.  Slurm takes the change, and still holds the job."""
    story = held("ReservationDeleted", reservation="maint")
    story.decides(NOW + 5)
    story.sees(pod())
    is_replaced(story, NOW + 6)


def test_a_job_that_slurm_holds_without_its_reservation_is_submitted_again_every_five_minutes_and_its_pod_says_so() -> (
    None
):
    """Nothing tells the bridge that an admin made a reservation again, for example."""
    story = held("ReservationDeleted", reservation="maint")
    [said] = story.acts(SetPodCondition, NOW + 5)
    assert said.message.endswith(
        "Slurm holds job 17 for good: slurm-bridge submits another one at 00:22 UTC, or when the pod or Slurm's "
        "configuration changes."
    )
    assert story.acts(CancelJob, NOW + 303) == []
    is_replaced(story, NOW + 304)


def test_an_edit_of_the_owner_gives_the_pod_of_a_job_that_slurm_holds_for_good_another_job() -> None:
    story = Story(config=MAY_RESERVE)
    what = pod(owner=JOB)
    story.sees(what, OwnerRead(JOB, Owner(JOB, {"slurm-bridge/reservation": "maint"}), NOW, "hpc"))
    story.queues(what, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.reads(_held("ReservationDeleted"), at=NOW + 4)
    story.decides(NOW + 5)
    story.reads(_held("ReservationDeleted"), at=NOW + 61)
    [read] = story.acts(ReadOwner, NOW + 61)
    story.sees(OwnerRead(JOB, Owner(JOB), NOW + 61, "hpc"))
    story.ended(read, at=NOW + 61)
    is_replaced(story, NOW + 62)


@pytest.mark.parametrize(
    "read",
    [
        replace(_held("BadConstraints"), priority=5),  # an admin released it
        _held("JobHeldAdmin"),
    ],
    ids=["released", "held by an admin"],
)
def test_a_job_that_slurm_does_not_hold_for_good_keeps_its_place_in_the_queue(read: Job) -> None:
    story = held("BadConstraints")
    story.reads(read, at=NOW + 10)
    assert story.acts(CancelJob, NOW + 400) + story.acts(UpdateJob, NOW + 400) == []
