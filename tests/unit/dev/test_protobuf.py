"""Bodies as kubectl 1.36.3 sent them, and the JSON that they mean."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from bridge.simulation.kube.kinds import sent
from bridge.simulation.kube.protobuf import MAGIC, BadProtobuf, fields, to_object
from integration.protobuf import kubernetes
from integration.rigging import places

# kubectl create deployment web --image=b --replicas=0
DEPLOYMENT = (
    "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EqMBCh8KA3dlYhIAGgAiACoAMgA4AEIAWgoKA2FwcBIDd2ViEnIIABIMCgoKA2FwcBIDd2ViGlgKHAoA"
    "EgAaACIAKgAyADgAQgBaCgoDYXBwEgN3ZWISOBIaCgFiEgFiKgBCAGoAcgCAAQCIAQCQAQCiAQAaADIAQgBKAFIAWABgAGgAggEAigEAmgEAwgEAIgIKAC"
    "gAOAAaDAgAEAAYACAAKAA4ABoAIgA="
)
# kubectl create quota few --hard=pods=50,cpu=1500m
QUOTA = "azhzAAoTCgJ2MRINUmVzb3VyY2VRdW90YRI3ChMKA2ZldxIAGgAiACoAMgA4AEIAEh4KDgoDY3B1EgcKBTE1MDBtCgwKBHBvZHMSBAoCNTAaABoAIgA="
# kubectl create secret generic password --from-literal=a=b
SECRET = "azhzAAoMCgJ2MRIGU2VjcmV0EiQKGAoIcGFzc3dvcmQSABoAIgAqADIAOABCABIGCgFhEgFiGgAaACIA"
# kubectl create service clusterip web --tcp=80:http
SERVICE = (
    "azhzAAoNCgJ2MRIHU2VydmljZRJsCh8KA3dlYhIAGgAiACoAMgA4AEIAWgoKA2FwcBIDd2ViEkUKHgoHODAtaHR0cBIDVENQGFAiCggBEAAaBGh0dHAoABIK"
    "CgNhcHASA3dlYhoAIglDbHVzdGVySVA6AEIAUgBaAGAAaAAaAgoAGgAiAA=="
)


def read(text: str) -> dict[str, Any]:
    return to_object(base64.b64decode(text))


def test_a_zero_that_was_set_is_kept_and_a_zero_that_means_not_set_is_left_out() -> None:
    spec = {"containers": [{"name": "b", "image": "b"}]}
    assert read(DEPLOYMENT) == {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    }


def test_quantities_bytes_and_ports_have_their_json_forms() -> None:
    assert read(QUOTA)["spec"] == {"hard": {"cpu": "1500m", "pods": "50"}}
    assert read(SECRET)["data"] == {"a": "Yg=="}
    assert read(SERVICE)["spec"]["ports"] == [{"name": "80-http", "protocol": "TCP", "port": 80, "targetPort": "http"}]


def envelope(version: str, kind: str, body: bytes) -> bytes:
    meta = field(1, version.encode()) + field(2, kind.encode())
    return MAGIC + field(1, meta) + field(2, body)


def field(number: int, value: bytes) -> bytes:
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def varint(number: int, value: bytes) -> bytes:
    return bytes([number << 3]) + value


def test_a_time_a_negative_number_and_a_field_of_a_newer_kubectl() -> None:
    made, micros = varint(1, b"\x80\xe2\xcf\xaa\x06"), varint(2, b"\xc0\x84\x3d")  # 1,700,000,000 s; 1,000,000 ns
    spec = varint(2, b"\xff" * 9 + b"\x01") + field(3, made + micros) + field(15, b"new")
    lease = to_object(envelope("coordination.k8s.io/v1", "Lease", field(1, field(8, made)) + field(2, spec)))
    assert lease["metadata"] == {"creationTimestamp": "2023-11-14T22:13:20Z"}
    assert lease["spec"] == {"leaseDurationSeconds": -1, "acquireTime": "2023-11-14T22:13:20.001000Z"}


def test_delete_options_have_the_version_of_their_group() -> None:
    options = envelope("policy/v1", "DeleteOptions", varint(1, b"\x05"))
    assert to_object(options) == {"kind": "DeleteOptions", "apiVersion": "policy/v1", "gracePeriodSeconds": 5}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{}", "no protobuf envelope"),
        (MAGIC, "not valid protobuf"),
        (MAGIC + b"\xff", "not valid protobuf"),
        (base64.b64decode(SECRET)[:40], "cut off"),
        (envelope("v1", "Pod", b"\x0b"), "not valid protobuf"),
        (envelope("v1", "Pod", varint(1, b"\x05")), "not valid protobuf"),
        (envelope("example.org/v1", "Thing", b""), "does not serve the kind Thing of example.org/v1"),
    ],
)
def test_what_is_not_protobuf_of_a_kind_that_is_served_is_refused_in_a_sentence(body: bytes, said: str) -> None:
    with pytest.raises(BadProtobuf, match=said):
        to_object(body)


def test_the_table_has_every_kind_that_is_served_as_the_rig_s_kubernetes_writes_it() -> None:
    assert set(fields().kinds) == {f"{kind.api_version} {kind.kind}" for kind in sent()}, (
        "python -m integration.protobuf"
    )
    assert kubernetes() == places.KUBERNETES, "integration/protobuf/go.mod, and python -m integration.protobuf"


@pytest.mark.parametrize("metadata", [b"\x08\x05", b"\x08" + b"\xff" * 100 + b"\x01"])
def test_a_name_that_is_a_number_or_a_number_without_end_is_refused_in_a_sentence(metadata: bytes) -> None:
    with pytest.raises(BadProtobuf, match="not valid protobuf"):
        to_object(envelope("v1", "Pod", field(1, metadata)))
