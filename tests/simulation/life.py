"""One life, chosen by a seed: a load, faults, then a time without faults; the invariants are checked all the time.

The real bridge, with its clients, codecs, list-watch, loop and core, runs between the two simulated clusters on a virtual
clock.  A life is built in layers, each a class with the one before as its base: the two clusters (`Clusters`), what users,
admins and failing servers do (`Chaos`), what happens beside that in some lives (`Disturbances`), and here the processes of
the bridge and the end.  `Replicas` has two replicas instead of one bridge; in `Calm` nothing happens but a story.

For the first minute and a half both clusters have faults.  At most two and a half minutes after the last fault every
pod must be bound or say why not, and no job may be left over (ARCHITECTURE 7).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bridge.app import Bridge
from bridge.errors import RemoteError
from bridge.preflight.rights import RightsMonitor
from bridge.settings import Settings
from bridge.simulation.invariants.violation import Violation
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.observations import KubeSimulatedObservations, SlurmSimulatedObservations
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.tenant_history import TenantHistory
from bridge.simulation.virtual_time import START, VirtualLoop, run
from scheduler import names
from scheduler.actions import Action
from scheduler.events import AbsenceConfirmed, ActionEnded, Event, PodsListed, Scope
from scheduler.state.world import World
from tests.simulation.arrivals import ArrivalInvariants
from tests.simulation.clients import connected
from tests.simulation.disturbances import Disturbances
from tests.simulation.network import FaultyKube, FaultySlurm
from tests.simulation.policies import MANAGED, POLICIES, SETTINGS, USER_LABEL, USERS, of_managed
from tests.simulation.processes import PausingLoop

# After the faults everything must be at rest: it is checked from EARLIEST_S on, and has to be so at LATEST_S.
EARLIEST_S, LATEST_S = 70.0, 150.0
RELEASE_S = 20.0  # so long after the faults the admin confirms that the absent jobs are gone
# Share of the lives in which the indexes of the World are checked after every event, which makes a life thrice as slow.
# In the other lives they are checked after every 50th event.
VALIDATED = float(os.environ.get("VALIDATED", "0.04"))
VALIDATED_EVERY = 50
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
    made.tenants = TenantHistory(of_managed(POLICIES[0].gives), labels)
    return made


@dataclass(slots=True)
class Listener:
    """Notes what the bridge does in the log that a failure shows."""

    invariants: ArrivalInvariants
    listed: bool = False

    def on_planned(self, action: Action, at: float) -> None:
        self.invariants.note(f"plans {type(action).__name__} {getattr(action, 'name', '')}: {action.reason}")

    def on_ended(self, event: ActionEnded, world: World) -> None:
        why = event.refusal.message if event.refusal else ""
        job = f" job {event.job_id}" if event.job_id else ""
        if self.invariants.answered is not None and event.job_id:
            self.invariants.answered.add(event.job_id)
        self.invariants.note(f"{type(event.action).__name__} ended {event.outcome.value}{job} {why}")

    def on_observed(self, event: Event, world: World) -> None:
        """The first list of our pods sets the time before which pods belong to an earlier process."""
        if isinstance(event, PodsListed) and event.scope is Scope.OURS and not self.listed:
            self.listed, self.invariants.born = True, self.invariants.clock()

    def on_passed(self, world: World, took_s: float, lag_s: float) -> None:
        """Nothing to tell of it."""


@dataclass(slots=True)
class Life(Disturbances):
    """All of one seed.

    leaving     as of Config: its bridge is being uninstalled
    processes   how many processes of the bridge began
    """

    leaving: str = ""
    processes: int = 0
    pauses: ClassVar[bool] = False

    async def live(self) -> None:
        """Raises Violation."""
        self.clock = asyncio.get_running_loop().time
        self.inner = self.new_inner()
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

    def new_inner(self) -> InProcessKube:
        """Kubernetes, as the bridge reaches it."""
        return InProcessKube(self.kube, self.kube_clock)

    async def _comes_to_rest(self) -> None:
        """Most have nothing left to do after a minute; what takes longer has its time."""
        await asyncio.sleep(RELEASE_S)
        self._release()
        await asyncio.sleep(EARLIEST_S - RELEASE_S)
        for _ in range(int(LATEST_S - EARLIEST_S) // 5):
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
        return world.held_back_since is not None or world.hints_held_back_since is not None

    async def _slurm_lives(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self.beside is None:
                self.slurm.tick(self.slurm_clock())
            self.invariants.after()

    async def _bridges(self) -> None:
        """One process after the other; each is killed without warning when chaos says so."""
        while True:
            self.processes += 1
            self.invariants.process = self.processes
            self.invariants.born, self.invariants.answered = self.clock(), set()
            self.invariants.note(f"process {self.processes} of the bridge begins")
            process = asyncio.create_task(self._one_bridge())
            self.kill = process.cancel
            try:
                await process
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    raise
            except RemoteError as error:
                self.invariants.note(f"could not start: {error}")
            await asyncio.sleep(self.rng.uniform(0.1, 3.0))

    async def _one_bridge(self) -> None:
        transport = FaultyKube(self.inner, self.faults, self.invariants)
        slurm_transport = FaultySlurm(self.slurm, self.faults, self.invariants, self.slurm_clock)
        kube, slurm = await connected(transport, slurm_transport, self.slurm, self.clock)
        rng = random.Random(self.seed + 1000 * self.processes)
        self.bridge = Bridge(
            self._settings(),
            kube,
            slurm,
            self.clock,
            Listener(self.invariants),
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


def live(seed: int) -> None:
    """Live one seed.  Raises AssertionError with the seed and the end of the log."""
    live_together(seed, Life(seed))


def log_of(seed: int) -> list[tuple[float, str]]:
    """Live one seed, and return what happened: times, in words."""
    life = Life(seed)
    live_together(seed, life)
    return life.invariants.log


def live_beside(seed: int) -> None:
    """Two Kubernetes with a bridge each share one Slurm, its users and its partition.  Raises AssertionError."""
    one = Life(seed, others=("y1", "y2", "y3"))
    live_together(seed, one, Life(seed + 100_000, nodes=one.others, beside=one))


def live_together(seed: int, *lives: Life) -> None:
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
