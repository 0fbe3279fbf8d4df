"""Which workloads wait for nodes in a partition: an immediate allocation beside them would be refused (ARCHITECTURE 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from scheduler.actions import Action, AllocateNow, Outcome, SubmitJob
from scheduler.state.phase import Phase
from tests.builders import START, Story, job_of, pod
from tests.defects import breaks_rule

NOW = START + 20
TRAIN, NEXT = pod("train"), pod("next")
Submission = AllocateNow | SubmitJob


def submissions(story: Story, at: float = NOW) -> dict[str, Submission]:
    return {each.spec.name.split("~")[0]: each for each in story.decides(at) if isinstance(each, Submission)}


def kind_of_next(story: Story, at: float = NOW, **says: str) -> type[Action]:
    """How the next pod asks for nodes."""
    story.sees(replace(NEXT, annotations=pod(says=says).annotations))
    return type(submissions(story, at)["hpc/next"])


@pytest.mark.parametrize(
    ("says", "read", "next_says", "kind"),
    [
        pytest.param({}, None, {}, SubmitJob, id="not read yet"),
        pytest.param({}, {"reason": "Priority"}, {}, SubmitJob, id="waits for nodes"),
        pytest.param({}, {"reason": "Priority", "partition": "gpu"}, {}, AllocateNow, id="was moved"),
        pytest.param({}, {"reason": "JobHeldUser"}, {}, AllocateNow, id="held"),
        pytest.param({}, {"reason": "BadConstraints", "priority": 0}, {}, AllocateNow, id="held by slurmctld"),
        pytest.param({"partition": "gpu"}, None, {}, AllocateNow, id="in another partition"),
        pytest.param({"partition": "gpu"}, None, {"partition": "gpu"}, SubmitJob, id="in the same other partition"),
    ],
)
def test_a_pod_is_queued_behind_a_job_that_waits_for_nodes_in_its_partition(
    says: dict[str, str], read: Mapping[str, Any] | None, next_says: dict[str, str], kind: type[Action]
) -> None:
    story = Story()
    story.queues(replace(TRAIN, annotations=pod(says=says).annotations), 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW)
    if read is not None:
        story.reads(replace(job_of(TRAIN, 17, "PENDING"), **read), at=NOW + 1)
    assert kind_of_next(story, NOW + 1, **next_says) is kind


def without_room(story: Story) -> None:
    """Slurm has no nodes for the pod at once."""
    story.sees(TRAIN)
    story.ended(submissions(story)["hpc/train"], Outcome.REFUSED, at=NOW, number=2013)


@pytest.mark.parametrize("is_seen_before", [True, False])
def test_a_pod_is_queued_behind_a_pod_that_is_about_to_be_queued(is_seen_before: bool) -> None:
    """Also if the pass visits the next pod first."""
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(*([NEXT] if is_seen_before else []))
    story.ended(asked, Outcome.REFUSED, at=NOW, number=2013)
    story.sees(NEXT)
    assert [type(each) for each in submissions(story).values()] == [SubmitJob, SubmitJob]


def test_a_pod_is_queued_behind_a_pod_that_is_being_queued() -> None:
    """The second pod asked for no nodes at once, because of the first one, which has its nodes now."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW)
    assert kind_of_next(story) is SubmitJob
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(pod("third"))
    assert type(submissions(story, NOW + 1)["hpc/third"]) is SubmitJob


def test_a_pod_is_queued_behind_a_pod_that_is_queued_at_the_same_moment() -> None:
    story = Story()
    story.sees(pod("follows", says={"dependency": "afterany:8"}), NEXT)
    assert {name: type(each) for name, each in submissions(story).items()} == {
        "hpc/follows": SubmitJob,
        "hpc/next": SubmitJob,
    }


def test_a_pod_does_not_wait_behind_a_pod_that_slurm_refuses() -> None:
    story = Story()
    without_room(story)
    story.ended(submissions(story)["hpc/train"], Outcome.REFUSED, at=NOW, number=2072)
    assert kind_of_next(story) is AllocateNow


def test_a_pod_does_not_wait_behind_a_pod_in_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(guarded=True)
    without_room(story)
    breaks_rule(monkeypatch, Phase.UNSUBMITTED, "train")
    assert submissions(story) == {}
    assert kind_of_next(story) is AllocateNow


@pytest.mark.parametrize("later", [(5.0, 3.0), (3.0, 5.0)])
def test_the_next_wake_up_is_the_earliest_that_is_not_due(later: tuple[float, float]) -> None:
    story = Story()
    story.world.timers = [(1.0, "due"), *((at, f"at {at}") for at in later)]
    assert story.world.due(2.0) == (["due"], 3.0)
