"""Reads of the objects that pods refer to, and of the cluster's own description."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.errors import ContractError
from bridge.kube.transport import Call, Reply
from scheduler.model.kubernetes import Claim, NodeTerm, OwnerRef, Requirement
from tests.contract.kube_subjects import Kube, every_kube  # noqa: F401 -- fixtures

ANOTHER = "00000000-0000-4000-8000-00000000dead"
TEMPLATE = {
    "metadata": {"labels": {"app": "contract"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "localhost/none"}]},
}


async def test_an_owner_shows_its_annotations_and_its_own_owner(kube: Kube) -> None:
    # A real one: the garbage collector ends what is owned by something that does not exist.
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Always"}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "contract"}}, "template": template}
    web = await kube.make(
        f"/apis/apps/v1/namespaces/{kube.namespace}/deployments", {"metadata": {"name": "web"}, "spec": spec}
    )
    uid = web["metadata"]["uid"]
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid, "controller": True}
    made = await kube.make(
        f"/apis/apps/v1/namespaces/{kube.namespace}/replicasets",
        {
            "metadata": {
                "name": "web-1",
                "labels": {"app": "contract"},  # else the Deployment's controller lets go of it
                "annotations": {"slurm-bridge/partition": "main"},
                "ownerReferences": [deployment],
            },
            "spec": spec,
        },
    )
    ref = OwnerRef("apps/v1", "ReplicaSet", "web-1", made["metadata"]["uid"])

    owner = await kube.client.read_owner(ref, kube.namespace)

    assert owner is not None
    assert owner.ref == ref
    assert owner.annotations["slurm-bridge/partition"] == "main"
    assert owner.owner == OwnerRef("apps/v1", "Deployment", "web", uid)
    assert owner.active_deadline_s is None


async def test_a_batch_job_shows_its_deadline(kube: Kube) -> None:
    spec = {"suspend": True, "activeDeadlineSeconds": 900, "template": TEMPLATE}
    path = f"/apis/batch/v1/namespaces/{kube.namespace}/jobs"
    made = await kube.make(path, {"metadata": {"name": "train"}, "spec": spec})
    owner = await kube.client.read_owner(OwnerRef("batch/v1", "Job", "train", made["metadata"]["uid"]), kube.namespace)
    assert owner is not None
    assert owner.active_deadline_s == 900
    assert owner.owner is None


async def test_an_owner_that_is_gone_replaced_or_of_an_unknown_kind_is_none(kube: Kube) -> None:
    path = f"/apis/batch/v1/namespaces/{kube.namespace}/jobs"
    await kube.make(path, {"metadata": {"name": "train"}, "spec": {"suspend": True, "template": TEMPLATE}})
    for ref in (
        OwnerRef("batch/v1", "Job", "train", ANOTHER),
        OwnerRef("batch/v1", "Job", "gone", ANOTHER),
        OwnerRef("example.com/v1", "Job", "train", ANOTHER),
        OwnerRef("example.com/v1", "Trainer", "train", ANOTHER),
    ):
        assert await kube.client.read_owner(ref, kube.namespace) is None, ref


async def test_a_bound_claim_shows_where_its_volume_can_be_reached(kube: Kube) -> None:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["contract-n1"]}]}
    volume = f"{kube.namespace[:40]}-v"
    claims = f"/api/v1/namespaces/{kube.namespace}/persistentvolumeclaims"
    size = {"storage": "1Gi"}
    await kube.make(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": volume},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "local": {"path": "/none"},
                "claimRef": {"namespace": kube.namespace, "name": "data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        },
    )
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": size}, "storageClassName": ""}
    try:
        await kube.make(claims, {"metadata": {"name": "data"}, "spec": {**wanted, "volumeName": volume}})
        await kube.make(claims, {"metadata": {"name": "other"}, "spec": wanted})
        [data] = await kube.eventually(
            lambda: kube.client.read_claims(kube.namespace, ["data"]), lambda claims: claims[0].bound
        )
        other, missing = await kube.client.read_claims(kube.namespace, ["other", "missing"])
    finally:
        await kube.raw("DELETE", f"/api/v1/persistentvolumes/{volume}")

    where = NodeTerm((Requirement("kubernetes.io/hostname", "In", ("contract-n1",)),))
    assert data == Claim("data", bound=True, affinity=(where,))
    assert other == Claim("other", bound=False, problem="claim other is not bound to a volume yet")
    assert missing == Claim("missing", bound=False, problem="claim missing does not exist")


async def test_a_claim_that_waits_for_its_consumer_gets_the_node_of_the_consumer(kube: Kube) -> None:
    storage_class = f"{kube.namespace[:40]}-sc"
    await kube.make(
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": storage_class},
            "provisioner": "example.com/none",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    claim = {
        "metadata": {"name": "scratch"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": storage_class,
        },
    }
    try:
        await kube.make(f"/api/v1/namespaces/{kube.namespace}/persistentvolumeclaims", claim)
        [scratch] = await kube.client.read_claims(kube.namespace, ["scratch"])
        await kube.client.select_node(kube.namespace, "scratch", "x1")
        [claim] = await kube.client.read_claims(kube.namespace, ["scratch"])
    finally:
        await kube.raw("DELETE", f"/apis/storage.k8s.io/v1/storageclasses/{storage_class}")
    assert scratch == Claim("scratch", bound=False, waits=True)
    assert claim == Claim("scratch", bound=False, waits=True, selected="x1")


async def test_the_cluster_is_known_by_the_uid_of_kube_system(kube: Kube) -> None:
    found = await kube.client.namespace("kube-system")
    assert found is not None
    assert len(found.uid) == 36
    assert await kube.client.namespace("contract-nowhere") is None


async def test_rights_and_version_can_be_read(kube: Kube) -> None:
    assert await kube.client.can_i("create", "pods", subresource="binding") is True
    assert (await kube.client.server_version()).startswith("v1.")


async def test_a_kind_that_is_not_served_proves_nothing_about_an_object(kube: Kube) -> None:
    status, said = await kube.raw("GET", f"/api/v1/namespaces/{kube.namespace}/contracts/a")
    assert (status, said["kind"]) == (404, "Status")
    kube.client.transport = _Elsewhere(kube)
    with pytest.raises(ContractError):
        await kube.client.read_pod(kube.namespace, "a")


async def test_a_path_outside_the_api_proves_nothing_about_an_object(kube: Kube) -> None:
    reply = await kube.transport.exchange(Call("GET", "/nothing/here", deadline_s=10))
    assert reply.status == 404
    kube.client.transport = _Elsewhere(kube, "/nothing/here")
    with pytest.raises(ContractError):
        await kube.client.read_pod(kube.namespace, "a")


class _Elsewhere:
    """The same server, asked for something that it does not serve."""

    def __init__(self, kube: Kube, path: str = "") -> None:
        self.kube = kube
        self.path = path or f"/api/v1/namespaces/{kube.namespace}/contracts/a"

    async def exchange(self, call: Call) -> Reply:
        return await self.kube.transport.exchange(replace(call, path=self.path))
