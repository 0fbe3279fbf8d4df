"""The session of `slurm-bridge dev`: the real bridge between two clusters, its restarts, and the checks of invariants.

The bridge has the same parts as `slurm-bridge run`.  It can be killed at any instant, and starts again with a new World.  The
clusters, the checks and the traces stay.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from bridge import settings
from bridge.app import Bridge
from bridge.connections import slurm_pool
from bridge.dev.backends import KubeBackend, SlurmBackend
from bridge.dev.faults import FAULTS
from bridge.errors import RemoteError
from bridge.kube.client import KubeClient
from bridge.kube.transport import opened
from bridge.page.feed import Entry, Item, entries_of
from bridge.page.source import detail_of_bridge, entries_of_bridge
from bridge.simulation.fault_injection import Cable, KubeFaults, Outage, SlurmFaults
from bridge.simulation.invariants.checks import Invariants
from bridge.simulation.invariants.violation import INVARIANTS, Violation
from bridge.telemetry import Telemetry
from scheduler import actions as act
from scheduler.actions import Action, Outcome
from scheduler.events import ActionEnded, Event, Side
from scheduler.state.world import World

LOOK_EVERY_S = 1.0
RESTART_S = 1.0  # between the end of one bridge and the start of the next
TRACES = 1000
SHOWN_VIOLATIONS = 20
AT_ONCE_MOST = 20_000
# A call to a simulated cluster takes two seconds at most.  So times that must exceed the duration of a call can be short.
QUICK = {"quiet_s": 2, "settle_s": 3}


class Session:
    """One session.  After `run` has started, the other methods show and change it.

    cable        the connection to slurmrestd, and the faults on it
    outage       outages of the API server
    settings     the settings of the bridge
    note         the effect of the last fault, in words
    calm_since   when the last fault was injected, or ended
    at_once      keys of the last workloads with an immediate allocation
    """

    kube: KubeBackend
    slurm: SlurmBackend
    cable: Cable
    outage: Outage

    def __init__(self, kube: KubeBackend, slurm: SlurmBackend, seed: int) -> None:
        self.kube = kube
        self.slurm = slurm
        self.clock = time.time
        self.rng = random.Random(seed)  # noqa: S311 - a run must be repeatable
        self.cable = Cable(on_lost=self._note_lost)
        self.outage = Outage()
        self.note = ""
        self.calm_since = self.clock()
        self.at_once: dict[str, None] = {}
        self.telemetry = Telemetry(recent=TRACES)
        self.invariants = Invariants(
            kube.observations,
            slurm.observations,
            {kube.space: slurm.user},
            self.clock,
            kube.cluster,
            scheduler_name=kube.scheduler_name,
            partitions=slurm.partitions,
            exact=kube.simulated is not None and slurm.simulated is not None,
            on_broken=lambda _violation: None,  # Invariants keeps the violations
        )
        self.bridge: Bridge | None = None
        self._bridge_task: asyncio.Task[None] | None = None
        self.settings = _settings(kube, slurm)

    @property
    def world(self) -> World | None:
        """The World of the present bridge."""
        return self.bridge.world if self.bridge else None

    @property
    def left(self) -> bool:
        """True if a job may be left in Slurm: an observed job, or a job that only the bridge has recorded."""
        world = self.world
        if self.invariants.ours() or world is None:
            return bool(self.invariants.ours())
        return not world.ready or any(not workload.of_other_scheduler for workload in world.workloads.values())

    @property
    def violations(self) -> list[Violation]:
        """Every violation of an invariant."""
        return self.invariants.violations

    async def run(self) -> None:
        """Never returns; cancel it."""
        await self._observe()  # jobs that exist already are not the bridge's
        parts: list[Coroutine[Any, Any, None]] = [
            self._restart_for_ever(),
            self._observe_for_ever(),
            self.slurm.live(self.invariants.after),
        ]
        if self.kube.simulated:
            parts.append(self.kube.simulated.live())
        try:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(part)
        finally:
            self.telemetry.close()

    # --- the bridge and its restarts ------------------------------------------------------------------------------

    def kill_bridge(self) -> None:
        """Kill the bridge at whatever point it is."""
        if self._bridge_task is not None:
            self._bridge_task.cancel()

    async def _restart_for_ever(self) -> None:
        while True:
            self.invariants.process += 1
            self.invariants.born = self.clock()
            self._bridge_task = asyncio.create_task(self._run_bridge(), name="bridge")
            try:
                await self._bridge_task
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    raise  # the session was cancelled, not the bridge
            except RemoteError as error:  # Slurm does not answer while the bridge starts
                self.note = f"The bridge cannot start: {error}"
            await asyncio.sleep(RESTART_S)

    async def _run_bridge(self) -> None:
        async with AsyncExitStack() as stack:
            faulty_wire = KubeFaults(
                opened(self.kube.access, stack, scheduler=self.kube.scheduler_name), self.invariants, self.outage
            )
            pool = slurm_pool(self.settings, stack, self.settings.slurm_connections)
            polls = slurm_pool(self.settings, stack, 1)
            slurm = self.slurm.client(
                SlurmFaults(pool, self.cable, self.invariants),
                polls=SlurmFaults(polls, self.cable, self.invariants),
                hooks=self.telemetry,
            )
            await slurm.discover()
            kube = KubeClient(
                faulty_wire, self.kube.scheduler_name, self.clock, self.telemetry.on_call(Side.KUBERNETES)
            )
            self.bridge = Bridge(self.settings, kube, slurm, self.clock, self, self.rng)
            await self.bridge.run()

    # --- Observer -------------------------------------------------------------------------------------------------

    def on_planned(self, action: Action, at: float) -> None:
        """See bridge.loop.Observer."""
        self.telemetry.on_planned(action, at)

    def on_ended(self, event: ActionEnded, world: World) -> None:
        """See bridge.loop.Observer."""
        if isinstance(event.action, act.AllocateNow) and event.outcome is Outcome.DONE:
            self.at_once[event.action.key] = None
            while len(self.at_once) > AT_ONCE_MOST:
                del self.at_once[next(iter(self.at_once))]
        self.telemetry.on_ended(event, world)

    def on_observed(self, event: Event, world: World) -> None:
        """See bridge.loop.Observer."""
        self.telemetry.on_observed(event, world)

    def on_passed(self, world: World, took_s: float, lag_s: float) -> None:
        """See bridge.loop.Observer."""
        self.telemetry.on_passed(world, took_s, lag_s)

    # --- the invariants -------------------------------------------------------------------------------------------

    async def _observe_for_ever(self) -> None:
        """Observe both sides again and again, and check the invariants."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            began = self.clock()
            if await self._observe():
                self.invariants.check(began, float("inf") if self.troubled else self.calm_since)

    async def _observe(self) -> bool:
        """Observe both sides.  Returns False if one of them cannot be observed, so that no check is possible."""
        try:
            await self.slurm.look()
            await self.kube.look()
        except RemoteError:
            self.calm_since = self.clock()
            return False
        return True

    @property
    def troubled(self) -> bool:
        """True while a lasting fault is on."""
        return any(fault.on(self) for fault in FAULTS.values() if fault.on is not None)

    async def make(self, name: str) -> str:
        """Inject a fault.  Returns a sentence about its effect.  Raises KeyError."""
        fault = FAULTS[name]
        if why := fault.unavailable(self):
            return why
        self.note = await fault.act(self)
        self.calm_since = self.clock()
        self.invariants.note(f"fault: {self.note}")
        return self.note

    def _note_lost(self, operation: str) -> None:
        self.note = f"The answer to {operation} was lost."
        self.calm_since = self.clock()

    async def cancel_job(self, job_id: int) -> None:
        """Cancel a job as its user, or as an admin in a simulated Slurm.  Raises RemoteError."""
        if self.slurm.simulated is not None:
            self.slurm.simulated.cancel(job_id, self.clock())
            return
        async with AsyncExitStack() as stack:
            client = self.slurm.client(slurm_pool(self.settings, stack, 1))
            await client.discover()
            job = await client.job(job_id)
            if job is not None:
                await client.cancel(job_id, job.name, self.slurm.user)

    # --- what the page shows --------------------------------------------------------------------------------------

    def look(self) -> Iterator[Entry]:
        """The state of both clusters and of the bridge, for the page."""
        if self.world is not None:
            yield from entries_of_bridge(self.world, self.telemetry, self.clock())
        yield from entries_of({"faults": self._faults(), "invariants": self._kept(), "violations": self._broken()})

    def detail(self, key: str) -> Item:
        """The details of one workload, for the page."""
        return detail_of_bridge(self.world, self.telemetry, key, self.clock()) if self.world else None

    def _faults(self) -> Mapping[str, Item]:
        return {
            name: {
                "label": fault.label,
                "does": fault.does,
                "on": fault.on(self) if fault.on is not None else None,
                "unavailable": fault.unavailable(self),
            }
            for name, fault in FAULTS.items()
        }

    def _kept(self) -> Mapping[str, Item]:
        broken = Counter(violation.invariant for violation in self.violations)
        return {
            name: {"says": says, "checked": self.invariants.checked[name], "broken": broken[name]}
            for name, says in INVARIANTS.items()
        }

    def _broken(self) -> Mapping[str, Item]:
        last = list(enumerate(self.violations))[-SHOWN_VIOLATIONS:]
        return {f"{number:06d}": {"at": event.at, "what": str(event)} for number, event in last}


def _settings(kube: KubeBackend, slurm: SlurmBackend) -> settings.Settings:
    simulated = slurm.simulated is not None
    anything = {"allowed": ["*"]}
    rule = {"namespaces": [kube.space], "user": slurm.user, "account": anything, "partition": anything, "qos": anything}
    return settings.Settings.model_validate(
        {
            "slurm_url": slurm.url,
            "allow_plain_http": True,  # the address was checked when the option was read
            "scheduler_name": kube.scheduler_name,
            "policy": {"rules": [rule]},
            "nodes_interval_s": 1 if simulated else 10,
            "tuning": QUICK if simulated else {},
        }
    )
