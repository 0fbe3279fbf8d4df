"""How one API server is reached, and who we are to it.

An `Access` is plain: an address, and where its `Credentials` come from.  bridge/kube/auth.py makes one from a kubeconfig or a
service account.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Headers = tuple[tuple[str, str], ...]
Now = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are to one API server, until the next change.

    generation  its number: a later one is newer
    headers     Authorization and, where the kubeconfig impersonates somebody, Impersonate-*
    tls         whom to trust, and our certificate; None for plain http (a local proxy)
    """

    generation: int
    headers: Headers
    tls: ssl.SSLContext | None


@dataclass(slots=True)
class Access:
    """How to reach one API server.

    server           base URL without a trailing slash
    server_hostname  the name its certificate must have, where that is not the host's
    credentials      those of now; looks for newer ones where that is due
    renew            after a 401 on those of that generation: are there newer ones?  Raises ConfigError.
    doubt            marks that TLS failed: the sources are read again soon, because they may name another authority
    """

    server: str
    server_hostname: str | None
    proxy: str | None
    credentials: Callable[[], Awaitable[Credentials]]
    renew: Callable[[int], Awaitable[bool]]
    doubt: Callable[[], None] = lambda: None


def anonymous(server: str) -> Access:
    """A server that asks nobody who he is: a simulated one, or a local proxy."""

    async def nobody() -> Credentials:
        return Credentials(0, (), None)

    async def nobody_else(_used: int) -> bool:
        return False

    return Access(server, None, None, nobody, nobody_else)
