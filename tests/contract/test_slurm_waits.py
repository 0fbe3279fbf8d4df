"""Reasons for a placeholder to wait besides room: a begin time, other jobs, licenses; and which jobs they hold back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bridge.errors import Conflict, Exhausted, Invalid
from bridge.slurm.wire import Envelope
from scheduler.model.hostlist import expand, fold
from scheduler.model.slurm import Job, is_ended
from tests.contract.slurm_subjects import Slurm

NEW_YEAR = 4_102_444_800  # 2100-01-01
UNKNOWN = 99_999_999
_ENVELOPE = msgspec.json.Decoder(Envelope)


async def read(slurm: Slurm, job_id: int) -> Job:
    job = await slurm.client.job(job_id)
    assert job is not None
    return job


async def running(slurm: Slurm, name: str, **options: Any) -> int:
    return await slurm.client.allocate_now(slurm.spec(name, **options))


async def waiting(slurm: Slurm, reason: str, name: str = "waits", **options: Any) -> int:
    job_id = await slurm.client.submit(slurm.spec(name, **options))
    job = await slurm.until(lambda: read(slurm, job_id), lambda job: job.reason == reason, within=100)
    assert "PENDING" in job.states
    return job_id


async def runs_soon(slurm: Slurm, job_id: int) -> None:
    await slurm.client.nudge(job_id, "alice")
    await slurm.until(lambda: read(slurm, job_id), lambda job: "RUNNING" in job.states, within=50)


async def test_a_job_waits_for_its_begin_time_and_shows_it(slurm: Slurm) -> None:
    job = await read(slurm, await waiting(slurm, "BeginTime", begin=NEW_YEAR))
    assert job.starts == NEW_YEAR
    assert job.priority is not None


async def test_a_begin_time_that_is_removed_or_past_does_not_delay_the_job(slurm: Slurm) -> None:
    job_id = await waiting(slurm, "BeginTime", begin=NEW_YEAR)
    await slurm.client.update(job_id, "alice", slurm.spec("waits"), frozenset({"begin"}))
    await runs_soon(slurm, job_id)
    assert await running(slurm, "past", begin=1)


async def test_a_job_waits_for_another_users_job_to_end(slurm: Slurm) -> None:
    other = await running(slurm, "before", user="bob")
    job_id = await waiting(slurm, "Dependency", dependency=f"singleton,afterany:{other}")
    assert (await read(slurm, job_id)).dependency == f"afterany:{other}(unfulfilled)"
    await slurm.end(other, user="bob")
    await runs_soon(slurm, job_id)
    assert (await read(slurm, job_id)).dependency == ""


async def test_all_of_several_conditions_must_hold(slurm: Slurm) -> None:
    one, two = await running(slurm, "one"), await running(slurm, "two")
    job_id = await waiting(slurm, "Dependency", dependency=f"singleton,afterany:{one}:{two},after:{one}")
    await slurm.end(one)
    job = await slurm.until(lambda: read(slurm, job_id), lambda job: str(one) not in job.dependency, within=400)
    assert job.dependency == f"afterany:{two}(unfulfilled)"
    await slurm.end(two)
    await runs_soon(slurm, job_id)


async def test_a_job_that_waits_for_its_twin_shows_that(slurm: Slurm) -> None:
    await running(slurm, "twin")
    job_id = await waiting(slurm, "Dependency", "twin")
    assert (await read(slurm, job_id)).dependency == "singleton(unfulfilled)"


async def test_a_placeholder_never_ends_well_enough_for_afterok(slurm: Slurm) -> None:
    """A placeholder ends as CANCELLED, so a job that depends on it needs afterany, which an update can still set."""
    placeholder = await running(slurm, "before")
    await slurm.end(placeholder)
    await slurm.until(lambda: read(slurm, placeholder), lambda job: is_ended(job.states), within=20)
    job_id = await waiting(slurm, "DependencyNeverSatisfied", dependency=f"singleton,afterok:{placeholder}")
    assert (await read(slurm, job_id)).dependency == f"afterok:{placeholder}(failed)"
    mended = slurm.spec("waits", dependency=f"singleton,afterany:{placeholder}")
    await slurm.client.update(job_id, "alice", mended, frozenset({"dependency"}))
    await runs_soon(slurm, job_id)


@pytest.mark.parametrize("kind", ["afterok", "afternotok"])
async def test_a_dependency_on_the_success_of_an_unknown_job_is_refused(slurm: Slurm, kind: str) -> None:
    with pytest.raises(Invalid, match="it does not know a job that this one depends on") as caught:
        await slurm.client.submit(slurm.spec("waits", dependency=f"singleton,{kind}:{UNKNOWN}"))
    assert caught.value.number == 2038


async def test_a_dependency_on_the_end_of_an_unknown_job_is_fulfilled(slurm: Slurm) -> None:
    job_id = await slurm.client.submit(slurm.spec("waits", dependency=f"singleton,afterany:{UNKNOWN}"))
    assert (await read(slurm, job_id)).dependency == ""
    await runs_soon(slurm, job_id)


@pytest.mark.parametrize("wait", ["begin", "dependency"])
async def test_an_immediate_allocation_of_a_job_that_may_not_start_is_refused_like_a_twin(
    slurm: Slurm, wait: str
) -> None:
    other = await running(slurm, "before")
    options: dict[str, Any] = {"begin": NEW_YEAR} if wait == "begin" else {"dependency": f"singleton,afterany:{other}"}
    with pytest.raises(Conflict) as caught:
        await running(slurm, "waits", **options)
    assert caught.value.number == 2038


@pytest.mark.parametrize(
    "reason", ["BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin"]
)
async def test_a_job_that_wants_no_nodes_yet_does_not_prevent_immediate_allocations(slurm: Slurm, reason: str) -> None:
    over = await running(slurm, "over")
    await slurm.end(over)
    lives = await running(slurm, "lives")
    options: dict[str, Any] = {
        "BeginTime": {"begin": NEW_YEAR},
        "Dependency": {"dependency": f"singleton,afterany:{lives}"},
        "DependencyNeverSatisfied": {"dependency": f"singleton,afterok:{over}"},
    }.get(reason, {"begin": NEW_YEAR})
    job_id = await waiting(slurm, "BeginTime" if reason.startswith("JobHeld") else reason, **options)
    if reason.startswith("JobHeld"):
        body = json.dumps({"hold": True}).encode()
        user = "alice" if reason == "JobHeldUser" else ""
        await slurm.client.ask("hold", "POST", f"job/{job_id}", _ENVELOPE, body, user=user)
        await slurm.client.update(job_id, "alice", slurm.spec("waits"), frozenset({"begin"}))
        await slurm.until(lambda: read(slurm, job_id), lambda job: job.reason == reason, within=100)
    assert await running(slurm, "beside")


async def test_licenses_are_counted(slurm: Slurm) -> None:
    most, more = (("matlab", 8),), (("matlab", 3),)
    first = await running(slurm, "most", licenses=most)
    with pytest.raises(Exhausted) as caught:
        await running(slurm, "more", licenses=more)
    assert caught.value.number == 2040
    job_id = await waiting(slurm, "Licenses", "more", licenses=more)
    with pytest.raises(Exhausted) as caught:
        await running(slurm, "behind")
    assert caught.value.number == 2013
    await slurm.client.update(
        job_id, "alice", replace(slurm.spec("more"), licenses=(("matlab", 2),)), frozenset({"licenses"})
    )
    await runs_soon(slurm, job_id)
    await slurm.end(first)
    assert await running(slurm, "again", licenses=most)


# --- a time limit that may be cut (sbatch's --time-min) -------------------------------------------------------------


async def test_a_time_limit_that_is_shorter_than_time_min_is_refused(slurm: Slurm) -> None:
    options: dict[str, Any] = {"time_limit_min": 10, "time_least_min": 20}
    for ask in (slurm.client.submit, slurm.client.allocate_now):
        with pytest.raises(Invalid) as caught:
            await ask(slurm.spec("contradicts", **options))
        assert caught.value.number == 2124


async def test_an_immediate_allocation_gets_the_whole_time_limit(slurm: Slurm) -> None:
    job = await read(slurm, await running(slurm, "whole", time_limit_min=120, time_least_min=10))
    assert job.time_limit_min == 120


async def test_time_min_of_a_waiting_job_can_be_changed_and_removed(slurm: Slurm) -> None:
    options: dict[str, Any] = {"begin": NEW_YEAR, "time_limit_min": 120}
    job_id = await waiting(slurm, "BeginTime", time_least_min=20, **options)

    async def update(changes: set[str], **changed: Any) -> None:
        await slurm.client.update(job_id, "alice", slurm.spec("waits", **(options | changed)), frozenset(changes))

    await update({"time_least_min"}, time_least_min=40)
    with pytest.raises(Invalid) as caught:
        await update({"time_limit_min"}, time_limit_min=30)
    assert caught.value.number == 2124
    await update({"time_limit_min", "time_least_min"}, time_limit_min=30, time_least_min=15)
    await update({"time_least_min"}, time_least_min=None)
    await update({"time_limit_min"}, time_limit_min=5)
    assert (await read(slurm, job_id)).time_limit_min == 5


async def test_backfill_cuts_a_limit_so_that_a_job_starts_before_one_that_is_first_in_line(slurm: Slurm) -> None:
    names = [node.name for node in slurm.places]

    def on(*wanted: str) -> dict[str, Any]:
        left_out = [*expand(slurm.beside), *(name for name in names if name not in wanted)]
        return {"excluded_nodes": fold(left_out), "exclusive": "exclusive"}

    await running(slurm, "busy", time_limit_min=30, **on(names[0]))
    both = await slurm.client.submit(
        slurm.spec("first", tasks=2, tasks_per_node=1, time_limit_min=60, **on(names[0], names[1]))
    )
    await slurm.until(lambda: read(slurm, both), lambda job: bool(job.planned_nodes), within=700)
    long = await slurm.client.submit(slurm.spec("long", time_limit_min=120, **on(names[1])))
    short = await slurm.client.submit(slurm.spec("short", time_limit_min=120, time_least_min=10, **on(names[1])))
    job = await slurm.until(lambda: read(slurm, short), lambda job: "RUNNING" in job.states, within=700)
    assert job.time_limit_min is not None
    assert job.starts is not None
    assert 10 <= job.time_limit_min < 30
    assert job.ends == job.starts + job.time_limit_min * 60
    assert "PENDING" in (await read(slurm, long)).states
