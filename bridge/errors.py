"""Every way in which a far side can fail, and the one question about each: did the request take effect?

    RemoteError(operation, side, number, message)
      Refused        the far side refused; nothing changed there      -> Outcome.REFUSED
        NotFound       the object does not exist, and the far side's own words prove it
        Conflict       another client changed it first, or it is already so
        Unauthorized   the bridge's token or rights were not accepted
          NoUserToken    the token of one Slurm user; the message is for that user's pods
        Invalid        the request is not possible as it is
        Exhausted      a limit, or no room: it may work later (.retry_after_s)
      Unreachable    nothing was sent (Slurm: also error 1800) -> Outcome.UNREACHED: back off
        AccountingUnavailable the call needs slurmdbd, which does not answer slurmrestd; the rest of Slurm may be well
      Unanswered     it was sent, and there is no answer or an answer that proves nothing (Slurm 5004, a 5xx without a Slurm
                     error number): it may have taken effect, or may yet -> Outcome.UNKNOWN: wait, then read; never repeat
                     blindly
    ContractError  the answer makes no sense (a 404 that is not Slurm's, no JSON, a missing field): nothing follows from it.
                   A write may have taken effect, as with Unanswered
    ConfigError    at start only; exit code 2; one line with the key and the reason
      NotYet         at start a cluster does not answer, or makes no sense: the bridge waits (bridge/preflight/waiting.py)

Classified by status and by Slurm's error *number*, never by text (Slurm facts 4).  Any other exception, an AssertionError
among them, is a defect of the bridge: guard.py contains it to one object, or lets it end the process.
"""

from __future__ import annotations


class BridgeError(Exception):
    """The root.  str() is a sentence for a person and never holds a token."""


def said(error: BridgeError) -> str:
    """The error as a sentence, with its full stop."""
    text = str(error).rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


class ConfigError(BridgeError):
    """Settings, a file or an option cannot be used.

    what   which key or file, and why
    do     what to do about it; "": `what` says that, too
    """

    def __init__(self, what: str, do: str = "") -> None:
        super().__init__(f"{what} {do}" if do else what)
        self.what = what
        self.do = do


class NotYet(ConfigError):
    """At start: a cluster does not answer, or its answer makes no sense; waiting may mend it."""


class RemoteError(BridgeError):
    """operation: the call ("allocate"); side: "Slurm" or "Kubernetes"; number: Slurm's error number, or the HTTP status."""

    def __init__(self, operation: str, side: str, message: str, number: int = 0) -> None:
        super().__init__(f"{side}: {operation}: {message}" + (f" (error {number})" if number else ""))
        self.operation = operation
        self.side = side
        self.message = message
        self.number = number


class Refused(RemoteError):
    """The far side refused; nothing changed."""


class NotFound(Refused):
    """The object does not exist; proven by the far side's own error number or Status."""


class Conflict(Refused):
    """Another client was faster, or it is already so."""


class Unauthorized(Refused):
    """Token or rights not accepted (Slurm 511/1007, Kubernetes 401, 403)."""


class NoUserToken(Unauthorized):
    """The token of one Slurm user cannot be used, or Slurm does not accept it.  The message is for the pods of that user."""


class Invalid(Refused):
    """The request is invalid."""


class Exhausted(Refused):
    """A limit, or no room now.  retry_after_s: seconds, if the far side gave a time."""

    def __init__(
        self, operation: str, side: str, message: str, number: int = 0, retry_after_s: float | None = None
    ) -> None:
        super().__init__(operation, side, message, number)
        self.retry_after_s = retry_after_s


class Unreachable(RemoteError):
    """Nothing was sent."""


def not_sent(operation: str, side: str) -> Unreachable:
    """The error of a write that was not sent because this replica does not hold the lease any more (kube/lease.py)."""
    return Unreachable(operation, side, "not sent, because this replica does not lead any more")


class AccountingUnavailable(Unreachable):
    """slurmdbd, behind slurmrestd, does not answer; its number is always slurm_errors.ACCOUNTING_AWAY.

    If slurmdbd is frozen, the request may take effect later.  The only write to it may: it says the same each time.
    """


class Unanswered(RemoteError):
    """Sent; whether it took effect is unknown."""


class ContractError(RemoteError):
    """The answer makes no sense."""
