"""Reads that doctor and explain send, and the trial of a submission that changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.slurm import admin_reads
from bridge.slurm.wire import API_VERSIONS
from scheduler.model.slurm_errors import UNKNOWN_NODE
from tests.contract.slurm_subjects import Slurm

# What is tried -> the number that Slurm refuses it with; 2018 stands for "all but the node was accepted".
TRIALS: dict[str, tuple[dict[str, Any], int]] = {
    "nothing": ({}, UNKNOWN_NODE),
    "partition": ({"partition": "main"}, UNKNOWN_NODE),
    "account": ({"account": "teama-dev"}, UNKNOWN_NODE),
    "qos": ({"qos": "high"}, UNKNOWN_NODE),
    "no-such-partition": ({"partition": "nope"}, 2000),
    "account-of-others": ({"account": "teamb"}, 2045),
    "no-such-qos": ({"qos": "nope"}, 2066),
}


@pytest.mark.parametrize("case", TRIALS)
async def test_what_a_user_may_do_is_tested_without_effect(slurm: Slurm, case: str) -> None:
    choices, number = TRIALS[case]
    before = await slurm.client.states()
    verdict = await admin_reads.probe(slurm.client, "alice", **choices)
    assert verdict.number == number
    assert verdict.may is (number == UNKNOWN_NODE)
    assert await slurm.client.states() == before


async def test_a_user_whom_slurmctld_does_not_know_is_reported(slurm: Slurm) -> None:
    verdict = await admin_reads.probe(slurm.client, "nosuchuser")
    assert (verdict.number, verdict.may) == (6010, False)


# What of a whole job is tried before the node that does not exist.
JOBS: dict[str, tuple[dict[str, Any], int]] = {
    "as-it-is": ({}, UNKNOWN_NODE),
    "feature": ({"constraints": "nope"}, 2029),
    "devices": ({"gres": (("foo", 1),)}, 2072),
    "too-many-cpus": ({"cpus_per_task": 99_999}, 2005),
    "a-reservation-is-not-tried": ({"reservation": "nope"}, UNKNOWN_NODE),
    "too-long": ({"partition": "short", "time_limit_min": 60}, 2051),
}


@pytest.mark.parametrize("case", JOBS)
async def test_a_whole_job_is_tested_without_effect(slurm: Slurm, case: str) -> None:
    options, number = JOBS[case]
    verdict = await admin_reads.trial(slurm.client, slurm.spec("tried", **options))
    assert verdict.number == number


async def test_slurm_shows_its_configuration(slurm: Slurm) -> None:
    conf = await admin_reads.configuration(slurm.client)
    assert conf is not None
    assert conf.scheduler_type == "sched/backfill"
    assert conf.select_type == "select/cons_tres"
    assert conf.max_job_count >= 10_000
    assert conf.min_job_age_s == 300
    assert conf.slurm_user == "slurm"
    assert "gpu" in conf.gres_types
    assert conf.max_node_count > 1000


async def test_an_older_version_shows_no_configuration(slurm: Slurm) -> None:
    older = slurm.other(versions=API_VERSIONS[1:])
    await older.discover()
    assert await admin_reads.configuration(older) is None


async def test_slurmctld_shows_its_clock(slurm: Slurm) -> None:
    assert await admin_reads.clock(slurm.client) > 1_700_000_000


async def test_nodes_are_read_with_how_they_were_created(slurm: Slurm) -> None:
    by_name = {each.node.name: each for each in await admin_reads.nodes(slurm.client)}
    place = by_name[slurm.place.name]
    assert place.node == slurm.place
    assert not place.static
    assert place.address not in ("", place.node.name)
    assert not place.lost
    assert any(each.static and not each.node.external for each in by_name.values())


async def test_partitions_are_read_with_how_they_preempt(slurm: Slurm) -> None:
    by_name = {each.name: each for each in await admin_reads.partitions(slurm.client)}
    assert by_name["low"].preempt_mode == ("REQUEUE",)
    assert by_name["main"].preempt_mode == ("CLUSTER_GLOBAL",)
    assert by_name["main"].node_sets == "ALL"


async def test_reservations_are_read(slurm: Slurm) -> None:
    assert await admin_reads.reservations(slurm.client) == frozenset()


async def test_an_ordinary_user_is_no_operator(slurm: Slurm) -> None:
    hiding = admin_reads.Configuration(private_data=("JOBS",), slurm_user="slurm")
    assert not await admin_reads.sees_all_jobs(slurm.client, hiding, "alice")
    assert await admin_reads.sees_all_jobs(slurm.client, hiding, "slurm")
    assert await admin_reads.sees_all_jobs(slurm.client, admin_reads.Configuration(), "alice")
