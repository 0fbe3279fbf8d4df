"""Only pods of managed namespaces use the bridge: for a submission, for a bind, and for a lost job's nodes alike (K1)."""

from __future__ import annotations

from dataclasses import replace

from scheduler import names
from scheduler.actions import (
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    FailByDeadline,
    Outcome,
    ReadJob,
    SetPodCondition,
)
from scheduler.events import NamespaceSeen
from scheduler.model.kubernetes import Namespace, Pod, PodPhase
from tests.builders import START, Story, grant, job_of, pod

NOW = START + 20
TRAIN = pod("train")
UNMANAGED = NamespaceSeen(Namespace("hpc", "1"))
MANAGED = NamespaceSeen(Namespace("hpc", "1", {names.MANAGED_LABEL: "true"}))


def lost(story: Story, second: int) -> list[object]:
    """A poll without any job, and what follows from it; reads say that there is no such job."""
    story.polls({}, at=NOW + second)
    acts = story.decides(NOW + second)
    for action in acts:
        if isinstance(action, ReadJob):
            story.reads(None, job_id=action.job_id, at=NOW + second)
        story.ended(action, at=NOW + second) if not isinstance(action, AllocateNow) else None
    return list(acts)


def test_pods_of_a_namespace_that_loses_its_label_run_on() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.sees(UNMANAGED)
    for second in range(1, 20):
        story.polls({17: "RUNNING"}, at=NOW + second)
        assert story.decides(NOW + second) == []


def test_the_job_of_pods_in_a_namespace_that_lost_its_label_ends_with_the_pods() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(UNMANAGED, replace(shown, phase=PodPhase.SUCCEEDED))
    assert [each.job_id for each in story.acts(CancelJob, NOW + 2)] == [17]


def test_pods_in_a_namespace_that_lost_its_label_end_when_slurm_ends_their_job() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.sees(UNMANAGED)
    story.polls({17: "CANCELLED"}, at=NOW + 1)
    [read] = story.acts(ReadJob, NOW + 1)
    story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW + 1)
    story.ended(read, at=NOW + 1)
    assert len(story.acts(FailByDeadline, NOW + 2)) == 1


def test_pods_in_a_namespace_that_lost_its_label_end_when_slurm_requeues_their_job() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.sees(UNMANAGED)
    story.polls({17: "PENDING"}, at=NOW + 1)
    [cancel] = story.acts(CancelJob, NOW + 1)
    story.ended(cancel, at=NOW + 1)
    [end] = story.decides(NOW + 2)
    assert isinstance(end, FailByDeadline)
    assert end.reason == "Slurm requeued the job of this pod (17)"


def test_a_job_that_slurm_lost_is_not_asked_for_again_there_and_no_pod_is_ended_for_it() -> None:
    story = Story()
    story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(UNMANAGED)
    acts = [each for second in range(2, 60) for each in lost(story, second)]
    assert not [each for each in acts if isinstance(each, AllocateNow | FailByDeadline | DeletePod)]
    [report] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert (report.event, report.condition, report.warning) == (names.ABSENCE, "", True)
    assert report.message.startswith(
        "Slurm knows no job 17 of this pod. The pod is left alone, and no job is requested for it."
    )
    story.sees(MANAGED)
    [asked] = story.acts(AllocateNow, NOW + 60)
    assert asked.spec.required_nodes == "x1"


def test_a_made_up_job_id_in_a_namespace_that_is_not_managed_gets_no_job(  # as if a previous process had bound it
) -> None:
    story = Story()
    ghost: Pod = pod("ghost", namespace="grey", node="x1", created=START - 60, says={"job-id": "900001"})
    story.sees(ghost)
    acts = [each for second in range(60) for each in lost(story, second)]
    assert not [each for each in acts if isinstance(each, AllocateNow | FailByDeadline | DeletePod)]


def test_a_pod_with_a_made_up_job_id_is_not_ended_for_a_job_that_ended_before_slurm_lost_its_state() -> None:
    """The list has no names, and no read showed whose job that was."""
    story = Story()
    story.sees(pod("ghost", namespace="grey", node="x1", created=START - 60, says={"job-id": "17"}))
    story.polls({17: "CANCELLED"}, at=NOW)
    acts = [each for second in range(1, 60) for each in lost(story, second)]
    assert not [each for each in acts if isinstance(each, AllocateNow | FailByDeadline | DeletePod)]
    [report] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert report.message.startswith("Slurm knows no job 17 of this pod. The pod is left alone")


def test_a_grant_for_a_pod_whose_namespace_lost_its_label_meanwhile_is_released() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.sees(UNMANAGED)
    story.ended(asked, at=NOW + 1, job_id=17, grant=grant(17))
    acts = story.decides(NOW + 1)
    assert not [each for each in acts if isinstance(each, BindPod)]
    [cancel] = [each for each in acts if isinstance(each, CancelJob)]
    assert "Namespace hpc is not managed by slurm-bridge" in cancel.reason
    story.ended(cancel, Outcome.DONE, at=NOW + 2)
    said = [each.condition for at in (8, 14) for each in story.acts(SetPodCondition, NOW + at)]
    assert said == [names.GRANT_RELEASED, names.NOT_MANAGED]


def test_a_member_that_takes_a_place_in_a_gang_that_runs_waits_for_the_label_and_the_others_run_on() -> None:
    story = Story()
    gang = {"labels": {names.PREFIX + names.GANG: "ring"}, "says": {"gang-size": "2"}}
    members = [pod(f"w-{number}", **gang) for number in (0, 1)]
    story.sees(*members)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17, cpus=2, memory=200))
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, at=NOW)
    shown = [story.bound(each, 17) for each in members]
    story.sees(*shown)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(UNMANAGED)
    story.loses(replace(shown[1], phase=PodPhase.FAILED), NOW + 2)
    story.sees(replace(members[1], uid="uid-new", created=NOW + 3))
    acts = story.decides(NOW + 20)
    assert not [each for each in acts if isinstance(each, BindPod | CancelJob | FailByDeadline)]
    [report] = [each for each in acts if isinstance(each, SetPodCondition)]
    assert "Namespace hpc is not managed" in report.message
    story.sees(MANAGED)
    assert [each.uid for each in story.acts(BindPod, NOW + 30)] == ["uid-new"]
