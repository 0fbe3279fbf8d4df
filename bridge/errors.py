"""Every way in which the world can fail us, and the one question about each: did it happen?

    FarSideError(operation, side, code, message)
      Refused        it said no; nothing changed there      -> Outcome.REFUSED
        NotFound       the object does not exist, and the far side's own words prove it
        Conflict       somebody else changed it first, or it is already so
        Unauthorized   our token or our rights were not accepted
          NoUserToken    it is the token of one Slurm user; the message is for that user's pods
        Invalid        what we asked is not possible as asked
        Exhausted      a limit or a lack of room: later, perhaps (.retry_after_s)
      Unreachable    nothing was sent (Slurm: also error 1800) -> Outcome.UNREACHED: back off
        AccountingAway the call needs slurmdbd, which does not answer slurmrestd; the rest of Slurm may be well
      Unanswered     it was sent and there is no answer, or one that proves nothing (Slurm 5004, a 5xx without a Slurm error
                     number): it may have happened, or may yet  -> Outcome.UNKNOWN: hold, then look; never blindly repeat
    ContractError  the answer makes no sense (a 404 that is not Slurm's, no JSON, a missing field): no action follows, alarm.
                   For a write it is as Unanswered: it may have happened
    ConfigError    at start only; exit code 2; one line that says which key and why
      NotYet         at start a cluster is away, or makes no sense: it is waited for (bridge/preflight/waiting.py)

Classified by status and by Slurm's error *number*, never by text (Slurm facts 4).  Any other exception, an AssertionError
among them, is our own mistake: guard.py contains it to one object, or lets it end the process.
"""

from __future__ import annotations


class BridgeError(Exception):
    """The root.  str() is a sentence for a person and never holds a token."""


def said(error: BridgeError) -> str:
    """As a sentence that ends as one."""
    text = str(error).rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


class ConfigError(BridgeError):
    """What the admin wrote cannot be used.

    what   which key or file, and why
    do     what to do about it; "": `what` says it, or shows it
    """

    def __init__(self, what: str, do: str = "") -> None:
        super().__init__(f"{what} {do}" if do else what)
        self.what = what
        self.do = do


class NotYet(ConfigError):
    """At start: a cluster does not answer, or makes no sense; waiting may mend it."""


class FarSideError(BridgeError):
    """operation: what was tried ("allocate"); side: "Slurm" or "Kubernetes"; code: HTTP status or Slurm error number."""

    def __init__(self, operation: str, side: str, message: str, code: int = 0) -> None:
        super().__init__(f"{side}: {operation}: {message}" + (f" (error {code})" if code else ""))
        self.operation = operation
        self.side = side
        self.message = message
        self.code = code


class Refused(FarSideError):
    """It said no; nothing changed."""


class NotFound(Refused):
    """The object does not exist; proven by the far side's own error number or Status."""


class Conflict(Refused):
    """Somebody was faster, or it is already so."""


class Unauthorized(Refused):
    """Token or rights not accepted (Slurm 511/1007, Kubernetes 401, 403)."""


class NoUserToken(Unauthorized):
    """The token of one Slurm user cannot be used, or Slurm does not accept it; a sentence for the pods of that user."""


class Invalid(Refused):
    """Not possible as asked."""


class Exhausted(Refused):
    """A limit, or no room now; `retry_after_s` where the far side said so."""

    def __init__(
        self, operation: str, side: str, message: str, code: int = 0, retry_after_s: float | None = None
    ) -> None:
        super().__init__(operation, side, message, code)
        self.retry_after_s = retry_after_s


class Unreachable(FarSideError):
    """Nothing was sent."""


def not_sent(operation: str, side: str) -> Unreachable:
    """A write that was held back at the last moment: this replica does not hold the lease any more (kube/lease.py)."""
    return Unreachable(operation, side, "not sent, because this replica does not lead any more")


class AccountingAway(Unreachable):
    """slurmdbd, behind slurmrestd, does not answer; its code is always scheduler.events.ACCOUNTING_AWAY."""


class Unanswered(FarSideError):
    """Sent, and nobody knows."""


class ContractError(FarSideError):
    """The answer makes no sense."""
