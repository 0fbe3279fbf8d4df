"""Annotations that only the bridge writes: an edit by anybody else is written back, and said once (K5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest

from scheduler import names
from scheduler.actions import Action, AllocateNow, BindPod, Outcome, ReadJob, RestoreKeys, SetPodCondition
from scheduler.events import NamespaceSeen, PodsListed, Scope
from scheduler.model.kubernetes import Namespace, Pod, PodPhase
from scheduler.state.own_keys import own_annotation
from tests.builders import CONFIG, OF_A_BIND, START, Story, grant, job_of, pod
from tests.unit.scheduler.test_gangs import granted, ring
from tests.unit.scheduler.test_gangs import runs as gang_runs

NOW = START + 20
TRAIN = pod("train")


def bound(story: Story, what: Pod = TRAIN) -> Pod:
    """The pod as the watch shows it after our bind, with all that the bind wrote."""
    bind = story.binds(what, 17, at=NOW)
    story.ended(bind, at=NOW)
    shown = replace(story.bound(what, 17), annotations={**what.annotations, **bind.annotations})
    story.sees(shown)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    return shown


def edited(shown: Pod, **keys: str) -> Pod:
    return replace(
        shown, annotations={**shown.annotations, **{names.PREFIX + k.replace("_", "-"): v for k, v in keys.items()}}
    )


def restores(actions: list[Action]) -> list[tuple[Mapping[str, str | None], bool]]:
    assert not [each for each in actions if not isinstance(each, RestoreKeys)], "nothing else follows from it"
    return [(each.annotations, each.say) for each in actions if isinstance(each, RestoreKeys)]


def test_a_member_stays_in_its_gang_whatever_a_client_writes_on_it_before_the_watch_shows_its_bind() -> None:
    """It looks like a pod that was bound by itself, for a job that nobody knows."""
    story, pods = Story(), ring(2)
    story.sees(*pods)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=granted(17, ("x1", 2)))
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, at=NOW)
    story.sees(story.bound(pods[0], 17), edited(story.bound(pods[1], 17), size="1", job_id="99"))
    assert len({story.world.key_of_pod[each.uid] for each in pods}) == 1


@pytest.mark.parametrize(
    ("key", "invented", "right"),
    [("job-id", "4", "17"), ("job-nodes", "x9", "x1"), ("job-gpus", "0-7", ""), ("size", "9", "1"), ("rank", "3", "0")],
)
def test_an_edit_by_another_client_is_undone_and_reported(key: str, invented: str, right: str) -> None:
    story = Story()
    shown = bound(story)
    story.sees(edited(shown, **{key: invented}))
    [restore] = story.acts(RestoreKeys, NOW + 2)
    assert restore.annotations == {names.PREFIX + key: right}
    assert restore.say
    assert restore.reason == (
        f"Changed by another client and written back: {names.PREFIX + key}. Only slurm-bridge writes there."
    )
    story.ended(restore, at=NOW + 2)
    story.sees(shown)
    assert story.decides(NOW + 20) == []


def test_a_key_that_was_taken_away_comes_back() -> None:
    story = Story()
    shown = bound(story)
    without = {key: value for key, value in shown.annotations.items() if key != names.RANK}
    story.sees(replace(shown, annotations=without))
    assert restores(story.decides(NOW + 2)) == [({names.RANK: "0"}, True)]


@pytest.mark.parametrize(("key", "value"), [(names.JOB_GPUS, "0"), (names.JOB_SINCE, "1970-01-01T00:17:10Z")])
def test_a_key_that_the_bind_did_not_write_is_taken_away_again(key: str, value: str) -> None:
    """A pod that an older bridge bound shows no job-gpus, and a pod in the job of its bind no job-since."""
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(replace(shown, annotations={**shown.annotations, key: value}))
    assert restores(story.decides(NOW + 2)) == [({key: None}, True)]


def test_an_edit_between_the_bind_and_the_first_look_at_it_is_written_back_too() -> None:
    """The watch broke off, and the list that follows shows both at once."""
    story = Story()
    bind = story.binds(TRAIN, 17, at=NOW)
    story.ended(bind, at=NOW)
    shown = replace(story.bound(TRAIN, 17), annotations={**bind.annotations, names.JOB_GPUS: "0-7"})
    story.sees(PodsListed(Scope.OURS, (shown,), NOW + 1))
    story.polls({17: "RUNNING"}, at=NOW + 1)
    assert restores(story.decides(NOW + 2)) == [({names.JOB_GPUS: ""}, True)]


def test_what_a_bind_of_a_previous_process_wrote_is_no_edit_though_the_bind_takes_effect_late() -> None:
    story = Story()
    old = replace(TRAIN, created=START - 60)
    story.sees(old)
    story.polls({17: "RUNNING"}, at=START + 1)
    story.reads(job_of(old, 17, submitted=START - 50), at=START + 1, granted=grant(17))
    story.sees(replace(story.bound(old, 17), annotations={**OF_A_BIND, names.JOB_ID: "17"}))
    assert restores(story.decides(START + 30)) == []


def test_what_a_pod_wrote_itself_is_left_there_if_another_client_binds_it_to_another_node() -> None:
    """The bind of the bridge, which is on its way, will not succeed."""
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.sees(edited(TRAIN, job_gpus="0-7"))
    story.polls({17: "RUNNING"}, at=NOW + 3)
    story.reads(job_of(TRAIN, 17), at=NOW + 4, granted=grant(17))
    assert len(story.acts(BindPod, NOW + 4)) == 1
    stray = replace(edited(TRAIN, job_gpus="0-7"), node="x2", phase=PodPhase.RUNNING)
    story.sees(stray)
    [workload] = story.world.workloads.values()
    assert own_annotation(workload, stray, names.JOB_GPUS) == "0-7"


def test_a_controller_that_writes_the_same_edit_again_is_reported_once_and_undone_ever_more_slowly() -> None:
    story = Story()
    shown = bound(story)
    written = []
    for second in range(0, 3600, 5):
        at = NOW + 2 + second
        story.sees(edited(shown, job_gpus="0-7"))
        story.polls({17: "RUNNING"}, at=at)
        for action in story.decides(at):
            if isinstance(action, ReadJob):
                story.reads(job_of(TRAIN, 17, ends=START + 1e6, starts=START), at=at, granted=grant(17))
            else:
                assert isinstance(action, RestoreKeys)
                written.append((second, action.say))
                story.sees(shown)
            story.ended(action, at=at)
    assert [said for _, said in written] == [True] + [False] * (len(written) - 1)
    assert 5 <= len(written) <= 12
    pauses = [later - earlier for (earlier, _), (later, _) in pairwise(written)]
    assert pauses == sorted(pauses), "each pause is at least as long as the one before"


def test_annotations_that_could_not_be_restored_are_restored_and_reported_later() -> None:
    story = Story()
    shown = bound(story)
    story.sees(edited(shown, job_gpus="0-7"))
    [restore] = story.acts(RestoreKeys, NOW + 2)
    story.ended(restore, Outcome.UNREACHED, at=NOW + 3)
    assert story.acts(RestoreKeys, NOW + 4) == []
    [again] = story.acts(RestoreKeys, NOW + 9)
    assert again.say


def test_several_edits_are_one_write_and_a_second_edit_does_not_hide_the_right_value() -> None:
    story = Story()
    shown = bound(story)
    story.sees(edited(shown, job_gpus="0"))
    story.sees(edited(shown, job_gpus="1", rank="7"))
    assert restores(story.decides(NOW + 2)) == [({names.JOB_GPUS: "", names.RANK: "0"}, True)]


def test_edits_of_pods_in_a_namespace_that_is_managed_no_more_are_left_alone() -> None:
    story = Story()
    shown = bound(story)
    story.sees(NamespaceSeen(Namespace("hpc", "1")))
    story.sees(edited(shown, job_gpus="0"))
    assert story.decides(NOW + 2) == []


def test_a_pod_that_wrote_a_key_while_its_job_waited_is_reported_and_what_it_wrote_does_not_survive_the_bind() -> None:
    story = Story()
    story.queues(TRAIN, 17, at=NOW)
    story.polls({17: "PENDING"}, at=NOW + 1)
    story.sees(edited(TRAIN, job_gpus="0-7"))
    [report] = story.acts(SetPodCondition, NOW + 2)
    assert "Annotation slurm-bridge/job-gpus is written only by slurm-bridge" in report.message
    story.polls({17: "RUNNING"}, at=NOW + 3)
    story.reads(job_of(TRAIN, 17), at=NOW + 4, granted=grant(17))
    [bind] = story.acts(BindPod, NOW + 4)
    assert bind.annotations[names.JOB_GPUS] == ""


def test_what_a_member_wrote_into_job_gpus_takes_no_device_from_the_others() -> None:
    """With a device driver: a replacement gets the GPUs of its place, whatever other pods show."""
    story = Story(replace(CONFIG, device_driver=True))
    gang = {"labels": {names.PREFIX + names.GANG: "ring"}, "says": {"gang-size": "2"}}
    first, second = pod("w-0", gpu=1, **gang), pod("w-1", gpu=1, **gang)
    story.sees(first, second)
    [asked] = story.acts(AllocateNow, NOW)
    granted = grant(17, cpus=2, memory=200, gpu=2)
    held = replace(granted.nodes[0], indices={"gpu": "0-1"})
    story.ended(asked, at=NOW, job_id=17, grant=replace(granted, nodes=(held,)))
    shown = {}
    for bind in story.acts(BindPod, NOW):
        story.ended(bind, at=NOW)
        what = {"w-0": first, "w-1": second}[bind.name]
        shown[bind.name] = replace(story.bound(what, 17), annotations={**what.annotations, **bind.annotations})
    story.sees(*shown.values())
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(edited(shown["w-0"], job_gpus="1"))
    story.loses(shown["w-1"], NOW + 2)
    story.sees(replace(second, uid="uid-new", created=NOW + 2))
    [bind] = story.acts(BindPod, NOW + 20)
    assert bind.annotations[names.JOB_GPUS] == "1"


def test_what_a_bind_in_flight_writes_counts_before_the_watch_shows_it() -> None:
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17))
    assert len(story.acts(BindPod, NOW)) == 1
    [workload] = story.world.workloads.values()
    assert own_annotation(workload, TRAIN, names.JOB_ID) == "17"
    assert own_annotation(workload, replace(TRAIN, annotations={names.JOB_GPUS: "0"}), names.JOB_GPUS) == ""


def test_what_another_client_writes_on_a_pod_that_has_ended_is_left_there() -> None:
    story = Story()
    first, second = gang_runs(story, ring(2), ("x1", 2), at=NOW)
    name = story.world.placeholders[17].name
    job = replace(job_of(TRAIN, 17), name=name, tasks=2)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.reads(job, at=NOW + 1, granted=granted(17, ("x1", 2)))
    story.sees(edited(replace(first, phase=PodPhase.SUCCEEDED, exit_code=0), job_id="4"), edited(second, job_id="4"))
    assert [each.name for each in story.acts(RestoreKeys, NOW + 2)] == [second.name]
