"""Credentials that change: their sources are read again once a minute, and at once after a 401.

The kubelet rotates the token of a service account, certificates are renewed, and exec plugins issue short-lived
credentials.  A source may be read while another program writes it: kubectl rewrites a kubeconfig in place.  So new content is
used only if it reads the same half a second later.  Until then the previous credentials stay in use.  If a source cannot be
used, `Access.trouble` and the log say why.

A set of credentials is replaced as a whole, and each set has a number (its generation).  If a certificate, its key or an
authority has changed, the set has another TLS context.  Connections with the former context are not used any more, so the
server sees a new certificate with the next request.  A new token needs no new connections.  If a request is answered 401, its
caller names the generation that it used.  If there is a newer set, the caller repeats the request; otherwise all such callers
wait for one read of the sources.  A monotonic clock measures the age of credentials.
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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from bridge.errors import ConfigError
from bridge.kube.access import Access, Credentials, Headers, Now
from bridge.kube.exec_plugin import ExecPlugin
from bridge.kube.sources import TRY, Found, Read, file_and_reason

RELOAD_EVERY_S = 60.0  # the kubelet rewrites a token at 80 % of its life, which is ten minutes at the least
RENEW_EVERY_S = 5.0  # at most, however many calls are answered 401
LAST_EPOCH = 1e11  # seconds; a year of four digits
# New content is used if it reads the same after this time: the first read may have seen a half-written file.
SETTLE_S = 0.5

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
    renewed = _RenewedCredentials(configuration, where, loaded.host.rstrip("/"), impersonate, now, wall, plugin)
    await renewed.start()
    return Access(
        server=renewed.server,
        server_hostname=loaded.tls_server_name or None,
        proxy=loaded.proxy or _proxy_of_environment(loaded.host),
        credentials=renewed.credentials,
        renew=renewed.renew,
        recheck=renewed.recheck,
        trouble=renewed.trouble,
        refused=renewed.refused,
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
    _read_at: float = 0.0
    _problem: ConfigError | None = None
    _recheck_due: bool = False
    _reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the first credentials.  Raises ConfigError."""
        self._use(await self._read())
        self._read_at = self.now()

    async def credentials(self) -> Credentials:
        """The current credentials.  If a read of the sources is due, they are read first."""
        if self._is_due():
            # If the sources cannot be read, the previous credentials may still be valid.  If not, `renew` raises after a 401.
            await self._reread()
        return self._current

    async def renew(self, used: int) -> bool:
        """After a 401 for the generation *used*: True if there are newer credentials.  Raises ConfigError."""
        if self._current.generation == used and (
            self._reading is not None or self.now() - self._read_at >= RENEW_EVERY_S
        ):
            await self._reread()
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
        kept = "The credentials that were read before stay in use."
        return " ".join(filter(None, [self._problem.what, kept, self._problem.do]))

    def refused(self) -> str:
        """See Access."""
        if not self._found.has_credentials:
            return f"{self.where}: it names no credentials, and the API server requires some"
        credential = "token" if self._found.token else "client certificate"
        ends = _jwt_ends(self._found.token or "")
        if ends is not None and ends <= self.wall():
            return f"{self.where}: its {credential} expired at {_moment(ends)}. Renew it"
        return f"{self.where}: the API server does not accept its {credential}. Renew it, or name one of this cluster"

    def _is_due(self) -> bool:
        age = self.now() - self._read_at
        if self.plugin is not None:
            return age >= RENEW_EVERY_S and (self._recheck_due or self.plugin.expired())
        return age >= RELOAD_EVERY_S or (age >= RENEW_EVERY_S and (self._recheck_due or self._problem is not None))

    async def _reread(self) -> None:
        """Read the sources once for all callers.  If one caller is cancelled, the read goes on for the others."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._reread_once(), name="read credentials")
        await asyncio.shield(self._reading)

    async def _reread_once(self) -> None:
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
            self._read_at, self._recheck_due = self.now(), False
            self._reading = None

    async def _settled(self, found: Found) -> None:
        """Read the sources again after SETTLE_S.  Raises ConfigError if the content differs: it is being written."""
        if self._found.has_credentials and not found.has_credentials:
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
        # With no authority, Python would trust the authorities of the machine instead.
        if loaded.ssl_ca_cert and b"-----BEGIN" not in trusted:
            raise self._no_authority()
        found = Found(token or None, trusted, certificate, key, bool(loaded.verify_ssl))
        found = await self.plugin.run(found) if self.plugin is not None else found
        if found.token and not (found.token.isascii() and found.token.isprintable()):
            raise ConfigError(f"{self.where}: its token has a character that no header may hold.", TRY)
        return found

    def _use(self, found: Found) -> None:
        """Make these the current credentials.  Raises ConfigError."""
        tls = self._current.tls
        if self._current.generation == 0 or replace(found, token=None) != replace(self._found, token=None):
            tls = self._context(found) if self.server.startswith("https:") else None
        token = (("Authorization", found.token),) if found.token else ()
        self._current = Credentials(self._current.generation + 1, (*token, *self.impersonate), tls)
        self._found = found

    def _no_authority(self) -> ConfigError:
        return ConfigError(f"{self.where}: its certificate-authority holds no certificate.", TRY)

    def _context(self, found: Found) -> ssl.SSLContext:
        try:
            # `cadata` and not a file: a container may have no place to write one.  None: the authorities of the machine.
            context = ssl.create_default_context(cadata=found.trusted.decode("ascii", "ignore") or None)
        except ssl.SSLError:
            raise self._no_authority() from None
        # Python >= 3.13 requires certificate extensions that many clusters lack and that no other client requires.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not found.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            with _file(found.certificate and found.certificate + b"\n" + found.key) as pair:
                if pair:
                    # The password is empty, so an encrypted key fails here; without it, ssl would ask on the terminal.
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
    """A temporary file that only this user may read: the ssl module reads a client certificate only from a file.

    None: there is no content.
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
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):  # binascii.Error is a ValueError
        return None


def _moment(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
