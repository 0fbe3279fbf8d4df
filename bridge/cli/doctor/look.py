"""Asks both ends everything, once, and keeps what each question came to.

Questions that need an answer first wait for it; where that failed they are not asked, and say so.  Nothing is repeated and
nothing is changed: the only writes are access reviews and the refused probe of bridge/slurm/admin_reads.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

import aiohttp

from bridge import app, rights, settings
from bridge.cli.doctor.views import (
    Choice,
    NodeInfo,
    NotSeen,
    Observations,
    Observed,
    Token,
    managed_namespaces,
    nothing,
)
from bridge.errors import AccountingAway, BridgeError, ConfigError, FarSideError, Unauthorized, said
from bridge.kube import admin_reads as kube_survey
from bridge.kube import auth, watch
from bridge.kube.client import KubeClient
from bridge.kube.transport import HttpTransport
from bridge.rights import Right
from bridge.settings import Settings
from bridge.slurm import admin_reads
from bridge.slurm.admin_reads import Verdict
from bridge.slurm.client import SlurmClient
from bridge.slurm.pool import HttpPool
from bridge.slurm.token import RENEW, FileToken, LiteralToken, TokenSource, claims_of
from bridge.slurm.transport import DEFAULT_DEADLINE_S
from bridge.slurm.user_tokens import UserTokens
from scheduler.policy.rules import ANY, Tenant
from scheduler.policy.templates import is_template

T = TypeVar("T")

# Read where a pod has an owner or a volume; without them such pods are scheduled by less (W2, F1).
REFERRED = (
    ("get", "replicasets", "apps", ""),
    ("get", "jobs", "batch", ""),
    ("get", "persistentvolumeclaims", "", ""),
    ("get", "persistentvolumes", "", ""),
    ("get", "storageclasses", "storage.k8s.io", ""),
)
READY_DEADLINE_S = 3.0
RESOLVE_DEADLINE_S = 3.0
PROBES_AT_ONCE = 4
MISTAKEN = "the settings cannot be used"
CORRECT = "Correct it: docs/settings.md says what each key means."
NAME_KUBECONFIG = "Name a kubeconfig that kubectl can use with --kubeconfig FILE."
TOKENLESS = "there is no usable Slurm token"
MAKE_ONE = "Name a file that holds one with --slurm-token-file; scontrol token username=slurm makes one."
NOT_ACCEPTED = "Slurm does not accept the token"
NO_ACCOUNTING = "slurmdbd does not answer slurmrestd"
START_SLURMDBD = "systemctl status slurmdbd on its host, and its database; until then partitions and ends of jobs wait."
RENEW_OR_REPLACE = f"{RENEW}, on a host of this cluster; slurmctld's log says why it refuses one."


async def look(options: Mapping[str, str | None], environment: Mapping[str, str]) -> Observations:
    """Everything that can be seen from here."""
    seen = Observations(now=time.time())
    chosen = _settings(seen, options, environment)
    async with AsyncExitStack() as stack:
        await asyncio.gather(
            _look_at_kubernetes(seen, chosen, stack), _look_at_slurm(seen, chosen, stack), _look_at_bridge(seen, chosen)
        )
    return seen


async def look_at_slurm(
    options: Mapping[str, str | None], environment: Mapping[str, str], filled: Sequence[Choice] = ()
) -> Observations:
    """What can be seen of the settings and of Slurm; nothing else is looked at.  filled: what templates give"""
    seen = Observations(now=time.time())
    chosen = _settings(seen, options, environment)
    async with AsyncExitStack() as stack:
        await _look_at_slurm(seen, chosen, stack, filled)
    return seen


async def look_at_namespaces(options: Mapping[str, str | None], environment: Mapping[str, str]) -> Observations:
    """What can be seen of the settings and of the namespaces of Kubernetes; nothing else is looked at."""
    seen = Observations(now=time.time())
    chosen = _settings(seen, options, environment)
    async with AsyncExitStack() as stack:
        if (transport := await _greeted(seen, chosen, stack)) is not None:
            seen.namespaces = await _observed(lambda: _listed(seen, transport, watch.namespaces()))
    return seen


async def _observed(asked: Callable[[], Awaitable[T]], because: str = "", do: str = "") -> Observed[T]:
    """because, do: where it fails, the short reason why what follows is not checked, and what to do about it."""
    began, clock = time.perf_counter(), time.time()
    try:
        value = await asked()
    except NotSeen as missing:
        return Observed(missing=missing)
    except BridgeError as error:
        return Observed(missing=_not_seen(error, because, do))
    took_s = time.perf_counter() - began
    return Observed(value, took_s=took_s, at=clock + took_s / 2)


def _not_seen(error: BridgeError, because: str, do: str = "") -> NotSeen:
    """do: where the error itself does not say what to do."""
    advice = error.do if isinstance(error, ConfigError) else ""
    return NotSeen(_sentence(error), because=because, do=advice or do)


def _sentence(error: BridgeError) -> str:
    """Without the words for the log, which side it was and which call, and without what to do."""
    if isinstance(error, ConfigError):
        return said(ConfigError(error.what))
    if not isinstance(error, FarSideError):
        return said(error)
    text = error.message.rstrip(".")
    if text.partition(" ")[0].isalpha():  # not an address
        text = text[:1].upper() + text[1:]
    number = f" (error {error.code})" if error.code else ""
    return f"{text}{number}" + ("" if text.endswith("?") else ".")


def _settings(seen: Observations, options: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """What `run` would use; where that has a mistake, what of it can be used, so that the rest can be looked at."""
    path = options.get("config") or environment.get(settings.ENVIRONMENT + "CONFIG")
    seen.source = path or seen.source
    try:
        seen.usable = settings.load(options, environment)
        seen.settings = Observed(seen.usable)
    except ConfigError as error:
        seen.usable, seen.doubtful = settings.usable(options, environment)
        seen.settings = Observed(missing=_not_seen(error, MISTAKEN, CORRECT))
    return seen.usable


def _unnamed(seen: Observations, key: str, missing: NotSeen) -> NotSeen:
    """What the settings do not name they may name where the mistake is."""
    return NotSeen(MISTAKEN, failed=False) if key in seen.doubtful else missing


# --- Kubernetes -----------------------------------------------------------------------------------------------------


async def _look_at_kubernetes(seen: Observations, chosen: Settings, stack: AsyncExitStack) -> None:
    if (transport := await _greeted(seen, chosen, stack)) is None:
        return
    client = KubeClient(transport, chosen.scheduler_name, time.time)
    seen.whoami = await _observed(lambda: kube_survey.whoami(transport))
    seen.rights = await _observed(lambda: _rights(client))
    seen.namespaces = await _observed(lambda: _listed(seen, transport, watch.namespaces()))
    seen.rights_in = await _observed(lambda: _rights_in(seen, client))
    seen.nodes = await _observed(lambda: _listed(seen, transport, watch.nodes()))
    seen.ours = await _observed(lambda: _listed(seen, transport, watch.our_pods(chosen.scheduler_name)))
    seen.standing = await _observed(lambda: _standing(seen, transport, chosen.scheduler_name))


async def _greeted(seen: Observations, chosen: Settings, stack: AsyncExitStack) -> HttpTransport | None:
    """The way to an API server that answers; None: there is none, which is noted in everything that it would tell."""
    try:
        access = await auth.load(chosen.kubeconfig or None)
        headers = (await access.credentials()).headers
    except ConfigError as error:
        missing = _not_seen(error, "there is no way to Kubernetes", NAME_KUBECONFIG)
        if not os.environ.get("KUBECONFIG"):
            missing = _unnamed(seen, "kubeconfig", missing)
        seen.server = Observed(missing=missing)
        _no_kubernetes(seen, missing.because)
        return None
    transport = HttpTransport(access)
    stack.push_async_callback(transport.close)
    seen.server = Observed(access.server)
    token = dict(headers).get("Authorization", "").removeprefix("Bearer ")
    seen.kube_token_expires = claims_of(token).exp
    no_server = "the API server does not answer"
    do = f"Is {access.server} right, does the server run, does a firewall let this host through?"
    seen.greeting = await _observed(lambda: _greeting(transport), no_server, do)
    if seen.greeting.missing is not None:
        _no_kubernetes(seen, seen.greeting.missing.because)
        return None
    return transport


async def _greeting(transport: HttpTransport) -> kube_survey.Greeting:
    """Raises NotSeen for credentials that are not accepted: the sentence names them, and what to do."""
    try:
        return await kube_survey.greet(transport)
    except Unauthorized as error:
        raise NotSeen(_sentence(error), because="the API server does not accept the credentials") from None


def _no_kubernetes(seen: Observations, because: str) -> None:
    if seen.greeting.missing is None:
        seen.greeting = nothing(because)
    seen.whoami, seen.rights, seen.namespaces = nothing(because), nothing(because), nothing(because)
    seen.nodes, seen.ours, seen.standing = nothing(because), nothing(because), nothing(because)
    seen.rights_in = nothing(because)


async def _listed(seen: Observations, transport: HttpTransport, resource: watch.Resource[T]) -> tuple[T, ...]:
    """All that can be decoded; what cannot be is added to `seen.undecoded`."""
    listed = await watch.listed(transport, resource)
    seen.undecoded.extend(listed.undecoded)
    return listed.found


async def _standing(seen: Observations, transport: HttpTransport, scheduler_name: str) -> NodeInfo:
    return NodeInfo(await _listed(seen, transport, watch.other_pods(scheduler_name)))


async def _rights(client: KubeClient) -> Mapping[Right, bool]:
    asked = (*rights.CLUSTER, *REFERRED, *rights.NODE)
    lacking = await rights.missing(client, asked)
    return {right: right not in lacking for right in asked}


async def _rights_in(seen: Observations, client: KubeClient) -> Mapping[str, list[Right]]:
    return await rights.missing_in(client, managed_namespaces(seen))


# --- Slurm ----------------------------------------------------------------------------------------------------------


async def _look_at_slurm(
    seen: Observations, chosen: Settings, stack: AsyncExitStack, filled: Sequence[Choice] = ()
) -> None:
    tokens = _tokens(seen, chosen)
    if not chosen.slurm_url:
        why = NotSeen(
            "No Slurm is named.",
            because="no Slurm is named",
            do="Name slurmrestd: slurm_url in the settings, or --slurm-url.",
        )
        seen.discovery = Observed(missing=_unnamed(seen, "slurm_url", why))
        _no_slurm(seen, _because(seen.discovery))
        return
    try:
        pool = app.slurm_pool(chosen, PROBES_AT_ONCE)
    except ConfigError as error:
        seen.discovery = Observed(missing=_not_seen(error, "the settings' TLS files cannot be used", CORRECT))
        _no_slurm(seen, _because(seen.discovery))
        return
    stack.callback(pool.close)
    no_slurmrestd = "slurmrestd does not answer"
    do = f"Is {chosen.slurm_url} right, does slurmrestd run there (systemctl status slurmrestd), is a firewall between?"
    if tokens is None:
        seen.knock = await _observed(lambda: _knock(pool), no_slurmrestd, do)
        seen.discovery = Observed(missing=seen.knock.missing) if seen.knock.missing else nothing(_because(seen.token))
        _no_slurm(seen, _because(seen.discovery))
        return
    acting = FileToken(chosen.slurm_acting_token_file) if chosen.slurm_acting_token_file else None
    client = SlurmClient(pool, tokens, acting_tokens=acting, user_tokens=_user_tokens(seen, chosen))
    seen.discovery = await _observed(client.discover, no_slurmrestd, do)
    if seen.discovery.missing is not None:
        _no_slurm(seen, no_slurmrestd)
    else:
        await _look_at_slurmctld(seen, chosen, client, filled)


def _because(observed: Observed[T]) -> str:
    return observed.missing.because if observed.missing is not None else ""


async def _knock(pool: HttpPool) -> int:
    """Without a token slurmrestd says no more than that somebody is there."""
    return (await pool.exchange("GET", "/slurm/", {}, b"", deadline_s=DEFAULT_DEADLINE_S)).status


async def _look_at_slurmctld(
    seen: Observations, chosen: Settings, client: SlurmClient, filled: Sequence[Choice]
) -> None:
    """A ping proves neither: slurmctld does not answer that of a token which it does not accept."""
    seen.jobs = await _observed(lambda: _jobs(client), "Slurm does not tell its jobs")
    if (missing := seen.jobs.missing) is not None:
        _no_slurm(seen, missing.because, jobs=seen.jobs)
        return
    seen.slurm_clock = await _observed(lambda: admin_reads.clock(client))
    seen.configuration = await _observed(lambda: _configuration(client))
    seen.all_jobs = await _observed(lambda: _sees_all(seen, client))
    seen.slurm_nodes = await _observed(lambda: admin_reads.nodes(client))
    seen.accounting = await _observed(lambda: _accounting_answers(client), NO_ACCOUNTING, START_SLURMDBD)
    seen.partitions = await _observed(lambda: _with_accounting(client.partitions))
    seen.partition_details = await _observed(lambda: _partition_details(client))
    seen.reservations = await _observed(lambda: admin_reads.reservations(client))
    seen.verdicts = await _verdicts(client, choices(chosen))
    seen.filled = await _verdicts(client, [each for each in filled if each not in seen.verdicts])
    seen.unresolved = await _observed(lambda: _unresolved(seen))


def _no_slurm(seen: Observations, because: str, jobs: Observed[int] | None = None) -> None:
    seen.jobs = jobs or nothing(because)
    seen.slurm_clock, seen.configuration, seen.slurm_nodes = nothing(because), nothing(because), nothing(because)
    seen.all_jobs, seen.accounting = nothing(because), nothing(because)
    seen.partitions, seen.partition_details = nothing(because), nothing(because)
    seen.reservations, seen.unresolved = nothing(because), nothing(because)


def _tokens(seen: Observations, chosen: Settings) -> TokenSource | None:
    if chosen.slurm_acting_token_file:
        seen.acting_token = _token(lambda: FileToken(chosen.slurm_acting_token_file), chosen.slurm_acting_token_file)
    else:
        seen.acting_token = nothing("the same token is used")
    try:
        tokens = app.token_source(chosen, seen.now)
    except ConfigError as error:
        missing = _not_seen(error, TOKENLESS, MAKE_ONE)
        if not os.environ.get("SLURM_JWT"):
            missing = _unnamed(seen, "slurm_token_file", missing)
        seen.token = Observed(missing=missing)
        return None
    seen.token = _token(lambda: tokens, chosen.slurm_token_file)
    return tokens


def _user_tokens(seen: Observations, chosen: Settings) -> UserTokens | None:
    """With a folder that cannot be looked into every user's token is missing."""
    if not (folder := chosen.slurm_user_token_dir):
        seen.user_tokens = nothing("the bridge's token is used for all users")
        return None
    users = UserTokens(folder)
    try:
        app.user_tokens(chosen)
    except ConfigError as error:
        seen.user_tokens = Observed(missing=_not_seen(error, TOKENLESS, MAKE_ONE))
        return users
    named = dict.fromkeys(user for user, _, _ in choices(chosen))
    seen.user_tokens = Observed(
        {user: _user_token(users.of(user), str(users.folder / user), seen.now) for user in named}
    )
    return users


def _user_token(source: TokenSource, path: str, now: float) -> Observed[Token]:
    try:
        source.check(now)
    except ConfigError as error:
        return Observed(missing=_not_seen(error, TOKENLESS))
    return _token(lambda: source, path)


def _token(source: Callable[[], TokenSource], path: str) -> Observed[Token]:
    try:
        tokens = source()
        found = claims_of(tokens.token())
    except ConfigError as error:
        return Observed(missing=_not_seen(error, TOKENLESS, MAKE_ONE))
    is_file = not isinstance(tokens, LiteralToken)
    for_all = is_file and bool(os.stat(path).st_mode & stat.S_IROTH)
    name = f"token file {path}" if is_file else "token in SLURM_JWT"
    return Observed(Token(name, is_file, found.user, found.iat, found.exp, for_all))


async def _jobs(client: SlurmClient) -> int:
    """How many there are.  Raises NotSeen where it shows that the token, or slurmctld, is at fault."""
    try:
        return len(await client.states())
    except Unauthorized as error:
        why = NotSeen(_sentence(error), because=NOT_ACCEPTED, failed=False, do=RENEW_OR_REPLACE)  # told of the token
        raise why from None
    except FarSideError:
        if client.discovery is not None and client.discovery.responding:
            raise
        raise NotSeen(
            "slurmctld does not answer slurmrestd: bound pods live on, nothing new is scheduled.",
            because="slurmctld does not answer slurmrestd",
            do="systemctl status slurmctld on its host; scontrol ping",
        ) from None


async def _configuration(client: SlurmClient) -> admin_reads.Configuration:
    found = await admin_reads.configuration(client)
    if found is None:
        raise NotSeen(
            "slurm.conf cannot be seen from here",
            because="this Slurm's REST interface does not tell slurm.conf (26.05 does): scontrol show config",
            failed=False,
        )
    return found


async def _accounting_answers(client: SlurmClient) -> bool:
    """False where there is none.  Raises AccountingAway."""
    await client.find("slurm-bridge-doctor")
    return client.discovery is not None and client.discovery.accounting


async def _with_accounting(asked: Callable[[], Awaitable[T]]) -> T:
    """Raises NotSeen where slurmdbd is away, of which another check tells."""
    try:
        return await asked()
    except AccountingAway as error:
        raise NotSeen(_sentence(error), because=NO_ACCOUNTING, failed=False) from None


async def _sees_all(seen: Observations, client: SlurmClient) -> bool:
    return await admin_reads.sees_all_jobs(client, seen.configuration.get(), seen.token.get().user)


async def _partition_details(client: SlurmClient) -> Mapping[str, admin_reads.PartitionDetails]:
    return {each.name: each for each in await _with_accounting(lambda: admin_reads.partitions(client))}


def choices(chosen: Settings) -> list[Choice]:
    """What the policy lets pods choose, for each Slurm user, without what templates give: that follows from namespaces."""
    return choices_of(chosen.policy.policy().tenants)


def choices_of(tenants: Iterable[Tenant]) -> list[Choice]:
    """What these let pods choose, one thing at a time, for each Slurm user; ("", "") is the user's own default."""
    wanted: dict[Choice, None] = {}
    for tenant in tenants:
        if is_template(tenant.user):
            continue
        wanted[tenant.user, "", ""] = None
        for what in ("account", "partition", "qos"):
            choice = tenant.choices[what]
            for value in (choice.default, *choice.allowed):
                if value and value != ANY and not is_template(value):
                    wanted[tenant.user, what, value] = None
    return list(wanted)


async def _verdicts(client: SlurmClient, wanted: Iterable[Choice]) -> Mapping[Choice, Observed[Verdict]]:
    few = asyncio.Semaphore(PROBES_AT_ONCE)

    async def tried(choice: Choice) -> Observed[Verdict]:
        user, what, value = choice
        async with few:
            return await _observed(lambda: admin_reads.probe(client, user, **({what: value} if what else {})))

    asked = list(wanted)
    return dict(zip(asked, await asyncio.gather(*map(tried, asked)), strict=True))


async def _unresolved(seen: Observations) -> frozenset[str]:
    """External nodes whose address is only a name, which nothing here can resolve."""
    bare = [each for each in seen.slurm_nodes.get() if each.node.external and each.address == each.node.name]
    answers = await asyncio.gather(*(_resolves(each.address) for each in bare))
    return frozenset(each.node.name for each, resolves in zip(bare, answers, strict=True) if not resolves)


async def _resolves(name: str) -> bool:
    try:
        async with asyncio.timeout(RESOLVE_DEADLINE_S):
            await asyncio.get_running_loop().getaddrinfo(name, None)
    except (TimeoutError, socket.gaierror, UnicodeError):
        return False
    return True


# --- the bridge that may run here -----------------------------------------------------------------------------------


async def _look_at_bridge(seen: Observations, chosen: Settings) -> None:
    seen.bridge = await _observed(lambda: _readiness(chosen))


async def _readiness(chosen: Settings) -> tuple[str, ...]:
    """The reasons why it is not ready; after "ok", what does not work all the same.

    Raises NotSeen where nothing of ours answers there, ConfigError.
    """
    if not (url := chosen.http_url):
        raise NotSeen("the settings name no http address", failed=False)
    try:
        patience = aiohttp.ClientTimeout(total=READY_DEADLINE_S)
        async with aiohttp.ClientSession(timeout=patience) as session, session.get(f"{url}/readyz") as answer:
            lines = (await answer.text()).splitlines()[:20]
            if answer.status in (200, 503) and lines:
                return () if lines == ["ok"] else tuple(lines)
    except (aiohttp.ClientConnectorError, TimeoutError):
        raise NotSeen(f"no bridge answers at {url}", failed=False) from None
    except (aiohttp.ClientError, UnicodeError):
        pass  # somebody answers who is no bridge
    raise NotSeen(
        f"Something that is no slurm-bridge answers at {url}.",
        because="another program has the http address",
        do="Choose another address with http in the settings, or --http HOST:PORT.",
    )
