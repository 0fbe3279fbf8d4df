"""Start, wire, stop: one asyncio.TaskGroup, from settings to a running bridge and back.

`Bridge` is the bridge between any two transports; the simulated clusters use it as it is.  `run` finds the two real ones,
waits for them (bridge/starting.py), and checks what an admin would want to know at once: a mistake is one sentence and exit
code 2, not a log to be searched.  The pods and /readyz report a later failure, and the bridge goes on once it
is mended.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from bridge import rights, stopping
from bridge.clock import SlewedClock
from bridge.errors import AccountingAway, ConfigError, FarSideError, NotYet, Refused, Unauthorized, said
from bridge.executor import Executor
from bridge.guard import Guard
from bridge.health import Health, StandingBy, Starting, measure_clock, measure_lead, measure_rights
from bridge.http_access import BearerFile
from bridge.kube import auth
from bridge.kube.client import KubeClient
from bridge.kube.lease import Lease
from bridge.kube.mirror import Mirror
from bridge.kube.transport import HttpTransport
from bridge.kube.transport import Transport as KubeTransport
from bridge.kube.versions import SeenVersions
from bridge.kube.watch import KubeWatches
from bridge.loop import Loop, Observer
from bridge.notify import READY, STOPPING, notify
from bridge.policy_file import PolicyFile, lacking_partition, policy_trouble, privileged_user
from bridge.replica import Replica
from bridge.settings import Settings
from bridge.slurm import admin_reads
from bridge.slurm.client import Discovery, SlurmClient
from bridge.slurm.poll import Poller
from bridge.slurm.pool import HttpPool
from bridge.slurm.tls import TlsFiles
from bridge.slurm.token import FileToken, LiteralToken, TokenSource
from bridge.slurm.transport import DEFAULT_DEADLINE_S
from bridge.slurm.user_tokens import SETTING, UserTokens, follow
from bridge.starting import Waiting, unless
from bridge.telemetry import Telemetry
from scheduler.apply.events import new_world
from scheduler.events import Event, Side
from scheduler.model.kubernetes import Undecoded
from scheduler.policy.templates import is_template
from scheduler.state.phase import Phase
from scheduler.state.world import World

log = logging.getLogger("slurm-bridge")

_A = TypeVar("_A")
_B = TypeVar("_B")

READY_ASKED_S = 0.2  # between two questions whether it is ready, until it is for the first time
MOST_TOLD = 5  # users of whom no token can be used: so many are named
AGAIN_S = 2.0  # a task that ended by an error of our own begins anew after so long


class Bridge:
    """Everything between the two transports.

    clock    epoch seconds; one clock for all of it
    chance   where jitter comes from
    on_left_out   told of each object of Kubernetes that cannot be decoded: what, which, why
    guard    whether errors of our own are contained, and where they are told
    mirror   of a replica that has just begun to lead: what its watches have told; None: the bridge watches by itself
    leads    whether this replica may act now
    slurm_user   by whom Slurm runs: nobody is mapped to that user; "": not known
    leaving  as of Config
    """

    def __init__(
        self,
        settings: Settings,
        kube: KubeClient,
        kube_transport: KubeTransport,
        slurm: SlurmClient,
        clock: Callable[[], float],
        observer: Observer,
        rng: random.Random | None = None,
        on_left_out: Callable[[str, str, str], None] = lambda _what, _which, _why: None,
        guard: Guard | None = None,
        mirror: Mirror | None = None,
        leads: Callable[[], bool] = lambda: True,
        slurm_user: str = "",
        leaving: str = "",
    ) -> None:
        self.guard = guard or Guard()
        accounting = slurm.discovery is not None and slurm.discovery.accounting
        config = settings.config(accounting=accounting, slurm_user=slurm_user)
        if leaving:
            config = replace(config, leaving=leaving, bypass="warn")
        self.world = new_world(config, started=clock(), guarded=self.guard.on)
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
        self.executor = Executor(kube, slurm, self._emit, clock, self.poller.poll_nodes, self.guard, leads)
        self.loop = Loop(self.world, self.executor, clock, observer, self.guard, leads)
        self._left_out = on_left_out
        self._clock = clock
        self._user_tokens = slurm.user_tokens
        self._mirror = mirror
        self._watches = watches_of(settings, kube_transport, clock, rng)(self._emit, self.undecoded)
        self._policy_file: PolicyFile | None = None

    def follow(self, file: PolicyFile) -> None:
        """Take the policy from that file whenever it changes."""
        self._policy_file = file

    def take_over(self, now: float, *, drained: bool) -> None:
        """Begin with what the mirror knows.  drained: as of Mirror.hand_over"""
        assert self._mirror is not None, "only a replica that stood by takes over"
        self._mirror.hand_over(self._emit, self.undecoded, now, drained=drained)

    def undecoded(self, what: Undecoded) -> None:
        """Tell of an object of Kubernetes that cannot be decoded."""
        which = "/".join(filter(None, (what.namespace, what.name)))
        self._left_out(f"{what.kind}s", which, what.why)
        self.executor.say_undecoded(what)

    def _emit(self, event: Event) -> None:
        self.loop.emit(event)

    async def run(self) -> None:
        """For ever; cancel it."""
        guard = self.guard
        async with asyncio.TaskGroup() as group:
            if self._mirror is None:
                group.create_task(lives_on("watches of Kubernetes", self._watches.run, guard), name="watches")
            group.create_task(lives_on("poller of Slurm", self.poller.run, guard), name="poller")
            group.create_task(self.loop.run(), name="loop")
            group.create_task(lives_on("posting of events", self.executor.post_events, guard), name="events")
            if (file := self._policy_file) is not None:
                read_anew = lives_on("settings file", lambda: file.follow(self._emit, self.world), guard)
                group.create_task(read_anew, name="settings")
            if (users := self._user_tokens) is not None:
                looks = lives_on("token files", lambda: follow(users, self._emit, self._clock), guard)
                group.create_task(looks, name="tokens")


async def lives_on(what: str, task: Callable[[], Awaitable[None]], guard: Guard) -> None:
    """Run the task for ever: an error of the bridge's own does not end it for good."""
    while True:
        try:
            await task()
        except Exception as error:  # noqa: BLE001 - contained to this task, or raised
            guard.caught(error, "task", what)
        await asyncio.sleep(AGAIN_S)


def watches_of(
    settings: Settings, transport: KubeTransport, clock: Callable[[], float], rng: random.Random | None = None
) -> Callable[[Callable[[Event], None], Callable[[Undecoded], None]], KubeWatches]:
    """What makes the watches of these settings, given where their events go and what they could not decode.

    No list of any of these watches is older than what another of them has told before.
    """
    seen = SeenVersions()

    def watches(emit: Callable[[Event], None], on_undecoded: Callable[[Undecoded], None]) -> KubeWatches:
        jitter = rng or random.Random()  # noqa: S311
        return KubeWatches(
            transport, settings.scheduler_name, emit, clock, jitter, on_undecoded=on_undecoded, seen=seen
        )

    return watches


async def run(
    settings: Settings,
    path: str = "",
    reread: Callable[[], Settings] | None = None,
    act: Callable[[Ends, Lease | None, asyncio.Event], Awaitable[None]] | None = None,
    leaving: str = "",
) -> None:
    """Run until SIGTERM or SIGINT.  Raises ConfigError for a mistake that no waiting mends.

    path, reread   the settings file, and how it is read anew when it changes; without them the policy stays as it is
    act            what is done between the two clusters until the event is set; None: pods are scheduled
    leaving        as of Config
    """
    _check_patience(settings)
    bearer = _bearer(settings)
    clock = SlewedClock()
    signalled = asyncio.Event()

    def stop() -> None:
        notify(STOPPING)
        signalled.set()

    with stopping.listening(stop):
        async with AsyncExitStack() as stack:
            telemetry = Telemetry(clock=clock)
            measure_clock(clock, telemetry)
            stack.callback(telemetry.close)
            tokens = token_source(settings, clock())
            acting = _acting_tokens(settings, clock())
            users = user_tokens(settings)
            tls = tls_files(settings)
            pools, slurm = _slurm_client(settings, tokens, acting, users, tls, telemetry, clock, stack)
            both = [tokens, acting] if acting is not None else [tokens]
            waiting = Waiting()
            starting = Starting(waiting.reasons, both, telemetry, clock, bearer)
            if (address := settings.http_address) is not None:
                runner = await starting.serve(*address)
                stack.push_async_callback(runner.cleanup)
            access = await auth.load(settings.kubeconfig or None)
            transport = HttpTransport(access)
            stack.push_async_callback(transport.close)
            kept = Kept(tls, access)
            starting.notes = kept.sentences
            telemetry.gauge(
                "slurm_bridge_credentials_rejected",
                "1 while renewed credentials or TLS files for that side cannot be used",
                kept.rejected,
            )
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
            if (lacking := without_node_rights(settings, (acting or tokens).user, found[1].slurm_user)) is not None:
                log.warning("%s", lacking)
            for sentence in tokenless(users, settings, clock()) if users is not None else ():
                log.warning("%s", sentence)
            if users is not None:
                telemetry.gauge(
                    "slurm_bridge_users_without_token",
                    "Slurm users whose token was of no use when it was last needed",
                    lambda: [(len(users.lost), {})],
                )
            guard = Guard(on=True)
            allowed = rights.HeldRights(kube, clock=clock)
            kube.on_forbidden = allowed.refused
            measure_rights(allowed, telemetry)
            stack.push_async_callback(
                _ended, asyncio.create_task(lives_on("rights", allowed.run, guard), name="rights")
            )
            slurm_user = found[1].slurm_user
            file = PolicyFile(path, settings, reread, slurm_user, clock) if path and reread is not None else None
            if file is not None:
                telemetry.gauge(
                    "slurm_bridge_policy_rejected",
                    "1 while the settings file as it stands cannot be used",
                    file.rejected,
                )
            ends = Ends(
                settings,
                kube,
                transport,
                slurm,
                pools,
                clock,
                telemetry,
                starting,
                both,
                kept,
                bearer,
                guard,
                allowed,
                slurm_user,
                file,
                leaving,
            )
            stack.push_async_callback(_ended, asyncio.create_task(_notify_ready(starting), name="notify"))
            _tune_gc()
            lease = None
            if settings.lease is not None:
                own = HttpTransport(access)  # a burst of calls does not hold up a renewal
                stack.push_async_callback(own.close)
                lease = Lease(own, settings.lease.terms(os.environ), on_wrong=log.warning)
            await (act or _schedule)(ends, lease, signalled)


@dataclass(frozen=True, slots=True)
class Kept:
    """Renewed credentials and TLS files that cannot be used, so that those before stay in use until these expire."""

    slurm: TlsFiles
    kubernetes: auth.Access

    def sentences(self) -> list[str]:
        """Why, of each side."""
        return [why for why in (self.slurm.trouble, self.kubernetes.trouble()) if why]

    def rejected(self) -> list[tuple[float, dict[str, str]]]:
        """For a gauge: 1 while there is something."""
        found = {Side.SLURM: self.slurm.trouble, Side.KUBERNETES: self.kubernetes.trouble()}
        return [(1.0 if why else 0.0, {"side": side.value}) for side, why in found.items()]


@dataclass(slots=True)
class Ends:
    """The two clusters as they were found, between which bridges are made: one, or one each time that a replica leads.

    tokens, bearer   as of Health
    kept             what of the credentials could not be renewed
    slurm_user       as of Bridge
    file             where the policy is read anew from; None: it stays as it is
    leaving          as of Config
    """

    settings: Settings
    kube: KubeClient
    transport: HttpTransport
    slurm: SlurmClient
    pools: Sequence[HttpPool]
    clock: Callable[[], float]
    telemetry: Telemetry
    starting: Starting
    tokens: Sequence[TokenSource]
    kept: Kept
    bearer: BearerFile | None
    guard: Guard
    allowed: rights.HeldRights
    slurm_user: str
    file: PolicyFile | None
    leaving: str = ""
    health: Health | None = None

    def bridge(self, mirror: Mirror | None = None, lease: Lease | None = None) -> Bridge:
        """A bridge, which /readyz and the metrics are about from now on."""
        bridge = Bridge(
            self.file.settings if self.file is not None else self.settings,
            self.kube,
            self.transport,
            self.slurm,
            self.clock,
            self.telemetry,
            on_left_out=self.telemetry.left_out("kubernetes"),
            guard=self.guard,
            mirror=mirror,
            leads=lease.holds if lease is not None else lambda: True,
            slurm_user=self.slurm_user,
            leaving=self.leaving,
        )
        if self.file is not None:
            bridge.follow(self.file)
        self.allowed.follow(bridge.world, bridge.loop.emit)
        if self.health is None:
            leads = (lambda: lease.trouble) if lease is not None else (lambda: "")
            self.health = Health(
                bridge.loop,
                self.tokens,
                self.telemetry,
                self.clock,
                self.bearer,
                partly=self._partly,
                lease_trouble=leads,
                calls_trouble=self.transport.trouble,
            )
        self.health.follow(bridge.loop)
        self.starting.health = self.health
        return bridge

    def _partly(self, world: World) -> list[str]:
        settings = self.file.settings if self.file is not None else self.settings
        about_file = self.file.notes(self.clock()) if self.file is not None else []
        about_users = tokenless(self.slurm.user_tokens, settings, self.clock()) if self.slurm.user_tokens else []
        about_rights = self.allowed.sentences()
        return [*policy_trouble(settings, world), *about_file, *about_users, *about_rights, *self.kept.sentences()]

    def replica(self, lease: Lease) -> Replica:
        """One of several, which acts while it holds the lease: from now on nothing is written without that."""
        self.transport.may_write = lease.holds
        for pool in self.pools:
            pool.may_write = lease.holds
        measure_lead(lease.holds, self.telemetry)
        watches = watches_of(self.settings, self.transport, self.clock)

        def mirror() -> Mirror:
            made = Mirror(watches)
            self.starting.health, self.starting.standby = None, StandingBy(lease, made)
            return made

        def watching(mirror: Mirror) -> asyncio.Task[None]:
            return asyncio.create_task(lives_on("watches of Kubernetes", mirror.run, self.guard), name="watches")

        return Replica(lease, mirror, watching, lambda filled: self.bridge(filled, lease), self.clock)


async def _both(one: Awaitable[_A], other: Awaitable[_B]) -> tuple[_A, _B]:
    """At the same time, and to the end; the first's error before the other's."""
    a, b = await asyncio.gather(one, other, return_exceptions=True)
    for found in (a, b):
        if isinstance(found, BaseException):
            raise found
    return cast(_A, a), cast(_B, b)


def _check_patience(settings: Settings) -> None:
    """What settle and quiet period promise holds only if they outlast the longest call (ARCHITECTURE 3)."""
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


def user_tokens(settings: Settings) -> UserTokens | None:
    """A token for each Slurm user; None: one acts for all.  Raises ConfigError for a folder that cannot be looked into."""
    folder = settings.slurm_user_token_dir
    if not folder:
        return None
    try:
        os.listdir(folder)
    except OSError as error:
        raise ConfigError(
            f"{SETTING}: {folder}: {error.strerror}.",
            "Name a folder with a token file for each Slurm user of the policy.",
        ) from None
    return UserTokens(folder)


def tokenless(users: UserTokens, settings: Settings, now: float) -> list[str]:
    """Of which Slurm users no token can be used, in sentences; of many, how many more there are."""
    named = frozenset(tenant.user for tenant in settings.policy.tenants if not is_template(tenant.user))
    told = [why for _, why in users.troubles(named, now)]
    more = (
        [f"{len(told) - MOST_TOLD} more Slurm users have no token that can be used."] if len(told) > MOST_TOLD else []
    )
    return told[:MOST_TOLD] + more


def without_node_rights(settings: Settings, whose: str, slurm_user: str) -> ConfigError | None:
    """With a token for each user: what is left undone because no token here is SlurmUser's; None: nothing.

    whose        the user of the token that is used for nodes
    slurm_user   by whom Slurm runs; "": not known
    """
    name = slurm_user.partition("(")[0]
    if not settings.slurm_user_token_dir or not name or whose in (name, "root"):
        return None
    return ConfigError(
        f"The Slurm token for nodes is of {whose or 'nobody in particular'}, not of {name}. Slurm lets administrators alone "
        "register and remove nodes (label slurm-bridge/external-node), and drain and resume them. Pods are scheduled all the "
        "same.",
        f"If the bridge is to do that, name a token of {name} in slurm_acting_token_file.",
    )


def tls_files(settings: Settings) -> TlsFiles:
    """For connections to the slurmrestd of the settings."""
    return TlsFiles(settings.slurm_ca_file, settings.slurm_cert_file, settings.slurm_key_file)


def slurm_pool(settings: Settings, connections: int) -> HttpPool:
    """Connections to the slurmrestd of the settings.  Raises ConfigError for TLS files that cannot be used."""
    return HttpPool(settings.slurm_url, connections=connections, tls=tls_files(settings))


def _slurm_client(
    settings: Settings,
    tokens: TokenSource,
    acting: TokenSource | None,
    users: UserTokens | None,
    tls: TlsFiles,
    telemetry: Telemetry,
    clock: SlewedClock,
    stack: AsyncExitStack,
) -> tuple[Sequence[HttpPool], SlurmClient]:
    if not settings.slurm_url:
        raise ConfigError("no Slurm to talk to: name slurmrestd with --slurm-url http://HOST:PORT.")
    pool, polls = (
        HttpPool(settings.slurm_url, connections=count, tls=tls, on_unasked=telemetry.unasked)
        for count in (settings.slurm_connections, 1)
    )
    stack.callback(pool.close)
    stack.callback(polls.close)
    on_call = telemetry.on_call("slurm")
    left_out = telemetry.left_out("slurm")
    client = SlurmClient(
        pool,
        tokens,
        polls=polls,
        acting_tokens=acting,
        user_tokens=users,
        on_call=on_call,
        on_left_out=left_out,
        clock=clock,
    )
    return (pool, polls), client


def _at_start(where: str, error: FarSideError) -> ConfigError:
    """A refused token or right is a mistake; anything else may pass."""
    kind = ConfigError if isinstance(error, Unauthorized) else NotYet
    return kind(f"{where}: {said(error)}")


async def check_kubernetes(kube: KubeClient, server: str) -> str:
    """Reachable, and with the rights without which the bridge sees nothing; its version.

    Raises NotYet where waiting may mend it, else ConfigError.
    """
    try:
        version = await kube.server_version()
        lacking = await rights.missing(kube, rights.CLUSTER)
    except FarSideError as error:
        raise _at_start(f"kubeconfig's server {server}", error) from None
    if lacking:
        raise ConfigError(
            f"Kubernetes: this user may not {rights.spelled(lacking)} in all namespaces. "
            "Give it the ClusterRole slurm-bridge of manifests/base/rbac.yaml."
        )
    return version


async def check_slurm(slurm: SlurmClient, settings: Settings, user: str) -> Discovery:
    """Reachable, of a known version, telling `user` of all jobs, and with the partitions of the policy.

    Raises NotYet where waiting may mend it, else ConfigError.

    slurmctld may be down while slurmrestd answers: the bridge starts, unless its policy has templates.
    """
    found = None
    try:
        found = await slurm.discover()
        # A ping is answered even to a token that nothing else accepts.
        partitions, conf = await _both(_partitions(slurm), admin_reads.configuration(slurm))
        if conf is not None and not await admin_reads.sees_all_jobs(slurm, conf, user):
            raise ConfigError(
                f"Slurm hides the jobs of other users from {user} (PrivateData=jobs), also those that the bridge makes for "
                f"them. Use a token of {conf.slurm_user}, or: sacctmgr modify user {user} set adminlevel=operator."
            )
        unknown = "" if settings.slurm_user_token_dir else user  # who acts for all users is SlurmUser, or as mighty
        found = replace(found, slurm_user=conf.slurm_user if conf is not None else unknown)
        if trouble := privileged_user(settings, found.slurm_user):
            raise ConfigError(trouble)
    except FarSideError as error:
        if found is not None and not found.responding and not isinstance(error, Refused):
            if settings.policy.policy().has_templates:
                raise NotYet(
                    f"slurm_url {settings.slurm_url}: slurmctld does not answer, so it is not known who SlurmUser is, to "
                    "whom no template of the policy may map pods."
                ) from None
            return found
        raise _at_start(f"slurm_url {settings.slurm_url}", error) from None
    if partitions is not None and (missing := lacking_partition(settings, partitions)):
        raise ConfigError(missing)
    return found


async def _partitions(slurm: SlurmClient) -> frozenset[str] | None:
    """Their names; None while slurmdbd is away, without which slurmrestd does not tell them."""
    try:
        return frozenset(partition.name for partition in await slurm.partitions())
    except AccountingAway:
        return None


def _tune_gc() -> None:
    """Ten thousand pods are a million objects that live long: look at them rarely, and never at what is there now.

    Of that a thirtieth is garbage; to find it would take a twentieth of a second of the start.
    """
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    gc.freeze()


async def _notify_ready(starting: Starting) -> None:
    """Tell the service manager once that /readyz says so for the first time."""
    while starting.not_ready():  # noqa: ASYNC110 - it is asked, as by a probe
        await asyncio.sleep(READY_ASKED_S)
    notify(READY)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _schedule(ends: Ends, lease: Lease | None, signalled: asyncio.Event) -> None:
    if lease is not None:
        await ends.replica(lease).run(signalled)
    else:
        measure_lead(lambda: True, ends.telemetry)
        await until_signalled(ends.bridge(), signalled)


async def until_signalled(bridge: Bridge, signalled: asyncio.Event) -> None:
    """Run the bridge until the event is set, then let it finish its calls."""
    task, told = asyncio.create_task(bridge.run(), name="bridge"), asyncio.create_task(signalled.wait())
    await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not task.done():
        left = await bridge.loop.finish(stopping.CALLS_S)
        task.cancel()
        stopping.log_stopped(left, leaving=bool(bridge.world.config.leaving))
    with contextlib.suppress(asyncio.CancelledError):
        await task
