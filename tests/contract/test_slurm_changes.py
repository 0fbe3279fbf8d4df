"""What Slurm does that generated sequences found to differ once (Slurm facts 11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.errors import Invalid
from scheduler.actions import NodeChange
from scheduler.model.slurm import Job, JobSpec
from tests.contract.slurm_subjects import Slurm


async def read(slurm: Slurm, job_id: int) -> Job:
    job = await slurm.client.job(job_id)
    assert job is not None
    return job


def of_two(slurm: Slurm, name: str) -> JobSpec:
    """A heterogeneous job of two small components, on the three nodes of the tests."""
    part = slurm.gang(name, 1)
    return replace(part, parts=(part,))


async def test_components_of_a_heterogeneous_job_share_no_node(slurm: Slurm) -> None:
    leader = await slurm.client.submit(of_two(slurm, "apart"))
    job = await slurm.until(lambda: read(slurm, leader), lambda job: "RUNNING" in job.states, within=700)
    [part] = job.parts
    assert job.nodes != part.nodes


async def test_a_heterogeneous_job_whose_nodes_are_drained_is_accepted(slurm: Slurm) -> None:
    for node in slurm.places:
        await slurm.client.change_node(node.name, NodeChange.DRAIN, "contract suite")
    try:
        assert await slurm.client.submit(of_two(slurm, "drained"))
    finally:
        for node in slurm.places:
            await slurm.client.change_node(node.name, NodeChange.RESUME, "")


async def test_a_refused_update_may_have_changed_the_comment(slurm: Slurm) -> None:
    spec = slurm.spec("refused")
    job_id = await slurm.client.allocate_now(spec)
    wanted = replace(spec, comment="new", memory_mib=200)
    with pytest.raises(Invalid) as no:
        await slurm.client.update(job_id, "alice", wanted, frozenset({"comment", "memory_mib"}))
    assert no.value.number == 2036
    assert (await read(slurm, job_id)).comment == "new"


async def test_a_running_job_can_be_held_and_runs_on(slurm: Slurm) -> None:
    job_id = await slurm.client.allocate_now(slurm.spec("held"))
    await slurm.admin("POST", f"job/{job_id}", {"hold": True})
    job = await read(slurm, job_id)
    assert ("RUNNING" in job.states, job.priority, job.reason) == (True, 0, "JobHeldAdmin")


async def test_a_cancelled_job_keeps_why_it_waited(slurm: Slurm) -> None:
    await slurm.client.allocate_now(slurm.spec("twin"))
    second = await slurm.client.submit(slurm.spec("twin"))
    assert await slurm.end(second)
    job = await read(slurm, second)
    assert ("CANCELLED" in job.states, job.reason) == (True, "Dependency")
    assert job.dependency == "singleton(unfulfilled)"


async def test_a_node_that_serves_cannot_be_resumed(slurm: Slurm) -> None:
    with pytest.raises(Invalid) as no:
        await slurm.client.change_node(slurm.place.name, NodeChange.RESUME, "")
    assert no.value.number == 2180
