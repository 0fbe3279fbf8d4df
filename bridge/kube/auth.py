"""Where the API server is, how to trust it, and who we are.

The `kubernetes` package reads kubeconfigs and the service account (paths, base64, merged files, TLS, proxies, OIDC);
three things are done here, because that package does not:

    what goes wrong     is one sentence that names the file and what to do, and never holds a secret (the package's own
                        texts quote the user entry, token and all)
    what changes        tokens rotate (the kubelet rewrites a service account's), certificates are renewed, exec
                        plugins issue short-lived ones: looked at again once a minute, and at once after a 401
    exec plugins        a missing or failing plugin is an error, not an anonymous client; it has a deadline;
                        certificates it issues expire too

An `Access` is plain: an address, a TLS context (its certificate is replaced in place) and `Credentials`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
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
SERVICE_ACCOUNT = Path(incluster_config.SERVICE_TOKEN_FILENAME).parent  # where the kubelet puts it
EXPIRY_MARGIN_S = 30.0  # a credential this near its end is renewed first: the server's clock is not ours
# What to do.
POINT = "Point --kubeconfig or KUBECONFIG at one."
CHOOSE = "Choose one of its contexts: kubectl config use-context NAME"
TRY = "See whether kubectl works with it, or point --kubeconfig or KUBECONFIG at another one."
BY_HAND = "Run it by hand to see why."

# The package's loaders carry no types.
_InClusterLoader: Any = incluster_config.InClusterConfigLoader
_KubeConfigLoader: Any = kube_config.KubeConfigLoader
_KubeConfigMerger: Any = kube_config.KubeConfigMerger

Headers = tuple[tuple[str, str], ...]
Now = Callable[[], float]


@dataclass(slots=True)
class Access:
    """How to reach one API server.

    server           base URL without a trailing slash
    tls              None for plain http (a local proxy)
    server_hostname  the name its certificate must have, where that is not the host's
    headers          Authorization and, where the kubeconfig impersonates somebody, Impersonate-*
    renew            after a 401 on these headers: are there newer credentials?  Raises ConfigError.
    """

    server: str
    tls: ssl.SSLContext | None
    server_hostname: str | None
    proxy: str | None
    headers: Callable[[], Awaitable[Headers]]
    renew: Callable[[Headers], Awaitable[bool]]


async def load(
    kubeconfig: str | None = None,
    *,
    now: Now = time.time,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Find the cluster: `kubeconfig` (one path), else $KUBECONFIG, else ~/.kube/config, else the service account.

    Raises ConfigError with one sentence.
    """
    named = kubeconfig or environ.get("KUBECONFIG")
    if named:
        return await _from_kubeconfig(named, now)
    home = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    if home.exists():
        return await _from_kubeconfig(str(home), now)
    if environ.get(incluster_config.SERVICE_HOST_ENV_NAME):
        return await _from_service_account(service_account, now, environ)
    raise ConfigError(
        f"no Kubernetes cluster to talk to: there is no kubeconfig (--kubeconfig, KUBECONFIG, {home}) and this is not "
        "a pod of a cluster.",
        "Name a kubeconfig with --kubeconfig FILE.",
    )


def anonymous(server: str) -> Access:
    """A server that asks nobody who he is: a simulated one, or a local proxy."""

    async def nobody() -> Headers:
        return ()

    async def nobody_else(_used: Headers) -> bool:
        return False

    return Access(server, None, None, None, nobody, nobody_else)


# --- the service account of a pod -----------------------------------------------------------------------------------


async def _from_service_account(folder: Path, now: Now, environ: Mapping[str, str]) -> Access:
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

    return await _access(configuration, "the pod's service account", (), now)


# --- a kubeconfig ---------------------------------------------------------------------------------------------------


async def _from_kubeconfig(named: str, now: Now) -> Access:
    user, where = _checked_user(named)
    impersonate = _impersonation(user, where)
    plugin = _ExecPlugin(user["exec"], where, now) if isinstance(user.get("exec"), dict) else None

    async def configuration() -> Configuration:
        merged = _KubeConfigMerger(named).config
        for entry in merged.value.get("users") or []:
            entry.value["user"].pop("exec", None)  # ours to run: the package takes a failing plugin for no user at all
        loaded = _new_configuration()
        try:
            await _KubeConfigLoader(merged, config_base_path=None).load_and_set(loaded)
        except ConfigException as error:
            # Only the text about a missing file is known to quote no secret.
            missing = str(error).partition("File does not exists: ")[2]
            raise ConfigError(f"{where}: {f'no such file: {missing}' if missing else 'cannot be used'}.", TRY) from None
        except OSError as error:
            raise ConfigError(f"{where}: {_reason(error)}.", TRY) from None
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f"{where}: cannot be used, for something in its entries.", TRY) from None
        return loaded

    return await _access(configuration, where, impersonate, now, plugin)


def _checked_user(named: str) -> tuple[dict[str, Any], str]:
    """The user entry of the current context, and what to call the whole in messages.  Raises ConfigError."""
    paths = [os.path.expanduser(path) for path in named.split(os.pathsep) if path]
    files = {path: _read_yaml(path) for path in paths if len(paths) == 1 or Path(path).exists()}
    if not files:
        raise ConfigError(f"kubeconfig {named}: no such file.", POINT)
    current = next((c for c in (file.get("current-context") for file in reversed(files.values())) if c), None)
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
    return user, f'kubeconfig {named}, context "{current}"'


def _read_yaml(path: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"kubeconfig {path}: no such file.", POINT) from None
    except OSError as error:
        raise ConfigError(f"kubeconfig {path}: cannot be read: {_reason(error)}.", POINT) from None
    except UnicodeError:
        raise ConfigError(f"kubeconfig {path}: not a kubeconfig (it is no text).", POINT) from None
    except yaml.YAMLError as error:
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
    plugin: _ExecPlugin | None = None,
) -> Access:
    loaded = await configuration()
    tls = _tls_context(loaded, where) if loaded.host.startswith("https:") else None
    credentials = _Credentials(configuration, where, impersonate, now, plugin, tls)
    await credentials.start(loaded)
    return Access(
        server=loaded.host.rstrip("/"),
        tls=tls,
        server_hostname=loaded.tls_server_name or None,
        proxy=loaded.proxy or _proxy_of_environment(loaded.host),
        headers=credentials.headers,
        renew=credentials.renew,
    )


@dataclass(slots=True)
class _Credentials:
    """Who we are, kept fresh."""

    configuration: Callable[[], Awaitable[Configuration]]
    where: str
    impersonate: Headers
    now: Now
    plugin: _ExecPlugin | None
    tls: ssl.SSLContext | None
    _token: str | None = None
    _certificate: tuple[object, ...] = ()
    _looked_at: float = 0.0
    _problem: ConfigError | None = None
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self, loaded: Configuration) -> None:
        """Raises ConfigError."""
        self._take(loaded)
        if self.plugin:
            self._token = await self.plugin.run(self.tls)
        self._looked_at = self.now()

    async def headers(self) -> Headers:
        """The headers of a request; a look at what may have changed, where that is due."""
        if self._is_due():
            async with self._busy:
                if self._is_due():  # or somebody else looked while we waited
                    # What cannot be read now may still be good; if it is not, the server says 401 and `renew` says why.
                    with contextlib.suppress(ConfigError):
                        await self._look()
        return self._headers()

    async def renew(self, used: Headers) -> bool:
        """After a 401 on `used`: are there newer ones?  Raises ConfigError."""
        async with self._busy:
            if self._headers() != used:
                return True
            before = self._certificate
            if self.now() - self._looked_at >= RENEW_EVERY_S:
                await self._look()
            elif self._problem:
                raise self._problem
            return self._headers() != used or self._certificate != before

    def _headers(self) -> Headers:
        token = (("Authorization", self._token),) if self._token else ()
        return (*token, *self.impersonate)

    def _is_due(self) -> bool:
        age = self.now() - self._looked_at
        return age >= RENEW_EVERY_S and self.plugin.expired() if self.plugin else age > RELOAD_EVERY_S

    async def _look(self) -> None:
        """Read everything anew.  Raises ConfigError, and remembers it."""
        try:
            if self.plugin:
                self._token = await self.plugin.run(self.tls)
            else:
                self._take(await self.configuration())
        except ConfigError as problem:
            self._problem = problem
            raise
        else:
            self._problem = None
        finally:
            self._looked_at = self.now()

    def _take(self, loaded: Configuration) -> None:
        token = loaded.api_key.get("BearerToken")
        # A token file may end in a newline, which no header may hold.
        self._token = " ".join(token.split()) if token else None
        files = (loaded.ssl_ca_cert, loaded.cert_file, loaded.key_file)
        stamp = tuple((name, _modified(name)) for name in files if name)
        if self.tls and self._certificate and stamp != self._certificate:
            _load_certificates(self.tls, loaded, self.where)
        self._certificate = stamp


@dataclass(slots=True)
class _ExecPlugin:
    """A client-go credential plugin: a program that prints an ExecCredential.

    Source: "client-go credential plugins" in the Kubernetes documentation.
    """

    entry: Mapping[str, Any]
    where: str
    now: Now
    _expires: float | None = None

    def expired(self) -> bool:
        return self._expires is not None and self.now() > self._expires - EXPIRY_MARGIN_S

    async def run(self, tls: ssl.SSLContext | None) -> str | None:
        """The Authorization header it gives; a client certificate goes into `tls`.  Raises ConfigError."""
        status = self._status(await self._output())
        expires = status.get("expirationTimestamp")
        self._expires = _epoch(expires) if isinstance(expires, str) else None
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if isinstance(certificate, str) and isinstance(key, str) and tls:
            try:
                _load_key_pair(tls, certificate, key)
            except (ssl.SSLError, OSError):
                raise self._wrong("printed a client certificate that cannot be used") from None
        elif not status.get("token"):
            raise self._wrong("printed neither a token nor a client certificate with its key")
        return f"Bearer {' '.join(str(status['token']).split())}" if status.get("token") else None

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
            raise self._wrong("is not installed", hint or "Install it on this host.") from None
        except OSError as error:
            raise self._wrong(f"cannot be started: {_reason(error)}") from None
        try:
            async with asyncio.timeout(EXEC_DEADLINE_S):
                output, _ = await process.communicate()
        except TimeoutError:
            raise self._wrong(f"did not answer within {EXEC_DEADLINE_S:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise self._wrong(f"failed with exit code {process.returncode}")
        return output

    def _command(self) -> str:
        command = str(self.entry.get("command") or "")
        if not command or not self.entry.get("apiVersion"):
            raise ConfigError(f"{self.where}: its exec entry lacks command or apiVersion.", TRY)
        if self.entry.get("interactiveMode") == "Always":
            raise self._wrong("asks for a terminal (interactiveMode Always), which a scheduler does not have")
        if "/" in command and not command.startswith("/"):  # relative to the kubeconfig, as kubectl has it
            folder = (
                Path(self.where.removeprefix("kubeconfig ").partition(",")[0].split(os.pathsep)[0]).expanduser().parent
            )
            return str(folder / command)
        return command

    def _status(self, output: bytes) -> Mapping[str, Any]:
        try:
            answer = json.loads(output)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("status"), dict):
            raise self._wrong("printed no ExecCredential with a status")
        if answer.get("apiVersion") != self.entry.get("apiVersion"):
            raise self._wrong(f"answered in {answer.get('apiVersion')}, asked in {self.entry.get('apiVersion')}")
        status: Mapping[str, Any] = answer["status"]
        return status

    def _wrong(self, what: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{self.where}: its exec plugin {self.entry.get('command')} {what}.", hint or BY_HAND)


# --- TLS ------------------------------------------------------------------------------------------------------------


def _tls_context(loaded: Configuration, where: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=loaded.ssl_ca_cert or None)
    except (ssl.SSLError, OSError):
        raise ConfigError(
            f"{where}: its certificate-authority {loaded.ssl_ca_cert} holds no certificate.", TRY
        ) from None
    # Python >= 3.13 demands extensions that the certificates of many clusters lack and that no other client asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not loaded.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_certificates(context, loaded, where)
    return context


def _load_certificates(context: ssl.SSLContext, loaded: Configuration, where: str) -> None:
    """Into the context in place: connections made from now on use them."""
    try:
        if loaded.ssl_ca_cert:
            context.load_verify_locations(cafile=loaded.ssl_ca_cert)
        if loaded.cert_file:
            # A password callback that answers nothing: an encrypted key must fail here, not ask on a terminal.
            context.load_cert_chain(loaded.cert_file, loaded.key_file or None, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError):
        raise ConfigError(
            f"{where}: its client certificate and key, or the certificate-authority, cannot be used.", TRY
        ) from None


def _load_key_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """The ssl module reads certificates from files only, so they are one for a moment, readable by us alone."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
        pair.write(certificate + "\n" + key)
        pair.flush()
        context.load_cert_chain(pair.name, password=lambda: b"")


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


def _modified(path: str) -> float | None:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return None


def _epoch(timestamp: str) -> float | None:
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _reason(error: Exception) -> str:
    """ "Permission denied" rather than "[Errno 13] Permission denied: '…'"; other texts of ours as they are."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error).rstrip(".")
