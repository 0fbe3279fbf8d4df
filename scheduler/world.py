"""The World: what is known of both clusters, and the only mutable object.

`apply(event)` is its only door.  It is total: any event in any order, any number of times, is folded into facts.  It
decides nothing; it only marks which workloads are worth another look (ARCHITECTURE 3).

Three things keep old news from overwriting new: a list swaps whole, a fact learned from an answer is not contradicted by
a poll that began before that answer, and what vanished is remembered as absent, not as ended.
"""

from __future__ import annotations

import bisect
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler import names
from scheduler.actions import Outcome
from scheduler.events import Scope, Side
from scheduler.feasible import Demand, Feasible, slurm_name
from scheduler.jobspec import Surroundings
from scheduler.model import (
    UNLIMITED,
    Claim,
    HostPort,
    Job,
    Namespace,
    Node,
    Owner,
    Partition,
    Pod,
    Refusal,
    SlurmNode,
    States,
    holds_nodes,
    is_ended,
)
from scheduler.phase import Phase, phase
from scheduler.tuning import Config
from scheduler.workload import Gone, Hold, Look, Placeholder, Told, Workload

NO_ROOM = frozenset({2013, 2016})  # "insufficient priority", "busy": no nodes for an immediate allocation now
TWIN = 2038  # dependency problem of an immediate allocation: a job of this name lives (FACTS 8)
UNKNOWN_NODE = 2018  # excluded_nodes names a node that Slurm does not have
RUNNING: States = frozenset({"RUNNING"})
PENDING: States = frozenset({"PENDING"})
CANCELLED: States = frozenset({"CANCELLED"})
MAX_OWNERS = 8  # how far up a chain of controllers annotations are looked for


class Breaker:
    """Whether immediate allocations are worth trying in one partition (ARCHITECTURE 5)."""

    __slots__ = ("open_until", "refusals", "trusted")

    def __init__(self) -> None:
        self.refusals = 0
        self.open_until = float("-inf")
        self.trusted = False

    def granted(self) -> None:
        """There was room."""
        self.refusals = 0
        self.trusted = True

    def refused(self, now: float, open_s: float) -> None:
        """No room; the second time in a row it opens."""
        self.refusals += 1
        self.trusted = False
        if self.refusals >= 2:
            self.refusals = 0
            self.open_until = now + open_s


class Ration:
    """A token bucket: so many a second, at most `burst` at once."""

    __slots__ = ("at", "burst", "left", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self.left, self.at = burst, float("-inf")

    def available(self, now: float) -> float:
        """How many may be taken now."""
        if self.at == float("-inf"):
            return self.burst
        return min(self.burst, self.left + max(0.0, now - self.at) * self.rate)

    def take(self, now: float, count: int) -> None:
        """Take them."""
        self.left, self.at = self.available(now) - count, now

    def next_at(self, now: float) -> float:
        """When one is available."""
        return now + max(0.0, 1.0 - self.available(now)) / self.rate


class World:
    """See the module.  Public attributes are facts, to be read by decisions, explanations and metrics; never set."""

    def __init__(self, config: Config, started: float) -> None:
        self.config = config
        self.started = started
        # Kubernetes
        self.namespaces: dict[str, Namespace] | None = None
        self.nodes: dict[str, Node] | None = None
        self.by_slurm_name: dict[str, str] = {}
        self.standing: dict[str, dict[str, Pod]] = {}
        self.listed: dict[Scope, set[str]] = {}
        self.owners: dict[str, Owner | None] = {}
        self.claims: dict[str, tuple[Claim, ...]] = {}
        # Slurm
        self.slurm_nodes: dict[str, SlurmNode] | None = None
        self.partitions: dict[str, Partition] = {}
        self.default_partition = ""
        self.states: Mapping[int, States] = {}
        self.polled: ev.JobsPolled | None = None
        self.first_polled: float | None = None
        self.highest = 0  # the newest id that any poll showed
        self.scan_until = float("-inf")  # unknown ids are read at the high rate until then
        self.unread: list[int] = []  # ids that nobody knows yet, ascending
        self.seen_first: dict[int, float] = {}  # of those: when the poll began that showed them first
        self.foreign: set[int] = set()
        self.placeholders: dict[int, Placeholder] = {}
        self.expected: set[int] = set()  # made by us, not yet in a poll
        self.absent: set[int] = set()
        self.lost: dict[Side, ev.SideLost] = {}
        self.breakers: dict[str, Breaker] = {}
        self.freed_at = float("-inf")
        self.kicked_at = float("-inf")
        self.nodes_stale = False
        # workloads
        self.workloads: dict[str, Workload] = {}
        self.key_of_pod: dict[str, str] = {}
        self.waits_for_owner: dict[str, set[str]] = {}
        self.by_phase: dict[Phase, dict[str, None]] = {each: {} for each in Phase}
        self.phase_of: dict[str, Phase] = {}
        self.queued_in: Counter[str] = Counter()
        self.partition_of: dict[str, str] = {}
        self.detail_new: dict[str, float] = {}  # queued, never read in detail: when that is due
        self.detail_round: dict[str, float] = {}  # queued, in the order in which they were last read, and when
        self.looking: dict[str, None] = {}
        self.limited: dict[str, None] = {}
        # attention
        self.dirty: dict[str, None] = {}
        self.parked: dict[str, dict[str, None]] = {lane: {} for lane in act.LANES.values()}
        self.timers: list[tuple[float, str]] = []
        self.wakes: dict[str, float] = {}
        self.under_way: Counter[str] = Counter()
        self.immediate_under_way: Counter[str] = Counter()
        self.reading: set[int] = set()
        self.reading_refs: set[str] = set()
        self.feasibility: dict[Demand, Feasible] = {}
        tuning = config.tuning
        self.rations = {
            "detail": Ration(tuning.detail_rate, tuning.detail_rate),
            "unknown": Ration(tuning.unknown_rate, tuning.unknown_rate),
            "scan": Ration(tuning.scan_rate, tuning.scan_rate / 5),
            "absent": Ration(20.0, 20.0),
        }

    # --- questions ------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Everything was listed once: before that nothing is known to be missing."""
        return (
            self.namespaces is not None
            and "kube-system" in self.namespaces
            and self.nodes is not None
            and self.slurm_nodes is not None
            and self.polled is not None
            and len(self.listed) == len(Scope)
        )

    @property
    def missing(self) -> list[str]:
        """What `ready` still waits for, in words."""
        lacking = {
            "the list of namespaces": self.namespaces is None or "kube-system" not in self.namespaces,
            "the list of Kubernetes nodes": self.nodes is None,
            "the list of this scheduler's pods": Scope.OURS not in self.listed,
            "the list of other pods": Scope.OTHERS not in self.listed,
            "Slurm's nodes": self.slurm_nodes is None,
            "Slurm's jobs": self.polled is None,
        }
        return [what for what, is_missing in lacking.items() if is_missing]

    @property
    def cluster(self) -> str:
        """This Kubernetes cluster's mark in job names."""
        assert self.namespaces is not None, "asked before the namespaces were listed"
        return names.cluster_id(self.namespaces["kube-system"].uid)

    @property
    def around(self) -> Surroundings:
        """What a translation needs besides the pod."""
        return Surroundings(self.config.translation, self.cluster, self.longest_min)

    def longest_min(self, partition: str) -> int | None:
        """The longest time limit of a partition ("" the default one) in minutes; None where it is not known."""
        known = self.partitions.get(partition or self.default_partition)
        if known is None:
            return None
        return UNLIMITED if known.max_time_min is None else known.max_time_min

    def quiet_until(self) -> float:
        """Before that nothing is cancelled, evicted or given back (ARCHITECTURE 3)."""
        return self.started + self.config.tuning.quiet_s

    def scanning_until(self) -> float:
        """Until then pods that are older than this life wait for their placeholder to be found (ARCHITECTURE 4)."""
        if self.first_polled is None or not self.unread:
            return float("-inf")
        return min(self.scan_until, self.first_polled + self.config.tuning.scan_s)

    def owners_of(self, pod: Pod) -> tuple[tuple[Owner, ...], str | None]:
        """The controllers known, nearest first, and the UID of one that has still to be read."""
        chain: list[Owner] = []
        ref = pod.owner
        while ref is not None and len(chain) < MAX_OWNERS:
            if ref.uid not in self.owners:
                return tuple(chain), ref.uid
            owner = self.owners[ref.uid]
            if owner is None:
                break
            chain.append(owner)
            ref = owner.owner
        return tuple(chain), None

    def mine(self, workload: Workload) -> list[Placeholder]:
        """The placeholders that are or may be this workload's."""
        return [self.placeholders[job_id] for job_id in workload.jobs if job_id in self.placeholders]

    def users_of(self, workload: Workload) -> frozenset[str]:
        """Whose jobs can be this workload's: the policy's user for its pods, or, where it has none, any of the policy's."""
        users = set()
        for pod in [*workload.pods.values(), *(gone.pod for gone in workload.gone.values())]:
            tenant = self.config.policy.tenant(pod.namespace, pod.service_account)
            if not isinstance(tenant, Refusal):
                users.add(tenant.user)
        return frozenset(users) or self.config.policy.users

    def mass_absence(self) -> bool:
        """More placeholders are absent at once than can be believed (X6)."""
        tuning = self.config.tuning
        return len(self.absent) > max(tuning.absent_burst, tuning.absent_share * len(self.placeholders))

    def ports_taken(self) -> dict[str, frozenset[HostPort]]:
        """Host ports that unfinished pods hold, by node."""
        taken = {}
        for node, pods in self.standing.items():
            ports = frozenset(port for pod in pods.values() for port in pod.host_ports)
            if ports:
                taken[node] = ports
        return taken

    def story(self, key: str) -> list[tuple[float, str]]:
        """The last events and actions of one workload, oldest first."""
        workload = self.workloads.get(key)
        return list(workload.story) if workload else []

    # --- the door -------------------------------------------------------------------------------------------------

    def apply(self, event: ev.Event) -> None:
        """Fold one event into the facts."""
        handler = _HANDLERS[type(event)]
        handler(self, event)

    # --- pods -----------------------------------------------------------------------------------------------------

    def _pod_seen(self, event: ev.PodSeen) -> None:
        if event.scope in self.listed:
            self.listed[event.scope].add(event.pod.uid)
        self._stand(event.pod)
        if event.scope is Scope.OURS:
            self._our_pod(event.pod)

    def _pod_gone(self, event: ev.PodGone) -> None:
        self.listed.get(event.scope, set()).discard(event.pod.uid)
        self._forget_pod(event.scope, event.pod, event.at)

    def _pods_listed(self, event: ev.PodsListed) -> None:
        before = self.listed.get(event.scope, set())
        self.listed[event.scope] = {pod.uid for pod in event.pods}
        for pod in event.pods:
            self._pod_seen(ev.PodSeen(event.scope, pod))
        for uid in before - self.listed[event.scope]:
            last = self._last_known(event.scope, uid)
            if last is not None:
                self._forget_pod(event.scope, last, event.at)

    def _last_known(self, scope: Scope, uid: str) -> Pod | None:
        if scope is Scope.OURS:
            workload = self.workloads.get(self.key_of_pod.get(uid, ""))
            return workload.pods.get(uid) if workload else None
        return next((pods[uid] for pods in self.standing.values() if uid in pods), None)

    def _stand(self, pod: Pod) -> None:
        """Keep who stands where: every unfinished pod with a node, whoever put it there."""
        if pod.node and not pod.finished:
            there = self.standing.setdefault(pod.node, {})
            before = there.get(pod.uid)
            there[pod.uid] = pod
            if pod.host_ports and before is None:
                self._feasibility_changed()
        else:
            self._unstand(pod)

    def _unstand(self, pod: Pod) -> None:
        for node in (pod.node, self._assumed_node(pod.uid)):
            there = self.standing.get(node)
            if there is not None and there.pop(pod.uid, None) is not None:
                if not there:
                    del self.standing[node]
                if pod.host_ports:
                    self._feasibility_changed()
                self._room_on(node)

    def _assumed_node(self, uid: str) -> str:
        workload = self.workloads.get(self.key_of_pod.get(uid, ""))
        return workload.bound.get(uid, "") if workload else ""

    def _room_on(self, node: str) -> None:
        """Somebody left the node: grants there may wait for that (F6)."""
        for key in self.by_phase[Phase.GRANTED]:
            self.dirty[key] = None

    def _our_pod(self, pod: Pod) -> None:
        key = self.key_of_pod.get(pod.uid) or names.workload_key(pod.uid)
        self.key_of_pod[pod.uid] = key
        workload = self.workloads.get(key)
        if workload is None:
            workload = self.workloads[key] = Workload(key, created=pod.created)
            workload.story.append((pod.created, f"pod {pod.full_name} created"))
        before = workload.pods.get(pod.uid)
        workload.pods[pod.uid] = pod
        workload.created = pod.created
        workload.gone.pop(pod.uid, None)
        if before is None or before.annotations != pod.annotations:
            self._input_changed(workload)
        self._take_hint(workload, pod)
        if pod.node:
            workload.bound.pop(pod.uid, None)
            if before is None or not before.node:
                workload.story.append((pod.created, f"stands on node {pod.node}"))
        self._refresh(workload)

    def _input_changed(self, workload: Workload) -> None:
        workload.refused = None
        workload.retry_at = float("-inf")

    def _take_hint(self, workload: Workload, pod: Pod) -> None:
        """A job id that the pod shows: enough to leave it in peace, never enough to act on (ARCHITECTURE 4)."""
        shown = pod.annotations.get(names.JOB_ID, "")
        job_id = int(shown) if pod.node and shown.isascii() and shown.isdecimal() and len(shown) <= 10 else None
        condition = workload.shown_condition(pod)
        if job_id is None and not pod.node and condition is not None and not workload.jobs:
            job_id = names.shown_job(condition.message)
        if job_id is None or job_id == workload.hint:
            return
        workload.hint = job_id
        workload.jobs.add(job_id)
        if job_id not in self.placeholders and job_id not in self.foreign:
            states = self.states.get(job_id, PENDING if not pod.node else RUNNING)
            self.placeholders[job_id] = Placeholder(job_id, None, "", states, learned=float("-inf"))
            self._known(job_id)
            if self.polled is not None and job_id not in self.states:
                self._is_absent(self.placeholders[job_id], self.polled.began)
        if job_id in self.placeholders:
            self.placeholders[job_id].hinted_by.add(workload.key)

    def _forget_pod(self, scope: Scope, pod: Pod, at: float) -> None:
        self._unstand(pod)
        if scope is not Scope.OURS:
            return
        workload = self.workloads.get(self.key_of_pod.get(pod.uid, ""))
        if workload is None:
            return
        last = workload.pods.pop(pod.uid, None)
        stood = workload.node_of(pod) or (workload.node_of(last) if last else "")
        clean = pod.finished or not stood
        until = at if clean else at + pod.grace_s + self.config.tuning.gone_grace_s
        workload.gone[pod.uid] = Gone(pod, at, until)
        workload.bound.pop(pod.uid, None)
        workload.pod_holds.pop(pod.uid, None)
        workload.told.pop(pod.uid, None)
        self.key_of_pod.pop(pod.uid, None)
        self.claims.pop(pod.uid, None)
        workload.story.append((at, f"pod {pod.full_name} is gone"))
        self._refresh(workload)

    # --- nodes, namespaces, owners --------------------------------------------------------------------------------

    def _node_seen(self, event: ev.NodeSeen) -> None:
        if self.nodes is not None and self.nodes.get(event.node.name) != event.node:
            self.nodes[event.node.name] = event.node
            self._nodes_changed()

    def _node_gone(self, event: ev.NodeGone) -> None:
        if self.nodes is not None and self.nodes.pop(event.name, None) is not None:
            self._nodes_changed()

    def _nodes_listed(self, event: ev.NodesListed) -> None:
        nodes = {node.name: node for node in event.nodes}
        if nodes != self.nodes:
            self.nodes = nodes
            self._nodes_changed()

    def _nodes_changed(self) -> None:
        self.by_slurm_name = {slurm_name(node): node.name for node in (self.nodes or {}).values()}
        self._feasibility_changed()

    def _feasibility_changed(self) -> None:
        self.feasibility.clear()
        for each in (Phase.UNCLAIMED, Phase.QUEUED, Phase.GRANTED):
            self.dirty.update(self.by_phase[each])

    def _namespace_seen(self, event: ev.NamespaceSeen) -> None:
        if self.namespaces is not None:
            before = self.namespaces.get(event.namespace.name)
            self.namespaces[event.namespace.name] = event.namespace
            if before is None or before.labels != event.namespace.labels:
                self.dirty.update(self.by_phase[Phase.UNCLAIMED])

    def _namespace_gone(self, event: ev.NamespaceGone) -> None:
        if self.namespaces is not None and event.name != "kube-system":
            self.namespaces.pop(event.name, None)

    def _namespaces_listed(self, event: ev.NamespacesListed) -> None:
        self.namespaces = {namespace.name: namespace for namespace in event.namespaces}
        self.dirty.update(self.by_phase[Phase.UNCLAIMED])

    def _owner_read(self, event: ev.OwnerRead) -> None:
        self.owners[event.ref.uid] = event.owner
        for key in self.waits_for_owner.pop(event.ref.uid, ()):
            self.dirty[key] = None

    def _claims_read(self, event: ev.ClaimsRead) -> None:
        self.claims[event.uid] = event.claims
        key = self.key_of_pod.get(event.uid)
        if key is not None:
            self.dirty[key] = None

    # --- jobs -----------------------------------------------------------------------------------------------------

    def _jobs_polled(self, event: ev.JobsPolled) -> None:
        if self.polled is not None and event.began < self.polled.began:
            return
        before, self.states = self.states, event.states
        if self.first_polled is None:
            self.first_polled = event.ended
            self.scan_until = event.ended + self.config.tuning.scan_s
        self.polled = event
        arrived = []
        for job_id, states in event.states.items():
            was = before.get(job_id)
            if was is None:
                arrived.append(job_id)
            elif was is states:
                continue
            elif was != states and holds_nodes(was) and is_ended(states):
                self.freed_at = event.ended
            if was != states or job_id in self.absent or job_id in self.expected:
                self._poll_shows(job_id, states, event)
        for job_id in before.keys() - event.states.keys():
            self._poll_lacks(job_id, before[job_id], event)
        self._still_missing(event)
        self._newly_seen(arrived, event)
        if any(job_id <= self.highest for job_id in arrived):
            self._read_anew(event.ended)
        self.highest = max(self.highest, *arrived) if arrived else self.highest
        self.dirty.update(self.looking)

    def _poll_shows(self, job_id: int, states: States, event: ev.JobsPolled) -> None:
        job = self.placeholders.get(job_id)
        if job is None or event.began <= job.learned:
            return
        self.expected.discard(job_id)
        self.absent.discard(job_id)
        job.absent_first = job.absent_last = None
        self._set_states(job, states, event.ended)

    def _set_states(self, job: Placeholder, states: States, at: float) -> None:
        if is_ended(states) and not job.ended:
            job.ended_seen = at
            self._known(job.id)
            workload = self.workloads.get(job.key or "")
            if workload is not None and not any(workload.node_of(pod) for pod in workload.pods.values()):
                self._back_off(workload, at)  # whoever ended it may end the next one at once
            self._released_a_limit(job)
        if holds_nodes(states) and not job.holds_nodes:
            job.granted_at = at
        elif not holds_nodes(states) and job.holds_nodes and not is_ended(states):
            job.grant = None  # requeued: what it gets next is another grant
        if states != job.states:
            self._tell(job, at, f"Slurm job {job.id} is {' '.join(sorted(states))}")
        job.states = states
        self._touch(job)

    def _tell(self, job: Placeholder, at: float, what: str) -> None:
        workload = self.workloads.get(job.key or "")
        if workload is not None:
            workload.story.append((at, what))

    def _released_a_limit(self, job: Placeholder) -> None:
        """An own job of that user ended: the oldest that his limits held back goes first (Q4)."""
        held = (self.workloads[key] for key in self.limited if job.user in self.users_of(self.workloads[key]))
        first = min(held, key=lambda workload: (workload.created, workload.key), default=None)
        if first is not None:
            first.retry_at = float("-inf")
            self.dirty[first.key] = None

    def _poll_lacks(self, job_id: int, was: States, event: ev.JobsPolled) -> None:
        if holds_nodes(was):
            self.freed_at = event.ended
        self.foreign.discard(job_id)
        self._known(job_id)
        job = self.placeholders.get(job_id)
        if job is not None and event.began > job.learned:
            if job.ended and job.proven_end(self.config.tuning.absent_s):
                self._drop(job)
            else:
                self._is_absent(job, event.began)

    def _still_missing(self, event: ev.JobsPolled) -> None:
        """Jobs that no poll has shown, and those absent before: this answer lacks them too."""
        for job_id in [*self.expected, *self.absent]:
            job = self.placeholders.get(job_id)
            if job is not None and job_id not in event.states and event.began > job.learned:
                self._is_absent(job, event.began)

    def _is_absent(self, job: Placeholder, began: float) -> None:
        self.expected.discard(job.id)
        self.absent.add(job.id)
        if job.absent_first is None:
            job.absent_first = began
        job.absent_last = began
        self._touch(job)

    def _newly_seen(self, arrived: Iterable[int], event: ev.JobsPolled) -> None:
        for job_id in arrived:
            if is_ended(event.states[job_id]) or job_id in self.foreign or job_id in self.seen_first:
                continue
            if job_id not in self.placeholders:
                self.seen_first[job_id] = event.began
                bisect.insort(self.unread, job_id)

    def _known(self, job_id: int) -> None:
        """It needs no reading any more."""
        if self.seen_first.pop(job_id, None) is not None:
            at = bisect.bisect_left(self.unread, job_id)
            if at < len(self.unread) and self.unread[at] == job_id:
                del self.unread[at]

    def _read_anew(self, at: float) -> None:
        """Ids are given out again after slurmctld lost its state: hints and foreign ids prove nothing (ARCHITECTURE 4)."""
        tuning = self.config.tuning
        began = self.polled.began if self.polled else float("-inf")
        for job_id in (*self.foreign, *self.placeholders):
            if not is_ended(self.states.get(job_id, CANCELLED)):
                self.seen_first.setdefault(job_id, began)
        self.foreign.clear()
        self.unread = sorted(self.seen_first)
        self.scan_until = at + tuning.scan_s + len(self.unread) / tuning.scan_rate

    def _job_read(self, event: ev.JobRead) -> None:
        self.reading.discard(event.job_id)
        placeholder = self.placeholders.get(event.job_id)
        if event.job is None:
            self._known(event.job_id)
            if placeholder is not None and event.began > placeholder.learned:
                self._denied(placeholder, event.began)
            return
        whose = self._whose(event.job)
        if whose is None:
            self._known(event.job_id)
            self.foreign.add(event.job_id)
            if placeholder is not None and event.began > placeholder.learned:
                self._denied(placeholder, event.began)
            return
        self._ours(event, whose)

    def _denied(self, job: Placeholder, began: float) -> None:
        job.read_began = began
        if job.key is None:  # a hint that led nowhere
            self._drop(job)
            return
        job.denied = True
        self._is_absent(job, began)

    def _whose(self, job: Job) -> str | None:
        """The key of a job that is ours: by its name, and by its user (ARCHITECTURE 4)."""
        named = names.whose(job.name)
        if named is None or self.namespaces is None or named[0] != self.cluster:
            return None
        workload = self.workloads.get(named[1])
        users = self.users_of(workload) if workload is not None else self.config.policy.users
        return named[1] if job.user in users else None

    def _ours(self, event: ev.JobRead, key: str) -> None:
        assert event.job is not None
        self._known(event.job_id)
        workload = self.workloads.get(key)
        if workload is None:
            workload = self.workloads[key] = Workload(key, created=event.job.submitted or 0.0)
        job = self.placeholders.get(event.job_id)
        if job is None:
            job = self.placeholders[event.job_id] = Placeholder(
                event.job_id, key, event.job.user, frozenset(), learned=float("-inf")
            )
        elif job.key not in (None, key):
            self._forget_job_of(job)
        if event.began <= job.learned:
            return
        job.key, job.user = key, event.job.user
        job.job, job.grant = event.job, event.grant or job.grant
        job.read_began, job.learned, job.denied = event.began, event.began, False
        job.absent_first = job.absent_last = None
        self.absent.discard(job.id)
        if workload.look is not None and not is_ended(event.job.states):
            workload.look = None
        workload.jobs.add(job.id)
        self._set_states(job, event.job.states, event.ended)
        if job.ended and job.ended_seen is not None and job.ended_seen > event.began:
            job.ended_seen = event.began
        self._refresh(workload)

    def _forget_job_of(self, job: Placeholder) -> None:
        before = self.workloads.get(job.key or "")
        if before is not None:
            before.jobs.discard(job.id)
            self._refresh(before)

    def _drop(self, job: Placeholder) -> None:
        """It is over and told: nothing depends on it any more."""
        self.absent.discard(job.id)
        self.expected.discard(job.id)
        self.placeholders.pop(job.id, None)
        for workload in self._concerned(job):
            workload.jobs.discard(job.id)
            self._refresh(workload)

    def _concerned(self, job: Placeholder) -> list[Workload]:
        keys = job.hinted_by | {job.key} if job.key is not None else job.hinted_by
        return [self.workloads[key] for key in keys if key in self.workloads]

    def _touch(self, job: Placeholder) -> None:
        for workload in self._concerned(job):
            self._refresh(workload)

    def _slurm_nodes_polled(self, event: ev.SlurmNodesPolled) -> None:
        nodes = {node.name: node for node in event.nodes}
        partitions = {partition.name: partition for partition in event.partitions}
        self.nodes_stale = False
        if partitions != self.partitions:
            self.partitions = partitions
            self.default_partition = next((each.name for each in event.partitions if each.default), "")
            for key in self.by_phase[Phase.UNCLAIMED]:  # Slurm's configuration changed: ask again (Q4)
                self._input_changed(self.workloads[key])
        if nodes != self.slurm_nodes:
            self.slurm_nodes = nodes
            self._feasibility_changed()

    def _side_lost(self, event: ev.SideLost) -> None:
        self.lost.setdefault(event.side, event)
        if event.side is Side.SLURM:
            self.dirty.update(self.by_phase[Phase.UNCLAIMED])
            self.dirty.update(self.by_phase[Phase.QUEUED])

    def _side_back(self, event: ev.SideBack) -> None:
        if self.lost.pop(event.side, None) is None:
            return
        for key, workload in self.workloads.items():
            workload.failures, workload.wait_until = 0, float("-inf")
            self.dirty[key] = None
        if event.side is Side.SLURM:
            self._read_anew(event.at)

    # --- plans and their ends -------------------------------------------------------------------------------------

    def _planned(self, event: ev.Planned) -> None:
        for key in event.plan.looked_at:
            self.dirty.pop(key, None)
            for lane in self.parked.values():
                lane.pop(key, None)
        for name, keys in event.plan.parked.items():
            self.parked[name].update(dict.fromkeys(keys))
        for key in event.plan.forgotten:
            self._forget(key)
        for key, uid in event.plan.awaited.items():
            self.waits_for_owner.setdefault(uid, set()).add(key)
        for key, node in event.plan.excluded.items():
            self.workloads[key].excluded[node] = event.at + self.config.tuning.exclude_s
        self._set_timers(event.plan.wake, event.at)
        for action in event.plan.actions:
            self.under_way[act.LANES.get(type(action), "")] += 1
            placer = _PLACERS.get(type(action))
            if placer is not None:
                placer(self, action, event.at)

    def _set_timers(self, wake: Mapping[str, float], now: float) -> None:
        while self.timers and self.timers[0][0] <= now:
            at, key = heapq.heappop(self.timers)
            if self.wakes.get(key) == at:
                del self.wakes[key]
        for key, at in wake.items():
            if at < self.wakes.get(key, float("inf")):
                self.wakes[key] = at
                heapq.heappush(self.timers, (at, key))

    def _place_submission(self, action: act.AllocateNow | act.SubmitJob, at: float) -> None:
        workload = self.workloads[action.key]
        workload.hold = Hold(action, at)
        workload.refused = None
        partition = action.spec.partition or self.default_partition
        if isinstance(action, act.AllocateNow):
            self.immediate_under_way[partition] += 1
        workload.story.append((at, action.reason))
        self._refresh(workload)

    def _place_slurm(self, action: act.CancelJob | act.UpdateJob | act.RecordEnd | act.FindJobs, at: float) -> None:
        workload = self.workloads[action.key]
        workload.hold = Hold(action, at)
        workload.story.append((at, action.reason))
        if isinstance(action, act.FindJobs) and workload.look is not None:
            workload.look.asked_database = True
        if isinstance(action, act.UpdateJob):
            workload.updated_at = at

    def _place_read(self, action: act.ReadJob, at: float) -> None:
        self.reading.add(action.job_id)
        if action.lane in self.rations:
            self.rations[action.lane].take(at, 1)
        if action.lane == "detail":
            self.detail_new.pop(action.key, None)
            self.detail_round.pop(action.key, None)
            self.detail_round[action.key] = at  # to the end of the round

    def _place_kick(self, action: act.Kick, at: float) -> None:
        self.kicked_at = at

    def _place_on_pod(self, action: act.BindPod | act.EvictPod | act.EndByDeadline, at: float) -> None:
        workload = self.workloads[action.key]
        workload.pod_holds[action.uid] = Hold(action, at)
        workload.story.append((at, action.reason))
        if isinstance(action, act.BindPod):  # assume: nobody else is given that room meanwhile (V5)
            self.standing.setdefault(action.node, {})[action.uid] = workload.pods[action.uid]

    def _place_report(self, action: act.Report, at: float) -> None:
        workload = self.workloads[action.key]
        before = workload.told.get(action.uid)
        event_at = at if action.event else (before.event_at if before else float("-inf"))
        told = Told(action.condition, action.message, action.essence, action.starts, at, event_at)
        workload.told[action.uid] = told

    def _place_owner(self, action: act.ReadOwner, at: float) -> None:
        self.reading_refs.add(action.ref.uid)

    def _place_claims(self, action: act.ReadClaims, at: float) -> None:
        self.reading_refs.add(action.uid)

    def _action_ended(self, event: ev.ActionEnded) -> None:
        action = event.action
        self.under_way[act.LANES.get(type(action), "")] -= 1
        ender = _ENDERS.get(type(action))
        if ender is not None:
            ender(self, action, event)
        key = getattr(action, "key", "")
        workload = self.workloads.get(key)
        if workload is not None:
            if event.outcome is not Outcome.DONE and event.refusal is not None:
                workload.story.append((event.at, event.refusal.message))
            self._refresh(workload)

    def _submission_ended(self, action: act.AllocateNow | act.SubmitJob, event: ev.ActionEnded) -> None:
        partition = action.spec.partition or self.default_partition
        breaker = self.breakers.setdefault(partition, Breaker())
        immediate = isinstance(action, act.AllocateNow)
        if immediate:
            self.immediate_under_way[partition] -= 1
        workload = self.workloads.get(action.key)
        if workload is None:
            return
        workload.hold = None
        if event.outcome is Outcome.DONE and event.job_id is not None:
            if immediate:
                breaker.granted()
            self._made(workload, action, event, RUNNING if immediate else PENDING)
        elif event.outcome is Outcome.UNKNOWN:
            until = event.at + self.config.tuning.settle_s
            workload.look = Look(event.began, until, action.spec.name)
        elif event.outcome is Outcome.REFUSED and event.refusal is not None:
            self._submission_refused(workload, breaker, action, event, event.refusal)
        else:
            self._back_off(workload, event.at)

    def _made(
        self, workload: Workload, action: act.AllocateNow | act.SubmitJob, event: ev.ActionEnded, states: States
    ) -> None:
        assert event.job_id is not None
        self._known(event.job_id)
        self.foreign.discard(event.job_id)
        job = Placeholder(event.job_id, workload.key, action.spec.user, frozenset(), learned=event.at)
        job.spec, job.grant, job.asked_at = action.spec, event.grant, event.began
        stale = self.placeholders.get(event.job_id)
        if stale is not None:
            self._forget_job_of(stale)
            self.absent.discard(stale.id)
        self.placeholders[job.id] = job
        self.expected.add(job.id)
        workload.jobs.add(job.id)
        workload.hint = job.id
        workload.look = None
        workload.immediate_refused = False
        self._set_states(job, states, event.at)

    def _submission_refused(
        self,
        workload: Workload,
        breaker: Breaker,
        action: act.AllocateNow | act.SubmitJob,
        event: ev.ActionEnded,
        refusal: Refusal,
    ) -> None:
        tuning = self.config.tuning
        if isinstance(action, act.AllocateNow) and refusal.number in NO_ROOM:
            breaker.refused(event.at, tuning.breaker_open_s)
            workload.immediate_refused = True
        elif refusal.number == TWIN:
            workload.look = Look(event.began, event.at + tuning.absent_s, action.spec.name, twin=True)
            workload.immediate_refused = True
        elif refusal.number == UNKNOWN_NODE:
            self.nodes_stale = True
            self._back_off(workload, event.at)
        else:
            self._back_off(workload, event.at)
            workload.refused = refusal
            workload.retry_at = workload.wait_until if refusal.later else event.at + tuning.refused_retry_s

    def _back_off(self, workload: Workload, at: float) -> None:
        tuning = self.config.tuning
        wait = min(tuning.backoff_max_s, tuning.backoff_s * 2**workload.failures)
        workload.failures = min(workload.failures + 1, 16)
        workload.wait_until = at + wait

    def _cancel_ended(self, action: act.CancelJob, event: ev.ActionEnded) -> None:
        workload = self.workloads.get(action.key)
        if workload is not None:
            workload.hold = None
        job = self.placeholders.get(action.job_id)
        if event.outcome is Outcome.DONE:
            if job is not None and not job.ended:
                if job.holds_nodes:
                    self.freed_at = event.at
                job.learned = event.at
                self.expected.discard(job.id)
                self.absent.discard(job.id)
                self._set_states(job, CANCELLED, event.at)
                job.read_began = event.at  # the answer to the cancel is proof enough
            if workload is not None and action.record and self.config.accounting:
                own = job.job.comment if job and job.job else (job.spec.comment if job and job.spec else "")
                workload.record = (action.job_id, f"{own}; {action.record}" if own else action.record)
                workload.failures = 0
        elif workload is not None:
            self._back_off(workload, event.at)

    def _slurm_write_ended(self, action: act.UpdateJob | act.RecordEnd, event: ev.ActionEnded) -> None:
        workload = self.workloads.get(action.key)
        if workload is None:
            return
        workload.hold = None
        if isinstance(action, act.RecordEnd):
            if event.outcome is Outcome.DONE or workload.failures >= 6:
                workload.record = None
            else:
                self._back_off(workload, event.at)
            return
        job = self.placeholders.get(action.job_id)
        if event.outcome is Outcome.DONE and job is not None:
            job.spec = action.spec
        else:
            self._back_off(workload, event.at)
            if event.outcome is Outcome.REFUSED and job is not None and event.refusal is not None:
                job.spec = action.spec  # not asked again until something changes; the pod is told why
                workload.refused = event.refusal

    def _find_ended(self, action: act.FindJobs, event: ev.ActionEnded) -> None:
        workload = self.workloads.get(action.key)
        if workload is None:
            return
        workload.hold = None
        for job_id in event.found:
            if job_id not in self.placeholders and job_id not in self.foreign:
                self.seen_first.setdefault(job_id, event.began)
                if job_id not in self.unread:
                    bisect.insort(self.unread, job_id)

    def _read_ended(self, action: act.ReadJob, event: ev.ActionEnded) -> None:
        """What was read comes as JobRead; this only ends the hold, where the read failed."""
        self.reading.discard(action.job_id)
        workload = self.workloads.get(action.key)
        if workload is not None and event.outcome is not Outcome.DONE:
            self._back_off(workload, event.at)

    def _bind_ended(self, action: act.BindPod, event: ev.ActionEnded) -> None:
        workload = self.workloads.get(action.key)
        if workload is None or action.uid not in workload.pods:
            self._unassume(action)
            return
        workload.pod_holds.pop(action.uid, None)
        pod = workload.pods[action.uid]
        if event.outcome is Outcome.DONE:
            workload.bind_failures = workload.failures = 0
            workload.hint = action.job_id
            if not pod.node:
                workload.bound[action.uid] = action.node
            return
        self._back_off(workload, event.at)
        workload.bind_failures += 1
        if event.outcome is not Outcome.UNKNOWN and pod.node != action.node:
            self._unassume(action)

    def _unassume(self, action: act.BindPod) -> None:
        there = self.standing.get(action.node, {})
        assumed = there.get(action.uid)
        if assumed is not None and assumed.node != action.node:
            del there[action.uid]

    def _eviction_ended(self, action: act.EvictPod | act.EndByDeadline, event: ev.ActionEnded) -> None:
        workload = self.workloads.get(action.key)
        if workload is None:
            return
        held = workload.pod_holds.pop(action.uid, None)
        if event.outcome is Outcome.DONE and held is not None and action.uid in workload.pods:
            grace_s = workload.pods[action.uid].grace_s
            workload.pod_holds[action.uid] = Hold(action, held.placed, until=event.at + grace_s + 30.0)
        else:
            self._back_off(workload, event.at)

    def _report_ended(self, action: act.Report, event: ev.ActionEnded) -> None:
        workload = self.workloads.get(action.key)
        told = workload.told.get(action.uid) if workload else None
        if told is not None and event.outcome is not Outcome.DONE and told.message == action.message:
            told.condition = told.message = ""  # say it again, after the usual pause
            told.essence = ()

    def _owner_ended(self, action: act.ReadOwner, event: ev.ActionEnded) -> None:
        self.reading_refs.discard(action.ref.uid)
        if event.outcome is not Outcome.DONE:
            for key in self.waits_for_owner.get(action.ref.uid, ()):
                self._back_off(self.workloads[key], event.at) if key in self.workloads else None
                self.dirty[key] = None

    def _claims_ended(self, action: act.ReadClaims, event: ev.ActionEnded) -> None:
        self.reading_refs.discard(action.uid)
        workload = self.workloads.get(action.key)
        if workload is not None and event.outcome is not Outcome.DONE:
            self._back_off(workload, event.at)

    # --- indexes --------------------------------------------------------------------------------------------------

    def _refresh(self, workload: Workload) -> None:
        """Keep the index of phases, and mark it for a look."""
        key = workload.key
        self.dirty[key] = None
        now = phase(workload, self.placeholders, self.config.tuning.absent_s)
        before = self.phase_of.get(key)
        if before is not now:
            if before is not None:
                self.by_phase[before].pop(key, None)
            self.by_phase[now][key] = None
            self.phase_of[key] = now
            self.detail_new.pop(key, None)
            self.detail_round.pop(key, None)
            if now is Phase.QUEUED:
                learned = max((job.learned for job in self.mine(workload)), default=float("-inf"))
                self.detail_new[key] = learned + self.config.tuning.detail_fresh_s
        _keep(self.looking, key, workload.look is not None)
        _keep(self.limited, key, workload.refused is not None and workload.refused.later)
        self._count_queued(workload, now)

    def _count_queued(self, workload: Workload, now: Phase) -> None:
        partition = ""
        if now is Phase.QUEUED:
            job = next((job for job in self.mine(workload) if job.key == workload.key and job.alive), None)
            if job is not None:
                asked = job.job.partition if job.job else (job.spec.partition if job.spec else "")
                partition = asked or self.default_partition
        before = self.partition_of.pop(workload.key, "")
        if before:
            self.queued_in[before] -= 1
        if partition:
            self.queued_in[partition] += 1
            self.partition_of[workload.key] = partition

    def _forget(self, key: str) -> None:
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
        before = self.phase_of.pop(key, None)
        if before is not None:
            self.by_phase[before].pop(key, None)
        queued = self.partition_of.pop(key, "")
        if queued:
            self.queued_in[queued] -= 1
        for index in (self.detail_new, self.detail_round, self.looking, self.limited):
            index.pop(key, None)
        self.dirty.pop(key, None)
        for lane in self.parked.values():
            lane.pop(key, None)


def _keep(index: dict[str, None], key: str, belongs: bool) -> None:
    if belongs:
        index[key] = None
    else:
        index.pop(key, None)


_HANDLERS: Mapping[type, Callable[[World, Any], None]] = {
    ev.PodSeen: World._pod_seen,
    ev.PodGone: World._pod_gone,
    ev.PodsListed: World._pods_listed,
    ev.NodeSeen: World._node_seen,
    ev.NodeGone: World._node_gone,
    ev.NodesListed: World._nodes_listed,
    ev.NamespaceSeen: World._namespace_seen,
    ev.NamespaceGone: World._namespace_gone,
    ev.NamespacesListed: World._namespaces_listed,
    ev.OwnerRead: World._owner_read,
    ev.ClaimsRead: World._claims_read,
    ev.JobsPolled: World._jobs_polled,
    ev.JobRead: World._job_read,
    ev.SlurmNodesPolled: World._slurm_nodes_polled,
    ev.SideLost: World._side_lost,
    ev.SideBack: World._side_back,
    ev.Planned: World._planned,
    ev.ActionEnded: World._action_ended,
}

_PLACERS: Mapping[type, Callable[[World, Any, float], None]] = {
    act.AllocateNow: World._place_submission,
    act.SubmitJob: World._place_submission,
    act.CancelJob: World._place_slurm,
    act.UpdateJob: World._place_slurm,
    act.RecordEnd: World._place_slurm,
    act.FindJobs: World._place_slurm,
    act.ReadJob: World._place_read,
    act.Kick: World._place_kick,
    act.BindPod: World._place_on_pod,
    act.EvictPod: World._place_on_pod,
    act.EndByDeadline: World._place_on_pod,
    act.Report: World._place_report,
    act.ReadOwner: World._place_owner,
    act.ReadClaims: World._place_claims,
}

_ENDERS: Mapping[type, Callable[[World, Any, ev.ActionEnded], None]] = {
    act.AllocateNow: World._submission_ended,
    act.SubmitJob: World._submission_ended,
    act.CancelJob: World._cancel_ended,
    act.UpdateJob: World._slurm_write_ended,
    act.RecordEnd: World._slurm_write_ended,
    act.FindJobs: World._find_ended,
    act.ReadJob: World._read_ended,
    act.BindPod: World._bind_ended,
    act.EvictPod: World._eviction_ended,
    act.EndByDeadline: World._eviction_ended,
    act.Report: World._report_ended,
    act.ReadOwner: World._owner_ended,
    act.ReadClaims: World._claims_ended,
}
