"""Rights in Kubernetes are missing in a namespace, or are taken away and given back, while pods wait and run (X9)."""

from __future__ import annotations

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    FailByDeadline,
    Outcome,
    SetPodCondition,
    SubmitJob,
)
from scheduler.events import RightsChecked
from scheduler.explain import explain
from scheduler.model.refusal import Refusal
from tests.builders import START, Story, grant, key_of, pod

NOW = START + 60
TRAIN = pod("train")
WHY = "slurm-bridge may not create pods/binding in namespace hpc."
FORBIDDEN = 403


def asks(story: Story, at: float) -> list[AllocateNow | SubmitJob]:
    return [each for each in story.decides(at) if isinstance(each, AllocateNow | SubmitJob)]


def test_no_job_is_asked_for_while_its_pods_could_not_be_bound_and_they_say_why() -> None:
    story = Story()
    story.sees(RightsChecked({"hpc": WHY}, NOW), TRAIN)
    acts = story.decides(NOW)
    assert not [each for each in acts if isinstance(each, AllocateNow | SubmitJob)]
    [said] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert (said.condition, said.message) == (names.LACKS_RIGHTS, WHY)
    told = explain(story.world, key_of(TRAIN), NOW)
    assert told.sentence == WHY
    assert told.refusal == Refusal(names.LACKS_RIGHTS, WHY)


def test_where_pods_cannot_be_written_on_nothing_is_tried() -> None:
    story = Story()
    story.sees(RightsChecked({"hpc": ""}, NOW), TRAIN)
    assert story.decides(NOW) == []
    assert "its admin sees which in /readyz" in explain(story.world, key_of(TRAIN), NOW).sentence


def test_other_namespaces_go_on() -> None:
    story = Story()
    story.sees(RightsChecked({"lab": WHY}, NOW), TRAIN)
    assert len(asks(story, NOW)) == 1


def test_pods_go_on_as_soon_as_the_rights_are_there() -> None:
    story = Story()
    story.sees(RightsChecked({"hpc": ""}, NOW), TRAIN)
    assert asks(story, NOW) == []
    story.sees(RightsChecked({}, NOW + 1))
    assert len(asks(story, NOW + 1)) == 1


def test_a_bind_that_failed_for_lack_of_rights_is_tried_at_once_when_they_are_back() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = asks(story, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    for second in (0, 10, 20):
        [bind] = story.acts(BindPod, NOW + second)
        story.ended(bind, Outcome.REFUSED, at=NOW + second, number=FORBIDDEN)
    assert story.acts(BindPod, NOW + 21) == []
    story.sees(RightsChecked({"hpc": ""}, NOW + 21), RightsChecked({}, NOW + 22))
    assert len(story.acts(BindPod, NOW + 22)) == 1


def test_pods_that_run_and_jobs_that_wait_stay_as_they_are() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.queues(pod("next"), 18, at=NOW)
    story.polls({17: "RUNNING", 18: "PENDING"}, at=NOW + 1)
    story.sees(RightsChecked({"hpc": ""}, NOW + 1))
    harms = (CancelJob, DeletePod, FailByDeadline)
    assert not [each for each in story.decides(NOW + 2) if isinstance(each, harms)]


def test_rights_that_are_missing_in_another_namespace_change_nothing_here() -> None:
    story = Story()
    story.sees(TRAIN)
    story.decides(NOW)
    story.decides(NOW)
    story.sees(RightsChecked({"other": WHY}, NOW + 1))
    assert key_of(TRAIN) not in story.world.dirty
