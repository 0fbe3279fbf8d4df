"""The rights of manifests/: the bridge uses each of them, none is missing, and a right that was taken away is reported.

The bridge runs under the service account of the manifests, which has the rights of a managed namespace only where the journey
applies manifests/namespace/rolebinding.yaml, and under the admission policies that ship.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from integration import controllers, granted, own_account
from integration.bench.audit import Audit
from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, condition, eventually, kubectl, pod, replica_set
from integration.journeys.conftest import POLICY
from integration.journeys.test_doctor_explain import ran

Space = Callable[[str], str]
MANIFESTS = own_account.MANIFESTS
RULES = (MANIFESTS / "base" / "rbac.yaml",)
USER = "system:serviceaccount:slurm-bridge:slurm-bridge"
NODE, LABEL = "granted1", PREFIX + "external-node"
CLASS = "granted-first-consumer"
GROUP = "scheduling.x-k8s.io/pod-group"
TUNING = {"node_settle_s": 1, "node_gone_s": 2, "node_retry_s": 5}
# One rule is filled from a label, so that `policy show` reads a namespace.
BY_LABEL = {"namespaces": ["label-*"], "user": "{namespace.labels['journey/user']}"}
OWNERS = {
    "jobset": ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    "lws": ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    "group": ("scheduling.k8s.io/v1alpha2", "PodGroup"),
}


class Account:
    """The bridge's account as it ships, and what was asked under it since the journeys began.

    settings, kubeconfig   files for commands
    """

    def __init__(self, folder: Path, kube: Kube, slurm: Slurm) -> None:
        ends = kube.api.configuration
        own_account.only_where_bound(kubectl)
        own_account.make(kubectl)
        self.kubeconfig = folder / "kubeconfig"
        own_account.write_kubeconfig_of(own_account.NAME, kubectl, ends.host, ends.ssl_ca_cert, self.kubeconfig)
        settings = {
            "slurm_url": slurm.url,
            "slurm_token_file": slurm.token_file,
            "policy": {"rules": [*POLICY["rules"], BY_LABEL]},
            "lease": {"identity": "granted"},
            "tuning": TUNING,
            "nodes_interval_s": 1,
        }
        self.bridge = BridgeProcess(settings, folder, str(self.kubeconfig))
        self.options = ("--config", str(folder / "settings.yaml"), "--kubeconfig", str(self.kubeconfig))
        self._audit = Audit()

    def asked(self) -> set[granted.Request]:
        return granted.requests_of(USER, self._audit.lines())


def shipped() -> list[dict[str, Any]]:
    """The objects of the files that give the bridge its rights."""
    return [each for path in RULES for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def account(no_bridge: None, kube: Kube, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    kubectl("apply", "-k", str(MANIFESTS / "admission"))
    made = Account(tmp_path_factory.mktemp("granted"), kube, slurm)
    made.bridge.start()
    yield made
    assert made.bridge.stop() == 0
    assert "Traceback" not in made.bridge.log.read_text()
    kubectl("delete", "-k", str(MANIFESTS / "admission"))
    with contextlib.suppress(client.ApiException):
        client.CoordinationV1Api(kube.api).delete_namespaced_lease("slurm-bridge", "slurm-bridge")


@pytest.fixture(scope="module")
def bridge(account: Account) -> BridgeProcess:
    """In the place of the one bridge of the other journeys."""
    return account.bridge


@pytest.fixture
def here(space: Space) -> str:
    """A managed namespace of alice's, in which the account has its rights."""
    name = space("alice")
    own_account.bind(kubectl, name)
    return name


@pytest.fixture
def node(kube: Kube, slurm: Slurm) -> Iterator[str]:
    """A labelled node in service."""
    kube.add_node(NODE, "192.0.2.78", 4, 8192, {LABEL: "true"})
    eventually("it is in service", lambda: _in_slurm(kube, "True"))
    yield NODE
    kube.core.delete_node(NODE)
    eventually("Slurm has no such node any more", lambda: not slurm.node(NODE))


def _in_slurm(kube: Kube, status: str) -> bool:
    said = condition(kube.core.read_node(NODE), "SlurmReady")
    return said is not None and said.status == status


def test_every_right_is_used_and_none_is_missing(
    account: Account, kube: Kube, slurm: Slurm, here: str, node: str
) -> None:
    _service_with_a_short_limit(kube, here)
    _pods_of_every_owner(kube, here)
    _volume_that_is_made_for_its_pod(kube, here)
    _what_is_said_twice(kube, here)
    with account.bridge.with_settings():  # another process says the same of the same objects
        _what_is_said_twice(kube, here)
        _jobs_that_are_cancelled(kube, slurm, here)
        explained = ("explain", "alone", "-n", here, *account.options)
        eventually("explain shows its events", lambda: "SlurmJobEnded" in ran(*explained)[1])
        ran("doctor", *account.options)
        ran("policy", "show", "-n", here, *account.options)
        rights = granted.rights_of(shipped())
        eventually("every right is used, none is missing", lambda: granted.judged(rights, account.asked()))
        idle = granted.Right("ClusterRole slurm-bridge", "update", "pods")
        assert granted.judged({*rights, idle}, account.asked()).unused == (str(idle),)


def test_a_right_that_is_not_given_is_named(account: Account, kube: Kube, here: str) -> None:
    name = "slurm-bridge-namespace"
    [role] = [each for each in shipped() if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", name)]
    without = [rule for rule in role["rules"] if "pods/status" not in rule["resources"]]
    kube.rbac.patch_cluster_role(name, {"rules": without})
    try:
        kube.run(here, "refused", says={"partition": "nowhere"})
        lacking = f"patch pods/status in namespace {here}: no role allows it"
        eventually("it is named", lambda: lacking in granted.judged((), account.asked()).refused)
    finally:
        kubectl("apply", "-f", str(RULES[0]))
    eventually("the pod says why", lambda: kube.said(here, "refused"))


# --- what the bridge does -----------------------------------------------------------------------------------------


def _service_with_a_short_limit(kube: Kube, ns: str) -> None:
    """Creates a ReplicaSet whose pod is evicted after half of its time limit of a minute (S4b)."""
    kube.apps.create_namespaced_replica_set(ns, replica_set("service", 1, says={"time-limit": "1"}))


def _pods_of_every_owner(kube: Kube, ns: str) -> None:
    """The bridge reads each, for annotations and for the size of a group."""
    template = controllers.template({"app": "owned"}, {})
    always = template | {"spec": template["spec"] | {"restartPolicy": "Always"}}
    spec = {"selector": {"matchLabels": {"app": "owned"}}, "template": always}
    meta = {"metadata": {"name": "owned"}}
    kube.apps.create_namespaced_deployment(ns, meta | {"spec": spec | {"replicas": 1}})
    kube.apps.create_namespaced_stateful_set(ns, meta | {"spec": spec | {"replicas": 1, "serviceName": "owned"}})
    on_one = always | {"spec": always["spec"] | {"nodeSelector": {"kubernetes.io/hostname": "k1"}}}
    kube.apps.create_namespaced_daemon_set(ns, meta | {"spec": spec | {"template": on_one}})
    plain: dict[str, Any] = {
        "replicas": 1,
        "selector": {"app": "controlled"},
        "template": controllers.template({"app": "controlled"}, {}),
    }
    plain["template"]["spec"]["restartPolicy"] = "Always"
    kube.core.create_namespaced_replication_controller(ns, {"metadata": {"name": "controlled"}, "spec": plain})
    job = {"template": controllers.template({}, {})}
    cron = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}
    made = kube.batch.create_namespaced_cron_job(ns, {"metadata": {"name": "yearly"}, "spec": cron})
    owner = controllers.owned_by("batch/v1", "CronJob", "yearly", made.metadata.uid)
    kube.batch.create_namespaced_job(ns, {"metadata": {"name": "by-hand"} | owner, "spec": job})
    for name, (api_version, kind) in OWNERS.items():
        body = pod(f"of-{name}")
        body["metadata"] |= controllers.owned_by(api_version, kind, name, str(uuid.uuid4()))
        kube.core.create_namespaced_pod(ns, body)
    kube.run(ns, "of-group-by-label", labels={GROUP: "gang"})


def _volume_that_is_made_for_its_pod(kube: Kube, ns: str) -> None:
    """The bridge names the node, the journey makes the volume there, and then the pod runs."""
    storage = client.StorageV1Api(kube.api)
    first = {"provisioner": "example.com/journey", "volumeBindingMode": "WaitForFirstConsumer"}
    storage.create_storage_class({"metadata": {"name": CLASS}} | first)
    wants = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = kube.core.create_namespaced_persistent_volume_claim(
        ns, {"metadata": {"name": "data"}, "spec": wants | {"storageClassName": CLASS}}
    )
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    kube.run(ns, "stores", spec={"volumes": volumes})

    def selected() -> str:
        claim = kube.core.read_namespaced_persistent_volume_claim("data", ns)
        notes: dict[str, str] = claim.metadata.annotations or {}
        return notes.get("volume.kubernetes.io/selected-node", "")

    try:
        where = eventually("the claim names a node", selected)
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [where]}]}
        volume = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "hostPath": {"path": "/tmp"},
            "claimRef": {"namespace": ns, "name": "data", "uid": made.metadata.uid},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        kube.core.create_persistent_volume({"metadata": {"name": ns}, "spec": volume})
        eventually("the pod runs there", lambda: kube.pod(ns, "stores").spec.node_name == where)
    finally:
        storage.delete_storage_class(CLASS)
        kube.core.delete_persistent_volume(ns)


def _what_is_said_twice(kube: Kube, ns: str) -> None:
    """Events about a pod and about a node; another process of the bridge counts them on."""
    for partition in ("nowhere", "elsewhere", "nowhere"):
        if "wrong" not in {each.metadata.name for each in kube.pods(ns)}:
            kube.run(ns, "wrong", says={"partition": partition})
        asks = {"metadata": {"annotations": {PREFIX + "partition": partition}}}
        kube.core.patch_namespaced_pod("wrong", ns, asks)
        eventually("it says so", lambda wrong=partition: f'"{wrong}"' in kube.said(ns, "wrong"))  # type: ignore[misc]
    for unschedulable, status in ((True, "False"), (False, "True")):
        kube.core.patch_node(NODE, {"spec": {"unschedulable": unschedulable}})
        eventually("the node says so", lambda wanted=status: _in_slurm(kube, wanted))  # type: ignore[misc]


def _jobs_that_are_cancelled(kube: Kube, slurm: Slurm, ns: str) -> None:
    """A pod that has a controller is deleted; another one is ended by its kubelet."""
    kube.apps.create_namespaced_replica_set(ns, replica_set("cancelled", 1))
    kube.run(ns, "alone")
    [first] = eventually("one runs", lambda: [each for each in kube.bound(ns) if "cancelled" in each.metadata.name])
    eventually("so does the other", lambda: kube.pod(ns, "alone").spec.node_name)
    for each in (first, kube.pod(ns, "alone")):
        slurm.cancel(int(each.metadata.annotations[PREFIX + "job-id"]))
    eventually("it is deleted", lambda: first.metadata.uid not in {each.metadata.uid for each in kube.pods(ns)})
    eventually("the other is to end", lambda: kube.pod(ns, "alone").spec.active_deadline_seconds == 1)
