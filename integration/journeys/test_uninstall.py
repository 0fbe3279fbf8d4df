"""`slurm-bridge uninstall`, as an admin types it: it takes back what is the bridge's, on both sides, and nothing else.

It works under the account of the manifests.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from integration import own_account
from integration.checker import journal
from integration.clusters import (
    PREFIX,
    BridgeProcess,
    Kube,
    Slurm,
    condition,
    eventually,
    free_port,
    kubectl,
    pod,
    replica_set,
)
from integration.journeys.conftest import POLICY
from tests.patience import PATIENCE_S

Space = Callable[[str], str]
LEASE = ("slurm-bridge", "slurm-bridge")
OWN, CORDONED = "u1", "k1"
WATCHED = ("job_state", "name", "comment", "time_limit", "nodes", "priority")
NOTHING = "Nothing of slurm-bridge is left in Slurm and on the nodes of Kubernetes."
TUNING = {"node_settle_s": 1, "node_retry_s": 5}


class Uninstall:
    """Runs of the command beside, or in the place of, the bridge of these journeys."""

    def __init__(self, folder: Path, settings: dict[str, Any], kubeconfig: Path) -> None:
        self._command = [sys.executable, "-m", "bridge", "uninstall", "--kubeconfig", str(kubeconfig)]
        self._command += ["--config", str(folder / "uninstall.yaml")]
        self._log = folder / "uninstall.log"
        (folder / "uninstall.yaml").write_text(yaml.safe_dump(settings | {"http": f"127.0.0.1:{free_port()}"}))

    def begin(self, *options: str) -> subprocess.Popen[bytes]:
        """Start it; what it prints is in `said`."""
        with self._log.open("wb") as log:
            return subprocess.Popen([*self._command, *options], stdout=log, stderr=log)

    def run(self, *options: str) -> int:
        """Its exit code."""
        process = self.begin(*options)
        try:
            return process.wait(2 * PATIENCE_S)
        finally:
            process.kill()  # it has ended, or has taken too long
            process.wait(PATIENCE_S)

    @property
    def said(self) -> str:
        return self._log.read_text()


@pytest.fixture(scope="module")
def settings(slurm: Slurm) -> dict[str, Any]:
    return {
        "slurm_url": slurm.url,
        "slurm_token_file": slurm.token_file,
        "policy": POLICY,
        "lease": {"identity": "the-bridge"},
        "tuning": TUNING,
        "nodes_interval_s": 1,
    }


@pytest.fixture(scope="module")
def kubeconfig(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of the account of manifests/base/rbac.yaml."""
    path, ends = tmp_path_factory.mktemp("account") / "kubeconfig", kube.api.configuration
    own_account.write_kubeconfig(kubectl, ends.host, ends.ssl_ca_cert, path)
    return path


@pytest.fixture(scope="module")
def bridge(
    no_bridge: None, kube: Kube, settings: dict[str, Any], kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BridgeProcess]:
    """In the place of the one bridge of the other journeys."""
    process = BridgeProcess(settings, tmp_path_factory.mktemp("bridge"), str(kubeconfig))
    process.start()
    yield process
    process.stop()
    assert "Traceback" not in process.log.read_text()
    with contextlib.suppress(client.ApiException):
        client.CoordinationV1Api(kube.api).delete_namespaced_lease(*LEASE)


@pytest.fixture
def uninstall(settings: dict[str, Any], kubeconfig: Path, tmp_path: Path) -> Uninstall:
    return Uninstall(tmp_path, settings, kubeconfig)


@pytest.fixture
def own_node(bridge: BridgeProcess, kube: Kube, slurm: Slurm) -> Iterator[str]:
    """A node that the bridge has registered in Slurm."""
    kube.add_node(OWN, "192.0.2.77", 8, 16384, {PREFIX + "external-node": "true"})
    eventually("it is in service", lambda: "SlurmNodeInService" in in_slurm(kube, OWN))
    eventually("it is tainted", lambda: tainted(kube, OWN))
    yield OWN
    kube.core.delete_node(OWN)
    if slurm.node(OWN):  # the journey failed before
        eventually("Slurm lets it go", lambda: slurm.remove_node(OWN))


@pytest.fixture
def foreign(kube: Kube, slurm: Slurm) -> Iterator[tuple[int, str]]:
    """A native job of carol, and a namespace with a pod of another scheduler."""
    job = slurm.submit("carol", name="native")
    eventually("it runs", lambda: "RUNNING" in slurm.job(job)["job_state"])
    space = "uninstall-foreign"
    kube.namespace(space, managed=False)
    kube.core.create_namespaced_pod(space, pod("daemon", scheduler="other", on="", spec={"nodeName": "k2"}))
    eventually("it runs", lambda: kube.pod(space, "daemon").status.phase == "Running")
    yield job, space
    slurm.cancel(job)
    kube.remove(space)


@pytest.fixture
def cordoned(bridge: BridgeProcess, kube: Kube, slurm: Slurm) -> Iterator[str]:
    """A node that both clusters have, drained by the bridge since an admin cordoned it."""
    kube.core.patch_node(CORDONED, {"spec": {"unschedulable": True}})
    eventually("it is drained", lambda: slurm.node(CORDONED)["reason"].startswith("slurm-bridge: "))
    yield CORDONED
    kube.core.patch_node(CORDONED, {"spec": {"unschedulable": False}})
    if drained(slurm, CORDONED):  # the journey failed before
        slurm.change_node(CORDONED, "RESUME")


def in_slurm(kube: Kube, name: str) -> str:
    found = condition(kube.core.read_node(name), "SlurmReady")
    return f"{found.reason}: {found.message}" if found else ""


def tainted(kube: Kube, name: str) -> bool:
    return any(taint.key == PREFIX + "managed" for taint in kube.core.read_node(name).spec.taints or ())


def drained(slurm: Slurm, name: str) -> bool:
    return "DRAIN" in slurm.node(name).get("state", ())


def snapshot(kube: Kube, slurm: Slurm, foreign: tuple[int, str]) -> dict[str, Any]:
    job, space = foreign
    daemon = kube.pod(space, "daemon")
    meta, status = daemon.metadata, daemon.status
    about = [meta.uid, meta.annotations, meta.deletion_timestamp, status.phase, daemon.spec.active_deadline_seconds]
    return {key: slurm.job(job)[key] for key in WATCHED} | {"pod": about}


def test_after_an_uninstall_neither_cluster_has_anything_of_the_bridge_and_nothing_else_was_touched(
    kube: Kube,
    slurm: Slurm,
    space: Space,
    bridge: BridgeProcess,
    own_node: str,
    cordoned: str,
    foreign: tuple[int, str],
    uninstall: Uninstall,
) -> None:
    ns = space("alice")
    waiting = four_pods_run_and_one_waits(kube, slurm, ns, own_node)
    before = snapshot(kube, slurm, foreign)

    steps = [f"wait until pod {ns}/alone on node", f"end Slurm job {waiting} of {ns}/waits"]
    says_what_it_would_do(uninstall, *steps, f"remove Slurm node {own_node}", f"resume Slurm node {cordoned}")
    assert uninstall.run() == 2, uninstall.said
    assert "the-bridge holds the lease slurm-bridge/slurm-bridge and renews it" in uninstall.said
    assert len(slurm.live(f"{ns}/")) == 5, "nothing was done"
    assert drained(slurm, cordoned)

    assert bridge.stop() == 0
    begins_and_waits(uninstall, kube, slurm, ns, own_node, cordoned)

    journal.breaks("V7", f"{ns}/*", "the admin has the bridge end pods whose jobs run")
    says_that_nothing_is_left(uninstall, "--end-pods")
    assert "Traceback" not in uninstall.said
    assert Path(slurm.token_file).read_text().strip() not in uninstall.said

    nothing_is_left(kube, slurm, ns, own_node, cordoned)
    assert "SlurmBridgeUninstalled" in kube.said(ns, "waits")
    eventually("the service's controller made new pods", lambda: len(_unbound(kube, ns)) == 3)
    lease = client.CoordinationV1Api(kube.api).read_namespaced_lease(*LEASE)
    assert not lease.spec.holder_identity
    assert snapshot(kube, slurm, foreign) == before
    assert kube.core.read_node(cordoned).spec.unschedulable, "an admin's cordon is his"

    says_that_nothing_is_left(uninstall, "--wait")
    assert "3 pods name it as their scheduler and wait" in uninstall.said


def four_pods_run_and_one_waits(kube: Kube, slurm: Slurm, ns: str, own_node: str) -> int:
    """Returns the id of the job that waits."""
    kube.run(ns, "alone")
    kube.run(ns, "own", on="", spec={"nodeSelector": {"kubernetes.io/hostname": own_node}})
    kube.apps.create_namespaced_replica_set(ns, replica_set("service", 2))
    eventually("they run", lambda: len(kube.bound(ns)) == 4)
    kube.run(ns, "waits", says={"begin": "now+1day"})
    [job] = eventually("it waits in Slurm", lambda: slurm.live(f"{ns}/waits~"))
    return int(job["job_id"])


def says_that_nothing_is_left(uninstall: Uninstall, *options: str) -> None:
    assert uninstall.run(*options) == 0, uninstall.said
    assert NOTHING in uninstall.said


def says_what_it_would_do(uninstall: Uninstall, *steps: str) -> None:
    assert uninstall.run("--dry-run") == 0, uninstall.said
    for step in steps:
        assert step in uninstall.said


def begins_and_waits(uninstall: Uninstall, kube: Kube, slurm: Slurm, ns: str, own_node: str, cordoned: str) -> None:
    """Runs the uninstallation until it waits for pods that run; then an admin decides otherwise, or the machine is lost."""
    first = uninstall.begin()
    try:
        eventually("the pod that waits is told", lambda: "SlurmBridgeUninstalled" in kube.said(ns, "waits"))
        eventually("its job is over", lambda: not slurm.live(f"{ns}/waits~"))
        eventually("no jobs are given to the bridge's node", lambda: drained(slurm, own_node))
        eventually("the other node is in service again", lambda: not drained(slurm, cordoned))
        eventually("it says what it waits for", lambda: f"wait until pod {ns}/alone" in uninstall.said)
        assert len(kube.bound(ns)) == 4, "what runs is let run"
        assert tainted(kube, own_node), "no other scheduler may come while pods of the bridge run there"
    finally:
        first.kill()
        first.wait(PATIENCE_S)


def nothing_is_left(kube: Kube, slurm: Slurm, ns: str, own_node: str, cordoned: str) -> None:
    """Asserts that neither cluster has a job, node, drain, taint, condition or bound pod of the bridge."""
    assert slurm.live(f"{ns}/") == []
    assert slurm.node(own_node) == {}
    assert not drained(slurm, cordoned)
    assert [node.metadata.name for node in kube.core.list_node().items if in_slurm(kube, node.metadata.name)] == []
    assert not tainted(kube, own_node)
    assert kube.bound(ns) == []


def _unbound(kube: Kube, ns: str) -> list[Any]:
    return [each for each in kube.pods(ns) if not each.spec.node_name and not each.metadata.deletion_timestamp]
