"""Rights of the bridge are taken away while it runs, and given back (X9).

It says which are missing and what gives them, nothing that runs ends for it, and all goes on without a restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from integration import own_account
from integration.checker import journal
from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, condition, eventually, kubectl, replica_set, rig
from integration.journeys.test_granted import LABEL, NODE, RULES, Account, _in_slurm, shipped
from integration.journeys.test_granted import account as account
from integration.journeys.test_granted import bridge as bridge
from integration.journeys.test_granted import here as here

Space = Callable[[str], str]
TAINT = PREFIX + "managed"


@contextmanager
def without(kube: Kube, role: str, resource: str) -> Iterator[None]:
    """The ClusterRole lacks the rules that name this resource; pods there wait meanwhile (X9)."""
    [whole] = [each for each in shipped() if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", role)]
    rules = [rule for rule in whole["rules"] if resource not in rule["resources"]]
    assert len(rules) < len(whole["rules"])
    kube.rbac.patch_cluster_role(role, {"rules": rules})
    try:
        with journal.disturbed(f"{role} lacks {resource}"):
            yield
    finally:
        kubectl("apply", "-f", str(RULES[0]))


class Running:
    """A pod, and a service of one replica, that run; `stay` and `follow` are what must be true of them."""

    def __init__(self, kube: Kube, slurm: Slurm, ns: str) -> None:
        self.kube, self.slurm, self.ns = kube, slurm, ns
        kube.run(ns, "stays")
        kube.apps.create_namespaced_replica_set(ns, replica_set("service", 1))
        found = eventually("both run", lambda: len(pods := kube.bound(ns)) == 2 and pods)
        self.before = {each.metadata.name: each for each in found}
        [self.service] = [name for name in self.before if name.startswith("service")]

    def lose_the_service(self) -> None:
        """Its job is cancelled in Slurm."""
        self.slurm.cancel(_job(self.before[self.service]))

    def service_follows(self) -> bool:
        """Its pod is gone, and another one runs in its place."""
        return any(n.startswith("service") and n != self.service for n in self._bound())

    def each_has_one_job(self, count: int) -> bool:
        """So many pods are bound, and the jobs that live are just theirs."""
        bound = self._bound()
        jobs = sorted(job["job_id"] for job in self.slurm.live(f"{self.ns}/"))
        return len(bound) == count and sorted(map(_job, bound.values())) == jobs

    def stays(self) -> bool:
        """The pod was neither ended nor given another job."""
        now, before = self.kube.pod(self.ns, "stays"), self.before["stays"]
        return (now.metadata.uid, _job(now)) == (
            before.metadata.uid,
            _job(before),
        ) and not now.metadata.deletion_timestamp

    def _bound(self) -> dict[str, Any]:
        return {each.metadata.name: each for each in self.kube.bound(self.ns) if not each.metadata.deletion_timestamp}


def _job(each: Any) -> int:
    return int(each.metadata.annotations[PREFIX + "job-id"])


def _note(bridge: BridgeProcess, text: str) -> bool:
    return text in bridge.ask("readyz")[1]


def _goes_on(kube: Kube, slurm: Slurm, ns: str, running: Running, since: float) -> None:
    eventually("what waited runs", lambda: kube.pod(ns, "next").spec.node_name)
    bound_s = time.monotonic() - since
    eventually("the service runs again", running.service_follows)
    print(f"bound {bound_s:.1f} s after the rights were back, the service {time.monotonic() - since:.1f} s")
    eventually("each has one job", lambda: running.each_has_one_job(3))
    assert running.stays()
    assert [slurm.job(_job(running.before["stays"]))["job_state"]] == [["RUNNING"]]


def test_the_role_binding_of_a_namespace(kube: Kube, slurm: Slurm, space: Space, here: str, account: Account) -> None:
    there = space("bob")
    own_account.bind(kubectl, there)
    running = Running(kube, slurm, here)
    kubectl("delete", "rolebinding", "slurm-bridge", f"--namespace={here}")
    kube.run(here, "next")
    eventually("it is told", lambda: _note(account.bridge, f"in namespace {here}, so its pods wait."))
    assert account.bridge.ask("readyz")[0] == 200, "others go on"
    assert f"kubectl apply --namespace={here} -f manifests/namespace/rolebinding.yaml" in account.bridge.log.read_text()
    running.lose_the_service()
    kube.run(there, "other")
    eventually("other namespaces go on", lambda: kube.bound(there))
    eventually("no nodes are held for what cannot be bound", lambda: not slurm.live(f"{here}/next"))
    assert running.stays()
    own_account.bind(kubectl, here)
    _goes_on(kube, slurm, here, running, time.monotonic())
    eventually("nothing is told any more", lambda: not _note(account.bridge, f"in namespace {here}"))


def test_the_cluster_role_binding(kube: Kube, slurm: Slurm, here: str, account: Account, own_rig: None) -> None:
    running = Running(kube, slurm, here)
    kubectl("delete", "clusterrolebinding", "slurm-bridge")
    rig("kube-apiserver", "stop")  # which ends the watches; they would go on for minutes
    rig("kube-apiserver", "start")
    try:
        kube.run(here, "next")
        running.lose_the_service()
        eventually("it is told", lambda: _note(account.bridge, "may not list pods, watch pods"))
        eventually("it is not ready", lambda: account.bridge.ask("readyz")[0] == 503)
        assert "kubectl apply -f manifests/base/rbac.yaml" in account.bridge.ask("readyz")[1]
        assert running.stays()
        assert not kube.pod(here, "next").spec.node_name
    finally:
        kubectl("apply", "-f", str(RULES[0]))
    _goes_on(kube, slurm, here, running, time.monotonic())
    eventually("it is ready", lambda: account.bridge.ask("readyz") == (200, "ok\n"))


def test_the_right_to_bind_is_missed_on_the_pods_themselves(
    kube: Kube, slurm: Slurm, here: str, account: Account
) -> None:
    running = Running(kube, slurm, here)
    with without(kube, "slurm-bridge-namespace", "pods/binding"):
        kube.run(here, "next")
        lacks = "SlurmBridgeLacksRights: Kubernetes: slurm-bridge may not create pods/binding, create pods/eviction"
        eventually("the pod says so", lambda: kube.said(here, "next").startswith(lacks))
        assert not slurm.live(f"{here}/next")
        running.lose_the_service()
    _goes_on(kube, slurm, here, running, time.monotonic())


def test_the_right_to_write_on_nodes(kube: Kube, slurm: Slurm, here: str, account: Account) -> None:
    running = Running(kube, slurm, here)
    with without(kube, "slurm-bridge", "nodes/status"):
        kube.add_node(NODE, "192.0.2.78", 4, 8192, {LABEL: "true"})
        eventually("Slurm has it", lambda: slurm.node(NODE))
        eventually(
            "it is told", lambda: _note(account.bridge, "nodes are not tainted, and do not say how Slurm sees them")
        )
        kube.run(here, "next")
        eventually("pods go on", lambda: kube.pod(here, "next").spec.node_name)
        assert condition(kube.core.read_node(NODE), "SlurmReady") is None
    try:
        eventually("it says that it is in service", lambda: _in_slurm(kube, "True"))
        eventually("it has the taint", lambda: any(t.key == TAINT for t in kube.core.read_node(NODE).spec.taints or []))
        eventually("nothing is told any more", lambda: account.bridge.ask("readyz") == (200, "ok\n"))
    finally:
        kube.core.delete_node(NODE)
        eventually("Slurm has no such node any more", lambda: not slurm.node(NODE))
    assert running.stays()
