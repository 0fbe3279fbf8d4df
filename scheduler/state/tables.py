"""The tables of the World: every fact, every index and every action in flight, each with its meaning.

Decisions, explanations and metrics read the public attributes.  Only `World.apply` changes them (scheduler/apply/).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from scheduler import actions as act
from scheduler import events as ev
from scheduler import names
from scheduler.actions import ObjectKind
from scheduler.events import Scope, Side
from scheduler.model.amounts import NO_TEXT
from scheduler.model.anomaly import Anomaly
from scheduler.model.cache import BoundedCache, BoundedDict
from scheduler.model.clocks import ClusterClock, FirstSeen
from scheduler.model.kubernetes import Claim, Namespace, Node, Owner, OwnerKey, Pod
from scheduler.model.limits import KnownLimits, LimitsOf
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import JobSpec, Partition, SlurmNode, States
from scheduler.nodes.observed import NodeState
from scheduler.place.affinity import AffinityIndex, GrantedPods
from scheduler.place.affinity_terms import WaitingTerms
from scheduler.place.capacity import Alike
from scheduler.place.feasible import Feasible
from scheduler.place.fit import NodeInfo, NodeRequirements
from scheduler.place.host_ports import HostPorts
from scheduler.policy.rules import Policy, Tenant
from scheduler.policy.tenants import Identities
from scheduler.state.estimates import StartEstimates
from scheduler.state.in_flight import UnansweredBind
from scheduler.state.phase import Phase
from scheduler.state.placeholder import Placeholder
from scheduler.state.pod_records import MOST_BOUND_BY_OTHERS, BoundByOther
from scheduler.state.quarantined import Alarm, Quarantined, Subject
from scheduler.state.quotas import Quotas
from scheduler.state.token_buckets import Breaker, FairQueue, TokenBucket
from scheduler.state.undecoded import UndecodedObjects
from scheduler.state.waiting_order import WaitingOrder
from scheduler.state.workload import Workload
from scheduler.tuning import Config, Tuning

FORMER_KEPT = 8  # former policies, and former labels of a namespace
MOST_TRANSLATIONS = 16_384  # some 10 MiB
MOST_USABLE = 2_000_000  # names of nodes, each a reference: some 16 MiB
Translated = tuple[tuple[object, ...], int | None, JobSpec]


class Tables:
    """See the module."""

    def __init__(self, config: Config, started: float, *, guarded: bool = False) -> None:
        self.config = config
        self.started = started
        self.guarded = guarded
        # events that were applied, counted while Tuning.validate_every is set
        self.applied = 0
        # scopes whose pods were listed as a standby, and not again since this process leads
        self.pods_inherited: set[Scope] = set()
        # True if no request of the previous process can take effect any more
        self.predecessor_drained = False
        # the newest time of any event
        self.newest_event_at = started
        self.clocks = {side: ClusterClock() for side in Side}
        self.outages: dict[Side, ev.OutageBegan] = {}
        self.quarantine: dict[Subject, Quarantined] = {}
        # objects that came into quarantine, until the loop has logged them
        self.alarms: list[Alarm] = []
        self._init_policy()
        self._init_kubernetes()
        self._init_occupancy()
        self._init_slurm()
        self._init_jobs()
        self._init_unknown_jobs()
        self._init_workloads()
        self._init_indexes()
        self._init_visits()
        self._init_in_flight()

    def _init_policy(self) -> None:
        """The policy, and the limits that it sets."""
        # how often the policy, or the labels of a namespace, changed
        self.identity_changes = 0
        # the time of the last change of the policy
        self.policy_at = float("-inf")
        # True if policy or labels changed before everything was listed once: `read_first` is still to be called
        self.changed_early = False
        # namespace to the time of the last change of its labels, seen by this process
        self.labels_at: dict[str, float] = {}
        # the last policies before the present one, seen by this process
        self.former_policies: deque[Policy] = deque(maxlen=FORMER_KEPT)
        # namespace to its last labels before the present ones, seen by this process
        self.former_labels: dict[str, deque[Mapping[str, str]]] = {}
        self.token_buckets = _token_buckets(self.config.tuning)
        self.identities = Identities(self.config.policy)
        self.quotas = Quotas(self.config.policy, self.tenant_of)
        # Slurm user to the workloads that the limits of that user hold back, in order
        self.limited: dict[str, dict[str, None]] = {}
        # Slurm users for whom the bridge has no token that Slurm accepts
        self.users_without_token: set[str] = set()

    def _init_kubernetes(self) -> None:
        """Objects of the API server.  None: not listed yet."""
        self.namespaces: dict[str, Namespace] | None = None
        # the mark of this Kubernetes cluster in job names, made from the UID of kube-system; "": not known yet
        self.cluster = ""
        # namespace to a sentence that says which rights are missing there
        self.lacking_rights: dict[str, str] = {}
        self.nodes: dict[str, Node] | None = None
        # Slurm's name to the Kubernetes node, if only one node has that name
        self.by_slurm_name: dict[str, str] = {}
        # Slurm's name to the Kubernetes nodes, if several have it
        self.contested: dict[str, tuple[str, ...]] = {}
        # node with a silent kubelet to when the kubelet fell silent, by the bridge's clock
        self.kubelet_silent_since: dict[str, float] = {}
        # node to when it became ready, by the clock of Kubernetes and by the bridge's clock
        self.ready_since: dict[str, tuple[float, float]] = {}
        # UIDs of the pods that the last list, and the watch after it, show
        self.listed: dict[Scope, set[str]] = {}
        self.undecoded = UndecodedObjects()
        # pod events that came before the namespaces
        self.early: list[ev.Event] = []
        # controllers; None: the object does not exist, or may not be read
        self.owners: dict[OwnerKey, Owner | None] = {}
        # how much memory each of these controllers takes, in controllers of usual size, and the sum
        self.owner_sizes: dict[OwnerKey, int] = {}
        self.owners_weight = 0
        self.owner_read_at: dict[OwnerKey, float] = {}
        # when the last read of a controller was planned, whatever its outcome
        self.owner_asked_at: dict[OwnerKey, float] = {}
        # a controller, or the UID of a pod with claims, to the time since which it cannot be read, and why
        self.cannot_read: dict[OwnerKey | str, tuple[float, str]] = {}
        # pod UID to its volume claims
        self.claims: dict[str, tuple[Claim, ...]] = {}
        self.claims_read_at: dict[str, float] = {}

    def _init_occupancy(self) -> None:
        """Pods on nodes (scheduler/state/occupancy.py)."""
        # node to the unfinished pods there
        self.node_info: dict[str, NodeInfo] = {}
        # UID of each of these pods to its node
        self.node_of: dict[str, str] = {}
        # pod UID to the node of its bind, from the plan of the bind until the watch shows a node
        self.assumed: dict[str, str] = {}
        # of these binds, the binds whose answer was lost, until the pod is read or the watch shows a node
        self.unanswered_binds: dict[str, UnansweredBind] = {}
        self.affinity_index = AffinityIndex(self.node_info)
        self.host_ports = HostPorts()
        # namespace and name of a volume claim to the UIDs of the pods on nodes that use it
        self.claim_users: dict[tuple[str, str], set[str]] = {}
        # namespaces named by the anti-affinity of pods whose grant came or went since the last pass
        self.anti_affinity_namespaces: set[str] = set()
        # workloads with a grant whose pods are not bound yet; None: to be computed
        self.granted_unbound_pods: tuple[GrantedPods, ...] | None = None
        # workload with a grant to its kinds of pods, as they were when `grant_changed` last marked other workloads
        self.granted_pods: dict[str, tuple[Pod, ...]] = {}
        # affinity terms of workloads that wait for nodes
        self.waiting_terms = WaitingTerms()
        self.feasibility: BoundedCache[NodeRequirements, Feasible] = BoundedCache()
        # pod UID to the inputs of its last translation, the longest time limit in its partition, and the job specification
        self.translations: BoundedDict[str, Translated] = BoundedDict(MOST_TRANSLATIONS)
        # partition, excluded nodes, and whether Slurm counts memory, to the kinds of the nodes that a gang may use
        self.usable_kinds: BoundedDict[tuple[str, str, bool], list[Alike]] = BoundedDict(MOST_USABLE)

    def _init_slurm(self) -> None:
        """Slurm's nodes, partitions and accounting."""
        # None: not polled yet
        self.slurm_nodes: dict[str, SlurmNode] | None = None
        # when the last poll of nodes was sent and answered
        self.nodes_polled: tuple[float, float] | None = None
        # nodes that the last poll lists and that cannot be decoded
        self.undecoded_nodes = ev.ALL_DECODED
        self.nodes_stale = False
        self.nodes_polled_from = float("-inf")
        self.node_poll_planned_at = float("-inf")
        # what the bridge remembers about nodes of both clusters
        self.node_state = NodeState()
        # Slurm's name of a node on which a grant could not be used, to the time until which that counts (F6)
        self.crowded: dict[str, float] = {}
        self.partitions: dict[str, Partition] = {}
        self.default_partition = ""
        self.breakers: dict[str, Breaker] = {}
        # the limits that hold waiting jobs back, and the limits that are being read
        self.limits: dict[LimitsOf, KnownLimits] = {}
        self.reading_limits: set[LimitsOf] = set()
        # how exact Slurm's expected starts were
        self.estimates = StartEstimates()
        # True if the last grant showed memory; Slurm does not count memory with CR_Core, CR_CPU or CR_Socket
        self.counts_memory = True
        self.accounting_outage: ev.AccountingOutageBegan | None = None
        # the number of workloads whose end was not recorded, because too many waited for slurmdbd
        self.dropped_records = 0
        # when nodes were freed last, and when slurmctld was nudged last
        self.freed_at = float("-inf")
        self.nudged_at = float("-inf")

    def _init_jobs(self) -> None:
        """Slurm jobs by id (scheduler/state/jobs.py)."""
        self.polled: ev.JobsPolled | None = None
        self.states: Mapping[int, States] = {}
        # Since when jobs can be read: when the first poll was answered; later if the World was not ready then, or if Slurm
        # did not answer after that.
        self.first_polled: float | None = None
        self.highest = 0  # the largest id of any poll; 0: slurmctld began with low ids again
        self.highest_at = float("-inf")  # when the poll was answered that showed this id first
        self.placeholders: dict[int, Placeholder] = {}
        # placeholders for which the next poll is checked: no poll has shown them yet, or an answer proved them since
        self.expected: set[int] = set()
        # placeholders that the last poll lacks
        self.absent: set[int] = set()
        # id of a job whose end is known and whose record was removed, to when its end became known, until a poll that began
        # later: if that poll shows that the job of this id lives, it is another job
        self.forgotten_at: dict[int, float] = {}
        # since when no pods are ended for absent jobs, because too many are absent (X6); the same for jobs that only pods
        # name
        self.held_back_since: float | None = None
        self.hints_held_back_since: float | None = None
        self.rejected: Counter[Anomaly] = Counter()
        # Slurm's state to how many placeholders were seen to end in it
        self.ended_jobs: Counter[str] = Counter()
        # id of a job, and key of its workload, to the time until which a cancel whose answer was lost may still take effect.
        # The cancel names the job by id and name, so it also ends a later job of both (docs/decisions/0003).
        self.lost_cancels: dict[tuple[int, str | None], float] = {}
        # the same of the jobs of a previous process that were read in the quiet period: it may have cancelled any of them
        self.earlier_jobs: set[tuple[int, str | None]] = set()
        # further components of heterogeneous jobs, to their leader
        self.component_of: dict[int, int] = {}
        # if a job was read last before this time, it is read again before an action on it
        self.trust_since = float("-inf")
        # ids that pods of other schedulers name, to the workloads of these pods
        self.hinted_by_others: dict[int, dict[str, None]] = {}

    def _init_unknown_jobs(self) -> None:
        """Jobs that are not the bridge's, and ids of jobs of which it is not known yet."""
        # jobs that are not the bridge's; and for ids that were read as foreign, when the last such read was sent
        self.foreign: set[int] = set()
        self.foreign_read: dict[int, float] = {}
        # ids to be read before pods that are older than this process get a new job: one of them may be their job, of another
        # user (apply/policy.py)
        self.hidden: set[int] = set()
        # jobs with a name of the bridge and a user that the policy does not give to their pods
        self.unmapped: set[int] = set()
        # id of a job that is to be read, to when the poll was sent that showed the id first; `unread` has these ids in the
        # order of reads, without postponed ids
        self.first_listed_at: dict[int, float] = {}
        self.unread: list[int] = []
        # id to how often its read failed, and the time before which it is not read again
        self.unreadable: dict[int, tuple[int, float]] = {}
        # id whose reads fail again and again, to the time before which it is not read again
        self.reads_postponed: dict[int, float] = {}
        # unknown ids are read at the high rate until then
        self.scan_until = float("-inf")
        self.next_twin_search_at = float("-inf")  # all jobs are not read again for a twin before this time

    def _init_workloads(self) -> None:
        """Workloads by key."""
        self.workloads: dict[str, Workload] = {}
        self.key_of_pod: dict[str, str] = {}
        # pod UID to when this process first saw each fact of the pod
        self.first_seen: dict[str, FirstSeen] = {}
        # UIDs of the pods in the first list of this process
        self.first_listed: frozenset[str] = frozenset()
        # pods that another client bound for a job
        self.bound_by_others: deque[BoundByOther] = deque(maxlen=MOST_BOUND_BY_OTHERS)
        # UIDs of the pods that have the event "runs without Slurm"
        self.bypassing: set[str] = set()
        self.waits_for_owner: dict[OwnerKey, dict[str, None]] = {}
        # large group whose members are to be determined to how many events it had since, and its smallest count of members
        self.unsettled: dict[str, tuple[int, int]] = {}
        # no plan determines members before this time
        self.settles_at = float("-inf")

    def _init_indexes(self) -> None:
        """Indexes that are derived from the workloads (scheduler/state/derived.py)."""
        self.by_phase: dict[Phase, dict[str, None]] = {phase: {} for phase in Phase}
        self.phase_of: dict[str, Phase] = {}
        # workload to the job that makes it QUEUED or GRANTED
        self.job_of: dict[str, Placeholder] = {}
        # workload to the partition in which its job waits, and the number of such workloads by partition
        self.partition_of: dict[str, str] = {}
        self.queued_in: Counter[str] = Counter()
        # the workloads among them whose job is in Slurm's queue, in the order of priority
        self.waiting_order = WaitingOrder()
        # queued workload to the time of the first read of its job; after that read, to when the last read was planned, oldest
        # first
        self.detail_new: dict[str, float] = {}
        self.detail_round: dict[str, float] = {}
        # the same for workloads whose pods run (S9)
        self.running_new: dict[str, float] = {}
        self.running_round: dict[str, float] = {}
        # workloads that search for a job
        self.searching_workloads: dict[str, None] = {}
        # workloads that have or had a pod with affinity terms; with host ports; with host ports and waiting for nodes
        self.affinity_workloads: set[str] = set()
        self.wants_ports: set[str] = set()
        self.waits_for_ports: dict[str, None] = {}

    def _init_visits(self) -> None:
        """Which workloads the next pass visits (scheduler/state/visits.py)."""
        self.dirty: dict[str, None] = {}
        # workloads for which the last pass had no time
        self.deferred: tuple[str, ...] = ()
        # namespace to how many turns it had, while passes are too short for all workloads
        self.turns: Mapping[str, int] = {}
        # a heap of times and keys, and the earliest time of each key
        self.timers: list[tuple[float, str]] = []
        self.wakes: dict[str, float] = {}
        # limit to the workloads that wait for it, and the reverse
        self.parked: dict[str, FairQueue] = {name: FairQueue() for name in (*act.LIMIT_CLASSES, *self.token_buckets)}
        self.parked_in: dict[str, set[str]] = {}

    def _init_in_flight(self) -> None:
        """Actions in flight, by id(), and counts of them."""
        self.in_flight: dict[int, act.Action] = {}
        self.under_way: Counter[str] = Counter()  # by limit class
        # immediate allocations: workload to the partition at the time of the plan; and their number by partition
        self.immediate_in: dict[str, str] = {}
        self.immediate_in_flight: Counter[str] = Counter()
        # partition to when its immediate allocations in flight began: the plan of the first of them
        self.tried_at: dict[str, float] = {}
        # workloads with anti-affinity terms that have an immediate allocation in flight (F5)
        self.anti_affinity_in_flight: set[str] = set()
        # ids of jobs whose read is in flight; controllers, and UIDs of pods, whose read is in flight
        self.reading: set[int] = set()
        self.reading_refs: set[str | OwnerKey] = set()

    @property
    def ready(self) -> bool:
        """True if everything was listed once.  Before that nothing is known to be missing."""
        return not self.missing

    @property
    def missing(self) -> list[str]:
        """The lists that were not received yet, in words."""
        lacking = {
            "the list of namespaces": not self.is_cluster_known,
            "the list of Kubernetes nodes": self.nodes is None,
            "the list of this scheduler's pods": Scope.OURS not in self.listed,
            "the list of other pods": Scope.OTHERS not in self.listed,
            "Slurm's nodes": self.slurm_nodes is None,
            "Slurm's jobs": self.polled is None,
        }
        return [facts for facts, is_missing in lacking.items() if is_missing]

    @property
    def is_cluster_known(self) -> bool:
        """True if the mark of this cluster is known."""
        return bool(self.cluster)

    def mark_of_cluster(self) -> str:
        """The mark of this Kubernetes cluster in job names; "": not known yet."""
        known = (self.namespaces or {}).get("kube-system")
        return names.cluster_id(known.uid, self.config.scheduler_name) if known is not None else ""

    def is_quarantined(self, key: str) -> bool:
        """True if the workload is in quarantine: nothing is done to it, and no other workload waits for it."""
        return (ObjectKind.WORKLOAD, key) in self.quarantine

    def tenant_of(self, pod: Pod) -> Tenant | Refusal:
        """The Slurm user and the limits of the pod, by the policy and the present labels of its namespace; or a refusal."""
        namespace = (self.namespaces or {}).get(pod.namespace)
        labels = namespace.labels if namespace is not None else NO_TEXT
        return self.identities.of(pod.namespace, labels, pod.service_account)


def _token_buckets(tuning: Tuning) -> dict[str, TokenBucket]:
    return {
        "detail": TokenBucket(tuning.detail_rate, tuning.detail_rate),
        "limits": TokenBucket(tuning.limits_rate, tuning.limits_rate),
        "running": TokenBucket(tuning.running_rate, tuning.running_rate),
        "unknown": TokenBucket(tuning.unknown_rate, tuning.unknown_rate),
        "scan": TokenBucket(tuning.scan_rate, tuning.scan_rate / 5),
        "absent": TokenBucket(tuning.absent_rate, tuning.absent_rate),
        "owners": TokenBucket(tuning.owner_rate, tuning.owner_rate),
        "reacquire": TokenBucket(tuning.reacquire_rate, tuning.reacquire_rate),
        "missing": TokenBucket(tuning.missing_rate, tuning.missing_rate),
    }
