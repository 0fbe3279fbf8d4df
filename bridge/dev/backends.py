"""The two clusters of `slurm-bridge dev`: each is simulated, behind real HTTP on loopback, or real.

If one cluster is real, the simulated cluster has the same nodes.  If both are simulated, they have a few nodes with GPUs.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bridge import settings
from bridge.connections import Connections, Hooks, Unobserved
from bridge.errors import ConfigError, RemoteError, said
from bridge.kube.access import Access, anonymous
from bridge.kube.client import KubeClient
from bridge.kube.lists import listed
from bridge.kube.transport import connect
from bridge.kube.watch import nodes as watched_nodes
from bridge.preflight.checks import check_kubernetes, check_slurm
from bridge.simulation.http import serve_kube, serve_slurm
from bridge.simulation.kube import objects
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.observations import (
    KubeObservations,
    KubePolledObservations,
    KubeSimulatedObservations,
    SlurmObservations,
    SlurmPolledObservations,
    SlurmSimulatedObservations,
)
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.jobs import SimPartition, SimUser
from bridge.simulation.slurm.nodes import SlurmSimNode
from bridge.slurm.client import SlurmClient
from bridge.slurm.token import LiteralToken, TokenSource, claims_of
from bridge.slurm.transport import DEFAULT_DEADLINE_S, Transport
from bridge.webhook.review import Intercept, is_intercepted
from scheduler import names
from scheduler.events import Side

GPU = "nvidia.com/gpu"
SIMULATED_DEADLINE_S = 2.0  # a simulated slurmrestd answers either at once or never
TICK_S = 1.0
REAL_SPACE = "slurm-bridge-dev"
SIMULATED_SPACE = "hpc"
SIMULATED_USER = "alice"


@dataclass(frozen=True, slots=True)
class Size:
    """A node.  gpus: of any type"""

    name: str
    cpus: int
    memory_mib: int
    gpus: int


EXAMPLE = tuple(Size(f"x{number}", cpus=64, memory_mib=512_000, gpus=4) for number in range(1, 5))


@dataclass(slots=True)
class KubeBackend:
    """Kubernetes.

    space           the namespace of the created pods
    scheduler_name  of these pods: in a real cluster another name than the name of a bridge that may run there
    simulated       None: the cluster is real, and `kubeconfig` is the file that was given
    """

    access: Access
    version: str
    nodes: tuple[Size, ...]
    cluster: str
    space: str
    scheduler_name: str
    observations: KubeObservations
    simulated: InProcessKube | None = None
    kubeconfig: str = ""

    async def look(self) -> None:
        """Refresh the observations.  Raises RemoteError."""
        if isinstance(self.observations, KubePolledObservations):
            await self.observations.look()


@dataclass(slots=True)
class SlurmBackend:
    """Slurm.

    user        the user of the jobs
    simulated   None: the cluster is real
    token_file  for a real cluster, the file that was given; "": the token is in SLURM_JWT
    """

    url: str
    tokens: TokenSource
    user: str
    version: str
    nodes: tuple[Size, ...]
    partitions: frozenset[str]
    deadline_s: float
    observations: SlurmObservations
    simulated: SlurmCluster | None = None
    ticking: bool = True
    token_file: str = ""

    def client(
        self, transport: Transport, *, polls: Transport | None = None, hooks: Hooks | None = None
    ) -> SlurmClient:
        """A client for this Slurm; its caller awaits `discover()` first.

        polls   the transport of the polls of job states; None: as for all calls
        """
        on_call = (hooks or Unobserved()).on_call(Side.SLURM)
        return SlurmClient(transport, self.tokens, polls=polls, deadline_s=self.deadline_s, on_call=on_call)

    async def look(self) -> None:
        """Refresh the observations.  Raises RemoteError."""
        if isinstance(self.observations, SlurmPolledObservations):
            await self.observations.look()

    async def live(self, after: Callable[[], None]) -> None:
        """Tick the simulated slurmctld, and call `after` after each tick.  Never returns."""
        while True:
            await asyncio.sleep(TICK_S)
            if self.simulated is not None and self.ticking:
                self.simulated.tick(time.time())
                after()


async def both(
    stack: AsyncExitStack, *, kubeconfig: str, slurm_url: str, token_file: str, user: str, seed: int
) -> tuple[KubeBackend, SlurmBackend]:
    """Connect to the real clusters that are named, and simulate the others.  Raises ConfigError."""
    kube = await _real_kube(stack, kubeconfig) if kubeconfig else None
    slurm = await _real_slurm(stack, slurm_url, token_file, user) if slurm_url else None
    if slurm is None:
        slurm = await _simulated_slurm(stack, kube.nodes if kube else EXAMPLE, seed)
    if kube is None:
        # The uid of the cluster is part of job names, and many clusters may use a real Slurm.
        kube = await _simulated_kube(stack, slurm.nodes, seed if slurm.simulated else secrets.randbits(32))
    return kube, slurm


# --- simulated ----------------------------------------------------------------------------------------------------


async def _simulated_kube(stack: AsyncExitStack, nodes: Iterable[Size], seed: int) -> KubeBackend:
    now = time.time()
    cluster = KubeCluster(seed, started=now)
    cluster.admit = _intercepted
    for node in nodes:
        made = objects.node(node.name, cpu=str(node.cpus), memory=f"{node.memory_mib}Mi")
        amounts = made["status"]["allocatable"] | ({GPU: str(node.gpus)} if node.gpus else {})
        cluster.create(now, "nodes", made | {"status": {"allocatable": amounts, "capacity": amounts}})
    cluster.create(now, "namespaces", objects.namespace(SIMULATED_SPACE, {names.MANAGED_LABEL: "true"}))
    inner = InProcessKube(cluster, time.time)
    url = await stack.enter_async_context(serve_kube(inner))
    system = cluster.store.get("namespaces", "", "kube-system")
    assert system is not None
    return KubeBackend(
        anonymous(url),
        "simulated",
        tuple(nodes),
        names.cluster_id(system["metadata"]["uid"]),
        SIMULATED_SPACE,
        names.SCHEDULER_NAME,
        KubeSimulatedObservations(cluster),
        inner,
    )


def _intercepted(pod: objects.Object, namespace: objects.Object) -> objects.Object:
    """The pod as manifests/admission/intercept.yaml admits it: in a managed namespace it gets the bridge's schedulerName."""
    managed = (namespace["metadata"].get("labels") or {}).get(names.MANAGED_LABEL) == "true"
    if not managed or not is_intercepted(pod, Intercept.UNNAMED):
        return pod
    return {**pod, "spec": {**pod["spec"], "schedulerName": names.SCHEDULER_NAME}}


async def _simulated_slurm(stack: AsyncExitStack, nodes: tuple[Size, ...], seed: int) -> SlurmBackend:
    cluster = SlurmCluster(
        [
            SlurmSimNode(node.name, node.cpus, node.memory_mib, {("gpu", ""): node.gpus} if node.gpus else {})
            for node in nodes
        ],
        (SimPartition("main", default_time_min=60, default=True), SimPartition("low", tier=1, preempted=True)),
        (SimUser(SIMULATED_USER, ("teama",)), SimUser("slurm", ("root",))),
        seed=seed,
        started=time.time(),
    )
    url = await stack.enter_async_context(serve_slurm(cluster, time.time))
    return SlurmBackend(
        url,
        LiteralToken(cluster.token("slurm")),
        SIMULATED_USER,
        "simulated",
        nodes,
        frozenset(cluster.partitions),
        SIMULATED_DEADLINE_S,
        SlurmSimulatedObservations(cluster),
        cluster,
    )


# --- real ---------------------------------------------------------------------------------------------------------


async def _real_kube(stack: AsyncExitStack, kubeconfig: str) -> KubeBackend:
    transport = await connect(kubeconfig, stack)
    access = transport.access
    client = KubeClient(transport, REAL_SPACE, time.time)
    version = await check_kubernetes(client, access.server)
    looks = KubePolledObservations(transport, REAL_SPACE)
    try:
        system = await client.namespace("kube-system")
        nodes = (await listed(transport, watched_nodes())).found
    except RemoteError as error:
        raise ConfigError(f"kubeconfig's server {access.server}: {said(error)}") from None
    if system is None:
        raise ConfigError(
            f"kubeconfig's server {access.server} has no namespace kube-system: is this the URL of a Kubernetes API server?"
        )
    sizes = tuple(
        Size(
            (node.labels.get(names.SLURM_NODE_LABEL) or node.name),
            node.allocatable.get("cpu", 0) // 1000,
            node.allocatable.get("memory", 0) >> 20,
            node.allocatable.get(GPU, 0),
        )
        for node in nodes
    )
    cluster = names.cluster_id(system.uid, REAL_SPACE)
    return KubeBackend(access, version, sizes, cluster, REAL_SPACE, REAL_SPACE, looks, kubeconfig=kubeconfig)


async def _real_slurm(stack: AsyncExitStack, url: str, token_file: str, user: str) -> SlurmBackend:
    chosen = settings.load({"slurm_url": url, "slurm_token_file": token_file or None}, {})
    connections = Connections(chosen, stack)
    tokens, client = connections.tokens.own, connections.slurm
    found = await check_slurm(client, chosen, tokens.user)
    try:
        nodes, partitions = await client.nodes(), await client.partitions()
    except RemoteError as error:
        raise ConfigError(f"slurm_url {url}: {said(error)}") from None
    sizes = tuple(Size(node.name, node.cpus, node.memory_mib, node.gres.get("gpu", 0)) for node in nodes)
    whose = user or claims_of(tokens.token()).sun
    if not whose or whose == "root":
        raise ConfigError(
            "the Slurm user of the jobs is not known. Name an ordinary Slurm user with --slurm-user NAME."
        )
    return SlurmBackend(
        url,
        tokens,
        whose,
        found.version,
        sizes,
        frozenset(partition.name for partition in partitions),
        DEFAULT_DEADLINE_S,
        SlurmPolledObservations(client),
        token_file=token_file,
    )
