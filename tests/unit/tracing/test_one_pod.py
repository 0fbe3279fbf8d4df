"""The trace of a pod by itself (O3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.tracing import describe
from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, Outcome
from scheduler.events import ClockObserved, PodDeleted, Scope, Side
from scheduler.model.kubernetes import Container, OwnerRef, Pod, PodPhase, PodTimes
from tests.builders import CLUSTER, START, grant, job_of, key_of, pod
from tests.traces import Backend, adds_up
from tests.unit.tracing.stories import Traced

T = START + 100
TRAIN = pod("train", created=T)
RAN = PodTimes(running=T + 8, ended=T + 20, containers=("main",), images=("busybox:1",))


def lives(story: Traced, what: Pod) -> None:
    """Created at T, seen, allocated at once and bound within a second; it runs from T+8 to T+21."""
    story.now = T + 0.4
    story.sees(what)
    [asked] = story.acts(AllocateNow, T + 0.5)
    story.does(asked, T + 0.6, took=0.1, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, T + 0.7)
    story.does(bind, T + 0.8, took=0.1)
    runs_and_ends(story, what)


def runs_and_ends(story: Traced, what: Pod, times: PodTimes = RAN) -> None:
    story.now = T + 9.2
    running = story.bound(what, 17, phase=PodPhase.RUNNING, started=T + 2, bound_at=T, times=replace(times, ended=None))
    story.sees(running)
    story.now = T + 20.7
    story.sees(replace(running, phase=PodPhase.SUCCEEDED, exit_code=0, times=times))
    [cancel] = story.acts(CancelJob, T + 20.8)
    story.does(cancel, T + 20.9, took=0.1)


def granted_at_once(backend: Backend) -> tuple[Traced, BindPod]:
    """Slurm has nodes for the pod at T + 1; the bind is planned, and not sent."""
    story = Traced(backend)
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, T + 1)
    story.does(asked, T + 1, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, T + 1)
    return story, bind


def test_the_steps_of_a_pod_follow_each_other_and_are_the_whole() -> None:
    backend = Backend()
    story = Traced(backend)
    lives(story, TRAIN)
    story.stops(T + 30)
    root = backend.one("workload")
    steps = backend.below(root)
    assert [(step.name, round(step.start - T, 3), round(step.end - T, 3)) for step in steps] == [
        ("create", 0.0, 0.4),
        ("submit", 0.4, 0.5),
        ("queue", 0.5, 0.6),
        ("grant", 0.6, 0.7),
        ("bind", 0.7, 0.8),
        ("start", 0.8, 9.0),
        ("run", 9.0, 20.7),
        ("release", 20.7, 20.9),
    ]
    assert adds_up(steps, root)
    assert adds_up(backend.below(backend.one("start")), backend.one("start"))
    assert backend.orphans() == []


def test_the_ids_follow_from_the_key_of_the_workload() -> None:
    backend, other = Backend(), Backend()
    for each in (backend, other):
        story = Traced(each)
        lives(story, TRAIN)
        story.stops(T + 30)
    _, trace_id, root_id, _ = names.traceparent(CLUSTER, key_of(TRAIN)).split("-")
    assert {span.trace for span in backend.spans} == {trace_id}
    assert backend.one("workload").id == root_id
    assert backend.one("workload").parent == ""
    assert [span.id for span in backend.spans] == [span.id for span in other.spans]
    assert len({span.id for span in backend.spans}) == len(backend.sent)


def test_spans_say_which_pod_and_which_job_they_are_about() -> None:
    backend = Backend()
    story = Traced(backend)
    lives(story, TRAIN)
    story.stops(T + 30)
    about = backend.one("workload").attributes
    assert (
        about.items()
        >= {
            "k8s.namespace.name": "hpc",
            "k8s.pod.name": "train",
            "k8s.pod.uid": "uid-train",
            "k8s.node.name": "x1",
            "slurm.job.id": 17,
            "slurm.user": "alice",
            "slurm.clock_offset_s": 0,
            "slurm_bridge.workload": key_of(TRAIN),
            "slurm_bridge.end": "hpc/train: Succeeded",
        }.items()
    )
    owned = replace(TRAIN, owner=OwnerRef("batch/v1", "Job", "nightly", "uid-nightly"))
    assert describe.pod(owned)["k8s.job.name"] == "nightly"
    assert backend.one("bind").attributes["k8s.node.name"] == "x1"
    assert backend.one("containers").attributes["slurm_bridge.images"] == ("busybox:1",)
    assert backend.one("run").attributes["slurm_bridge.exit_code"] == 0


def test_the_time_between_bind_and_start_is_split_as_kubelet_shows_it() -> None:
    backend = Backend()
    story = Traced(backend)
    init = replace(TRAIN, init_containers=(Container("fetch"),))
    story.now = T + 0.4
    story.sees(init)
    [asked] = story.acts(AllocateNow, T + 0.5)
    story.does(asked, T + 0.6, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, T + 0.7)
    story.does(bind, T + 0.8)
    runs_and_ends(story, init, replace(RAN, sandbox=T + 3, initialized=T + 6))
    story.stops(T + 30)
    steps = [(step.name, round(step.end - T, 3)) for step in backend.below(backend.one("start"))]
    assert steps == [("kubelet", 2.0), ("sandbox", 3.0), ("init", 6.0), ("containers", 9.0)]


def test_a_pod_that_waits_shows_each_reason_of_slurm_in_turn() -> None:
    backend = Backend()
    story = Traced(backend)
    story.now = T + 0.4
    story.queues(TRAIN, 17, at=T + 1)
    for at, reason in ((2, "Resources"), (5, "Resources"), (9, "Priority"), (30, "Resources")):
        story.polls({17: "PENDING"}, at=T + at)
        story.reads(job_of(TRAIN, 17, "PENDING", reason=reason, submitted=T + 1), at=T + at)
        story.telemetry._export.flush()
    assert backend.names() == ["Resources", "Priority"], "what is over is sent at once"
    story.polls({17: "RUNNING"}, at=T + 40)
    story.reads(job_of(TRAIN, 17, "RUNNING", submitted=T + 1, starts=T + 40), at=T + 40, granted=grant(17))
    [bind] = story.acts(BindPod, T + 40)
    story.does(bind, T + 41)
    story.now = T + 43
    story.stops(T + 43)
    queue = backend.one("queue")
    reasons = backend.below(queue)
    assert [(span.name, span.start - T, span.end - T) for span in reasons] == [
        ("Resources", 1, 9),
        ("Priority", 9, 30),
        ("Resources", 30, 40),
    ]
    assert adds_up(reasons, queue)
    assert reasons[0].attributes["slurm.job.state_reason"] == "Resources"
    assert queue.attributes.items() >= {"slurm.partition": "main", "slurm.job.submit_time": T + 1}.items()


def test_a_job_that_was_released_stays_in_the_trace_below_the_submission_of_the_next() -> None:
    backend = Backend()
    story = Traced(backend)
    story.queues(TRAIN, 17, at=T + 1)
    story.polls({17: "PENDING"}, at=T + 2)
    story.reads(job_of(TRAIN, 17, "PENDING", reason="Priority", submitted=T + 1), at=T + 2)
    story.polls({17: "CANCELLED"}, at=T + 10)
    story.reads(job_of(TRAIN, 17, "CANCELLED", submitted=T + 1), at=T + 10)
    [asked] = story.acts(AllocateNow, T + 80)
    story.does(asked, T + 80, job_id=18, grant=grant(18))
    [bind] = story.acts(BindPod, T + 80)
    story.does(bind, T + 81)
    story.stops(T + 90)
    former, submit = backend.one("queue", slurm_job_id=17), backend.one("submit")
    assert former.parent == submit.id
    assert backend.one("Priority").parent == former.id
    assert backend.one("queue", slurm_job_id=18).start == submit.end == T + 80


def test_a_pod_that_waited_in_vain_has_a_trace_too() -> None:
    backend = Backend()
    story = Traced(backend)
    story.now = T + 0.4
    story.queues(TRAIN, 17, at=T + 1)
    story.polls({17: "PENDING"}, at=T + 2)
    story.reads(job_of(TRAIN, 17, "PENDING", reason="Priority", submitted=T + 1), at=T + 2)
    story.loses(TRAIN, T + 60)
    [cancel] = story.acts(CancelJob, T + 61)
    story.does(cancel, T + 62)
    story.stops(T + 90)
    root = backend.one("workload")
    steps = backend.below(root)
    assert [step.name for step in steps] == ["create", "submit", "queue", "release"]
    assert adds_up(steps, root)
    assert backend.one("Priority").end == T + 60
    assert backend.orphans() == []


def test_a_pod_that_was_deleted_before_it_had_a_job_has_a_trace_too() -> None:
    backend = Backend()
    story = Traced(backend)
    story.now = T + 0.4
    story.sees(TRAIN)
    story.loses(TRAIN, T + 7)
    story.polls({}, at=T + 8)
    story.stops(T + 9)
    root = backend.one("workload")
    assert [step.name for step in backend.below(root)] == ["create", "submit"]
    assert adds_up(backend.below(root), root)


def test_a_pod_whose_job_ended_first_ends_its_trace_with_the_pod() -> None:
    backend = Backend()
    story = Traced(backend)
    shown = story.runs(TRAIN, 17, at=T + 1)
    story.polls({17: "CANCELLED"}, at=T + 59)
    story.now = T + 65
    story.sees(replace(shown, phase=PodPhase.FAILED, end_reason="DeadlineExceeded"))
    story.polls({17: "CANCELLED"}, at=T + 66)
    story.polls({17: "CANCELLED"}, at=T + 67)
    story.stops(T + 70)
    root = backend.one("workload")
    assert (root.error, root.end) == ("DeadlineExceeded", T + 65)
    assert root.attributes["slurm_bridge.end"] == "Slurm job 17 ended: CANCELLED"
    assert adds_up(backend.below(root), root)


def test_a_pod_that_never_starts_shows_that_its_start_failed() -> None:
    backend = Backend()
    story, bind = granted_at_once(backend)
    story.does(bind, T + 1)
    waits = story.bound(TRAIN, 17, phase=PodPhase.PENDING, started=T + 1)
    story.sees(waits)
    story.world.apply(PodDeleted(Scope.OURS, waits, T + 31))
    story.polls({17: "RUNNING"}, at=T + 32)
    [cancel] = story.acts(CancelJob, T + 80)
    story.does(cancel, T + 81)
    story.stops(T + 90)
    start, root = backend.one("start"), backend.one("workload")
    assert start.error == "the pod was deleted before it ran"
    assert start.end == T + 31
    assert "run" not in backend.names()
    assert adds_up(backend.below(root), root)


def test_a_bind_without_an_answer_counts_from_when_the_pod_is_seen_on_its_node() -> None:
    backend = Backend()
    story, bind = granted_at_once(backend)
    story.does(bind, T + 3, Outcome.UNKNOWN)
    story.now = T + 4
    runs_and_ends(story, TRAIN)
    story.stops(T + 30)
    root = backend.one("workload")
    assert [step.name for step in backend.below(root)][-4:] == ["bind", "start", "run", "release"]
    assert adds_up(backend.below(root), root)


@pytest.mark.parametrize("ahead", [-3600, 40])
def test_clocks_that_differ_are_noted_on_the_spans_and_no_step_is_negative(ahead: int) -> None:
    backend = Backend()
    story = Traced(backend)
    for side in Side:
        story.world.apply(ClockObserved(side, T + ahead - 1, T - 0.02, T - 0.01))
        story.world.apply(ClockObserved(side, T + ahead, T + 0.01, T + 0.02))
    what = replace(TRAIN, created=T + ahead)
    lives_elsewhere = PodTimes(running=T + 8 + ahead, ended=T + 20 + ahead)
    story.now = T + 1.2
    story.queues(what, 17, at=T + 2)
    story.polls({17: "RUNNING"}, at=T + 4)
    story.reads(job_of(what, 17, submitted=T + ahead, starts=T + 3 + ahead), at=T + 4, granted=grant(17))
    [bind] = story.acts(BindPod, T + 4)
    story.does(bind, T + 4.1)
    runs_and_ends(story, what, lives_elsewhere)
    story.stops(T + 30)
    root = backend.one("workload")
    assert root.attributes["slurm.clock_offset_s"] == ahead
    assert root.attributes["slurm_bridge.kubernetes_clock_offset_s"] == ahead
    assert root.start == T
    assert adds_up(backend.below(root), root)
    assert all(span.took >= 0 for span in backend.spans)


def test_the_time_until_the_bridge_saw_it_is_kept_of_a_pod_that_waited_in_vain() -> None:
    backend = Backend()
    story = Traced(backend)
    story.now = T + 0.4
    story.queues(TRAIN, 17, at=T + 1)
    story.loses(TRAIN, T + 60)
    [cancel] = story.acts(CancelJob, T + 61)
    story.does(cancel, T + 62)
    story.stops(T + 90)
    assert backend.one("create").took == pytest.approx(0.4)


def test_a_container_that_started_before_the_answer_to_the_bind_came_ends_the_bind() -> None:
    """Its start is known in whole seconds; the next process knows nothing more exact, and must send the same time."""
    backend = Backend()
    story = Traced(backend)
    story.now = T + 0.4
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, T + 0.5)
    story.does(asked, T + 0.6, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, T + 0.7)
    story.does(bind, T + 9.3, took=8.5)
    runs_and_ends(story, TRAIN)
    story.stops(T + 30)
    root = backend.one("workload")
    assert adds_up(backend.below(root), root)
    assert backend.one("bind").end == backend.one("run").start == T + 9
