"""Heterogeneous jobs: components of their own shape and id, under one name, that start together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.errors import Conflict, Invalid
from scheduler.model.slurm import Job, JobSpec
from tests.contract.slurm_subjects import Slurm


def launcher_and_workers(slurm: Slurm, name: str = "mpi", **of_workers: Any) -> JobSpec:
    """A launcher without devices, and three workers with two each."""
    workers = slurm.gang(name, 3, **{"cpus_per_task": 2, "gres": (("gpu", 2),), **of_workers})
    return replace(slurm.gang(name, 1), parts=(workers,))


async def read(slurm: Slurm, job_id: int) -> Job:
    job = await slurm.client.job(job_id)
    assert job is not None
    return job


def run(job: Job) -> bool:
    return all("RUNNING" in each.states for each in (job, *job.parts))


async def test_components_start_together_and_hold_nothing_before(slurm: Slurm) -> None:
    await slurm.client.allocate_now(slurm.gang("before", 3, tasks_per_node=1, gres=(("gpu", 1),)))
    leader = await slurm.client.submit(launcher_and_workers(slurm))
    larger = await slurm.client.submit(launcher_and_workers(slurm, "larger", gres=(("gpu", 8),)))
    job = await slurm.until(lambda: read(slurm, leader), run, within=700)
    [workers] = job.parts
    assert (job.het_id, job.het_offset, job.tasks) == (leader, 0, 1)
    assert (workers.het_id, workers.het_offset, workers.tasks) == (leader, 1, 3)
    assert (workers.name, workers.user, workers.starts) == (job.name, job.user, job.starts)
    assert len({"", job.sluid, workers.sluid}) == 3, "each component has its own sluid"

    [node] = (await slurm.client.grant(leader, "alice")).nodes
    assert (node.cpus, node.memory_mib, node.gres) == (1, 100, {})
    [node] = (await slurm.client.grant(workers.id, "alice")).nodes
    assert (node.cpus, node.memory_mib, node.gres["gpu"]) == (6, 300, 6)
    assert (await read(slurm, workers.id)).parts == (), "a component tells of itself alone"

    waits = await slurm.until(lambda: read(slurm, larger), lambda job: job.reason == "Resources", within=100)
    assert [(each.nodes, "PENDING" in each.states) for each in (waits, *waits.parts)] == [("", True), ("", True)]
    assert await slurm.end(larger)

    # one name: a repeated submission waits for all of them
    with pytest.raises(Conflict) as caught:
        await slurm.client.allocate_now(slurm.spec("mpi"))
    assert caught.value.number == 2038
    twin = await slurm.client.submit(launcher_and_workers(slurm))
    assert await slurm.end(workers.id)
    states = await slurm.client.states()
    assert "RUNNING" in states[leader]
    assert "CANCELLED" in states[workers.id]
    assert (await read(slurm, twin)).reason == "Dependency"

    await slurm.end(leader)
    assert "CANCELLED" in (await read(slurm, leader)).states
    assert await slurm.end(twin)
    ended = await read(slurm, twin)
    assert all("CANCELLED" in each.states for each in (ended, *ended.parts))


async def test_each_component_is_changed_by_its_own_id(slurm: Slurm) -> None:
    full = slurm.gang("full", 3, tasks_per_node=1, cpus_per_task=slurm.place.cpus)
    await slurm.client.allocate_now(full)
    spec = launcher_and_workers(slurm)
    leader = await slurm.client.submit(spec)
    [workers] = spec.parts
    changed = replace(workers, comment="three of us", time_limit_min=7, excluded_nodes=slurm.others)
    [part] = (await read(slurm, leader)).parts
    await slurm.client.update(part.id, "alice", changed, frozenset({"comment", "time_limit_min", "excluded_nodes"}))
    job = await read(slurm, leader)
    assert (job.comment, job.time_limit_min, job.excluded_nodes) == ("", 60, slurm.beside)
    [part] = job.parts
    assert (part.comment, part.time_limit_min, part.excluded_nodes) == ("three of us", 7, slurm.others)


async def test_only_their_user_may_end_the_components(slurm: Slurm) -> None:
    leader = await slurm.client.submit(launcher_and_workers(slurm))
    with pytest.raises(Invalid) as caught:
        await slurm.end(leader, user="bob")
    assert caught.value.number == 2002


REFUSALS = {
    "account": ({"account": "nope"}, 2045, "Invalid account"),
    "node-unknown": ({"excluded_nodes": "no-such-node"}, 2018, "Invalid node name"),
    "never-fits": ({"cpus_per_task": 65}, 2014, "configuration is not available"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_one_impossible_component_refuses_the_whole_job(slurm: Slurm, case: str) -> None:
    options, number, text = REFUSALS[case]
    with pytest.raises(Invalid, match=text) as caught:
        await slurm.client.submit(launcher_and_workers(slurm, **options))
    assert caught.value.number == number


async def starts(slurm: Slurm, spec: JobSpec) -> bool:
    """True if all components start; False: they wait after backfill has tried to start them.  The job is ended."""
    leader = await slurm.client.submit(spec)

    async def look() -> Job:
        return await read(slurm, leader)

    await slurm.until(look, lambda job: run(job) or job.reason == "Resources", within=700)
    for _ in range(60):
        await slurm.subject.a_moment()
    job = await look()
    assert await slurm.end(leader)
    return run(job)


async def test_a_component_takes_the_only_node_of_another_and_the_job_waits(slurm: Slurm) -> None:
    """Slurm gives nodes to the components in their order and does not look ahead, whichever node the leader prefers."""
    first, second, _ = slurm.places
    either = f"{slurm.beside},{slurm.place.name}"
    leader = slurm.gang("mpi", 1, excluded_nodes=either)
    found = []
    for only, other in ((first, second), (second, first)):
        whole = slurm.gang("mpi", 1, cpus_per_task=only.cpus, excluded_nodes=f"{either},{other.name}")
        found.append(await starts(slurm, replace(leader, parts=(whole,))))
        left = replace(leader, excluded_nodes=f"{either},{only.name}")
        assert await starts(slurm, replace(left, parts=(whole,))), "the leader leaves the node to the other component"
    assert sorted(found) == [False, True]
