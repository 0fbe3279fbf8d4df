"""slurmctld is down and slurmrestd is not: every call says so in its own way, and none says that it happened."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bridge.errors import Unanswered, Unreachable
from tests.contract.slurm_subjects import Slurm

pytestmark = pytest.mark.outage


@pytest.fixture
async def without_controller(slurm: Slurm) -> AsyncIterator[Slurm]:
    await slurm.subject.controller("stop")
    yield slurm
    await slurm.subject.controller("start")


async def test_without_a_controller_a_ping_is_answered_and_says_that_it_does_not_respond(
    without_controller: Slurm,
) -> None:
    assert not (await without_controller.client.discover()).responding


async def test_without_a_controller_an_allocation_has_no_effect(without_controller: Slurm) -> None:
    with pytest.raises(Unreachable) as caught:
        await without_controller.client.allocate_now(without_controller.spec("down"))
    assert caught.value.number == 1800


async def test_without_a_controller_a_submission_has_no_effect(without_controller: Slurm) -> None:
    with pytest.raises(Unreachable) as caught:
        await without_controller.client.submit(without_controller.spec("down"))
    assert caught.value.number == 1800


async def test_without_a_controller_the_states_are_unknown_and_not_none(without_controller: Slurm) -> None:
    with pytest.raises(Unanswered):
        await without_controller.client.states()


async def test_without_a_controller_a_cancel_proves_nothing(without_controller: Slurm) -> None:
    with pytest.raises(Unanswered):
        await without_controller.client.cancel(1, "any", "alice")


async def test_without_a_controller_an_update_proves_nothing(without_controller: Slurm) -> None:
    with pytest.raises(Unanswered):
        await without_controller.client.nudge(1, "alice")


async def test_without_a_controller_the_nodes_are_unknown_and_not_none(without_controller: Slurm) -> None:
    with pytest.raises(Unreachable):
        await without_controller.client.nodes()


async def test_a_job_keeps_its_sluid_over_a_restart(slurm: Slurm) -> None:
    job_id = await slurm.client.allocate_now(slurm.spec("kept"))
    before = await slurm.client.job(job_id)
    await slurm.subject.controller("stop")
    await slurm.subject.controller("start")
    after = await slurm.client.job(job_id)
    assert before is not None
    assert after is not None
    assert after.sluid == before.sluid != ""
