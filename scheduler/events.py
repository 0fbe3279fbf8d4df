"""Events: what was observed, applied to the World in any order.

Times are epoch seconds of the bridge's clock.  `began` is when the request was sent, `ended` when the answer was read: the
answer does not contradict a fact that was learned after `began`.  `at` of a watch event is when it came; None: it
came together with the event before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from scheduler.actions import Action, Outcome, Plan
from scheduler.model.kubernetes import Claim, Namespace, Node, Owner, OwnerRef, Pod, Undecoded
from scheduler.model.limits import KnownLimits, LimitsOf
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Grant, Job, Partition, SlurmNode, States
from scheduler.policy.rules import Policy


class Scope(StrEnum):
    """Which of the two pod watches saw the pod: pods that name this scheduler, or all others that are bound to a node."""

    OURS = "ours"
    OTHERS = "others"


class Side(StrEnum):
    KUBERNETES = "Kubernetes"
    SLURM = "Slurm"

    __hash__ = str.__hash__  # Enum's is a function of Python


@dataclass(frozen=True, slots=True)
class PodSeen:
    scope: Scope
    pod: Pod
    at: float | None = None


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """The watch showed DELETED, as it also does if a pod leaves the selector of OTHERS.  `pod` is the last state."""

    scope: Scope
    pod: Pod
    at: float


@dataclass(frozen=True, slots=True)
class PodsListed:
    """A complete list: a pod that is not in it does not exist, unless it may be one of `undecoded`.

    inherited   True: the pods that this process knew when it began to lead, which may be outdated.  A list that is requested
                after that follows.
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
class NodeDeleted:
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
class NamespaceDeleted:
    name: str


@dataclass(frozen=True, slots=True)
class NamespacesListed:
    """undecoded: as of PodsListed."""

    namespaces: tuple[Namespace, ...]
    undecoded: tuple[Undecoded, ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectUndecoded:
    """A watch showed an object that cannot be decoded.  The object keeps its last known state.

    scope   of a pod: which watch saw it
    """

    object: Undecoded
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class ClockObserved:
    """The time of that side's clock, in whole seconds, from its answer to a request of `began`, which came at `ended`."""

    side: Side
    theirs: float
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class OwnerRead:
    """owner None: the owner does not exist in that namespace, or may not be read; neither is an error (W2)."""

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
class UndecodedItems:
    """Items of a list that could not be decoded.  The objects exist: none of them is absent, and each stays as it was known.

    keys      their ids or names
    nameless  there are items whose id or name could not be decoded either: any object that the list lacks may be one of them
    """

    keys: frozenset[int | str] = frozenset()
    nameless: bool = False

    def __bool__(self) -> bool:
        return self.nameless or bool(self.keys)

    def __contains__(self, key: int | str) -> bool:
        return self.nameless or key in self.keys


ALL_DECODED = UndecodedItems()


@dataclass(frozen=True, slots=True)
class JobsPolled:
    """The complete answer of `jobs/state`: job id to states.

    A job that is neither in `states` nor in `undecoded` is not, or no longer, known to Slurm.
    """

    began: float
    ended: float
    states: Mapping[int, States]
    undecoded: UndecodedItems = ALL_DECODED


@dataclass(frozen=True, slots=True)
class JobRead:
    """One job, read by its id.  job None: Slurm has no such job (error 2017)."""

    job_id: int
    began: float
    ended: float
    job: Job | None
    grant: Grant | None = None


@dataclass(frozen=True, slots=True)
class LimitsRead:
    """The limits on the jobs that `of` names, as slurmdbd shows them."""

    of: LimitsOf
    known: KnownLimits


@dataclass(frozen=True, slots=True)
class SlurmNodesPolled:
    """began: when the request was sent; None: as `at`.  partitions None: Slurm lists none (slurmdbd is away)."""

    nodes: tuple[SlurmNode, ...]
    partitions: tuple[Partition, ...] | None
    at: float
    began: float | None = None
    undecoded_nodes: UndecodedItems = ALL_DECODED
    undecoded_partitions: UndecodedItems = ALL_DECODED


@dataclass(frozen=True, slots=True)
class OutageBegan:
    """One side does not answer, or refuses the bridge.  `why` is a sentence."""

    side: Side
    since: float
    why: str


@dataclass(frozen=True, slots=True)
class OutageEnded:
    side: Side
    at: float


@dataclass(frozen=True, slots=True)
class CallsAnswered:
    """Kubernetes answers calls again, after some time without an answer in which the watches may have gone on."""

    at: float


@dataclass(frozen=True, slots=True)
class AccountingOutageBegan:
    """slurmdbd does not answer: no list of partitions, no search for jobs by name, no record of ends.  `why` is a sentence.

    slurmctld and everything else continue without slurmdbd.
    """

    since: float
    why: str


@dataclass(frozen=True, slots=True)
class AccountingOutageEnded:
    at: float


@dataclass(frozen=True, slots=True)
class TokenMissing:
    """The bridge has no token with which it can act as that Slurm user."""

    user: str
    at: float


@dataclass(frozen=True, slots=True)
class TokenUsable:
    """There is a new token of that Slurm user, or Slurm accepted the present one."""

    user: str
    at: float


@dataclass(frozen=True, slots=True)
class AbsenceConfirmed:
    """An admin confirmed that the jobs that Slurm does not list any more are gone (X6)."""

    at: float


@dataclass(frozen=True, slots=True)
class PredecessorDrained:
    """The former bridge left no request that can still take effect, and this bridge has listed the results of all of them."""

    at: float


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """The policy in the settings file changed."""

    policy: Policy
    at: float


@dataclass(frozen=True, slots=True)
class RightsChecked:
    """All namespaces in which the bridge lacks rights in Kubernetes that it needs to bind and end pods.

    lacking   namespace to a sentence for its pods that names the missing rights; "": the bridge cannot write on them either
    """

    lacking: Mapping[str, str]
    at: float


@dataclass(frozen=True, slots=True)
class Planned:
    """The loop is about to perform this plan: its actions are in flight from now on, and marks are cleared."""

    plan: Plan
    at: float


@dataclass(frozen=True, slots=True)
class ActionEnded:
    """The end of an action.

    began     when it was sent
    refusal   why the outcome is REFUSED, UNREACHED or UNKNOWN, in words; None: the outcome is DONE
    job_id    of AllocateNow and SubmitJob, if DONE
    grant     of AllocateNow, if DONE and the grant could be read
    found     of FindJobs: ids of live jobs of that name
    node      of ReadPod: the Kubernetes node of the pod with that UID; "": it has none, or is gone
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

    @property
    def refusal_number(self) -> int:
        """Slurm's error number, or the HTTP status; 0: the action was not refused, or without a number."""
        return self.refusal.number if self.refusal is not None else 0


Event = (
    PodSeen
    | PodDeleted
    | PodsListed
    | NodeSeen
    | NodeDeleted
    | NodesListed
    | NamespaceSeen
    | NamespaceDeleted
    | NamespacesListed
    | ObjectUndecoded
    | ClockObserved
    | OwnerRead
    | ClaimsRead
    | JobsPolled
    | JobRead
    | LimitsRead
    | SlurmNodesPolled
    | OutageBegan
    | OutageEnded
    | CallsAnswered
    | AccountingOutageBegan
    | AccountingOutageEnded
    | TokenMissing
    | TokenUsable
    | AbsenceConfirmed
    | PredecessorDrained
    | PolicyChanged
    | RightsChecked
    | Planned
    | ActionEnded
)
