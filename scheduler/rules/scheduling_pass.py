"""One pass over the world: the actions that it has planned so far, and the room that they leave for other workloads.

Later decisions of a pass see the earlier ones, which take room on nodes, places in limits, and tokens.  The world
itself does not change until the loop applies the finished plan.

Rules read the pass; the driver writes it (driver.py).  Rules write here only results that they computed: their effort, their
judgments on nodes (crowding.py), and until when running pods come first (reacquire.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from scheduler import actions as act
from scheduler.actions import Action, ObjectKind, Plan
from scheduler.events import Side
from scheduler.model.kubernetes import OwnerKey, Pod, PodPhase, owner_key
from scheduler.model.left_out import LeavesOut
from scheduler.model.slurm import JobSpec
from scheduler.place.affinity import COMPARISONS_PER_NODE
from scheduler.place.fit import NodeInfo
from scheduler.state.earlier_binds import EarlierBinds
from scheduler.state.phase import WAITING, Phase
from scheduler.state.token_buckets import TokenBucket
from scheduler.state.workload import Workload
from scheduler.state.world import World
from scheduler.tuning import Tuning

LEAST_COMPARED = 2000  # a pass compares at least so many terms for a workload, even if little effort is left


class Pass:
    """The world as this pass sees it, and the plan that it writes."""

    def __init__(self, world: World, now: float) -> None:
        self.world = world
        self.now = now
        self.tuning: Tuning = world.config.tuning
        self._begin_plan()
        self._begin_counts()
        self._compared = _compared(world)
        # True: a pod has affinity terms, so some nodes may be closed to some pods (F5)
        self.any_affinity = bool(world.affinity_workloads) or world.affinity_index.has_anti_affinity
        # None: the quiet period is over, so no bind of a previous process can still take effect
        self.earlier_binds = EarlierBinds(world) if now < world.quiet_until() else None

    def _begin_plan(self) -> None:
        """Set the parts of the plan to empty values."""
        self.actions: list[Action] = []
        self.visited: list[str] = []
        self.wake: dict[str, float] = {}
        self.parked: dict[str, list[str]] = {}
        self.yielding: set[tuple[str, str]] = set()
        self.forgotten: list[str] = []
        self.awaited: dict[str, OwnerKey] = {}
        self.newly_excluded: dict[str, str] = {}
        self.left_out: dict[str, LeavesOut] = {}
        self.judges_again: dict[str, float] = {}  # workload key to when the nodes that it leaves out are judged again
        self.uncounted: dict[str, Mapping[str, int]] = {}  # node to the resources there that Slurm does not count
        self.written_off: list[tuple[str, str]] = []
        self.adopted: list[tuple[int, JobSpec]] = []
        self.not_asked_for: list[tuple[str, int]] = []
        self.settled: list[str] = []
        self.visited_nodes: list[str] = []
        self.failed: list[tuple[ObjectKind, str, Exception]] = []
        self.lifted: list[tuple[ObjectKind, str]] = []
        self.retried: list[tuple[ObjectKind, str]] = []
        self.deferred: list[str] = []
        self.anti_affinity_done = False
        self.turns: Mapping[str, int] = {}
        self.shared_wake: float | None = None

    def _begin_counts(self) -> None:
        """Set the counts of room, tokens, reads and effort to zero."""
        self.used: defaultdict[str, int] = defaultdict(int)
        self.tokens_taken: defaultdict[str, int] = defaultdict(int)
        self.immediate: defaultdict[str, int] = defaultdict(int)
        self.submitted: defaultdict[str, int] = defaultdict(int)
        self.assumed: dict[str, NodeInfo] = {}
        self.binding: set[str] = set()  # keys of the workloads of which this pass binds pods
        self.reading: set[object] = set()
        self.conditions_planned: set[str] = set()  # UIDs of pods whose condition this pass writes
        self.effort = 0  # in nodes judged, some 2 µs each
        self.moving: set[OwnerKey] = set()  # controllers of which this pass evicts a replica
        self._replicas_moving: set[OwnerKey] | None = None
        self.submits_anti_affinity = False  # the plan submits a job for a pod with anti-affinity
        # until when pods that run come before other submissions (S7); None: no rule has computed it in this pass
        self.first_attempts_until: float | None = None
        self.begin_is_due = False  # a job's begin time has come, and slurmctld was not nudged since
        self.lacks_nodes = False  # a grant names nodes that the last poll of Slurm's nodes does not have

    # --- writing --------------------------------------------------------------------------------------------------

    def add(self, action: Action, key: str = "") -> bool:
        """Plan the action.  If its limit class is full, the workload waits for its turn instead, and False is returned."""
        if (limit_class := action.limit_class) and self.free(limit_class) <= 0:
            if key:
                self.park(key, limit_class)
            return False
        self._plan(action)
        return True

    def add_together(self, actions: Sequence[Action], key: str) -> None:
        """Plan all of these actions, or none if there is no room for the first (W9).

        Otherwise the end of each bind of a large gang would cause another decision about the rest of the gang.  These
        decisions would take most of the bridge's time.
        """
        if self.add(actions[0], key):
            for action in actions[1:]:
                self._plan(action)

    def _plan(self, action: Action) -> None:
        if limit_class := action.limit_class:
            self.used[limit_class] += 1
        self.actions.append(action)
        self._note(action)

    def _note(self, action: Action) -> None:
        """Note the effects of the action on workloads that this pass visits later."""
        match action:
            case act.AllocateNow():
                self.immediate[action.spec.partition or self.world.default_partition] += 1
                self.submits_anti_affinity = (
                    self.submits_anti_affinity or self.world.workloads[action.key].has_anti_affinity
                )
            case act.SubmitJob():
                self.submitted[action.spec.partition or self.world.default_partition] += 1
            case act.BindPod():
                self._assume(action)
            case act.SetPodCondition() if action.condition:
                self.conditions_planned.add(action.uid)
            case act.EvictPod():
                pod = self.world.workloads[action.key].pods[action.uid]
                if pod.owner is not None:
                    self.moving.add(owner_key(pod.namespace, pod.owner))
            case _ if (target := _read_by(action)) is not None:
                self.reading.add(target)

    def _assume(self, bind: act.BindPod) -> None:
        """Count the pod on the node to which it is bound."""
        self.binding.add(bind.key)
        there = self.world.node_info.get(bind.node)
        if there is not None and bind.uid in there.pods:  # a bind that is repeated takes no more room
            return
        if bind.node not in self.assumed:
            self.assumed[bind.node] = NodeInfo()
        self.assumed[bind.node].put(self.world.workloads[bind.key].pods[bind.uid])

    def take_back(self, planned: int, forgotten: int) -> None:
        """Remove from the plan all but the first `planned` actions and the first `forgotten` workloads to be forgotten."""
        for action in self.actions[planned:]:
            if limit_class := action.limit_class:
                self.used[limit_class] -= 1
            match action:
                case act.AllocateNow():
                    self.immediate[action.spec.partition or self.world.default_partition] -= 1
                case act.SubmitJob():
                    self.submitted[action.spec.partition or self.world.default_partition] -= 1
                case act.BindPod():
                    self.binding.discard(action.key)
                    if (there := self.assumed.get(action.node)) is not None:
                        there.remove(action.uid)
                case act.SetPodCondition() if action.condition:
                    self.conditions_planned.discard(action.uid)
                case _ if (target := _read_by(action)) is not None:
                    self.reading.discard(target)
            if isinstance(action, act.CancelJob | act.SubmitJob):
                self.newly_excluded.pop(action.key, None)
                self.left_out.pop(action.key, None)
        del self.actions[planned:], self.forgotten[forgotten:]

    def take_token(self, name: str) -> bool:
        """Take a token from the bucket *name*, if it has one."""
        if self.free(name) < 1:
            return False
        self.tokens_taken[name] += self.world.tokens_of_read(name)
        return True

    def park(self, key: str, limit: str) -> None:
        """Visit the workload again when it is its turn in a full limit: a limit class, a quota, or an empty token bucket.

        Only as many of the waiting workloads are visited as there is room for.  If there is room, and the workload waits for
        something else, it goes behind the other waiting workloads.
        """
        if self.free(limit) > 0:
            self.yielding.add((limit, key))
        self.parked.setdefault(limit, []).append(key)

    def wake_at(self, key: str, at: float) -> None:
        """Visit this workload again at that time, even if no event marks it."""
        self.wake[key] = min(at, self.wake.get(key, at))

    def wait_for_owner(self, key: str, owner: OwnerKey) -> None:
        """Visit this workload again when that owner has been read."""
        self.awaited[key] = owner

    def exclude(self, key: str, node: str) -> None:
        """Note that a grant of this workload on that Slurm node could not be used (F6)."""
        if node:
            self.newly_excluded[key] = node

    def wake_shared(self, at: float) -> None:
        """Run another pass at that time."""
        self.shared_wake = at if self.shared_wake is None else min(at, self.shared_wake)

    def prepare(self, workload: Workload) -> bool:
        """Compare the workload with other pods, as far as this pass has effort left.  Returns True if all is compared.

        Otherwise the comparison takes several passes, each of which does a part; the workload is visited after the last one.
        """
        world, now = self.world, self.world.phase_of[workload.key]
        if not self.any_affinity or now not in WAITING:
            return True
        left = max(LEAST_COMPARED, (self.tuning.pass_effort - self.spent) * COMPARISONS_PER_NODE)
        # Its job specification is known: its pods are not translated again.
        is_known = now is Phase.GRANTED and all(
            job.spec is not None and not job.spec.parts for job in world.jobs_of(workload)
        )
        return world.compare_some(workload, left, with_granted=not is_known)

    # --- reading --------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """The finished plan."""
        timers = [*self.wake.values(), *([self.shared_wake] if self.shared_wake is not None else [])]
        timers += [self.now] if self.deferred else []
        later = self.world.due(self.now)[1]
        timers += [later] if later is not None else []
        for name in {*self.parked, *self.world.parked} if self.parked or self.world.parked_in else ():
            token_bucket = self._token_bucket(name)
            if token_bucket is not None and (self.parked.get(name) or self.world.parked.get(name)):
                timers.append(token_bucket.next_at(self.now, self.tokens_taken[name]) + 0.001)
        return Plan(
            actions=tuple(self.actions),
            visited=tuple(self.visited),
            deferred=tuple(self.deferred),
            anti_affinity_done=self.anti_affinity_done,
            turns=self.turns,
            wake=self.wake,
            parked={limit: tuple(keys) for limit, keys in self.parked.items()},
            yielding=frozenset(self.yielding),
            forgotten=tuple(self.forgotten),
            awaited=self.awaited,
            excluded=self.newly_excluded,
            left_out=self.left_out,
            written_off=tuple(self.written_off),
            adopted=tuple(self.adopted),
            not_asked_for=tuple(self.not_asked_for),
            settled=tuple(self.settled),
            visited_nodes=tuple(self.visited_nodes),
            failed=tuple(self.failed),
            lifted=tuple(self.lifted),
            retried=tuple(self.retried),
            wake_at=min(timers, default=None),
        )

    @property
    def spent(self) -> int:
        """The effort of this pass so far, in nodes judged.  At `tuning.pass_effort` the rest is left to the next pass."""
        earlier = self.earlier_binds.effort if self.earlier_binds is not None else 0
        compared = _compared(self.world) - self._compared
        return self.effort + earlier + compared // COMPARISONS_PER_NODE

    def from_slurm(self, at: float) -> float:
        """Convert a time by slurmctld's clock to the bridge's clock."""
        return self.world.clocks[Side.SLURM].ours(at)

    def free(self, limit: str) -> int:
        """The room in that limit: further actions of a limit class, jobs of a quota, or tokens in a bucket."""
        if limit == "records" and (self.world.accounting_outage is not None or Side.SLURM in self.world.outages):
            return 0  # records for accounting wait, in order
        if (token_bucket := self._token_bucket(limit)) is not None:
            return int(token_bucket.available(self.now) - self.tokens_taken[limit])
        quotas = self.world.quotas
        if quotas.limited and (most := quotas.most(limit)) is not None:
            return most - quotas.jobs[limit] - self.used[limit]
        in_flight: int = getattr(self.tuning, limit)
        return in_flight - self.world.under_way[limit] - self.used[limit]

    def _token_bucket(self, name: str) -> TokenBucket | None:
        """The token bucket of that name, of reads or of the policy's submissions; None: the limit is not a token bucket."""
        quotas = self.world.quotas
        return self.world.token_buckets.get(name) or (quotas.token_bucket(name) if quotas.limited else None)

    def is_moving(self, owner: OwnerKey) -> bool:
        """True if a replica of that controller is moving: it leaves, is about to leave, or has not started (S4b)."""
        if self._replicas_moving is None:  # computed once a pass, and only if it is needed
            self._replicas_moving = {
                owner_key(pod.namespace, pod.owner)
                for workload in self.world.workloads.values()
                for pod in workload.pods.values()
                if pod.owner is not None and not pod.finished and _is_on_its_way(pod, workload)
            }
        return owner in self._replicas_moving or owner in self.moving

    def node_infos(self, node: str) -> list[NodeInfo]:
        """The pods on that node, and the pods that this pass binds to it."""
        return [there for index in (self.world.node_info, self.assumed) if (there := index.get(node)) is not None]

    def is_being_read(self, subject: object) -> bool:
        """True if a read of that job, owner, pod or limit is planned or in flight."""
        world = self.world
        return (
            subject in self.reading
            or subject in world.reading
            or subject in world.reading_refs
            or subject in world.reading_limits
        )

    def is_read_already(self, action: Action) -> bool:
        """True if the action is a read that is already planned or in flight."""
        return self.is_being_read(_read_by(action))

    def room(self, action: Action) -> int:
        """The number of further actions of its limit class that may be in flight; 1 if it has no limit class."""
        return self.free(action.limit_class) if action.limit_class else 1


def _read_by(action: Action) -> object:
    """The job id, owner or pod UID that the action reads; None: the action reads nothing."""
    match action:
        case act.ReadJob():
            return action.job_id
        case act.ReadLimits():
            return action.of
        case act.ReadOwner():
            return owner_key(action.namespace, action.ref)
        case act.ReadClaims() | act.SelectVolumeNode() | act.ReadPod():
            return action.uid
    return None


def _compared(world: World) -> int:
    """How many comparisons with affinity terms of other pods (F5), and with ports of other pods (F1), were made so far."""
    return world.affinity_index.effort + world.host_ports.effort


def _is_on_its_way(pod: Pod, workload: Workload) -> bool:
    leaves = pod.deleting_at is not None or pod.uid in workload.pods_in_flight
    return leaves or pod.phase is PodPhase.PENDING  # a pod without a node is Pending, too
