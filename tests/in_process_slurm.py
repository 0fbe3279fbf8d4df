"""The simulated Slurm behind the client's Transport, in this process: no sockets, no faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.simulation.slurm import rest
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.slurm.transport import Reply


class InProcessSlurm:
    """Every exchange takes place at the clock's now."""

    def __init__(self, cluster: SlurmCluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> Reply:
        """See Transport.  It is answered at once."""
        status, answered, content = rest.answer(self._cluster, self._clock(), method, target, headers, body)
        return Reply(status, {name.lower(): value for name, value in answered.items()}, content)
