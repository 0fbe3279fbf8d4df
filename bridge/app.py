"""Start, wire, stop: one asyncio.TaskGroup, from settings to a running bridge and back.

`Bridge` is the bridge between any two transports; the simulated clusters use it as it is.  `run` finds the two real ones,
waits for them (bridge/starting.py), and checks what an admin would want to know at once: a mistake is one sentence and exit
code 2, not a log to be searched.  The pods and /readyz report a later failure, and the bridge goes on once it
is mended.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import random
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from typing import TypeVar, cast

from bridge import stopping
from bridge.clock import SlewedClock
from bridge.errors import AccountingAway, ConfigError, FarSideError, NotYet, Refused, Unauthorized, said
from bridge.executor import Executor
from bridge.guard import Guard
from bridge.health import Health, Starting, measure_clock
from bridge.http_access import BearerFile
from bridge.kube import auth
from bridge.kube.client import KubeClient
from bridge.kube.transport import HttpTransport
from bridge.kube.transport import Transport as KubeTransport
from bridge.kube.watch import KubeWatches
from bridge.loop import Loop, Observer
from bridge.settings import Settings, Tenant
from bridge.slurm import survey
from bridge.slurm.client import Discovery, SlurmClient
from bridge.slurm.poll import Poller
from bridge.slurm.pool import HttpPool
from bridge.slurm.tls import TlsFiles
from bridge.slurm.token import FileToken, LiteralToken, TokenSource
from bridge.slurm.transport import DEFAULT_DEADLINE_S
from bridge.starting import Waiting, unless
from bridge.telemetry import Telemetry
from scheduler.events import Event
from scheduler.model import Undecoded
from scheduler.phase import Phase
from scheduler.policy import ANY
from scheduler.world import World

log = logging.getLogger("slurm-bridge")

_A = TypeVar("_A")
_B = TypeVar("_B")

AGAIN_S = 2.0  # a task that ended by an error of our own begins anew after so long
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
    on_left_out   told of each object of Kubernetes that cannot be decoded: what, which, why
    guard    whether errors of our own are contained, and where they are told
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
        on_left_out: Callable[[str, str, str], None] = lambda _what, _which, _why: None,
        guard: Guard | None = None,
    ) -> None:
        self.guard = guard or Guard()
        accounting = slurm.discovery is not None and slurm.discovery.accounting
        self.world = World(settings.config(accounting=accounting), started=clock(), guarded=self.guard.on)
        self.poller = Poller(
            slurm,
            self._emit,
            clock,
            waiting=lambda: bool(self.world.by_phase[Phase.QUEUED]),
            allocating=lambda: any(self.world.immediate_under_way.values()),
            accounting_lost=lambda: self.world.accounting_lost is not None,
            interval_s=settings.poll_interval_s,
            nodes_interval_s=settings.nodes_interval_s,
        )
        self.executor = Executor(kube, slurm, self._emit, clock, self.poller.poll_nodes, self.guard)
        self.loop = Loop(self.world, self.executor, clock, observer, self.guard)
        self.watches = KubeWatches(
            kube_transport,
            settings.scheduler_name,
            self._emit,
            clock,
            chance or random.Random(),  # noqa: S311 - jitter
            on_undecoded=self._undecoded,
        )
        self._left_out = on_left_out

    def _undecoded(self, what: Undecoded) -> None:
        which = "/".join(filter(None, (what.namespace, what.name)))
        self._left_out(f"{what.kind}s", which, what.why)
        self.executor.say_undecoded(what)

    def _emit(self, event: Event) -> None:
        self.loop.emit(event)

    async def run(self) -> None:
        """For ever; cancel it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lives_on("watches of Kubernetes", self.watches.run), name="watches")
            group.create_task(self._lives_on("poller of Slurm", self.poller.run), name="poller")
            group.create_task(self.loop.run(), name="loop")
            group.create_task(self._lives_on("posting of events", self.executor.post_events), name="events")

    async def _lives_on(self, what: str, task: Callable[[], Awaitable[None]]) -> None:
        """An error of our own ends none of them for good."""
        while True:
            try:
                await task()
            except Exception as error:  # noqa: BLE001 - contained to this task, or raised
                self.guard.caught(error, "task", what)
            await asyncio.sleep(AGAIN_S)


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.  Raises ConfigError for a mistake that no waiting mends."""
    _check_patience(settings)
    bearer = _bearer(settings)
    clock = SlewedClock()
    signalled = asyncio.Event()
    with stopping.listening(signalled.set):
        async with AsyncExitStack() as stack:
            telemetry = Telemetry(clock=clock)
            measure_clock(clock, telemetry)
            stack.callback(telemetry.close)
            tokens = token_source(settings, clock())
            acting = _acting_tokens(settings, clock())
            slurm = _slurm_client(settings, tokens, acting, telemetry, clock, stack)
            both = [tokens, acting] if acting is not None else [tokens]
            waiting = Waiting()
            starting = Starting(waiting.reasons, both, telemetry, clock, bearer)
            if (address := settings.http_address) is not None:
                runner = await starting.serve(*address)
                stack.push_async_callback(runner.cleanup)
            access = await auth.load(settings.kubeconfig or None)
            transport = HttpTransport(access)
            stack.push_async_callback(transport.close)
            kube = KubeClient(transport, settings.scheduler_name, clock, telemetry.on_call("kubernetes"))
            reached = waiting.both(
                lambda: check_kubernetes(kube, access.server), lambda: check_slurm(slurm, settings, tokens.user)
            )
            if (found := await unless(signalled, reached)) is None:
                log.info("stopped before both clusters had answered")
                return
            log.info("Kubernetes %s at %s", found[0], access.server)
            log.info(
                "Slurm %s (%s), cluster %s, at %s", found[1].release, found[1].api, found[1].cluster, settings.slurm_url
            )
            left_out = telemetry.left_out("kubernetes")
            guard = Guard(on=True)
            bridge = Bridge(settings, kube, transport, slurm, clock, telemetry, on_left_out=left_out, guard=guard)
            partly = functools.partial(policy_trouble, settings)
            starting.health = Health(bridge.loop, both, telemetry, clock, bearer, partly=partly)
            _tune_gc()
            await _until_signalled(bridge, signalled)


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


def _bearer(settings: Settings) -> BearerFile | None:
    """Raises ConfigError if the file holds no token."""
    if not settings.http_token_file:
        return None
    bearer = BearerFile(settings.http_token_file)
    bearer.token()
    return bearer


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


def slurm_pool(settings: Settings, connections: int, on_unasked: Callable[[], None] = lambda: None) -> HttpPool:
    """Connections to the slurmrestd of the settings.  Raises ConfigError for TLS files that cannot be used."""
    tls = TlsFiles(settings.slurm_ca_file, settings.slurm_cert_file, settings.slurm_key_file)
    return HttpPool(settings.slurm_url, connections=connections, tls=tls, on_unasked=on_unasked)


def _slurm_client(
    settings: Settings,
    tokens: TokenSource,
    acting: TokenSource | None,
    telemetry: Telemetry,
    clock: SlewedClock,
    stack: AsyncExitStack,
) -> SlurmClient:
    if not settings.slurm_url:
        raise ConfigError("no Slurm to talk to: name slurmrestd with --slurm-url http://HOST:PORT.")
    pool = slurm_pool(settings, settings.slurm_connections, telemetry.unasked)
    polls = slurm_pool(settings, 1, telemetry.unasked)
    stack.callback(pool.close)
    stack.callback(polls.close)
    on_call = telemetry.on_call("slurm")
    left_out = telemetry.left_out("slurm")
    return SlurmClient(
        pool, tokens, polls=polls, acting_tokens=acting, on_call=on_call, on_left_out=left_out, clock=clock
    )


def _at_start(where: str, error: FarSideError) -> ConfigError:
    """A refused token or right is a mistake; anything else may pass."""
    kind = ConfigError if isinstance(error, Unauthorized) else NotYet
    return kind(f"{where}: {said(error)}")


async def check_kubernetes(kube: KubeClient, server: str) -> str:
    """Reachable, and with the rights that the bridge needs; its version.

    Raises NotYet where waiting may mend it, else ConfigError.
    """
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
        raise _at_start(f"kubeconfig's server {server}", error) from None
    if lacking:
        raise ConfigError(
            f"Kubernetes: this user may not {', '.join(lacking)} in all namespaces. "
            "Give it the ClusterRole of manifests/rbac.yaml."
        )
    return version


async def check_slurm(slurm: SlurmClient, settings: Settings, user: str) -> Discovery:
    """Reachable, of a known version, telling `user` of all jobs, and with the partitions of the policy.

    Raises NotYet where waiting may mend it, else ConfigError.

    slurmctld may be down while slurmrestd answers: that is waited for, not refused.
    """
    found = None
    try:
        found = await slurm.discover()
        # A ping is answered even to a token that nothing else accepts.
        partitions, conf = await _both(_partitions(slurm), survey.configuration(slurm))
        if conf is not None and not await survey.sees_all_jobs(slurm, conf, user):
            raise ConfigError(
                f"Slurm hides the jobs of other users from {user} (PrivateData=jobs), also those that the bridge makes for "
                f"them. Use a token of {conf.slurm_user}, or: sacctmgr modify user {user} set adminlevel=operator."
            )
        if trouble := privileged_user(settings, conf.slurm_user if conf is not None else user):
            raise ConfigError(trouble)
    except FarSideError as error:
        if found is not None and not found.responding and not isinstance(error, Refused):
            return found
        raise _at_start(f"slurm_url {settings.slurm_url}", error) from None
    if partitions is not None and (missing := lacking_partition(settings, partitions)):
        raise ConfigError(missing)
    return found


def privileged_user(settings: Settings, slurm_user: str) -> str:
    """That the policy makes pods the user by whom Slurm itself runs, as a sentence; "" where it does not.

    slurm_user   SlurmUser of slurm.conf; of a Slurm that does not tell it, the user of the bridge's token, who acts as others
    """
    name = slurm_user.partition("(")[0]
    if not name or name.casefold() not in {tenant.user.casefold() for tenant in _tenants(settings)}:
        return ""
    return (
        f'policy: "{name}" is the user by whom Slurm runs (SlurmUser), who may do anything to any job; map namespaces to '
        "ordinary users."
    )


async def _partitions(slurm: SlurmClient) -> frozenset[str] | None:
    """Their names; None while slurmdbd is away, without which slurmrestd does not tell them."""
    try:
        return frozenset(partition.name for partition in await slurm.partitions())
    except AccountingAway:
        return None


def lacking_partition(settings: Settings, known: Collection[str]) -> str:
    """That the policy names a partition which Slurm does not have, as a sentence; "" where it names none."""
    lacking = sorted(_named_partitions(settings).difference(known))
    return f'policy: Slurm has no partition "{lacking[0]}". It has: {", ".join(sorted(known))}.' if lacking else ""


def policy_trouble(settings: Settings, world: World) -> list[str]:
    """What the start could not check of the policy, because partitions were not told then."""
    found = lacking_partition(settings, world.partitions) if world.partitions else ""
    return [found] if found else []


def _named_partitions(settings: Settings) -> set[str]:
    tenants = _tenants(settings)
    named = {name for tenant in tenants for name in (tenant.partition.default, *tenant.partition.allowed)}
    return named - {"", ANY}


def _tenants(settings: Settings) -> list[Tenant]:
    policy = settings.policy
    return [*policy.rules, *([policy.default] if policy.default else [])]


def _tune_gc() -> None:
    """Ten thousand pods are a million objects that live long: look at them rarely, and never at what is there now.

    Of that a thirtieth is garbage; to find it would take a twentieth of a second of the start.
    """
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    gc.freeze()


async def _until_signalled(bridge: Bridge, signalled: asyncio.Event) -> None:
    task, told = asyncio.create_task(bridge.run(), name="bridge"), asyncio.create_task(signalled.wait())
    await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not task.done():
        left = await bridge.loop.finish(stopping.CALLS_S)
        task.cancel()
        unanswered = f"; {left} calls had no answer yet" if left else ""
        log.info("stopped; pods and jobs live on%s", unanswered)
    with contextlib.suppress(asyncio.CancelledError):
        await task
