"""Each option of K2 on its way to Slurm and back: submitted, read back, changed in place, taken back (rules T, K2)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest

from bridge.errors import Invalid
from bridge.slurm.wire import API_VERSIONS, ApiVersion, Envelope
from scheduler.model.slurm import UNLIMITED, JobSpec
from scheduler.translate.job_update import unchangeable
from scheduler.translate.values import LONGEST_WAIT_S
from tests.contract.slurm_subjects import Slurm

NEW_YEAR = 4_102_444_800  # 2100-01-01: whatever may not begin before stays in the queue


class _Jobs(Envelope, kw_only=True):
    jobs: tuple[dict[str, Any], ...]


_ANY = msgspec.json.Decoder(_Jobs)
_ENVELOPE = msgspec.json.Decoder(Envelope)
_RESERVATION = {
    "name": "contract", "start_time": {"set": True, "number": NEW_YEAR}, "duration": {"set": True, "number": 60},
    "users": ["alice"], "node_count": {"set": True, "number": 1},
}  # fmt: skip


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


# Field of a JobSpec, a value, and what GET job/{id} shows: of a job with the value, of a job without it.
OPTIONS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "cpus_per_task": (3, {"cpus_per_task": number(3)}, {"cpus_per_task": number(1)}),
    "memory_mib": (321, {"memory_per_node": number(321)}, {"memory_per_node": number(100)}),
    "gres": ((("gpu:h100", 2),), {"tres_per_node": "gres/gpu:h100:2"}, {"tres_per_node": ""}),
    "account": ("teama-dev", {"account": "teama-dev"}, {"account": "teama"}),
    "partition": ("main", {"partition": "main"}, {"partition": "gpu"}),
    "qos": ("low", {"qos": "low"}, {"qos": "normal"}),
    "reservation": ("contract", {"resv_name": "contract"}, {"resv_name": ""}),
    "constraints": ("h100", {"features": "h100"}, {"features": ""}),
    "wckey": ("grant-7", {"wckey": "grant-7"}, {"wckey": ""}),
    "comment": ("run №7", {"comment": "run №7"}, {"comment": ""}),
    "time_limit_min": (9, {"time_limit": number(9)}, {"time_limit": number(60)}),
    "nice": (50, {"nice": 50}, {"nice": 0}),
    "licenses": ((("matlab", 2),), {"licenses": "matlab:2"}, {"licenses": ""}),
    "begin": (NEW_YEAR + 60, {"eligible_time": number(NEW_YEAR + 60)}, {"eligible_time": number(NEW_YEAR)}),
    "switches": (
        (2, 60),
        {"required_switches": 2, "maximum_switch_wait_time": 60},
        {"required_switches": 0, "maximum_switch_wait_time": 0},
    ),
}


async def raw_job(slurm: Slurm, job_id: int, version: ApiVersion = API_VERSIONS[0]) -> dict[str, Any]:
    """All fields that Slurm shows of that job."""
    client = slurm.other(versions=(version,))
    await client.discover()
    return (await client.ask("job", "GET", f"job/{job_id}", _ANY)).jobs[0]


def shows(read: dict[str, Any], expected: dict[str, Any]) -> bool:
    return {key: read[key] for key in expected} == expected


async def waits_till_new_year(slurm: Slurm, name: str = "waits", **options: Any) -> int:
    return await slurm.client.submit(slurm.spec(name, **{"begin": NEW_YEAR, **options}))


@asynccontextmanager
async def reservation(slurm: Slurm) -> AsyncIterator[None]:
    await slurm.admin("POST", "reservation/", _RESERVATION)
    try:
        yield
    finally:
        await slurm.admin("DELETE", "reservation/contract", {})


def test_every_field_of_a_single_pods_job_is_in_the_table() -> None:
    gangs = {"tasks", "tasks_per_node", "min_nodes", "max_nodes", "parts"}
    # in the tests below, and time_least_min in those of test_slurm_waits.py
    apart = {"name", "user", "excluded_nodes", "required_nodes", "dependency", "exclusive", "time_least_min"}
    assert set(OPTIONS) | apart | gangs == {field.name for field in fields(JobSpec)}


@pytest.mark.parametrize("name", [version.name for version in API_VERSIONS])
async def test_what_was_submitted_is_read_back(slurm: Slurm, name: str) -> None:
    version = next(version for version in API_VERSIONS if version.name == name)
    async with reservation(slurm):
        client = slurm.other(versions=(version,))
        await client.discover()
        before = await waits_till_new_year(slurm, "before")
        options = {field: value for field, (value, _, _) in OPTIONS.items()}
        spec = slurm.spec("all", **options, exclusive="exclusive", dependency=f"singleton,afterany:{before}")
        job_id = await client.submit(spec)
        read = await raw_job(slurm, job_id, version)
        for _, expected, _ in (option for field, option in OPTIONS.items() if field != "begin"):
            assert shows(read, expected), expected
        assert shows(read, {"name": spec.name, "user_name": "alice", "excluded_nodes": slurm.others})
        assert read["dependency"] == f"afterany:{before}(unfulfilled)"
        # the newest version accepts how a job shares its nodes, and does not show it
        assert (await raw_job(slurm, job_id, API_VERSIONS[-1]))["shared"] == ["none"]
        assert await slurm.end(job_id)


@pytest.mark.parametrize("field", OPTIONS)
async def test_each_option_is_changed_in_place_and_changed_back(slurm: Slurm, field: str) -> None:
    async with reservation(slurm):
        value, with_it, without = OPTIONS[field]
        job_id = await waits_till_new_year(slurm)
        assert shows(await raw_job(slurm, job_id), without)
        plain = slurm.spec("waits", begin=NEW_YEAR, account="teama", time_limit_min=60)
        changed = replace(plain, **{field: value})
        assert not unchangeable(changed, frozenset({field}))
        await slurm.client.update(job_id, "alice", changed, frozenset({field}))
        assert shows(await raw_job(slurm, job_id), with_it)
        await slurm.client.update(job_id, "alice", plain, frozenset({field}))
        assert shows(await raw_job(slurm, job_id), without)
        assert await slurm.end(job_id)


async def test_a_dependency_is_changed_in_place_and_removed(slurm: Slurm) -> None:
    before, job_id = await waits_till_new_year(slurm, "before"), await waits_till_new_year(slurm)
    changed = slurm.spec("waits", dependency=f"singleton,afterany:{before}")
    await slurm.client.update(job_id, "alice", changed, frozenset({"dependency"}))
    assert (await raw_job(slurm, job_id))["dependency"] == f"afterany:{before}(unfulfilled)"
    await slurm.client.update(job_id, "alice", slurm.spec("waits"), frozenset({"dependency"}))
    assert (await raw_job(slurm, job_id))["dependency"] == ""


REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "exclusive": ({"shared": ["none"]}, 2002),
    "account": ({"account": ""}, 2045),
}


@pytest.mark.parametrize("field", REFUSED)
async def test_a_change_that_the_bridge_holds_for_impossible_is_refused(slurm: Slurm, field: str) -> None:
    sent, number = REFUSED[field]
    job_id = await waits_till_new_year(slurm, account="teama-dev")
    assert unchangeable(slurm.spec("waits"), frozenset({field})) == {field}
    with pytest.raises(Invalid) as caught:
        await slurm.client.ask("update", "POST", f"job/{job_id}", _ENVELOPE, json.dumps(sent).encode(), user="alice")
    assert caught.value.number == number


async def test_an_unlimited_time_limit_of_a_waiting_job_is_silently_ignored(slurm: Slurm) -> None:
    job_id = await waits_till_new_year(slurm, time_limit_min=9)
    assert unchangeable(slurm.spec("waits"), frozenset({"time_limit_min"})) == {"time_limit_min"}
    body = json.dumps({"time_limit": {"set": False}}).encode()
    await slurm.client.ask("update", "POST", f"job/{job_id}", _ENVELOPE, body, user="alice")
    assert (await raw_job(slurm, job_id))["time_limit"] == number(9)


async def test_switches_without_a_time_wait_as_long_as_slurms_admin_allows(slurm: Slurm) -> None:
    job_id = await waits_till_new_year(slurm, switches=(1, LONGEST_WAIT_S))
    assert (await raw_job(slurm, job_id))["maximum_switch_wait_time"] == 300


async def test_an_unlimited_time_limit_is_read_back(slurm: Slurm) -> None:
    """T7: a service in a partition without a limit, and one whose partition has one."""
    endless = await waits_till_new_year(slurm, "endless", time_limit_min=UNLIMITED)
    assert (await raw_job(slurm, endless))["time_limit"] == {"set": False, "infinite": True, "number": 0}
    short = await waits_till_new_year(slurm, "short", partition="short", time_limit_min=5)
    assert (await raw_job(slurm, short))["time_limit"] == number(5)
