"""Nodes made, drained, set down and removed by REST (Slurm facts 2 and 7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bridge.errors import Conflict, Exhausted, Invalid, Refused, Unanswered
from scheduler.actions import NodeChange
from scheduler.model.hostlist import fold
from scheduler.model.slurm import NodeSpec, SlurmNode
from tests.contract.slurm_subjects import Slurm

MARK = "slurm-bridge-k8f3a91c2"
REASON = "slurm-bridge: cordoned in Kubernetes"


def wanted(slurm: Slurm, **fields: object) -> NodeSpec:
    given: dict[str, object] = {
        "name": f"{slurm.subject.run}-node",
        "address": "198.51.100.7",
        "cpus": 8,
        "memory_mib": 16_000,
        "gres": (("gpu", 2),),
        "features": (MARK, "gpu"),
        **fields,
    }
    return NodeSpec(**given)


async def known(slurm: Slurm, name: str) -> SlurmNode | None:
    return next((node for node in await slurm.client.nodes() if node.name == name), None)


@asynccontextmanager
async def registered(slurm: Slurm, spec: NodeSpec) -> AsyncIterator[str]:
    """A registered node exists within this block, and is removed afterwards."""
    await slurm.client.register_node(spec)
    try:
        yield spec.name
    finally:
        await slurm.client.remove_node(spec.name)


async def test_a_registered_node_is_there_with_its_size_devices_and_features(slurm: Slurm) -> None:
    spec = wanted(slurm)
    async with registered(slurm, spec) as name:
        node = await known(slurm, name)
        assert node is not None
        assert (node.cpus, node.memory_mib, dict(node.gres)) == (8, 16_000, {"gpu": 2})
        assert set(node.features) == {MARK, "gpu"}
        assert node.external
        assert "IDLE" in node.states
        assert "main" in node.partitions
        assert node.reason == ""
        with pytest.raises(Conflict) as no:
            await slurm.client.register_node(spec)
        assert no.value.number == 2168
    assert await known(slurm, name) is None


async def test_devices_of_several_types_are_counted_separately(slurm: Slurm) -> None:
    async with registered(slurm, wanted(slurm, gres=(("gpu:1g.10gb", 7), ("gpu:3g.40gb", 2)))) as name:
        node = await known(slurm, name)
        assert node is not None
        assert dict(node.gres) == {"gpu": 9, "gpu:1g.10gb": 7, "gpu:3g.40gb": 2}


async def test_a_place_in_a_topology_that_slurm_does_not_have_is_refused(slurm: Slurm) -> None:
    with pytest.raises(Invalid) as no:
        await slurm.client.register_node(wanted(slurm, topology=(("tree", "s1"),)))
    assert no.value.number == 2178


async def test_a_drain_keeps_its_reason_until_it_is_over(slurm: Slurm) -> None:
    async with registered(slurm, wanted(slurm)) as name:
        for change, states in ((NodeChange.DRAIN, {"DRAIN", "IDLE"}), (NodeChange.DOWN, {"DOWN"})):
            await slurm.client.change_node(name, change, REASON)
            node = await known(slurm, name)
            assert node is not None
            assert states <= node.states
            assert node.reason == REASON
        await slurm.client.change_node(name, NodeChange.RESUME, "")
        node = await known(slurm, name)
        assert node is not None
        assert not node.states & {"DRAIN", "DOWN"}
        assert node.reason == ""


async def test_a_node_that_is_read_alone_is_as_in_the_list_and_an_unknown_node_is_none(slurm: Slurm) -> None:
    async with registered(slurm, wanted(slurm)) as name:
        assert await slurm.client.node(name) == await known(slurm, name)
    with pytest.raises(Unanswered):
        await slurm.client.node(name)


async def test_a_node_with_a_job_runs_it_on_while_drained_and_is_not_removed(slurm: Slurm) -> None:
    spec = wanted(slurm)
    others = fold(node.name for node in await slurm.client.nodes())
    async with registered(slurm, spec) as name:
        asked = slurm.spec("on-it", partition="main", gres=(("gpu", 1),), excluded_nodes=others)
        job = await slurm.client.allocate_now(asked)
        await slurm.client.change_node(name, NodeChange.DRAIN, REASON)
        node = await known(slurm, name)
        assert node is not None
        assert {"DRAIN", "MIXED"} <= node.states
        assert (node.held_cpus, node.held_memory_mib > 0, node.held_gres["gpu"]) == (1, True, 1)
        assert [(held.name, held.indices["gpu"]) for held in (await slurm.client.grant(job, "alice")).nodes] == [
            (name, "0")
        ]
        with pytest.raises(Exhausted) as no:
            await slurm.client.remove_node(name)
        assert no.value.number == 2016
        await slurm.end(job)
        node = await slurm.until(
            lambda: known(slurm, name), lambda node: node is not None and "IDLE" in node.states, within=20
        )
        assert node is not None
        assert "DRAIN" in node.states
        assert (node.held_cpus, node.held_memory_mib, node.held_gres["gpu"]) == (0, 0, 0)


async def test_a_node_of_slurm_conf_is_not_removed(slurm: Slurm) -> None:
    static = next(node for node in await slurm.client.nodes() if "DYNAMIC_NORM" not in node.states)
    with pytest.raises(Invalid) as no:
        await slurm.client.remove_node(static.name)
    assert no.value.number == 2028


async def test_a_node_that_slurm_does_not_know_is_refused(slurm: Slurm) -> None:
    with pytest.raises(Invalid):
        await slurm.client.change_node(f"{slurm.subject.run}-nosuch", NodeChange.DRAIN, REASON)
    with pytest.raises(Refused):
        await slurm.client.remove_node(f"{slurm.subject.run}-nosuch")


async def test_a_gres_that_slurm_conf_does_not_know_is_dropped_silently(slurm: Slurm) -> None:
    async with registered(slurm, wanted(slurm, gres=(("nosuchgres", 1), ("gpu", 2)))) as name:
        node = await known(slurm, name)
        assert node is not None
        assert dict(node.gres) == {"gpu": 2}


async def test_a_reconfigure_leaves_dynamic_nodes_and_their_drains(slurm: Slurm) -> None:
    async with registered(slurm, wanted(slurm)) as name:
        await slurm.client.change_node(name, NodeChange.DRAIN, REASON)
        await slurm.client.reconfigure()
        node = await known(slurm, name)
        assert node is not None
        assert "DRAIN" in node.states
        assert (node.reason, dict(node.gres)) == (REASON, {"gpu": 2})
