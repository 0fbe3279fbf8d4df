"""Start, wire, stop: one asyncio.TaskGroup, from settings to a running bridge and back.

`Bridge` is the bridge between any two transports; the simulated clusters use it as it is.  `run` finds the two real ones
and checks at start what an admin would want to know at once: a mistake is one sentence and exit code 2, not a log to be
searched.  What breaks later is said on the pods and in /readyz, and the bridge goes on when it is mended.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeVar, cast

from bridge.errors import ConfigError, FarSideError, Refused, said
from bridge.executor import Executor
from bridge.health import Health
from bridge.kube import auth
from bridge.kube.client import KubeClient
from bridge.kube.transport import HttpTransport
from bridge.kube.transport import Transport as KubeTransport
from bridge.kube.watch import KubeWatches
from bridge.loop import Loop, Observer
from bridge.settings import Settings
from bridge.slurm import survey
from bridge.slurm.client import Discovery, SlurmClient
from bridge.slurm.poll import Poller
from bridge.slurm.pool import HttpPool
from bridge.slurm.token import FileToken, LiteralToken, TokenSource
from bridge.slurm.transport import DEFAULT_DEADLINE_S
from bridge.telemetry import Telemetry
from scheduler.events import Event
from scheduler.phase import Phase
from scheduler.policy import ANY
from scheduler.world import World

log = logging.getLogger("slurm-bridge")

_A = TypeVar("_A")
_B = TypeVar("_B")

# What the bridge does in Kubernetes: verb, resource, API group, subresource.
RIGHTS = (
    ("list", "pods", "", ""),
    ("watch", "pods", "", ""),
    ("delete", "pods", "", ""),
    ("patch", "pods", "", ""),
    ("patch", "pods", "", "status"),
    ("create", "pods", "", "binding"),
    ("create", "pods", "", "eviction"),
    ("list", "nodes", "", ""),
    ("watch", "nodes", "", ""),
    ("list", "namespaces", "", ""),
    ("watch", "namespaces", "", ""),
    ("patch", "persistentvolumeclaims", "", ""),
    ("create", "events", "", ""),
    ("patch", "events", "", ""),
)
# What it does besides, where nodes are labelled to be registered in Slurm; it starts without.
NODE_RIGHTS = (
    ("get", "nodes", "", ""),
    ("patch", "nodes", "", ""),
    ("patch", "nodes", "", "status"),
)


class Bridge:
    """Everything between the two transports.

    clock    epoch seconds; one clock for all of it
    chance   where jitter comes from
    """

    def __init__(
        self,
        settings: Settings,
        kube: KubeClient,
        kube_transport: KubeTransport,
        slurm: SlurmClient,
        clock: Callable[[], float],
        observer: Observer,
        chance: random.Random | None = None,
    ) -> None:
        accounting = slurm.discovery is not None and slurm.discovery.accounting
        self.world = World(settings.config(accounting=accounting), started=clock())
        self.poller = Poller(
            slurm,
            self._emit,
            clock,
            waiting=lambda: bool(self.world.by_phase[Phase.QUEUED]),
            allocating=lambda: any(self.world.immediate_under_way.values()),
            interval_s=settings.poll_interval_s,
            nodes_interval_s=settings.nodes_interval_s,
        )
        self.executor = Executor(kube, slurm, self._emit, clock, self.poller.poll_nodes)
        self.loop = Loop(self.world, self.executor, clock, observer)
        self.watches = KubeWatches(
            kube_transport,
            settings.scheduler_name,
            self._emit,
            clock,
            chance or random.Random(),  # noqa: S311 - jitter
        )

    def _emit(self, event: Event) -> None:
        self.loop.emit(event)

    async def run(self) -> None:
        """For ever; cancel it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watches.run(), name="watches")
            group.create_task(self.poller.run(), name="poller")
            group.create_task(self.loop.run(), name="loop")
            group.create_task(self.executor.post_events(), name="events")


@dataclass(frozen=True, slots=True)
class _Clock:
    """Epoch seconds that never jump: the machine's clock at start, and what has passed since."""

    offset: float

    def __call__(self) -> float:
        return time.monotonic() + self.offset


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.  Raises ConfigError where it cannot start."""
    _check_patience(settings)
    clock = _Clock(time.time() - time.monotonic())
    async with AsyncExitStack() as stack:
        telemetry = Telemetry(clock=clock)
        stack.callback(telemetry.close)
        tokens = token_source(settings, clock())
        acting = _acting_tokens(settings, clock())
        slurm = _slurm_client(settings, tokens, acting, telemetry, clock, stack)
        access = await auth.load(settings.kubeconfig or None)
        transport = HttpTransport(access)
        stack.push_async_callback(transport.close)
        kube = KubeClient(transport, settings.scheduler_name, clock, telemetry.on_call("kubernetes"))
        version, found = await _both(check_kubernetes(kube, access.server), check_slurm(slurm, settings, tokens.user))
        bridge = Bridge(settings, kube, transport, slurm, clock, telemetry)
        health = Health(bridge.loop, [tokens, acting] if acting is not None else [tokens], telemetry, clock)
        if (address := settings.http_address) is not None:
            runner = await health.serve(*address)
            stack.push_async_callback(runner.cleanup)
        log.info("Kubernetes %s at %s", version, access.server)
        log.info("Slurm %s (%s), cluster %s, at %s", found.release, found.api, found.cluster, settings.slurm_url)
        _tune_gc()
        await _until_signalled(bridge)


async def _both(one: Awaitable[_A], other: Awaitable[_B]) -> tuple[_A, _B]:
    """At the same time, and to the end; the first's error before the other's."""
    a, b = await asyncio.gather(one, other, return_exceptions=True)
    for found in (a, b):
        if isinstance(found, BaseException):
            raise found
    return cast(_A, a), cast(_B, b)


def _check_patience(settings: Settings) -> None:
    """What settle and quiet period promise holds only if they outlast the longest call (ARCHITECTURE 3, 10)."""
    tuning = settings.tuning.tuning()
    for key in ("settle_s", "quiet_s"):
        if getattr(tuning, key) < DEFAULT_DEADLINE_S:
            raise ConfigError(f"tuning.{key}: must be at least {DEFAULT_DEADLINE_S:g}, the longest a call may take.")


def token_source(settings: Settings, now: float) -> TokenSource:
    """The bridge's own token.  Raises ConfigError where there is none, or it has ended."""
    if settings.slurm_token_file:
        return _token_file(settings.slurm_token_file, "--slurm-token-file", now)
    if not (literal := os.environ.get("SLURM_JWT")):
        raise ConfigError(
            "no Slurm token is named.",
            "Name a file with --slurm-token-file, made by `scontrol token username=slurm lifespan=900` or better by "
            "something that renews it.",
        )
    tokens = LiteralToken(literal)
    tokens.check(now)
    return tokens


def _token_file(path: str, option: str, now: float) -> FileToken:
    tokens = FileToken(path, option=option)
    tokens.check(now)
    return tokens


def _acting_tokens(settings: Settings, now: float) -> TokenSource | None:
    """The token that acts for users, where it is another.  Raises ConfigError as `token_source`."""
    path = settings.slurm_acting_token_file
    return _token_file(path, "slurm_acting_token_file", now) if path else None


def _slurm_client(
    settings: Settings,
    tokens: TokenSource,
    acting: TokenSource | None,
    telemetry: Telemetry,
    clock: _Clock,
    stack: AsyncExitStack,
) -> SlurmClient:
    if not settings.slurm_url:
        raise ConfigError("no Slurm to talk to: name slurmrestd with --slurm-url http://HOST:PORT.")
    pool = HttpPool(settings.slurm_url, connections=settings.slurm_connections, on_unasked=telemetry.unasked)
    polls = HttpPool(settings.slurm_url, connections=1, on_unasked=telemetry.unasked)
    stack.callback(pool.close)
    stack.callback(polls.close)
    on_call = telemetry.on_call("slurm")
    return SlurmClient(pool, tokens, polls=polls, acting_tokens=acting, on_call=on_call, clock=clock)


async def check_kubernetes(kube: KubeClient, server: str) -> str:
    """Reachable, and with the rights that the bridge needs; its version.  Raises ConfigError."""
    try:
        version = await kube.server_version()
        may = await asyncio.gather(
            *(kube.can_i(verb, resource, group=group, subresource=sub) for verb, resource, group, sub in RIGHTS)
        )
        lacking = [
            f"{verb} {resource}{'/' + sub if sub else ''}"
            for (verb, resource, _, sub), granted in zip(RIGHTS, may, strict=True)
            if not granted
        ]
    except FarSideError as error:
        raise ConfigError(f"kubeconfig's server {server}: {said(error)}") from None
    if lacking:
        raise ConfigError(
            f"Kubernetes: this user may not {', '.join(lacking)} in all namespaces. "
            "Give it the ClusterRole of manifests/rbac.yaml."
        )
    return version


async def check_slurm(slurm: SlurmClient, settings: Settings, user: str) -> Discovery:
    """Reachable, of a known version, telling `user` of all jobs, and with the partitions of the policy.  Raises ConfigError.

    slurmctld may be down while slurmrestd answers: that is waited for, not refused.
    """
    found = None
    try:
        found = await slurm.discover()
        # A ping is answered even to a token that nothing else accepts.
        partitions, conf = await _both(slurm.partitions(), survey.configuration(slurm))
        known = {partition.name for partition in partitions}
        if conf is not None and not await survey.sees_all_jobs(slurm, conf, user):
            raise ConfigError(
                f"Slurm hides the jobs of other users from {user} (PrivateData=jobs), also those that the bridge makes for "
                f"them. Use a token of {conf.slurm_user}, or: sacctmgr modify user {user} set adminlevel=operator."
            )
    except FarSideError as error:
        if found is not None and not found.responding and not isinstance(error, Refused):
            return found
        raise ConfigError(f"slurm_url {settings.slurm_url}: {said(error)}") from None
    for name in sorted(_named_partitions(settings) - known):
        raise ConfigError(f'policy: Slurm has no partition "{name}". It has: {", ".join(sorted(known))}.')
    return found


def _named_partitions(settings: Settings) -> set[str]:
    policy = settings.policy
    tenants = [*policy.rules, *([policy.default] if policy.default else [])]
    named = {name for tenant in tenants for name in (tenant.partition.default, *tenant.partition.allowed)}
    return named - {"", ANY}


def _tune_gc() -> None:
    """Ten thousand pods are a million objects that live long: look at them rarely, and never at what is there now.

    Of that a thirtieth is garbage; to find it would take a twentieth of a second of the start.
    """
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    gc.freeze()


async def _until_signalled(bridge: Bridge) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(bridge.run(), name="bridge")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log.info("stopped; pods and jobs live on")
