"""Why a workload, a node or a request is refused, in words for users."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal in words for users: what, where, and what to do.

    reason   CamelCase, for the condition; number: Slurm's error number, 0: none
    later    temporary: a limit, a lack of room or of rights that may pass by itself (Q4)
    retry_after_s  seconds after which the server accepts a retry; None: it gives none
    """

    reason: str
    message: str
    number: int = 0
    later: bool = False
    retry_after_s: float | None = None
