"""Replicas agree on one certificate, renew it in time, and use it only when the API server trusts it."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge.errors import ConfigError, NotYet, Unreachable
from bridge.kube.transport import Call, Reply
from bridge.webhook.certificates import Made, Pair, make, signed_by
from bridge.webhook.own_certificate import SETTLE_S, OwnCertificate, Places
from tests.unit.webhook.pem import DAY, NOW

PLACES = Places("slurm-bridge", "slurm-bridge-webhook", "slurm-bridge-webhook")
SERVICE = "slurm-bridge-webhook.slurm-bridge.svc"


@dataclass
class Cluster:
    """An API server that keeps the two objects.

    forbidden, away   methods and paths that are answered 403; nothing is answered
    meanwhile         writes of somebody else that happen just before the next write
    """

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    away: bool = False
    writes: list[str] = field(default_factory=list)
    version: int = 1

    def __post_init__(self) -> None:
        self.put(PLACES.secret_path, {"kind": "Secret", "metadata": {"name": "x"}, "type": "Opaque"})
        service = {"name": "slurm-bridge-webhook", "namespace": "slurm-bridge", "path": "/intercept"}
        webhook = {"name": "pods.intercept.slurm-bridge", "clientConfig": {"service": service}, "timeoutSeconds": 3}
        self.put(PLACES.configuration_path, {"metadata": {"name": "x"}, "webhooks": [webhook]})

    def put(self, path: str, content: dict[str, Any]) -> None:
        self.version += 1
        metadata = {**content["metadata"], "resourceVersion": str(self.version)}
        self.objects[path] = {**content, "metadata": metadata}

    async def exchange(self, call: Call) -> Reply:
        await asyncio.sleep(0)
        if self.away:
            raise Unreachable(call.method.lower(), "Kubernetes", "no route to the API server")
        if (call.method, call.path) in self.forbidden:
            return status(403, "Forbidden", 'secrets "x" is forbidden')
        if call.path not in self.objects:
            return status(404, "NotFound", "not found")
        if call.method == "PUT":
            sent = json.loads(call.body or b"")
            if sent["metadata"]["resourceVersion"] != self.objects[call.path]["metadata"]["resourceVersion"]:
                return status(409, "Conflict", "the object has been modified")
            self.put(call.path, sent)
            self.writes.append(call.path)
        return Reply(200, {}, json.dumps(self.objects[call.path]).encode())

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is watched")

    async def close(self) -> None:
        """Nothing is held."""

    # --- what it holds --------------------------------------------------------------------------------------------

    @property
    def secret(self) -> dict[str, bytes]:
        data = self.objects[PLACES.secret_path].get("data") or {}
        return {key: base64.b64decode(value) for key, value in data.items()}

    @property
    def trusted(self) -> bytes:
        [webhook] = self.objects[PLACES.configuration_path]["webhooks"]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))

    def keep(self, data: dict[str, bytes], **more: Any) -> None:
        """As a person with kubectl."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self.put(PLACES.secret_path, {**self.objects[PLACES.secret_path], "data": encoded, **more})

    def keeps(self, made: Made) -> None:
        self.keep({"tls.crt": made.pair.certificate, "tls.key": made.pair.key, "ca.crt": made.authority})


def status(code: int, reason: str, message: str) -> Reply:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": {"name": "x"}}
    return Reply(code, {}, json.dumps(body).encode())


class Replica:
    """now: epoch seconds, and its monotonic clock.  uses: the pairs that it used, in order."""

    def __init__(self, cluster: Cluster, now: float = NOW) -> None:
        self.now = now
        self.uses: list[Pair] = []
        self.own = OwnCertificate(cluster, PLACES, self.uses.append, lambda: self.now, lambda: self.now)

    async def look(self, later_s: float = 0.0) -> None:
        self.now += later_s
        await self.own.look()


async def test_the_first_one_makes_a_certificate_and_the_api_server_trusts_it() -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    await replica.look()
    [pair] = replica.uses
    assert pair.names == {SERVICE}
    assert cluster.secret["tls.crt"] == pair.certificate
    assert signed_by(pair, cluster.trusted)
    [webhook] = cluster.objects[PLACES.configuration_path]["webhooks"]
    assert webhook["timeoutSeconds"] == 3, "nothing else was changed"


async def test_the_key_of_the_authority_is_kept_nowhere() -> None:
    cluster = Cluster()
    await Replica(cluster).look()
    assert cluster.secret.keys() == {"tls.crt", "tls.key", "ca.crt"}
    assert cluster.secret["tls.key"].count(b"PRIVATE KEY") == 2
    assert b"PRIVATE" not in cluster.secret["ca.crt"]


async def test_nothing_is_written_where_all_is_in_order() -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    await replica.look()
    before = list(cluster.writes)
    await replica.look(30 * DAY)
    assert cluster.writes == before
    assert len(replica.uses) == 1


async def test_two_that_start_at_once_agree() -> None:
    cluster = Cluster()
    both = [Replica(cluster), Replica(cluster)]
    await asyncio.gather(*(each.look() for each in both))
    assert both[0].uses == both[1].uses
    assert cluster.writes.count(PLACES.secret_path) == 1
    assert signed_by(both[0].uses[0], cluster.trusted)


async def test_two_that_renew_at_once_agree_and_stay_trusted_meanwhile() -> None:
    cluster = Cluster()
    both = [Replica(cluster), Replica(cluster)]
    await asyncio.gather(*(each.look() for each in both))
    await asyncio.gather(*(each.look(60 * DAY) for each in both))
    for each in both:
        assert len(each.uses) == 1, "the configuration was changed only now"
        assert signed_by(each.uses[-1], cluster.trusted)
    await asyncio.gather(*(each.look(1.0) for each in both))
    assert [len(each.uses) for each in both] == [1, 1], "API servers may not know of it yet"
    await both[0].look(SETTLE_S)
    assert [len(each.uses) for each in both] == [2, 1]
    for each in both:
        assert signed_by(each.uses[-1], cluster.trusted)
    await both[1].look(SETTLE_S)
    assert both[0].uses[1] == both[1].uses[1]
    assert cluster.writes.count(PLACES.secret_path) == 2


async def test_an_expired_authority_is_not_trusted_any_more() -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    await replica.look()
    old = replica.uses[0]
    await replica.look(60 * DAY)
    await replica.look(SETTLE_S)
    await replica.look(SETTLE_S)
    assert signed_by(old, cluster.trusted)
    await replica.look(30 * DAY)
    assert not signed_by(old, cluster.trusted)
    assert signed_by(replica.uses[-1], cluster.trusted)


async def test_a_bundle_that_another_client_changed_is_written_again() -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    await replica.look()
    before = cluster.trusted
    configuration = cluster.objects[PLACES.configuration_path]
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = ""
    cluster.put(PLACES.configuration_path, configuration)
    await replica.look(10)
    assert cluster.trusted == before


async def test_a_secret_that_was_emptied_gets_another_certificate_and_the_one_in_use_stays_trusted() -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    await replica.look()
    cluster.keep({})
    await replica.look(10)
    assert len(replica.uses) == 1
    assert signed_by(replica.uses[0], cluster.trusted)
    await replica.look(10)
    await replica.look(10)
    assert replica.uses[1].certificate == cluster.secret["tls.crt"] != replica.uses[0].certificate


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda data, _: {**data, "tls.crt": data["tls.key"], "tls.key": data["tls.crt"]}, "are swapped"),
        (lambda data, other: {**data, "tls.key": other.pair.key}, "the key does not belong to the certificate"),
        (lambda data, other: {**data, "ca.crt": other.authority}, "no authority in ca.crt signed the certificate"),
        (lambda data, _: {**data, "tls.crt": b"junk"}, "there is no certificate in PEM"),
        (lambda data, _: {"tls.crt": data["tls.crt"]}, "there is no private key in PEM"),
    ],
)
async def test_a_secret_that_another_client_broke_is_replaced_and_reported(
    harm: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    await Replica(cluster).look()
    cluster.keep(harm(cluster.secret, make([SERVICE], NOW)))
    caplog.set_level(logging.INFO)
    replica = Replica(cluster)
    await replica.look()
    assert signed_by(replica.uses[0], cluster.trusted)
    assert why in caplog.text
    assert "PRIVATE" not in caplog.text


async def test_an_expired_certificate_and_one_for_another_name_are_replaced() -> None:
    for kept in (make([SERVICE], NOW - 91 * DAY), make(["other.slurm-bridge.svc"], NOW)):
        cluster = Cluster()
        cluster.keeps(kept)
        replica = Replica(cluster)
        await replica.look()
        assert replica.uses[0].names == {SERVICE}
        assert signed_by(replica.uses[0], cluster.trusted)


async def test_a_url_gives_the_name() -> None:
    for url, name in (
        ("https://127.0.0.1:8443/intercept", "127.0.0.1"),
        ("https://[0:0::1]:8443/x", "::1"),
        ("https://hook.example/x", "hook.example"),
        ("https://h\u00f6rer.example/x", "xn--hrer-5qa.example"),
    ):
        cluster = Cluster()
        cluster.put(
            PLACES.configuration_path, {"metadata": {"name": "x"}, "webhooks": [{"clientConfig": {"url": url}}]}
        )
        replica = Replica(cluster)
        await replica.look()
        assert replica.uses[0].names == {name}


# --- mistakes -----------------------------------------------------------------------------------------------------

RIGHTS = " Give its account the rights of manifests/webhook/rbac.yaml, or the process a certificate (--tls-cert-file)."


@pytest.mark.parametrize(
    "what", ["the Secret slurm-bridge/slurm-bridge-webhook", "the MutatingWebhookConfiguration slurm-bridge-webhook"]
)
@pytest.mark.parametrize(("doing", "method"), [("read", "GET"), ("write", "PUT")])
async def test_a_missing_right_is_reported(what: str, doing: str, method: str) -> None:
    path = PLACES.secret_path if "Secret" in what else PLACES.configuration_path
    cluster = Cluster(forbidden={(method, path)})
    with pytest.raises(ConfigError) as told:
        await Replica(cluster).look()
    assert not isinstance(told.value, NotYet), "waiting does not mend it"
    assert str(told.value).startswith(f"slurm-bridge webhook may not {doing} {what}: ")
    assert str(told.value).endswith(RIGHTS)


@pytest.mark.parametrize("path", [PLACES.secret_path, PLACES.configuration_path])
async def test_a_missing_object_is_waited_for(path: str) -> None:
    cluster = Cluster()
    del cluster.objects[path]
    with pytest.raises(NotYet, match=r"slurm-bridge-webhook: it does not exist\. Apply manifests/webhook\.$"):
        await Replica(cluster).look()


async def test_an_api_server_that_is_away_is_waited_for_and_the_certificate_stays() -> None:
    cluster = Cluster()
    replica = Replica(cluster)
    await replica.look()
    cluster.away = True
    with pytest.raises(NotYet, match="no route"):
        await replica.look(10)
    assert len(replica.uses) == 1


@pytest.mark.parametrize(
    ("data", "more"),
    [
        ({"password": b"x"}, {}),
        ({"tls.crt": b"", "tls.key": b""}, {"type": "kubernetes.io/tls"}),
    ],
)
async def test_a_secret_of_something_else_is_never_written(data: dict[str, bytes], more: dict[str, str]) -> None:
    cluster = Cluster()
    cluster.keep(data, **more)
    with pytest.raises(ConfigError, match="holds data that slurm-bridge webhook did not write"):
        await Replica(cluster).look()
    assert cluster.writes == []


async def test_a_configuration_without_webhooks_is_reported() -> None:
    cluster = Cluster()
    for webhooks in (
        None,
        [],
        ["x"],
        [{"clientConfig": {"url": "https://[x"}}],
        [{"clientConfig": {"url": "https://\u00f6..x"}}],
    ):
        cluster.put(PLACES.configuration_path, {"metadata": {"name": "x"}, "webhooks": webhooks})
        with pytest.raises(ConfigError, match="names no Service and no URL"):
            await Replica(cluster).look()
