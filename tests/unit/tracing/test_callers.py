"""A workload whose pod names the trace of a caller (O3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.tracing.export import exporter_of_environment
from scheduler import names
from scheduler.model.trace_context import TraceContext, parsed, trace_of
from tests.builders import CLUSTER, key_of, pod
from tests.traces import Backend
from tests.unit.tracing.stories import Traced
from tests.unit.tracing.test_one_pod import TRAIN, T, lives

OWN = names.traceparent(CLUSTER, "0123456789abcdef")
CALLER = f"00-{'a' * 32}-{'b' * 16}-01"


def backend_of(said: str) -> Backend:
    backend = Backend()
    story = Traced(backend)
    lives(story, replace(TRAIN, annotations={names.TRACEPARENT: said}))
    story.stops(T + 30)
    return backend


def test_its_trace_goes_on_below_the_callers_span() -> None:
    backend = backend_of(CALLER)
    assert {span.trace for span in backend.spans} == {"a" * 32}
    root = backend.one("workload")
    assert root.parent == "b" * 16
    assert root.id == names.traceparent(CLUSTER, key_of(TRAIN)).split("-")[2]
    assert [span.name for span in backend.orphans()] == ["workload"], "the caller sends the parent"


def test_a_caller_that_does_not_record_its_trace_gets_no_spans() -> None:
    assert backend_of(CALLER[:-2] + "00").spans == []


def test_a_sampler_of_the_environment_drops_whole_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    backend = Backend()
    story = Traced(backend)
    for number in range(40):
        what = pod(f"p-{number}", created=T)
        spans = story.telemetry._recorder._allocations.spans
        story.sees(what)
        spans(story.world.workloads[key_of(what)], story.world).send("create", (), T, T, {})
    story.stops(T + 1)
    assert 5 < len(backend.spans) < 35


@pytest.mark.parametrize(
    "nonsense",
    [
        "",
        "x",
        f"00-{'0' * 32}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'0' * 16}-01",
        f"ff-{'a' * 32}-{'b' * 16}-01",
        f"00-{'A' * 32}-{'b' * 16}-01",
        f"00-{'a' * 31} -{'b' * 16}-01",
        f"00-{'a' * 32}-{'b' * 16}-01\n",
        "00-" + "g" * 32 + "-1-1",
        "-" * 9,
    ],
)
def test_an_invalid_traceparent_is_ignored(nonsense: str) -> None:
    assert parsed(nonsense) is None
    assert str(trace_of(OWN, (nonsense,)).root) == OWN


def test_the_first_caller_counts_in_whatever_order_the_pods_come() -> None:
    other = CALLER.replace("a", "c")
    assert trace_of(OWN, (CALLER, other)) == trace_of(OWN, (other, OWN, CALLER))
    trace = trace_of(OWN, (other, CALLER))
    assert trace.caller == TraceContext("a" * 32, "b" * 16)
    assert trace.others == (TraceContext("c" * 32, "b" * 16),)
    assert trace.root.trace_id == "a" * 32


def test_without_an_endpoint_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert exporter_of_environment() is None


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_an_endpoint_switches_traces_on(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:4318")
    assert exporter_of_environment() is not None


@pytest.mark.parametrize(("variable", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")])
def test_traces_are_switched_off_as_elsewhere(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv(variable, value)
    assert exporter_of_environment() is None


def test_a_protocol_that_is_not_supported_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert exporter_of_environment() is not None
    assert "not by grpc" in caplog.text
