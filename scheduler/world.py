"""The World: what is known of both clusters, and the only mutable object.

`apply(event)` is its only door.  It is total: any event in any order, any number of times, is folded into facts.  It
decides nothing; it only marks which workloads are worth another look (ARCHITECTURE 3).

Three things keep old news from overwriting new: a list swaps whole, a fact learned from an answer is not contradicted by
a poll that began before that answer, and what vanished is remembered as absent, not as ended.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from scheduler import actions as act
from scheduler import events as ev
from scheduler import fold_kubernetes, fold_plans, fold_slurm, names
from scheduler.doubt import Doubt
from scheduler.events import Scope, Side
from scheduler.feasible import Demand, Feasible, slurm_name
from scheduler.jobspec import Surroundings
from scheduler.model import (
    UNLIMITED,
    Claim,
    HostPort,
    Namespace,
    Node,
    NodeTerm,
    Owner,
    Partition,
    Pod,
    Refusal,
    SlurmNode,
    States,
    holds_nodes,
    is_ended,
)
from scheduler.neighbours import closed
from scheduler.phase import Phase, chosen, phase
from scheduler.placement import Standing
from scheduler.rations import Breaker, Ration
from scheduler.tuning import Config
from scheduler.upkeep import Upkeep
from scheduler.workload import Placeholder, Workload, lost_one

# Reasons of waiting jobs that want no nodes now: Slurm grants immediate allocations beside them (FACTS 8).
NO_CONTENDER = frozenset(
    {"BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", "Reservation"}
)
MAX_OWNERS = 8  # how far up a chain of controllers annotations are looked for
FOLLOWED = 200  # so many running jobs are read in turn at the whole rate; twice as many at half of it

_FOLDS: Mapping[type, Callable[[World, Any], None]] = {
    **fold_kubernetes.FOLDS,
    **fold_slurm.FOLDS,
    **fold_plans.FOLDS,
}


class World:
    """See the module.  Public attributes are facts, to be read by decisions, explanations and metrics; never set."""

    def __init__(self, config: Config, started: float) -> None:
        self.config = config
        self.started = started
        # Kubernetes
        self.namespaces: dict[str, Namespace] | None = None
        self.nodes: dict[str, Node] | None = None
        self.by_slurm_name: dict[str, str] = {}
        self.standing: dict[str, Standing] = {}
        self.assumed: dict[str, str] = {}  # pod UID to the node that a bind of ours takes, until the watch shows one
        self.averse: set[str] = set()  # UIDs of standing pods with an anti-affinity: it binds whoever comes
        self.listed: dict[Scope, set[str]] = {}
        self.early: list[ev.Event] = []  # news of pods that came before the cluster was known
        self.owners: dict[str, Owner | None] = {}
        self.owner_read_at: dict[str, float] = {}
        self.claims: dict[str, tuple[Claim, ...]] = {}
        self.claims_read_at: dict[str, float] = {}
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
        self.component_of: dict[int, int] = {}  # further components of our heterogeneous jobs to their leader
        self.placeholders: dict[int, Placeholder] = {}
        self.expected: set[int] = set()  # learned otherwise than by a poll: the next one is compared with it
        self.absent: set[int] = set()
        self.held_back_since: float | None = None  # since when too many are absent for anybody to be ended for it (X6)
        self.disbelieved: Counter[Doubt] = Counter()
        self.lost: dict[Side, ev.SideLost] = {}
        self.breakers: dict[str, Breaker] = {}
        self.freed_at = float("-inf")
        self.kicked_at = float("-inf")
        self.nodes_stale = False
        self.nodes_asked_from = float("-inf")
        self.unreadable: dict[int, tuple[int, float]] = {}  # unknown ids whose read failed: how often, not before when
        self.twins_sought_at = float("-inf")
        self.trust_since = float(
            "-inf"
        )  # what was learned of a job before that is to be read again before it is acted on
        self.upkeep = Upkeep()  # nodes on both sides
        self.nodes_polled: tuple[float, float] | None = None  # when the last poll of Slurm's nodes began and ended
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
        self.running_new: dict[str, float] = {}  # the same two of those whose pods run (S9)
        self.running_round: dict[str, float] = {}
        self.looking: dict[str, None] = {}
        self.choosy: set[str] = set()  # whose pods mind beside whom they stand
        self.limited: dict[str, dict[str, None]] = {}  # Slurm user to the workloads that his limits hold back, in order
        # attention
        self.dirty: dict[str, None] = {}
        self.timers: list[tuple[float, str]] = []
        self.wakes: dict[str, float] = {}
        self.under_way: Counter[str] = Counter()
        self.immediate_under_way: Counter[str] = Counter()
        self.apart_under_way: set[str] = set()  # whose nodes are asked for and who keep away from others (F5)
        self.tried_at: dict[str, float] = {}  # partition to when the oldest of them was sent, while one is under way
        self.reading: set[int] = set()
        self.reading_refs: set[str] = set()
        self.feasibility: dict[Demand, Feasible] = {}
        tuning = config.tuning
        self.rations = {
            "detail": Ration(tuning.detail_rate, tuning.detail_rate),
            "running": Ration(tuning.running_rate, tuning.running_rate),
            "unknown": Ration(tuning.unknown_rate, tuning.unknown_rate),
            "scan": Ration(tuning.scan_rate, tuning.scan_rate / 5),
            "absent": Ration(tuning.absent_rate, tuning.absent_rate),
            "retake": Ration(tuning.retake_rate, tuning.retake_rate),
            "missing": Ration(tuning.missing_rate, tuning.missing_rate),
        }
        self.parked: dict[str, dict[str, None]] = {name: {} for name in (*act.LANES.values(), *self.rations)}

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

    def teller_of(self, workload: Workload) -> Owner | None:
        """Who says how many pods its group has, where they do not say it themselves; None: unread, or nobody (W2)."""
        group = workload.group
        if group is None or not workload.pods:
            return None
        if group.teller is not None:
            return self.owners.get(group.teller.uid)
        chain, _ = self.owners_of(next(iter(workload.pods.values())))
        return next((owner for owner in chain if owner.ref.kind == group.told_by), None)

    def mine(self, workload: Workload) -> list[Placeholder]:
        """The placeholders that are or may be this workload's."""
        mine = [self.placeholders[job_id] for job_id in workload.jobs if job_id in self.placeholders]
        return mine if workload.bereft is None else [*mine, workload.bereft]

    def users_of(self, workload: Workload) -> frozenset[str]:
        """Whose jobs can be this workload's: the policy's user for its pods, or, where it has none, any of the policy's."""
        users = set()
        for pod in [*workload.pods.values(), *(gone.pod for gone in workload.gone.values())]:
            tenant = self.config.policy.tenant(pod.namespace, pod.service_account)
            if not isinstance(tenant, Refusal):
                users.add(tenant.user)
        return frozenset(users) or self.config.policy.users

    def in_slurm(self, node: str) -> str:
        """How Slurm calls that Kubernetes node; one that is there no more, as Kubernetes did."""
        known = (self.nodes or {}).get(node)
        return node if known is None else slurm_name(known)

    def ports_taken(self, own: Collection[str] = ()) -> dict[str, frozenset[HostPort]]:
        """Host ports that unfinished pods hold, by node.  own: UIDs of pods that are not counted"""
        taken = {}
        for node, there in self.standing.items():
            ports = frozenset(port for uid, pod in there.pods.items() if uid not in own for port in pod.host_ports)
            if ports:
                taken[node] = ports
        return taken

    def volumes_of(self, pod: Pod) -> tuple[tuple[NodeTerm, ...], ...]:
        """The required node affinity of each of its bound volumes that has one (F1)."""
        return tuple(claim.affinity for claim in self.claims.get(pod.uid, ()) if claim.affinity is not None)

    def closed_to(self, pod: Pod, own: Collection[str] = (), *, soon: bool = False) -> frozenset[str]:
        """Nodes that other pods close to it (F5).

        own    UIDs of pods that are placed with it
        soon   those count too that have been granted a node and are not bound there yet
        """
        if not (pod.apart or pod.beside or self.averse):
            return frozenset()
        standing = {node: [*there.pods.values()] for node, there in self.standing.items()}
        for node, coming in self._about_to_stand() if soon else ():
            standing.setdefault(node, []).extend(coming)
        return closed(pod, self.nodes or {}, standing, own)

    def _about_to_stand(self) -> Iterator[tuple[str, list[Pod]]]:
        """Who has been granted a node and is not bound there yet."""
        for key in self.by_phase[Phase.GRANTED]:
            workload = self.workloads[key]
            job = chosen(workload, self.mine(workload))
            coming = [pod for pod in workload.members if not workload.node_of(pod)]
            for granted in job.grant.everywhere if job is not None and job.grant is not None else ():
                if granted.name in self.by_slurm_name:
                    yield self.by_slurm_name[granted.name], coming

    def story(self, key: str) -> list[tuple[float, str]]:
        """The last events and actions of one workload, oldest first."""
        workload = self.workloads.get(key)
        return list(workload.story) if workload else []

    # --- the door -----------------------------------------------------------------------------------------------------

    def apply(self, event: ev.Event) -> None:
        """Fold one event into the facts."""
        handler = _FOLDS[type(event)]
        handler(self, event)

    # --- what the folds share -----------------------------------------------------------------------------------------

    def input_changed(self, workload: Workload) -> None:
        """What was refused may be accepted now (Q4)."""
        workload.refused = None
        workload.retry_at = float("-inf")
        self.limited.pop(workload.key, None)

    def ports_changed(self) -> None:
        """Somebody took or left a host port: only pods that want one are concerned."""
        stale = [demand for demand in self.feasibility if demand.host_ports]
        for demand in stale:
            del self.feasibility[demand]
        if stale:
            for each in (Phase.UNCLAIMED, Phase.QUEUED, Phase.GRANTED):
                self.dirty.update(self.by_phase[each])

    def feasibility_changed(self) -> None:
        self.feasibility.clear()
        for each in (Phase.UNCLAIMED, Phase.QUEUED, Phase.GRANTED):
            self.dirty.update(self.by_phase[each])

    def assume(self, pod: Pod, node: str) -> None:
        """A bind of ours is on its way: nobody else is given that room meanwhile (V5)."""
        before = self.assumed.get(pod.uid, node)
        if before != node:
            self.leave(before, pod.uid)
        self.assumed[pod.uid] = node
        self.stand(pod, node)
        if pod.host_ports:
            self.ports_changed()

    def stand(self, pod: Pod, node: str) -> Pod | None:
        """That pod stands there, as it is now; as it was before, None: it did not."""
        there = self.standing.get(node)
        if there is None:
            there = self.standing[node] = Standing()
        before = there.put(pod)
        if before is None:
            if pod.apart:
                self.averse.add(pod.uid)
            self._neighbours_changed(pod)
        return before

    def _neighbours_changed(self, pod: Pod) -> None:
        """It came to a node, or left one: who minds waits for another answer (F5)."""
        if not pod.apart and not self.choosy:
            return
        for each in (Phase.UNCLAIMED, Phase.QUEUED, Phase.GRANTED):
            minds = self.by_phase[each]
            self.dirty.update(minds if pod.apart else {key: None for key in minds if key in self.choosy})

    def leave(self, node: str, uid: str) -> None:
        """That pod stands there no more."""
        there = self.standing.get(node)
        left = there.remove(uid) if there is not None else None
        if there is None or left is None:
            return
        if not there.pods:
            del self.standing[node]
        self.averse.discard(uid)
        if left.host_ports:
            self.ports_changed()
        self._neighbours_changed(left)
        self.room_changed()

    def about_to_stand(self, workload: Workload) -> None:
        """Where it is to stand is known now, or not any more: that closes a node, as if it stood there already (F5)."""
        for each in (Phase.UNCLAIMED, Phase.QUEUED) if self.choosy else ():
            minds = self.by_phase[each]
            self.dirty.update(dict.fromkeys(key for key in minds if workload.keeps_apart or key in self.choosy))

    def slurm_nodes_shown(self) -> None:
        """What the last poll says of nodes that are ours; that shows only once the cluster's own mark is known."""
        if self.cluster_known and self.slurm_nodes is not None and self.nodes_polled is not None:
            gres, mark = self.config.translation.gres, names.node_mark(self.cluster)
            self.upkeep.shown(self.slurm_nodes, self.nodes, gres, mark, *self.nodes_polled)

    def cost(self, ration: str) -> int:
        """How much of it one read takes: of many running jobs each is read less often, and thousands are quiet (S9)."""
        return max(1, len(self.by_phase[Phase.BOUND]) // FOLLOWED) if ration == "running" else 1

    def room_changed(self) -> None:
        """Somebody came, left or began to terminate: grants may wait for that (F6)."""
        self.dirty.update(self.by_phase[Phase.GRANTED])

    def set_states(self, job: Placeholder, states: States, at: float) -> None:
        if is_ended(states) and not job.ended:
            job.ended_seen = at
            self.known(job.id)
            workload = self.workloads.get(job.key or "")
            if workload is not None and not any(workload.node_of(pod) for pod in workload.pods.values()):
                self.back_off(workload, at)  # whoever ended it may end the next one at once
            self._released_a_limit(job)
        if holds_nodes(states) and not job.holds_nodes:
            job.granted_at = at
        elif not holds_nodes(states) and job.holds_nodes and not is_ended(states):
            job.grant = None  # requeued: what it gets next is another grant
        if states != job.states:
            self._tell(job, at, f"Slurm job {job.id} is {' '.join(sorted(states))}")
            job.states_since = at
        job.states = states
        self.touch(job)

    def _tell(self, job: Placeholder, at: float, what: str) -> None:
        workload = self.workloads.get(job.key or "")
        if workload is not None:
            workload.tell(at, what)

    def _released_a_limit(self, job: Placeholder) -> None:
        """An own job of that user ended: the oldest that his limits held back goes first (Q4)."""
        held = self.limited.get(job.user, {})
        first = min(held, key=lambda key: (self.workloads[key].created, key), default=None)
        if first is not None:
            del held[first]  # the next end releases the next one
            self.workloads[first].retry_at = float("-inf")
            self.dirty[first] = None

    def is_absent(self, job: Placeholder, began: float) -> None:
        """Not in an answer that began then; only what follows from it is news: many may be absent for long."""
        self.expected.discard(job.id)
        self.absent.add(job.id)
        absent_s = self.config.tuning.absent_s
        before = job.absent, job.lost(absent_s)
        if job.absent_first is None:
            job.absent_first = began
        job.absent_last = began
        if (job.absent, job.lost(absent_s)) != before:
            self.touch(job)

    def to_be_read(self, job_id: int, began: float) -> None:
        """It is to be asked for itself; by a poll that began then it is there."""
        if job_id not in self.seen_first:
            self.seen_first[job_id] = began
            bisect.insort(self.unread, job_id)

    def known(self, job_id: int) -> None:
        """It needs no reading any more."""
        self.unreadable.pop(job_id, None)
        if self.seen_first.pop(job_id, None) is not None:
            at = bisect.bisect_left(self.unread, job_id)
            if at < len(self.unread) and self.unread[at] == job_id:
                del self.unread[at]
            self.dirty.update(self.looking)
            if not self.unread:  # the search is over: who waited for it goes on
                self.dirty.update(self.by_phase[Phase.UNCLAIMED])
                self.dirty.update(self.by_phase[Phase.REVOKED])

    def given_to(self, key: str, job: Placeholder, at: float) -> None:
        """That id is another workload's job now: whoever had it, or shows it, has lost the job that it was."""
        for workload in self.concerned(job):
            if workload.key == key:
                continue
            workload.jobs.discard(job.id)
            job.hinted_by.discard(workload.key)
            if workload.hint == job.id and any(workload.node_of(pod) for pod in workload.unfinished):
                other = chosen(workload, self.mine(workload))
                if other is not None:
                    workload.hint = other.id
                else:
                    workload.bereft = lost_one(job, workload.key, at, self.config.tuning.absent_s)
            self.refresh(workload)

    def drop(self, job: Placeholder) -> None:
        """It is over and told: nothing depends on it any more."""
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
        if before is not now:
            if before is not None:
                self.by_phase[before].pop(key, None)
            self.by_phase[now][key] = None
            self.phase_of[key] = now
            if Phase.GRANTED in (before, now):
                self.about_to_stand(workload)
            for index in (self.detail_new, self.detail_round, self.running_new, self.running_round):
                index.pop(key, None)
            learned = max((job.learned for job in self.mine(workload)), default=float("-inf"))
            if now is Phase.QUEUED:
                self.detail_new[key] = learned + self.config.tuning.detail_fresh_s
            elif now is Phase.BOUND and workload.hint is not None:
                self.running_new[key] = max(learned, self.started) + self.config.tuning.running_fresh_s
        _keep(self.looking, key, workload.look is not None)
        self._count_queued(workload, now)

    def _count_queued(self, workload: Workload, now: Phase) -> None:
        """An immediate allocation beside a job of ours that waits, or is about to, would be refused because of it."""
        partition = ""
        if now is Phase.UNCLAIMED and workload.refused is None:
            submits = workload.hold is not None and isinstance(workload.hold.action, act.SubmitJob)
            partition = workload.asked_in if submits or workload.immediate_refused else ""
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
        for job_id in workload.disowned & self.foreign:  # without the workload another user of the policy's will do
            self.foreign.discard(job_id)
            self.to_be_read(job_id, self.polled.began if self.polled else float("-inf"))
        before = self.phase_of.pop(key, None)
        if before is not None:
            self.by_phase[before].pop(key, None)
        queued = self.partition_of.pop(key, "")
        if queued:
            self.queued_in[queued] -= 1
        for index in (self.detail_new, self.detail_round, self.running_new, self.running_round):
            index.pop(key, None)
        for marks in (self.looking, *self.limited.values()):
            marks.pop(key, None)
        self.choosy.discard(key)
        self.dirty.pop(key, None)
        for lane in self.parked.values():
            lane.pop(key, None)


def _keep(index: dict[str, None], key: str, belongs: bool) -> None:
    if belongs:
        index[key] = None
    else:
        index.pop(key, None)
