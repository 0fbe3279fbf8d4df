"""The doctor's requests to Slurm, and its tokens.  Nothing is changed: Slurm refuses each probe on purpose."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from bridge import connections as made
from bridge.cli.doctor.choices import choices
from bridge.cli.doctor.questions import Questions, ask_all, ask_none, not_seen, observed, sentence, unnamed
from bridge.cli.doctor.views import Choice, NotSeen, Observations, Observed, Token, nothing
from bridge.connections import Connections, Tokens
from bridge.errors import AccountingUnavailable, ConfigError, RemoteError, Unauthorized
from bridge.settings import Settings
from bridge.slurm import admin_reads
from bridge.slurm.admin_reads import Verdict
from bridge.slurm.client import SlurmClient
from bridge.slurm.pool import HttpPool
from bridge.slurm.token import LiteralToken, TokenSource, claims_of, command
from bridge.slurm.transport import DEFAULT_DEADLINE_S
from bridge.slurm.user_tokens import UserTokens

T = TypeVar("T")

RESOLVE_DEADLINE_S = 3.0
PROBES_AT_ONCE = 4
TOKENLESS = "there is no usable Slurm token"
MAKE_ONE = f"Name a file that holds one with --slurm-token-file. To make one: {command('')}."
NOT_ACCEPTED = "Slurm does not accept the token"
NO_SLURMRESTD = "slurmrestd does not answer"
NO_ACCOUNTING = "slurmdbd does not answer slurmrestd"
START_SLURMDBD = (
    "Look at `systemctl status slurmdbd` on its host, and at its database. Until it answers, ends of jobs wait."
)
ASK_SLURM_AGAIN = (
    "Run doctor again. If this stays so, look at the logs of slurmrestd and slurmctld, and at slurmdbd and its database: "
    "while these hang, so do many requests (`sacctmgr show cluster` then hangs, too)."
)
REPLACE = "Make it on a host of this cluster; slurmctld's log says why it refuses this one."


@dataclass(frozen=True, slots=True)
class _Slurmctld:
    """A slurmctld that answers and accepts the token."""

    seen: Observations
    client: SlurmClient


QUESTIONS: Questions[_Slurmctld] = {
    "slurm_clock": lambda slurm: admin_reads.clock(slurm.client),
    "configuration": lambda slurm: _configuration(slurm.client),
    "all_jobs": lambda slurm: _sees_all(slurm.seen, slurm.client),  # needs the configuration
    "slurm_nodes": lambda slurm: admin_reads.nodes(slurm.client),
    "accounting": lambda slurm: _accounting_answers(slurm.client),
    "partitions": lambda slurm: _with_accounting(slurm.client.partitions),
    "partition_details": lambda slurm: _partition_details(slurm.client),
    "reservations": lambda slurm: admin_reads.reservations(slurm.client),
    "unresolved": lambda slurm: _unresolved(slurm.seen),  # needs the nodes
}


async def look_at_slurm(seen: Observations, connections: Connections, filled: Sequence[Choice] = ()) -> None:
    """Ask everything; what cannot be reached is marked as not seen.  filled: choices that templates give"""
    chosen = seen.usable
    tokens = _observe_tokens(seen, chosen)
    if (pool := _observe_pool(seen, connections)) is None:
        return _nothing_of_slurm(seen, _because(seen.discovery))
    do = "Check the host and the port in slurm_url, `systemctl status slurmrestd` there, and the firewalls between."
    if tokens is None:
        seen.status_without_token = await observed(lambda: _status_without_token(pool), NO_SLURMRESTD, do)
        seen.discovery = (
            Observed(missing=seen.status_without_token.missing)
            if seen.status_without_token.missing
            else nothing(_because(seen.token))
        )
        return _nothing_of_slurm(seen, _because(seen.discovery))
    client = connections.slurm_with(Tokens(tokens, made.acting_token(chosen), _user_tokens(seen, chosen)))
    seen.discovery = await observed(client.discover, NO_SLURMRESTD, do)
    if seen.discovery.missing is not None:
        return _nothing_of_slurm(seen, NO_SLURMRESTD)
    # A ping proves neither: slurmctld does not answer the ping of a token which it does not accept.
    seen.jobs = await observed(lambda: _jobs(client), "Slurm does not list its jobs")
    if (missing := seen.jobs.missing) is not None:
        return ask_none(seen, QUESTIONS, missing.because)
    why_not = await ask_all(seen, QUESTIONS, _Slurmctld(seen, client), ASK_SLURM_AGAIN) or _nobody_acts(seen)
    if why_not is not None:
        seen.verdicts = {choice: nothing(why_not.because) for choice in choices(chosen)}
        seen.filled = {choice: nothing(why_not.because) for choice in filled}
        return None
    seen.verdicts = await _verdicts(client, choices(chosen))
    seen.filled = await _verdicts(client, [choice for choice in filled if choice not in seen.verdicts])
    return None


def _observe_pool(seen: Observations, connections: Connections) -> HttpPool | None:
    """The connections to slurmrestd; None: the settings name none that can be used."""
    if not seen.usable.slurm_url:
        do = "Name slurmrestd: slurm_url in the settings, or --slurm-url."
        why = NotSeen("No Slurm is named.", because="no Slurm is named", do=do)
        seen.discovery = Observed(missing=unnamed(seen, "slurm_url", why))
        return None
    try:
        return connections.pool
    except ConfigError as error:
        do = "Correct it: docs/settings.md says what each key means."
        seen.discovery = Observed(missing=not_seen(error, "the settings' TLS files cannot be used", do))
        return None


def _nothing_of_slurm(seen: Observations, because: str) -> None:
    ask_none(seen, ("jobs", *QUESTIONS), because)


def _because(observed: Observed[T]) -> str:
    return observed.missing.because if observed.missing is not None else ""


async def _status_without_token(pool: HttpPool) -> int:
    """The HTTP status of a request without a token, which shows only that slurmrestd, or another server, answers."""
    return (await pool.exchange("GET", "/slurm/", {}, b"", deadline_s=DEFAULT_DEADLINE_S)).status


# --- tokens ---------------------------------------------------------------------------------------------------------


def _observe_tokens(seen: Observations, chosen: Settings) -> TokenSource | None:
    if (acting := made.acting_token(chosen)) is not None:
        seen.acting_token = _checked_token(acting, chosen.slurm_acting_token_file, seen.now)
    else:
        seen.acting_token = nothing("the same token is used")
    try:
        tokens = made.own_token(chosen, seen.now)
    except ConfigError as error:
        missing = not_seen(error, TOKENLESS, MAKE_ONE)
        if not os.environ.get("SLURM_JWT"):
            missing = unnamed(seen, "slurm_token_file", missing)
        seen.token = Observed(missing=missing)
        return None
    seen.token = _token(tokens, chosen.slurm_token_file)
    return tokens


def _nobody_acts(seen: Observations) -> NotSeen | None:
    """Why no request can be sent as a user: one token acts for all, and cannot be used.  None: requests can be sent."""
    missing = seen.acting_token.missing
    return missing if missing is not None and missing.failed and not seen.usable.slurm_user_token_dir else None


def _user_tokens(seen: Observations, chosen: Settings) -> UserTokens | None:
    """With a folder that cannot be looked into every user's token is missing."""
    if not (folder := chosen.slurm_user_token_dir):
        seen.user_tokens = nothing("the bridge's token is used for all users")
        return None
    users = UserTokens(folder)
    try:
        made.user_tokens(chosen)
    except ConfigError as error:
        seen.user_tokens = Observed(missing=not_seen(error, TOKENLESS, MAKE_ONE))
        return users
    named = dict.fromkeys(user for user, _, _ in choices(chosen))
    seen.user_tokens = Observed(
        {user: _checked_token(users.of(user), str(users.folder / user), seen.now) for user in named}
    )
    return users


def _checked_token(source: TokenSource, path: str, now: float) -> Observed[Token]:
    """The token in that file, if it can be used now."""
    try:
        source.check(now)
    except ConfigError as error:
        return Observed(missing=not_seen(error, TOKENLESS))
    return _token(source, path)


def _token(tokens: TokenSource, path: str) -> Observed[Token]:
    try:
        found = claims_of(tokens.token())
    except ConfigError as error:
        return Observed(missing=not_seen(error, TOKENLESS, MAKE_ONE))
    is_file = not isinstance(tokens, LiteralToken)
    for_all = is_file and bool(os.stat(path).st_mode & stat.S_IROTH)
    name = f"token file {path}" if is_file else "token in SLURM_JWT"
    return Observed(Token(name, is_file, found.user, found.iat, found.exp, for_all))


# --- slurmctld ------------------------------------------------------------------------------------------------------


async def _jobs(client: SlurmClient) -> int:
    """The number of jobs.  Raises NotSeen if the token, or slurmctld, is at fault."""
    try:
        return len(await client.states())
    except Unauthorized as error:
        # The check of the token reports it.
        why = NotSeen(sentence(error), because=NOT_ACCEPTED, failed=False, do=REPLACE)
        raise why from None
    except RemoteError:
        if client.discovery is not None and client.discovery.responding:
            raise
        raise NotSeen(
            "slurmctld does not answer slurmrestd: bound pods run on, and no pod is scheduled.",
            because="slurmctld does not answer slurmrestd",
            do="systemctl status slurmctld on its host; scontrol ping",
        ) from None


async def _configuration(client: SlurmClient) -> admin_reads.Configuration:
    found = await admin_reads.configuration(client)
    if found is None:
        raise NotSeen(
            "slurm.conf cannot be seen from here",
            because="this Slurm's REST interface does not show slurm.conf (26.05 does): scontrol show config",
            failed=False,
        )
    return found


async def _accounting_answers(client: SlurmClient) -> bool:
    """False if there is none.  Raises NotSeen if slurmdbd does not answer, with the advice for it."""
    try:
        await client.find("slurm-bridge-doctor")
    except AccountingUnavailable as error:
        raise NotSeen(sentence(error), because=NO_ACCOUNTING, do=START_SLURMDBD) from None
    return client.discovery is not None and client.discovery.accounting


async def _with_accounting(asked: Callable[[], Awaitable[T]]) -> T:
    """Raises NotSeen if slurmdbd does not answer, which another check reports."""
    try:
        return await asked()
    except AccountingUnavailable as error:
        raise NotSeen(sentence(error), because=NO_ACCOUNTING, failed=False) from None


async def _sees_all(seen: Observations, client: SlurmClient) -> bool:
    return await admin_reads.sees_all_jobs(client, seen.configuration.get(), seen.token.get().user)


async def _partition_details(client: SlurmClient) -> Mapping[str, admin_reads.PartitionDetails]:
    return {partition.name: partition for partition in await _with_accounting(lambda: admin_reads.partitions(client))}


async def _verdicts(client: SlurmClient, wanted: Iterable[Choice]) -> Mapping[Choice, Observed[Verdict]]:
    few = asyncio.Semaphore(PROBES_AT_ONCE)

    async def tried(choice: Choice) -> Observed[Verdict]:
        user, option, value = choice
        async with few:
            probe = partial(admin_reads.probe, client, user, **({option: value} if option else {}))
            return await observed(probe, do=ASK_SLURM_AGAIN)

    asked = list(wanted)
    return dict(zip(asked, await asyncio.gather(*map(tried, asked)), strict=True))


async def _unresolved(seen: Observations) -> frozenset[str]:
    """External nodes whose address is only a name that this host cannot resolve."""
    bare = [view for view in seen.slurm_nodes.get() if view.node.external and view.address == view.node.name]
    answers = await asyncio.gather(*(_resolves(view.address) for view in bare))
    return frozenset(view.node.name for view, resolves in zip(bare, answers, strict=True) if not resolves)


async def _resolves(name: str) -> bool:
    try:
        async with asyncio.timeout(RESOLVE_DEADLINE_S):
            await asyncio.get_running_loop().getaddrinfo(name, None)
    except (TimeoutError, socket.gaierror, UnicodeError):
        return False
    return True
