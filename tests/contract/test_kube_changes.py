"""Changes of pods as the API server takes them, which generated sequences found to differ once (Kubernetes facts 2)."""

from __future__ import annotations

from typing import Any

from bridge.kube.transport import Call
from scheduler.model.kubernetes import Pod
from tests.contract.kube_subjects import MERGE, STRATEGIC, Kube, every_kube  # noqa: F401 -- fixtures


async def version(kube: Kube, name: str) -> str:
    """Changes with each write."""
    return str((await kube.raw("GET", kube.path(name)))[1]["metadata"]["resourceVersion"])


async def patched(kube: Kube, change: dict[str, Any], content_type: str = MERGE) -> tuple[int, Any]:
    return await kube.raw("PATCH", kube.path("a"), change, content_type)


async def test_a_patch_that_removes_what_is_not_there_writes_nothing(kube: Kube) -> None:
    await kube.pod("a")
    before = await version(kube, "a")
    assert (await patched(kube, {"metadata": {"annotations": {"slurm-bridge/job-id": None}}}))[0] == 200
    gates = {"spec": {"schedulingGates": [{"name": "example.com/quota", "$patch": "delete"}]}}
    assert (await patched(kube, gates, STRATEGIC))[0] == 200
    assert await version(kube, "a") == before


async def test_a_second_eviction_writes_nothing(kube: Kube) -> None:
    await kube.pod("a")
    await kube.bind("a", "contract-n1")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    await kube.make(f"{kube.path('a')}/eviction", eviction)
    before = await version(kube, "a")
    await kube.make(f"{kube.path('a')}/eviction", eviction)
    assert await version(kube, "a") == before


async def test_tolerations_of_a_node_that_is_gone_come_back_when_a_user_replaces_all(kube: Kube) -> None:
    await kube.pod("a")
    ours = {"key": "slurm-bridge/managed", "operator": "Exists", "effect": "NoSchedule"}
    assert (await patched(kube, {"spec": {"tolerations": [ours]}}))[0] == 200
    shown: Pod = await kube.read("a")
    keys = ["slurm-bridge/managed", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert [each.key for each in shown.tolerations] == keys


async def test_a_strategic_patch_adds_to_the_finalizers_and_takes_out_of_them(kube: Kube) -> None:
    await kube.pod("a", metadata={"finalizers": ["example.com/first"]})
    status, pod = await patched(kube, {"metadata": {"finalizers": ["example.com/second"]}}, STRATEGIC)
    assert (status, pod["metadata"]["finalizers"]) == (200, ["example.com/second", "example.com/first"])
    taken = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/first", "example.com/second"]}}
    status, pod = await patched(kube, taken, STRATEGIC)
    assert (status, pod["metadata"].get("finalizers")) == (200, None)


async def test_an_object_is_judged_before_its_name_is_found_to_be_taken(kube: Kube) -> None:
    await kube.pod("a")
    path = f"/api/v1/namespaces/{kube.namespace}/pods"
    status, said = await kube.raw("POST", path, {"metadata": {"name": "a"}, "spec": {"containers": []}})
    assert (status, said["reason"]) == (422, "Invalid")


REFUSED: dict[str, tuple[int, dict[str, Any]]] = {
    "a deadline of no second": (422, {"spec": {"activeDeadlineSeconds": 0}}),
    "a finalizer without a prefix": (422, {"metadata": {"finalizers": ["held"]}}),
    "a label that is none": (422, {"metadata": {"labels": {"team": "not a label"}}}),
    "an annotation that is none": (422, {"metadata": {"annotations": {"a b": "c"}}}),
    "a deletion": (422, {"metadata": {"deletionTimestamp": "2026-11-21T05:00:00Z"}}),
    "another name": (400, {"metadata": {"name": "another"}}),
}


async def test_what_no_pod_may_become_is_refused(kube: Kube) -> None:
    await kube.pod("a")
    for what, (status, change) in REFUSED.items():
        assert (await patched(kube, change))[0] == status, what


async def test_of_a_deletion_with_a_body_the_query_does_not_count(kube: Kube) -> None:
    await kube.pod("a")
    tried = Call("DELETE", kube.path("a"), params={"dryRun": "All"}, deadline_s=10)
    assert (await kube.transport.exchange(tried)).status == 200
    assert await kube.client.read_pod(kube.namespace, "a") is not None
    meant = Call("DELETE", kube.path("a"), params={"dryRun": "All"}, body=b"{}", deadline_s=10)
    assert (await kube.transport.exchange(meant)).status == 200
    assert await kube.client.read_pod(kube.namespace, "a") is None


async def test_a_request_beyond_its_limit_is_refused(kube: Kube) -> None:
    resources = {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}
    container = {"name": "main", "image": "localhost/none", "resources": resources}
    path = f"/api/v1/namespaces/{kube.namespace}/pods"
    status, said = await kube.raw("POST", path, {"metadata": {"name": "a"}, "spec": {"containers": [container]}})
    assert (status, said["reason"]) == (422, "Invalid")
