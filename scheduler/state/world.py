"""The World: what is known of both clusters, and the only mutable object.

`apply(event)` is its only door.  It is total: any event in any order, any number of times, is folded into facts.  It
decides nothing; it only marks which workloads are to be visited (ARCHITECTURE 3).  Here are the tables, and the indexes over
them; how each event changes them is in `scheduler/apply/`, and `scheduler.apply.events.new_world` joins the two.

Three things keep old news from overwriting new: a list swaps whole, a fact learned from an answer is not contradicted by
a poll that began before that answer, and what vanished is remembered as absent, not as ended.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from scheduler import actions as act
from scheduler import events as ev
from scheduler import names
from scheduler.actions import Kind
from scheduler.events import Scope, Side
from scheduler.model.amounts import NO_TEXT
from scheduler.model.anomaly import Anomaly
from scheduler.model.cache import Remembered
from scheduler.model.clocks import EXACT_S, FarClock, Sighting
from scheduler.model.kubernetes import Claim, Namespace, Node, NodeTerm, Owner, OwnerKey, OwnerRef, Pod, owner_key
from scheduler.model.refusal import Refusal
from scheduler.model.slurm import UNLIMITED, Partition, SlurmNode, States, holds_nodes, is_ended
from scheduler.nodes.observed import NodeState
from scheduler.place.affinity import NOWHERE, Coming, Company, Neighbours, kinds_of
from scheduler.place.affinity_terms import WaitingTerms
from scheduler.place.assign import NodeInfo
from scheduler.place.feasible import Feasible, NodeRequirements, slurm_name
from scheduler.place.host_ports import HostPorts
from scheduler.policy.rules import Tenant
from scheduler.policy.tenants import Identities
from scheduler.state.phase import Phase, chosen, phase
from scheduler.state.quarantined import Alarm, Quarantined, Subject
from scheduler.state.quotas import Quotas
from scheduler.state.token_buckets import Breaker, FairQueue, TokenBucket
from scheduler.state.undecoded import UndecodedObjects
from scheduler.state.workload import LostBind, Placeholder, Workload, lost_one
from scheduler.translate.job_spec import TranslationContext
from scheduler.translate.pod_limits import beyond_limits
from scheduler.tuning import Config

# Reasons of waiting jobs that want no nodes now: Slurm grants immediate allocations beside them (Slurm facts 8).
NO_CONTENDER = frozenset(
    {"BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", "Reservation"}
)
WHOLE_SECOND_S = 1.0  # creation times are cut to whole seconds
MAX_OWNERS = 8  # how far up a chain of controllers annotations are looked for
WAITING = (Phase.UNSUBMITTED, Phase.QUEUED, Phase.GRANTED)  # whose nodes are still to be chosen, or looked at once more
RELEASED_AT_ONCE = 3  # so many grants that a workload gives back one after another are asked for elsewhere at once
MAX_CROWDED = 128  # nodes; of more those that were noted last
MAX_UNREADABLE = 6  # failed reads of an unknown job, over a minute; then it is read once in
UNREADABLE_EVERY_S = 300.0
FOLLOWED = 200  # so many running jobs are read in turn at the whole rate; twice as many at half of it


class World:
    """See the module.  Public attributes are facts, to be read by decisions, explanations and metrics; never set."""

    def __init__(
        self, config: Config, started: float, apply_event: Callable[[World, ev.Event], None], *, guarded: bool = False
    ) -> None:
        self._apply_event = apply_event
        self.config = config
        self.started = started
        self.predecessor_drained = False  # no request of an earlier life can take effect any more
        self.heard_at = started  # the newest time that an event told
        self.policy_at = float("-inf")  # when the policy changed last
        self.labels_at: dict[str, float] = {}  # namespace to when its labels changed last, in this life
        self.clocks = {side: FarClock() for side in Side}
        # errors of our own
        self.guarded = guarded
        self.quarantine: dict[Subject, Quarantined] = {}
        self.alarms: list[Alarm] = []  # what came into quarantine, until the loop has told it
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
        self.hidden: set[int] = set()  # to be read: one may be a job of pods that wait and had another user
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
        self.parked: dict[str, FairQueue] = {name: FairQueue() for name in (*act.LIMIT_CLASSES, *self.token_buckets)}
        self.claimed_by_others: dict[
            int, set[str]
        ] = {}  # job ids that pods of other schedulers name, to their workloads
        self.bypassing: set[str] = set()  # UIDs of pods that were told that they stand on a node without Slurm
        self.parked_in: dict[str, set[str]] = {}  # workload key to the lanes in which it waits

    # --- questions ----------------------------------------------------------------------------------------------------

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

    @property
    def translation_context(self) -> TranslationContext:
        """What a translation needs besides the pod."""
        return TranslationContext(
            self.config.translation, self.cluster, self.longest_min, self.config.policy.priorities
        )

    def longest_min(self, partition: str) -> int | None:
        """The longest time limit of a partition ("" the default one) in minutes; None where it is not known."""
        known = self.partitions.get(partition or self.default_partition)
        if known is None:
            return None
        return UNLIMITED if known.max_time_min is None else known.max_time_min

    def born(self, pod: Pod) -> float:
        """When a pod of ours was created, by the bridge's clock."""
        seen = self.sightings.get(pod.uid) or Sighting(self.heard_at)
        return self.since(pod.created, seen, None if pod.uid in self.found_at_start else seen.first)

    def since(self, theirs: float | None, pod: Sighting, seen: float | None) -> float:
        """When something of a pod happened, by the bridge's clock.

        theirs   by Kubernetes' clock
        pod      the sighting of the pod; seen: when the bridge saw it happen; None: it had before
        """
        clock = self.clocks[Side.KUBERNETES]
        return clock.had_happened(theirs, pod.first) if seen is None else clock.happened(theirs, seen)

    def started_at(self, pod: Pod) -> float | None:
        """When its kubelet took the pod over, by the bridge's clock; None: it has not yet, or nobody knows when."""
        if pod.started is None:
            return None
        seen = self.sightings.get(pod.uid) or Sighting(self.heard_at)
        theirs = self.clocks[Side.KUBERNETES].ours(pod.started)
        if seen.started is not None:
            return theirs if abs(theirs - seen.started) <= EXACT_S else seen.started
        return theirs if theirs <= seen.first + EXACT_S else None

    def quiet_until(self) -> float:
        """Before that nothing is cancelled, evicted or given back (ARCHITECTURE 3)."""
        return self.started if self.predecessor_drained else self.started + self.config.tuning.quiet_s

    def scanning_until(self) -> float:
        """Until then pods that are older than this life wait for their placeholder to be found (ARCHITECTURE 4)."""
        if self.first_polled is None or not self.unread:
            return float("-inf")
        return min(self.scan_until, self.first_polled + self.config.tuning.scan_s)

    def due(self, now: float) -> tuple[list[str], float | None]:
        """The keys whose time has come, and when the next one's will: down the heap of timers, no further than needed."""
        keys: list[str] = []
        next_at: float | None = None
        todo = [0]
        while todo:
            place = todo.pop()
            if place >= len(self.timers):
                continue
            at, key = self.timers[place]
            if at <= now:
                keys.append(key)
                todo += (2 * place + 2, 2 * place + 1)
            elif next_at is None or at < next_at:
                next_at = at
        return keys, next_at

    def owners_of(self, pod: Pod) -> tuple[tuple[Owner, ...], OwnerRef | None]:
        """The controllers known, nearest first, and one that has still to be read."""
        chain: list[Owner] = []
        ref = pod.owner
        while ref is not None and len(chain) < MAX_OWNERS:
            key = owner_key(pod.namespace, ref)
            if key not in self.owners:
                return tuple(chain), ref
            owner = self.owners[key]
            if owner is None:
                break
            chain.append(owner)
            ref = owner.owner
        return tuple(chain), None

    def size_source_of(self, workload: Workload) -> Owner | None:
        """The object that defines the size of the workload's group; None: it is not read, or none exists (W2)."""
        group = workload.group
        if group is None or not workload.pods:
            return None
        if group.size_source is not None:
            return self.owners.get(owner_key(workload.pod.namespace, group.size_source))
        return self.owner_of_kind(next(iter(workload.pods.values())), group.size_told_by)

    def owner_of_kind(self, pod: Pod, kind: str) -> Owner | None:
        """The nearest of its controllers of that kind; None: it has none, or that was not read."""
        return next((owner for owner in self.owners_of(pod)[0] if owner.ref.kind == kind), None)

    def mine(self, workload: Workload) -> list[Placeholder]:
        """The placeholders that are or may be this workload's."""
        mine = [self.placeholders[job_id] for job_id in workload.jobs if job_id in self.placeholders]
        return mine if workload.lost_job is None else [*mine, workload.lost_job]

    def inherited(self, workload: Workload) -> bool:
        """True if the workload is older than this life: an earlier life may have bound its pods."""
        if not self.found_at_start.isdisjoint(workload.pods):
            return True
        return self.clocks[Side.KUBERNETES].ours(workload.created) < self.started - WHOLE_SECOND_S

    def is_older(self, pod: Pod) -> bool:
        """True if the pod is older than this life: an earlier life may have bound it."""
        is_found = pod.uid in self.found_at_start
        return is_found or self.clocks[Side.KUBERNETES].ours(pod.created) < self.started - WHOLE_SECOND_S

    def manages(self, namespace: str) -> bool:
        """Whether pods of that namespace may use the bridge."""
        known = (self.namespaces or {}).get(namespace)
        labelled = known is not None and known.labels.get(names.MANAGED_LABEL) == "true"
        return labelled or namespace in self.config.managed_namespaces

    def may_have_bound(self, workload: Workload) -> bool:
        """Whether a bind of the bridge may have put its pods where they stand: one of this life, or of an earlier one."""
        return workload.bound_here or self.inherited(workload)

    def map_names(self) -> None:
        """Map Slurm's node names to Kubernetes nodes; a name that several claim to none, since one may be an impostor."""
        claims: dict[str, list[str]] = {}
        for node in (self.nodes or {}).values():
            claims.setdefault(slurm_name(node), []).append(node.name)
        self.by_slurm_name = {name: nodes[0] for name, nodes in claims.items() if len(nodes) == 1}
        self.contested = {name: tuple(sorted(nodes)) for name, nodes in claims.items() if len(nodes) > 1}

    def tenant_of(self, pod: Pod) -> Tenant | Refusal:
        """Who the pod is in Slurm, by the policy and the labels that its namespace has now; or a no in words."""
        namespace = (self.namespaces or {}).get(pod.namespace)
        labels = namespace.labels if namespace is not None else NO_TEXT
        return self.identities.of(pod.namespace, labels, pod.service_account)

    def grace_ends(self, pod: Pod) -> float | None:
        """When the grace of a bound pod ends that is being deleted, by the bridge's clock; None: it is not being deleted."""
        there = self.standing.get(pod.node)
        ends = there.grace_ends(pod.uid) if there is not None else None
        return ends if ends is not None else pod.deleting_at

    def note_health(self, nodes: Iterable[Node], new: Collection[str]) -> None:
        """Since when these nodes are ready, or silent, by the bridge's clock.  new: names of those that are seen first now"""
        clock = self.clocks[Side.KUBERNETES]
        for node in nodes:
            if node.ready_since is None:
                self.ready_since.pop(node.name, None)
            elif self.ready_since.get(node.name, (None,))[0] != node.ready_since:
                when = clock.had_happened if node.name in new else clock.happened
                self.ready_since[node.name] = (node.ready_since, when(node.ready_since, self.heard_at))
            if node.silent_since is None:
                self.silent_since.pop(node.name, None)
            elif node.name not in self.silent_since:
                when = clock.had_happened if node.name in new else clock.happened
                self.silent_since[node.name] = when(node.silent_since, self.heard_at)

    def may_be_undecoded(self, workload: Workload, user: str) -> bool:
        """Whether a workload without pods, whose job is that Slurm user's, may have one that cannot be decoded.

        Which gang such a pod is of is not known, so any workload of its namespace may be its own.
        """
        if workload.pods or workload.gone:
            return False
        return any(
            pod.uid not in self.key_of_pod
            and (not pod.namespace or self.config.policy.can_give_in(pod.namespace, user))
            for pod in self.undecoded.pods()
        )

    def in_slurm(self, node: str) -> str:
        """How Slurm calls that Kubernetes node; one that is there no more, as Kubernetes did."""
        known = (self.nodes or {}).get(node)
        return node if known is None else slurm_name(known)

    def volumes_of(self, pod: Pod) -> tuple[tuple[NodeTerm, ...], ...]:
        """The required node affinity of each of its bound volumes that has one (F1)."""
        return tuple(claim.affinity for claim in self.claims.get(pod.uid, ()) if claim.affinity is not None)

    def company(self, key: str, pods: Iterable[Pod]) -> Company:
        """These pods of one workload, as those that are placed together."""
        return Company(key, tuple((pod, node) for pod in pods if (node := self.node_of.get(pod.uid))))

    def closed_to(self, pod: Pod, company: Company, *, soon: bool = False) -> frozenset[str]:
        """Nodes that other pods close to it (F5).

        company  pods that are placed with it, itself among them
        soon     those count too that have been granted a node and are not bound there yet
        """
        if not (pod.apart or pod.beside or self.neighbours.some_are_shy or (soon and self.affinity_workloads)):
            return NOWHERE
        if soon:
            self.neighbours.expect(self.about_to_be_bound())
        return self.neighbours.closed(pod, self.nodes or {}, company, soon=soon)

    def compare_some(self, workload: Workload, most: int, *, soon: bool) -> bool:
        """Do about so many comparisons of the next `closed_to` of its pods; True when these need no more."""
        soon = soon and bool(self.affinity_workloads)
        if soon:
            self.neighbours.expect(self.about_to_be_bound())
        pods = [pod for pod in workload.pods.values() if not beyond_limits(pod)]  # the others are refused uncompared
        return self.neighbours.prepare(workload.key, pods, most, soon=soon)

    def about_to_be_bound(self) -> Sequence[Coming]:
        """The workloads that have been granted nodes and are not bound there yet."""
        if self.coming is None:
            found = []
            for key in self.by_phase[Phase.GRANTED]:
                workload = self.workloads[key]
                job = chosen(workload, self.mine(workload))
                granted = job.grant.everywhere if job is not None and job.grant is not None else ()
                nodes = frozenset(self.by_slurm_name[each.name] for each in granted if each.name in self.by_slurm_name)
                coming = [pod for pod in workload.members if not workload.node_of(pod)]
                if nodes and (kinds := kinds_of(coming)):
                    found.append(Coming(key, {pod.uid: pod for pod in kinds}, nodes))
            self.coming = tuple(found)
        return self.coming

    def may_still_land(self, coming: Coming) -> list[Pod]:
        """Those pods of a workload which an earlier life of the bridge may have bound without an answer.

        Each pod may come to each node of the grant, until the quiet period ends.  A pod for which a bind of this life is in
        flight, or has no answer, is counted on its node already.
        """
        workload = self.workloads[coming.key]
        job = chosen(workload, self.mine(workload))
        if job is None or job.asked_at is not None:
            return []
        return [pod for pod in workload.members if not workload.node_of(pod) and pod.uid not in self.assumed]

    @property
    def counted_by_slurm(self) -> frozenset[str]:
        """The resources that Slurm counts, as Kubernetes calls them: no two grants have the same part of these."""
        return frozenset({"cpu", *self.config.translation.gres, *(["memory"] if self.counts_memory else [])})

    def is_quarantined(self, key: str) -> bool:
        """True if that workload is in quarantine: nothing is done to it, and no other workload waits for it."""
        return bool(self.quarantine) and (Kind.WORKLOAD, key) in self.quarantine

    def is_under_way(self, action: act.Action) -> bool:
        """Its plan was applied, and it has not ended."""
        return id(action) in self.in_flight

    def story(self, key: str) -> list[tuple[float, str]]:
        """The last events and actions of one workload, oldest first."""
        workload = self.workloads.get(key)
        return list(workload.story) if workload else []

    # --- the door -----------------------------------------------------------------------------------------------------

    def apply(self, event: ev.Event) -> None:
        """Fold one event into the facts (scheduler/apply/events.py)."""
        self._apply_event(self, event)

    # --- what the folds share -----------------------------------------------------------------------------------------

    def input_changed(self, workload: Workload) -> None:
        """What was refused may be accepted now (Q4)."""
        workload.refused = None
        workload.retry_at = float("-inf")
        self.limited.pop(workload.key, None)

    def _ports_changed(self) -> None:
        """A pod took or left a host port: only pods that want one are concerned."""
        self.dirty.update(self.waits_for_ports)

    def feasibility_changed(self) -> None:
        self.feasibility.clear()
        self.neighbours.nodes_changed()
        self.coming = None
        self._mark_waiting()

    def _mark_waiting(self) -> None:
        """Have every workload looked at that waits for nodes, or for its bind."""
        for each in WAITING:
            self.dirty.update(self.by_phase[each])

    def assume(self, pod: Pod, node: str) -> None:
        """A bind of ours is on its way: nobody else is given that room meanwhile (V5)."""
        before = self.assumed.get(pod.uid, node)
        if before != node:
            self.leave(before, pod.uid)
        self.assumed[pod.uid] = node
        self.stand(pod, node)

    def stand(self, pod: Pod, node: str) -> Pod | None:
        """Note that the pod stands on the node.  Returns the pod as it was there before; None: it was not."""
        there = self.standing.get(node)
        if there is None:
            there = self.standing[node] = NodeInfo()
        before = there.put(pod, self.heard_at, self.config.tuning.silent_node_s)
        if before is not None and _counts_the_same(before, pod):
            return before
        if before is not None:
            self._count_out(before, node)
        self.node_of[pod.uid] = node
        self.neighbours.came(pod, node)
        self.host_ports.came(pod, node)
        self._neighbours_changed([pod] if before is None else [before, pod])
        return before

    def restand(self, without: str) -> None:
        """Count anew who stands where, without that pod: what is counted of it may be written by half."""
        node = self.assumed.pop(without, "")
        self.may_land.pop(without, None)
        for name in {
            node,
            self.node_of.get(without, ""),
            *(name for name, there in self.standing.items() if without in there.pods),
        }:
            if (there := self.standing.get(name)) is not None:
                self.standing[name] = there.without(without)
                if not self.standing[name].pods:
                    del self.standing[name]
        self.neighbours = Neighbours(self.standing, self.neighbours.effort)
        self.host_ports = HostPorts(self.host_ports.effort)
        self.node_of = {uid: name for name, there in self.standing.items() for uid in there.pods}
        for name, there in self.standing.items():
            for pod in there.pods.values():
                self.neighbours.came(pod, name)
                self.host_ports.came(pod, name)
        self._mark_waiting()

    def _count_out(self, pod: Pod, node: str) -> None:
        self.neighbours.left(pod, node)
        self.host_ports.left(pod, node)

    def _neighbours_changed(self, pods: Sequence[Pod]) -> None:
        """Mark the waiting workloads to which it matters that one of these pods came to a node, or left one (F1, F5)."""
        self.dirty.update(dict.fromkeys(self.waiting_terms.concerned(pods)))
        if any(pod.host_ports for pod in pods):
            self._ports_changed()

    def leave(self, node: str, uid: str) -> None:
        """Note that the pod stands on the node no more."""
        there = self.standing.get(node)
        left = there.remove(uid) if there is not None else None
        if there is None or left is None:
            return
        if not there.pods:
            del self.standing[node]
        del self.node_of[uid]
        self._count_out(left, node)
        self._neighbours_changed([left])
        self.room_changed()

    def minds(self, workload: Workload, pod: Pod) -> None:
        """Note that it matters to this pod beside whom it stands (F5)."""
        self.affinity_workloads.add(workload.key)
        if workload.key in self.waiting_terms:
            self.waiting_terms.add(workload.key, [pod])

    def about_to_stand(self, workload: Workload) -> None:
        """Where it is to stand is known now, or not any more: that closes a node, as if it stood there already (F5)."""
        self.coming = None
        before = self.granted_pods.pop(workload.key, ())
        pods = kinds_of(workload.pods.values())
        if self.phase_of.get(workload.key) is Phase.GRANTED:
            self.granted_pods[workload.key] = pods
        else:
            self.neighbours.expect_no_more(workload.key)
        self._mark_concerned((*before, *pods))

    def _is_granted_no_more(self, key: str) -> None:
        """A workload that had nodes is taken out of the world: it closes no node any more (F5)."""
        if (pods := self.granted_pods.pop(key, None)) is not None:
            self.coming = None
            self.neighbours.expect_no_more(key)
            self._mark_concerned(pods)

    def _mark_concerned(self, pods: Collection[Pod]) -> None:
        for pod in pods:
            for term in pod.apart:
                self.anti_affinity_namespaces |= term.namespaces
        for key in self.waiting_terms.concerned(pods):
            if self.phase_of.get(key) in (Phase.UNSUBMITTED, Phase.QUEUED):
                self.dirty[key] = None

    def concerned_by_anti_affinity(self) -> list[str]:
        """Workloads that wait, and of which an anti-affinity speaks that came to a node, is about to, or left one."""
        said: dict[object, bool] = {}

        def concerned(pod: Pod) -> bool:
            kind = self.neighbours.kind(pod)
            if kind not in said:
                said[kind] = pod.namespace in self.anti_affinity_namespaces or self.neighbours.concerns(pod)
            return said[kind]

        waiting = (key for phase in WAITING for key in self.by_phase[phase])
        return [key for key in waiting if any(map(concerned, self.workloads[key].pods.values()))]

    def slurm_nodes_shown(self, failed: Callable[[str, Exception], None]) -> None:
        """Note what the last poll says of the nodes with the mark of this cluster, once that mark is known.

        failed   is called with the name of a node that could not be noted, and the exception
        """
        if self.cluster_known and self.slurm_nodes is not None and self.nodes_polled is not None:
            gres, mark = self.config.translation.gres, names.node_mark(self.cluster)
            began, at = self.nodes_polled
            self.node_state.shown(self.slurm_nodes, self.nodes, gres, mark, began, at, failed)

    def cost(self, bucket: str) -> int:
        """Tokens that one read takes from *bucket*: the more jobs run, the less often each of them is read (S9)."""
        return max(1, len(self.by_phase[Phase.BOUND]) // FOLLOWED) if bucket == "running" else 1

    def room_changed(self) -> None:
        """Somebody came, left or began to terminate: grants may wait for that (F6)."""
        self.dirty.update(self.by_phase[Phase.GRANTED])

    def set_states(self, job: Placeholder, states: States, at: float) -> None:
        if is_ended(states) and not job.ended:
            job.ended_seen = at
            self.stop_reading(job.id)
            if (workload := self.workloads.get(job.key or "")) is not None:
                self._lost_its_place(workload, job, at)
            self._released_a_limit(job)
        if holds_nodes(states) and not job.holds_nodes:
            job.granted_at = at
        elif not holds_nodes(states) and job.holds_nodes and not is_ended(states):
            job.grant = None  # requeued: what it gets next is another grant
            job.bind_refused.clear()
            job.bind_trouble = ""
        if states != job.states:
            self._tell(job, at, f"Slurm job {job.id} is {' '.join(sorted(states))}")
            job.states_since = at
        job.states = states
        self.touch(job)

    def _lost_its_place(self, workload: Workload, job: Placeholder, at: float) -> None:
        """The job ended.  The workload waits before it asks again, because somebody may end its next job at once, too.

        If the bridge gave the grant back, the workload asks for other nodes, the first few times at once (F6).
        """
        at_once = 0
        if workload.releasing is not None and workload.releasing[0] == job.id:
            workload.release_messages = dict.fromkeys((pod.uid for pod in workload.members), workload.releasing[1])
            workload.releasing = None
            granted = job.grant.everywhere if job.grant is not None else ()
            elsewhere = any(node.name in workload.nodes_left_out for node in granted)
            at_once = RELEASED_AT_ONCE if elsewhere else 0
        if not any(workload.node_of(pod) for pod in workload.pods.values()):
            self.back_off(workload, at)
            if workload.failures <= at_once:
                workload.wait_until = at

    def note_crowded(self, node: str, until: float) -> None:
        """A grant on that node of Slurm could not be used: others look before they ask for it (F6)."""
        self.crowded.pop(node, None)
        self.crowded[node] = until
        first = next(iter(self.crowded))
        if len(self.crowded) > MAX_CROWDED or self.crowded[first] <= self.heard_at:
            del self.crowded[first]

    def _tell(self, job: Placeholder, at: float, what: str) -> None:
        workload = self.workloads.get(job.key or "")
        if workload is not None:
            workload.tell(at, what)

    def _released_a_limit(self, job: Placeholder) -> None:
        """An own job of that user ended: the oldest that his limits held back goes first (Q4)."""
        held = self.limited.get(job.user, {})
        able = [key for key in held if not self.is_quarantined(key)]
        first = min(able, key=lambda key: (self.workloads[key].created, key), default=None)
        if first is not None:
            del held[first]  # the next end releases the next one
            self.workloads[first].retry_at = float("-inf")
            self.dirty[first] = None

    def mark_absent(self, job: Placeholder, began: float) -> None:
        """Not in an answer that began then; only what follows from it is news: many may be absent for long."""
        self.expected.discard(job.id)
        self.absent.add(job.id)
        absent_s = self.config.tuning.absent_s
        before = job.absent, job.lost(absent_s)
        if job.absent_first is None:
            job.absent_first = began
        job.absent_last = began
        if job.lost(absent_s) and not job.proven:
            job.states = frozenset()  # the list shows ids without names: an end in it may be another job's
        if job.lost(absent_s) and not before[1]:
            self._leave_to_another(job)
        if (job.absent, job.lost(absent_s)) != before:
            self.touch(job)

    def _leave_to_another(self, lost: Placeholder) -> None:
        """If another job is proven to be the workload's and lives, its pods stand for that one from now on (S7)."""
        for workload in self.concerned(lost):
            other = chosen(workload, self.mine(workload))
            if other is not None and workload.hint == lost.id != workload.renamed:
                workload.hint = other.id

    @property
    def last_poll_began(self) -> float:
        """When the last poll of jobs began that was answered; "-inf" before the first."""
        return self.polled.began if self.polled is not None else float("-inf")

    def schedule_read(self, job_id: int, began: float) -> None:
        """Have the job read.  began: when the poll that showed the id began"""
        if job_id not in self.seen_first:
            self.seen_first[job_id] = began
            bisect.insort(self.unread, job_id)

    def stop_reading(self, job_id: int) -> None:
        """The job is known: it is not read any more."""
        self.unreadable.pop(job_id, None)
        self.put_off.pop(job_id, None)
        self.hidden.discard(job_id)
        if self.seen_first.pop(job_id, None) is not None:
            self._search_without(job_id)

    def read_failed(self, job_id: int, at: float) -> None:
        """One job that cannot be read must not keep the others waiting: after some tries it is read seldom, for ever.

        It is not taken as somebody else's: it may be ours, without a pod.
        """
        failed = self.unreadable.get(job_id, (0, at))[0] + 1
        if failed >= MAX_UNREADABLE or job_id in self.put_off:
            self.put_off_until(job_id, at + UNREADABLE_EVERY_S)
        else:
            self.unreadable[job_id] = (failed, at + self.config.tuning.backoff_s * 2**failed)

    def put_off_until(self, job_id: int, at: float) -> None:
        """Nobody waits for the read of this id any more, because its reads fail.  It is read again at that time."""
        self.unreadable.pop(job_id, None)
        self.put_off.pop(job_id, None)
        self.put_off[job_id] = at
        self._search_without(job_id)

    def search_again(self, *job_ids: int) -> None:
        """Read everything that is to be read.  Ids whose reads fail wait for their turn, except these."""
        for job_id in job_ids:
            self.put_off.pop(job_id, None)
        self.unread = sorted(self.seen_first.keys() - self.put_off.keys())

    def _search_without(self, job_id: int) -> None:
        at = bisect.bisect_left(self.unread, job_id)
        if at < len(self.unread) and self.unread[at] == job_id:
            del self.unread[at]
        self.dirty.update(self.looking)
        if not self.unread:  # the search is over: who waited for it goes on
            self.dirty.update(self.by_phase[Phase.UNSUBMITTED])
            self.dirty.update(self.by_phase[Phase.ORPHANED])

    def given_to(self, key: str, job: Placeholder, at: float) -> None:
        """The id belongs to a job of another workload now: workloads that had the id, or show it, have lost their job."""
        for workload in self.concerned(job):
            if workload.key != key:
                self.taken_from(workload, job, at)

    def taken_from(self, workload: Workload, job: Placeholder, at: float) -> None:
        """The id belongs to a job of another workload now, or to a stranger's: this workload has lost its job."""
        workload.jobs.discard(job.id)
        job.hinted_by.discard(workload.key)
        self.lost_its_job(workload, job, at)
        self.refresh(workload)

    def not_its_job(self, workload: Workload, job: Placeholder) -> None:
        """A pod of that workload shows the job's id, which proves nothing."""
        if workload.hint == job.id:
            workload.hint = None
        workload.jobs.discard(job.id)
        job.hinted_by.discard(workload.key)
        self.refresh(workload)

    def lost_its_job(self, workload: Workload, job: Placeholder, at: float) -> None:
        """Slurm gave the id of the job that its pods were bound for to another job: they stand for that one no more."""
        if workload.hint != job.id or not any(workload.node_of(pod) for pod in workload.unfinished):
            return
        mine = self.mine(workload)
        other = chosen(workload, mine) or self._named_by_another_pod(workload, mine)
        proven = workload.key if job.key == workload.key or workload.bound_here else None
        if other is not None:
            workload.hint = other.id
        elif not self.may_have_bound(workload) or (workload.stands_for_none and job.key != workload.key):
            workload.hint = None  # its pod named somebody else's job
        else:
            workload.lost_job = lost_one(job, proven, at, self.config.tuning.absent_s)

    def _named_by_another_pod(self, workload: Workload, mine: list[Placeholder]) -> Placeholder | None:
        """A job that may be theirs: not all pods of a gang show yet that another job took the place of their former one."""
        absent_s = self.config.tuning.absent_s
        return next((job for job in mine if job.key is None and not job.lost(absent_s)), None)

    def drop(self, job: Placeholder) -> None:
        """Forget a job on which nothing depends any more."""
        self.absent.discard(job.id)
        self.expected.discard(job.id)
        self.placeholders.pop(job.id, None)
        for workload in self.concerned(job):
            workload.jobs.discard(job.id)
            self.refresh(workload)

    def concerned(self, job: Placeholder) -> list[Workload]:
        keys = job.hinted_by | {job.key} if job.key is not None else job.hinted_by
        return [self.workloads[key] for key in keys if key in self.workloads]

    def touch(self, job: Placeholder) -> None:
        for workload in self.concerned(job):
            self.refresh(workload)

    def back_off(self, workload: Workload, at: float, began: float = float("inf")) -> None:
        """Wait ever longer before the next attempt.

        began   when what failed was sent: what was sent together is one attempt, however many of it failed
        """
        tuning = self.config.tuning
        if began >= workload.wait_until or not workload.failures:
            workload.failures = min(workload.failures + 1, 16)
        workload.wait_until = at + min(tuning.backoff_max_s, tuning.backoff_s * 2 ** (workload.failures - 1))

    # --- indexes ------------------------------------------------------------------------------------------------------

    def refresh(self, workload: Workload) -> None:
        """Keep the index of phases, and mark it for a look."""
        key = workload.key
        self.dirty[key] = None
        now = phase(workload, self.placeholders, self.config.tuning.absent_s)
        before = self.phase_of.get(key)
        if now is Phase.GRANTED:
            self.coming = None
        if before is not now:
            if before is not None:
                self.by_phase[before].pop(key, None)
            self.by_phase[now][key] = None
            self.phase_of[key] = now
            if Phase.GRANTED in (before, now):
                self.about_to_stand(workload)
            if now is Phase.BOUND:
                workload.left_out = None
            for index in (self.detail_new, self.detail_round, self.running_new, self.running_round):
                index.pop(key, None)
            learned = max((job.learned for job in self.mine(workload)), default=float("-inf"))
            if now is Phase.QUEUED:
                self.detail_new[key] = learned + self.config.tuning.detail_fresh_s
            elif self._may_run(workload, now) and workload.hint is not None:
                self.running_new[key] = max(learned, self.started) + self.config.tuning.running_fresh_s
        _keep(self.looking, key, workload.look is not None)
        if self.quotas.counted:
            self.quotas.count(workload, self.mine(workload))
        _keep(self.waits_for_ports, key, key in self.wants_ports and now in WAITING)
        if now not in WAITING:
            self.waiting_terms.drop(key)
            self.neighbours.asks_no_more(key)
        elif key in self.affinity_workloads and key not in self.waiting_terms:
            self.waiting_terms.add(key, workload.pods.values())
        self.count_queued(workload)

    @staticmethod
    def _may_run(workload: Workload, now: Phase) -> bool:
        """Its pods run; or those of a gang that others have yet to join, however long these wait for their places."""
        return now is Phase.BOUND or (now is Phase.GRANTED and workload.group is not None)

    def count_queued(self, workload: Workload) -> None:
        """An immediate allocation beside a job of ours that waits, or is about to, would be refused because of it."""
        now, partition = self.phase_of.get(workload.key), ""
        if now is Phase.UNSUBMITTED and workload.refused is None:
            submits = workload.hold is not None and isinstance(workload.hold.action, act.SubmitJob)
            about_to = workload.immediate_refused and not self.is_quarantined(workload.key)
            partition = workload.asked_in if submits or about_to else ""
        elif now is Phase.QUEUED:
            job = next((job for job in self.mine(workload) if job.key == workload.key and job.alive), None)
            if job is not None and (job.job is None or job.job.reason not in NO_CONTENDER):
                asked = job.job.partition if job.job else (job.spec.partition if job.spec else "")
                partition = asked or self.default_partition
        before = self.partition_of.pop(workload.key, "")
        if before:
            self.queued_in[before] -= 1
        if partition:
            self.queued_in[partition] += 1
            self.partition_of[workload.key] = partition

    def park(self, key: str, limit_class: str) -> None:
        """Let the workload wait for its turn in that lane."""
        if (workload := self.workloads.get(key)) is not None:
            self.parked.setdefault(limit_class, FairQueue()).put(key, workload.namespace)
            self.parked_in.setdefault(key, set()).add(limit_class)

    def unpark(self, key: str) -> None:
        """Let the workload wait in no lane any more."""
        for limit_class in self.parked_in.pop(key, ()):
            self.parked[limit_class].pop(key)

    def shelve(self, workload: Workload) -> None:
        """Replace the workload by this one, which has no pods, and take it out of every index: it counts as over."""
        key = workload.key
        self.workloads[key] = workload
        for keys in self.by_phase.values():
            keys.pop(key, None)
        self.by_phase[Phase.DONE][key] = None
        self.phase_of[key] = Phase.DONE
        if queued := self.partition_of.pop(key, ""):
            self.queued_in[queued] -= 1
        for index in (self.detail_new, self.detail_round, self.running_new, self.running_round):
            index.pop(key, None)
        _keep(self.looking, key, workload.look is not None)
        self.waits_for_ports.pop(key, None)
        self.wants_ports.discard(key)
        self.affinity_workloads.discard(key)
        self.waiting_terms.drop(key)
        self.neighbours.asks_no_more(key)
        self._is_granted_no_more(key)
        self.dirty[key] = None

    def forget(self, key: str) -> None:
        """Nothing is left of this workload: no pod, no live job, nothing under way."""
        workload = self.workloads.pop(key, None)
        if workload is None:
            return
        for job_id in workload.jobs:
            job = self.placeholders.get(job_id)
            if job is None:
                continue
            job.hinted_by.discard(key)
            if job.key == key or (job.key is None and not job.hinted_by):
                self.placeholders.pop(job_id)
                self.absent.discard(job_id)
                self.expected.discard(job_id)
        for job_id in workload.foreign_jobs & self.foreign:  # without the workload another user of the policy's will do
            self.foreign.discard(job_id)
            self.schedule_read(job_id, self.last_poll_began)
        before = self.phase_of.pop(key, None)
        if before is not None:
            self.by_phase[before].pop(key, None)
        queued = self.partition_of.pop(key, "")
        if queued:
            self.queued_in[queued] -= 1
        for index in (self.detail_new, self.detail_round, self.running_new, self.running_round):
            index.pop(key, None)
        for marks in (self.looking, self.waits_for_ports, *self.limited.values()):
            marks.pop(key, None)
        self.affinity_workloads.discard(key)
        self.wants_ports.discard(key)
        self.waiting_terms.drop(key)
        self.neighbours.asks_no_more(key)
        self._is_granted_no_more(key)
        self.dirty.pop(key, None)
        self.unpark(key)
        self.quotas.forget(workload)


def _counts_the_same(one: Pod, other: Pod) -> bool:
    """To its neighbours."""
    return one.labels == other.labels and one.apart == other.apart and one.host_ports == other.host_ports


def _keep(index: dict[str, None], key: str, belongs: bool) -> None:
    if belongs:
        index[key] = None
    else:
        index.pop(key, None)
