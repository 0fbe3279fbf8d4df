"""Metrics, one trace a workload, and log lines (O2, O3)."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bridge.labels import BoundedLabels
from bridge.telemetry import Telemetry
from scheduler import names
from scheduler.actions import Action, AllocateNow, BindPod, CancelJob, DeletePod, Outcome, ReadJob, SubmitJob
from scheduler.events import ActionEnded, PodGone, PodSeen, Scope, Side, SideBack, SideLost
from scheduler.model.kubernetes import Condition, Pod, PodPhase
from scheduler.model.refusal import Refusal
from tests.builders import CLUSTER, START, Story, grant, job_of, key_of, pod

NOW = START + 20
TRAIN = pod("train", created=NOW - 1)


def ends(
    telemetry: Telemetry, story: Story, action: Action, at: float, outcome: Outcome = Outcome.DONE, **more: object
) -> None:
    event = ActionEnded(action, outcome, at, at, **more)  # type: ignore[arg-type]
    telemetry.ended(event, story.world)
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


def spans_of(what: Pod) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    telemetry = Telemetry(exporter)
    lives(telemetry, what)
    telemetry.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_workload_is_one_trace_whose_ids_follow_from_its_key() -> None:
    spans = spans_of(TRAIN)
    assert list(spans) == ["submitted", "granted", "bound", "released", "workload hpc/train"]
    _, trace_id, root_id, _ = names.traceparent(CLUSTER, key_of(TRAIN)).split("-")
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {trace_id}
    root = spans.pop("workload hpc/train")
    assert f"{root.context.span_id:016x}" == root_id
    assert root.parent is None
    assert {f"{span.parent.span_id:016x}" for span in spans.values() if span.parent} == {root_id}
    assert len({span.context.span_id for span in spans.values()}) == 4


def test_a_workload_whose_job_ended_first_has_its_whole_trace_too() -> None:
    exporter = InMemorySpanExporter()
    telemetry = Telemetry(exporter)
    story = Story()
    shown = story.runs(TRAIN, 17, at=NOW)
    evict = DeletePod(key_of(TRAIN), shown.uid, shown.namespace, shown.name, "Slurm job 17 ended: CANCELLED")
    ends(telemetry, story, evict, NOW + 50)  # while its job lives its end is yet to come
    story.polls({17: "CANCELLED"}, at=NOW + 59)
    ends(telemetry, story, evict, NOW + 60)
    telemetry.close()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert [span.name for span in exporter.get_finished_spans()] == ["released", "workload hpc/train"]
    assert dict(spans["workload hpc/train"].attributes or {})["slurm_bridge.end"] == "Slurm job 17 ended: CANCELLED"


def test_its_spans_follow_each_other_in_time() -> None:
    spans = spans_of(TRAIN)
    times = {name: (span.start_time / 1e9, span.end_time / 1e9) for name, span in spans.items()}  # type: ignore[operator]
    assert times == {
        "submitted": (NOW - 1, NOW + 1),
        "granted": (NOW + 1, NOW + 1),
        "bound": (NOW + 1, NOW + 2),
        "released": (NOW + 61, NOW + 61),
        "workload hpc/train": (NOW - 1, NOW + 61),
    }
    about = {"slurm.job.id": 17, "k8s.node.name": "x1", "slurm_bridge.workload": key_of(TRAIN)}
    assert spans["bound"].attributes == about


def test_a_pod_that_an_earlier_life_asked_for_waited_for_slurm_since_then() -> None:
    exporter = InMemorySpanExporter()
    telemetry = Telemetry(exporter)
    story = Story()
    old = pod("train", created=START - 60)
    queued = job_of(old, 17, "PENDING", reason="Priority", submitted=START - 60)
    story.polls({17: "PENDING"}, at=START + 0.1)
    story.sees(replace(old, scheduled=Condition(False, names.PENDING, "Waiting. Job 17, as of 13:40 UTC.")))
    [read] = story.acts(ReadJob, START + 0.1)
    story.reads(queued, at=START + 0.2)
    ends(telemetry, story, read, START + 0.2)
    story.polls({17: "RUNNING"}, at=START + 30)
    story.reads(replace(queued, states=frozenset({"RUNNING"}), nodes="x1"), at=START + 30, granted=grant(17))
    [bind] = story.acts(BindPod, START + 30)
    ends(telemetry, story, bind, START + 31)
    telemetry.close()
    times = {span.name: (span.start_time / 1e9, span.end_time / 1e9) for span in exporter.get_finished_spans()}  # type: ignore[operator]
    assert times == {
        "submitted": (START - 60, START - 60),
        "granted": (START - 60, START + 30),
        "bound": (START + 30, START + 31),
    }


def test_the_last_traces_are_kept_for_the_page() -> None:
    telemetry = Telemetry(recent=2)
    story = Story()
    story.sees(TRAIN)
    [asked] = story.acts(AllocateNow, NOW)
    ends(telemetry, story, asked, NOW + 1, job_id=17, grant=grant(17))
    [bind] = story.acts(BindPod, NOW + 1)
    ends(telemetry, story, bind, NOW + 2)
    telemetry.seen(PodSeen(Scope.OURS, story.bound(TRAIN, 17, phase=PodPhase.RUNNING)))
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
    assert [step.name for step in telemetry.recent.of(key_of(pod("third")))][-1] == "workload hpc/third"


def test_a_callers_trace_is_kept_and_continued() -> None:
    caller_trace, caller_span = "a" * 32, "b" * 16
    traced = replace(TRAIN, annotations={names.TRACEPARENT: f"00-{caller_trace}-{caller_span}-01"})
    spans = spans_of(traced)
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {caller_trace}
    root = spans["workload hpc/train"]
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == caller_span


def test_two_workloads_are_two_traces() -> None:
    exporter = InMemorySpanExporter()
    telemetry = Telemetry(exporter)
    traced = replace(TRAIN, annotations={names.TRACEPARENT: f"00-{'a' * 32}-{'b' * 16}-01"})
    lives(telemetry, traced)
    lives(telemetry, pod("other", created=NOW - 1))
    telemetry.close()
    roots = [span for span in exporter.get_finished_spans() if span.name.startswith("workload")]
    _, other_trace, _, _ = names.traceparent(CLUSTER, key_of(pod("other"))).split("-")
    assert [f"{span.context.trace_id:032x}" for span in roots] == ["a" * 32, other_trace]


@pytest.mark.parametrize(
    "nonsense", ["", "x", "00-" + "0" * 32 + "-" + "b" * 16 + "-01", "00-" + "g" * 32 + "-1-1", "-" * 9]
)
def test_a_traceparent_that_is_none_is_left_aside(nonsense: str) -> None:
    spans = spans_of(replace(TRAIN, annotations={names.TRACEPARENT: nonsense}))
    _, trace_id, _, _ = names.traceparent(CLUSTER, key_of(TRAIN)).split("-")
    assert f"{spans['bound'].context.trace_id:032x}" == trace_id


def test_without_an_exporter_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    telemetry = Telemetry()
    lives(telemetry, TRAIN)
    telemetry.close()


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
    telemetry.on_call("slurm")("allocate", 0.003, "ok")
    values = scraped(telemetry)
    assert find(values, "slurm_bridge_create_to_bind_seconds_count", 'outcome="immediate"') == 1
    assert find(values, "slurm_bridge_create_to_bind_seconds_sum", 'outcome="immediate"') == 3
    assert find(values, "slurm_bridge_create_to_bind_seconds_count", 'outcome="queued"') == 0
    assert find(values, "slurm_bridge_grant_to_bind_seconds_sum") == 1
    assert find(values, "slurm_bridge_actions_total", 'action="BindPod"', 'outcome="done"') == 1
    assert find(values, "slurm_bridge_call_seconds_count", 'side="slurm"', 'operation="allocate"') == 1
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
    telemetry.seen(PodSeen(Scope.OURS, story.bound(what, 17, phase=PodPhase.RUNNING)))
    values, whose = scraped(telemetry), ('partition="gpu"', 'qos="high"')
    steps = ("create_to_bind", "create_to_submit", "submit_to_grant", "grant_to_bind", "bind_to_running")
    queued = {"create_to_bind", "submit_to_grant"}
    took = {
        step: find(
            values, f"slurm_bridge_{step}_seconds_sum", *whose, *(['outcome="queued"'] if step in queued else [])
        )
        for step in steps
    }
    assert took == {
        "create_to_bind": 12,
        "create_to_submit": 2,
        "submit_to_grant": 8,
        "grant_to_bind": 2,
        "bind_to_running": 6,
    }


def test_a_pod_that_was_deleted_before_its_bind_is_told_apart() -> None:
    telemetry = Telemetry()
    telemetry.seen(PodSeen(Scope.OURS, TRAIN))
    telemetry.seen(PodGone(Scope.OURS, TRAIN, TRAIN.created + 30))
    bound = pod("other", node="x1")
    telemetry.seen(PodSeen(Scope.OURS, bound))
    telemetry.seen(PodGone(Scope.OURS, bound, NOW))
    values = scraped(telemetry)
    assert find(values, "slurm_bridge_create_to_deletion_seconds_count") == 1
    assert find(values, "slurm_bridge_create_to_deletion_seconds_sum") == 30


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
    telemetry.passed(Story().world, 0.01, 0.3)
    assert find(scraped(telemetry), "slurm_bridge_loop_lag_seconds_sum") == 0.3
    assert find(scraped(telemetry), "process_resident_memory_bytes") > 1e6


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
    telemetry.event_dropped()
    assert find(scraped(telemetry), "slurm_bridge_events_dropped_total") == 1


def test_what_changes_something_is_a_line_in_the_log_and_what_reads_is_not(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    with caplog.at_level(logging.INFO, "slurm-bridge"):
        telemetry.planned(CancelJob("key", 17, "name", "alice", "hpc/train: Deleted"), NOW)
        telemetry.planned(ReadJob(17, "is it ours?"), NOW)
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


def test_what_is_not_believed_is_said_once_and_that_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    story, telemetry = Story(), Telemetry()
    for number in range(11):
        story.runs(pod(f"p{number}"), 100 + number, at=START + 20)
    jobs = {100 + number: "RUNNING" for number in range(11)}
    for at, listed in ((21, jobs), (25, {}), (26, {}), (27, jobs)):
        story.polls(listed, at=START + at)
        telemetry.passed(story.world, 0.01, 0.0)
    assert [record.getMessage() for record in caplog.records] == [
        "not believed: mass absence",
        "Slurm lists 11 of 11 jobs no more: no pod is ended for it. If they are gone: slurm-bridge release",
        "not believed: absent job came back, 11 times",
        "not believed: id given out again",
        "nothing is held back any more: what was missing is settled",
    ]


def test_a_side_that_goes_and_comes_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    telemetry.seen(SideBack(Side.SLURM, NOW))
    telemetry.seen(SideLost(Side.SLURM, NOW, "connection refused."))
    telemetry.seen(SideBack(Side.SLURM, NOW))
    assert [record.getMessage() for record in caplog.records] == ["connection refused.", "Slurm answers again"]
