"""What a job costs: billing units by the weights of its partition, and what is used of a limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.simulation.slurm.jobs import SimPartition
from bridge.slurm.client import SlurmClient
from bridge.slurm.costs import MOST_RUNNING, NO_ACCOUNTING, RunningJob, Terms, billing_of, terms_of, used_of, weights_in
from bridge.slurm.limits import known_limits
from bridge.slurm.token import LiteralToken
from scheduler.model.limits import Limit, LimitsOf
from scheduler.model.slurm import JobSpec
from tests.in_process_slurm import InProcessSlurm

WEIGHTS = "CPU=1.0,Mem=0.25G,GRES/gpu=10.0"
JOB = JobSpec("name", "bob", 2, 2048, gres=(("gpu", 3),))
OF = LimitsOf("bob", "teamb", "normal")


@pytest.mark.parametrize(
    ("weights", "flags", "billing"),
    [
        (WEIGHTS, (), 2 + 0.5 + 30),  # measured: billable_tres 32.5
        (WEIGHTS, ("FAIR_TREE", "MAX_TRES"), 30),
        (WEIGHTS, ("MAX_TRES_GRES",), 2 + 30),
        ("", (), 2),
        ("cpu=0.5,Node=3,license/matlab=7", (), 1 + 3),
        ("Mem=1", (), 2048),
        ("Mem=1T", (), 2048 / 1024**2),
        ("CPU=lots", (), None),
        (None, (), None),
    ],
)
def test_billing_units_follow_the_weights(weights: str | None, flags: tuple[str, ...], billing: float | None) -> None:
    assert billing_of(JOB, Terms("gpu", weights, flags)) == billing


@pytest.mark.parametrize("cpus", [10**400, 10**300])
def test_billing_units_of_a_job_beyond_all_numbers_are_not_known(cpus: int) -> None:
    assert billing_of(replace(JOB, cpus_per_task=cpus), Terms("gpu", "CPU=99999999999999999999")) is None


def test_a_gang_costs_what_all_of_its_tasks_and_components_cost() -> None:
    leader = JobSpec(
        "name", "bob", 1, 1024, tasks=2, parts=(JobSpec("name", "bob", 4, 1024, gres=(("gpu:h100", 1),), tasks=3),)
    )
    assert billing_of(leader, Terms("gpu", WEIGHTS)) == (2 + 12) + 0.25 * 5 + 30


def test_weights_that_cannot_be_read_are_not_guessed() -> None:
    assert weights_in("CPU=1,GRES/gpu=2.5") == {"cpu": 1.0, "gres/gpu": 2.5}
    for text in ("CPU", "CPU=", "CPU=-1", "CPU=1.2.3", "=3"):
        assert weights_in(text) is None


def running(user: str = "bob", account: str = "teamb", qos: str = "normal", gpus: int = 3) -> RunningJob:
    allocated = [{"type": "cpu", "name": "", "count": 2}, {"type": "gres", "name": "gpu", "count": gpus}]
    return msgspec.convert({"user": user, "account": account, "qos": qos, "tres": {"allocated": allocated}}, RunningJob)


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        (Limit("GrpTRES", "gres/gpu", 4, account="teamb", user="bob"), 3),
        (Limit("GrpTRES", "cpu", 4, account="teamb", user="bob"), 2),
        (Limit("MaxJobs", "", 4, account="teamb", user="bob"), 1),
        (Limit("GrpTRES", "gres/gpu", 4, account="teamb"), None),  # accounts below it count, too
        (Limit("GrpTRESMins", "cpu", 4, account="teamb", user="bob"), None),
        (Limit("MaxSubmitJobs", "", 4, account="teamb", user="bob"), None),
        (Limit("GrpTRES", "gres/gpu", 9, qos="normal"), 7),
        (Limit("MaxTRESPerUser", "gres/gpu", 9, qos="normal"), 3),
        (Limit("MaxJobsPerAccount", "", 9, qos="normal"), 2),
    ],
)
def test_the_use_of_a_limit_counts_only_jobs_to_which_the_limit_applies(limit: Limit, used: int | None) -> None:
    jobs = [running(), running("carol", gpus=4), running("alice", "teama", "low", gpus=8)]
    assert used_of(limit, OF, jobs) == used
    assert used_of(limit, OF, None) is None


class Asked:
    """A simulated Slurm, in which bob's jobs run on these terms."""

    def __init__(self, *, accounting: bool = True) -> None:
        example = SlurmCluster.example()
        partitions = [SimPartition("main", default=True), SimPartition("gpu", billing_weights=WEIGHTS)]
        self.cluster = SlurmCluster(example.nodes.values(), partitions, example.users.values(), accounting=accounting)

    async def terms(self, user: str = "bob", account: str = "", token: str = "slurm") -> Terms:
        tokens = LiteralToken(self.cluster.token(token))
        client = SlurmClient(InProcessSlurm(self.cluster, lambda: 1000.0), tokens)
        await client.discover()
        return await terms_of(client, user, account, "gpu", "normal")


async def test_weights_fair_share_and_limits_are_read() -> None:
    terms = await Asked().terms()
    assert terms.weights == WEIGHTS
    assert terms.share is not None
    assert (terms.share.user, terms.share.account, terms.share.factor) == ("bob", "teamb", 1.0)
    assert [(each.limit, each.used) for each in terms.limits] == [
        ("MaxSubmitJobs=50 of user bob in account teamb", None),
        ("GrpTRES=gres/gpu=4 of user bob in account teamb", 0),
    ]
    assert terms.absent == ()


async def test_private_values_are_reported_as_absent() -> None:
    asked = Asked()
    asked.cluster.private_accounts = True
    mine, others = await asked.terms(token="bob"), await asked.terms("alice", "teama", token="bob")
    assert mine.absent == ()
    assert others.share is None
    assert others.limits == ()
    assert [each.split(":")[0] for each in others.absent] == [
        "Slurm shows no fair share of user alice in account teama",
        "slurmdbd does not show the association of user alice in account teama to this token",
    ]


async def test_a_slurm_without_accounting_says_so_in_one_sentence() -> None:
    terms = await Asked(accounting=False).terms()
    assert (terms.weights, terms.absent) == (WEIGHTS, (NO_ACCOUNTING,))


async def test_a_slurmdbd_that_is_away_is_reported_and_hides_only_what_it_has() -> None:
    asked = Asked()
    asked.cluster.accounting_up = False
    terms = await asked.terms(account="teamb")
    assert terms.share is not None
    assert len(terms.absent) == 2, "the partition, and the limits"
    assert all("slurmdbd" in each for each in terms.absent)


async def test_the_records_of_thousands_of_jobs_are_not_read() -> None:
    asked = Asked()
    for number in range(MOST_RUNNING + 1):
        job_id = 10_000 + number
        asked.cluster.jobs[job_id] = type("Running", (), {"id": job_id, "het_id": 0, "state": "RUNNING", "flags": ()})()
    terms = await asked.terms(account="teamb")
    assert [each.used for each in terms.limits] == [None, None]
    assert f"more than {MOST_RUNNING} jobs run" in terms.absent[-1]


@pytest.mark.parametrize(
    "amounts", [5, {"count": 5}, "cpu=5", [7, None, {"type": "cpu", "count": "5"}, {"type": "cpu", "count": 10**400}]]
)
async def test_limits_of_another_form_than_slurms_are_no_limits_and_no_error_of_the_bridge(amounts: Any) -> None:
    """An error of the bridge's own would be reported with each read of the limits, and end `explain`."""
    association = {"account": "teamb", "user": "bob", "lineage": "/teamb/0-bob/", "max": {"tres": {"total": amounts}}}
    answers = {"associations/": {"associations": [association]}, "qos/normal": {"qos": []}}

    class Lies:
        async def ask(self, _what: str, _method: str, path: str, decoder: Any, **_: Any) -> Any:
            return decoder.decode(msgspec.json.encode(answers[path.partition("?")[0]]))

    slurm: Any = Lies()
    assert (await known_limits(slurm, OF, 1.0)).limits == ()
