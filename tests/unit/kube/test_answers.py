"""Which error an answer is: by its status and the Status in it, never by its text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.errors import (
    Conflict,
    ContractError,
    Exhausted,
    Invalid,
    NotFound,
    RemoteError,
    Unanswered,
    Unauthorized,
)
from bridge.kube.responses import judged, refusal
from bridge.kube.transport import Reply


def status(code: int, message: str = "no", headers: dict[str, str] | None = None, **details: Any) -> Reply:
    body = {"kind": "Status", "status": "Failure", "message": message, "code": code, "details": details}
    return Reply(code, headers or {}, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (status(400), Invalid),
        (status(401), Unauthorized),
        (status(403), Unauthorized),
        (status(404, name="a", kind="pods"), NotFound),
        (status(404, kind="pods"), ContractError),
        (status(404), ContractError),
        (status(405), ContractError),
        (status(409), Conflict),
        (status(413), Invalid),
        (status(422, causes=[{"field": "spec"}]), Invalid),
        (status(422, causes=[{"field": "metadata.uid"}]), Conflict),
        (status(429), Exhausted),
        (status(500), Unanswered),
        (status(503), Unanswered),
        (status(504), Unanswered),
        (Reply(401, {}, b"Unauthorized"), Unauthorized),
        (Reply(404, {}, b"404 page not found"), ContractError),
        (Reply(404, {}, b'{"message":"no such route"}'), ContractError),
        (Reply(409, {}, b""), ContractError),
        (Reply(302, {"location": "https://login.example.com"}, b""), ContractError),
        (Reply(502, {}, b"<html>Bad Gateway</html>"), Unanswered),
    ],
)
def test_an_answer_is_one_error(reply: Reply, kind: type[RemoteError]) -> None:
    error = refusal("bind", reply)
    assert type(error) is kind
    assert error.number == reply.status
    with pytest.raises(kind):
        judged("bind", reply)


def dates(until: str, now: str) -> dict[str, str]:
    return {"retry-after": until, "date": now}


@pytest.mark.parametrize("code", [200, 201, 202])
def test_a_yes_is_passed_on(code: int) -> None:
    reply = Reply(code, {}, b"{}")
    assert judged("bind", reply) is reply


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        (status(429, headers={"retry-after": "7"}), 7.0),
        (status(429, retryAfterSeconds=3), 3.0),
        (
            status(429, headers={"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}),
            None,
        ),  # by a clock that the answer does not show
        (Reply(429, {"retry-after": "7"}, b"<html>busy</html>"), 7.0),  # of a proxy
        (Reply(429, dates("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:27:30 GMT"), b""), 30.0),
        (Reply(429, dates("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 08:27:30 GMT"), b""), 0.0),
        (Reply(429, dates("Fri, 31 Dec 99999 23:59:59 GMT", "x"), b""), None),
        (status(429, headers={"retry-after": "9" * 5000}), 1e9),
        (status(429, retryAfterSeconds=-3), None),
        (status(429, retryAfterSeconds=10**18), 1e9),
        (status(429, headers={"retry-after": "٣"}), None),
        (status(429), None),
    ],
)
def test_too_many_requests_says_how_long_to_wait(reply: Reply, seconds: float | None) -> None:
    error = refusal("bind", reply)
    assert isinstance(error, Exhausted)
    assert error.retry_after_s == seconds


def test_the_words_are_the_servers_bounded_and_printable() -> None:
    error = refusal("bind", status(422, "spec: Forbidden\n" + "x" * 5000))
    assert error.message.startswith("spec: Forbidden x")
    assert len(error.message) == 500
    assert str(error).startswith("Kubernetes: bind: spec: Forbidden")


def test_an_error_page_of_something_else_is_not_quoted() -> None:
    assert "secret" not in str(refusal("bind", Reply(502, {}, b"<html>secret</html>")))


def test_a_wait_of_more_seconds_than_a_float_holds_is_no_wait() -> None:
    error = refusal("bind", status(429, retryAfterSeconds=10**400))
    assert isinstance(error, Exhausted)
    assert error.retry_after_s is None
