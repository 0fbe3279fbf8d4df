"""Power saving and reboots of Slurm, and external nodes, which Slurm cannot power up (rigging/conf/uncounted.conf)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually, rig, slurm_says
from integration.journeys.test_nodes import in_service, is_now, on, says

Space = Callable[[str], str]
PLAYED = "kwok.x-k8s.io/node"
TUNING = {"node_settle_s": 1, "node_gone_s": 2, "node_silent_s": 2}


@pytest.fixture(scope="module", autouse=True)
def quick(bridge: BridgeProcess) -> Iterator[None]:
    """The bridge sees at once what becomes of nodes."""
    with bridge.with_settings(tuning=TUNING, nodes_interval_s=1):
        yield


def update(name: str, state: str) -> None:
    slurm_says("scontrol", "update", f"nodename={name}", f"state={state}")


def kubelet_stops(kube: Kube, name: str) -> None:
    """kwok plays it no more, because it would report the node as ready at once."""
    kube.core.patch_node(name, {"metadata": {"annotations": {PLAYED: None}}})
    condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    kube.core.patch_node_status(name, {"status": {"conditions": [condition]}})


def kubelet_starts(kube: Kube, name: str) -> None:
    kube.core.patch_node(name, {"metadata": {"annotations": {PLAYED: "fake"}}})


def test_a_pod_is_bound_when_its_node_has_booted_and_runs_until_a_reboot_that_waits_for_it(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    """n1 has a slurmd: the node has booted when it starts.  kwok plays the kubelet, which starts later."""
    ns = space("alice")
    in_service(kube, "n1")
    update("n1", "power_down")
    is_now(slurm, "n1", "POWERED_DOWN")
    says(kube, "n1", "True SlurmNodeInService", "powered it down")
    rig("slurmd-n1", "stop")
    kubelet_stops(kube, "n1")
    try:
        kube.run(ns, "train", on="", spec=on("n1"))
        eventually("it waits for its node", lambda: "powers up n1" in kube.said(ns, "train"))
        is_now(slurm, "n1", "POWERING_UP")
        says(kube, "n1", "True SlurmNodeInService", "powers it up")
        assert not kube.bound(ns)
    finally:
        rig("slurmd-n1", "start")
    eventually("it waits for the kubelet", lambda: "node n1 is not ready" in kube.said(ns, "train"))
    kubelet_starts(kube, "n1")
    [pod] = eventually("its node has booted", lambda: kube.bound(ns))
    job = int(pod.metadata.annotations[PREFIX + "job-id"])
    assert slurm.job(job)["job_state"] == ["RUNNING"]

    slurm_says("scontrol", "reboot", "ASAP", "nextstate=resume", "reason=kernel", "n1")
    says(kube, "n1", "False SlurmNodeDrained", "kernel")
    assert slurm.job(job)["job_state"] == ["RUNNING"]
    kube.core.patch_node("n1", {"spec": {"unschedulable": True}})
    kube.core.patch_node("n1", {"spec": {"unschedulable": False}})
    kube.core.delete_namespaced_pod("train", ns)
    says(kube, "n1", "False SlurmNodeDown", "reboot issued")
    rig("slurmd-n1", "stop")
    rig("slurmd-n1", "start")
    in_service(kube, "n1")


def test_an_external_node_that_slurm_powers_down_is_registered_again(kube: Kube, slurm: Slurm) -> None:
    kube.add_node("off1", "192.0.2.1", 8, 16384, {PREFIX + "external-node": "true"})
    try:
        in_service(kube, "off1")
        update("off1", "power_down")
        says(kube, "off1", "False SlurmNodeNotResponding", "powered down off1", "SuspendExcStates")
        in_service(kube, "off1")
        assert not {"POWERED_DOWN", "POWERING_DOWN"} & set(slurm.node("off1")["state"])
    finally:
        kube.core.delete_node("off1")
        eventually("Slurm has no off1 any more", lambda: not slurm.node("off1"))
