"""Labelled nodes are nodes of Slurm, and both sides stay in step (rules N).

The bridge has shorter patience here, so that minutes are seconds.  Every node of these journeys leaves both clusters
afterwards, and Slurm keeps nothing of it (N5).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, condition, eventually, rig
from integration.journeys.conftest import POLICY
from integration.journeys.test_doctor_explain import findings, sentences

Space = Callable[[str], str]
NUMBERS = itertools.count(1)
LABEL = PREFIX + "external-node"
MODEL = "example.com/gpu-model"
GPU, FPGA = "nvidia.com/gpu", "example.com/fpga"  # GresTypes of the rig's Slurm names the first alone
GRES = {GPU: "gpu", FPGA: "fpga"}
STEADY_S, SILENT_S = 12, 40
TUNING = {
    "node_settle_s": 1,
    "node_unlike_s": STEADY_S,
    "node_gone_s": 2,
    "node_down_s": 2,
    "node_silent_s": 2,
    "node_retry_s": 5,
    "silent_node_s": SILENT_S,
}


@pytest.fixture(scope="module")
def quick(bridge: BridgeProcess) -> Iterator[None]:
    """The bridge, in a hurry about nodes."""
    with bridge.with_settings(
        tuning=TUNING,
        nodes_interval_s=1,
        gres=GRES,
        external_nodes={"feature_labels": [MODEL]},
    ):
        yield


@pytest.fixture
def nodes(quick: None, kube: Kube, slurm: Slurm) -> Iterator[Callable[..., str]]:
    """nodes() labels a new played node of 8 CPUs, 16 GiB and two GPUs, and returns its name; afterwards it is gone."""
    made: list[str] = []

    def make(partitions: str = "gpu", cpus: int = 8, model: str = "h100", **labels: str) -> str:
        number = next(NUMBERS)
        name = f"j{number}"
        kube.add_node(name, f"192.0.2.{number}", cpus, 16384, {MODEL: model}, **{GPU: "2"})
        made.append(name)
        notes = {PREFIX + "partitions": partitions}
        kube.core.patch_node(name, {"metadata": {"labels": {LABEL: "true"} | labels, "annotations": notes}})
        return name

    yield make
    for name in made:
        if name in {node.metadata.name for node in kube.core.list_node().items}:
            kube.core.delete_node(name)
    for name in made:
        eventually(f"Slurm has no {name} any more", lambda n=name: not slurm.node(n))  # type: ignore[misc]


@pytest.fixture
def node(nodes: Callable[..., str], kube: Kube) -> str:
    """A node that is in service."""
    name = nodes()
    in_service(kube, name)
    return name


# --- what is seen ---------------------------------------------------------------------------------------------------


def said(kube: Kube, name: str) -> str:
    """Status, reason and message of our condition of the node."""
    found = condition(kube.core.read_node(name), "SlurmReady")
    return f"{found.status} {found.reason}: {found.message}" if found else ""


def says(kube: Kube, name: str, *words: str) -> str:
    """The condition, once it holds all these words."""
    what = f"{name} says {', '.join(words)}"
    return eventually(what, lambda: (text := said(kube, name)) and all(word in text for word in words) and text)


def in_service(kube: Kube, name: str) -> None:
    says(kube, name, "True SlurmNodeInService")


def event_reasons(kube: Kube, name: str) -> set[str]:
    """Reasons of the events about the node."""
    found = kube.core.list_namespaced_event("default", field_selector=f"involvedObject.name={name}").items
    return {event.reason for event in found}


def tainted(kube: Kube, name: str) -> bool:
    return any(
        (t.key, t.effect) == (PREFIX + "managed", "NoSchedule") for t in kube.core.read_node(name).spec.taints or ()
    )


def state(slurm: Slurm, name: str) -> set[str]:
    return set(slurm.node(name).get("state", ()))


def is_now(slurm: Slurm, name: str, *states: str, without: str = "") -> dict[str, Any]:
    """Slurm's node, once it is in all these states."""

    def there() -> dict[str, Any]:
        known = slurm.node(name)
        now = set(known.get("state", ()))
        return known if now and set(states) <= now and without not in now else {}

    return eventually(f"{name} is {states} without {without!r}", there)


def cordon(kube: Kube, name: str, cordoned: bool) -> None:
    kube.core.patch_node(name, {"spec": {"unschedulable": cordoned}})


def has_devices(kube: Kube, name: str, count: int) -> None:
    """Sets the number of devices that the node's device plugin offers."""
    kube.core.patch_node_status(name, {"status": {"capacity": {GPU: str(count)}, "allocatable": {GPU: str(count)}}})


def on(name: str, **fields: Any) -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/hostname": name}, **fields}


def run(kube: Kube, space: str, name: str, node: str, **options: Any) -> None:
    kube.run(space, name, on="", spec=on(node), says={"partition": "gpu"}, **options)


def trains_on(node: str, kube: Kube, space: Space) -> str:
    """A namespace of alice, whose pod train has a GPU there."""
    ns = space("alice")
    run(kube, ns, "train", node, gpu=1)
    eventually("it is bound", lambda: kube.bound(ns))
    return ns


def job_of(kube: Kube, space: str, name: str) -> int:
    return int(kube.pod(space, name).metadata.annotations[PREFIX + "job-id"])


# --- registered (N1, N7) --------------------------------------------------------------------------------------------


def test_a_labelled_node_is_registered_with_what_it_has_and_pods_come_to_it_by_way_of_slurm(
    node: str, kube: Kube, slurm: Slurm, space: Space
) -> None:
    known = slurm.node(node)
    assert (known["cpus"], known["real_memory"], known["gres"]) == (7, 15360, "gpu:2"), "less the reserve"
    assert known["address"] == kube.core.read_node(node).status.addresses[0].address
    assert {"EXTERNAL", "DYNAMIC_NORM", "IDLE"} <= set(known["state"])
    assert {"gpu", "h100"} <= set(known["features"])
    assert {"main", "gpu"} <= set(known["partitions"]), "by the NodeSet of that feature"
    eventually("it is tainted", lambda: tainted(kube, node))
    eventually("and an event says so", lambda: "SlurmNodeInService" in event_reasons(kube, node))

    ns = space("alice")
    for number in range(6):
        wants = {"gpu": 1} if number < 2 else {}
        kube.run(ns, f"p{number}", on="", spec=on(node, tolerations=[]), says={"partition": "gpu"}, **wants)
    eventually("all six are bound", lambda: len(kube.bound(ns)) == 6)
    assert {each.spec.node_name for each in kube.bound(ns)} == {node}
    held = [slurm.holds(job_of(kube, ns, f"p{number}"))[node] for number in range(6)]
    assert sorted(index for each in held for index in each.get("gpu", ())) == [0, 1], "each device once"


def test_what_cannot_be_registered_says_why_and_the_others_go_on(
    nodes: Callable[..., str], kube: Kube, slurm: Slurm
) -> None:
    ordinary, before = nodes(**{PREFIX + "slurm-node": "n1"}), slurm.node("n1")
    wrong = {
        ordinary: ("SlurmNodeContested", f"{ordinary}, n1", "slurm-node"),
        nodes(**{PREFIX + "slurm-node": "DEFAULT"}): ("SlurmNodeInvalid", '"DEFAULT"', "slurm-node"),
        nodes("gpu,nosuch"): ("SlurmNodeInvalid", 'no partition "nosuch"', "partitions"),
        nodes(cpus=1): ("SlurmNodeInvalid", "1 CPUs", "external_nodes"),
    }
    outside, unknown = nodes(model="a100"), nodes()
    wrong[outside] = ("SlurmNodeOutsidePartition", "gpu", "NodeSet")
    kube.core.patch_node_status(unknown, {"status": {"capacity": {FPGA: "1"}, "allocatable": {FPGA: "1"}}})
    wrong[unknown] = ("SlurmNodeRefused", "fpga", "GresTypes")
    good = nodes()
    in_service(kube, good)
    for name, words in wrong.items():
        says(kube, name, "False", *words)
        eventually("there is an event too", lambda n=name, w=words: w[0] in event_reasons(kube, n))  # type: ignore[misc]
    assert slurm.node("n1")["features"] == before["features"]
    assert not {"DRAIN", "DOWN"} & state(slurm, "n1"), "somebody else's node is left alone"
    assert {name for name in wrong if slurm.node(name)} == {unknown, outside}
    assert slurm.node(unknown)["gres"] == "gpu:2", "it is in service with what Slurm counts"
    kube.core.patch_node(ordinary, {"metadata": {"labels": {LABEL: None, PREFIX + "slurm-node": None}}})
    eventually("what the bridge said is taken back", lambda: not said(kube, ordinary))
    in_service(kube, "n1")


def test_the_doctor_says_what_slurm_lacks_for_labelled_nodes(
    nodes: Callable[..., str], kube: Kube, slurm: Slurm, tmp_path: Path
) -> None:
    name = nodes("nosuch")
    kube.core.patch_node_status(name, {"status": {"capacity": {FPGA: "1"}, "allocatable": {FPGA: "1"}}})
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump({"slurm_url": slurm.url, "policy": POLICY, "http": "", "gres": GRES}))
    ends = ("--config", str(settings), "--kubeconfig", kube.kubeconfig, "--slurm-token-file", slurm.token_file)
    _, found = findings(*ends)
    assert "fpga, which GresTypes does not name" in sentences(found, "labelled nodes", "error")
    assert "no partition of Slurm: nosuch" in sentences(found, "their partitions", "error")


# --- drained, down (N2, N3) -----------------------------------------------------------------------------------------


def test_a_cordoned_node_is_drained_and_back_when_uncordoned_but_an_admins_drain_stays(
    node: str, kube: Kube, slurm: Slurm, space: Space
) -> None:
    ns = trains_on(node, kube, space)
    cordon(kube, node, True)
    assert is_now(slurm, node, "DRAIN")["reason"] == "slurm-bridge: cordoned in Kubernetes"
    says(kube, node, "False SlurmNodeDrained", "cordoned")
    cordon(kube, node, False)
    is_now(slurm, node, without="DRAIN")
    in_service(kube, node)

    slurm.change_node(node, "DRAIN", "fan is broken")
    cordon(kube, node, True)  # before a poll has shown what the admin did
    says(kube, node, "False SlurmNodeDrained", "fan is broken")
    eventually("and an event", lambda: "SlurmNodeDrained" in event_reasons(kube, node))
    cordon(kube, node, False)
    run(kube, ns, "next", node)
    eventually("a new pod waits", lambda: "False" in said(kube, node) and kube.said(ns, "next"))
    assert is_now(slurm, node, "DRAIN")["reason"] == "fan is broken"
    slurm.change_node(node, "RESUME")
    in_service(kube, node)
    eventually("then it runs", lambda: len(kube.bound(ns)) == 2)
    assert {each.metadata.name for each in kube.bound(ns)} == {"train", "next"}, "nothing that ran was harmed"


def test_a_node_that_an_admin_sets_down_shows_that_and_stays_so_until_an_admin_resumes_it(
    node: str, kube: Kube, slurm: Slurm
) -> None:
    slurm.change_node(node, "DOWN", "smells of smoke")
    says(kube, node, "False SlurmNodeDown", "smells of smoke")
    eventually("and an event", lambda: "SlurmNodeDown" in event_reasons(kube, node))
    cordon(kube, node, True)
    cordon(kube, node, False)
    slurm.change_node("k1", "DRAIN", "lent out")  # known to both without a label, so shown too
    says(kube, node, "SlurmNodeDown", "smells of smoke")
    assert "DOWN" in state(slurm, node)
    slurm.change_node(node, "RESUME")
    in_service(kube, node)
    says(kube, "k1", "False SlurmNodeDrained", "lent out")
    assert not tainted(kube, "k1")
    assert is_now(slurm, "k1", "DRAIN")["reason"] == "lent out"
    slurm.change_node("k1", "RESUME")


# --- replaced, removed (N1, N5) -------------------------------------------------------------------------------------


def test_a_node_with_fewer_devices_is_registered_again_once_idle_and_a_plugins_restart_is_no_reason(
    node: str, kube: Kube, slurm: Slurm, space: Space
) -> None:
    ns = trains_on(node, kube, space)
    has_devices(kube, node, 0)
    run(kube, ns, "meanwhile", node, gpu=1)
    eventually("a pod for its devices waits", lambda: kube.said(ns, "meanwhile"))
    has_devices(kube, node, 2)
    eventually("with its devices back that runs", lambda: len(kube.bound(ns)) == 2)
    kube.core.delete_namespaced_pod("meanwhile", ns)
    assert "DRAIN" not in state(slurm, node)

    has_devices(kube, node, 1)
    assert "1 gpu now" in is_now(slurm, node, "DRAIN")["reason"]
    says(kube, node, "False SlurmNodeDrained", "to be registered again")
    assert slurm.node(node)["gres"] == "gpu:2", "not while a job is there"
    assert kube.pod(ns, "train").metadata.deletion_timestamp is None
    kube.core.delete_namespaced_pod("train", ns)
    eventually("it has one device in Slurm", lambda: slurm.node(node).get("gres") == "gpu:1")
    in_service(kube, node)
    run(kube, ns, "last", node, gpu=1)
    eventually("and takes pods", lambda: kube.pod(ns, "last").spec.node_name == node)


def test_a_node_that_left_kubernetes_is_drained_and_removed_when_the_last_job_is_over(
    node: str, kube: Kube, slurm: Slurm
) -> None:
    native = slurm.submit("carol", name="native", required_nodes=[node])
    eventually("somebody's own job runs there", lambda: "RUNNING" in slurm.job(native)["job_state"])
    kube.core.delete_node(node)
    assert is_now(slurm, node, "DRAIN")["reason"] == "slurm-bridge: its Kubernetes node is gone"
    assert "RUNNING" in slurm.job(native)["job_state"]
    slurm.cancel(native)
    eventually("Slurm knows it no more", lambda: not slurm.node(node))


def test_a_node_whose_label_is_taken_is_let_go_by_both(node: str, kube: Kube, slurm: Slurm) -> None:
    eventually("it is tainted", lambda: tainted(kube, node))
    kube.core.patch_node(node, {"metadata": {"labels": {LABEL: None}}})
    eventually("Slurm knows it no more", lambda: not slurm.node(node))
    eventually("nothing of the bridge is left on it", lambda: not said(kube, node) and not tainted(kube, node))


# --- not responding (N3) --------------------------------------------------------------------------------------------


def test_a_node_that_a_signal_left_not_responding_says_so_and_is_recreated_once_idle(
    node: str, kube: Kube, slurm: Slurm, space: Space
) -> None:
    ns = trains_on(node, kube, space)
    slurm.signal(job_of(kube, ns, "train"), "USR1")
    says(kube, node, "False SlurmNodeNotResponding", "registered again")
    eventually("and an event", lambda: "SlurmNodeNotResponding" in event_reasons(kube, node))
    run(kube, ns, "next", node, gpu=1)
    eventually("Slurm gives it no job", lambda: kube.said(ns, "next"))
    assert {"MIXED", "NOT_RESPONDING"} <= state(slurm, node)
    assert len(kube.bound(ns)) == 1, "the pod runs on"
    kube.core.delete_namespaced_pod("train", ns)
    eventually("then the next one runs there", lambda: kube.pod(ns, "next").spec.node_name == node)
    in_service(kube, node)
    assert "NOT_RESPONDING" not in state(slurm, node)


# --- its kubelet dies (N4, S8) --------------------------------------------------------------------------------------


def test_the_device_of_a_dead_kubelet_is_given_to_no_other_pod_until_its_pod_cannot_run_any_more(
    quick: None, own_rig: None, needs_kubelets: None, kube: Kube, slurm: Slurm, space: Space
) -> None:
    """A real container holds the node's only GPU while the node's power fails; afterwards the node comes back."""
    has_devices(kube, "x1", 1)
    kube.core.patch_node("x1", {"metadata": {"labels": {LABEL: "true", MODEL: "h100"}}})
    says(kube, "x1", "SlurmNodeNotOurs", "scontrol delete nodename=x1")
    assert slurm.remove_node("x1"), "the admin hands it over"
    in_service(kube, "x1")
    assert slurm.node("x1")["gres"] == "gpu:1"
    ns = space("alice")
    run(kube, ns, "train", "x1", gpu=1, command="exec sleep 600")
    eventually("its container runs", lambda: kube.pod(ns, "train").status.phase == "Running")
    job = job_of(kube, ns, "train")
    rig("kubelet-x1", "kill")
    try:
        assert is_now(slurm, "x1", "DRAIN")["reason"] == "slurm-bridge: not ready in Kubernetes"
        silent = kubelet_silent_since(kube, "x1")
        kube.core.delete_namespaced_pod("train", ns)
        run(kube, ns, "next", "x1", gpu=1)
        eventually("the next one waits", lambda: kube.said(ns, "next"))
        says(kube, "x1", "False SlurmNodeDrained", "not ready")
        assert "RUNNING" in slurm.job(job)["job_state"], "the dead node's pod may still hold the device"
        eventually("the job is over", lambda: "RUNNING" not in slurm.job(job)["job_state"])
        assert slurm.job(job)["end_time"]["number"] >= silent + SILENT_S - 1
        assert "DOWN" not in state(slurm, "x1"), "its pod is not proven gone"
        assert not kube.pod(ns, "next").spec.node_name
        kube.core.delete_namespaced_pod("train", ns, grace_period_seconds=0)  # the admin is sure
        is_now(slurm, "x1", "DOWN")
    finally:
        rig("kubelet-x1", "start")
    in_service(kube, "x1")
    has_devices(kube, "x1", 1)
    eventually("the next one has the device", lambda: kube.pod(ns, "next").status.phase == "Running")
    assert slurm.holds(job_of(kube, ns, "next"))["x1"]["gpu"] == {0}


def kubelet_silent_since(kube: Kube, name: str) -> float:
    """Since when Kubernetes shows that this kubelet does not report, epoch seconds."""
    conditions = kube.core.read_node(name).status.conditions
    ready = next(each for each in conditions if each.type == "Ready")
    assert ready.status == "Unknown"
    return float(ready.last_transition_time.timestamp())
