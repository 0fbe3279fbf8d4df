"""What was observed: past participles, applied to the World in whatever order they come.

Times are seconds of the bridge's one clock (epoch seconds).  `began` is when the question was sent, `ended` when the
answer was read: a fact that is younger than `began` is not contradicted by that answer.  `at` of what a watch showed is
when it came; None: with the event before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from scheduler.actions import Action, Outcome, Plan
from scheduler.model.kubernetes import Claim, Namespace, Node, Owner, OwnerRef, Pod, Undecoded
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, Job, Partition, SlurmNode, States
from scheduler.policy.rules import Policy


class Scope(StrEnum):
    """Which of the two pod watches saw it: pods that name this scheduler, or all others that stand on a node."""

    OURS = "ours"
    OTHERS = "others"


class Side(StrEnum):
    KUBERNETES = "Kubernetes"
    SLURM = "Slurm"


@dataclass(frozen=True, slots=True)
class PodSeen:
    scope: Scope
    pod: Pod
    at: float | None = None


@dataclass(frozen=True, slots=True)
class PodGone:
    """The watch said DELETED.  `pod` is its last state.  (A pod that only left the selector of OTHERS is gone too.)"""

    scope: Scope
    pod: Pod
    at: float


@dataclass(frozen=True, slots=True)
class PodsListed:
    """A complete list: what is not in it does not exist, except for what may be one of `undecoded`.

    inherited   True: these are the pods that this process knew when it began to lead, and they may be behind.  A list that
                was asked for since then follows.
    """

    scope: Scope
    pods: tuple[Pod, ...]
    at: float
    undecoded: tuple[Undecoded, ...] = ()
    inherited: bool = False


@dataclass(frozen=True, slots=True)
class NodeSeen:
    node: Node
    at: float | None = None


@dataclass(frozen=True, slots=True)
class NodeGone:
    name: str


@dataclass(frozen=True, slots=True)
class NodesListed:
    """undecoded: as of PodsListed."""

    nodes: tuple[Node, ...]
    at: float | None = None
    undecoded: tuple[Undecoded, ...] = ()


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    namespace: Namespace


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    name: str


@dataclass(frozen=True, slots=True)
class NamespacesListed:
    """undecoded: as of PodsListed."""

    namespaces: tuple[Namespace, ...]
    undecoded: tuple[Undecoded, ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectUndecoded:
    """A watch told of an object that cannot be decoded.  What was known of the object stays known.

    scope   of a pod: which watch saw it
    """

    object: Undecoded
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class ClockObserved:
    """The other side's own time, in whole seconds, from its answer to what was asked at `began` and came at `ended`."""

    side: Side
    theirs: float
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class OwnerRead:
    """owner None: it does not exist in that namespace, or may not be read; that is no error (W2)."""

    ref: OwnerRef
    owner: Owner | None
    at: float
    namespace: str


@dataclass(frozen=True, slots=True)
class ClaimsRead:
    uid: str
    claims: tuple[Claim, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Unread:
    """Items of a list that could not be read.  The objects exist: none of them is absent, and each stays as it was known.

    keys      their ids or names
    nameless  there are items whose id or name could not be read either: any object that the list lacks may be one of them
    """

    keys: frozenset[int | str] = frozenset()
    nameless: bool = False

    def __bool__(self) -> bool:
        return self.nameless or bool(self.keys)

    def __contains__(self, key: int | str) -> bool:
        return self.nameless or key in self.keys


ALL_READ = Unread()


@dataclass(frozen=True, slots=True)
class JobsPolled:
    """The whole of `jobs/state`: job id to states.

    What is neither in `states` nor in `unread`, Slurm does not know (any more).
    """

    began: float
    ended: float
    states: Mapping[int, States]
    unread: Unread = ALL_READ


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
    """began: when it was asked for; None: as `at`.  partitions None: Slurm does not tell them (slurmdbd is away)."""

    nodes: tuple[SlurmNode, ...]
    partitions: tuple[Partition, ...] | None
    at: float
    began: float | None = None
    unread_nodes: Unread = ALL_READ
    unread_partitions: Unread = ALL_READ


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


# Slurm's error number for a slurmdbd that slurmrestd or slurmdbd's own database cannot reach.
ACCOUNTING_AWAY = 7000


@dataclass(frozen=True, slots=True)
class AccountingLost:
    """slurmdbd does not answer: partitions are not told, jobs are not found by name, ends not recorded.  `why` is a sentence.

    slurmctld goes on without it, and so does everything else.
    """

    since: float
    why: str


@dataclass(frozen=True, slots=True)
class AccountingBack:
    at: float


@dataclass(frozen=True, slots=True)
class TokenLost:
    """The bridge has no token with which it can act as that Slurm user."""

    user: str
    at: float


@dataclass(frozen=True, slots=True)
class TokenBack:
    """There is another token of that Slurm user, or Slurm has accepted the one that there is."""

    user: str
    at: float


@dataclass(frozen=True, slots=True)
class AbsenceConfirmed:
    """The admin says that the jobs which Slurm lists no more are gone indeed (X6)."""

    at: float


@dataclass(frozen=True, slots=True)
class PredecessorDrained:
    """The bridge that acted before this one left no request that can still take effect, and what it did is listed."""

    at: float


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The admin wrote another policy."""

    policy: Policy
    at: float


@dataclass(frozen=True, slots=True)
class RightsChecked:
    """In which namespaces the bridge lacks rights in Kubernetes that it needs to bind pods and to end them; in no others.

    lacking   namespace to a sentence that says what is missing, for its pods; "": it cannot write on them either
    """

    lacking: Mapping[str, str]
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
    node      of ReadPod: the Kubernetes node on which that incarnation stands; "": on none, or it is gone
    """

    action: Action
    outcome: Outcome
    began: float
    at: float
    refusal: Refusal | None = None
    job_id: int | None = None
    grant: Grant | None = None
    found: tuple[int, ...] = ()
    node: str = ""


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
    | ObjectUndecoded
    | ClockObserved
    | OwnerRead
    | ClaimsRead
    | JobsPolled
    | JobRead
    | SlurmNodesPolled
    | SideLost
    | SideBack
    | AccountingLost
    | AccountingBack
    | TokenLost
    | TokenBack
    | AbsenceConfirmed
    | PredecessorDrained
    | PolicyChanged
    | RightsChecked
    | Planned
    | ActionEnded
)
