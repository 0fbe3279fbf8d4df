"""The sentences about environment variables with values that OpenTelemetry's SDK does not accept."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.sdk import environment_variables

from bridge.errors import ConfigError
from bridge.telemetry import Telemetry
from bridge.tracing.environment import sdk_reads, without_headers

VARIABLES = sorted(name for name in vars(environment_variables) if name.startswith("OTEL_"))
REFUSED = ("OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT", "OTEL_METRICS_EXEMPLAR_FILTER")
REPLACED = (
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS",
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
)
DO = "Correct it, or remove it (docs/tracing.md)."


@pytest.fixture(autouse=True)
def endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")


def started() -> None:
    Telemetry().close()


def why_not_started() -> str:
    """The sentence for which the start ends; "": it does not end."""
    try:
        started()
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", ["nonsense!", "-1", "/no/such/file"])
def test_a_variable_that_the_sdk_does_not_accept_is_a_sentence_that_names_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    assert set(VARIABLES) >= {*REFUSED, *REPLACED}
    refused, told = set(), set()
    for name in VARIABLES:
        caplog.clear()
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            if name == "OTEL_TRACES_SAMPLER_ARG":
                changed.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
            if said := why_not_started():
                assert said.startswith(f"{name}: OpenTelemetry does not accept its value: ")
                assert said.endswith(DO)
                refused.add(name)
        for record in caplog.records:
            assert (record.name, record.exc_info) == ("slurm-bridge", None)
            if record.levelno >= logging.WARNING and name in record.getMessage():
                told.add(name)
    assert refused >= set(REFUSED)
    accepted = {"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_TRACES_SAMPLER_ARG"} if value == "-1" else set()
    assert refused | told >= set(REPLACED) - accepted


def test_several_variables_with_the_value_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXEMPLAR_FILTER", "some")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "some")
    with pytest.raises(ConfigError, match=r"^one of OTEL_METRICS_EXEMPLAR_FILTER, OTEL_SERVICE_NAME: "):
        started()


def test_a_header_that_is_written_wrongly_is_named_and_its_token_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK quotes the header in a warning."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "tenant=one,Authorization: Bearer secret")
    caplog.set_level(logging.DEBUG)
    started()
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.startswith(
        "OTEL_EXPORTER_OTLP_HEADERS: OpenTelemetry does not accept its value: Header format invalid!"
    )
    assert said.endswith(f": [hidden]. {DO}")
    assert "secret" not in caplog.text


@pytest.mark.parametrize("given", ["Authorization=Bearer%20secret%0A", "authorization=Bearer secret"])
def test_an_error_that_quotes_a_header_is_logged_without_its_value(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", given)
    said = without_headers("Invalid header value: 'Bearer secret\n' of authorization; a=b")
    assert said == "Invalid header value: '[hidden]\n' of authorization; a=b"


def test_an_error_of_the_sdk_is_its_own_where_no_variable_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ZeroDivisionError), sdk_reads():
        _ = 1 / 0
