"""The two simulated clusters of a life, with their clocks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bridge.simulation.kube import objects
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.jobs import SimPartition, SimUser
from bridge.simulation.slurm.nodes import SlurmSimNode
from bridge.simulation.virtual_time import START
from tests.simulation.arrivals import ArrivalInvariants
from tests.simulation.network import Faults
from tests.simulation.policies import USER_LABEL, USERS
from tests.simulation.strangers import UNMANAGED

CPUS, MEMORY_MIB, GPUS = 8, 16_384, 2
SKEWS = (0.0, 0.0, 0.0, 3.0, -3.0, 400.0, -400.0, 7200.0, -7200.0)


@dataclass(slots=True)
class Clusters:
    """Both clusters of one seed.

    nodes    those of its Kubernetes
    beside   the life of another Kubernetes, whose Slurm it shares; None: it has a Slurm of its own
    others   further nodes of that Slurm
    sharers  the other lives on it
    made     how many objects were made
    kube_ahead, slurm_ahead   by how many seconds the clocks of the two clusters are ahead of the bridge's
    clock    that of the event loop
    """

    seed: int
    nodes: tuple[str, ...] = ("x1", "x2", "x3")
    beside: Clusters | None = None
    others: tuple[str, ...] = ()
    sharers: list[Clusters] = field(default_factory=list)
    made: int = 0
    rng: random.Random = field(init=False)
    kube: KubeCluster = field(init=False)
    slurm: SlurmCluster = field(init=False)
    inner: InProcessKube = field(init=False)
    faults: Faults = field(init=False)
    invariants: ArrivalInvariants = field(init=False)
    kube_ahead: float = field(init=False)
    slurm_ahead: float = field(init=False)
    clock: Callable[[], float] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        skew = random.Random(self.seed + 2)
        self.kube_ahead = skew.choice(SKEWS)
        self.slurm_ahead = skew.choice(SKEWS) if self.beside is None else self.beside.slurm_ahead
        self.kube = KubeCluster(self.seed)
        if self.beside is None:
            self.slurm = self._new_slurm()
        else:
            self.slurm = self.beside.slurm
            self.sharers.append(self.beside)
            self.beside.sharers.append(self)
        for name in self.nodes:
            amounts = {"nvidia.com/gpu": str(GPUS)}
            self.kube.create(
                START + self.kube_ahead, "nodes", objects.node(name, cpu=str(CPUS), memory=f"{MEMORY_MIB}Mi", **amounts)
            )
        for name in (*USERS, "free", UNMANAGED):
            labels = {"slurm-bridge/managed": "true"} if name != UNMANAGED else {}
            labels |= {USER_LABEL: USERS[name]} if name in USERS else {}
            self.kube.create(START + self.kube_ahead, "namespaces", {"metadata": {"name": name, "labels": labels}})
        if self.hasty:
            self.kube.actors.not_ready_s = 10.0
        self.faults = Faults(random.Random(self.seed + 1))

    def _new_slurm(self) -> SlurmCluster:
        return SlurmCluster(
            [SlurmSimNode(name, CPUS, MEMORY_MIB, {("gpu", "h100"): GPUS}) for name in (*self.nodes, *self.others)],
            (SimPartition("main", default_time_min=60, default=True),),
            (
                SimUser("alice", ("teama", "teama-dev")),
                SimUser("bob", ("teamb",), max_submit_jobs=6),
                SimUser("carol", ("teamb",)),
            ),
            seed=self.seed,
            stock=self.rng.random() < 0.5,
            accounting=self.rng.random() < 0.7,
            counts_memory=random.Random(self.seed + 3).random() < 0.8,
            started=START + self.slurm_ahead,
        )

    @property
    def hasty(self) -> bool:
        """Its admins give up a dead node within the chaos, Kubernetes and the bridge alike."""
        return random.Random(self.seed + 4).random() < 0.4

    def kube_clock(self) -> float:
        return self.clock() + self.kube_ahead

    def slurm_clock(self) -> float:
        return self.clock() + self.slurm_ahead


def annotations_of(thing: dict[str, Any]) -> dict[str, str]:
    """The annotations of an object: the server keeps no empty map."""
    return thing["metadata"].get("annotations") or {}
