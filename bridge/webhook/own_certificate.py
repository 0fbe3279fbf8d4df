"""The webhook's own certificate: kept in a Secret, renewed in time, and trusted by the API server.

Every replica reads two objects every few seconds, and writes what is missing or due:

    Secret                         tls.crt, tls.key: the certificate that replicas use.  ca.crt: its authority, and the
                                   authorities of earlier certificates that have not expired
    MutatingWebhookConfiguration   the caBundle of each webhook gets the content of ca.crt.  The certificate is for the name
                                   of the Service, or the host of the URL, in the configuration

Every write names the resourceVersion that was read.  If two replicas renew at the same time, the API server refuses the
second write, and that replica reads the certificate that the first one wrote.

A renewed certificate is used SETTLE_S after this replica saw that the configuration trusts it, because API servers learn of a
changed configuration a little later.  A replica without a valid certificate uses it at once.  The former certificate stays
trusted until it expires, so replicas may use different certificates meanwhile.

The Secret must exist: then the account needs no right to create Secrets.  Kubernetes cannot limit this right to one name.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from bridge.errors import ConfigError, Conflict, ContractError, NotFound, NotYet, RemoteError, Unauthorized, said
from bridge.kube.codec import encode
from bridge.kube.decoding import decoded
from bridge.kube.responses import judged
from bridge.kube.transport import SIDE, Call, Transport
from bridge.webhook.certificates import Made, Pair, Unusable, bundle, check, make, moment, read, signed_by

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
SETTLE_S = 5.0
DEADLINE_S = 5.0
MOST_TRIES = 5  # tries of one `look`, after conflicts
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
RIGHTS = "Give its account the rights of manifests/webhook/rbac.yaml, or the process a certificate (--tls-cert-file)."

log = logging.getLogger("slurm-bridge")
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Places:
    """The two objects that the webhook reads and writes.

    namespace, secret   namespace and name of the Secret
    configuration       name of the MutatingWebhookConfiguration
    """

    namespace: str
    secret: str
    configuration: str

    @property
    def secret_path(self) -> str:
        """The path of the Secret in the API."""
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/secrets/{quote(self.secret, safe='')}"

    @property
    def configuration_path(self) -> str:
        """The path of the MutatingWebhookConfiguration in the API."""
        return f"{CONFIGURATIONS}/{quote(self.configuration, safe='')}"

    @property
    def the_secret(self) -> str:
        """The Secret in words, for messages."""
        return f"the Secret {self.namespace}/{self.secret}"

    @property
    def the_configuration(self) -> str:
        """The MutatingWebhookConfiguration in words, for messages."""
        return f"the MutatingWebhookConfiguration {self.configuration}"


class OwnCertificate:
    """One replica, which reads, renews and uses the certificate.

    use    is called with a pair that is to be used from now on; raises Unusable
    wall   returns the time in epoch seconds
    clock  returns monotonic seconds
    """

    def __init__(
        self,
        transport: Transport,
        places: Places,
        use: Callable[[Pair], None],
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._places = places
        self._use = use
        self._wall = wall
        self._clock = clock
        self._used: Made | None = None
        self._trusted: tuple[bytes, float] | None = None  # a certificate, and when it was first seen to be trusted

    async def look(self) -> None:
        """Read both objects, write what is missing or due, and use the certificate when that is safe.

        Raises NotYet if it fails and the problem may end by itself; otherwise ConfigError.  The former certificate then stays
        in use.
        """
        for _ in range(MOST_TRIES):
            try:
                await self._look_once()
            except Conflict:
                continue  # another replica, or a person, wrote the object in between
            return
        raise NotYet(f"{self._places.the_secret} or {self._places.the_configuration} is changed again and again.")

    async def _look_once(self) -> None:
        configuration = await self._read(self._places.the_configuration, self._places.configuration_path)
        names = self._names(configuration)
        secret = await self._read(self._places.the_secret, self._places.secret_path)
        kept = self._kept(secret, names)
        if kept is None:
            kept = await self._renew(secret, names)
        is_trusted = _trusts(configuration, kept.pair)
        await self._be_trusted(configuration, bundle([kept.authority], self._wall()))
        self._switch(kept, is_trusted=is_trusted)

    # --- the Secret -----------------------------------------------------------------------------------------------

    def _kept(self, secret: Object, names: frozenset[str]) -> Made | None:
        """The certificate in the Secret; None: a new one is needed.  Raises ConfigError if the Secret has other content."""
        data = _data(secret)
        kind = secret.get("type") or "Opaque"
        if kind != "Opaque" or data.keys() - {CERTIFICATE, KEY, AUTHORITIES}:
            raise ConfigError(
                f"{self._places.the_secret} holds data that slurm-bridge webhook did not write (type {kind}, keys "
                f"{', '.join(sorted(data)) or 'none'}).",
                "Name an empty one (--secret NAMESPACE/NAME), or use its certificate as files (--tls-cert-file).",
            )
        if not data:
            return None
        try:
            pair = read(data.get(CERTIFICATE, b""), data.get(KEY, b""))
            check(pair, self._wall())
            if not signed_by(pair, data.get(AUTHORITIES, b"")):
                raise Unusable(f"no authority in {AUTHORITIES} signed the certificate")
            if missing := names - pair.names:
                raise Unusable(f"the certificate is not for {', '.join(sorted(missing))}")
        except Unusable as error:
            log.warning("%s cannot be used: %s; a new certificate is made", self._places.the_secret, error)
            return None
        return None if pair.is_due(self._wall()) else Made(pair, data[AUTHORITIES])

    async def _renew(self, secret: Object, names: frozenset[str]) -> Made:
        """Make a certificate, and write it into the Secret.  Raises Conflict, ConfigError."""
        made = make(names, self._wall())
        older = [_data(secret).get(AUTHORITIES, b""), self._used.authority if self._used else b""]
        kept = Made(made.pair, bundle([made.authority, *older], self._wall()))
        data = {CERTIFICATE: made.pair.certificate, KEY: made.pair.key, AUTHORITIES: kept.authority}
        changed = {**secret, "data": {key: base64.b64encode(value).decode() for key, value in data.items()}}
        await self._write(self._places.the_secret, self._places.secret_path, changed)
        log.info("made a certificate for %s, valid until %s", ", ".join(sorted(names)), moment(made.pair.ends))
        return kept

    # --- the configuration ----------------------------------------------------------------------------------------

    def _names(self, configuration: Object) -> frozenset[str]:
        """The host names that the API server calls.  Raises ConfigError if the configuration has none."""
        found = {_host(webhook) for webhook in _webhooks(configuration)} - {""}
        if not found:
            raise ConfigError(
                f"{self._places.the_configuration} names no Service and no URL.", "Apply manifests/webhook again."
            )
        return frozenset(found)

    async def _be_trusted(self, configuration: Object, authorities: bytes) -> None:
        """Write the authorities into each webhook, if a webhook has other authorities.  Raises Conflict, ConfigError."""
        wanted = base64.b64encode(authorities).decode()
        webhooks = _webhooks(configuration)
        if all(_client(webhook).get("caBundle") == wanted for webhook in webhooks):
            return
        changed = [{**webhook, "clientConfig": {**_client(webhook), "caBundle": wanted}} for webhook in webhooks]
        await self._write(
            self._places.the_configuration, self._places.configuration_path, {**configuration, "webhooks": changed}
        )
        log.info("wrote caBundle of %s", self._places.the_configuration)

    # --- which certificate is used --------------------------------------------------------------------------------

    def _switch(self, kept: Made, *, is_trusted: bool) -> None:
        """Use that certificate if the API server has trusted it for SETTLE_S, or if this replica has no valid certificate.

        is_trusted   True if the configuration, as it was read now, trusts the certificate
        Raises ConfigError if TLS cannot use the certificate.
        """
        if self._used is not None and kept.pair == self._used.pair:
            self._used = kept
            return
        if not is_trusted:
            self._trusted = None
        elif self._trusted is None or self._trusted[0] != kept.pair.certificate:
            self._trusted = kept.pair.certificate, self._clock()
        is_settled = self._trusted is not None and self._clock() - self._trusted[1] >= SETTLE_S
        if self._used is None or self._wall() >= self._used.pair.ends or is_settled:
            try:
                self._use(kept.pair)
            except Unusable as error:
                raise ConfigError(
                    f"{self._places.the_secret}: {error}.", "Empty the Secret, and a new certificate is made."
                ) from None
            self._used = kept
            log.info("uses the certificate that is valid until %s", moment(kept.pair.ends))

    # --- calls ----------------------------------------------------------------------------------------------------

    async def _read(self, thing: str, path: str) -> Object:
        """The object at that path.  thing: the object in words.  Raises ConfigError."""
        try:
            return await self._exchange(f"read {thing}", "GET", path, None)
        except RemoteError as error:
            raise _mistake(f"read {thing}", error) from None

    async def _write(self, thing: str, path: str, changed: Object) -> None:
        """Replace the object at that path.  Raises Conflict, ConfigError."""
        try:
            await self._exchange(f"write {thing}", "PUT", path, changed)
        except Conflict:
            raise
        except RemoteError as error:
            raise _mistake(f"write {thing}", error) from None

    async def _exchange(self, operation: str, method: str, path: str, body: Object | None) -> Object:
        """The object in the API server's answer.  Raises RemoteError."""
        sent = None if body is None else encode(body)
        reply = judged(operation, await self._transport.exchange(Call(method, path, body=sent, deadline_s=DEADLINE_S)))
        content = decoded(msgspec.json.decode, reply.body, operation)
        if not isinstance(content, dict) or not _mapping(content.get("metadata")).get("resourceVersion"):
            raise ContractError(operation, SIDE, "the answer is no object", reply.status)
        return content


def _mistake(doing: str, error: RemoteError) -> ConfigError:
    if isinstance(error, Unauthorized):
        return ConfigError(f"slurm-bridge webhook may not {doing}: {said(error)}", RIGHTS)
    if isinstance(error, NotFound):
        return NotYet(f"slurm-bridge webhook cannot {doing}: it does not exist.", "Apply manifests/webhook.")
    return NotYet(said(error))


def _trusts(configuration: Object, pair: Pair) -> bool:
    """True if every webhook of the configuration trusts an authority that signed the certificate."""
    return all(signed_by(pair, _binary(_client(webhook).get("caBundle"))) for webhook in _webhooks(configuration))


def _host(webhook: Object) -> str:
    """The name that the API server expects in the certificate; "": the webhook has no Service and no valid URL."""
    client = _client(webhook)
    service, url = _mapping(client.get("service")), client.get("url")
    if service.get("name") and service.get("namespace"):
        return f"{service['name']}.{service['namespace']}.svc"
    try:
        host = urlsplit(url).hostname if isinstance(url, str) else None
    except ValueError:
        return ""
    try:
        return str(ipaddress.ip_address(host or ""))
    except ValueError:
        pass
    try:
        return (host or "").encode("idna").decode()  # a certificate names no other letters than ASCII
    except UnicodeError:
        return ""


def _webhooks(configuration: Object) -> list[Object]:
    found = configuration.get("webhooks")
    return [_mapping(item) for item in found] if isinstance(found, list) else []


def _client(webhook: Object) -> Object:
    return _mapping(webhook.get("clientConfig"))


def _data(secret: Object) -> dict[str, bytes]:
    return {key: _binary(value) for key, value in _mapping(secret.get("data")).items()}


def _binary(value: object) -> bytes:
    try:
        return base64.b64decode(value) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
