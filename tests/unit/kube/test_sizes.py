"""What an object may cost: a tenant or a node writes as much as the API server takes, and memory stays bounded (X7).

Sizes are what Python counts of what is held (tracemalloc); nothing is timed.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from bridge.kube import pods
from bridge.kube.codec import NAMESPACES, NODES, PODS, owner_codec
from scheduler import names
from scheduler.model.kubernetes import ALL_PORTS, OwnerRef, Pod, PodTerm
from scheduler.model.quantity import amount
from scheduler.model.refusal import Refusal
from scheduler.place.affinity_terms import matches
from scheduler.place.fit import needs
from scheduler.translate.job_options import job_options
from scheduler.translate.pod_limits import beyond_limits
from tests.builders import pod as built

KIB = 1024
MANY = 10
MOST_KEPT = 48 * KIB  # of a pod of 150 KiB and more
PREFIX = names.PREFIX
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"


def said(meta: dict[str, Any] | None = None, **spec: Any) -> bytes:
    named = {"name": "a", "namespace": "hpc", "uid": "u", **(meta or {})}
    return json.dumps({"metadata": named, "spec": {"containers": [], **spec}}).encode()


def nodes_like(number: int) -> dict[str, Any]:
    values = [f"v{number}-{each}" for each in range(20_000)]
    expression = {"key": "k", "operator": "In", "values": values}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


def apart(number: int, count: int = 2000) -> dict[str, Any]:
    terms = [
        {"topologyKey": HOST, "labelSelector": {"matchLabels": {"a": f"{number}-{each}"}}, "namespaces": ["hpc", "web"]}
        for each in range(count)
    ]
    return {"podAntiAffinity": {REQUIRED: terms}}


def elsewhere(number: int) -> dict[str, Any]:
    terms = [{"topologyKey": f"k{number}-{each}", "labelSelector": {}} for each in range(4000)]
    return {"podAntiAffinity": {REQUIRED: terms}}


def container(number: int, kinds: int = 4000) -> dict[str, Any]:
    amounts = {f"x.example/r{number}-{each}": "1" for each in range(kinds)}
    return {"name": "c", "resources": {"requests": {"cpu": "2", **amounts}, "limits": amounts}}


def ports(count: int = 5000) -> dict[str, Any]:
    return {
        "name": "c",
        "ports": [{"hostPort": 1 + each, "hostIP": f"10.0.{each >> 8}.{each & 255}"} for each in range(count)],
    }


def tolerations(number: int, count: int = 4000) -> list[dict[str, str]]:
    return [{"key": f"k{number}-{each}", "operator": "Equal", "value": "v"} for each in range(count)]


LARGE: dict[str, Callable[[int], bytes]] = {
    "foreign annotations": lambda n: said({"annotations": {f"example.com/{n}": "x" * 250_000}}),
    "keys that only the bridge writes": lambda n: said(
        {"annotations": dict.fromkeys(names.ONLY_OURS, f"{n}" + "x" * 30000)}
    ),
    "misspelt keys": lambda n: said({"annotations": {f"{PREFIX}k{each}": f"{n}" + "x" * 1500 for each in range(160)}}),
    "labels": lambda n: said({"labels": {f"k{n}-{each}": "v" for each in range(8000)}}),
    "tolerations": lambda n: said(tolerations=tolerations(n)),
    "node affinity": lambda n: said(affinity=nodes_like(n)),
    "anti-affinity": lambda n: said(affinity=apart(n)),
    "anti-affinity of a kind that is refused": lambda n: said(affinity=elsewhere(n)),
    "node selector": lambda n: said(nodeSelector={f"k{n}-{each}": "v" for each in range(8000)}),
    "one long value": lambda n: said(
        affinity={
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "In", "values": [f"{n}" + "x" * 200_000]}]}
                    ]
                }
            }
        }
    ),
    "kinds of resources": lambda n: said(containers=[container(n)]),
    "containers": lambda n: said(containers=[{"name": f"c{n}-{each}"} for each in range(8000)]),
    "overhead": lambda n: said(overhead={f"x.example/r{n}-{each}": "1" for each in range(5000)}),
    "host ports": lambda n: said(containers=[ports()], nodeName=f"x{n}"),
    "claims": lambda n: said(
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": f"c{n}-{each}"}} for each in range(3000)]
    ),
    "a claim's name": lambda n: said(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": f"c{n}" * 99_999}}]),
    "the scheduler's name": lambda n: said(schedulerName=f"{n}" + "s" * 250_000),
    "the owner's name": lambda n: said(
        {
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "X", "name": f"{n}" * 250_000, "uid": "o", "controller": True}
            ]
        }
    ),
}


def keeps_away(pod: Pod, other: Pod) -> bool:
    """True if the other pod may not share a node with this one."""
    return any(matches(term, other) for term in pod.anti_affinity)


def held(one: Callable[[bytes], object], texts: list[bytes]) -> tuple[int, int]:
    """Bytes held for each of these objects: while they live, and when they are gone."""
    one(texts[0])
    gc.collect()
    tracemalloc.start()
    kept = [one(text) for text in texts[1:]]
    gc.collect()
    amount.cache_clear()  # it holds 8192 numbers at most, each with the name of one resource
    live, _ = tracemalloc.get_traced_memory()
    kept.clear()
    gc.collect()
    gone, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return live // (len(texts) - 1), gone // (len(texts) - 1)


@pytest.mark.parametrize("what", LARGE)
def test_a_large_pod_costs_little_while_it_lives_and_nothing_when_it_is_gone(what: str) -> None:
    texts = [LARGE[what](number) for number in range(MANY)]
    assert len(texts[1]) > 80_000
    live, gone = held(PODS.one, texts)
    assert live < MOST_KEPT
    assert gone < 16 * KIB


@pytest.mark.parametrize(
    ("what", "number", "limit"),
    [
        ("tolerations", "4,000 tolerations", 128),
        ("node affinity", "20,000 values in its required node affinity", 1024),
        ("anti-affinity", "2,000 terms of required pod affinity and anti-affinity", 20),
        ("node selector", "8,000 labels in its node selector", 64),
        ("kinds of resources", "4,001 kinds of resources", 64),
        ("overhead", "5,000 kinds of resources", 64),
        ("containers", "8,000 containers", 128),
        ("host ports", "5,000 host ports", 128),
        ("claims", "3,000 volume claims", 64),
    ],
)
def test_a_shortened_pod_is_refused_with_the_same_message(what: str, number: str, limit: int) -> None:
    assert beyond_limits(PODS.one(LARGE[what](1))) == (
        f"The pod has {number}, and slurm-bridge takes at most {limit:,}."
    )


def test_of_demands_that_are_refused_the_first_are_named_and_the_others_counted() -> None:
    [words] = PODS.one(LARGE["anti-affinity of a kind that is refused"](1)).refused_fields
    assert words.startswith('required pod anti-affinity on "k1-0" (only kubernetes.io/hostname), ')
    assert words.endswith(" and 3,997 more")


def test_a_large_bound_pod_counts_with_its_requests_ports_and_anti_affinity() -> None:
    wire = container(1) | ports()
    pod = PODS.one(said(containers=[wire, wire], nodeName="x1", affinity=apart(1), tolerations=tolerations(1)))
    assert (pod.node, needs(pod)["cpu"], needs(pod)["pods"]) == ("x1", 4000, 1)
    assert ALL_PORTS in pod.host_ports
    assert keeps_away(pod, built("web", namespace="web"))
    assert keeps_away(pod, built("train"))
    assert not keeps_away(pod, built("far", namespace="far"))


def test_fields_within_the_limits_stay_if_another_field_exceeds_them() -> None:
    few, more = (
        PODS.one(said(containers=[{"name": "c"}], affinity=apart(1, 3), tolerations=tolerations(1, count)))
        for count in (3, 200)
    )
    assert len(few.anti_affinity) == 3
    assert (few.containers, few.anti_affinity) == (more.containers, more.anti_affinity), (
        "no other pod has to be told anything"
    )


def test_a_bound_pod_keeps_what_the_bridge_wrote_and_a_waiting_pod_keeps_that_a_key_is_there() -> None:
    shown = {names.JOB_NODES: "n[1-9999]," * 5000, names.JOB_ID: "17"}
    bound = PODS.one(said({"annotations": shown}, nodeName="x1"))
    assert bound.annotations == shown
    waiting = PODS.one(said({"annotations": shown}))
    assert waiting.annotations.keys() == shown.keys()
    assert isinstance(job_options(waiting), Refusal)


def test_a_misspelt_key_is_reported_though_its_value_is_not_kept_and_though_there_are_many() -> None:
    said_so = job_options(PODS.one(said({"annotations": {f"{PREFIX}partitoin": "x" * 100_000}})))
    assert isinstance(said_so, Refusal)
    assert "Did you mean slurm-bridge/partition?" in said_so.message
    many = {f"{PREFIX}k{number}": "x" for number in range(500)} | {f"{PREFIX}partition": "main"}
    pod = PODS.one(said({"annotations": many}))
    assert pod.annotations[f"{PREFIX}partition"] == "main"
    assert isinstance(job_options(pod), Refusal)


def test_a_value_that_no_label_can_have_is_cut_and_still_equal_to_none() -> None:
    affinity = {
        "podAntiAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": {"matchLabels": {"a": "x" * 9999}}}]}
    }
    [term] = PODS.one(said(affinity=affinity)).anti_affinity
    assert isinstance(term, PodTerm)
    [requirement] = term.expressions
    assert len(requirement.values[0]) == 64, "more than a label's value may have"


def test_nodes_and_namespaces_with_many_labels_keep_the_labels_that_decide() -> None:
    others = {f"example.com/k{number}": "v" for number in range(9000)}
    deciding = {names.MANAGED_LABEL: "true", "node-restriction.kubernetes.io/zone": "a", "plain": "b"}
    text = json.dumps({"metadata": {"name": "x1", "uid": "u", "labels": others | deciding}}).encode()
    for one, most in ((NODES.one, 1024), (NAMESPACES.one, 256)):
        labels = one(text).labels
        assert len(labels) == most
        assert labels.items() >= deciding.items()


def test_a_node_with_many_taints_and_resources_costs_little() -> None:
    def node(number: int) -> bytes:
        taints = [{"key": f"k{number}-{each}", "effect": "NoSchedule"} for each in range(9000)]
        taints.append({"key": names.MANAGED_TAINT, "effect": "NoSchedule"})
        offered = {f"x.example/r{number}-{each}": "1" for each in range(9000)} | {"cpu": "4"}
        status = {"allocatable": offered}
        return json.dumps({"metadata": {"name": f"x{number}"}, "spec": {"taints": taints}, "status": status}).encode()

    live, _ = held(NODES.one, [node(number) for number in range(MANY)])
    assert live < 512 * KIB
    read = NODES.one(node(1))
    assert read.allocatable["cpu"] == 4000
    assert names.MANAGED_TAINT in {taint.key for taint in read.taints}


def test_an_owner_with_large_annotations_costs_little() -> None:
    def owner(number: int) -> bytes:
        own = {f"{PREFIX}{key}": f"{number}" + "x" * 30_000 for key in (*names.WRITTEN_BY_US, "typo")}
        return json.dumps({"metadata": {"name": "a", "uid": "u", "annotations": own}, "spec": {}}).encode()

    live, _ = held(owner_codec(OwnerRef("v1", "X", "a", "u")).one, [owner(number) for number in range(MANY)])
    assert live < 16 * KIB


def test_pods_of_one_template_share_small_objects() -> None:
    text = said({"labels": {"app": "a"}}, containers=[{"name": "c"}], tolerations=tolerations(1, 3))
    one, other = PODS.one(text), PODS.one(text)
    for field in ("labels", "containers", "tolerations"):
        assert getattr(one, field) is getattr(other, field)


def test_shared_objects_are_limited_in_bytes() -> None:
    for number in range(3000):
        PODS.one(said(tolerations=tolerations(number, 60)))
    tracemalloc.start()
    for number in range(3000, 4000):
        PODS.one(said(tolerations=tolerations(number, 60)))
    gc.collect()
    held_now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_now < 4 * pods.MOST_SHARED


def test_pods_that_say_nothing_odd_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_asked(pod: Pod) -> Pod:
        raise AssertionError(f"counted {pod.name}")

    monkeypatch.setattr(pods, "cut", not_asked)
    resources = {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"},
    }
    PODS.one(
        said(
            containers=[{"name": f"c{each}", "resources": resources} for each in range(4)],
            tolerations=tolerations(1, 5),
        )
    )
