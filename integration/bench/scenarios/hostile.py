"""Tenants who ask for as much as Kubernetes takes: how long a pass becomes, and how long another namespace's pods wait.

Running pods of a namespace that is not managed, and waiting pods of a managed namespace, each with many terms of pod
anti-affinity, none of which selects the pods whose wait is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from integration.bench.clients import NAMESPACE, Kube
from integration.bench.figures import Figure, at_most
from integration.bench.following import eventually
from integration.bench.ground import Ground
from integration.bench.load import CREATORS, JobOptions, percentile
from integration.bench.scenarios import Scenario
from integration.bench.scenarios.one import MS_PER_S, latency, waits
from integration.bench.subjects import HOSTILE, SCHEDULER, pass_bound

STANDING, WAITING = 1000, 200
TERMS, TERMS_TAKEN = 100, 20  # of a pod; the most with which one is not refused
UNMANAGED = "grey"
LONG_S = 0.05
WEB = JobOptions(labels=(("app", "web"),))


def hostile(pods: int) -> Scenario:
    """So many pods of the other namespace, before and after the hostile ones came."""
    return Scenario("hostile", partial(_repeat, "hostile", pods), repeats=3, why="each takes some minutes", apart=True)


async def _repeat(scenario: str, pods: int, ground: Ground) -> list[Figure]:
    async with ground.bridge() as bridge:
        usual = await waits(ground, bridge, pods, "usual", WEB)
        await bridge.at_rest()
        alone = await bridge.passes()
        await _crowd(ground.kube)
        await bridge.at_rest()
        before = await bridge.passes()
        coming = before - alone
        beside = await waits(ground, bridge, pods, "beside", WEB)
        passes = await bridge.passes() - before
    longest = percentile(beside, 0.99) / percentile(usual, 0.99)
    return [
        Figure(
            scenario, "a pass, p99: at most", "ms", (pass_bound(passes, 0.99) * MS_PER_S,), at_most(LONG_S * MS_PER_S)
        ),
        Figure(scenario, "a pass during creation, p99: at most", "ms", (pass_bound(coming, 0.99) * MS_PER_S,)),
        Figure(scenario, "passes over 50 ms during creation", "", (max(coming.values()) - coming[LONG_S],)),
        Figure(scenario, "passes", "", (max(passes.values()),)),
        Figure(scenario, "passes over 50 ms", "", (max(passes.values()) - passes[LONG_S],)),
        Figure(
            scenario,
            "another namespace: create → bind, p50, relative to before",
            "×",
            (percentile(beside, 0.5) / percentile(usual, 0.5),),
            at_most(3),
        ),
        Figure(scenario, "another namespace: create → bind, p99, relative to before", "×", (longest,)),
        latency(scenario, 0.5, beside, None, usual),
        latency(scenario, 0.99, beside, None, usual),
    ]


async def _crowd(kube: Kube) -> None:
    """The hostile pods, and until the bridge has said something on each of those that wait."""
    await _namespace(kube, UNMANAGED, {})
    await _namespace(kube, HOSTILE, {"slurm-bridge/managed": "true"})
    nodes = [node["metadata"]["name"] for node in (await kube.json("GET", "/api/v1/nodes"))["items"]]
    bodies = iter([*_standing(nodes), *_waiting(TERMS), *_waiting(TERMS_TAKEN)])

    async def creator() -> None:
        for namespace, body in bodies:
            await kube.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)

    async with asyncio.TaskGroup() as creators:
        for _ in range(CREATORS):
            creators.create_task(creator())

    async def said() -> bool:
        pods = (await kube.json("GET", f"/api/v1/namespaces/{HOSTILE}/pods"))["items"]
        return all(_is_told(pod) for pod in pods)

    await eventually("the bridge has said something on every waiting pod", said, within_s=300, every_s=2.0)


def _is_told(pod: Any) -> bool:
    conditions = (each for each in pod["status"].get("conditions", ()) if each["type"] == "PodScheduled")
    return "nodeName" in pod["spec"] or any(each.get("message") for each in conditions)


async def _namespace(kube: Kube, name: str, labels: dict[str, str]) -> None:
    await kube.json("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}}, may=(409,))

    async def has_account() -> bool:
        return bool((await kube.json("GET", f"/api/v1/namespaces/{name}/serviceaccounts"))["items"])

    await eventually(f"{name} has its service account", has_account, within_s=30)


def _standing(nodes: list[str]) -> Iterator[tuple[str, bytes]]:
    """Their creator named the node."""
    for number in range(STANDING):
        yield UNMANAGED, _pod(f"s{number}", TERMS, {"nodeName": nodes[number % len(nodes)]})


def _waiting(terms: int) -> Iterator[tuple[str, bytes]]:
    """Pods that wait in Slurm and are not refused, so the bridge keeps their lists of excluded nodes up to date."""
    for number in range(WAITING):
        yield HOSTILE, _pod(f"w{terms}-{number}", terms, {"schedulerName": SCHEDULER})


def _pod(name: str, terms: int, spec: dict[str, Any]) -> bytes:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1m"}}}
    apart = [_term(f"{name}-{number}", number) for number in range(terms)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}}
    body = {
        "metadata": {
            "name": name,
            "labels": {"app": "hostile", "name": name},
            "annotations": {"slurm-bridge/begin": "now+1hour"},
        },
        "spec": spec | {"containers": [container], "affinity": affinity},
    }
    return msgspec.json.encode(body)


def _term(which: str, number: int) -> dict[str, Any]:
    """No two are alike, in three shapes."""
    shapes = (
        [{"key": "app", "operator": "In", "values": [f"{which}-{each}" for each in range(20)]}],
        [{"key": which, "operator": "Exists"}],
        [
            {"key": "app", "operator": "Exists"},
            {"key": "app", "operator": "NotIn", "values": ["web", "hostile", which]},
        ],
    )
    return {
        "topologyKey": "kubernetes.io/hostname",
        "namespaces": [NAMESPACE, HOSTILE],
        "labelSelector": {"matchExpressions": shapes[number % len(shapes)]},
    }
