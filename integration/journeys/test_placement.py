"""Pods run only where their own specification allows it, whatever Slurm would have granted (rules F, W9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration.clusters import PREFIX, Kube, Slurm, eventually
from scheduler.model.hostlist import expand

Space = Callable[[str], str]
TAINT = {"key": "lab", "value": "busy", "effect": "NoSchedule"}
HOSTNAME = "kubernetes.io/hostname"
WIDE = {"cpu": "40"}  # of 64: one a node


@pytest.fixture
def marked(kube: Kube) -> Iterator[None]:
    """k1: old and slow; k2: fast; k3: fast and newer; k4: newer, and tainted."""
    labels = {
        "k1": {"disk": "slow", "generation": "7"},
        "k2": {"disk": "fast", "generation": "9"},
        "k3": {"disk": "fast", "generation": "10"},
        "k4": {"disk": "none", "generation": "11"},
    }
    with kube.marked(labels, {"k4": [TAINT]}):
        yield


def affinity(*expressions: tuple[str, str, list[str]]) -> dict[str, Any]:
    """Required node affinity, all of which must hold."""
    said = [{"key": key, "operator": operator, "values": values} for key, operator, values in expressions]
    required = {"nodeSelectorTerms": [{"matchExpressions": said}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def apart(of: str) -> dict[str, Any]:
    """Required anti-affinity on hostname to pods of that app."""
    term = {"labelSelector": {"matchLabels": {"app": of}}, "topologyKey": HOSTNAME}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


# What a pod says, and the two nodes that are then left.
ALLOWED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "selector": ({"nodeSelector": {"disk": "fast"}}, {"k2", "k3"}),
    "affinity": (
        affinity(("generation", "Gt", ["9"]), ("disk", "Exists", []), ("disk", "NotIn", ["slow"])),
        {"k3", "k4"},
    ),
    "taint": (
        {"nodeSelector": {"type": "kwok"}, "tolerations": []} | affinity((HOSTNAME, "In", ["k2", "k3", "k4"])),
        {"k2", "k3"},
    ),
}


@pytest.mark.parametrize("says", ALLOWED)
def test_only_where_allowed_and_else_it_waits_though_other_nodes_are_free(
    says: str, kube: Kube, slurm: Slurm, space: Space, marked: None
) -> None:
    """Two pods by themselves, then a gang of two that needs the same two nodes."""
    ns = space("alice")
    spec, allowed = ALLOWED[says]
    for name in ("first", "second"):
        kube.run(ns, name, **WIDE, on="", spec=spec)
    eventually("both are bound", lambda: len(kube.bound(ns)) == 2)
    assert stands(kube, ns) == allowed
    ring(kube, ns, 2, **WIDE, on="", spec=spec)
    [job] = eventually("the gang has a job", lambda: slurm.live(f"{ns}/ring~"))
    assert "PENDING" in slurm.job(job["job_id"])["job_state"]
    assert len(kube.bound(ns)) == 2, "k1 is free all the while"
    for name in ("first", "second"):
        kube.core.delete_namespaced_pod(name, ns)
    eventually("the gang is bound", lambda: {p.metadata.name for p in kube.bound(ns)} == {"ring-0", "ring-1"})
    assert stands(kube, ns) == allowed
    grants_match(kube, slurm, ns)


def test_pods_that_must_be_apart_are_one_a_node(kube: Kube, slurm: Slurm, space: Space, marked: None) -> None:
    ns = space("alice")
    labels = {"app": "db"}
    spec = {"nodeSelector": {"disk": "fast"}, "affinity": apart("db")}
    for name in ("first", "second"):
        kube.run(ns, name, on="", labels=labels, spec=spec)
    eventually("both are bound", lambda: len(kube.bound(ns)) == 2)
    assert stands(kube, ns) == {"k2", "k3"}
    kube.run(ns, "third", on="", labels=labels, spec=spec)
    said = eventually("the third says why not", lambda: kube.said(ns, "third"))
    assert "SlurmNoFeasibleNode" in said
    assert "2 not satisfying pod (anti-)affinity" in said
    for name in ("first", "second", "third"):
        kube.core.delete_namespaced_pod(name, ns)
    eventually("they are gone", lambda: not kube.pods(ns))

    ring(kube, ns, 2, on="", labels=labels, spec=spec)
    eventually("the gang is bound", lambda: len(kube.bound(ns)) == 2)
    assert stands(kube, ns) == {"k2", "k3"}
    [job] = slurm.live(f"{ns}/ring~")
    assert {node: held["cores"] for node, held in slurm.holds(job["job_id"]).items()} == {"k2": 1, "k3": 1}


def test_if_no_node_fits_the_message_counts_the_nodes_as_kube_scheduler_does(
    kube: Kube, slurm: Slurm, space: Space, marked: None
) -> None:
    ns = space("alice")
    count = len(kube.core.list_node().items)
    kube.run(ns, "nowhere", on="", spec={"nodeSelector": {"disk": "tape"}})
    kube.run(ns, "tainted", on="", spec={"nodeSelector": {"disk": "none"}, "tolerations": []})
    ring(kube, ns, 3, on="", labels={"app": "db"}, spec={"nodeSelector": {"disk": "fast"}, "affinity": apart("db")})
    for number in range(9):
        one_of(kube, ns, "wide", number, 9, gpu=4)
    where = f"0/{count} nodes can run this pod in Slurm partition main: "
    sentences = {
        "nowhere": f"{where}{count} not matching the pod's node selector.",
        "tainted": f"{where}{count - 1} not matching the pod's node selector, 1 with untolerated taint {{lab: busy}}.",
        "ring-0": f"requires a node of its own for each of 3 pods of {ns}/ring, and only 2 nodes can run them.",
        "wide-0": "Slurm partition main has no room for 9 such pods, even when it is empty: 4 nodes can run them, "
        "and would take 8.",
    }
    for name, sentence in sentences.items():
        eventually(f"{name} says why", lambda n=name, s=sentence: s in kube.said(ns, n))  # type: ignore[misc]
    assert slurm.live(f"{ns}/") == []
    assert kube.bound(ns) == []


def test_a_grant_that_another_schedulers_pod_is_in_the_way_of_is_released_and_all_go_elsewhere(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    """F6: Slurm does not know pods of other schedulers.  If one place of a gang is taken, no member is bound."""
    ns = space("alice")
    kube.run(ns, "stranger", cpu="60", scheduler="somebody-else", spec={"nodeName": "k1"})
    eventually("it stands there", lambda: kube.pod(ns, "stranger").status.phase == "Running")
    spec = affinity((HOSTNAME, "In", ["k1", "k2", "k3"]))
    ring(kube, ns, 2, **WIDE, on="", spec=spec)
    eventually("it is bound", lambda: len(kube.bound(ns)) == 3)
    members = [pod for pod in kube.bound(ns) if pod.metadata.name != "stranger"]
    assert {pod.spec.node_name for pod in members} == {"k2", "k3"}
    [job] = slurm.live(f"{ns}/ring~")
    ended = [each for each in slurm.jobs() if f"{ns}/ring~" in each["name"] and each["job_id"] != job["job_id"]]
    assert [each["job_state"] for each in ended] == [["CANCELLED"]]
    assert {pod.metadata.annotations[PREFIX + "job-id"] for pod in members} == {str(job["job_id"])}
    for pod in members:
        eventually("an event says so", lambda p=pod: "SlurmGrantReleased" in kube.events(ns, p.metadata.name))  # type: ignore[misc]
    assert kube.pod(ns, "stranger").status.phase == "Running", "others' pods are left in peace"


def test_two_gangs_that_pod_by_pod_would_hold_each_other_up_both_finish(kube: Kube, slurm: Slurm, space: Space) -> None:
    """Each needs three of the four nodes; their pods are made turn by turn."""
    ns = space("alice")
    for number in range(3):
        for name in ("left", "right"):
            one_of(kube, ns, name, number, 3, gpu=8)
    [before] = eventually("one of them is whole", lambda: whole(kube, ns, 3))
    after = {"left": "right", "right": "left"}[before]
    eventually("the other waits", lambda: "SlurmJobPending" in kube.said(ns, f"{after}-0"))
    assert {pod.metadata.name.split("-")[0] for pod in kube.bound(ns)} == {before}
    [waits] = slurm.live(f"{ns}/{after}~")
    assert waits["nodes"] == "", "it holds nothing"
    for gang in (before, after):
        eventually(f"{gang} is whole", lambda g=gang: whole(kube, ns, 3) == [g])  # type: ignore[misc]
        for number in range(3):
            kube.succeed(ns, f"{gang}-{number}")
    eventually("no job is left", lambda: not slurm.live(f"{ns}/"))
    assert {pod.status.phase for pod in kube.pods(ns)} == {"Succeeded"}


def test_a_gang_that_wants_its_nodes_whole_pays_for_its_own_memory_alone(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    """Counted by the CPU, 200 GiB for one of 64 would be more than any node has."""
    ns = space("alice")
    for number in range(3):
        labels, says = {PREFIX + "gang": "ring"}, {"gang-size": "3", "exclusive": "true"}
        kube.run(ns, f"ring-{number}", cpu="1", memory="200Gi", labels=labels, says=says)
    eventually("it is bound", lambda: len(kube.bound(ns)) == 3)
    [job] = slurm.live(f"{ns}/ring~")
    held = slurm.holds(job["job_id"])
    assert [(each["cores"], each["memory"]) for each in held.values()] == [(64, 400 * 1024)] * 2
    assert stands(kube, ns) == set(held)


def test_a_node_that_is_cordoned_is_sent_to_every_component_of_a_waiting_gang(
    kube: Kube, slurm: Slurm, space: Space, full: None
) -> None:
    """A launcher without devices, and workers with: two jobs, each with a list of its own."""
    ns = space("alice")
    one_of(kube, ns, "mpi", 0, 3, memory="128Mi")
    for number in (1, 2):
        one_of(kube, ns, "mpi", number, 3, gpu=8)
    eventually("both components wait", lambda: len(slurm.live(f"{ns}/mpi~")) == 2)
    assert excluding(slurm, ns, "k2") == 0
    kube.core.patch_node("k2", {"spec": {"unschedulable": True}})
    try:
        eventually("both are told", lambda: excluding(slurm, ns, "k2") == 2)
    finally:
        kube.core.patch_node("k2", {"spec": {"unschedulable": None}})
    eventually("and told that it is back", lambda: excluding(slurm, ns, "k2") == 0)


# --- in a few words -----------------------------------------------------------------------------------------------


def one_of(kube: Kube, space: str, gang: str, number: int, size: int, **options: Any) -> None:
    labels = {PREFIX + "gang": gang, **options.pop("labels", {})}
    kube.run(space, f"{gang}-{number}", labels=labels, says={"gang-size": str(size)}, **options)


def ring(kube: Kube, space: str, size: int, **options: Any) -> None:
    for number in range(size):
        one_of(kube, space, "ring", number, size, **options)


def stands(kube: Kube, space: str) -> set[str]:
    return {pod.spec.node_name for pod in kube.bound(space)}


def whole(kube: Kube, space: str, size: int) -> list[str]:
    """The gangs of which so many are bound."""
    names = [pod.metadata.labels[PREFIX + "gang"] for pod in kube.bound(space)]
    return sorted(name for name in set(names) if names.count(name) == size)


def grants_match(kube: Kube, slurm: Slurm, space: str) -> None:
    """Every pod is on a node that was granted to the job that the pod names."""
    for pod in kube.bound(space):
        assert pod.spec.node_name in slurm.holds(int(pod.metadata.annotations[PREFIX + "job-id"]))


def excluding(slurm: Slurm, space: str, node: str) -> int:
    """The number of jobs of the namespace that exclude the node."""
    return sum(node in expand(job["excluded_nodes"]) for job in slurm.live(f"{space}/"))
