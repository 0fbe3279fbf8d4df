"""What was observed: past participles, applied to the World in whatever order they come.

Times are seconds of the bridge's one clock (epoch seconds).  `began` is when the question was sent, `ended` when the
answer was read: a fact that is younger than `began` is not contradicted by that answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from scheduler.actions import Action, Outcome, Plan
from scheduler.model import (
    Claim,
    Grant,
    Job,
    Namespace,
    Node,
    Owner,
    OwnerRef,
    Partition,
    Pod,
    Refusal,
    SlurmNode,
    States,
)


class Scope(Enum):
    """Which of the two pod watches saw it: pods that name this scheduler, or all others that stand on a node."""

    OURS = "ours"
    OTHERS = "others"


class Side(Enum):
    KUBERNETES = "Kubernetes"
    SLURM = "Slurm"


@dataclass(frozen=True, slots=True)
class PodSeen:
    scope: Scope
    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """The watch said DELETED.  `pod` is its last state.  (A pod that only left the selector of OTHERS is gone too.)"""

    scope: Scope
    pod: Pod
    at: float


@dataclass(frozen=True, slots=True)
class PodsListed:
    """A complete, fresh list: what is not in it does not exist."""

    scope: Scope
    pods: tuple[Pod, ...]
    at: float


@dataclass(frozen=True, slots=True)
class NodeSeen:
    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    name: str


@dataclass(frozen=True, slots=True)
class NodesListed:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    namespace: Namespace


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    name: str


@dataclass(frozen=True, slots=True)
class NamespacesListed:
    namespaces: tuple[Namespace, ...]


@dataclass(frozen=True, slots=True)
class OwnerRead:
    """owner None: it does not exist, or may not be read; that is no error (W2)."""

    ref: OwnerRef
    owner: Owner | None
    at: float


@dataclass(frozen=True, slots=True)
class ClaimsRead:
    uid: str
    claims: tuple[Claim, ...]
    at: float


@dataclass(frozen=True, slots=True)
class JobsPolled:
    """The whole of `jobs/state`: job id to states.  What is not in it, Slurm does not know (any more)."""

    began: float
    ended: float
    states: Mapping[int, States]


@dataclass(frozen=True, slots=True)
class JobRead:
    """One job, read by its id.  job None: Slurm said that it has no such job (error 2017)."""

    job_id: int
    began: float
    ended: float
    job: Job | None
    grant: Grant | None = None


@dataclass(frozen=True, slots=True)
class SlurmNodesPolled:
    """began: when it was asked for; None: as `at`."""

    nodes: tuple[SlurmNode, ...]
    partitions: tuple[Partition, ...]
    at: float
    began: float | None = None


@dataclass(frozen=True, slots=True)
class SideLost:
    """One side does not answer, or refuses us.  `why` is a sentence."""

    side: Side
    since: float
    why: str


@dataclass(frozen=True, slots=True)
class SideBack:
    side: Side
    at: float


@dataclass(frozen=True, slots=True)
class AbsenceBelieved:
    """The admin says that the jobs which Slurm lists no more are gone indeed (X6)."""

    at: float


@dataclass(frozen=True, slots=True)
class Planned:
    """The loop is about to perform this plan: holds are placed, marks cleared."""

    plan: Plan
    at: float


@dataclass(frozen=True, slots=True)
class ActionEnded:
    """How an action ended.

    began     when it was sent
    refusal   where outcome is REFUSED (or the reason of UNREACHED, UNKNOWN, in words)
    job_id    of AllocateNow and SubmitJob, where DONE
    grant     of AllocateNow, where DONE and it could be read
    found     of FindJobs: ids of live jobs of that name
    """

    action: Action
    outcome: Outcome
    began: float
    at: float
    refusal: Refusal | None = None
    job_id: int | None = None
    grant: Grant | None = None
    found: tuple[int, ...] = ()


Event = (
    PodSeen
    | PodGone
    | PodsListed
    | NodeSeen
    | NodeGone
    | NodesListed
    | NamespaceSeen
    | NamespaceGone
    | NamespacesListed
    | OwnerRead
    | ClaimsRead
    | JobsPolled
    | JobRead
    | SlurmNodesPolled
    | SideLost
    | SideBack
    | AbsenceBelieved
    | Planned
    | ActionEnded
)
