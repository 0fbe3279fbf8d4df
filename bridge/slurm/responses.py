"""Classification of slurmrestd's answers: did the request take effect?

An answer is classified by its status and Slurm's error *number*, never by its text (Slurm facts 4).  Slurm answers 200 to a
request that it did not perform (the errors are in the body), 422 or 500 to the same mistake in two releases, 403 "Operation
not permitted" to a cancel while slurmctld is down, and 404 both for a job and for a URL that it does not know: only the
number distinguishes these.  An answer without a number, or with a number below 2000 (of the machine or the connection),
proves nothing: the request may have taken effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec

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
from bridge.slurm.lists import UNDECODABLE
from bridge.slurm.transport import SIDE, Reply
from bridge.slurm.wire import Envelope, ErrorEntry
from scheduler.model.slurm_errors import (
    ACCOUNTING_AWAY,
    ADVICE,
    AUTHENTICATION,
    BUSY,
    CONTROLLER_AWAY,
    DEFERRED,
    DEPENDENCY,
    FIRST_VERDICT,
    LIMIT,
    MAX_JOBS,
    NO_LICENSE_LEFT,
    NODE_EXISTS,
    NODES_UNAVAILABLE,
    PRIORITY,
    UNANSWERED,
    UNKNOWN_JOB,
    UNKNOWN_NODE,
)

# Slurm's slurm_errno.h.  A number that is not in this table means Invalid, with Slurm's own text.
MEANING: Mapping[int, type[RemoteError]] = {
    AUTHENTICATION: Unauthorized,
    CONTROLLER_AWAY: Unreachable,
    MAX_JOBS: Exhausted,
    PRIORITY: Exhausted,
    BUSY: Exhausted,
    UNKNOWN_JOB: NotFound,
    UNKNOWN_NODE: Invalid,
    NO_LICENSE_LEFT: Exhausted,
    LIMIT: Exhausted,
    NODES_UNAVAILABLE: Exhausted,
    DEFERRED: Exhausted,
    NODE_EXISTS: Conflict,
    UNANSWERED: Unanswered,
}
FORBIDDEN: Final = 403
# slurm_strerror of "no particular reason"; it proves nothing.
_NO_NUMBER = (0, -1, 0xFFFFFFFF)
WHERE_TO_LOOK = "slurmctld may be down, `scontrol ping` shows it"

# Warnings on a write that say nothing about what we sent, by their source, and why.  (One about a field that Slurm did
# not understand has that field as its source: "#/job/cpus_per_task/".)
HARMLESS: Mapping[str, str] = {
    "slurm_submit_batch_job()": "accepted; it waits for what the warning says: held, partition down, nodes drained",
    "slurm_submit_batch_het_job()": "the same of a heterogeneous job",
}

MAX_TEXT = 300
MOST_RETRY_AFTER_S = 300.0

_E = TypeVar("_E", bound=Envelope)
_E_co = TypeVar("_E_co", bound=Envelope, covariant=True)


class Decoder(Protocol[_E_co]):
    """Decodes a text to an answer; raises one of UNDECODABLE if it is none."""

    def decode(self, body: bytes, /) -> _E_co:
        """The answer."""
        ...


class Unchanged(Generic[_E]):
    """Decodes a text only if it differs from the previous one: most polls repeat the last answer."""

    def __init__(self, decoder: Decoder[_E]) -> None:
        self._decoder = decoder
        self._last: tuple[bytes, _E] | None = None

    def decode(self, body: bytes, /) -> _E:
        """The answer; the very same object for the same text."""
        if self._last is None or self._last[0] != body:
            self._last = body, self._decoder.decode(body)
        return self._last[1]


_ENVELOPE = msgspec.json.Decoder(Envelope)


def read(operation: str, reply: Reply, decoder: Decoder[_E], *, write: bool) -> _E:
    """The decoded answer, if it means success.

    write  warnings count: with a warning Slurm reports that it ignored a field, so the effect is not what was requested
    Raises what MEANING says, Unauthorized, Unanswered, or ContractError (no JSON, a field missing, such a warning).
    """
    if reply.status != 200:
        raise failure(operation, reply)
    try:
        answer = decoder.decode(reply.body)
    except UNDECODABLE as error:
        refused = _errors(reply.body)
        if refused:
            raise by_number(operation, refused[0]) from None
        raise ContractError(operation, SIDE, f"an answer that makes no sense: {plain(str(error))}") from None
    for entry in answer.errors or ():
        raise by_number(operation, entry)
    if write:
        for warning in answer.warnings or ():
            if warning.source not in HARMLESS:
                raise ContractError(operation, SIDE, f"Slurm ignored something: {plain(warning.description)}")
    return answer


def failure(operation: str, reply: Reply) -> RemoteError:
    """The error for an answer with a status other than 200."""
    status, entries = reply.status, _errors(reply.body)
    for entry in entries:
        if entry.error_number not in _NO_NUMBER or _of_accounting(entry):
            return by_number(operation, entry)
    if status == 304:
        return NotFound(operation, SIDE, "Slurm has no such record", status)
    wait_s = retry_after_s(reply.headers.get("retry-after", ""))
    if status == 429 or (status == 503 and wait_s is not None and not entries):  # a proxy sent nothing on
        return Exhausted(operation, SIDE, "the proxy before slurmrestd takes no more requests now", status, wait_s)
    if status in (401, 511):
        return Unauthorized(operation, SIDE, "Slurm does not accept the token", status)
    if status >= 500 and entries:
        return _without_number(operation, entries[0], status)
    text = plain(reply.body[: 4 * MAX_TEXT].decode("utf-8", "replace"))
    if status == FORBIDDEN:  # of a token that it does not accept slurmrestd says 401 or 511
        return Unauthorized(operation, SIDE, f"the proxy before slurmrestd does not let it pass ({text})", status)
    if status >= 500 and text.startswith("{"):  # JSON, which is not for people
        return Unanswered(operation, SIDE, f"an answer without a reason; {WHERE_TO_LOOK}", status)
    if status >= 500:
        return Unanswered(
            operation, SIDE, f"an answer without a reason ({text})" if text else "an empty answer", status
        )
    if status == 404:
        return ContractError(operation, SIDE, f"this is not slurmrestd's answer; is the URL right? ({text})", status)
    return ContractError(operation, SIDE, f"an answer that is not slurmrestd's ({text})", status)


def retry_after_s(value: str) -> float | None:
    """Seconds of a Retry-After header, at most MOST_RETRY_AFTER_S; None if it holds no number."""
    value = value.strip()
    if not (value.isascii() and value.isdecimal()):
        return None  # absent; or a date, by a clock that is not ours
    return min(MOST_RETRY_AFTER_S, float(value[:9]))


def by_number(operation: str, entry: ErrorEntry) -> RemoteError:
    """The error for one of Slurm's numbers, with Slurm's own text."""
    if _of_accounting(entry):
        return AccountingUnavailable(operation, SIDE, f"slurmdbd does not answer ({_text(entry)})", ACCOUNTING_AWAY)
    number = entry.error_number
    text = plain(entry.error) or plain(entry.description)
    text += f": {ADVICE[number]}" if number in ADVICE else ""
    if number in _NO_NUMBER:
        return _without_number(operation, entry)
    # An immediate allocation depends on singleton alone, so a twin of this name lives.
    if number == DEPENDENCY and operation == "allocate":
        return Conflict(operation, SIDE, "a job of this name exists", number)
    default = Invalid if number >= FIRST_VERDICT else Unanswered
    return MEANING.get(number, default)(operation, SIDE, text or "it said no, without a text", number)


def _of_accounting(entry: ErrorEntry) -> bool:
    """slurmdbd, or its database, is away.

    slurmrestd itself asks slurmdbd in some calls to slurmctld, too: `GET partitions` then ends with the machine's own number
    (111, connection refused), and names the function of libslurmdb that failed (Slurm facts 9).
    """
    number = entry.error_number
    return number == ACCOUNTING_AWAY or (number < FIRST_VERDICT and entry.source.startswith("slurmdb_"))


def _text(entry: ErrorEntry) -> str:
    return plain(entry.error) or plain(entry.description) or "an error without a text"


def _without_number(operation: str, entry: ErrorEntry, status: int = 0) -> Unanswered:
    """Such an answer has the same text for every cause; the most common cause is that slurmctld is down."""
    text = _text(entry)
    return Unanswered(operation, SIDE, f"slurmrestd says {text}, number {entry.error_number}; {WHERE_TO_LOOK}", status)


def _errors(body: bytes) -> tuple[ErrorEntry, ...]:
    """The errors in a body; [] if the body is not of slurmrestd."""
    try:
        return _ENVELOPE.decode(body).errors or ()
    except UNDECODABLE:
        return ()


def plain(text: str) -> str:
    """One short line without control characters, whatever a server sends."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 1] + "…"
