"""What kubectl asks besides the API itself: discovery, tables, and strict validation of what is applied."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from bridge.simulation.http import serve_kube
from bridge.simulation.kube import limits, objects
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.discovery import described, kind_of
from bridge.simulation.kube.in_process import InProcessKube
from bridge.simulation.kube.kinds import KINDS
from bridge.simulation.kube.strict import unknown_fields
from bridge.simulation.kube.tables import short

EXAMPLE = Path(__file__).parents[3] / "examples" / "pod.yaml"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def kube() -> AsyncIterator[tuple[KubeCluster, aiohttp.ClientSession]]:
    cluster = KubeCluster()
    cluster.create(time.time(), "pods", objects.pod("default", "train"))
    async with serve_kube(InProcessKube(cluster, time.time)) as url, aiohttp.ClientSession(url) as session:
        yield cluster, session


def test_every_kind_that_is_served_is_discovered() -> None:
    found = set()
    groups: Any = described("/apis")
    for version in ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups["groups"])]:
        listed: Any = described(version)
        whole = [each for each in listed["resources"] if "/" not in each["name"]]
        found |= {(listed["groupVersion"], each["name"], each["kind"]) for each in whole}
    assert found == {(kind.api_version, plural, kind.kind) for (_, plural), kind in KINDS.items()}
    assert described("/apis/batch/v2") is None
    assert described("/api/v1/pods") is None


def test_openapi_says_that_writes_are_validated() -> None:
    index: Any = described("/openapi/v3")
    document: Any = described(index["paths"]["api/v1"]["serverRelativeURL"].partition("?")[0])
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert patch["parameters"][0]["name"] == "fieldValidation"
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}


def test_the_kind_of_a_path() -> None:
    shown = {path: kind.kind for path in (f"{PODS}/train", "/api/v1/namespaces/x", "/apis/apps/v1/namespaces/x/replicasets")
             if (kind := kind_of(path))}  # fmt: skip
    assert list(shown.values()) == ["Pod", "Namespace", "ReplicaSet"]
    assert kind_of("/apis/x/v1/things") is None
    assert kind_of("/version") is None


async def test_a_list_is_a_table_where_that_is_asked_for(kube: tuple[KubeCluster, aiohttp.ClientSession]) -> None:
    _, session = kube
    async with session.get(PODS, headers=TABLE) as answer:
        table = await answer.json()
    assert table["kind"] == "Table"
    shown = dict(zip([each["name"] for each in table["columnDefinitions"]], table["rows"][0]["cells"], strict=True))
    assert shown["Name"] == "train"
    assert (shown["Ready"], shown["Status"], shown["Restarts"], shown["Node"]) == ("0/1", "Pending", "0", "<none>")
    async with session.get(PODS) as answer:
        assert (await answer.json())["kind"] == "PodList", "whoever does not ask gets objects"
    async with session.get(f"{PODS}/nobody", headers=TABLE) as answer:
        assert (await answer.json())["kind"] == "Status"


async def test_a_watch_shows_rows_too(kube: tuple[KubeCluster, aiohttp.ClientSession]) -> None:
    import json

    cluster, session = kube
    async with session.get(PODS, headers=TABLE, params={"watch": "1", "resourceVersion": "1"}) as stream:
        told = json.loads(await stream.content.readline())
        while told["object"]["rows"][0]["cells"][0] != "train":
            told = json.loads(await stream.content.readline())
    assert (told["type"], told["object"]["kind"]) == ("ADDED", "Table")
    assert cluster.store.get("pods", "default", "train")


async def test_an_unknown_field_is_refused_by_its_path(kube: tuple[KubeCluster, aiohttp.ClientSession]) -> None:
    _, session = kube
    pod = objects.pod("default", "typo")
    pod["spec"]["containers"][0]["imgae"] = "x"
    strictly = {"fieldValidation": "Strict"}
    async with session.post(PODS, json=pod, params=strictly) as answer:
        assert answer.status == 400
        assert 'unknown field "spec.containers[0].imgae"' in (await answer.json())["message"]
    async with session.post(PODS, json=pod) as answer:
        assert answer.status == 201, "only who asks for it is held to it"
    patch = {"spec": {"contianers": []}}
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    async with session.patch(f"{PODS}/train", json=patch, params=strictly, headers=headers) as answer:
        assert 'unknown field "spec.contianers"' in (await answer.json())["message"]


def test_known_fields_of_every_depth_are_known() -> None:
    pod = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert unknown_fields(pod, "Pod") == []
    pod["spec"]["containers"][0]["env"] = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    pod["spec"]["$setElementOrder/containers"] = [{"name": "main"}]
    assert unknown_fields(pod, "Pod") == []
    pod["spec"]["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["path"] = "x"
    assert unknown_fields(pod, "Pod") == ["spec.containers[0].env[0].valueFrom.fieldRef.path"]
    assert unknown_fields({"spec": {"template": {"spec": {"x": 1}}}}, "ReplicaSet") == ["spec.template.spec.x"]
    assert unknown_fields({"anything": 1}, "NoSuchKind") == []


# --- writes as kubectl makes them ---------------------------------------------------------------------------------


async def test_a_manifest_replaces_a_pod_without_its_uid_and_version(
    kube: tuple[KubeCluster, aiohttp.ClientSession],
) -> None:
    cluster, session = kube
    labelled = objects.pod("default", "train", labels={"team": "a"})
    async with session.put(f"{PODS}/train", json=labelled) as answer:
        assert answer.status == 200, await answer.text()
    pod = cluster.store.get("pods", "default", "train")
    assert pod
    assert pod["metadata"]["labels"] == {"team": "a"}
    async with session.put(
        f"{PODS}/train", json=labelled | {"metadata": {"name": "train", "uid": "another"}}
    ) as answer:
        assert answer.status == 422


async def test_a_dry_run_answers_and_changes_nothing(kube: tuple[KubeCluster, aiohttp.ClientSession]) -> None:
    cluster, session = kube
    version, dry = cluster.store.version, {"dryRun": "All"}
    async with session.post(PODS, json=objects.pod("default", "second"), params=dry) as answer:
        assert (answer.status, (await answer.json())["spec"]["restartPolicy"]) == (201, "Never")
    async with session.delete(f"{PODS}/train", params=dry) as answer:
        assert answer.status == 200
    assert cluster.store.version == version
    assert not cluster.store.get("pods", "default", "second")


async def test_server_side_apply_takes_yaml_creates_and_then_merges(
    kube: tuple[KubeCluster, aiohttp.ClientSession],
) -> None:
    cluster, session = kube
    headers = {"Content-Type": "application/apply-patch+yaml"}
    path = "/api/v1/namespaces/default/configmaps/settings"
    for content, status in (("data: {a: b}", 201), ("data: {c: d}", 200)):
        async with session.patch(path, data=content, headers=headers) as answer:
            assert answer.status == status, await answer.text()
            assert limits.NO_FIELD_OWNERS in answer.headers["Warning"]
    made = cluster.store.get("configmaps", "default", "settings")
    assert made
    assert made["data"] == {"a": "b", "c": "d"}


async def test_a_json_patch_changes_what_its_pointers_name(kube: tuple[KubeCluster, aiohttp.ClientSession]) -> None:
    cluster, session = kube
    headers = {"Content-Type": "application/json-patch+json"}
    operations = [
        {"op": "test", "path": "/metadata/name", "value": "train"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},  # a pod without any has no map of them
        {"op": "add", "path": "/metadata/annotations/example.org~1a", "value": "b"},
        {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "a", "operator": "Exists"}},
        {"op": "copy", "from": "/metadata/annotations", "path": "/metadata/labels"},
    ]
    async with session.patch(f"{PODS}/train", json=operations, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
    pod = cluster.store.get("pods", "default", "train")
    assert pod
    assert pod["metadata"]["labels"] == pod["metadata"]["annotations"] == {"example.org/a": "b"}
    assert pod["spec"]["tolerations"][-1]["key"] == "a"
    for wrong in (
        {"op": "remove", "path": "/spec/nothing"},
        {"op": "invent", "path": "/spec"},
        {"op": "test", "path": "/x"},
    ):
        async with session.patch(f"{PODS}/train", json=[wrong], headers=headers) as answer:
            assert answer.status == 422
            assert "JSON patch cannot be applied" in (await answer.json())["message"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("kind in (eval,tune)", ["eval", "tune"]),
        ("kind notin (eval, tune)", ["plain", "train"]),
        ("kind,kind!=eval", ["tune"]),
        ("!kind", ["plain", "train"]),
        ("kind in (tune),size=1", ["tune"]),
    ],
)
async def test_a_selector_may_name_a_set_of_values(
    selector: str, names: list[str], kube: tuple[KubeCluster, aiohttp.ClientSession]
) -> None:
    cluster, session = kube
    for name, labels in (("eval", {"kind": "eval"}), ("tune", {"kind": "tune", "size": "1"}), ("plain", {})):
        cluster.create(time.time(), "pods", objects.pod("default", name, labels=labels))
    async with session.get(PODS, params={"labelSelector": selector}) as answer:
        assert [each["metadata"]["name"] for each in (await answer.json())["items"]] == names


async def test_a_body_that_is_no_protobuf_is_refused_in_a_sentence(
    kube: tuple[KubeCluster, aiohttp.ClientSession],
) -> None:
    _, session = kube
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    async with session.post(PODS, data=b"{}", headers=headers) as answer:
        assert (answer.status, (await answer.json())["message"]) == (415, "the body has no protobuf envelope")
    async with session.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", data=b"k8s", headers=headers) as answer:
        assert answer.status == 404
        assert 'does not serve "clusterroles" of rbac.authorization.k8s.io/v1' in (await answer.json())["message"]


async def test_openapi_describes_every_kind_with_its_fields(kube: tuple[KubeCluster, aiohttp.ClientSession]) -> None:
    _, session = kube
    for group, kinds in itertools.groupby(
        sorted(KINDS.values(), key=lambda kind: kind.api_version), lambda k: k.api_version
    ):
        path = f"/openapi/v3/apis/{group}" if "/" in group else f"/openapi/v3/api/{group}"
        async with session.get(path) as answer:
            schemas = (await answer.json())["components"]["schemas"]
        for kind in kinds:
            assert schemas[f"io.k8s.{kind.kind}"]["properties"]["metadata"], kind


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5, "5s"), (119, "119s"), (125, "2m5s"), (180, "3m"), (3600, "60m"), (8000, "2h"), (200_000, "2d")],
)
def test_an_age_is_written_as_kubectl_writes_it(seconds: float, said: str) -> None:
    assert short(seconds) == said
