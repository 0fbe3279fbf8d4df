"""The tables of the World: every fact, every index and everything under way, with what each of them means.

Public attributes are read by decisions, explanations and metrics.  Only folds change them (`World.apply`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from scheduler import actions as act
from scheduler import events as ev
from scheduler import names
from scheduler.events import Scope, Side
from scheduler.model.amounts import NO_TEXT
from scheduler.model.cache import Remembered
from scheduler.model.kubernetes import Claim, Namespace, Node, Owner, OwnerKey, Pod
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import Partition, SlurmNode, States
from scheduler.nodes.observed import NodeState
from scheduler.phase import Phase
from scheduler.place.affinity import Coming, Neighbours
from scheduler.place.affinity_terms import WaitingTerms
from scheduler.place.assign import NodeInfo
from scheduler.place.feasible import Feasible, NodeRequirements
from scheduler.place.host_ports import HostPorts
from scheduler.policy.rules import Tenant
from scheduler.policy.tenants import Identities
from scheduler.state import quarantine
from scheduler.state.anomalies import Anomaly
from scheduler.state.clocks import FarClock, Sighting
from scheduler.state.quotas import Quotas
from scheduler.state.token_buckets import Breaker, FairQueue, TokenBucket
from scheduler.state.undecoded import UndecodedObjects
from scheduler.state.workload import LostBind, Placeholder, Workload
from scheduler.tuning import Config


class Tables:
    """See the module."""

    def __init__(self, config: Config, started: float, *, guarded: bool = False) -> None:
        self.config = config
        self.started = started
        self.applied = 0  # events, while they are counted (Tuning.validate_every)
        self.predecessor_drained = False  # no request of an earlier life can take effect any more
        self.heard_at = started  # the newest time that an event told
        self.policy_at = float("-inf")  # when the policy changed last
        self.labels_at: dict[str, float] = {}  # namespace to when its labels changed last, in this life
        self.clocks = {side: FarClock() for side in Side}
        # errors of our own
        self.guarded = guarded
        self.quarantine: dict[quarantine.Subject, quarantine.Quarantined] = {}
        self.alarms: list[quarantine.Alarm] = []  # what came into quarantine, until the loop has told it
        # Kubernetes
        self.namespaces: dict[str, Namespace] | None = None
        self.lacking_rights: dict[str, str] = {}  # namespace to what is missing, as of RightsTold
        self.nodes: dict[str, Node] | None = None
        self.by_slurm_name: dict[
            str, str
        ] = {}  # Slurm's name of each Kubernetes node that is the only one of that name
        self.contested: dict[str, tuple[str, ...]] = {}  # Slurm's name to the Kubernetes nodes, where several claim it
        self.standing: dict[str, NodeInfo] = {}
        self.assumed: dict[str, str] = {}  # pod UID to the node that a bind of ours takes, until the watch shows one
        self.may_land: dict[str, LostBind] = {}  # of those binds: whose answer was lost, and nobody has looked since
        self.silent_since: dict[str, float] = {}  # node whose kubelet says nothing, to when that was seen first
        self.ready_since: dict[
            str, tuple[float, float]
        ] = {}  # node that is ready, to since when: by its clock, and by ours
        self.node_of: dict[str, str] = {}  # UID of each pod in `standing` to its node
        self.neighbours = Neighbours(self.standing)
        self.host_ports = HostPorts()
        self.anti_affinity_namespaces: set[str] = (
            set()
        )  # namespaces that anti-affinity of pods with a new grant, or no more, names
        self.turns: Mapping[str, int] = {}  # which each namespace has had, while passes are too short for all workloads
        self.coming: tuple[Coming, ...] | None = None  # None: not known since a grant or a bind changed
        self.granted_pods: dict[str, tuple[Pod, ...]] = {}  # granted workloads to their pods, as others were last told
        self.waiting_terms = WaitingTerms()  # those that wait and mind beside whom they stand
        self.listed: dict[Scope, set[str]] = {}
        self.undecoded = UndecodedObjects()
        self.early: list[ev.Event] = []  # news of pods that came before the cluster was known
        self.owners: dict[OwnerKey, Owner | None] = {}
        self.owner_sizes: dict[OwnerKey, int] = {}
        self.owners_held = 0  # the sum of these
        self.owner_read_at: dict[OwnerKey, float] = {}
        self.owner_asked_at: dict[OwnerKey, float] = {}  # when its last read was planned, whatever became of it
        self.cannot_read: dict[
            OwnerKey | str, tuple[float, str]
        ] = {}  # an owner, or a pod's claims: since when, and why
        self.claims: dict[str, tuple[Claim, ...]] = {}
        self.claims_read_at: dict[str, float] = {}
        # Slurm
        self.slurm_nodes: dict[str, SlurmNode] | None = None
        self.crowded: dict[str, float] = {}  # Slurm's nodes on which some grant could not be used (F6), to until when
        self.unread_nodes = ev.ALL_READ  # nodes that Slurm lists, in words that could not be read
        self.partitions: dict[str, Partition] = {}
        self.default_partition = ""
        self.counts_memory = True  # as the last grant showed (CR_Core and others do not)
        self.accounting_lost: ev.AccountingLost | None = None
        self.dropped_records = 0  # ends that accounting was not told, because too many waited for slurmdbd
        self.states: Mapping[int, States] = {}
        self.polled: ev.JobsPolled | None = None
        self.first_polled: float | None = None
        self.highest = 0  # the newest id that any poll showed
        self.scan_until = float("-inf")  # unknown ids are read at the high rate until then
        self.unread: list[int] = []  # ids that nobody knows yet, ascending
        self.seen_first: dict[int, float] = {}  # of those: when the poll began that showed them first
        self.foreign: set[int] = set()
        self.unmapped: set[int] = set()  # of those: jobs of our names whose users the policy does not give these pods
        self.foreign_read: dict[int, float] = {}  # of those that were read: when that read began
        self.component_of: dict[int, int] = {}  # further components of our heterogeneous jobs to their leader
        self.placeholders: dict[int, Placeholder] = {}
        self.expected: set[int] = set()  # learned otherwise than by a poll: the next one is compared with it
        self.absent: set[int] = set()
        self.held_back_since: float | None = None  # since when too many are absent for anybody to be ended for it (X6)
        self.claims_held_since: float | None = None  # the same of jobs that only pods name, and of these pods
        self.rejected: Counter[Anomaly] = Counter()
        self.lost: dict[Side, ev.SideLost] = {}
        self.breakers: dict[str, Breaker] = {}
        self.freed_at = float("-inf")
        self.nudged_at = float("-inf")
        self.nodes_stale = False
        self.nodes_asked_from = float("-inf")
        self.unreadable: dict[int, tuple[int, float]] = {}  # unknown ids whose read failed: how often, not before when
        self.put_off: dict[int, float] = {}  # those whose reads fail again and again: not before when; in that order
        self.twins_sought_at = float("-inf")
        self.trust_since = float(
            "-inf"
        )  # what was learned of a job before that is to be read again before it is acted on
        self.node_state = NodeState()  # nodes on both sides
        self.nodes_polled: tuple[float, float] | None = None  # when the last poll of Slurm's nodes began and ended
        # workloads
        self.workloads: dict[str, Workload] = {}
        self.key_of_pod: dict[str, str] = {}
        self.sightings: dict[str, Sighting] = {}  # of pods of ours
        self.found_at_start: frozenset[str] = frozenset()  # UIDs of the pods that were there when this life began
        self.waits_for_owner: dict[OwnerKey, set[str]] = {}
        self.by_phase: dict[Phase, dict[str, None]] = {each: {} for each in Phase}
        self.phase_of: dict[str, Phase] = {}
        self.queued_in: Counter[str] = Counter()
        self.partition_of: dict[str, str] = {}
        self.detail_new: dict[str, float] = {}  # queued, never read in detail: when that is due
        self.detail_round: dict[str, float] = {}  # queued, in the order in which they were last read, and when
        self.running_new: dict[str, float] = {}  # the same two of those whose pods run (S9)
        self.running_round: dict[str, float] = {}
        self.looking: dict[str, None] = {}
        self.affinity_workloads: set[str] = set()  # whose pods mind beside whom they stand
        self.wants_ports: set[str] = set()  # whose pods want host ports
        self.waits_for_ports: dict[str, None] = {}  # those of them that wait
        self.limited: dict[str, dict[str, None]] = {}  # Slurm user to the workloads that his limits hold back, in order
        self.tokenless: set[str] = set()  # Slurm users as whom nothing can be done: no token of theirs is of use
        # attention
        self.dirty: dict[str, None] = {}
        self.unsettled: dict[
            str, tuple[int, int]
        ] = {}  # large group whose members are to be found anew, to its news since then, and to how few members it had
        self.settles_at = float("-inf")  # none of these is settled by a plan before that
        self.deferred: tuple[str, ...] = ()  # to be looked at first: the last pass had no time for these
        self.timers: list[tuple[float, str]] = []
        self.wakes: dict[str, float] = {}
        self.in_flight: dict[int, act.Action] = {}  # actions under way, by id(); what is counted of them is below
        self.under_way: Counter[str] = Counter()
        self.immediate_under_way: Counter[str] = Counter()  # by partition, as it was called when they were sent
        self.immediate_in: dict[str, str] = {}  # workload key to that partition
        self.apart_under_way: set[str] = set()  # whose nodes are asked for and who keep away from others (F5)
        self.tried_at: dict[str, float] = {}  # partition to when the oldest of them was sent, while one is under way
        self.reading: set[int] = set()
        self.reading_refs: set[str | OwnerKey] = set()  # owners, and pods whose volume claims are read
        self.feasibility: Remembered[NodeRequirements, Feasible] = Remembered()
        tuning = config.tuning
        self.token_buckets = {
            "detail": TokenBucket(tuning.detail_rate, tuning.detail_rate),
            "running": TokenBucket(tuning.running_rate, tuning.running_rate),
            "unknown": TokenBucket(tuning.unknown_rate, tuning.unknown_rate),
            "scan": TokenBucket(tuning.scan_rate, tuning.scan_rate / 5),
            "absent": TokenBucket(tuning.absent_rate, tuning.absent_rate),
            "owners": TokenBucket(tuning.owner_rate, tuning.owner_rate),
            "retake": TokenBucket(tuning.retake_rate, tuning.retake_rate),
            "missing": TokenBucket(tuning.missing_rate, tuning.missing_rate),
        }
        self.identities = Identities(config.policy)
        self.quotas = Quotas(config.policy, self.tenant_of, self.token_buckets)
        self.parked: dict[str, FairQueue] = {
            name: FairQueue() for name in (*act.LIMIT_CLASSES.values(), *self.token_buckets)
        }
        self.claimed_by_others: dict[
            int, set[str]
        ] = {}  # job ids that pods of other schedulers name, to their workloads
        self.bypassing: set[str] = set()  # UIDs of pods that were told that they stand on a node without Slurm
        self.parked_in: dict[str, set[str]] = {}  # workload key to the lanes in which it waits

    @property
    def ready(self) -> bool:
        """Everything was listed once: before that nothing is known to be missing."""
        return (
            self.cluster_known
            and self.nodes is not None
            and self.slurm_nodes is not None
            and self.polled is not None
            and len(self.listed) == len(Scope)
        )

    @property
    def missing(self) -> list[str]:
        """What `ready` still waits for, in words."""
        lacking = {
            "the list of namespaces": not self.cluster_known,
            "the list of Kubernetes nodes": self.nodes is None,
            "the list of this scheduler's pods": Scope.OURS not in self.listed,
            "the list of other pods": Scope.OTHERS not in self.listed,
            "Slurm's nodes": self.slurm_nodes is None,
            "Slurm's jobs": self.polled is None,
        }
        return [what for what, is_missing in lacking.items() if is_missing]

    @property
    def cluster_known(self) -> bool:
        """Whether there is its mark."""
        return self.namespaces is not None and "kube-system" in self.namespaces

    @property
    def cluster(self) -> str:
        """This Kubernetes cluster's mark in job names."""
        assert self.namespaces is not None, "asked before the namespaces were listed"
        return names.cluster_id(self.namespaces["kube-system"].uid, self.config.scheduler_name)

    def tenant_of(self, pod: Pod) -> Tenant | Refusal:
        """Who the pod is in Slurm, by the policy and the labels that its namespace has now; or a no in words."""
        namespace = (self.namespaces or {}).get(pod.namespace)
        labels = namespace.labels if namespace is not None else NO_TEXT
        return self.identities.of(pod.namespace, labels, pod.service_account)
