"""One life, chosen by a seed: a load, faults, then a time without faults; the invariants are checked all the time.

The real bridge, with its clients, codecs, list-watch, loop and core, runs between the two simulated clusters on a virtual
clock.  For the first minute and a half both clusters have faults.  Two minutes after the last fault every pod must be bound
or say why not, and no job may be left over (ARCHITECTURE 7).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from bridge.app import Bridge
from bridge.errors import RemoteError
from bridge.preflight.rights import RightsMonitor
from bridge.settings import Settings
from bridge.settings_policy import Policy as SettingsPolicy
from bridge.simulation.invariants.violation import Violation
from bridge.simulation.kube import objects as objects
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.observations import KubeSimulatedObservations, SlurmSimulatedObservations
from bridge.simulation.slurm import rest
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.jobs import SimJob, SimPartition, SimUser
from bridge.simulation.slurm.nodes import SlurmSimNode
from bridge.simulation.tenant_history import Tenant, TenantHistory, TenantOf
from bridge.simulation.virtual_time import START, VirtualLoop, run
from scheduler import names
from scheduler.actions import Action
from scheduler.events import AbsenceConfirmed, ActionEnded, Event, PodsListed, PolicyChanged, Scope
from scheduler.state.world import World
from tests.simulation.arrivals import ArrivalInvariants
from tests.simulation.clients import connected
from tests.simulation.ends import Faults, KubeEnd, SlurmEnd
from tests.simulation.processes import PausingLoop
from tests.simulation.strangers import NOBODYS_ID, UNMANAGED, stranger

GANG, GANG_SIZE = names.PREFIX + names.GANG, names.PREFIX + names.GANG_SIZE
MANAGED = names.MANAGED_LABEL
USERS = {"alice-a": "alice", "bob-b": "bob"}
CHAOS_S = 90.0
HEALS_S, HEAL_S = 70.0, 150.0  # at the earliest and at the latest
RELEASE_S = 20.0  # so long after the faults the admin believes what is still missing
OTHERS_BIND = 0.1  # share of the lives
BOUND_BY_OTHERS_S = 20.0  # between two binds of others, in the mean
POLICY_CHANGES = 0.25  # share of the lives
RIGHTS_GO = 0.2  # share of the lives
# Share of the lives in which namespaces become other users.  A new process does not know the policy of the process before:
# V1 has an exception for that (docs/behaviour.md).
IDENTITY_CHANGES = float(os.environ.get("IDENTITY_CHANGES", "0.25"))
# Share of the lives in which the indexes of the World are checked after every event, which makes a life thrice as slow.
# In the other lives they are checked after every 50th event.
VALIDATED = float(os.environ.get("VALIDATED", "0.04"))
VALIDATED_EVERY = 50
STUBBORN = 0.5  # share of the lives in which no grace is longer than the chaos
STUBBORN_S = 15.0  # between two things that happen to pods which do not stop, in the mean
GRACES = (600, 3600, 86_400)
LONGEST_GRACE_S = 10**10
ANOTHER_POLICY_S = 15.0  # between two changes of policy or labels, in the mean
RIGHTS_GO_S = 10.0  # between two times that rights are taken away, and for so long, in the mean
USER_LABEL = "x/slurm-user"
CPUS, MEMORY_MIB, GPUS = 8, 16_384, 2
SKEWS = (0.0, 0.0, 0.0, 3.0, -3.0, 400.0, -400.0, 7200.0, -7200.0)
SETTINGS = Settings.model_validate(
    {
        "slurm_url": "http://127.0.0.1:1",
        "policy": {
            "rules": [
                {"namespaces": ["alice-*"], "user": "alice", "account": {"default": "teama"}},
                {"namespaces": ["bob-*"], "user": "bob"},
            ]
        },
    }
)


@dataclass(frozen=True)
class AnyPolicy:
    """A policy of a life: as an admin writes it, and as a person reads it."""

    written: SettingsPolicy
    gives: TenantOf


def policy(*rules: dict[str, Any], gives: TenantOf) -> AnyPolicy:
    return AnyPolicy(SettingsPolicy.model_validate({"rules": rules}), gives)


def by_names(alice: Tenant | None, bob: Tenant | None) -> AnyPolicy:
    """A policy with one rule for each of the two namespaces."""
    spaces = {"alice-a": alice, "bob-b": bob}
    rules = [
        {"namespaces": [space], "user": who.user, "account": {"default": who.account}}
        for space, who in spaces.items()
        if who is not None
    ]
    return policy(*rules, gives=lambda space, _: spaces.get(space))


def _by_label(_: str, labels: Mapping[str, str]) -> Tenant | None:
    return Tenant(labels[USER_LABEL], "") if USER_LABEL in labels else None


def _by_labels(_: str, labels: Mapping[str, str]) -> Tenant | None:
    both = USER_LABEL in labels and ACCOUNT_LABEL in labels
    return Tenant(labels[USER_LABEL], labels[ACCOUNT_LABEL]) if both else None


# Policies that give the same users, by labels of the namespaces; that limit jobs; and that give one namespace nobody.
BY_LABEL = {"namespaces": ["*-?"], "user": f"{{namespace.labels['{USER_LABEL}']}}"}
POLICIES = (
    AnyPolicy(
        SETTINGS.policy, lambda space, _: {"alice-a": Tenant("alice", "teama"), "bob-b": Tenant("bob", "")}.get(space)
    ),
    policy(BY_LABEL, gives=_by_label),
    policy({**BY_LABEL, "max_jobs": 3, "max_submit_rate": 5, "max_time": "3:00:00"}, gives=_by_label),
    by_names(Tenant("alice", ""), None),
)
# Policies that give a namespace another user, or another account.  alice has no association with teamb.
ACCOUNT_LABEL = "x/account"
OTHERS = (
    *POLICIES,
    policy({**BY_LABEL, "account": {"default": f"{{namespace.labels['{ACCOUNT_LABEL}']}}"}}, gives=_by_labels),
    by_names(Tenant("bob", ""), Tenant("alice", "")),
    by_names(Tenant("bob", "teamb"), Tenant("bob", "teamb")),
    by_names(Tenant("alice", "teama-dev"), Tenant("alice", "teama")),
    by_names(Tenant("alice", "teamb"), Tenant("bob", "teamb")),
    by_names(None, Tenant("alice", "teama-dev")),
)


# What a RoleBinding, a ClusterRoleBinding and single rules give.
IN_NAMESPACES = frozenset(
    {
        ("create", "pods/binding"),
        ("patch", "pods"),
        ("delete", "pods"),
        ("patch", "pods/status"),
        ("create", "pods/eviction"),
    }
)
EVERYWHERE = frozenset((verb, what) for verb in ("get", "list", "watch") for what in ("pods", "nodes", "namespaces"))
ON_NODES = frozenset({("patch", "nodes"), ("patch", "nodes/status")})
RIGHTS = (
    IN_NAMESPACES,
    EVERYWHERE | ON_NODES,
    frozenset({("create", "pods/binding")}),
    frozenset({("delete", "pods")}),
    ON_NODES,
)

# A node that says nothing is given up within the chaos.
HASTY_S = 15.0
HASTY_SETTINGS = SETTINGS.model_copy(
    update={"tuning": replace(SETTINGS.tuning, silent_node_s=HASTY_S, node_down_s=20.0)}
)


def invariants(kube: KubeCluster, slurm: SlurmCluster, clock: Callable[[], float]) -> ArrivalInvariants:
    """The invariants, on the truth of both clusters."""
    system = kube.store.get("namespaces", "", "kube-system")
    assert system is not None
    mark = names.cluster_id(system["metadata"]["uid"])
    made = ArrivalInvariants(KubeSimulatedObservations(kube), SlurmSimulatedObservations(slurm), USERS, clock, mark)
    labels = {name: {MANAGED: "true", USER_LABEL: user} for name, user in USERS.items()}
    made.tenants = TenantHistory(_of_managed(POLICIES[0].gives), labels)
    return made


def _of_managed(gives: TenantOf) -> TenantOf:
    """The same for managed namespaces; no user for others."""
    return lambda namespace, labels: gives(namespace, labels) if labels.get(MANAGED) == "true" else None


@dataclass(slots=True)
class _Listener:
    """The bridge's own story, for a failure's report."""

    invariants: ArrivalInvariants
    listed: bool = False

    def on_planned(self, action: Action, at: float) -> None:
        self.invariants.note(f"plans {type(action).__name__} {getattr(action, 'name', '')}: {action.reason}")

    def on_ended(self, event: ActionEnded, world: World) -> None:
        why = event.refusal.message if event.refusal else ""
        job = f" job {event.job_id}" if event.job_id else ""
        self.invariants.note(f"{type(event.action).__name__} ended {event.outcome.value}{job} {why}")

    def on_observed(self, event: Event, world: World) -> None:
        """The first list of our pods sets the time before which pods belong to an earlier process."""
        if isinstance(event, PodsListed) and event.scope is Scope.OURS and not self.listed:
            self.listed, self.invariants.born = True, self.invariants.clock()

    def on_passed(self, world: World, took_s: float, lag_s: float) -> None:
        """Nothing to tell of it."""


@dataclass(slots=True)
class Life:
    """All of one seed.

    nodes    those of its Kubernetes
    beside   the life of another Kubernetes, whose Slurm it shares; None: it has a Slurm of its own
    others   further nodes of that Slurm
    sharers  the other lives on it
    chaos_s  so long anything may happen; pause_s: between two things that happen, in the mean
    policy   that of its bridge, now
    identities   namespaces may become other users
    leaving  as of Config: its bridge is being uninstalled
    former_jobs   the jobs that slurmctld had when it lost jobs; ids of lost jobs are reused
    kube_ahead, slurm_ahead   by how many seconds the clocks of the two clusters are ahead of the bridge's
    clock    that of the event loop
    """

    seed: int
    nodes: tuple[str, ...] = ("x1", "x2", "x3")
    beside: Life | None = None
    others: tuple[str, ...] = ()
    sharers: list[Life] = field(default_factory=list)
    chaos_s: float = CHAOS_S
    pause_s: float = 1 / 0.53
    rng: random.Random = field(init=False)
    kube: KubeCluster = field(init=False)
    slurm: SlurmCluster = field(init=False)
    inner: InProcessKube = field(init=False)
    faults: Faults = field(init=False)
    invariants: ArrivalInvariants = field(init=False)
    bridge: Bridge | None = None
    policy: AnyPolicy = POLICIES[0]
    identities: ClassVar[bool] = True
    leaving: str = ""
    kill: Callable[[], object] | None = None
    lives: int = 0
    made: int = 0
    former_jobs: list[SimJob] = field(default_factory=list)
    kube_ahead: float = field(init=False)
    slurm_ahead: float = field(init=False)
    clock: Callable[[], float] = field(init=False)
    pauses: ClassVar[bool] = False

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

    @property
    def others_bind(self) -> bool:
        """Another scheduler, or a person, binds pods that wait for the bridge."""
        return random.Random(f"{self.seed} bound by others").random() < OTHERS_BIND

    def kube_clock(self) -> float:
        return self.clock() + self.kube_ahead

    def slurm_clock(self) -> float:
        return self.clock() + self.slurm_ahead

    async def live(self) -> None:
        """Raises Violation."""
        self.clock = asyncio.get_running_loop().time
        self.inner = InProcessKube(self.kube, self.kube_clock)
        self.invariants = invariants(self.kube, self.slurm, self.clock)
        self.invariants.kube_ahead, self.invariants.slurm_ahead = self.kube_ahead, self.slurm_ahead
        if self.hasty:
            self.invariants.stands_s = HASTY_S
        self.invariants.note(f"clocks: Kubernetes {self.kube_ahead:+.0f} s, Slurm {self.slurm_ahead:+.0f} s")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.inner.live()), group.create_task(self._slurm_lives())]
            tasks.append(group.create_task(self._bridges()))
            tasks.append(group.create_task(self._slurmdbd_is_away_for_a_while()))
            tasks.append(group.create_task(self._others_bind_pods()))
            tasks.append(group.create_task(self._policy_changes()))
            tasks.append(group.create_task(self._stubborn_pods()))
            tasks.append(group.create_task(self._rights_are_taken_and_given_back()))
            await self._chaos()
            self._heal()
            await self._comes_to_rest()
            for task in tasks:
                task.cancel()
        if self.invariants.violations:
            raise self.invariants.violations[0]
        for wrong in self.invariants.at_rest():
            raise Violation(wrong.invariant, wrong.what, self.clock())

    async def _comes_to_rest(self) -> None:
        """Most have nothing left to do after a minute; what takes longer has its time."""
        await asyncio.sleep(RELEASE_S)
        self._release()
        await asyncio.sleep(HEALS_S - RELEASE_S)
        for _ in range(int(HEAL_S - HEALS_S) // 5):
            if not any(self.invariants.at_rest()):
                return
            await asyncio.sleep(5.0)

    def _release(self) -> None:
        """An admin confirms that the vanished jobs are gone (X6): until then their pods take room from others."""
        if self.bridge is not None and self._holds_back(self.bridge.world):
            self.invariants.note("the admin: slurm-bridge release")
            self.invariants.calm_since = self.clock()
            self.bridge.loop.emit(AbsenceConfirmed(self.clock()))

    @staticmethod
    def _holds_back(world: World) -> bool:
        """True if the bridge ends no pod of many jobs that vanished, whether it read these jobs or only pods show them."""
        return world.held_back_since is not None or world.claims_held_back_since is not None

    async def _slurm_lives(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self.beside is None:
                self.slurm.tick(self.slurm_clock())
            self.invariants.after()

    async def _slurmdbd_is_away_for_a_while(self) -> None:
        """In some lives; with random numbers of its own, so that the other faults of a seed stay what they are."""
        rng = random.Random(self.seed + 2)
        if self.beside is not None or not self.slurm.accounting or rng.random() < 0.6:
            return
        await asyncio.sleep(rng.choice([0.0, rng.uniform(0.0, CHAOS_S / 2)]))
        self.invariants.note("chaos: slurmdbd is away")
        self.slurm.accounting_up = False
        await asyncio.sleep(rng.uniform(5.0, CHAOS_S))
        self.invariants.note("slurmdbd is back")
        self.slurm.accounting_up = True

    async def _others_bind_pods(self) -> None:
        """In some lives; with random numbers of its own, so that the other faults of a seed stay what they are."""
        if not self.others_bind:
            return
        rng, ends = random.Random(f"{self.seed} binds of others"), self.clock() + CHAOS_S
        while self.clock() + (waits_s := rng.expovariate(1 / BOUND_BY_OTHERS_S)) < ends:
            await asyncio.sleep(waits_s)
            self._bind_by_others(rng)

    async def _policy_changes(self) -> None:
        """In some lives, also while no bridge runs; with random numbers of its own."""
        rng, ends = random.Random(f"{self.seed} policy"), self.clock() + CHAOS_S
        may_change, others = rng.random() < POLICY_CHANGES, self._others_are_given
        if not (may_change or others):
            return
        while self.clock() + (waits_s := rng.expovariate(1 / ANOTHER_POLICY_S)) < ends:
            await asyncio.sleep(waits_s)
            if others:
                self._another_identity(rng)
            elif rng.random() < 0.3:
                self._label(rng.choice(list(USERS)), there=rng.random() < 0.5)
            else:
                self._write_policy(rng.choice(POLICIES))
        await asyncio.sleep(ends - self.clock())
        for name in USERS:
            self._label(name, there=True)
        # By another policy a job whose pods went while no bridge ran is nobody's: only a template gave its user.
        self._write_policy(POLICIES[0] if others else POLICIES[rng.randrange(2)])

    @property
    def _others_are_given(self) -> bool:
        return self.identities and random.Random(f"{self.seed} identities").random() < IDENTITY_CHANGES

    def _another_identity(self, rng: random.Random) -> None:
        """Another policy; or a namespace has other labels, or loses those that it needs."""
        if rng.random() < 0.4:
            self._write_policy(rng.choice(OTHERS))
            return
        space = rng.choice(list(USERS))
        user, account = rng.choice(["alice", "alice", "bob", "bob", None]), rng.choice(["teama", "teamb", None])
        managed = "true" if rng.random() < 0.8 else None
        self._labels(space, {USER_LABEL: user, ACCOUNT_LABEL: account, MANAGED: managed})

    @property
    def rights_go(self) -> bool:
        """Rights of the bridge in Kubernetes are taken away for a while."""
        return random.Random(f"{self.seed} rights").random() < RIGHTS_GO

    async def _rights_are_taken_and_given_back(self) -> None:
        """In some lives; with random numbers of its own, so that the other faults of a seed stay what they are."""
        rng, ends = random.Random(f"{self.seed} which rights"), self.clock() + CHAOS_S
        while self.rights_go and self.clock() + (waits_s := rng.expovariate(1 / RIGHTS_GO_S)) < ends:
            await asyncio.sleep(waits_s)
            taken = rng.choice(RIGHTS)
            self.invariants.note(f"chaos: rights are taken away: {', '.join(' '.join(each) for each in sorted(taken))}")
            self.kube.forbidden |= taken
            await asyncio.sleep(min(ends - self.clock(), rng.uniform(1.0, 2 * RIGHTS_GO_S)))
            self.invariants.note("the rights are given back")
            self.kube.forbidden -= taken

    async def _stubborn_pods(self) -> None:
        """Containers that ignore SIGTERM, with a long grace of the pod or of the deletion; in some lives.

        With random numbers of its own.  Only where no grace counts for long: else they stand in others' way beyond the end.
        """
        rng, ends = random.Random(f"{self.seed} stubborn"), self.clock() + CHAOS_S
        if not self.hasty or rng.random() >= STUBBORN:
            return
        while self.clock() + (waits_s := rng.expovariate(1 / STUBBORN_S)) < ends:
            await asyncio.sleep(waits_s)
            stubborn = [pod for pod in self.invariants.pods() if objects.STOP_S in _annotations(pod)]
            running = [pod for pod in stubborn if names.JOB_ID in _annotations(pod) and not _ended(pod)]
            if not running or rng.random() < 0.4:
                self._new_stubborn_pod(rng)
            elif rng.random() < 0.5:
                pod, grace_s = rng.choice(running), rng.choice([*GRACES, LONGEST_GRACE_S])
                self.invariants.note(f"somebody deletes {pod['metadata']['name']} with a grace of {grace_s} s")
                self.kube.remove(self.kube_clock(), "pods", pod, grace_s)
            else:
                job = self.slurm.jobs.get(int(rng.choice(running)["metadata"]["annotations"][names.JOB_ID]))
                if job is not None and self.invariants.is_ours(job) and not job.ended:
                    self.invariants.note(f"somebody ends job {job.id}")
                    self.slurm.cancel(job.id, self.slurm_clock())
            self.inner.wake()

    def _new_stubborn_pod(self, rng: random.Random) -> None:
        self.made += 1
        name, says = f"stubborn{self.made}", {objects.STOP_S: "100000"}
        made = objects.pod("alice-a", name, requests={"cpu": "1"}, annotations=says, grace_s=rng.choice(GRACES))
        template = {"metadata": {"labels": {"app": name}, "annotations": says}, "spec": made["spec"]}
        self.invariants.note(f"somebody makes {name}")
        if rng.random() < 0.5:
            self.kube.create(self.kube_clock(), "pods", made)
        else:
            self.kube.create(self.kube_clock(), "replicasets", objects.replica_set("alice-a", name, 1, template))

    def _write_policy(self, policy: AnyPolicy) -> None:
        self.invariants.note(f"the admin: policy {OTHERS.index(policy)}")
        self.policy = policy
        self.invariants.tenants.note_policy(_of_managed(policy.gives), self.clock())
        if self.bridge is not None:
            self.bridge.loop.emit(PolicyChanged(policy.written.policy(), self.clock()))

    def _label(self, name: str, *, there: bool) -> None:
        self._labels(name, {USER_LABEL: USERS[name] if there else None, ACCOUNT_LABEL: None, MANAGED: "true"})

    def _labels(self, name: str, labels: dict[str, str | None]) -> None:
        """The namespace gets these labels, and loses those that are None."""
        said = ", ".join(f"{key}={value}" for key, value in labels.items() if value is not None)
        self.invariants.note(f"the admin: namespace {name} is labelled {said}")
        body = json.dumps({"metadata": {"labels": labels}}).encode()
        headers = {"Content-Type": "application/merge-patch+json"}
        status, _, answer = self.kube.handle(self.kube_clock(), "PATCH", f"/api/v1/namespaces/{name}", headers, body)
        assert status == 200, answer
        self.invariants.tenants.note_labels(name, json.loads(answer)["metadata"].get("labels") or {}, self.clock())
        self.inner.wake()

    def _bind_by_others(self, rng: random.Random) -> None:
        """Another scheduler, or a person, binds a waiting pod of the bridge, and may write the id of a job on it."""
        waiting = [pod for pod in self.invariants.pods() if self._waits_for_the_bridge(pod)]
        if not waiting:
            return
        pod, node = rng.choice(waiting), rng.choice(self.nodes)
        # Slurm may have reused the id of an earlier job of the pod.  A pod that names its own ended job may be ended.
        jobs = (*self.slurm.jobs.values(), *self.former_jobs)
        own = {job.id for job in jobs if self.invariants.is_for(job, pod)}
        foreign = [job_id for job_id in self.slurm.jobs if job_id not in own]
        shown = rng.choice([None, None, NOBODYS_ID, rng.choice([*foreign, NOBODYS_ID])])
        self.invariants.note_bound_by_other(pod, node, shown)
        meta: dict[str, Any] = {"uid": pod["metadata"]["uid"]}
        if shown is not None:
            meta["annotations"] = {names.JOB_ID: str(shown)}
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/binding"
        body = json.dumps({"metadata": meta, "target": {"kind": "Node", "name": node}}).encode()
        of_the_bridge, self.kube.forbidden = self.kube.forbidden, set()
        status, _, answer = self.kube.handle(self.kube_clock(), "POST", path, {}, body)
        self.kube.forbidden = of_the_bridge
        assert status == 201, answer
        self.inner.wake()

    def _waits_for_the_bridge(self, pod: dict[str, Any]) -> bool:
        spec, meta = pod["spec"], pod["metadata"]
        ours = spec.get("schedulerName") == names.SCHEDULER_NAME and meta["namespace"] in USERS
        return ours and not (spec.get("nodeName") or meta.get("deletionTimestamp") or _ended(pod))

    # --- the bridge and its lives --------------------------------------------------------------------------------

    async def _bridges(self) -> None:
        """One life after the other; each is killed without warning when chaos says so."""
        while True:
            self.lives += 1
            self.invariants.process = self.lives
            self.invariants.born = self.clock()
            self.invariants.note(f"life {self.lives} of the bridge begins")
            life = asyncio.create_task(self._one_bridge())
            self.kill = life.cancel
            try:
                await life
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    raise
            except RemoteError as error:
                self.invariants.note(f"could not start: {error}")
            await asyncio.sleep(self.rng.uniform(0.1, 3.0))

    async def _one_bridge(self) -> None:
        transport = KubeEnd(self.inner, self.faults, self.invariants)
        slurm_end = SlurmEnd(self.slurm, self.faults, self.invariants, self.slurm_clock)
        kube, slurm = await connected(transport, slurm_end, self.slurm, self.clock)
        rng = random.Random(self.seed + 1000 * self.lives)
        self.bridge = Bridge(
            self._settings(),
            kube,
            transport,
            slurm,
            self.clock,
            _Listener(self.invariants),
            rng,
            leaving=self.leaving,
        )
        if not self.rights_go:
            await self.bridge.run()
            return
        held = RightsMonitor(kube, self.bridge.world, self.clock, self.clock, self.bridge.loop.emit)
        kube.on_forbidden = held.note_refused
        async with asyncio.TaskGroup() as group:
            group.create_task(held.run())
            group.create_task(self.bridge.run())

    def _settings(self) -> Settings:
        settings = HASTY_SETTINGS if self.hasty else SETTINGS
        every_event = random.Random(f"{self.seed} validated").random() < VALIDATED
        tuning = {"validate_every": 1 if every_event else VALIDATED_EVERY}
        return settings.model_copy(update={"policy": self.policy.written, "tuning": replace(settings.tuning, **tuning)})

    # --- what happens --------------------------------------------------------------------------------------------

    def _acts(self) -> list[Callable[[], None]]:
        """The acts to choose from; a frequent act is listed several times."""
        return (
            [self._new_pod] * 12
            + [self._delete_pod] * 4
            + [self._new_replica_set, self._new_batch_job]
            + [self._new_pod_with_port] * 2
            + [self._new_ring_with_port, self._kubelet_falls_silent, self._invented_hint, self._many_invented_hints]
            + [self._new_ring, self._new_launcher, self._new_batch_gang, self._member_again]
            + [self._gang_again, self._nightly] * 2
            + [self._cancel_job] * 3
            + [self._preempt_job, self._foreign_job, self._forged_job, self._edit_pod]
            + [self._edit_job, self._rename_job, self._hold_job, self._suspend_job]
            + [self._drain, self._resume, self._cordon, self._node_down]
            + [self._kill_bridge] * 2
            + [self._controller_down, self._forget_watches, self._lose_jobs, self._lose_all_jobs]
            + [self._api_server_down, self._member_of_lower_rank, self._member_of_other_shape, self._force_delete]
        )

    async def _chaos(self) -> None:
        ends, acts = self.clock() + self.chaos_s, self._acts()
        while self.clock() < ends:
            await asyncio.sleep(self.rng.expovariate(1 / self.pause_s))
            act = self.rng.choice(acts)
            self.invariants.note(f"chaos: {act.__name__.strip('_')}")
            act()
            self.inner.wake()

    def _heal(self) -> None:
        self.invariants.note("faults end")
        self.invariants.calm_since = self.clock()
        self.faults.on = False
        self.faults.api.end()
        self.slurm.controller_up = True
        self.slurm.accounting_up = self.slurm.accounting
        for name in list(self.slurm.nodes):
            self.slurm.resume(name, self.slurm_clock())
        for job in list(self.slurm.jobs.values()):
            if job.held:
                self.slurm.release(job.id, self.slurm_clock())
            if job.state == "SUSPENDED":
                self.slurm.unsuspend(job.id)
        for node in list(self.kube.store.all("nodes")):
            self._cordoned(node, False)
        for name in self.kube.actors.silent:
            self._kubelet_is_back(name)
        self.inner.wake()

    def _new_pod_with_port(self) -> None:
        """Creates a pod with a host port, which needs a node without that port in use.  Slurm knows nothing of ports."""
        self._new_pod(self._port())

    def _port(self) -> int:
        return self.rng.choice([8080, 8080, 9090])

    def _new_pod(self, host_port: int = 0) -> None:
        self.made += 1
        space = self.rng.choice(list(USERS))
        runs = self.rng.choice(["2", "8", "25", ""])
        says = {objects.RUN_S: runs, objects.EXIT_CODE: self.rng.choice("003")} if runs else {}
        self.kube.create(
            self.kube_clock(),
            "pods",
            objects.pod(
                space, f"p{self.made}", requests=self._wants(), annotations=says, grace_s=5, host_port=host_port
            ),
        )

    def _wants(self) -> dict[str, str]:
        wants = {"cpu": str(self.rng.choice([1, 1, 2, 4])), "memory": "512Mi"}
        if self.rng.random() < 0.4:
            wants["nvidia.com/gpu"] = str(self.rng.choice([1, 2]))
        return wants

    def _template(self) -> dict[str, Any]:
        made = objects.pod("alice-a", "t", requests=self._wants(), grace_s=5)
        return {"metadata": {"labels": {"app": "t"}}, "spec": made["spec"]}

    def _new_replica_set(self) -> None:
        self.made += 1
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "t"}}, "template": self._template()}
        meta = {"namespace": "alice-a", "name": f"r{self.made}"}
        self.kube.create(self.kube_clock(), "replicasets", {"metadata": meta, "spec": spec})

    def _new_batch_job(self) -> None:
        self.made += 1
        template = self._template()
        template["metadata"]["annotations"] = {objects.RUN_S: "5"}
        spec = {"parallelism": 2, "completions": 3, "template": template}
        meta = {"namespace": "alice-a", "name": f"j{self.made}"}
        self.kube.create(self.kube_clock(), "jobs", {"metadata": meta, "spec": spec})

    def _new_ring(self) -> None:
        """A gang of one shape; now and then its last member is late, or there is one too many."""
        wants, size = self._wants(), self.rng.choice([2, 3, 4])
        self._new_gang(size, [wants] * (size + self.rng.choice([-1, 0, 0, 0, 1])))

    def _new_ring_with_port(self) -> None:
        """Each of its members is on another node."""
        size = self.rng.choice([2, 3])
        self._new_gang(size, [self._wants()] * size, self._port())

    def _new_launcher(self) -> None:
        """A gang of two shapes: one heterogeneous job."""
        workers = [self._wants()] * self.rng.choice([1, 2])
        self._new_gang(1 + len(workers), [{"cpu": "1", "memory": "256Mi"}, *workers])

    def _new_gang(self, size: int, shapes: list[dict[str, str]], host_port: int = 0) -> None:
        self.made += 1
        space, runs = self.rng.choice(list(USERS)), self.rng.choice(["2", "8", "25", ""])
        says = {GANG_SIZE: str(size)} | ({objects.RUN_S: runs} if runs else {})
        for number, wants in enumerate(shapes):
            name, labels = f"g{self.made}-{number}", {GANG: f"g{self.made}"}
            made = objects.pod(
                space, name, requests=wants, labels=labels, annotations=says, grace_s=5, host_port=host_port
            )
            self.kube.create(self.kube_clock(), "pods", made)

    def _gang_again(self) -> None:
        """The pods of a gang have all ended, and are kept; others come under its label, as many or not."""
        gangs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for pod in self.invariants.pods():
            if label := (pod["metadata"].get("labels") or {}).get(GANG):
                gangs.setdefault((pod["metadata"]["namespace"], label), []).append(pod)
        over = [which for which, pods in sorted(gangs.items()) if all(_ended(pod) for pod in pods)]
        if not over:
            return
        self.made += 1
        space, label = self.rng.choice(over)
        size = self.rng.choice([2, 3])
        says = {GANG_SIZE: str(size), objects.RUN_S: self.rng.choice(["2", "8"])}
        wants = self._wants()
        for number in range(size):
            name = f"{label}-run{self.made}-{number}"
            made = objects.pod(space, name, requests=wants, labels={GANG: label}, annotations=says, grace_s=5)
            self.kube.create(self.kube_clock(), "pods", made)

    def _nightly(self) -> None:
        """A batch Job as a CronJob makes it: the label of its template is that of every night's Job."""
        self.made += 1
        template, size = self._template(), self.rng.choice([2, 3])
        template["metadata"]["labels"] = {"app": "t", GANG: f"nightly-{size}"}
        template["metadata"]["annotations"] = {GANG_SIZE: str(size), objects.RUN_S: self.rng.choice(["2", "5"])}
        spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": template}
        meta = {"namespace": "alice-a", "name": f"n{self.made}"}
        self.kube.create(self.kube_clock(), "jobs", {"metadata": meta, "spec": spec})

    def _new_batch_gang(self) -> None:
        """An indexed batch Job whose pods are one gang; its controller recreates failed pods."""
        self.made += 1
        template, size = self._template(), self.rng.choice([2, 3])
        template["metadata"]["annotations"] = {GANG_SIZE: str(size), objects.RUN_S: self.rng.choice(["5", "20"])}
        spec = {"parallelism": size, "completions": size, "completionMode": "Indexed", "template": template}
        meta = {"namespace": "alice-a", "name": f"b{self.made}"}
        self.kube.create(self.kube_clock(), "jobs", {"metadata": meta, "spec": spec})

    def _member_again(self) -> None:
        """One more of some gang comes: it takes a freed place, completes the gang, or is one too many."""
        self._another_member("{gang}-again-{number}")

    def _member_of_lower_rank(self) -> None:
        """Also while the binds of the others are under way."""
        self._another_member("a{number}-{gang}")

    def _member_of_other_shape(self) -> None:
        """Creates a member that may ask for more than the free place in its gang has."""
        self._another_member("{gang}-other-{number}", self._wants())

    def _another_member(self, called: str, wants: dict[str, str] | None = None) -> None:
        """Creates one more member of a random gang, like an existing member.  wants: resources that differ"""
        members = [pod for pod in self.invariants.pods() if GANG in (pod["metadata"].get("labels") or {})]
        if not members:
            return
        self.made += 1
        like = self.rng.choice(members)
        meta = like["metadata"]
        says = {key: value for key, value in _annotations(like).items() if key in (GANG_SIZE, objects.RUN_S)}
        labels = {GANG: meta["labels"][GANG]}
        requests = wants or like["spec"]["containers"][0]["resources"]["requests"]
        name = called.format(gang=labels[GANG], number=self.made)
        port = next((each.port for each in objects.host_ports(like)), 0)
        space = meta["namespace"]
        made = objects.pod(space, name, requests=requests, labels=labels, annotations=says, grace_s=5, host_port=port)
        self.kube.create(self.kube_clock(), "pods", made)

    def _some_pod(self) -> dict[str, Any] | None:
        pods = self.invariants.pods()
        return self.rng.choice(pods) if pods else None

    def _delete_pod(self) -> None:
        if (pod := self._some_pod()) is not None and not pod["metadata"].get("deletionTimestamp"):
            self.kube.remove(self.kube_clock(), "pods", pod, self.rng.choice([None, None, 0]))

    def _force_delete(self) -> None:
        """Its object is gone at once, also while it terminates; its containers run on for a while."""
        if (pod := self._some_pod()) is not None:
            self.kube.remove(self.kube_clock(), "pods", pod, 0)

    def _edit_pod(self) -> None:
        if (pod := self._some_pod()) is not None:
            meta = pod["metadata"]
            said = {**meta.get("annotations", {}), "slurm-bridge/time-limit": str(self.rng.randint(1, 90))}
            self.kube.store.put("pods", {**pod, "metadata": {**meta, "annotations": said}})

    def _some_job(self) -> int | None:
        live = self.invariants.ours()
        return self.rng.choice(live).id if live else None

    def _cancel_job(self) -> None:
        if (job_id := self._some_job()) is not None:
            self.slurm.cancel(job_id, self.slurm_clock())

    def _preempt_job(self) -> None:
        running = [job.id for job in self.invariants.ours() if job.holds]
        if running:
            self.slurm.preempt(self.rng.choice(running), self.slurm_clock())

    def _as_user(self, job_id: int, body: bytes) -> None:
        """Its own user changes the job, as with scontrol."""
        headers = {"X-SLURM-USER-TOKEN": self.slurm.token("slurm"), "X-SLURM-USER-NAME": self.slurm.jobs[job_id].user}
        rest.answer(self.slurm, self.slurm_clock(), "POST", f"/slurm/v0.0.45/job/{job_id}", headers, body)

    def _edit_job(self) -> None:
        if (job_id := self._some_job()) is not None:
            minutes = self.rng.randint(1, 60)
            self._as_user(job_id, b'{"time_limit":{"set":true,"number":%d},"comment":"mine"}' % minutes)

    def _rename_job(self) -> None:
        """Not once slurmctld lost jobs: what took a lost job's place is younger than its pods, as one of a reused id is.

        Under another name a bridge that starts anew cannot tell the two apart (docs/decisions/0003).
        """
        if self.invariants.lost_at == float("-inf") and (job_id := self._some_job()) is not None:
            job = self.slurm.jobs[job_id]
            self.invariants.renamed.setdefault(job.serial, job.name)
            self._as_user(job_id, b'{"name":"mine-%d"}' % job_id)

    def _hold_job(self) -> None:
        waiting = [job.id for job in self.invariants.ours() if job.state == "PENDING"]
        if waiting:
            self.slurm.hold(self.rng.choice(waiting), by_admin=self.rng.random() < 0.5)

    def _suspend_job(self) -> None:
        running = [job.id for job in self.invariants.ours() if job.state == "RUNNING"]
        if running:
            self.slurm.suspend(self.rng.choice(running))

    def _submit(self, user: str, name: str) -> None:
        headers = {"X-SLURM-USER-TOKEN": self.slurm.token("slurm"), "X-SLURM-USER-NAME": user}
        job = b'"flags":["EXTERNAL_JOB"],"cpus_per_task":1,"memory_per_node":{"set":true,"number":100}'
        body = b'{"job":{"name":"' + name.encode() + b'",' + job + b"}}"
        rest.answer(self.slurm, self.slurm_clock(), "POST", "/slurm/v0.0.45/job/submit", headers, body)

    def _foreign_job(self) -> None:
        self._submit(self.rng.choice(["alice", "carol"]), f"native-{self.made}")

    def _forged_job(self) -> None:
        if (job_id := self._some_job()) is not None:
            self._submit("carol", self.slurm.jobs[job_id].name)

    def _drain(self) -> None:
        self.slurm.drain(self.rng.choice(list(self.slurm.nodes)), "chaos")

    def _resume(self) -> None:
        for name in list(self.slurm.nodes):
            self.slurm.resume(name, self.slurm_clock())

    def _node_down(self) -> None:
        self.slurm.down(self.rng.choice(list(self.slurm.nodes)), self.slurm_clock(), "chaos")

    def _cordon(self) -> None:
        node = self.rng.choice(list(self.kube.store.all("nodes")))
        self._cordoned(node, not node["spec"].get("unschedulable"))

    def _cordoned(self, node: dict[str, Any], cordoned: bool) -> None:
        self.kube.store.put("nodes", {**node, "spec": {**node["spec"], "unschedulable": cordoned}})

    def _kubelet_falls_silent(self) -> None:
        """A node dies, or its network does; its pods may be deleted meanwhile, and stay Terminating until it is back."""
        name = self.rng.choice(self.nodes)
        self.kube.actors.stop_kubelet(self.kube_clock(), name)
        later = asyncio.get_running_loop().call_later
        if self.rng.random() < 0.8:
            later(self.rng.uniform(0, 30), self._delete_pods_on, name)
        later(self.rng.choice([self.rng.uniform(5, 40), self.rng.uniform(60, 90)]), self._kubelet_is_back, name)

    def _kubelet_is_back(self, name: str) -> None:
        self.kube.actors.start_kubelet(self.kube_clock(), name)
        self.inner.wake()

    def _delete_pods_on(self, node: str) -> None:
        """As after the taint of a dead node, or `kubectl drain`."""
        if node not in self.kube.actors.silent:
            return
        for pod in self.invariants.pods():
            if pod["spec"].get("nodeName") == node and not pod["metadata"].get("deletionTimestamp"):
                self.kube.remove(self.kube_clock(), "pods", pod)
        self.inner.wake()

    def _invented_hint(self) -> None:
        self._strangers(1)

    def _many_invented_hints(self) -> None:
        """More than may vanish at once before that is believed (X6)."""
        self._strangers(12)

    def _strangers(self, count: int) -> None:
        jobs = [job.id for job in self.slurm.jobs.values()]
        for _ in range(count):
            self.made += 1
            made = stranger(self.rng, f"s{self.made}", self.nodes, jobs, list(USERS))
            self.kube.create(self.kube_clock(), "pods", made)

    def _kill_bridge(self) -> None:
        if self.kill is not None:
            self.kill()

    def _api_server_down(self) -> None:
        """For seconds, or for as long as a control plane takes to restart."""
        self.faults.api.begin()
        lasts_s = self.rng.choice([self.rng.uniform(1, 10), self.rng.uniform(16, 45)])
        asyncio.get_running_loop().call_later(lasts_s, self.faults.api.end)

    def _controller_down(self) -> None:
        self.slurm.controller_up = False
        asyncio.get_running_loop().call_later(self.rng.uniform(1, 20), self._controller_back)

    def _controller_back(self) -> None:
        self.slurm.controller_up = True

    def _lose_jobs(self) -> None:
        """slurmctld crashes: what it had not saved is gone, and those ids are given out again."""
        self._jobs_are_lost(self.slurm.lose_state)

    def _lose_all_jobs(self) -> None:
        """slurmctld comes back without its state."""
        self._jobs_are_lost(self.slurm.lose_everything)

    def _jobs_are_lost(self, lose: Callable[[float], list[int]]) -> None:
        self.former_jobs += self.slurm.jobs.values()
        lose(self.slurm_clock())
        for each in (self, *self.sharers):
            each.invariants.lost_at = self.clock()

    def _forget_watches(self) -> None:
        self.kube.compact()


def _annotations(thing: dict[str, Any]) -> dict[str, str]:
    """The annotations of an object: the server keeps no empty map."""
    return thing["metadata"].get("annotations") or {}


def _ended(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def live(seed: int) -> None:
    """Live one seed.  Raises AssertionError with the seed and the end of the story."""
    _live(seed, Life(seed))


def story(seed: int) -> list[tuple[float, str]]:
    """Live one seed, and return what happened: times, in words."""
    life = Life(seed)
    _live(seed, life)
    return life.invariants.log


def live_beside(seed: int) -> None:
    """Two Kubernetes with a bridge each share one Slurm, its users and its partition.  Raises AssertionError."""
    one = Life(seed, others=("y1", "y2", "y3"))
    _live(seed, one, Life(seed + 100_000, nodes=one.others, beside=one))


def _live(seed: int, *lives: Life) -> None:
    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            for life in lives:
                group.create_task(life.live())

    try:
        run(together(), loop_of=PausingLoop if any(life.pauses for life in lives) else VirtualLoop)
    except* Violation as broken:
        log = sorted((at, number, what) for number, life in enumerate(lives) for at, what in life.invariants.log)
        told = "\n".join(f"  {at - START:8.3f}  {'| ' * number}{what}" for at, number, what in log[-150 * len(lives) :])
        [first, *_] = _leaves(broken)
        raise AssertionError(f"seed {seed}: {first}\n{told}") from None


def _leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    found: list[BaseException] = []
    for each in group.exceptions:
        found += _leaves(each) if isinstance(each, BaseExceptionGroup) else [each]
    return found
