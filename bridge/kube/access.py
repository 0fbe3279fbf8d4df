"""Access to one API server: its address, and the credentials for it.

bridge/kube/auth.py makes an `Access` from a kubeconfig or a service account.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Headers = tuple[tuple[str, str], ...]
Now = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials for one API server, until the next change.

    generation  number of this set; a higher number is newer
    headers     Authorization, and Impersonate-* if the kubeconfig impersonates a user
    tls         trusted authorities and the client certificate; None for plain http (a local proxy)
    """

    generation: int
    headers: Headers
    tls: ssl.SSLContext | None


@dataclass(slots=True)
class Access:
    """The address and the credentials of one API server.

    server           base URL without a trailing slash
    server_hostname  the name that its certificate must have; None: that of the host
    credentials      returns the current credentials, after a look at their sources if that is due
    renew            after a 401 on that generation: True if there is a newer one.  Raises ConfigError
    recheck          call it after a TLS failure: the sources are read again soon, because they may name another authority
    trouble          returns why the present sources are not used, a sentence; "": they are used
    refused          returns what to say if the server does not accept the credentials; "": nothing but its answer
    named            what names the trusted authorities, for sentences; "": nothing does
    """

    server: str
    server_hostname: str | None
    proxy: str | None
    credentials: Callable[[], Awaitable[Credentials]]
    renew: Callable[[int], Awaitable[bool]]
    recheck: Callable[[], None] = lambda: None
    trouble: Callable[[], str] = lambda: ""
    refused: Callable[[], str] = lambda: ""
    named: str = ""


def anonymous(server: str) -> Access:
    """Access to a server without authentication: a simulated one, or a local proxy."""

    async def nobody() -> Credentials:
        return Credentials(0, (), None)

    async def nobody_else(_used: int) -> bool:
        return False

    return Access(server, None, None, nobody, nobody_else)
