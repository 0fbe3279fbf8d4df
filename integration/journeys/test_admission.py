"""The policies of manifests/admission, on the real API server: the requests that they deny, and those that they allow.

Each attempt is a dry run under another user's name: admission judges it, and nothing is kept.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from integration import own_account
from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, condition, eventually, kubectl, pod
from integration.journeys.conftest import POLICY

ADMISSION = Path(__file__).parent.parent.parent / "manifests" / "admission"
Space = Callable[[str], str]
TAINT = PREFIX + "managed"
EVERYTHING = [{"operator": "Exists"}]
MANAGED, OTHER, SYSTEM = "policies-managed", "policies-other", "policies-system"
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
SELECTED = "volume.kubernetes.io/selected-node"


@dataclass(frozen=True)
class Client:
    """The user of a request.  With system:masters RBAC allows every request, so that admission alone decides."""

    user: str
    groups: tuple[str, ...] = ("system:masters",)


TENANT = Client("mallory")
KUBELET = Client("system:node:k1", ("system:nodes", "system:masters"))
BRIDGE = Client("system:serviceaccount:slurm-bridge:slurm-bridge")
OTHER_BRIDGE = Client("system:serviceaccount:gpu-bridge:slurm-bridge")  # as in manifests/several-bridges
NAMESAKE = Client("system:serviceaccount:policies-managed:slurm-bridge")  # a tenant may make such an account
DAEMONS = Client("system:serviceaccount:kube-system:daemon-set-controller")


@pytest.fixture(scope="module")
def bridge(
    one_bridge: BridgeProcess, kube: Kube, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BridgeProcess]:
    """A bridge under its own account, instead of that of the other journeys."""
    if one_bridge.runs:
        assert one_bridge.stop() == 0
    folder = tmp_path_factory.mktemp("own-account")
    kubeconfig, ends = folder / "kubeconfig", kube.api.configuration
    own_account.write_kubeconfig(kubectl, ends.host, ends.ssl_ca_cert, kubeconfig)
    settings = {"slurm_url": slurm.url, "slurm_token_file": slurm.token_file, "policy": POLICY}
    process = BridgeProcess(settings, folder, str(kubeconfig))
    process.start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module", autouse=True)
def policies(kube: Kube, bridge: BridgeProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The policies are in force, for two bridges; three namespaces are there: a managed one, another one, a system one."""
    manifests = tmp_path_factory.mktemp("policies")
    for folder in (ADMISSION, ADMISSION.parent / "several-bridges"):
        shutil.copytree(folder, manifests / folder.name)
    overlay = manifests / "site"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(
        json.dumps({"resources": ["../admission"], "components": ["../several-bridges"]})
    )
    kubectl("apply", "-k", str(overlay))
    for name in (MANAGED, OTHER, SYSTEM):
        kube.namespace(name, managed=name == MANAGED)
    kube.core.patch_namespace(SYSTEM, {"metadata": {"labels": {PREFIX + "system": "true"}}})
    eventually("a tenant is refused", lambda: _tried(kube, TENANT, _create(spec={"nodeName": "k1"}))[0] == 403)
    eventually("pods are intercepted", lambda: _scheduler(kube, _create(scheduler="")) == "slurm-bridge")
    yield
    for name in (MANAGED, OTHER, SYSTEM):
        kube.remove(name)
    kubectl("delete", "-k", str(overlay))


@dataclass(frozen=True)
class Attempt:
    """One write.  namespace: where; "": the object has none.  patch: what changes; None: the object is created."""

    namespace: str
    path: str
    body: Mapping[str, Any]
    method: str = "POST"
    content_type: str = "application/json"


def _create(namespace: str = MANAGED, owners: Any = (), **options: Any) -> Attempt:
    made = pod("new", **options)
    made["metadata"]["ownerReferences"] = list(owners)
    if not made["spec"]["schedulerName"]:
        del made["spec"]["schedulerName"]
    return Attempt(namespace, f"/api/v1/namespaces/{namespace}/pods", made)


def _patch(path: str, **body: Any) -> Attempt:
    return Attempt("", path, body, "PATCH", MERGE)


def _pod_patch(namespace: str = MANAGED, name: str = "old", sub: str = "", **body: Any) -> Attempt:
    return _patch(f"/api/v1/namespaces/{namespace}/pods/{name}{sub}", **body)


def _cpus(request: str, limit: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": request}, "limits": {"cpu": limit}}}


def _resize(name: str, cpus: str, limit: str = "") -> Attempt:
    spec = {"containers": [{"name": "main", **_cpus(cpus, limit or cpus)}]}
    return replace(_pod_patch(name=name, sub="/resize", spec=spec), content_type=STRATEGIC)


def _binding(**metadata: Any) -> Attempt:
    body = {"metadata": {"name": "old", **metadata}, "target": {"kind": "Node", "name": "k1"}}
    return Attempt("", f"/api/v1/namespaces/{MANAGED}/pods/old/binding", body)


def _resize_whole(name: str, cpus: str) -> Attempt:
    return _pod_patch(name=name, sub="/resize", spec=_cpus(cpus, cpus))


def _lease(name: str) -> Attempt:
    path = "/apis/coordination.k8s.io/v1/namespaces/slurm-bridge/leases"
    return Attempt("", path, {"metadata": {"name": name}, "spec": {"holderIdentity": "slurm-bridge-0"}})


def _notes(**values: str | None) -> dict[str, Any]:
    return {"annotations": {PREFIX + key.replace("_", "-"): value for key, value in values.items()}}


def _tried(kube: Kube, client: Client, attempt: Attempt) -> tuple[int, Any]:
    """Status and answer of a dry run."""
    status, text = kube.raw(
        attempt.method,
        f"{attempt.path}?dryRun=All",
        json.dumps(attempt.body).encode(),
        attempt.content_type,
        [("Impersonate-User", client.user), *(("Impersonate-Group", group) for group in client.groups)],
    )
    return status, json.loads(text)


def _scheduler(kube: Kube, attempt: Attempt) -> str:
    status, made = _tried(kube, TENANT, attempt)
    assert status == 201, made
    return str(made["spec"]["schedulerName"])


@pytest.fixture(scope="module")
def there(policies: None, kube: Kube) -> None:
    """A pod in each namespace and a claim, for attempts to change them.  The scheduler of the pods does not exist."""
    for namespace in (MANAGED, OTHER):
        kube.run(namespace, "old", scheduler="nobody", spec={"tolerations": []}, says={"partition": "main"})
    kube.run(MANAGED, "placed")  # no rule of the policy is for this namespace: the bridge leaves the pod alone
    kube.run(MANAGED, "bursts", spec={"containers": [{"name": "main", "image": "none", **_cpus("1", "2")}]})
    kube.run(MANAGED, "whole", spec=_cpus("1", "2"))
    # Only a node with this feature takes resizes of the pod itself.
    kube.core.patch_node_status("k1", {"status": {"declaredFeatures": ["InPlacePodLevelResourcesVerticalScaling"]}})
    target = {"apiVersion": "v1", "kind": "Node", "name": "k1"}
    for name in ("placed", "bursts", "whole"):
        binding = {"metadata": {"name": name}, "target": target}
        kube.core.create_namespaced_pod_binding(name, MANAGED, binding, _preload_content=False)
    kube.run(MANAGED, "waiting")
    kube.core.create_namespaced_persistent_volume_claim(MANAGED, {"metadata": {"name": "data"}, **CLAIM})


# --- interception -------------------------------------------------------------------------------------------------

DAEMONSET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1", "controller": True}
INTERCEPTED = {
    "names no scheduler": (_create(scheduler=""), "slurm-bridge"),
    "names the default one": (_create(scheduler="default-scheduler"), "slurm-bridge"),
    "names the bridge": (_create(), "slurm-bridge"),
    "names another one": (_create(scheduler="volcano", spec={"tolerations": []}), "volcano"),
    "opts out": (_create(scheduler="", says={"intercept": "false"}, spec={"tolerations": []}), "default-scheduler"),
    "is of a DaemonSet": (
        _create(scheduler="", owners=[DAEMONSET], spec={"tolerations": []}),
        "default-scheduler",
    ),
    "is elsewhere": (_create(OTHER, scheduler="", spec={"tolerations": []}), "default-scheduler"),
}


@pytest.mark.parametrize("case", INTERCEPTED)
def test_a_pod_of_a_managed_namespace_is_the_bridges_unless_it_says_otherwise(kube: Kube, case: str) -> None:
    attempt, scheduler = INTERCEPTED[case]
    assert _scheduler(kube, attempt) == scheduler


# --- what is refused ----------------------------------------------------------------------------------------------

GONE = {"name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}
KEYS = ("job-id", "job-since", "job-nodes", "job-gpus", "stage", "size", "rank", "local-rank")
TOLERATES = {"tolerations": [{"key": TAINT, "operator": "Exists"}]}
ATTACKS: dict[str, tuple[Client, Attempt, str]] = {
    **{
        f"a tenant invents {key} at creation": (TENANT, _create(says={key: "1"}), f"{PREFIX}job-id, job-since")
        for key in KEYS
    },
    **{
        f"a tenant invents {key} later": (TENANT, _pod_patch(metadata={"annotations": {PREFIX + key: "1"}}), "Only")
        for key in KEYS
    },
    "a tenant names a node": (TENANT, _create(spec={"nodeName": "k1"}), "Slurm did not grant"),
    "a tenant tolerates the taint under another scheduler": (
        TENANT,
        _create(OTHER, scheduler="volcano", spec=TOLERATES),
        "may tolerate the taint",
    ),
    "a tenant tolerates everything under another scheduler": (
        TENANT,
        _create(OTHER, scheduler="", spec={"tolerations": EVERYTHING}),
        "may tolerate the taint",
    ),
    "a tenant tolerates the taint later": (
        TENANT,
        _pod_patch(OTHER, spec={"tolerations": [{"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}]}),
        "may tolerate the taint",
    ),
    "a tenant lets a bound pod grow": (TENANT, _resize("placed", "60"), "cannot grow while it runs"),
    "a tenant lets the limit of a bound pod grow": (TENANT, _resize("bursts", "1", limit="60"), "nor a higher limit"),
    "a tenant lets the resources of a bound pod itself grow": (
        TENANT,
        _resize_whole("whole", "60"),
        "nor a higher limit",
    ),
    "a DaemonSet of a managed namespace tolerates everything": (
        DAEMONS,
        _create(scheduler="", owners=[DAEMONSET], spec={"tolerations": EVERYTHING}),
        "may tolerate the taint",
    ),
    "a kubelet takes the place of another node": (
        KUBELET,
        _patch("/api/v1/nodes/k1", metadata={"labels": {PREFIX + "slurm-node": "k2"}}),
        "are the admin's to write",
    ),
    "a kubelet registers itself": (
        KUBELET,
        _patch("/api/v1/nodes/k1", metadata={"labels": {PREFIX + "external-node": "true"}}),
        "are the admin's to write",
    ),
    "a kubelet chooses its partitions": (
        KUBELET,
        _patch("/api/v1/nodes/k1", metadata=_notes(partitions="gpu")),
        "is the admin's to write",
    ),
    "a kubelet takes the place of another node by writing its status": (
        KUBELET,
        _patch("/api/v1/nodes/k1/status", metadata={"labels": {PREFIX + "slurm-node": "k2"}}),
        "are the admin's to write",
    ),
    "a kubelet chooses its partitions by writing its status": (
        KUBELET,
        _patch("/api/v1/nodes/k1/status", metadata=_notes(partitions="gpu")),
        "is the admin's to write",
    ),
    "a client invents a job by writing the status of a pod": (
        TENANT,
        _pod_patch(sub="/status", metadata=_notes(job_id="1")),
        "Only",
    ),
    "the bridge's account changes a label by writing the status of a pod": (
        BRIDGE,
        _pod_patch(sub="/status", metadata={"labels": {"app": "x"}}),
        "nothing else",
    ),
    "the bridge's account adds a finalizer by writing the status of a pod": (
        BRIDGE,
        _pod_patch(sub="/status", metadata={"finalizers": ["example.com/stay"]}),
        "nothing else",
    ),
    "the bridge's account changes an image": (
        BRIDGE,
        replace(_pod_patch(spec={"containers": [{"name": "main", "image": "evil"}]}), content_type=STRATEGIC),
        "nothing else",
    ),
    "the bridge's account changes a label": (BRIDGE, _pod_patch(metadata={"labels": {"app": "x"}}), "nothing else"),
    "the bridge's account adds a finalizer": (
        BRIDGE,
        _pod_patch(metadata={"finalizers": ["example.com/stay"]}),
        "nothing else",
    ),
    "the bridge's account changes an annotation of others": (
        BRIDGE,
        _pod_patch(metadata={"annotations": {"example.com/x": "1"}}),
        "begin with slurm-bridge/",
    ),
    "the bridge's account writes on a pod that is not its own": (
        BRIDGE,
        _pod_patch(OTHER, metadata=_notes(job_id="1")),
        "only pods of its own",
    ),
    "the bridge's account deletes a pod that is not its own": (
        BRIDGE,
        Attempt("", f"/api/v1/namespaces/{OTHER}/pods/old", {}, "DELETE"),
        "only pods of its own",
    ),
    "the bridge's account says that a pod succeeded": (
        BRIDGE,
        _pod_patch(sub="/status", status={"phase": "Succeeded"}),
        "conditions of a pod's status",
    ),
    "the bridge's account says that a pod started earlier": (
        BRIDGE,
        _pod_patch(sub="/status", status={"startTime": "2020-01-01T00:00:00Z"}),
        "conditions of a pod's status",
    ),
    **{
        f"the bridge's account changes {field} of a pod's status": (
            BRIDGE,
            _pod_patch(sub="/status", status={field: value}),
            "conditions of a pod's status",
        )
        for field, value in {
            "hostIP": "192.0.2.1",
            "resize": "Deferred",
            "observedGeneration": 77,
            "allocatedResources": {"cpu": "9"},
            "resources": {"requests": {"cpu": "9"}},
        }.items()
    },
    "the bridge's account labels a pod by binding it": (BRIDGE, _binding(labels={"app": "x"}), "without labels"),
    "the bridge's account writes an annotation of others by binding a pod": (
        BRIDGE,
        _binding(annotations={"example.com/x": "1"}),
        "begin with slurm-bridge/",
    ),
    "another bridge's account labels a pod by binding it": (
        OTHER_BRIDGE,
        _binding(labels={"app": "x"}),
        "without labels",
    ),
    "the bridge's account gives a node a network": (
        BRIDGE,
        _patch("/api/v1/nodes/k1", spec={"podCIDR": "192.0.2.0/24", "podCIDRs": ["192.0.2.0/24"]}),
        "taint",
    ),
    **{
        f"the bridge's account changes {field} of a node's status": (
            BRIDGE,
            _patch("/api/v1/nodes/k1/status", status={field: value}),
            "SlurmReady",
        )
        for field, value in {
            "phase": "Terminated",
            "features": {"supplementalGroupsPolicy": True},
            "runtimeHandlers": [{"name": "x"}],
            "declaredFeatures": ["Other"],
        }.items()
    },
    "the bridge's account has a node collected as garbage": (
        BRIDGE,
        _patch("/api/v1/nodes/k1", metadata={"ownerReferences": [{**GONE, "apiVersion": "v1", "kind": "Namespace"}]}),
        "taint",
    ),
    "the bridge's account leads the API server to another port of a node": (
        BRIDGE,
        _patch("/api/v1/nodes/k1/status", status={"daemonEndpoints": {"kubeletEndpoint": {"Port": 22}}}),
        "SlurmReady",
    ),
    "a namesake of the bridge's account invents a job": (NAMESAKE, _pod_patch(metadata=_notes(job_id="1")), "Only"),
    "another bridge's account changes a label": (
        OTHER_BRIDGE,
        _pod_patch(metadata={"labels": {"a": "x"}}),
        "nothing else",
    ),
    "another bridge's account deletes a pod of no bridge": (
        OTHER_BRIDGE,
        Attempt("", f"/api/v1/namespaces/{OTHER}/pods/old", {}, "DELETE"),
        "only pods of its own",
    ),
    "another bridge's account cordons a node": (
        OTHER_BRIDGE,
        _patch("/api/v1/nodes/k1", spec={"unschedulable": True}),
        "taint",
    ),
    "another bridge's account labels a claim": (
        OTHER_BRIDGE,
        _patch(f"/api/v1/namespaces/{MANAGED}/persistentvolumeclaims/data", metadata={"labels": {"a": "b"}}),
        "nothing else",
    ),
    "another bridge's account makes another lease": (OTHER_BRIDGE, _lease("other"), "no other"),
    "the bridge's account makes another lease": (BRIDGE, _lease("other"), "the lease slurm-bridge, no other"),
    "the bridge's account cordons a node": (BRIDGE, _patch("/api/v1/nodes/k1", spec={"unschedulable": True}), "taint"),
    "the bridge's account adds another taint": (
        BRIDGE,
        _patch("/api/v1/nodes/k1", spec={"taints": [{"key": "x", "effect": "NoExecute"}]}),
        "taint",
    ),
    "the bridge's account labels a node": (
        BRIDGE,
        _patch("/api/v1/nodes/k1", metadata={"labels": {"a": "b"}}),
        "taint",
    ),
    "the bridge's account enlarges a node": (
        BRIDGE,
        _patch("/api/v1/nodes/k1/status", status={"capacity": {"cpu": "999"}}),
        "SlurmReady",
    ),
    "the bridge's account says that a node is not ready": (
        BRIDGE,
        _patch("/api/v1/nodes/k1/status", status={"conditions": [{"type": "Ready", "status": "False"}]}),
        "SlurmReady",
    ),
    "the bridge's account labels a claim": (
        BRIDGE,
        _patch(f"/api/v1/namespaces/{MANAGED}/persistentvolumeclaims/data", metadata={"labels": {"a": "b"}}),
        "nothing else",
    ),
}


@pytest.mark.parametrize("case", ATTACKS)
def test_an_attack_is_refused_with_a_sentence(kube: Kube, there: None, case: str) -> None:
    client, attempt, says = ATTACKS[case]
    # The API server enforces each policy some time after it was created.
    assert says in eventually(f"{case}: it is refused", lambda: _refusal(kube, client, attempt))


def _refusal(kube: Kube, client: Client, attempt: Attempt) -> str:
    """The sentence with which the API server refuses the attempt; "": it does not."""
    status, answer = _tried(kube, client, attempt)
    return str(answer["message"]) if status == 403 else ""


# --- what is let through ------------------------------------------------------------------------------------------

HONEST: dict[str, tuple[Client, Attempt]] = {
    "the bridge binds a pod": (BRIDGE, _binding(**_notes(job_id="17"))),
    "another bridge binds a pod": (OTHER_BRIDGE, _binding(**_notes(job_id="17"))),
    "the bridge makes its lease": (BRIDGE, _lease("slurm-bridge")),
    "another bridge makes its lease": (OTHER_BRIDGE, _lease("gpu-bridge")),
    "another bridge puts back an annotation of its own": (OTHER_BRIDGE, _pod_patch(metadata=_notes(job_id="1"))),
    "a tenant creates a pod of another bridge that tolerates everything": (
        TENANT,
        _create(scheduler="gpu-bridge", spec={"tolerations": EVERYTHING}),
    ),
    "a tenant creates a pod that tolerates everything": (TENANT, _create()),
    "a tenant edits what it asks for": (TENANT, _pod_patch(metadata=_notes(partition="gpu"))),
    "a tenant adds a toleration of another taint": (
        TENANT,
        _pod_patch(spec={"tolerations": [{"key": "example.com/x", "operator": "Exists"}]}),
    ),
    "a tenant names a node elsewhere": (
        TENANT,
        _create(OTHER, scheduler="", spec={"nodeName": "k1", "tolerations": []}),
    ),
    "a tenant lets a waiting pod grow": (TENANT, _resize("waiting", "2")),
    "a tenant shrinks a bound pod": (TENANT, _resize("placed", "1m")),
    "a tenant lowers a limit of a bound pod": (TENANT, _resize("bursts", "1", limit="1500m")),
    "a system namespace tolerates everything": (
        TENANT,
        _create(SYSTEM, scheduler="", spec={"tolerations": EVERYTHING}),
    ),
    "a DaemonSet elsewhere tolerates everything": (
        DAEMONS,
        _create(OTHER, scheduler="", owners=[DAEMONSET], spec={"tolerations": EVERYTHING}),
    ),
    "the admin names the node of Slurm": (
        TENANT,
        _patch("/api/v1/nodes/k1", metadata={"labels": {PREFIX + "slurm-node": "k1"}}),
    ),
    "a kubelet labels itself": (KUBELET, _patch("/api/v1/nodes/k1", metadata={"labels": {"example.com/zone": "a"}})),
    "a kubelet reports the status of its node": (
        KUBELET,
        _patch("/api/v1/nodes/k1/status", status={"conditions": [{"type": "Ready", "status": "True"}]}),
    ),
    "a kubelet reports the status of a pod": (
        KUBELET,
        _pod_patch(name="placed", sub="/status", status={"phase": "Running"}),
    ),
    "the bridge selects the node of a claim": (
        BRIDGE,
        _patch(f"/api/v1/namespaces/{MANAGED}/persistentvolumeclaims/data", metadata={"annotations": {SELECTED: "k1"}}),
    ),
    "the bridge ends a stray pod of a managed namespace": (
        BRIDGE,
        Attempt("", f"/api/v1/namespaces/{MANAGED}/pods/old", {}, "DELETE"),
    ),
}


@pytest.mark.parametrize("case", HONEST)
def test_honest_use_passes(kube: Kube, there: None, case: str) -> None:
    client, attempt = HONEST[case]
    status, answer = _tried(kube, client, attempt)
    assert status in (200, 201), f"{status}: {answer.get('message', answer)}"


# --- under all of them --------------------------------------------------------------------------------------------


def test_the_bridge_works_under_its_own_policies(kube: Kube, slurm: Slurm, space: Space) -> None:
    """A pod that does not name the bridge runs, and ends with its job; a labelled node is registered and taken back."""
    ns = space("alice")
    kube.core.create_namespaced_pod(ns, _create(ns, scheduler="").body)
    eventually("it is bound", lambda: kube.pod(ns, "new").spec.node_name)
    job = int(kube.pod(ns, "new").metadata.annotations[PREFIX + "job-id"])
    slurm.cancel(job)
    eventually("it ends with its job", lambda: not kube.bound(ns))
    kube.add_node("adm1", "192.0.2.77", 4, 8192, {PREFIX + "external-node": "true"})
    try:
        eventually("it is in service", lambda: condition(kube.core.read_node("adm1"), "SlurmReady"))
        eventually(
            "it has the taint", lambda: any(t.key == TAINT for t in kube.core.read_node("adm1").spec.taints or [])
        )
        kube.core.patch_node("adm1", {"metadata": {"labels": {PREFIX + "external-node": None}}})
        eventually("the taint is gone", lambda: not kube.core.read_node("adm1").spec.taints)
    finally:
        kube.core.delete_node("adm1")
        eventually("Slurm has no such node any more", lambda: not slurm.node("adm1"))
