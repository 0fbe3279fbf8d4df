"""Where the API server is, how to trust it, and who we are.

The `kubernetes` package reads kubeconfigs and the service account (paths, base64, merged files, TLS, proxies);
these things are done here, because that package does not:

    what goes wrong     is one sentence that names the file and what to do, and never holds a secret (the package's own
                        texts quote the user entry, token and all)
    what changes        tokens rotate (the kubelet rewrites a service account's), certificates are renewed, exec
                        plugins issue short-lived ones: looked at again once a minute, and at once after a 401.  A file
                        can be seen while it is written (kubectl rewrites a kubeconfig in place): what was read is used
                        when it reads the same half a second later, and what was used before is kept meanwhile.
                        `Access.trouble` and the log say so: nothing else shows it before the older ones expire
    exec plugins        a missing or failing plugin is an error, not an anonymous client; it has a deadline;
                        certificates it issues expire too
    auth providers      are refused: the package renews OIDC tokens without checking whose answer it takes

Credentials are replaced whole, and each set has a number.  A TLS context is part of the set: connections that were made
with another one are not used for it, so new certificates are what the server sees from the next request on.  Callers
whose requests were answered 401 name the number they used: if there is a newer set they repeat, and otherwise all of them
wait for one look.  The age of credentials is measured by a monotonic clock.

An `Access` is plain: an address, and where its `Credentials` come from.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, incluster_config, kube_config

from bridge.errors import ConfigError

RELOAD_EVERY_S = 60.0  # the kubelet rewrites a token at 80 % of its life, which is ten minutes at the least
RENEW_EVERY_S = 5.0  # at most, however many calls are answered 401
EXEC_DEADLINE_S = 30.0
SETTLE_S = 0.5  # what changed is believed when it reads the same after so long: it may have been seen half-written
SERVICE_ACCOUNT = Path(incluster_config.SERVICE_TOKEN_FILENAME).parent  # where the kubelet puts it
LAST_EPOCH = 1e11  # seconds; a year of four digits
EXPIRY_MARGIN_S = 30.0  # a credential this near its end is renewed first: the server's clock is not ours
# What to do.
POINT = "Point --kubeconfig or KUBECONFIG at one."
CHOOSE = "Choose one of its contexts: kubectl config use-context NAME"
TRY = "See whether kubectl works with it, or point --kubeconfig or KUBECONFIG at another one."
BY_HAND = "Run it by hand to see why."
USE_PLUGIN = "Use an exec plugin instead (https://kubernetes.io/docs/reference/access-authn-authz/authentication/)."

# The package's loaders carry no types.
_InClusterLoader: Any = incluster_config.InClusterConfigLoader
_KubeConfigLoader: Any = kube_config.KubeConfigLoader
_KubeConfigMerger: Any = kube_config.KubeConfigMerger

Headers = tuple[tuple[str, str], ...]
Now = Callable[[], float]

log = logging.getLogger("slurm-bridge")


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
    trouble          why the sources as they are now are not used, as a sentence; "": they are
    refused          what to say if the server does not accept the credentials of now; "": nothing more than its answer
    named            what names the authorities to trust, for sentences; "": nothing does
    """

    server: str
    server_hostname: str | None
    proxy: str | None
    credentials: Callable[[], Awaitable[Credentials]]
    renew: Callable[[int], Awaitable[bool]]
    doubt: Callable[[], None] = lambda: None
    trouble: Callable[[], str] = lambda: ""
    refused: Callable[[], str] = lambda: ""
    named: str = ""


async def load(
    kubeconfig: str | None = None,
    *,
    now: Now = time.monotonic,
    wall: Now = time.time,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Find the cluster: `kubeconfig` (one path), else $KUBECONFIG, else ~/.kube/config, else the service account.

    now   seconds, for ages; wall: epoch seconds, by which an exec plugin says when its credentials end

    Raises ConfigError with one sentence.
    """
    named = kubeconfig or environ.get("KUBECONFIG")
    if named:
        return await _from_kubeconfig(named, now, wall)
    home = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    if home.exists():
        return await _from_kubeconfig(str(home), now, wall)
    if environ.get(incluster_config.SERVICE_HOST_ENV_NAME):
        return await _from_service_account(service_account, now, wall, environ)
    raise ConfigError(
        f"no Kubernetes cluster to talk to: there is no kubeconfig (--kubeconfig, KUBECONFIG, {home}) and this is not "
        "a pod of a cluster.",
        "Name a kubeconfig with --kubeconfig FILE.",
    )


def anonymous(server: str) -> Access:
    """A server that asks nobody who he is: a simulated one, or a local proxy."""

    async def nobody() -> Credentials:
        return Credentials(0, (), None)

    async def nobody_else(_used: int) -> bool:
        return False

    return Access(server, None, None, nobody, nobody_else)


# --- the service account of a pod -----------------------------------------------------------------------------------


async def _from_service_account(folder: Path, now: Now, wall: Now, environ: Mapping[str, str]) -> Access:
    async def configuration() -> Configuration:
        loader = _InClusterLoader(
            str(folder / "token"), str(folder / "ca.crt"), try_refresh_token=False, environ=environ
        )
        loaded = _new_configuration()
        try:
            loader.load_and_set(loaded)
        except (ConfigException, OSError) as error:
            # These texts name files and variables only.
            raise ConfigError(
                f"the pod's service account in {folder} cannot be used: {_reason(error)}.",
                "See that its token is mounted (automountServiceAccountToken), or name a kubeconfig with --kubeconfig FILE.",
            ) from None
        return loaded

    return await _access(configuration, f"the pod's service account in {folder}", (), now, wall)


# --- a kubeconfig ---------------------------------------------------------------------------------------------------


async def _from_kubeconfig(named: str, now: Now, wall: Now) -> Access:
    user, context, where = _checked_user(named)
    impersonate = _impersonation(user, where)
    plugin = _ExecPlugin(user["exec"], where, now, wall) if isinstance(user.get("exec"), dict) else None

    async def configuration() -> Configuration:
        user, _, _ = _checked_user(named, context)  # it may have been rewritten
        loaded = _new_configuration()
        try:
            merged = _KubeConfigMerger(named).config
            for entry in merged.value.get("users") or []:
                entry.value["user"].pop(
                    "exec", None
                )  # ours to run: the package takes a failing plugin for no user at all
            await _KubeConfigLoader(merged, active_context=context, config_base_path=None).load_and_set(loaded)
        except ConfigException as error:
            # Only the text about a missing file is known to quote no secret.
            missing = str(error).partition("File does not exists: ")[2]
            raise ConfigError(f"{where}: {f'no such file: {missing}' if missing else 'cannot be used'}.", TRY) from None
        except OSError as error:
            raise ConfigError(f"{where}: {_file_and_reason(error)}.", TRY) from None
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError, yaml.YAMLError):
            raise ConfigError(f"{where}: cannot be used, for something in its entries.", TRY) from None
        if user.keys() & {"token", "tokenFile"} and not loaded.api_key.get("BearerToken") and not loaded.cert_file:
            raise ConfigError(f"{where}: its token is empty.", TRY)
        return loaded

    return await _access(configuration, where, impersonate, now, wall, plugin)


def _checked_user(named: str, chosen: str | None = None) -> tuple[dict[str, Any], str, str]:
    """The user entry of a context, the context's name, and what to call the whole in messages.  Raises ConfigError.

    chosen   the context; None: the current one
    """
    paths = [os.path.expanduser(path) for path in named.split(os.pathsep) if path]
    files = {path: _read_yaml(path) for path in paths if len(paths) == 1 or Path(path).exists()}
    if not files:
        raise ConfigError(f"kubeconfig {named}: no such file.", POINT)
    current = chosen or next((c for c in (file.get("current-context") for file in reversed(files.values())) if c), None)
    if not current:
        raise ConfigError(f"kubeconfig {named}: no current-context.", CHOOSE)
    context = _entry(files, "contexts", str(current), "context")
    if context is None:
        raise ConfigError(f'kubeconfig {named}: its current-context "{current}" is not among its contexts.', CHOOSE)
    cluster = _entry(files, "clusters", str(context.get("cluster")), "cluster")
    if cluster is None or not cluster.get("server"):
        raise ConfigError(f'kubeconfig {named}: context "{current}" names no cluster that has a server.', CHOOSE)
    user_name = context.get("user")
    user = _entry(files, "users", str(user_name), "user") if user_name else {}
    if user is None:
        said = f'kubeconfig {named}: context "{current}" names the user "{user_name}", who is not in it.'
        raise ConfigError(said, CHOOSE)
    where = f'kubeconfig {named}, context "{current}"'
    if "auth-provider" in user:
        raise ConfigError(f"{where}: its user has an auth-provider, which is not supported.", USE_PLUGIN)
    return user, str(current), where


def _read_yaml(path: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"kubeconfig {path}: no such file.", POINT) from None
    except OSError as error:
        raise ConfigError(f"kubeconfig {path}: cannot be read: {_reason(error)}.", POINT) from None
    except UnicodeError:
        raise ConfigError(f"kubeconfig {path}: not a kubeconfig (it is no text).", POINT) from None
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f" (line {mark.line + 1})" if mark else ""
        raise ConfigError(f"kubeconfig {path}: not valid YAML{at}.", TRY) from None
    if not isinstance(content, dict) or not _well_formed(content):
        raise ConfigError(f"kubeconfig {path}: not a kubeconfig (no clusters, contexts and users in it).", POINT)
    return content


def _well_formed(content: dict[str, Any]) -> bool:
    return all(
        isinstance(content.get(plural) or [], list)
        and all(isinstance(e, dict) and isinstance(e.get("name"), str) for e in content.get(plural) or [])
        and all(isinstance(e.get(plural[:-1]) or {}, dict) for e in content.get(plural) or [])
        for plural in ("clusters", "contexts", "users")
    )


def _entry(files: Mapping[str, dict[str, Any]], plural: str, name: str, singular: str) -> dict[str, Any] | None:
    """The named entry; the first file that has it wins, as kubectl merges."""
    for file in files.values():
        for entry in file.get(plural) or []:
            if entry["name"] == name:
                return entry.get(singular) or {}
    return None


def _impersonation(user: Mapping[str, Any], where: str) -> Headers:
    """Never dropped: that would act with more rights than the kubeconfig says."""
    if unknown := sorted({"as-uid", "as-user-extra"} & user.keys()):
        raise ConfigError(f"{where}: {' and '.join(unknown)} is not supported.", "Use as and as-groups.")
    if "as" not in user:
        return ()
    groups = [("Impersonate-Group", str(group)) for group in user.get("as-groups") or []]
    return (("Impersonate-User", str(user["as"])), *groups)


# --- credentials that change ----------------------------------------------------------------------------------------


async def _access(
    configuration: Callable[[], Awaitable[Configuration]],
    where: str,
    impersonate: Headers,
    now: Now,
    wall: Now,
    plugin: _ExecPlugin | None = None,
) -> Access:
    loaded = await configuration()
    kept = _Kept(configuration, where, loaded.host.rstrip("/"), impersonate, now, wall, plugin)
    await kept.start()
    return Access(
        server=kept.server,
        server_hostname=loaded.tls_server_name or None,
        proxy=loaded.proxy or _proxy_of_environment(loaded.host),
        credentials=kept.credentials,
        renew=kept.renew,
        doubt=kept.doubt,
        trouble=kept.trouble,
        refused=kept.refused,
        named=where,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """What was read; two that are equal make the same credentials.

    token        the Authorization header
    trusted      certificate authorities, PEM; b"": those of the machine
    certificate, key   our own, PEM; b"": none
    verify       the server has to prove who it is
    """

    token: str | None = None
    trusted: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    verify: bool = True

    @property
    def says_who(self) -> bool:
        return bool(self.token or self.certificate)


@dataclass(slots=True)
class _Kept:
    """Who we are, kept fresh."""

    configuration: Callable[[], Awaitable[Configuration]]
    where: str
    server: str
    impersonate: Headers
    now: Now
    wall: Now
    plugin: _ExecPlugin | None
    _found: _Found = _Found()
    _current: Credentials = Credentials(0, (), None)
    _looked_at: float = 0.0
    _problem: ConfigError | None = None
    _doubted: bool = False
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

    def doubt(self) -> None:
        """See Access."""
        self._doubted = True

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
            return age >= RENEW_EVERY_S and (self._doubted or self.plugin.expired())
        return age >= RELOAD_EVERY_S or (age >= RENEW_EVERY_S and (self._doubted or self._problem is not None))

    async def _look(self) -> None:
        """Look at the sources once for all callers; the look goes on if one caller is cancelled."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_once(), name="look for credentials")
        await asyncio.shield(self._looking)

    async def _look_once(self) -> None:
        """Read everything anew.  What goes wrong is remembered, and what was used before is kept."""
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
            self._looked_at, self._doubted = self.now(), False
            self._looking = None

    async def _settled(self, found: _Found) -> None:
        """Raises ConfigError where it reads otherwise after a while: somebody is writing it."""
        if self._found.says_who and not found.says_who:
            raise ConfigError(f"{self.where}: it names no credentials any more.", TRY)
        await asyncio.sleep(SETTLE_S)
        if await self._read() != found:
            raise ConfigError(f"{self.where}: it is being written.")

    async def _read(self) -> _Found:
        loaded = await self.configuration()
        if loaded.host.rstrip("/") != self.server:
            raise ConfigError(
                f"{self.where}: it names another server now.", "Restart slurm-bridge, for it to go there."
            )
        # A token file may end in a newline, which no header may hold.
        token = " ".join((loaded.api_key.get("BearerToken") or "").split())
        if token.lower() == "bearer":
            raise ConfigError(f"{self.where}: its token is empty.", TRY)
        try:
            trusted, certificate, key = map(_content, (loaded.ssl_ca_cert, loaded.cert_file, loaded.key_file))
        except OSError as error:
            raise ConfigError(
                f"{self.where}: a certificate or key of it cannot be read: {_file_and_reason(error)}.", TRY
            ) from None
        if loaded.ssl_ca_cert and b"-----BEGIN" not in trusted:  # else those of the machine would be trusted instead
            raise self._no_authority()
        found = _Found(token or None, trusted, certificate, key, bool(loaded.verify_ssl))
        return await self.plugin.run(found) if self.plugin is not None else found

    def _use(self, found: _Found) -> None:
        """Raises ConfigError."""
        tls = self._context(found) if self.server.startswith("https:") else None
        token = (("Authorization", found.token),) if found.token else ()
        self._current = Credentials(self._current.generation + 1, (*token, *self.impersonate), tls)
        self._found = found

    def _no_authority(self) -> ConfigError:
        return ConfigError(f"{self.where}: its certificate-authority holds no certificate.", TRY)

    def _context(self, found: _Found) -> ssl.SSLContext:
        try:
            # Not by way of a file: a container may have no place to write one.  None: the authorities of the machine.
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


@dataclass(slots=True)
class _ExecPlugin:
    """A client-go credential plugin: a program that prints an ExecCredential.

    Source: "client-go credential plugins" in the Kubernetes documentation.
    """

    entry: Mapping[str, Any]
    where: str
    now: Now
    wall: Now
    _expires: float | None = None  # by `now`

    def expired(self) -> bool:
        return self._expires is not None and self.now() > self._expires - EXPIRY_MARGIN_S

    async def run(self, found: _Found) -> _Found:
        """What was found, with the token or the client certificate that it gives.  Raises ConfigError."""
        status = self._status(await self._output())
        expires, said = status.get("expirationTimestamp"), status.get("token")
        ends = _epoch(expires) if isinstance(expires, str) else None
        self._expires = None if ends is None else self.now() + (ends - self.wall())
        pair = [status.get("clientCertificateData"), status.get("clientKeyData")]
        certificate, key = (text.encode() if isinstance(text, str) else b"" for text in pair)
        token = " ".join(said.split()) if isinstance(said, str) else ""
        if not token and not (certificate and key):
            raise self.wrong("printed neither a token nor a client certificate with its key")
        if not (certificate and key):
            certificate, key = found.certificate, found.key
        return replace(found, token=f"Bearer {token}" if token else found.token, certificate=certificate, key=key)

    async def _output(self) -> bytes:
        command = [self._command(), *map(str, self.entry.get("args") or [])]
        variables = {str(item["name"]): str(item["value"]) for item in self.entry.get("env") or []}
        info = {"apiVersion": self.entry.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
        except FileNotFoundError:
            hint = " ".join(str(self.entry.get("installHint") or "").split())
            raise self.wrong("is not installed", hint or "Install it on this host.") from None
        except OSError as error:
            raise self.wrong(f"cannot be started: {_reason(error)}") from None
        try:
            async with asyncio.timeout(EXEC_DEADLINE_S):
                output, _ = await process.communicate()
        except TimeoutError:
            raise self.wrong(f"did not answer within {EXEC_DEADLINE_S:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise self.wrong(f"failed with exit code {process.returncode}")
        return output

    def _command(self) -> str:
        command = str(self.entry.get("command") or "")
        if not command or not self.entry.get("apiVersion"):
            raise ConfigError(f"{self.where}: its exec entry lacks command or apiVersion.", TRY)
        if self.entry.get("interactiveMode") == "Always":
            raise self.wrong("asks for a terminal (interactiveMode Always), which a scheduler does not have")
        if "/" in command and not command.startswith("/"):  # relative to the kubeconfig, as kubectl has it
            folder = (
                Path(self.where.removeprefix("kubeconfig ").partition(",")[0].split(os.pathsep)[0]).expanduser().parent
            )
            return str(folder / command)
        return command

    def _status(self, output: bytes) -> Mapping[str, Any]:
        try:
            answer = json.loads(output)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("status"), dict):
            raise self.wrong("printed no ExecCredential with a status")
        if answer.get("apiVersion") != self.entry.get("apiVersion"):
            raise self.wrong(f"answered in {answer.get('apiVersion')}, asked in {self.entry.get('apiVersion')}")
        status: Mapping[str, Any] = answer["status"]
        return status

    def wrong(self, what: str, hint: str = "") -> ConfigError:
        """What went wrong, and what to do."""
        return ConfigError(f"{self.where}: its exec plugin {self.entry.get('command')} {what}.", hint or BY_HAND)


# --- small things ---------------------------------------------------------------------------------------------------


def _new_configuration() -> Configuration:
    # As the package's own loaders do: calling the class would copy a process-wide default.
    made: Configuration = type.__call__(Configuration)
    return made


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
    """When it says that it expires, epoch seconds; None: it says nothing, as one that is no JWT."""
    part = [*token.split("."), "", ""][1].rstrip("=")
    try:
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        ends = float(claims["exp"])
        return ends if 0 <= ends < LAST_EPOCH else None
    except (ValueError, TypeError, LookupError, RecursionError):  # binascii's errors are of the first kind
        return None


def _moment(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _epoch(timestamp: str) -> float | None:
    try:
        moment = datetime.fromisoformat(timestamp)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _file_and_reason(error: OSError) -> str:
    return f"{error.filename}: {_reason(error)}" if error.filename else _reason(error)


def _reason(error: Exception) -> str:
    """ "Permission denied" rather than "[Errno 13] Permission denied: '…'"; other texts of ours as they are."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error).rstrip(".")
