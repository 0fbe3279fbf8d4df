"""A node's kubelet says nothing: its pods' placeholder lasts as long as they may still run (S8, V3)."""

from __future__ import annotations

from dataclasses import replace

from scheduler.actions import AllocateNow, BindPod, CancelJob
from scheduler.events import NodeSeen
from scheduler.model import Pod, PodPhase
from tests.builders import START, Story, grant, node, pod
from tests.unit.scheduler.test_gangs import ring
from tests.unit.scheduler.test_gangs import runs as gang_runs

NOW = START + 20
TRAIN = pod("train", gpu=8, grace_s=5)
SILENT = node("x1", ready=False, silent_since=NOW + 10)


def runs(story: Story) -> Pod:
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    return shown


def cancels(story: Story, at: float) -> list[CancelJob]:
    story.polls({17: "RUNNING"}, at=at)
    return story.acts(CancelJob, at)


def test_the_job_of_a_pod_that_is_deleted_there_ends_when_the_node_has_been_silent_for_five_minutes() -> None:
    story = Story()
    shown = runs(story)
    story.sees(NodeSeen(SILENT), replace(shown, deleting_at=NOW + 25))
    assert [cancels(story, NOW + at) for at in (26, 100, 309)] == [[], [], []]
    plan = story.plan(NOW + 309)
    assert plan.wake_at is not None
    assert plan.wake_at <= NOW + 310
    [cancel] = cancels(story, NOW + 310)
    assert cancel.reason == "its pods are being deleted, and node x1 has said nothing for 300 s"


def test_a_node_that_speaks_again_in_time_keeps_the_job() -> None:
    story = Story()
    shown = runs(story)
    story.sees(NodeSeen(SILENT), replace(shown, deleting_at=NOW + 25))
    assert cancels(story, NOW + 200) == []
    story.sees(NodeSeen(node("x1")))
    assert cancels(story, NOW + 400) == []
    story.sees(replace(shown, deleting_at=NOW + 25, phase=PodPhase.SUCCEEDED))
    assert len(cancels(story, NOW + 401)) == 1


def test_a_pod_that_is_not_deleted_keeps_its_job_however_long_the_node_is_silent() -> None:
    story = Story()
    runs(story)
    story.sees(NodeSeen(SILENT))
    assert cancels(story, NOW + 3600) == []


def test_a_pod_taken_away_by_force_keeps_its_job_as_long_as_it_may_run_there() -> None:
    story = Story()
    shown = runs(story)
    story.sees(NodeSeen(SILENT))
    story.loses(shown, NOW + 20)
    assert [cancels(story, NOW + at) for at in (36, 100, 309)] == [[], [], []]
    assert len(cancels(story, NOW + 310)) == 1


def test_taken_away_by_force_from_a_node_that_speaks_it_has_its_grace() -> None:
    story = Story()
    story.loses(runs(story), NOW + 20)
    assert cancels(story, NOW + 34) == []
    assert len(cancels(story, NOW + 35)) == 1


def test_two_tenants_never_hold_one_gpu_though_slurm_gives_it_again() -> None:
    """The node comes back with the old pod still on it: what Slurm grants there is given back until that is gone."""
    story = Story(nodes=[node("x1")])
    shown = replace(runs(story), deleting_at=NOW + 25)
    story.sees(NodeSeen(SILENT), shown)
    [cancel] = cancels(story, NOW + 310)
    story.ended(cancel, at=NOW + 310)
    story.sees(NodeSeen(node("x1")), pod("next", gpu=8, created=NOW + 311))
    [asked] = story.acts(AllocateNow, NOW + 312)
    story.ended(asked, at=NOW + 312, job_id=18, grant=grant(18, gpu=8))
    acts = story.decides(NOW + 312)
    assert [act.reason for act in acts if isinstance(act, CancelJob)] == [
        "given back: on node x1 hpc/train still terminates"
    ]
    assert [act for act in acts if isinstance(act, BindPod)] == []


def test_a_gang_whose_member_is_replaced_while_its_node_is_silent_is_started_anew() -> None:
    """It cannot go on without, and nobody will ever say that the lost one is gone."""
    story = Story()
    pods = ring(2)
    lost = next(each for each in gang_runs(story, pods, ("x1", 1), ("x2", 1)) if each.node == "x1")
    story.sees(NodeSeen(SILENT), replace(lost, deleting_at=NOW + 25))
    story.sees(replace(pods[0], uid="new", name="w-new", created=NOW + 26))
    assert [cancels(story, NOW + at) for at in (30, 309)] == [[], []]
    [cancel] = cancels(story, NOW + 310)
    assert cancel.job_id == 17
