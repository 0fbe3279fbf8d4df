"""Connects the parts of `slurm-bridge run`: from settings to a running bridge, and back when the process ends.

`Bridge` is a bridge between any two transports; the simulated clusters use the same class.  `run` connects to the two real
clusters, waits until they answer, and checks them (bridge/preflight/).  A mistake in the settings ends the process with one
sentence and exit code 2.  A failure after the start is shown on pods and on /readyz, and the bridge goes on once it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from bridge import stopping
from bridge.bridge_gauges import measure_clock, measure_lead, measure_policy, measure_rights, measure_users
from bridge.clock import SlewedClock
from bridge.connections import Connections, Tokens
from bridge.executor import Executor
from bridge.guard import Guard, restart_on_error
from bridge.health import Health
from bridge.http_access import Bearers
from bridge.kube.client import KubeClient
from bridge.kube.lease import Lease
from bridge.kube.mirror import Mirror
from bridge.kube.transport import HttpTransport
from bridge.kube.transport import Transport as KubeTransport
from bridge.kube.versions import SeenVersions
from bridge.kube.watch import KubeWatches
from bridge.loop import Loop, Observer
from bridge.notify import READY, STOPPING, notify
from bridge.policy_file import PolicyFile, policy_trouble
from bridge.preflight import checks
from bridge.preflight.rights import RightsMonitor
from bridge.preflight.waiting import Waiting, unless
from bridge.replica import Replica
from bridge.settings import Settings
from bridge.slurm.client import SlurmClient
from bridge.slurm.poll import Poller
from bridge.slurm.user_tokens import follow
from bridge.starting import StandingBy, Starting
from bridge.telemetry import Telemetry
from bridge.world_gauges import Values
from scheduler.apply.events import new_world
from scheduler.events import CallsAnswered, Event, Side
from scheduler.model.kubernetes import Undecoded
from scheduler.state.phase import Phase
from scheduler.state.world import World
from scheduler.tuning import Config

log = logging.getLogger("slurm-bridge")

TRACES = 2000  # workloads whose steps are kept in memory, for the page
READY_ASKED_S = 0.2  # pause between two checks of readiness, until the first success


class Bridge:
    """Everything between the two clusters.

    clock    epoch seconds; the one clock of the bridge
    rng      source of jitter
    on_undecodable     called for each object of Kubernetes that cannot be decoded: what, which, why
    on_event_dropped   called for each Kubernetes event that is not posted
    guard    contains and reports the bridge's own errors
    mirror   what the watches of a replica that begins to lead have observed; None: the bridge watches by itself
    leads    returns True if this replica may act now
    slurm_user   SlurmUser of slurm.conf, to which no pod is mapped; "": not known
    leaving, traced  as the fields of Config
    """

    def __init__(
        self,
        settings: Settings,
        kube: KubeClient,
        slurm: SlurmClient,
        clock: Callable[[], float],
        observer: Observer,
        rng: random.Random | None = None,
        on_undecodable: Callable[[str, str, str], None] = lambda _what, _which, _why: None,
        on_event_dropped: Callable[[], None] = lambda: None,
        guard: Guard | None = None,
        mirror: Mirror | None = None,
        leads: Callable[[], bool] = lambda: True,
        slurm_user: str = "",
        leaving: str = "",
        *,
        traced: bool = False,
    ) -> None:
        self.guard = guard or Guard()
        config = replace(_config(settings, slurm, slurm_user, leaving), traced=traced)
        self.world = new_world(config, started=clock(), guarded=self.guard.on)
        self.poller = self._poller(settings, slurm, clock)
        self.executor = Executor(
            kube,
            slurm,
            self._emit,
            clock,
            self.poller.poll_nodes,
            self.guard,
            leads,
            on_event_dropped,
            lambda: self.world.cluster,
        )
        self.loop = Loop(self.world, self.executor, clock, observer, self.guard, leads)
        self._on_undecodable = on_undecodable
        self._clock = clock
        self._user_tokens = slurm.user_tokens
        self._mirror = mirror
        self._watches = watches_of(settings, kube.transport, clock, rng)(self._emit, self.undecoded)
        self._policy_file: PolicyFile | None = None

    def _poller(self, settings: Settings, slurm: SlurmClient, clock: Callable[[], float]) -> Poller:
        return Poller(
            slurm,
            self._emit,
            clock,
            waiting=lambda: bool(self.world.by_phase[Phase.QUEUED]),
            allocating=lambda: any(self.world.immediate_in_flight.values()),
            accounting_outage=lambda: self.world.accounting_outage is not None,
            interval_s=settings.poll_interval_s,
            nodes_interval_s=settings.nodes_interval_s,
        )

    def follow(self, file: PolicyFile) -> None:
        """Read the policy from that file whenever the file changes."""
        self._policy_file = file

    def take_over(self, now: float, *, drained: bool) -> None:
        """Begin with what the mirror has observed.  drained: as of Mirror.hand_over"""
        assert self._mirror is not None, "only a replica that stood by takes over"
        self._mirror.hand_over(self._emit, self.undecoded, now, drained=drained)

    def undecoded(self, thing: Undecoded) -> None:
        """Report an object of Kubernetes that cannot be decoded."""
        which = "/".join(filter(None, (thing.namespace, thing.name)))
        self._on_undecodable(f"{thing.kind}s", which, thing.why)
        self.executor.post_undecoded(thing)

    def _emit(self, event: Event) -> None:
        self.loop.emit(event)

    async def run(self) -> None:
        """Never returns; cancel it."""
        guard = self.guard
        async with asyncio.TaskGroup() as group:
            if self._mirror is None:
                group.create_task(restart_on_error("watches of Kubernetes", self._watches.run, guard), name="watches")
            group.create_task(restart_on_error("poller of Slurm", self.poller.run, guard), name="poller")
            group.create_task(self.loop.run(), name="loop")
            group.create_task(restart_on_error("posting of events", self.executor.post_events, guard), name="events")
            if (file := self._policy_file) is not None:
                follow_policy = restart_on_error("settings file", lambda: file.follow(self._emit, self.world), guard)
                group.create_task(follow_policy, name="settings")
            if (users := self._user_tokens) is not None:
                looks = restart_on_error("token files", lambda: follow(users, self._emit, self._clock), guard)
                group.create_task(looks, name="tokens")


def watches_of(
    settings: Settings, transport: KubeTransport, clock: Callable[[], float], rng: random.Random | None = None
) -> Callable[[Callable[[Event], None], Callable[[Undecoded], None]], KubeWatches]:
    """Return a factory of watches: called with (emit, on_undecoded), it returns KubeWatches.

    All watches of one factory share the versions that they have seen.  So none of them emits a list that is older than what
    another one has emitted.
    """
    seen = SeenVersions()

    def watches(emit: Callable[[Event], None], on_undecoded: Callable[[Undecoded], None]) -> KubeWatches:
        jitter = rng or random.Random()  # noqa: S311
        return KubeWatches(
            transport, settings.scheduler_name, emit, clock, jitter, on_undecoded=on_undecoded, seen=seen
        )

    return watches


def _config(settings: Settings, slurm: SlurmClient, slurm_user: str, leaving: str) -> Config:
    """The scheduler's configuration.  During an uninstall (`leaving`), pods that bypass Slurm are not ended."""
    accounting = slurm.discovery is not None and slurm.discovery.accounting
    config = settings.config(accounting=accounting, slurm_user=slurm_user)
    return replace(config, leaving=leaving, bypass="warn") if leaving else config


async def run(
    settings: Settings,
    path: str = "",
    reread: Callable[[], Settings] | None = None,
    act: Callable[[Clusters, Lease | None, asyncio.Event], Awaitable[None]] | None = None,
    leaving: str = "",
) -> None:
    """Run until SIGTERM or SIGINT.  Raises ConfigError for a mistake that waiting does not mend.

    path, reread   the settings file, and a function that reads it again; without them the policy never changes
    act            called once both clusters have answered, runs until the event is set; None: schedule pods
    leaving        as the field of Config
    """
    checks.check_tuning(settings)
    bearers = Bearers.of(settings.http_token_file, settings.http_nodes_token_file)
    signalled = asyncio.Event()

    def stop() -> None:
        notify(STOPPING)
        signalled.set()

    with stopping.listening(stop):
        async with AsyncExitStack() as stack:
            if (clusters := await _connected(settings, bearers, stack, signalled)) is None:
                log.info("stopped before both clusters had answered")
                return
            clusters.leaving = leaving
            if path and reread is not None:
                clusters.file = PolicyFile(path, settings, reread, clusters.slurm_user, clusters.clock)
            clusters.watch_rights(stack)
            clusters.measure()
            _in_background(stack, _notify_ready(clusters.starting), "notify")
            _tune_gc()
            await (act or _schedule)(clusters, await clusters.lease(), signalled)


async def _connected(
    settings: Settings, bearers: Bearers, stack: AsyncExitStack, signalled: asyncio.Event
) -> Clusters | None:
    """Answer HTTP, and wait for both clusters; None if a signal ends the process before they answer.

    Raises ConfigError for a mistake that waiting does not mend.
    """
    clock = SlewedClock()
    telemetry = Telemetry(clock=clock, recent=TRACES)
    measure_clock(clock, telemetry)
    stack.callback(telemetry.close)
    connections = _connections(settings, stack, clock, telemetry)
    waiting = Waiting()
    starting = Starting(waiting.reasons, connections.tokens.bridges, telemetry, clock, bearers)
    measure_lead(lambda: starting.leads(), telemetry)
    if (address := settings.http_address) is not None:
        runner = await starting.serve(*address)
        stack.push_async_callback(runner.cleanup)
    _watch_credentials(connections, starting, telemetry)
    if (slurm_user := await _wait_for_clusters(connections, settings, waiting, signalled)) is None:
        return None
    _report_tokens(connections.tokens, settings, slurm_user, clock())
    transport, kube = await connections.transport(), await connections.kube()
    return Clusters(settings, connections, transport, kube, clock, telemetry, starting, bearers, slurm_user)


def _connections(settings: Settings, stack: AsyncExitStack, clock: SlewedClock, telemetry: Telemetry) -> Connections:
    """The clients of the bridge; Slurm's tokens and client are made, and no cluster is asked.  Raises ConfigError."""
    connections = Connections(
        settings, stack, clock=clock, hooks=telemetry, pool_size=settings.slurm_connections, poll_apart=True
    )
    if (acting := connections.tokens.acting) is not None:
        acting.check(clock())
    _ = connections.slurm
    return connections


async def _wait_for_clusters(
    connections: Connections, settings: Settings, waiting: Waiting, signalled: asyncio.Event
) -> str | None:
    """Wait for both clusters.  Returns SlurmUser ("": not known); None if a signal ends the process before they answer."""
    kube, slurm = await connections.kube(), connections.slurm
    server = (await connections.transport()).access.server
    reached = waiting.both(
        lambda: checks.check_kubernetes(kube, server),
        lambda: checks.check_slurm(slurm, settings, connections.tokens.own.user),
    )
    if (found := await unless(signalled, reached)) is None:
        return None
    version, discovery = found
    log.info("Kubernetes %s at %s", version, server)
    log.info(
        "Slurm %s (%s), cluster %s, at %s", discovery.version, discovery.api, discovery.cluster, settings.slurm_url
    )
    return discovery.slurm_user


def _credential_notes(connections: Connections) -> list[str]:
    return [why for why in connections.troubles().values() if why]


def _watch_credentials(connections: Connections, starting: Starting, telemetry: Telemetry) -> None:
    """Show on /readyz and in a metric that renewed tokens, credentials or TLS files cannot be used."""
    starting.notes = lambda: _credential_notes(connections)
    telemetry.gauge(
        "slurm_bridge_credentials_rejected",
        "1 while a renewed token, renewed credentials or TLS files for that side cannot be used",
        lambda: [(1.0 if why else 0.0, {"side": side.value}) for side, why in connections.troubles().items()],
    )


def _report_tokens(tokens: Tokens, settings: Settings, slurm_user: str, now: float) -> None:
    """Log what the tokens do not allow."""
    if (lacking := checks.token_lacks_node_rights(settings, tokens.for_nodes.user, slurm_user)) is not None:
        log.warning("%s", lacking)
    if (users := tokens.users) is not None:
        for sentence in checks.users_without_token(users, settings, now):
            log.warning("%s", sentence)


@dataclass(slots=True)
class Clusters:
    """The connections to both clusters.  `bridge` makes a bridge between them, each time that this replica begins to lead.

    bearers          as in Health
    slurm_user       as in Bridge
    file             the settings file, from which the policy is read again; None: the policy never changes
    leaving          as the field of Config
    rejection        why Slurm rejected the token of an action, a sentence (executor.py); "": it rejected none
    """

    settings: Settings
    connections: Connections
    transport: HttpTransport
    kube: KubeClient
    clock: Callable[[], float]
    telemetry: Telemetry
    starting: Starting
    bearers: Bearers
    slurm_user: str
    file: PolicyFile | None = None
    leaving: str = ""
    guard: Guard = field(default_factory=lambda: Guard(on=True))
    rights: RightsMonitor = field(init=False)
    health: Health | None = None
    rejection: Callable[[], str] = lambda: ""

    def __post_init__(self) -> None:
        self.rights = RightsMonitor(self.kube, clock=self.clock)
        self.kube.on_forbidden = self.rights.note_refused

    def watch_rights(self, stack: AsyncExitStack) -> None:
        """Ask for the rights from time to time, until `stack` closes."""
        _in_background(stack, restart_on_error("rights", self.rights.run, self.guard), "rights")

    async def lease(self) -> Lease | None:
        """The Lease of the settings, with connections of its own: a burst of calls does not delay a renewal."""
        if self.settings.lease is None:
            return None
        transport = await self.connections.another_transport()
        return Lease(transport, self.settings.lease.terms(os.environ), on_wrong=log.warning)

    def measure(self) -> None:
        """Register the metrics that outlive one bridge."""
        measure_rights(self.rights, self._gauge)
        if self.file is not None:
            measure_policy(self.file, self._gauge)
        if (users := self.connections.tokens.users) is not None:
            measure_users(users, self._gauge)

    def _gauge(self, name: str, help_text: str, values: Callable[[], Values]) -> None:
        """Register a gauge that is left out while no bridge acts: only an acting bridge keeps its value up to date."""
        self.telemetry.gauge(name, help_text, lambda: values() if self.starting.health is not None else [])

    def bridge(self, mirror: Mirror | None = None, lease: Lease | None = None) -> Bridge:
        """A new bridge; from now on /readyz and the metrics show this bridge."""
        bridge = Bridge(
            self._current_settings,
            self.kube,
            self.connections.slurm,
            self.clock,
            self.telemetry,
            on_undecodable=self.telemetry.on_undecodable(Side.KUBERNETES),
            on_event_dropped=self.telemetry.on_event_dropped,
            guard=self.guard,
            mirror=mirror,
            leads=lease.holds if lease is not None else lambda: True,
            slurm_user=self.slurm_user,
            leaving=self.leaving,
            traced=self.telemetry.traces,
        )
        if self.file is not None:
            bridge.follow(self.file)
        self.rights.follow(bridge.world, bridge.loop.emit)
        self.transport.on_answered(lambda: bridge.loop.emit(CallsAnswered(self.clock())))
        self._show(bridge, lease)
        return bridge

    def _show(self, bridge: Bridge, lease: Lease | None) -> None:
        """From now on /readyz and the metrics show this bridge."""
        self.starting.leads = lease.holds if lease is not None else lambda: True
        self.rejection = bridge.executor.rejection
        if self.health is None:
            self.health = Health(
                bridge.loop,
                self.connections.tokens.bridges,
                self.telemetry,
                self.clock,
                self.bearers,
                degraded=self._degraded,
                lease_trouble=(lambda: lease.trouble) if lease is not None else (lambda: ""),
                calls_trouble=self.transport.trouble,
            )
        self.health.follow(bridge.loop)
        self.starting.health = self.health

    @property
    def _current_settings(self) -> Settings:
        """The settings, with the policy that was read last."""
        return self.file.settings if self.file is not None else self.settings

    def _degraded(self, world: World) -> list[str]:
        settings, users = self._current_settings, self.connections.tokens.users
        about_file = self.file.notes(self.clock()) if self.file is not None else []
        about_users = checks.users_without_token(users, settings, self.clock()) if users is not None else []
        rejected = [why] if (why := self.rejection()) else []
        about_access = [*self.rights.sentences(), *_credential_notes(self.connections), *rejected]
        return [*policy_trouble(settings, world), *about_file, *about_users, *about_access]

    def replica(self, lease: Lease) -> Replica:
        """One of several replicas.  From now on each write requires that this replica holds the lease."""
        self.connections.let_write(lease.holds)
        watches = watches_of(self.settings, self.transport, self.clock)

        def mirror() -> Mirror:
            made = Mirror(watches)
            if self.health is not None:
                self.health.stand_by()
            self.starting.health, self.starting.standby = None, StandingBy(lease, made)
            return made

        def watching(mirror: Mirror) -> asyncio.Task[None]:
            return asyncio.create_task(
                restart_on_error("watches of Kubernetes", mirror.run, self.guard), name="watches"
            )

        return Replica(lease, mirror, watching, lambda filled: self.bridge(filled, lease), self.clock)


def _tune_gc() -> None:
    """Collect garbage rarely, and never the objects that exist now: ten thousand pods are a million long-lived objects.

    A thirtieth of the present objects is garbage, and is kept: to find it would make the start 0.05 s longer.
    """
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    gc.freeze()


async def _notify_ready(starting: Starting) -> None:
    """Notify the service manager when the bridge is ready for the first time."""
    while starting.not_ready():  # noqa: ASYNC110 - it is asked, as by a probe
        await asyncio.sleep(READY_ASKED_S)
    notify(READY)


def _in_background(stack: AsyncExitStack, work: Coroutine[object, object, None], name: str) -> None:
    """Run the coroutine as a task; the task is cancelled when `stack` closes."""
    task = asyncio.create_task(work, name=name)

    async def end() -> None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    stack.push_async_callback(end)


async def _schedule(clusters: Clusters, lease: Lease | None, signalled: asyncio.Event) -> None:
    if lease is not None:
        await clusters.replica(lease).run(signalled)
    else:
        await until_signalled(clusters.bridge(), signalled)


async def until_signalled(bridge: Bridge, signalled: asyncio.Event) -> None:
    """Run the bridge until the event is set, then let it finish its calls."""
    task, stop_asked = asyncio.create_task(bridge.run(), name="bridge"), asyncio.create_task(signalled.wait())
    await asyncio.wait((task, stop_asked), return_when=asyncio.FIRST_COMPLETED)
    stop_asked.cancel()
    if not task.done():
        left = await bridge.loop.finish(stopping.CALLS_S)
        task.cancel()
        stopping.log_stopped(left, leaving=bool(bridge.world.config.leaving))
    with contextlib.suppress(asyncio.CancelledError):
        await task
