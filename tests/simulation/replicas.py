"""Two replicas of the bridge on one pair of clusters, with a lease between them.

Each replica is a process of its own.  It may be killed, stopped by a signal, or paused, also between a decision and its
first request.  A paused replica goes on where it was when it wakes, with old facts, while the other replica leads.  The
Lease may be deleted or edited by hand.  The invariants are the same as with one bridge.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bridge.app import Bridge, watches_of
from bridge.errors import RemoteError, Unanswered, not_sent
from bridge.guard import Guard, restart_on_error
from bridge.kube.lease import Lease, Terms
from bridge.kube.mirror import Mirror
from bridge.kube.transport import Call
from bridge.kube.transport import Reply as KubeReply
from bridge.preflight.rights import RightsMonitor
from bridge.replica import Replica
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.virtual_time import START
from bridge.slurm.transport import Reply as SlurmReply
from scheduler.actions import Action
from scheduler.events import PolicyChanged
from tests.simulation.arrivals import ArrivalInvariants
from tests.simulation.clients import connected
from tests.simulation.life import HASTY_SETTINGS, Life, Listener
from tests.simulation.network import Faults, FaultyKube, FaultySlurm
from tests.simulation.policies import SETTINGS, AnyPolicy
from tests.simulation.processes import Process, outside

NAMES = ("slurm-bridge-0", "slurm-bridge-1")
SPACE, LEASE = "slurm-bridge", "slurm-bridge"
PODS_MOST = 40
CHAOS_S, PAUSE_S = 3600.0, 4.0
PAUSES_AT_A_PLAN = 0.01  # of all decisions


class FencedKube(FaultyKube):
    """The API server, for one process: what it sent goes on without it."""

    def __init__(
        self,
        inner: InProcessKube,
        faults: Faults,
        invariants: ArrivalInvariants,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(inner, faults, invariants)
        self._may_write = may_write

    async def exchange(self, call: Call) -> KubeReply:
        if call.method != "GET" and not self._may_write():
            raise not_sent(call.method.lower(), "Kubernetes")
        try:
            async with asyncio.timeout(call.deadline_s):
                return await outside(super().exchange(call))
        except TimeoutError:
            raise Unanswered(call.method.lower(), "Kubernetes", "no answer in time") from None


class FencedSlurm(FaultySlurm):
    """slurmrestd, for one process."""

    def __init__(
        self,
        cluster: SlurmCluster,
        faults: Faults,
        invariants: ArrivalInvariants,
        clock: Callable[[], float],
        may_write: Callable[[], bool],
    ) -> None:
        super().__init__(cluster, faults, invariants, clock)
        self._may_write = may_write

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, *, deadline_s: float
    ) -> SlurmReply:
        if method != "GET" and not self._may_write():
            raise not_sent(method.lower(), "Slurm")
        return await outside(super().exchange(method, target, headers, body, deadline_s=deadline_s))


@dataclass(slots=True)
class _Pauses(Listener):
    """A listener that gets each decision before it is performed."""

    before_action: Callable[[], None] = field(default=lambda: None)

    def __init__(self, invariants: ArrivalInvariants, before_action: Callable[[], None]) -> None:
        Listener.__init__(self, invariants)
        self.before_action = before_action

    def on_planned(self, action: Action, at: float) -> None:
        Listener.on_planned(self, action, at)
        self.before_action()


@dataclass(slots=True)
class Running:
    """A replica that runs: its process, its first task, and the event that stops it."""

    process: Process
    task: asyncio.Task[None]
    stop: asyncio.Event
    replica: Replica | None = None
    bridge: Bridge | None = None
    transport: FencedKube | None = None


@dataclass(slots=True)
class Replicas(Life):
    """A life of two replicas.

    leased   with a lease between them; else both act all the time
    leads    how often one began to lead
    """

    pauses: ClassVar[bool] = True
    identities: ClassVar[bool] = False  # without a lease, a replica that was paused asks by the policy of before
    chaos_s: float = CHAOS_S
    pause_s: float = PAUSE_S
    leased: bool = True
    running: dict[str, Running] = field(default_factory=dict)
    leads: int = 0
    fate: random.Random = field(init=False)

    def __post_init__(self) -> None:
        Life.__post_init__(self)
        self.fate = random.Random(f"{self.seed} replicas")
        self.kube.create(START + self.kube_ahead, "namespaces", {"metadata": {"name": SPACE}})

    async def _bridges(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name in NAMES:
                group.create_task(self._one_after_the_other(name))

    async def _one_after_the_other(self, name: str) -> None:
        while True:
            self.processes += 1
            process, stop = Process(), asyncio.Event()
            task = process.start(self._one_process(process, name, self.processes, stop))
            self.running[name] = Running(process, task, stop)
            try:
                await task
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    process.wake()
                    task.cancel()
                    raise
            except RemoteError as error:
                self.invariants.note(f"{name} could not start: {error}")
            await asyncio.sleep(self.fate.uniform(0.1, 3.0))

    def _perhaps_pause(self, process: Process) -> None:
        """After a decision and before it is sent."""
        if self.faults.on and self.fate.random() < PAUSES_AT_A_PLAN:
            self.invariants.note("chaos: the leader is paused with a decision that is not sent")
            self._pause(process)

    def _write_policy(self, policy: AnyPolicy) -> None:
        """Every replica reads the file."""
        Life._write_policy(self, policy)
        for each in self.running.values():
            if each.bridge not in (None, self.bridge):
                each.bridge.loop.emit(PolicyChanged(policy.written.policy(), self.clock()))

    def _begin_to_lead(self, name: str, transport: FencedKube) -> None:
        self.leads += 1
        self.invariants.process = transport.process = self.leads
        self.invariants.born = self.clock()
        self.invariants.note(f"{name} begins to lead, as process {self.leads}")

    async def _one_process(self, process: Process, name: str, number: int, stop: asyncio.Event) -> None:
        faulty_wire = FencedKube(self.inner, self.faults, self.invariants)
        lease = Lease(faulty_wire, Terms(SPACE, LEASE, name), self.clock, self.kube_clock, process=f"{name} {number}")
        leads = lease.holds if self.leased else lambda: True
        transport = FencedKube(self.inner, self.faults, self.invariants, leads)
        self.running[name].transport = transport
        slurm_transport = FencedSlurm(self.slurm, self.faults, self.invariants, self.slurm_clock, leads)
        kube, slurm = await connected(transport, slurm_transport, self.slurm, self.clock)
        settings, rng = HASTY_SETTINGS if self.hasty else SETTINGS, random.Random(self.seed + 1000 * number)
        watches, guard = watches_of(settings, transport, self.clock, rng), Guard()
        held = RightsMonitor(kube, None, self.clock, self.clock)
        kube.on_forbidden = held.note_refused

        def bridge(mirror: Mirror | None = None) -> Bridge:
            self._begin_to_lead(name, transport)
            listener = _Pauses(self.invariants, lambda: self._perhaps_pause(process))
            written = settings.model_copy(update={"policy": self.policy.written})
            made = Bridge(written, kube, slurm, self.clock, listener, rng, mirror=mirror, leads=leads)
            held.follow(made.world, made.loop.emit)
            self.bridge = self.running[name].bridge = made
            return made

        async def lead_and_stand_by() -> None:
            replica = Replica(
                lease,
                lambda: Mirror(watches),
                lambda mirror: asyncio.create_task(restart_on_error("watches", mirror.run, guard)),
                bridge,
                self.clock,
            )
            self.running[name].replica = replica
            await replica.run(stop)
            self.invariants.note(f"{name} has stopped")

        async with asyncio.TaskGroup() as group:
            reviews = group.create_task(held.run()) if self.rights_go else None
            await (lead_and_stand_by() if self.leased else bridge().run())
            if reviews is not None:
                reviews.cancel()

    # --- what happens ---------------------------------------------------------------------------------------------

    def _acts(self) -> list[Callable[[], None]]:
        acts = [each for each in Life._acts(self) if each != self._kill_bridge]
        more = [self._kill_bridge] * 2 + [self._pause_one] * 5
        if self.leased:
            more += [self._stop_one] * 3 + [self._edit_lease]
        return acts + more + [self._tidy] * 4

    def _awake(self) -> list[Running]:
        return [each for each in self.running.values() if not each.process.paused and not each.task.done()]

    def _kill_bridge(self) -> None:
        """Without warning."""
        if awake := self._awake():
            self.fate.choice(awake).task.cancel()

    def _stop_one(self) -> None:
        """As a rollout does."""
        if awake := self._awake():
            self.fate.choice(awake).stop.set()

    def _pause_one(self) -> None:
        """A virtual machine that is suspended, a process that gets no CPU, SIGSTOP."""
        if awake := self._awake():
            self._pause(self.fate.choice(awake).process)

    def _pause(self, process: Process) -> None:
        process.pause(
            self.fate.choice([self.fate.uniform(0.1, 3), self.fate.uniform(1, 30), self.fate.uniform(30, 90)])
        )

    def _edit_lease(self) -> None:
        """Somebody deletes it, takes its holder out, or writes nonsense."""
        found = self.kube.store.get("leases", SPACE, LEASE)
        if found is None:
            return
        if self.fate.random() < 0.3:
            self.kube.remove(self.kube_clock(), "leases", found)
            return
        edits: list[dict[str, Any]] = [
            {"holderIdentity": ""},
            {"holderIdentity": "somebody"},
            {"holderIdentity": self.fate.choice(NAMES)},
            {"leaseDurationSeconds": 2_000_000_000},
            {"leaseDurationSeconds": "long"},
            {"renewTime": "9999-01-01T00:00:00Z"},
        ]
        self.kube.store.put("leases", {**found, "spec": {**found["spec"], **self.fate.choice(edits)}})

    def _tidy(self) -> None:
        """Removes pods above a limit, so that new pods find a place throughout the hour."""
        pods = [pod for pod in self.invariants.pods() if not pod["metadata"].get("deletionTimestamp")]
        for pod in self.fate.sample(pods, max(0, len(pods) - PODS_MOST)):
            self.kube.remove(self.kube_clock(), "pods", pod)
        for kind in ("replicasets", "jobs"):
            for each in self.fate.sample(found := list(self.kube.store.all(kind)), max(0, len(found) - 5)):
                self.kube.remove(self.kube_clock(), kind, each)

    def _heal(self) -> None:
        for each in self.running.values():
            if each.process.paused:
                each.process.wake()
        Life._heal(self)
