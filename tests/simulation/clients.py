"""The clients of a bridge between two simulated clusters."""

from __future__ import annotations

from collections.abc import Callable

from bridge.kube.client import KubeClient
from bridge.kube.transport import Transport as KubeTransport
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken
from bridge.slurm.transport import Transport as SlurmTransport


async def connected(
    kube_transport: KubeTransport, slurm_transport: SlurmTransport, cluster: SlurmCluster, clock: Callable[[], float]
) -> tuple[KubeClient, SlurmClient]:
    """The clients that use these transports, on a virtual clock.  Raises RemoteError if Slurm does not answer.

    cluster   gives the bridge its token
    """
    slurm = SlurmClient(slurm_transport, LiteralToken(cluster.token("slurm")), clock=clock, stopwatch=clock)
    await slurm.discover()
    return KubeClient(kube_transport, "slurm-bridge", clock), slurm
