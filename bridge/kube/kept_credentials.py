"""Credentials that change: looked at again once a minute, and at once after a 401.

Tokens rotate (the kubelet rewrites that of a service account), certificates are renewed, exec plugins issue short-lived
credentials.  A file can be seen while it is written (kubectl rewrites a kubeconfig in place).  So new content is used if it
reads the same half a second later, and the credentials before stay in use meanwhile; `Access.trouble` and the log
report that.

Credentials are replaced whole, and each set has a number.  A TLS context is part of the set: connections that were made
with another one are not used for it, so the server sees new certificates from the next request on.  Callers whose requests
were answered 401 name the number they used: if there is a newer set they repeat, and otherwise all of them wait for one
look.  The age of credentials is measured by a monotonic clock.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bridge.errors import ConfigError
from bridge.kube.access import Access, Credentials, Headers, Now
from bridge.kube.exec_plugin import ExecPlugin
from bridge.kube.sources import TRY, Found, Read, file_and_reason

RELOAD_EVERY_S = 60.0  # the kubelet rewrites a token at 80 % of its life, which is ten minutes at the least
RENEW_EVERY_S = 5.0  # at most, however many calls are answered 401
LAST_EPOCH = 1e11  # seconds; a year of four digits
SETTLE_S = 0.5  # new content is used if it reads the same after this time: it may have been seen half-written

log = logging.getLogger("slurm-bridge")


async def access_by(
    configuration: Read,
    where: str,
    impersonate: Headers,
    now: Now,
    wall: Now,
    plugin: ExecPlugin | None = None,
) -> Access:
    """An Access whose credentials come from `configuration`.  where: for messages.  Raises ConfigError."""
    loaded = await configuration()
    kept = _RenewedCredentials(configuration, where, loaded.host.rstrip("/"), impersonate, now, wall, plugin)
    await kept.start()
    return Access(
        server=kept.server,
        server_hostname=loaded.tls_server_name or None,
        proxy=loaded.proxy or _proxy_of_environment(loaded.host),
        credentials=kept.credentials,
        renew=kept.renew,
        recheck=kept.recheck,
        trouble=kept.trouble,
        refused=kept.refused,
        named=where,
    )


@dataclass(slots=True)
class _RenewedCredentials:
    """The credentials for the API server, renewed before they expire."""

    configuration: Read
    where: str
    server: str
    impersonate: Headers
    now: Now
    wall: Now
    plugin: ExecPlugin | None
    _found: Found = field(default_factory=Found)
    _current: Credentials = field(default_factory=lambda: Credentials(0, (), None))
    _looked_at: float = 0.0
    _problem: ConfigError | None = None
    _recheck_due: bool = False
    _looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises ConfigError."""
        self._use(await self._read())
        self._looked_at = self.now()

    async def credentials(self) -> Credentials:
        """The current credentials, after a look at their sources if that is due."""
        if self._is_due():
            # What cannot be read now may still be good; if it is not, the server says 401 and `renew` says why.
            await self._look()
        return self._current

    async def renew(self, used: int) -> bool:
        """True if there are newer credentials than that generation, which a 401 answered.  Raises ConfigError."""
        if self._current.generation == used and (
            self._looking is not None or self.now() - self._looked_at >= RENEW_EVERY_S
        ):
            await self._look()
        if self._current.generation == used and self._problem is not None:
            raise self._problem
        return self._current.generation != used

    def recheck(self) -> None:
        """See Access."""
        self._recheck_due = True

    def trouble(self) -> str:
        """See Access."""
        if self._problem is None:
            return ""
        return " ".join(filter(None, [self._problem.what, "What was read before stays in use.", self._problem.do]))

    def refused(self) -> str:
        """See Access."""
        if not self._found.says_who:
            return f"{self.where}: it names no credentials, and the API server asks for some"
        what = "token" if self._found.token else "client certificate"
        ends = _jwt_ends(self._found.token or "")
        if ends is not None and ends <= self.wall():
            return f"{self.where}: its {what} expired at {_moment(ends)}. Renew it"
        return f"{self.where}: the API server does not accept its {what}. Renew it, or name one of this cluster"

    def _is_due(self) -> bool:
        age = self.now() - self._looked_at
        if self.plugin is not None:
            return age >= RENEW_EVERY_S and (self._recheck_due or self.plugin.expired())
        return age >= RELOAD_EVERY_S or (age >= RENEW_EVERY_S and (self._recheck_due or self._problem is not None))

    async def _look(self) -> None:
        """Look at the sources once for all callers; the look goes on if one caller is cancelled."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_once(), name="look for credentials")
        await asyncio.shield(self._looking)

    async def _look_once(self) -> None:
        """Read all sources again.  If that fails, the error is remembered and the previous credentials stay in use."""
        try:
            found = await self._read()
            if found != self._found:
                if self.plugin is None:
                    await self._settled(found)
                self._use(found)
        except ConfigError as problem:
            before, self._problem = self.trouble(), problem
            if (trouble := self.trouble()) != before:
                log.warning("%s", trouble)
        else:
            if self._problem is not None:
                log.info("%s: in order again", self.where)
            self._problem = None
        finally:
            self._looked_at, self._recheck_due = self.now(), False
            self._looking = None

    async def _settled(self, found: Found) -> None:
        """Raises ConfigError if it reads differently after SETTLE_S: it is being written."""
        if self._found.says_who and not found.says_who:
            raise ConfigError(f"{self.where}: it names no credentials any more.", TRY)
        await asyncio.sleep(SETTLE_S)
        if await self._read() != found:
            raise ConfigError(f"{self.where}: it is being written.")

    async def _read(self) -> Found:
        loaded = await self.configuration()
        if loaded.host.rstrip("/") != self.server:
            raise ConfigError(f"{self.where}: it names another server now.", "Restart slurm-bridge to use that server.")
        # A token file may end in a newline, which no header may hold.
        token = " ".join((loaded.api_key.get("BearerToken") or "").split())
        if token.lower() == "bearer":
            raise ConfigError(f"{self.where}: its token is empty.", TRY)
        try:
            trusted, certificate, key = map(_content, (loaded.ssl_ca_cert, loaded.cert_file, loaded.key_file))
        except OSError as error:
            raise ConfigError(
                f"{self.where}: a certificate or key of it cannot be read: {file_and_reason(error)}.", TRY
            ) from None
        # Otherwise the machine's authorities would be trusted instead.
        if loaded.ssl_ca_cert and b"-----BEGIN" not in trusted:
            raise self._no_authority()
        found = Found(token or None, trusted, certificate, key, bool(loaded.verify_ssl))
        return await self.plugin.run(found) if self.plugin is not None else found

    def _use(self, found: Found) -> None:
        """Raises ConfigError."""
        tls = self._context(found) if self.server.startswith("https:") else None
        token = (("Authorization", found.token),) if found.token else ()
        self._current = Credentials(self._current.generation + 1, (*token, *self.impersonate), tls)
        self._found = found

    def _no_authority(self) -> ConfigError:
        return ConfigError(f"{self.where}: its certificate-authority holds no certificate.", TRY)

    def _context(self, found: Found) -> ssl.SSLContext:
        try:
            # Not from a file: a container may have no place to write one.  None: the authorities of the machine.
            context = ssl.create_default_context(cadata=found.trusted.decode("ascii", "ignore") or None)
        except ssl.SSLError:
            raise self._no_authority() from None
        # Python >= 3.13 demands extensions that the certificates of many clusters lack and that no other client asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not found.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            with _file(found.certificate and found.certificate + b"\n" + found.key) as pair:
                if pair:
                    # A password callback that answers nothing: an encrypted key must fail here, not ask on a terminal.
                    context.load_cert_chain(pair, password=lambda: b"")
        except (ssl.SSLError, OSError, ValueError):
            if self.plugin is not None:
                raise self.plugin.wrong("printed a client certificate that cannot be used") from None
            raise ConfigError(f"{self.where}: its client certificate and key cannot be used.", TRY) from None
        return context


def _proxy_of_environment(server: str) -> str | None:
    url = urllib.parse.urlsplit(server)
    if not url.hostname or urllib.request.proxy_bypass(url.hostname):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _content(path: str | None) -> bytes:
    return Path(path).read_bytes() if path else b""


@contextmanager
def _file(content: bytes) -> Iterator[str | None]:
    """A file for a moment, readable by us alone, because the ssl module reads a client's certificate from files only.

    None: of no content.
    """
    if not content:
        yield None
        return
    with tempfile.NamedTemporaryFile(suffix=".pem") as made:
        made.write(content)
        made.flush()
        yield made.name


def _jwt_ends(token: str) -> float | None:
    """The expiry in the token, epoch seconds; None: it has none, or is no JWT."""
    part = [*token.split("."), "", ""][1].rstrip("=")
    try:
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        ends = float(claims["exp"])
        return ends if 0 <= ends < LAST_EPOCH else None
    except (ValueError, TypeError, LookupError, RecursionError):  # binascii's errors are of the first kind
        return None


def _moment(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
