"""A node's kubelet says nothing: its pods' placeholder lasts as long as they may still run (S8, V3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.actions import (
    Action,
    AllocateNow,
    BindPod,
    CancelJob,
    DeletePod,
    FailByDeadline,
    ReadJob,
    SetDeadline,
    SetPodCondition,
)
from scheduler.events import Event, NodeDeleted, NodeSeen, NodesListed, OwnerRead, PodSeen, Scope
from scheduler.model.kubernetes import OwnerRef, Pod, PodPhase
from scheduler.model.slurm import Job
from scheduler.state import quarantine
from tests.builders import CLUSTER, START, A, Story, grant, job_of, key_of, node, pod
from tests.unit.scheduler.test_gangs import JOB, granted, member, ring
from tests.unit.scheduler.test_gangs import runs as gang_runs
from tests.unit.scheduler.test_running import ALONE, ENDS

NOW = START + 20
TRAIN = pod("train", gpu=8, grace_s=5)
SILENT = node("x1", ready=False, kubelet_silent_since=NOW + 10)


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


def test_a_node_that_reports_again_in_time_keeps_the_job() -> None:
    story = Story()
    shown = runs(story)
    story.sees(NodeSeen(SILENT), replace(shown, deleting_at=NOW + 25))
    assert cancels(story, NOW + 200) == []
    story.sees(NodeSeen(node("x1")))
    assert cancels(story, NOW + 400) == []
    story.sees(replace(shown, deleting_at=NOW + 25, phase=PodPhase.SUCCEEDED))
    assert len(cancels(story, NOW + 401)) == 1


def test_the_job_of_a_pod_that_had_ended_before_it_was_deleted_ends_at_once() -> None:
    story = Story()
    over = replace(runs(story), phase=PodPhase.SUCCEEDED)
    story.sees(NodeSeen(SILENT), over)
    story.loses(over, NOW + 25)
    assert len(cancels(story, NOW + 26)) == 1


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


@pytest.mark.parametrize(
    "then",
    [NodeSeen(node("x1")), NodeDeleted("x1"), NodesListed((node("x2"),))],
    ids=["speaks again", "is gone", "a list lacks it"],
)
def test_the_job_of_a_pod_on_a_silent_node_ends_as_soon_as_the_node_reports_again(then: Event) -> None:
    story = Story()
    shown = runs(story)
    story.sees(NodeSeen(SILENT))
    story.loses(shown, NOW + 20)
    assert cancels(story, NOW + 36) == []
    story.sees(then)
    assert len(cancels(story, NOW + 60)) == 1


def test_a_pod_that_is_deleted_by_force_from_a_node_that_reports_has_its_grace() -> None:
    story = Story()
    story.loses(runs(story), NOW + 20)
    assert cancels(story, NOW + 34) == []
    assert len(cancels(story, NOW + 35)) == 1


def test_a_pod_whose_node_is_deleted_keeps_its_job_while_its_containers_may_run() -> None:
    """The pod garbage collector writes Failed and deletes the object.  Kubelet ends the containers after that, with grace."""
    story = Story()
    failed = replace(runs(story), phase=PodPhase.FAILED, outlives_phase=True)
    story.sees(NodeDeleted("x1"), PodSeen(Scope.OURS, failed, NOW + 20))
    assert cancels(story, NOW + 20) == []
    story.loses(failed, NOW + 20)
    assert cancels(story, NOW + 34) == []
    assert len(cancels(story, NOW + 35)) == 1


def test_a_pod_whose_node_is_deleted_keeps_its_job_no_longer_if_a_finalizer_keeps_its_object() -> None:
    story = Story()
    failed = replace(runs(story), phase=PodPhase.FAILED, outlives_phase=True, deleting_at=NOW + 20)
    story.sees(NodeDeleted("x1"), PodSeen(Scope.OURS, failed, NOW + 20))
    assert cancels(story, NOW + 34) == []
    assert len(cancels(story, NOW + 35)) == 1


def test_two_tenants_never_hold_one_gpu_though_slurm_gives_it_again() -> None:
    """The node comes back with the old pod still on it: what Slurm grants there is released until that is gone."""
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
        "released: on node x1 hpc/train still terminates"
    ]
    assert [act for act in acts if isinstance(act, BindPod)] == []


def test_a_gang_whose_member_is_replaced_while_its_node_is_silent_is_restarted() -> None:
    """The gang cannot go on without the lost pod, and nothing will ever show that this pod is gone."""
    story = Story()
    pods = ring(2)
    lost = next(each for each in gang_runs(story, pods, ("x1", 1), ("x2", 1)) if each.node == "x1")
    story.sees(NodeSeen(SILENT), replace(lost, deleting_at=NOW + 25))
    story.sees(replace(pods[0], uid="new", name="w-new", created=NOW + 26))
    assert [cancels(story, NOW + at) for at in (30, 309)] == [[], []]
    [cancel] = cancels(story, NOW + 310)
    assert cancel.job_id == 17


def test_a_gang_of_which_one_pod_is_deleted_on_a_silent_node_keeps_its_job_while_nobody_waits_for_the_place() -> None:
    story = Story()
    shown = gang_runs(story, ring(2), ("x1", 1), ("x2", 1))
    lost = next(each for each in shown if each.node == "x1")
    story.sees(NodeSeen(SILENT), replace(lost, deleting_at=NOW + 25))
    assert [cancels(story, NOW + at) for at in (30, 310, 900)] == [[], [], []]


def test_a_gang_whose_member_is_replaced_keeps_its_job_if_no_pod_is_deleted_on_the_silent_node() -> None:
    story = Story()
    pods = ring(2)
    shown = gang_runs(story, pods, ("x1", 1), ("x2", 1))
    gone = next(each for each in shown if each.node == "x2")
    story.sees(NodeSeen(SILENT))
    story.loses(replace(gone, phase=PodPhase.FAILED), NOW + 25)
    story.sees(replace(gone, uid="new", node="", annotations=pods[0].annotations, phase=PodPhase.PENDING))
    assert [cancels(story, NOW + at) for at in (30, 310, 900)] == [[], [], []]


# --- a gang whose member is on a node that stays silent ---------------------------------------------------------------


def loses_a_node(story: Story, *, owner: OwnerRef | None = JOB) -> tuple[list[Pod], Pod]:
    """Of a gang of two one runs on x1; the other's node x2 is silent since NOW + 10, and its replacement has come."""
    story.sees(OwnerRead(JOB, None, NOW, "hpc"))
    pods = [member(number, 2, owner=owner) for number in range(2)]
    shown = gang_runs(story, pods, ("x1", 1), ("x2", 1), at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 10)
    story.sees(NodeSeen(node("x2", ready=False, kubelet_silent_since=NOW + 10)))
    new = member(1, 2, owner=owner, uid="uid-two", created=NOW + 40)
    return shown, new


def goes_on(story: Story, shown: list[Pod], since: float, until: float) -> dict[float, list[Action]]:
    """All actions succeed; deleted pods on x1 end, and their Job replaces them.  Returns the actions and their times."""
    done: dict[float, list[Action]] = {}
    again = member(0, 2, owner=shown[0].owner, uid="uid-zero", created=since)
    at = since
    while at < until:
        done[at] = story.decides(at)
        for action in done[at]:
            if isinstance(action, AllocateNow):
                story.ended(action, at=at, job_id=18, grant=granted(18, ("x1", 1), ("x3", 1)))
                continue
            story.ended(action, at=at)
            if isinstance(action, DeletePod | FailByDeadline) and action.uid == shown[0].uid:
                story.loses(replace(shown[0], phase=PodPhase.FAILED, deleting_at=at), at)
                story.sees(again)
        jobs = story.world.placeholders.values()
        story.polls({each.id: "CANCELLED" if each.ended else "RUNNING" for each in jobs}, at=at + 0.5)
        at += 1
    return done


def acts_of(kind: type[A], done: dict[float, list[Action]]) -> list[tuple[float, A]]:
    return [(at, each) for at, acts in done.items() for each in acts if isinstance(each, kind)]


def test_a_gang_goes_on_without_the_pod_that_a_dead_node_keeps() -> None:
    """Its pod on x2 terminates for ever; after five minutes a new job is submitted for the others, and they are bound."""
    story = Story(nodes=[node("x1"), node("x2"), node("x3")])
    shown, new = loses_a_node(story)
    story.sees(replace(shown[1], deleting_at=NOW + 40), new)
    done = goes_on(story, shown, NOW + 41, NOW + 330)
    [(cancelled, cancel)] = acts_of(CancelJob, done)
    assert (cancelled, cancel.job_id) == (NOW + 310, 17)
    [(asked, allocate)] = acts_of(AllocateNow, done)
    assert NOW + 310 < asked < NOW + 320
    assert allocate.spec.tasks == 2
    assert {bind.uid for _, bind in acts_of(BindPod, done)} == {"uid-zero", "uid-two"}


def test_new_members_say_which_pod_on_which_dead_node_they_wait_for_and_how_long() -> None:
    """Their job was cancelled meanwhile, so that they wait for the end of that pod alone."""
    story = Story(nodes=[node("x1"), node("x2"), node("x3")])
    shown, new = loses_a_node(story)
    story.sees(replace(shown[1], deleting_at=NOW + 40), new)
    story.polls({17: "CANCELLED"}, at=NOW + 45)
    [read] = story.acts(ReadJob, NOW + 46)
    [workload] = story.world.workloads.values()
    name = f"hpc/ring~{story.world.cluster}.{workload.key}"
    job = Job(17, name, "alice", frozenset({"CANCELLED"}), partition="main", nodes="x[1-2]")
    story.reads(job, at=NOW + 46)
    story.ended(read, at=NOW + 46)
    done = goes_on(story, shown, NOW + 47, NOW + 200)
    said = [each.message for _, each in acts_of(SetPodCondition, done) if each.name == "w-1" and "x2" in each.message]
    assert said[-1].startswith(
        "Nodes are requested when the pods of the former job of hpc/ring have ended. These still run:"
    )
    assert (
        "hpc/w-1 on node x2, whose kubelet has not reported since 00:17 UTC (the pod counts as over at 00:22 UTC)"
        in said[-1]
    )
    assert acts_of(AllocateNow, done) == []
    assert len(acts_of(AllocateNow, goes_on(story, shown, NOW + 200, NOW + 320))) == 1


def test_a_pod_without_a_controller_that_a_dead_node_does_not_end_keeps_the_gang_no_longer() -> None:
    """Nobody deletes it: it was to be ended by its kubelet's deadline, which does nothing on a dead node."""
    story = Story(nodes=[node("x1"), node("x2"), node("x3")])
    shown, new = loses_a_node(story, owner=None)
    story.polls({17: "CANCELLED"}, at=NOW + 45)
    goes_on(story, shown, NOW + 46, NOW + 60)
    [workload] = story.world.workloads.values()
    story.reads(replace(job_of(shown[0], 17, "CANCELLED"), name=f"hpc/ring~{CLUSTER}.{workload.key}"), at=NOW + 60)
    goes_on(story, shown, NOW + 60, NOW + 100)
    story.sees(new)
    done = goes_on(story, shown, NOW + 100, NOW + 400)
    assert {bind.uid for _, bind in acts_of(BindPod, done)} == {"uid-zero", "uid-two"}


def test_a_node_that_reports_again_ends_the_pod_and_the_gang_stays_as_it_is() -> None:
    story = Story(nodes=[node("x1"), node("x2"), node("x3")])
    shown, new = loses_a_node(story)
    dying = replace(shown[1], deleting_at=NOW + 40)
    story.sees(dying, new)
    goes_on(story, shown, NOW + 41, NOW + 330)
    story.sees(NodeSeen(node("x2")), replace(dying, phase=PodPhase.FAILED))
    story.loses(dying, NOW + 331)
    done = goes_on(story, shown, NOW + 331, NOW + 400)
    assert acts_of(CancelJob, done) == acts_of(DeletePod, done) == []


# --- whatever the API server's clock says -----------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [-7200.0, -200.0, 200.0, 7200.0])
def test_five_minutes_of_silence_count_from_when_the_bridge_saw_it(ahead: float) -> None:
    story = Story()
    shown = runs(story)
    story.polls({17: "RUNNING"}, at=NOW + 10)
    silent = node("x1", ready=False, kubelet_silent_since=NOW + 10 + ahead)
    story.sees(NodeSeen(silent), replace(shown, deleting_at=NOW + 25 + ahead))
    assert [cancels(story, NOW + at) for at in (26, 100, 309)] == [[], [], []]
    assert len(cancels(story, NOW + 310)) == 1


# --- a grace of centuries -----------------------------------------------------------------------------------------------

CENTURIES = 10_000_000_000  # seconds; Kubernetes takes any grace


def test_no_grace_keeps_a_job_for_centuries() -> None:
    story = Story()
    shown = story.runs(replace(TRAIN, grace_s=CENTURIES), 17, at=NOW)
    story.loses(shown, NOW + 20)
    assert cancels(story, NOW + 20 + 309) == []
    assert len(cancels(story, NOW + 20 + 310)) == 1


def test_no_grace_keeps_the_job_of_a_workload_in_quarantine_for_centuries() -> None:
    story = Story(guarded=True)
    shown = story.runs(replace(TRAIN, grace_s=CENTURIES), 17, at=NOW)
    quarantine.quarantine_workload(story.world, key_of(shown), ValueError("a defect"))
    story.loses(shown, NOW + 20)
    assert story.world.workloads[key_of(shown)].deleted_pods[shown.uid].until == NOW + 20 + 310


def test_no_grace_keeps_the_job_of_a_pod_that_is_deleted_on_a_silent_node_for_centuries() -> None:
    story = Story()
    shown = story.runs(replace(TRAIN, grace_s=CENTURIES), 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 50)
    story.sees(NodeSeen(SILENT), replace(shown, deleting_at=NOW + 50 + CENTURIES))
    assert cancels(story, NOW + 349) == []
    assert len(cancels(story, NOW + 350)) == 1


def test_a_grant_does_not_wait_for_centuries_for_the_pod_in_its_place() -> None:
    story = Story()
    leaving = pod("leaving", cpu=60_000, node="x1", grace_s=CENTURIES, deleting_at=NOW + CENTURIES, namespace="other")
    story.polls({}, at=NOW)
    story.sees(PodSeen(Scope.OTHERS, leaving))
    story.sees(pod("next", cpu=8000))
    [asked] = story.acts(AllocateNow, NOW)
    story.ended(asked, at=NOW, job_id=17, grant=grant(17, cpus=8))
    assert cancels(story, NOW + 359) == []
    [cancel] = cancels(story, NOW + 360)
    assert cancel.reason == "released: on node x1 other/leaving still terminates"


def test_a_pod_on_a_silent_node_is_not_written_off_because_a_deadline_is_in_flight() -> None:
    story = Story(ALONE)
    pods = ring(2)
    shown = [replace(each, started=NOW, bound_at=NOW) for each in gang_runs(story, pods, ("x1", 1), ("x2", 1), at=NOW)]
    story.sees(*shown)
    name = story.world.placeholders[17].name
    job = replace(job_of(pods[0], 17), name=name, starts=NOW, ends=ENDS, time_limit_min=60)
    held = granted(17, ("x1", 1), ("x2", 1))
    story.reads(job, at=NOW + 2, granted=held)
    story.sees(NodeSeen(node("x1", ready=False, kubelet_silent_since=NOW + 10)))
    at = ENDS - 119
    [read] = story.acts(ReadJob, at)
    story.reads(job, at=at, granted=held)
    story.ended(read, at=at)
    deadlines = story.acts(SetDeadline, at)
    assert len(deadlines) == 2
    for each in deadlines:
        story.ended(each, at=at)
    gone = next(each for each in shown if each.node == "x2")
    story.loses(replace(gone, phase=PodPhase.FAILED), at + 1)
    story.sees(member(2, 2, created=at + 1))
    story.polls({17: "TIMEOUT"}, at=at + 20)
    reads = story.acts(ReadJob, at + 20)
    story.reads(replace(job, states=frozenset({"TIMEOUT"})), at=at + 20, granted=held)
    for read in reads:
        story.ended(read, at=at + 20)
    plan = story.plan(at + 20)
    assert plan.written_off == ()


def test_a_pod_on_a_silent_node_is_written_off_only_if_another_pod_waits_for_its_end() -> None:
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    story.polls({17: "RUNNING"}, at=NOW + 1)
    story.sees(NodeSeen(node("x1", ready=False, kubelet_silent_since=NOW + 10)), replace(shown, deleting_at=NOW + 25))
    story.polls({17: "CANCELLED"}, at=NOW + 30)
    for second in range(30, 600, 10):
        plan = story.plan(NOW + second)
        for read in [each for each in plan.actions if isinstance(each, ReadJob)]:
            story.reads(job_of(TRAIN, 17, "CANCELLED"), at=NOW + second)
            story.ended(read, at=NOW + second)
        assert plan.written_off == ()
        assert not plan.wake or min(plan.wake.values()) > NOW + second
