"""slurmdbd is down and slurmctld is not: what needs slurmdbd says so, and everything else goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bridge.errors import AccountingUnavailable
from tests.contract.slurm_subjects import Slurm

pytestmark = pytest.mark.outage


@pytest.fixture
async def without_accounting(slurm: Slurm) -> AsyncIterator[Slurm]:
    await slurm.subject.accounting("stop")
    yield slurm
    await slurm.subject.accounting("start")


async def test_without_accounting_partitions_are_unknown(without_accounting: Slurm) -> None:
    with pytest.raises(AccountingUnavailable):
        await without_accounting.client.partitions()


async def test_without_accounting_no_job_is_found_by_its_name(without_accounting: Slurm) -> None:
    with pytest.raises(AccountingUnavailable):
        await without_accounting.client.find("any")


async def test_without_accounting_no_end_is_recorded(without_accounting: Slurm) -> None:
    with pytest.raises(AccountingUnavailable):
        await without_accounting.client.record_end(1, "alice", 0, "ns/a: Completed")


async def test_without_accounting_a_job_is_submitted_read_listed_changed_and_ended(without_accounting: Slurm) -> None:
    slurm, spec = without_accounting, without_accounting.spec("without-accounting")
    job_id = await slurm.client.allocate_now(spec)
    assert (await slurm.client.grant(job_id, "alice")).nodes[0].name == slurm.place.name
    assert job_id in await slurm.client.states()
    await slurm.client.nudge(job_id, "alice")
    assert await slurm.client.cancel(job_id, spec.name, "alice") is True


async def test_without_accounting_nodes_are_read_with_their_partitions(without_accounting: Slurm) -> None:
    [place] = [node for node in await without_accounting.client.nodes() if node.name == without_accounting.place.name]
    assert "gpu" in place.partitions


async def test_that_slurm_has_accounting_is_known_while_slurmdbd_is_away(without_accounting: Slurm) -> None:
    found = await without_accounting.client.discover()
    assert (found.accounting, found.responding) == (True, True)
