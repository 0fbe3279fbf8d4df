"""The bridge's writes on nodes: a condition beside kubelet's, a taint beside other taints, events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bridge.errors import Conflict, NotFound
from bridge.kube import codec
from scheduler import names
from scheduler.actions import SetNodeCondition
from scheduler.model.kubernetes import Condition, Node
from tests.contract.kube_subjects import MERGE, STRATEGIC, Kube, every_kube  # noqa: F401 -- fixtures

ANOTHER = "00000000-0000-4000-8000-00000000dead"
OTHERS = {"key": "example.com/maintenance", "value": "soon", "effect": "PreferNoSchedule"}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "contract"}


@asynccontextmanager
async def a_node(kube: Kube) -> AsyncIterator[Node]:
    """A node that is ready, with a taint of another client, while the test lasts."""
    name = kube.namespace[:50]
    meta = {"name": name, "annotations": {names.PARTITIONS: "gpu, main"}}
    status = {"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "198.51.100.7"}]}
    try:
        await kube.make("/api/v1/nodes", {"metadata": meta, "spec": {"taints": [OTHERS]}, "status": status})
        patch = {"status": {"conditions": [{**READY, "lastTransitionTime": "2026-11-21T05:00:00Z"}]}}
        await kube.raw("PATCH", f"/api/v1/nodes/{name}/status", patch, MERGE)
        yield await read(kube, name)
    finally:
        await kube.raw("DELETE", f"/api/v1/nodes/{name}")


async def read(kube: Kube, name: str) -> Node:
    return codec.NODES.one(codec.encode((await kube.raw("GET", f"/api/v1/nodes/{name}"))[1]))


async def taints(kube: Kube, name: str) -> list[dict[str, Any]]:
    _, node = await kube.raw("GET", f"/api/v1/nodes/{name}")
    return [taint for taint in node["spec"].get("taints", []) if not taint["key"].startswith("node.kubernetes.io/")]


async def transition(kube: Kube, name: str) -> str:
    _, node = await kube.raw("GET", f"/api/v1/nodes/{name}")
    [ours] = [each for each in node["status"]["conditions"] if each["type"] == names.IN_SLURM]
    return str(ours["lastTransitionTime"])


async def retried(write: Callable[[str, str], Awaitable[None]], node: Node) -> None:
    """Repeats a write that got a Conflict, as the bridge does: another client wrote between our read and our write.

    Kubernetes' own node controllers annotate and taint a node in its first seconds.
    """
    for _ in range(10):
        try:
            return await write(node.name, node.uid)
        except Conflict:
            continue
    raise AssertionError(f"ten writes on {node.name} got a Conflict")


def show(node: Node, status: bool = False, uid: str = "") -> SetNodeCondition:
    return SetNodeCondition(node.name, uid or node.uid, status, "SlurmNodeDrained", "Slurm node x1 is drained.")


async def test_a_node_shows_its_address_and_what_the_admin_wrote(kube: Kube) -> None:
    async with a_node(kube) as node:
        assert (node.address, node.partitions, node.in_slurm, node.ready) == ("198.51.100.7", "gpu, main", None, True)
        assert node.uid
        assert node.ready_since == 1795237200.0


async def test_a_condition_leaves_those_of_kubelet_in_place(kube: Kube) -> None:
    async with a_node(kube) as node:
        await kube.client.set_node_condition(show(node))
        assert (await read(kube, node.name)).in_slurm == Condition(
            False, "SlurmNodeDrained", "Slurm node x1 is drained."
        )
        turned = await transition(kube, node.name)
        again = SetNodeCondition(node.name, node.uid, False, "SlurmNodeDown", "Slurm node x1 is down.", turns=False)
        await kube.client.set_node_condition(again)
        assert await transition(kube, node.name) == turned, "only its reason changed"
        await kube.client.set_node_condition(show(node, True))
        shown = await read(kube, node.name)
        assert shown.in_slurm is not None
        assert shown.in_slurm.status
        assert shown.ready


async def test_nothing_is_written_on_a_namesake(kube: Kube) -> None:
    async with a_node(kube) as node:
        with pytest.raises(Conflict):
            await kube.client.set_node_condition(show(node, uid=ANOTHER))
        with pytest.raises(Conflict):
            await kube.client.taint_node(node.name, ANOTHER)
        with pytest.raises(Conflict):
            await kube.client.unmark_node(node.name, ANOTHER)
        assert await taints(kube, node.name) == [OTHERS]
        assert (await read(kube, node.name)).in_slurm is None


async def test_a_node_that_is_gone_is_not_found(kube: Kube) -> None:
    with pytest.raises(NotFound):
        await kube.client.taint_node("contract-nosuch", ANOTHER)
    with pytest.raises(NotFound):
        await kube.client.set_node_condition(
            SetNodeCondition("contract-nosuch", ANOTHER, False, "SlurmNodeDrained", "Drained.")
        )


async def test_the_taint_of_the_bridge_is_set_beside_others_and_removed_with_its_condition(kube: Kube) -> None:
    async with a_node(kube) as node:
        await retried(kube.client.taint_node, node)
        await retried(kube.client.taint_node, node)
        ours = {"key": names.MANAGED_TAINT, "value": "true", "effect": "NoSchedule"}
        assert await taints(kube, node.name) == [OTHERS, ours]
        await kube.client.set_node_condition(show(node))

        await retried(kube.client.unmark_node, node)

        assert await taints(kube, node.name) == [OTHERS]
        left = await read(kube, node.name)
        assert left.in_slurm is None
        assert left.ready


async def test_a_patch_of_taints_replaces_the_whole_list(kube: Kube) -> None:
    async with a_node(kube) as node:
        ours = {"key": names.MANAGED_TAINT, "value": "true", "effect": "NoSchedule"}
        await kube.raw("PATCH", f"/api/v1/nodes/{node.name}", {"spec": {"taints": [ours]}}, STRATEGIC)
        assert await taints(kube, node.name) == [ours], "so the whole list is written, if nobody else wrote meanwhile"


async def test_an_event_about_a_node_is_where_kubectl_describe_finds_it(kube: Kube) -> None:
    async with a_node(kube) as node:
        await kube.client.post_event("", node.name, node.uid, "SlurmNodeDrained", "Drained.", time.time())
        _, found = await kube.raw("GET", "/api/v1/namespaces/default/events")
        about = [each for each in found["items"] if each["involvedObject"].get("uid") == node.uid]
        [event] = [each for each in about if each["source"].get("component") == kube.client.component]
        assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Node", node.name)
        assert (event["reason"], event["message"], event["type"]) == ("SlurmNodeDrained", "Drained.", "Normal")
