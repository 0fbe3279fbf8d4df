"""Accounting: finding a job by its name, and telling how its pods ended."""

from __future__ import annotations

import pytest

from bridge.errors import NotFound
from tests.contract.slurm_subjects import Slurm

NEW_YEAR = 4070908800


async def test_a_living_job_is_found_by_its_exact_name(slurm: Slurm) -> None:
    job_id = await slurm.client.allocate_now(slurm.spec("found"))
    await slurm.client.allocate_now(slurm.spec("found-not"))
    name = slurm.spec("found").name
    assert await slurm.until(lambda: slurm.client.find(name), bool, within=100) == (job_id,)


async def test_a_job_that_waits_for_another_job_or_a_time_is_found_only_when_it_may_start(slurm: Slurm) -> None:
    before = await slurm.client.allocate_now(slurm.spec("before"))
    behind = slurm.spec("behind", dependency=f"afterany:{before}")
    job_id = await slurm.client.submit(behind)
    later, last = slurm.spec("later", begin=NEW_YEAR), slurm.spec("last")
    await slurm.client.submit(later)
    runs = await slurm.client.allocate_now(last)
    # slurmctld sends new jobs to slurmdbd in rounds: when slurmdbd lists the last job, it has got the earlier jobs, too.
    assert await slurm.until(lambda: slurm.client.find(last.name), bool, within=100) == (runs,)
    assert await slurm.client.find(behind.name) == ()
    assert await slurm.client.find(later.name) == ()
    await slurm.end(before)
    await slurm.client.nudge(job_id, "alice")
    assert await slurm.until(lambda: slurm.client.find(behind.name), bool, within=100) == (job_id,)


async def test_an_ended_job_and_an_unknown_name_are_not_found(slurm: Slurm) -> None:
    job_id = await slurm.client.allocate_now(slurm.spec("ended"))
    await slurm.end(job_id)
    assert await slurm.until(lambda: slurm.client.find(slurm.spec("ended").name), lambda ids: not ids, within=100) == ()
    assert await slurm.client.find("no such name") == ()


async def test_the_end_of_a_job_is_recorded(slurm: Slurm) -> None:
    job_id = await slurm.client.allocate_now(slurm.spec("recorded"))
    await slurm.end(job_id)

    async def recorded() -> bool:
        """False while slurmctld has not sent the job to slurmdbd yet: until then slurmdbd knows no such record."""
        try:
            return await slurm.client.record_end(job_id, "alice", 3, "ns/a: Error")
        except NotFound:
            return False

    assert await slurm.until(recorded, bool, within=100) is True


async def test_the_end_of_a_job_that_accounting_does_not_know_cannot_be_recorded(slurm: Slurm) -> None:
    with pytest.raises(NotFound):
        await slurm.client.record_end(99_999_999, "alice", 3, "ns/a: Error")
