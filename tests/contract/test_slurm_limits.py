"""Limits of associations and QOS, fair shares and billing weights: who may read them, and as what (Slurm facts 10)."""

from __future__ import annotations

from pathlib import Path

from bridge.slurm.client import SlurmClient
from bridge.slurm.costs import Terms, costs_of_job, terms_of
from bridge.slurm.limits import known_limits
from scheduler.model.limits import Limit, LimitsOf
from tests.contract.slurm_subjects import Slurm

NEW_YEAR = 4_102_444_800  # 2100-01-01: a job that does not begin before waits
BOB = LimitsOf("bob", "teamb", "normal")
BOBS_LIMITS = {
    Limit("GrpTRES", "gres/gpu", 4, account="teamb", user="bob"),
    Limit("MaxSubmitJobs", "", 50, account="teamb", user="bob"),
}


async def test_the_limits_of_an_association_are_read(slurm: Slurm) -> None:
    found = await known_limits(slurm.client, BOB, 1.0)
    assert set(found.limits) == BOBS_LIMITS
    assert (found.at, found.unseen) == (1.0, "")


async def test_an_association_without_limits_has_none(slurm: Slurm) -> None:
    found = await known_limits(slurm.client, LimitsOf("alice", "teama", "high"), 1.0)
    assert (found.limits, found.unseen) == ((), "")


async def test_an_association_that_does_not_exist_is_reported(slurm: Slurm) -> None:
    found = await known_limits(slurm.client, LimitsOf("alice", "teamb", "no-such-qos"), 1.0)
    assert found.limits == ()
    assert found.unseen.startswith("slurmdbd does not show the association of user alice in account teamb")


async def test_an_ordinary_user_may_read_limits_unless_they_are_private(slurm: Slurm, tmp_path: Path) -> None:
    other: SlurmClient = slurm.other(tokens=slurm.token_of("alice", tmp_path))
    await other.discover()
    assert set((await known_limits(other, BOB, 1.0)).limits) == BOBS_LIMITS


async def test_the_limits_and_the_fair_share_of_a_users_jobs_are_read(slurm: Slurm) -> None:
    await slurm.client.allocate_now(slurm.spec("uses", user="bob", tasks=1, gres=(("gpu", 3),)))

    async def used() -> Terms:
        return await terms_of(slurm.client, "bob", "", "gpu", "normal")

    terms = await slurm.until(used, lambda terms: dict(_used(terms)).get("GrpTRES=gres/gpu=4") == 3, within=100)
    assert terms.weights == ""
    assert terms.absent == ()
    assert terms.share is not None
    assert (terms.share.user, terms.share.account) == ("bob", "teamb")
    assert 0 <= terms.share.factor <= 1
    assert _used(terms) == [("MaxSubmitJobs=50", None), ("GrpTRES=gres/gpu=4", 3)]


def _used(terms: Terms) -> list[tuple[str, int | None]]:
    return [(each.limit.partition(" of ")[0], each.used) for each in terms.limits]


async def test_a_waiting_job_has_its_billing_units(slurm: Slurm) -> None:
    spec = slurm.spec("costs", user="bob", tasks=1, gres=(("gpu", 3),), begin=NEW_YEAR)
    job_id = await slurm.client.submit(spec)
    costs = await costs_of_job(slurm.client, job_id)
    assert costs.billing == spec.cpus_per_task
    assert costs.terms.share is not None
    assert (costs.terms.share.user, costs.terms.share.account) == ("bob", "teamb")


async def test_a_partition_that_does_not_exist_is_reported(slurm: Slurm) -> None:
    terms = await terms_of(slurm.client, "alice", "teama", "no-such-partition", "")
    assert terms.weights is None
    assert terms.absent == ("Slurm has no partition no-such-partition.",)
