"""Classifies HTTP answers of the API server: success, or one of the errors of `bridge/errors.py`.

An answer is judged by its HTTP status and by fields of the Status in its body, never by its text.  A 403 or 404 without a
Status is the answer of another program (an ingress, a wrong URL), and proves nothing about any object or right.  A 404 that
names no object proves nothing either: the server does not serve that kind.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from bridge.errors import Conflict, ContractError, Exhausted, Invalid, NotFound, RemoteError, Unanswered, Unauthorized
from bridge.kube.codec import status_of
from bridge.kube.transport import SIDE, Reply
from bridge.kube.wire import Status

MESSAGE_MOST = 500
LONGEST_WAIT_S = 1e9
_DIGITS = 10


def judged(operation: str, reply: Reply) -> Reply:
    """The reply, if it is a 2xx; else raises the error that `refusal` returns."""
    if 200 <= reply.status < 300:
        return reply
    raise refusal(operation, reply)


def refusal(operation: str, reply: Reply) -> RemoteError:
    """The error for an answer other than 2xx.

    401, 403 Unauthorized; 404 NotFound; 409 Conflict; 429 Exhausted with the seconds it asks for; 400, 413, 422 Invalid;
    5xx Unanswered: the request may have taken effect.  Any other answer is a ContractError, and so is a 403, 404 or 409 that
    is not from Kubernetes.  If a patch names the uid of another incarnation, the answer is 422 for the field metadata.uid
    (1.36; for a binding or deletion it is 409); that is a Conflict, too.
    """
    status, code = status_of(reply.body), reply.status
    message = _words(status, code)
    if code == 401 or (code == 403 and status is not None):
        return Unauthorized(operation, SIDE, message, code)
    if code == 429:
        return Exhausted(operation, SIDE, message, code, _retry_after(reply, status))
    if code >= 500:
        return Unanswered(operation, SIDE, message, code)
    if status is None:
        return ContractError(operation, SIDE, f"an answer that is not from a Kubernetes API server (HTTP {code})", code)
    if code == 404 and not (status.details and status.details.name):
        return ContractError(operation, SIDE, message, code)
    if code == 422 and status.details and any(cause.field == "metadata.uid" for cause in status.details.causes or ()):
        return Conflict(operation, SIDE, message, code)
    return _REFUSALS.get(code, ContractError)(operation, SIDE, message, code)


_REFUSALS: dict[int, type[RemoteError]] = {
    400: Invalid,
    404: NotFound,
    409: Conflict,
    413: Invalid,
    422: Invalid,
}


def _words(status: Status | None, code: int) -> str:
    """The message of the Status.  The error page of another program is not quoted."""
    if status is None or not status.message:
        return f"HTTP {code}"
    return "".join(c if c.isprintable() else " " for c in status.message[:MESSAGE_MOST])


def _retry_after(reply: Reply, status: Status | None) -> float | None:
    """Seconds, from the header (a number, or a date by the server's clock) or from the Status; None: neither has them."""
    header = reply.headers.get("retry-after", "")
    if header.isascii() and header.isdigit():
        return float(header) if len(header) < _DIGITS else LONGEST_WAIT_S
    until, now = http_date(header), http_date(reply.headers.get("date", ""))
    if until is not None and now is not None:
        return min(max(0.0, until - now), LONGEST_WAIT_S)
    if status and status.details and (seconds := status.details.retry_after_seconds) and seconds > 0:
        return min(float(seconds), LONGEST_WAIT_S)
    return None


def http_date(text: str) -> float | None:
    """Epoch seconds; None if the text is not a date."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):  # a year after 9999, or a part of a date
        return None
