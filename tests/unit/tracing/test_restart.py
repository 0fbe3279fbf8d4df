"""The trace of a workload goes on when the bridge is restarted, at whatever step (O3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import names
from scheduler.actions import AllocateNow, BindPod, CancelJob, ReadJob
from scheduler.events import PodDeleted, Scope
from scheduler.model.kubernetes import Condition, Pod, PodPhase, PodTimes
from tests.builders import START, grant, job_of, pod
from tests.traces import Backend, adds_up
from tests.unit.tracing.stories import Traced

T = START + 100
TRAIN = pod("train", created=T)
RUNS = PodTimes(running=T + 200)


def after_submission(backend: Backend) -> Traced:
    """A bridge whose job for the pod waits in Slurm."""
    story = Traced(backend)
    story.queues(TRAIN, 17, at=T + 1)
    return story


def after_bind(backend: Backend, at: float = T + 150) -> Traced:
    """A bridge that bound the pod after a wait in Slurm."""
    story = after_submission(backend)
    is_granted_and_bound(story, at)
    return story


def after_start(backend: Backend, bound_at: float = T + 150) -> tuple[Traced, Pod]:
    """A bridge that bound the pod after a wait in Slurm and saw it start; and the pod that runs."""
    story = after_bind(backend, bound_at)
    return story, runs(story, T + 202)


def waits(story: Traced, at: float, reason: str) -> None:
    story.polls({17: "PENDING"}, at=at)
    story.reads(job_of(TRAIN, 17, "PENDING", reason=reason, submitted=T + 1), at=at)


def is_granted_and_bound(story: Traced, at: float) -> None:
    story.polls({17: "RUNNING"}, at=at)
    story.reads(job_of(TRAIN, 17, "RUNNING", submitted=T + 1, starts=at - 1), at=at, granted=grant(17))
    [bind] = story.acts(BindPod, at)
    story.does(bind, at + 0.3, took=0.1)


def runs(story: Traced, at: float) -> Pod:
    story.now = at
    running = story.bound(TRAIN, 17, phase=PodPhase.RUNNING, started=at - 1, bound_at=at - 2, times=RUNS)
    story.sees(running)
    return running


def ends(story: Traced, running: Pod, at: float) -> None:
    story.now = at
    story.sees(replace(running, phase=PodPhase.SUCCEEDED, exit_code=0, times=replace(RUNS, ended=at - 1)))
    ends_the_job(story, at + 20)


def ends_the_job(story: Traced, at: float) -> None:
    [cancel] = story.acts(CancelJob, at)
    story.does(cancel, at + 0.1, took=0.1)


def whole(backend: Backend) -> None:
    """One trace, without orphans, whose steps are the whole."""
    root = backend.one("workload")
    steps = backend.below(root)
    assert [step.name for step in steps] == ["create", "submit", "queue", "grant", "bind", "start", "run", "release"]
    assert adds_up(steps, root), [(step.name, step.start, step.end) for step in steps]
    assert backend.orphans() == []
    assert len({span.trace for span in backend.spans}) == 1


def shows(reason: str, since: float) -> Pod:
    """The pod that waits, as the process before left it."""
    said = Condition(False, names.PENDING, f"Waiting in Slurm partition main ({reason}). Job 17, as of 13:40.")
    return replace(TRAIN, scheduled=said, times=PodTimes(reported=since))


def is_known_again(story: Traced, what: Pod, at: float, *states: str, **fields: object) -> None:
    """Its job is listed and read by the new process."""
    story.polls({17: " ".join(states)}, at=at)
    story.acts(ReadJob, at)
    read = job_of(what, 17, *states, submitted=T + 1, **fields)
    story.reads(read, at=at + 0.1, granted=grant(17) if "RUNNING" in states else None)
    story.polls({17: " ".join(states)}, at=at + 1)


def test_a_trace_goes_on_over_a_restart_while_the_job_waits() -> None:
    backend = Backend()
    first = after_submission(backend)
    waits(first, T + 2, "Resources")
    waits(first, T + 30, "Priority")
    first.stops(T + 50)
    second = Traced(backend, started=T + 60, pods=[shows("Priority", T + 30)])
    is_known_again(second, TRAIN, T + 61, "PENDING", reason="Priority")
    waits(second, T + 100, "Priority")
    waits(second, T + 120, "Resources")
    is_granted_and_bound(second, T + 150)
    ends(second, runs(second, T + 202), T + 300)
    second.stops(T + 400)
    whole(backend)
    found = [(span.name, span.start - T, span.end - T) for span in backend.below(backend.one("queue"))]
    assert found == [
        ("Resources", 1, 30),
        ("Priority", 30, 120),  # of which the first process saw the begin, and the second one the end
        ("Resources", 120, 150),
    ]


def test_a_trace_goes_on_over_a_restart_between_bind_and_start() -> None:
    backend = Backend()
    first = after_bind(backend)
    first.stops(T + 151)
    bound = first.bound(TRAIN, 17, phase=PodPhase.PENDING, bound_at=T + 150)
    second = Traced(backend, started=T + 160, pods=[bound])
    is_known_again(second, bound, T + 161, "RUNNING", starts=T + 149)
    ends(second, runs(second, T + 202), T + 300)
    second.stops(T + 400)
    whole(backend)


def test_a_trace_goes_on_over_a_restart_while_the_pod_runs() -> None:
    backend = Backend()
    first, running = after_start(backend)
    first.stops(T + 590)
    sent = len(backend.sent)
    second = Traced(backend, started=T + 590, pods=[running])
    is_known_again(second, running, T + 591, "RUNNING", starts=T + 149)
    ends(second, running, T + 610)
    second.stops(T + 700)
    whole(backend)
    assert len(backend.sent) == sent + 3, "what was sent long ago is not sent again"


def test_spans_that_a_killed_process_did_not_send_are_sent_by_the_next() -> None:
    backend, lost = Backend(), Backend()
    first, running = after_start(lost, T + 190)
    second = Traced(backend, started=T + 210, pods=[running])
    is_known_again(second, running, T + 211, "RUNNING", starts=T + 189)
    ends(second, running, T + 300)
    second.stops(T + 400)
    whole(backend)
    first.stops(T + 500)
    sent = {span.id for span in lost.spans}
    assert sent <= {span.id for span in backend.spans}, "the same spans, not others"


def test_a_trace_is_whole_though_the_pod_ended_while_no_bridge_ran() -> None:
    backend = Backend()
    first, running = after_start(backend)
    first.stops(T + 290)
    over = replace(running, phase=PodPhase.SUCCEEDED, times=replace(RUNS, ended=T + 292))
    second = Traced(backend, started=T + 300, pods=[over])
    is_known_again(second, over, T + 301, "RUNNING", starts=T + 149)
    ends_the_job(second, T + 320)
    second.stops(T + 400)
    whole(backend)
    assert backend.one("run").end == T + 293


def test_a_trace_ends_though_the_pod_was_deleted_while_no_bridge_ran_and_its_job_still_waits() -> None:
    backend = Backend()
    first = after_submission(backend)
    waits(first, T + 2, "Resources")
    first.stops(T + 50)
    second = Traced(backend, started=T + 60)
    is_known_again(second, TRAIN, T + 61, "PENDING", reason="Resources")
    ends_the_job(second, T + 90)
    second.stops(T + 100)
    root = backend.one("workload")
    assert backend.orphans() == []
    assert adds_up(backend.below(root), root)


def test_a_pod_that_ended_long_before_the_restart_is_not_sent_again() -> None:
    backend = Backend()
    first = Traced(backend)
    over = first.bound(TRAIN, 17, phase=PodPhase.SUCCEEDED, times=replace(RUNS, ended=T + 210))
    second = Traced(backend, started=T + 900, pods=[over])
    second.polls({}, at=T + 901)
    second.world.apply(PodDeleted(Scope.OURS, over, T + 950))
    second.polls({}, at=T + 960)
    second.stops(T + 1000)
    assert backend.spans == []


def test_a_pod_that_a_process_saw_before_it_led_begins_at_its_creation() -> None:
    backend = Backend()
    story = Traced(backend, started=T + 60, pods=[TRAIN])
    [asked] = story.acts(AllocateNow, T + 80)
    story.does(asked, T + 80.1, took=0.1, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, T + 81)
    story.does(bind, T + 81)
    story.stops(T + 90)
    assert (backend.one("create").took, backend.one("submit").end) == (0, T + 80)


def test_a_trace_is_whole_though_the_job_is_read_again_only_at_its_end() -> None:
    """A bridge reads the job of a pod that runs when it has to do something about it; until then a poll shows the job."""
    backend, lost = Backend(), Backend()
    _, running = after_start(lost, T + 190)
    second = Traced(backend, started=T + 210, pods=[running])
    second.polls({17: "RUNNING"}, at=T + 211)
    second.now = T + 300
    second.sees(replace(running, phase=PodPhase.SUCCEEDED, exit_code=0, times=replace(RUNS, ended=T + 299)))
    for at in (301, 302):
        second.polls({17: "RUNNING"}, at=T + at)
    second.acts(ReadJob, T + 310)
    second.reads(job_of(TRAIN, 17, submitted=T + 1, starts=T + 189), at=T + 311, granted=grant(17))
    ends_the_job(second, T + 320)
    second.polls({}, at=T + 322)
    second.stops(T + 400)
    whole(backend)
    assert backend.one("release").took == pytest.approx(20.1)


def test_a_pod_that_ended_while_no_bridge_ran_ends_when_it_is_seen_if_nothing_shows_when() -> None:
    backend = Backend()
    first, running = after_start(backend)
    first.stops(T + 290)
    second = Traced(backend, started=T + 900, pods=[replace(running, phase=PodPhase.SUCCEEDED)])
    is_known_again(second, running, T + 901, "RUNNING", starts=T + 149)
    [cancel] = second.acts(CancelJob, T + 920)
    second.does(cancel, T + 921, took=1.0)
    second.stops(T + 930)
    whole(backend)
    assert backend.one("run").end == T + 920, "when it was seen"


def test_a_trace_is_whole_though_the_pod_ended_unseen_and_does_not_show_when_it_was_bound() -> None:
    """A condition that the former process wrote arrived after its bind."""
    backend = Backend()
    first, running = after_start(backend)
    first.stops(T + 203)
    over = replace(running, phase=PodPhase.SUCCEEDED, bound_at=None)
    second = Traced(backend, started=T + 210, pods=[over])
    is_known_again(second, over, T + 211, "RUNNING", starts=T + 149)
    [cancel] = second.acts(CancelJob, T + 230)
    second.does(cancel, T + 231, took=1.0)
    second.stops(T + 240)
    whole(backend)
    assert backend.one("run").start == T + 202, "by what kubelet shows"


def test_a_pod_that_ended_shortly_before_a_restart_is_sent_again_only_if_it_shows_when() -> None:
    over = replace(TRAIN, node="x1", phase=PodPhase.SUCCEEDED, started=T + 199, bound_at=T + 198)
    over = replace(over, annotations={names.JOB_ID: "17"})
    for times, sent in ((PodTimes(), []), (replace(RUNS, ended=T + 209), ["run", "workload"])):
        backend = Backend()
        second = Traced(backend, started=T + 212, pods=[replace(over, times=times)])
        second.polls({17: "CANCELLED"}, at=T + 213)
        second.polls({17: "CANCELLED"}, at=T + 214)
        second.stops(T + 220)
        assert backend.names() == sent


def test_the_read_that_proves_the_owner_of_a_waiting_job_also_shows_its_reason() -> None:
    """Until its grant the job may not be read again."""
    backend = Backend()
    second = Traced(backend, started=T + 60, pods=[shows("Licenses", T + 30)])
    is_known_again(second, TRAIN, T + 61, "PENDING", reason="Licenses")
    is_granted_and_bound(second, T + 150)
    second.stops(T + 160)
    [reason] = backend.below(backend.one("queue"))
    assert (reason.name, reason.start - T, reason.end - T) == ("Licenses", 30, 150)


def test_a_reason_that_was_read_before_the_pods_were_listed_is_in_the_trace() -> None:
    backend = Backend()
    second = Traced(backend, started=T + 60)
    is_known_again(second, TRAIN, T + 61, "PENDING", reason="Licenses")
    second.sees(shows("Licenses", T + 30))
    is_granted_and_bound(second, T + 150)
    second.stops(T + 160)
    [reason] = backend.below(backend.one("queue"))
    assert (reason.name, reason.end - T) == ("Licenses", 150)


def test_a_reason_is_in_the_trace_though_the_job_starts_before_the_next_poll() -> None:
    backend = Backend()
    second = Traced(backend, started=T + 60, pods=[shows("Licenses", T + 30)])
    second.polls({17: "PENDING"}, at=T + 61)
    second.acts(ReadJob, T + 61)
    second.reads(job_of(TRAIN, 17, "PENDING", reason="Licenses", submitted=T + 1), at=T + 61)
    started = job_of(TRAIN, 17, "RUNNING", submitted=T + 1, starts=T + 62)
    second.reads(started, at=T + 63, granted=grant(17))
    second.polls({17: "RUNNING"}, at=T + 72)  # the quiet period is over
    [bind] = second.acts(BindPod, T + 72)
    second.does(bind, T + 73, took=0.1)
    second.stops(T + 160)
    [reason] = backend.below(backend.one("queue"))
    assert (reason.name, reason.start - T, reason.end - T) == ("Licenses", 30, 63)


def test_a_change_of_a_waiting_pod_after_a_restart_is_not_its_creation() -> None:
    """Each new reason is a change of the pod; a pod that a list showed counted as first seen at its first change."""
    backend = Backend()
    first = after_submission(backend)
    waits(first, T + 2, "Resources")
    first.stops(T + 50)
    second = Traced(backend, started=T + 60, pods=[shows("Resources", T + 2)])
    is_known_again(second, TRAIN, T + 61, "PENDING", reason="Resources")
    second.now = T + 100
    second.sees(shows("Priority", T + 100))
    is_granted_and_bound(second, T + 150)
    ends(second, runs(second, T + 202), T + 300)
    second.stops(T + 400)
    whole(backend)
    assert (backend.one("create").took, backend.one("submit").end - T, backend.one("queue").end - T) == (0, 1, 150)
