"""From settings to clients: how every command reaches Kubernetes and Slurm.

A `Connections` makes each client once, at its first use, and closes it with the exit stack of its caller.  Every command
connects through this module; none reads tokens or TLS files itself.  All functions raise ConfigError if a file of the
settings cannot be used, in one sentence that names the key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from bridge.errors import ConfigError
from bridge.kube.client import KubeClient
from bridge.kube.transport import HttpTransport, connect, opened
from bridge.settings import Settings
from bridge.slurm.client import SlurmClient
from bridge.slurm.pool import HttpPool
from bridge.slurm.tls import TlsFiles
from bridge.slurm.token import FileToken, LiteralToken, TokenSource, command
from bridge.slurm.user_tokens import SETTING, UserTokens
from scheduler.events import Side

FEW = 2  # connections to slurmrestd of a command that asks a few questions


class Hooks(Protocol):
    """Receives what the clients report; `bridge.telemetry.Telemetry` is one."""

    def on_call(self, side: Side) -> Callable[[str, float, str], None]:
        """The hook for each call to one side: operation, seconds, outcome."""
        ...

    def on_undecodable(self, side: Side) -> Callable[[str, str, str], None]:
        """The hook for each item of a list that cannot be decoded: list, name, reason."""
        ...

    def on_unsolicited(self) -> None:
        """A connection to slurmrestd answered twice, or without a request."""
        ...


class Unobserved:
    """Hooks of a command that keeps no metrics."""

    def on_call(self, side: Side) -> Callable[[str, float, str], None]:
        """See Hooks."""
        return lambda operation, seconds, outcome: None

    def on_undecodable(self, side: Side) -> Callable[[str, str, str], None]:
        """See Hooks."""
        return lambda what, which, why: None

    def on_unsolicited(self) -> None:
        """See Hooks."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The Slurm tokens that the settings name.

    own      reads all jobs; acts for users and changes nodes unless another token does
    acting   acts for users and changes nodes; None: `own` does
    users    the token of each Slurm user; None: one token acts for all users
    """

    own: TokenSource
    acting: TokenSource | None = None
    users: UserTokens | None = None

    @property
    def bridges(self) -> list[TokenSource]:
        """The tokens of the bridge itself, without the tokens of users."""
        return [self.own] if self.acting is None else [self.own, self.acting]

    @property
    def for_nodes(self) -> TokenSource:
        """The token with which nodes are changed."""
        return self.acting or self.own


class Connections:
    """The clients of both clusters, as the settings name them.

    stack          closes what is made here
    clock          epoch seconds
    pool_size      connections to slurmrestd
    poll_apart     whether the poll of job states has a further connection, so that a burst of calls does not delay it
    """

    def __init__(
        self,
        settings: Settings,
        stack: AsyncExitStack,
        *,
        clock: Callable[[], float] = time.time,
        hooks: Hooks | None = None,
        pool_size: int = FEW,
        poll_apart: bool = False,
    ) -> None:
        self._settings = settings
        self._stack = stack
        self._clock = clock
        self._hooks = hooks or Unobserved()
        self._pool_size = pool_size
        self._poll_apart = poll_apart
        self._made: list[HttpTransport | HttpPool] = []
        self._transport: HttpTransport | None = None
        self._kube: KubeClient | None = None

    # --- Kubernetes -----------------------------------------------------------------------------------------------

    async def transport(self) -> HttpTransport:
        """The transport to the API server of the settings."""
        if self._transport is None:
            self._transport = await connect(
                self._settings.kubeconfig, self._stack, scheduler=self._settings.scheduler_name
            )
            self._made.append(self._transport)
        return self._transport

    async def another_transport(self) -> HttpTransport:
        """A transport with connections of its own and the same credentials."""
        access = (await self.transport()).access
        return opened(access, self._stack, scheduler=self._settings.scheduler_name)

    async def kube(self) -> KubeClient:
        """The Kubernetes client."""
        if self._kube is None:
            name, on_call = self._settings.scheduler_name, self._hooks.on_call(Side.KUBERNETES)
            self._kube = KubeClient(await self.transport(), name, self._clock, on_call)
        return self._kube

    # --- Slurm ----------------------------------------------------------------------------------------------------

    @cached_property
    def tokens(self) -> Tokens:
        """The Slurm tokens.  Raises ConfigError as `own_token` and `user_tokens`."""
        own = own_token(self._settings, self._clock())
        return Tokens(own, acting_token(self._settings), user_tokens(self._settings))

    @cached_property
    def tls(self) -> TlsFiles:
        """The TLS files for slurmrestd."""
        return TlsFiles(self._settings.slurm_ca_file, self._settings.slurm_cert_file, self._settings.slurm_key_file)

    @cached_property
    def pool(self) -> HttpPool:
        """The connections to slurmrestd."""
        return self._pool_of(self._pool_size)

    @cached_property
    def _polls(self) -> HttpPool | None:
        return self._pool_of(1) if self._poll_apart else None

    def _pool_of(self, connections: int) -> HttpPool:
        pool = HttpPool(
            self._settings.slurm_url, connections=connections, tls=self.tls, on_unsolicited=self._hooks.on_unsolicited
        )
        self._stack.callback(pool.close)
        self._made.append(pool)
        return pool

    @cached_property
    def slurm(self) -> SlurmClient:
        """The Slurm client; its caller awaits `discover()` first."""
        if not self._settings.slurm_url:
            raise ConfigError("no Slurm is configured: name slurmrestd with --slurm-url http://HOST:PORT.")
        return self.slurm_with(self.tokens)

    def slurm_with(self, tokens: Tokens) -> SlurmClient:
        """A Slurm client that uses these tokens."""
        return SlurmClient(
            self.pool,
            tokens.own,
            polls=self._polls,
            acting_tokens=tokens.acting,
            user_tokens=tokens.users,
            on_call=self._hooks.on_call(Side.SLURM),
            on_undecodable=self._hooks.on_undecodable(Side.SLURM),
            clock=self._clock,
        )

    # --- both -----------------------------------------------------------------------------------------------------

    def troubles(self) -> dict[Side, str]:
        """Why renewed tokens, credentials or TLS files are not used, by side; "": they are used."""
        kubernetes = self._transport.access.trouble() if self._transport is not None else ""
        slurm = (self.tls.trouble, *(token.trouble for token in self.tokens.bridges))
        return {Side.SLURM: " ".join(filter(None, slurm)), Side.KUBERNETES: kubernetes}

    def let_write(self, may_write: Callable[[], bool]) -> None:
        """Send each later request that changes something only if `may_write` returns True at that moment.

        It does not concern `another_transport`.
        """
        for client in self._made:
            client.may_write = may_write


def slurm_pool(settings: Settings, stack: AsyncExitStack, connections: int) -> HttpPool:
    """Connections to the slurmrestd of the settings.  Raises ConfigError for TLS files that cannot be used."""
    tls = TlsFiles(settings.slurm_ca_file, settings.slurm_cert_file, settings.slurm_key_file)
    pool = HttpPool(settings.slurm_url, connections=connections, tls=tls)
    stack.callback(pool.close)
    return pool


# --- tokens -----------------------------------------------------------------------------------------------------------


def own_token(settings: Settings, now: float) -> TokenSource:
    """The bridge's own token.  Raises ConfigError if there is none, or it has expired."""
    tokens: TokenSource
    if settings.slurm_token_file:
        tokens = FileToken(settings.slurm_token_file, option="--slurm-token-file")
    elif literal := os.environ.get("SLURM_JWT"):
        tokens = LiteralToken(literal)
    else:
        raise ConfigError(
            "no Slurm token is named.",
            "Name a file with --slurm-token-file, or settings that name one with --config. To make a token: "
            f"{command('')}. A program should renew the file.",
        )
    tokens.check(now)
    return tokens


def acting_token(settings: Settings) -> TokenSource | None:
    """The token that acts for users, where it is another one; it has not been read yet."""
    path = settings.slurm_acting_token_file
    return FileToken(path, option="slurm_acting_token_file") if path else None


def user_tokens(settings: Settings) -> UserTokens | None:
    """The token of each Slurm user; None: one acts for all.  Raises ConfigError for a folder that cannot be listed."""
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
