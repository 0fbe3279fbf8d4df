"""Metrics, log lines, and the steps that the page shows (O2); traces are in tracing/."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from bridge.labels import BoundedLabels
from bridge.telemetry import Telemetry
from scheduler import names
from scheduler.actions import Action, AllocateNow, BindPod, CancelJob, Outcome, ReadJob, SubmitJob
from scheduler.events import ActionEnded, OutageBegan, OutageEnded, PodDeleted, PodSeen, PodsListed, Scope, Side
from scheduler.model.anomaly import Anomaly
from scheduler.model.kubernetes import Pod, PodPhase, PodTimes
from scheduler.model.refusal import Refusal
from scheduler.state.anomalies import reject
from tests.builders import CLUSTER, START, Story, grant, job_of, key_of, pod

NOW = START + 20
TRAIN = pod("train", created=NOW - 1)


def ends(
    telemetry: Telemetry, story: Story, action: Action, at: float, outcome: Outcome = Outcome.DONE, **more: object
) -> None:
    event = ActionEnded(action, outcome, at, at, **more)
    telemetry.on_ended(event, story.world)
    story.sees(event)


def lives(telemetry: Telemetry, what: Pod) -> None:
    """Created, submitted, granted, bound, released."""
    story = Story()
    story.sees(what)
    [asked] = story.acts(AllocateNow, NOW)
    ends(telemetry, story, asked, NOW + 1, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW + 1)
    ends(telemetry, story, bind, NOW + 2)
    story.sees(story.bound(what, 17, phase=PodPhase.SUCCEEDED))
    [cancel] = story.acts(CancelJob, NOW + 60)
    ends(telemetry, story, cancel, NOW + 61)


def test_the_steps_of_the_last_workloads_are_kept_for_the_page() -> None:
    telemetry = Telemetry(recent=2)
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    ends(telemetry, story, asked, NOW + 1, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW + 1)
    ends(telemetry, story, bind, NOW + 2)
    telemetry.on_observed(PodSeen(Scope.OURS, story.bound(TRAIN, 17, phase=PodPhase.RUNNING)), story.world)
    steps = telemetry.recent.of(key_of(TRAIN))
    assert [step.name for step in steps] == ["submitted", "granted", "bound", "started"]
    assert [(step.start, step.end) for step in steps[:3]] == [
        (NOW - 1, NOW + 1),
        (NOW + 1, NOW + 1),
        (NOW + 1, NOW + 2),
    ]
    for name in ("second", "third"):
        lives(telemetry, pod(name, created=NOW - 1))
    telemetry.close()
    assert telemetry.recent.of(key_of(TRAIN)) == (), "only so many are kept"
    assert [step.name for step in telemetry.recent.of(key_of(pod("third")))][-1] == "ended"


def scraped(telemetry: Telemetry) -> dict[str, float]:
    body, content_type = telemetry.scrape("application/openmetrics-text;version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines}


def find(values: dict[str, float], start: str, *labels: str) -> float:
    [value] = [value for key, value in values.items() if key.startswith(start) and all(each in key for each in labels)]
    return value


def test_the_first_metrics() -> None:
    telemetry = Telemetry()
    lives(telemetry, TRAIN)
    telemetry.on_call(Side.SLURM)("allocate", 0.003, "ok")
    values = scraped(telemetry)
    assert find(values, "slurm_bridge_create_to_bind_seconds_count", 'outcome="immediate"') == 1
    assert find(values, "slurm_bridge_create_to_bind_seconds_sum", 'outcome="immediate"') == 3
    assert find(values, "slurm_bridge_create_to_bind_seconds_count", 'outcome="queued"') == 0
    assert find(values, "slurm_bridge_grant_to_bind_seconds_sum", 'outcome="immediate"') == 1
    assert find(values, "slurm_bridge_actions_total", 'action="BindPod"', 'outcome="done"') == 1
    assert find(values, "slurm_bridge_call_seconds_count", 'side="Slurm"', 'operation="allocate"') == 1
    assert find(values, "slurm_bridge_call_seconds_bucket", 'le="0.002"') == 0
    assert find(values, "slurm_bridge_call_seconds_bucket", 'le="0.005"') == 1


def test_each_step_of_an_allocation_has_its_latency_by_partition_and_qos() -> None:
    telemetry = Telemetry(clock=lambda: START + 38)
    story = Story()
    story.polls({}, at=START + 20)
    what = pod("train", created=START + 20, says={"partition": "gpu", "qos": "high"})
    story.sees(what)
    [refused] = story.acts(AllocateNow, START + 21)
    ends(telemetry, story, refused, START + 21, Outcome.REFUSED, refusal=Refusal(names.REFUSED, "no room", 2016))
    [submit] = story.acts(SubmitJob, START + 21)
    ends(telemetry, story, submit, START + 22, job_id=17)
    story.polls({17: "RUNNING"}, at=START + 30)
    story.reads(replace(job_of(what, 17, "RUNNING"), partition="gpu"), at=START + 30, granted=grant(17))
    [bind] = story.acts(BindPod, START + 31)
    ends(telemetry, story, bind, START + 32)
    telemetry.on_observed(PodSeen(Scope.OURS, story.bound(what, 17, phase=PodPhase.RUNNING)), story.world)
    values, whose = scraped(telemetry), ('partition="gpu"', 'qos="high"', 'outcome="queued"')
    steps = ("create_to_bind", "create_to_submit", "submit_to_grant", "grant_to_bind", "bind_to_running")
    took = {step: find(values, f"slurm_bridge_{step}_seconds_sum", *whose) for step in steps}
    assert took == {
        "create_to_bind": 12,
        "create_to_submit": 2,
        "submit_to_grant": 8,
        "grant_to_bind": 2,
        "bind_to_running": 6,
    }


def test_a_pod_that_was_deleted_before_its_bind_is_distinguished() -> None:
    telemetry, world = Telemetry(), Story().world
    telemetry.on_observed(PodSeen(Scope.OURS, TRAIN), world)
    telemetry.on_observed(PodDeleted(Scope.OURS, TRAIN, TRAIN.created + 30), world)
    bound = pod("other", node="x1")
    telemetry.on_observed(PodSeen(Scope.OURS, bound), world)
    telemetry.on_observed(PodDeleted(Scope.OURS, bound, NOW), world)
    values = scraped(telemetry)
    assert find(values, "slurm_bridge_create_to_deletion_seconds_count") == 1
    assert find(values, "slurm_bridge_create_to_deletion_seconds_sum") == 30


def bound(now: list[float]) -> tuple[Telemetry, Story]:
    """A pod that was bound at NOW."""
    telemetry, story = Telemetry(clock=lambda: now[0]), Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    ends(telemetry, story, asked, NOW, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW)
    ends(telemetry, story, bind, NOW)
    return telemetry, story


def test_a_pod_that_started_while_the_watch_was_interrupted_took_as_long_as_kubelet_shows() -> None:
    """The list that follows was not looked at, so its end, hours later, counted as its start."""
    now = [NOW]
    telemetry, story = bound(now)
    running = story.bound(TRAIN, 17, phase=PodPhase.RUNNING, times=PodTimes(running=NOW + 2))
    now[0] = NOW + 600
    telemetry.on_observed(PodsListed(Scope.OURS, (running,), now[0]), story.world)
    now[0] = NOW + 7200
    ended = replace(running, phase=PodPhase.SUCCEEDED)
    telemetry.on_observed(PodSeen(Scope.OURS, ended), story.world)
    assert find(scraped(telemetry), "slurm_bridge_bind_to_running_seconds_count", 'outcome="immediate"') == 1
    assert find(scraped(telemetry), "slurm_bridge_bind_to_running_seconds_sum", 'outcome="immediate"') == 3


def test_a_pod_that_failed_before_it_ran_is_not_measured_as_a_start() -> None:
    telemetry, story = bound([NOW + 1])
    telemetry.on_observed(PodSeen(Scope.OURS, story.bound(TRAIN, 17, phase=PodPhase.FAILED)), story.world)
    assert find(scraped(telemetry), "slurm_bridge_bind_to_running_seconds_count", 'outcome="immediate"') == 0


def test_a_replica_that_leads_again_logs_no_end_of_what_its_former_world_had(caplog: pytest.LogCaptureFixture) -> None:
    """It said that no job is missing any more, before it had asked Slurm."""
    former, telemetry = Story(), Telemetry()
    for number in range(11):
        former.runs(pod(f"p{number}"), 100 + number, at=START + 20)
    former.polls({100 + number: "RUNNING" for number in range(11)}, at=START + 21)
    former.polls({}, at=START + 25)
    telemetry.on_passed(former.world, 0.01, 0.0)
    caplog.clear()
    world = Story().world
    telemetry.on_passed(world, 0.01, 0.0)
    reject(world, Anomaly.MASS_ABSENCE)
    telemetry.on_passed(world, 0.01, 0.0)
    assert [record.getMessage() for record in caplog.records] == ["observation rejected: mass absence"]


def test_an_exemplar_names_the_trace_and_only_openmetrics_has_it() -> None:
    telemetry = Telemetry()
    lives(telemetry, TRAIN)
    _, trace_id, _, _ = names.traceparent(CLUSTER, key_of(TRAIN)).split("-")
    exemplar = f'# {{trace_id="{trace_id}"}} 3.0'
    lines = telemetry.scrape("text/plain;q=0.5,application/openmetrics-text;q=0.6")[0].decode().splitlines()
    [line] = [each for each in lines if each.startswith("slurm_bridge_create_to_bind_seconds_bucket") and "# {" in each]
    assert exemplar in line
    text, content_type = telemetry.scrape("text/plain")
    assert content_type.startswith("text/plain; version=0.0.4")
    assert b"trace_id" not in text
    assert b"# TYPE slurm_bridge_actions_total counter" in text


def test_label_values_beyond_the_limit_count_as_other() -> None:
    labels = BoundedLabels(most=2)
    assert labels.of("main", "high") == ("main", "high")
    assert labels.of("gpu", "high") == ("gpu", "high")
    assert labels.of("main", "low") == ("other", "other")
    assert labels.of("main", "high") == ("main", "high"), "what was kept stays"


def test_a_pass_that_begins_late_shows_as_lag() -> None:
    telemetry = Telemetry()
    telemetry.on_passed(Story().world, 0.01, 0.3)
    assert find(scraped(telemetry), "slurm_bridge_loop_lag_seconds_sum") == 0.3
    assert find(scraped(telemetry), "process_resident_memory_bytes") > 1e6


def test_a_variable_that_switches_traces_off_leaves_the_metrics_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """With OTEL_SDK_DISABLED the SDK left out all gauges and most counters, so no alert about an outage could fire."""

    def names_of() -> set[str]:
        telemetry = Telemetry()
        telemetry.gauge("slurm_bridge_leader", "help", lambda: [(1.0, {})])
        lives(telemetry, TRAIN)
        return {key.partition("{")[0] for key in scraped(telemetry)}

    before = names_of()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert {"slurm_bridge_leader", "slurm_bridge_actions_total"} <= before == names_of()


def test_metrics_carry_no_ids() -> None:
    telemetry = Telemetry()
    lives(telemetry, pod("very-private-name", created=NOW))
    text = telemetry.scrape()[0].decode()
    assert "very-private-name" not in text
    assert key_of(pod("very-private-name")) not in text


def test_grants_released_are_counted() -> None:
    story, telemetry = Story(), Telemetry()
    ends(
        telemetry, story, CancelJob("key", 17, "name", "alice", "no GPU", pod_message="Slurm job 17 was released."), NOW
    )
    ends(telemetry, story, CancelJob("key", 18, "name", "alice", "released: in words alone"), NOW)
    assert find(scraped(telemetry), "slurm_bridge_grants_released_total") == 1


def test_events_that_are_not_posted_are_counted() -> None:
    telemetry = Telemetry()
    assert find(scraped(telemetry), "slurm_bridge_events_dropped_total") == 0
    telemetry.on_event_dropped()
    assert find(scraped(telemetry), "slurm_bridge_events_dropped_total") == 1


def test_what_changes_something_is_a_line_in_the_log_and_what_reads_is_not(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    with caplog.at_level(logging.INFO, "slurm-bridge"):
        telemetry.on_planned(CancelJob("key", 17, "name", "alice", "hpc/train: Deleted"), NOW)
        telemetry.on_planned(ReadJob(17, "is it ours?"), NOW)
    assert [record.getMessage() for record in caplog.records] == ["CancelJob job 17: hpc/train: Deleted"]


def test_a_failure_is_a_warning_and_a_full_partition_is_none(caplog: pytest.LogCaptureFixture) -> None:
    story, telemetry = Story(), Telemetry()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    with caplog.at_level(logging.INFO, "slurm-bridge"):
        full = Refusal(names.REFUSED, "no room (error 2016).", 2016)
        ends(telemetry, story, asked, NOW, Outcome.REFUSED, refusal=full)
        lost = Refusal(names.REFUSED, "no answer.", 0)
        ends(telemetry, story, CancelJob("key", 17, "name", "alice", "why"), NOW, Outcome.UNKNOWN, refusal=lost)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "CancelJob job 17: unknown: no answer.")
    ]


def test_a_rejected_observation_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    story, telemetry = Story(), Telemetry()
    for number in range(11):
        story.runs(pod(f"p{number}"), 100 + number, at=START + 20)
    jobs = {100 + number: "RUNNING" for number in range(11)}
    for at, listed in ((21, jobs), (25, {}), (26, {}), (27, jobs)):
        story.polls(listed, at=START + at)
        telemetry.on_passed(story.world, 0.01, 0.0)
    assert [record.getMessage() for record in caplog.records] == [
        "observation rejected: mass absence",
        "Slurm no longer lists 11 of 11 jobs: no pod is ended for it. If they are gone: slurm-bridge release",
        "observation rejected: absent job came back, 11 times",
        "observation rejected: id given out again",
        "no job is missing any more: pods are ended again when their jobs are gone",
    ]


def test_rejections_of_one_reason_share_a_line_while_they_go_on(caplog: pytest.LogCaptureFixture) -> None:
    now = [NOW]
    story, telemetry = Story(), Telemetry(clock=lambda: now[0])
    for now[0] in (NOW, NOW + 1, NOW + 9, NOW + 11, NOW + 12):
        reject(story.world, Anomaly.NOT_ITS_USER)
        telemetry.on_passed(story.world, 0.01, 0.0)
    assert [record.getMessage() for record in caplog.records] == [
        "observation rejected: name of ours, user of another",
        "observation rejected: name of ours, user of another, 3 times",
    ]


def test_answers_that_a_newer_answer_overtook_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A burst has thousands of them."""
    story, telemetry = Story(), Telemetry()
    with caplog.at_level(logging.INFO, "slurm-bridge"):
        reject(story.world, Anomaly.OLD_READ)
        reject(story.world, Anomaly.OLD_POLL)
        telemetry.on_passed(story.world, 0.01, 0.0)
    assert caplog.records == []


def test_a_side_that_goes_away_and_returns_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    telemetry, world = Telemetry(), Story().world
    telemetry.on_observed(OutageEnded(Side.SLURM, NOW), world)
    telemetry.on_observed(OutageBegan(Side.SLURM, NOW, "connection refused."), world)
    telemetry.on_observed(OutageEnded(Side.SLURM, NOW), world)
    assert [record.getMessage() for record in caplog.records] == ["connection refused.", "Slurm answers again"]
