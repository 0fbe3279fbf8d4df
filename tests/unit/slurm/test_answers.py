"""What an answer means: by status and number, and never believing more than it proves (X5)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bridge.errors import (
    AccountingUnavailable,
    Conflict,
    ContractError,
    Exhausted,
    Invalid,
    NotFound,
    RemoteError,
    Unanswered,
    Unauthorized,
    Unreachable,
)
from bridge.slurm.responses import failure, read
from bridge.slurm.transport import Reply
from bridge.slurm.wire import IdAnswer

DECODER = msgspec.json.Decoder(IdAnswer)


def body(**fields: Any) -> bytes:
    return json.dumps({"errors": [], "warnings": [], **fields}).encode()


def refused(number: int, text: str = "some text") -> bytes:
    return body(errors=[{"error_number": number, "error": text, "description": "Batch job submission failed"}])


@pytest.mark.parametrize(
    ("status", "number", "error"),
    [
        (511, 1007, Unauthorized),
        (502, 1800, Unreachable),
        (422, 2013, Exhausted),
        (422, 2016, Exhausted),
        (422, 2125, Exhausted),
        (422, 2068, Exhausted),
        (422, 2050, Exhausted),
        (422, 2007, Exhausted),
        (404, 2017, NotFound),
        (422, 2018, Invalid),
        (422, 2038, Invalid),
        (422, 2040, Exhausted),
        (422, 2045, Invalid),
        (500, 2045, Invalid),
        (500, 5004, Unanswered),
        (502, 7000, AccountingUnavailable),
        (403, 1, Unanswered),
        (500, 1000, Unanswered),
        (500, -1, Unanswered),
    ],
)
def test_an_error_is_classified_by_its_number(status: int, number: int, error: type[RemoteError]) -> None:
    found = failure("submit", Reply(status, {}, refused(number)))
    assert type(found) is error
    assert "some text" in str(found)


def test_a_slurmctld_that_is_down_is_a_short_sentence_without_the_answers_json() -> None:
    """As slurmrestd answers GET jobs/state then; pods and the page show it."""
    meta = {"plugin": {"type": "openapi/slurmctld", "name": "Slurm OpenAPI slurmctld"}, "client": {"source": "x:1"}}
    entry = {"description": "", "error_number": -1, "error": "Unspecified error", "source": "slurm_load_job_state()"}
    down = Reply(500, {}, json.dumps({"meta": meta, "errors": [entry], "warnings": []}).encode())
    assert str(failure("states", down)) == (
        "Slurm: states: slurmrestd says Unspecified error, number -1; "
        "slurmctld may be down, `scontrol ping` shows it (error 500)"
    )


@pytest.mark.parametrize("content", [body(), b'{"meta": {"token": "a.b.c"}}', b'{"errors": "a.b.c"}'])
def test_what_is_meant_for_machines_is_not_shown_to_people(content: bytes) -> None:
    found = failure("states", Reply(500, {}, content))
    assert type(found) is Unanswered
    assert str(found) == (
        "Slurm: states: an answer without a reason; slurmctld may be down, `scontrol ping` shows it (error 500)"
    )


def test_a_dependency_problem_of_an_immediate_allocation_is_a_twin_and_else_a_job_that_slurm_does_not_know() -> None:
    refusal = Reply(422, {}, refused(2038, "Job dependency problem"))
    assert type(failure("allocate", refusal)) is Conflict
    assert "Job dependency problem: it does not know a job that this one depends on" in str(failure("submit", refusal))
    assert type(failure("update", refusal)) is Invalid


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(401, {}, b"Authentication failure"), Unauthorized),
        (Reply(403, {}, b"<html>proxy</html>"), Unauthorized),
        (Reply(511, {}, b""), Unauthorized),
        (Reply(404, {}, b"Unable to find requested URL endpoint."), ContractError),
        (Reply(404, {}, b'{"kind":"Status"}'), ContractError),
        (Reply(400, {}, b"Failure during parsing"), ContractError),
        (Reply(302, {"location": "/login"}, b""), ContractError),
        (Reply(304, {}, b""), NotFound),
        (Reply(500, {}, b"Unspecified error"), Unanswered),
        (Reply(503, {}, b""), Unanswered),
        (Reply(502, {}, b"<html>Bad gateway</html>"), Unanswered),
        (Reply(500, {}, b"\xff\xfe\x00"), Unanswered),
    ],
)
def test_an_answer_without_a_number_proves_no_more_than_its_status(reply: Reply, error: type[RemoteError]) -> None:
    assert type(failure("submit", reply)) is error


def test_an_error_in_an_answer_of_200_is_an_error() -> None:
    with pytest.raises(Invalid):
        read("submit", Reply(200, {}, refused(2045)), DECODER, write=True)


@pytest.mark.parametrize(
    "content",
    [b"", b"not json", body(job_id=4)[:-3], body(), body(job_id="four"), b"[]", b"null", b"\xff" * 10],
)
def test_a_200_that_makes_no_sense_is_no_yes(content: bytes) -> None:
    with pytest.raises(ContractError, match="makes no sense"):
        read("submit", Reply(200, {}, content), DECODER, write=True)


def test_a_warning_about_what_was_sent_means_that_something_else_was_done() -> None:
    content = body(job_id=4, warnings=[{"description": 'Ignoring unknown field "nosuch"', "source": "#/job/nosuch/"}])
    with pytest.raises(ContractError, match='Ignoring unknown field "nosuch"'):
        read("submit", Reply(200, {}, content), DECODER, write=True)
    assert read("job", Reply(200, {}, content), DECODER, write=False).job_id == 4


def test_a_remark_on_an_accepted_job_is_no_failure() -> None:
    content = body(
        job_id=4, warnings=[{"description": "Partition in DOWN state", "source": "slurm_submit_batch_job()"}]
    )
    assert read("submit", Reply(200, {}, content), DECODER, write=True).job_id == 4


def test_whatever_a_server_sends_an_error_is_one_short_line() -> None:
    text = str(failure("submit", Reply(422, {}, refused(2045, "a\nb\x1b[31m" + "x" * 10_000))))
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < 500


@pytest.mark.parametrize(("status", "number"), [(500, 111), (502, 7000), (500, -1), (500, 110)])
def test_an_error_of_slurmdbd_is_recognised_by_the_name_of_the_function(status: int, number: int) -> None:
    entry = {"error_number": number, "error": "Connection refused", "source": "slurmdb_tres_get", "description": "d"}
    error = failure("partitions", Reply(status, {}, body(partitions=[], errors=[entry])))
    assert isinstance(error, AccountingUnavailable)
    assert str(error) == "Slurm: partitions: slurmdbd does not answer (Connection refused) (error 7000)"


@pytest.mark.parametrize(
    ("status", "header", "wait_s"),
    [
        (429, "7", 7.0),
        (429, "", None),
        (429, "Wed, 21 Oct 2026 07:28:00 GMT", None),
        (503, "2", 2.0),
        (429, "9" * 400, 300.0),
    ],
)
def test_a_proxy_that_takes_no_more_requests_sent_nothing_on(status: int, header: str, wait_s: float | None) -> None:
    error = failure("allocate", Reply(status, {"retry-after": header}, b"slow down"))
    assert isinstance(error, Exhausted)
    assert error.retry_after_s == wait_s


def test_a_503_that_does_not_say_when_to_come_back_proves_nothing() -> None:
    assert isinstance(failure("allocate", Reply(503, {}, b"no backend")), Unanswered)
    assert isinstance(failure("allocate", Reply(503, {"retry-after": "2"}, refused(2016))), Exhausted)
