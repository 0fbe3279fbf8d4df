"""A user's own token: what it allows and what it does not (docs/security.md, "Tokens").  carol's token reads for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import Invalid, Unauthorized
from bridge.slurm import admin_reads
from bridge.slurm.client import SlurmClient
from scheduler.actions import NodeChange
from tests.contract.slurm_subjects import Slurm


@pytest.fixture
async def client(slurm: Slurm, tmp_path: Path) -> SlurmClient:
    client = slurm.with_own_tokens(tmp_path)
    await client.discover()
    return client


async def test_a_user_makes_changes_reads_and_ends_jobs_of_its_own(slurm: Slurm, client: SlurmClient) -> None:
    spec = slurm.spec("own", time_limit_min=10)
    job_id = await client.allocate_now(spec)
    job = await client.job(job_id)
    assert job is not None
    assert job.user == "alice"
    assert [node.name for node in (await client.grant(job_id, "alice")).nodes] == [slurm.place.name]
    await client.nudge(job_id, "alice")
    await client.update(job_id, "alice", slurm.spec("own", comment="changed"), frozenset({"comment"}))
    assert await client.cancel(job_id, spec.name, "alice")
    assert await client.record_end(job_id, "alice", 3, "ns/own: Error")


async def test_the_job_of_another_user_is_not_changed_ended_recorded_or_read_in_detail(
    slurm: Slurm, client: SlurmClient
) -> None:
    spec = slurm.spec("theirs")
    job_id = await client.allocate_now(spec)
    with pytest.raises(Invalid) as held:
        await client.grant(job_id, "bob")
    with pytest.raises(Invalid) as changed:
        await client.nudge(job_id, "bob")
    with pytest.raises(Invalid) as ended:
        await client.cancel(job_id, spec.name, "bob")
    assert (held.value.number, changed.value.number, ended.value.number) == (2010, 2010, 2002)
    assert await client.cancel(job_id, spec.name, "alice")
    with pytest.raises(Invalid) as recorded:
        await client.record_end(job_id, "bob", 3, "ns/theirs: Error")
    assert recorded.value.number == 2002


async def test_an_ordinary_token_reads_what_the_bridge_reads(slurm: Slurm, client: SlurmClient) -> None:
    job_id = await client.allocate_now(slurm.spec("read"))
    assert "RUNNING" in (await client.states())[job_id]
    assert slurm.place.name in {node.name for node in await client.nodes()}
    assert "gpu" in {partition.name for partition in await client.partitions()}
    assert await client.find("no such name") == ()
    assert (await admin_reads.configuration(client)) is not None


async def test_an_ordinary_token_names_no_other_user(slurm: Slurm, tmp_path: Path) -> None:
    client = slurm.other(tokens=slurm.token_of("carol", tmp_path))
    await client.discover()
    with pytest.raises(Unauthorized) as caught:
        await client.submit(slurm.spec("named"))
    assert caught.value.number == 1007


async def test_an_ordinary_token_changes_no_node(slurm: Slurm, client: SlurmClient) -> None:
    with pytest.raises(Invalid) as changed:
        await client.change_node(slurm.place.name, NodeChange.DRAIN, "slurm-bridge: tried")
    with pytest.raises(Invalid) as removed:
        await client.remove_node(slurm.place.name)
    with pytest.raises(Invalid) as reconfigured:
        await client.reconfigure()
    assert {each.value.number for each in (changed, removed, reconfigured)} == {2010}
