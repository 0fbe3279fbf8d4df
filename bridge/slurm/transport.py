"""The interface of the transport to slurmrestd, and what callers may rely on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

# slurmrestd itself gives up on a silent slurmctld after 9–10 s (Slurm facts 4): its error is better than none.
DEFAULT_DEADLINE_S = 12.0

SIDE = "Slurm"


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer.

    headers    names in lower case
    waited_s   how long the request waited for a free connection, which no deadline counts
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    waited_s: float = 0.0


class Transport(Protocol):
    """Carries requests: a pool of connections, recordings, or a simulated Slurm."""

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        """Send one request and return its whole answer, whatever its status.

        target      path and query, "/slurm/v0.0.45/ping/"
        deadline_s  for connecting, sending and reading; before that the request waits for a free connection
        Raises Unreachable (nothing was sent), Unanswered (it may have happened), ContractError (no HTTP, too large).
        """
        ...
