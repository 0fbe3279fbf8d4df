"""The life of a placeholder: it waits, is changed, runs, and ends in one of many ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.errors import Exhausted, Invalid, NotFound
from scheduler.model.slurm import SINGLETON, Job, is_ended
from tests.contract.slurm_subjects import Slurm

UNKNOWN = 99_999_999


async def running(slurm: Slurm, name: str, **options: Any) -> int:
    return await slurm.client.allocate_now(slurm.spec(name, **options))


async def read(slurm: Slurm, job_id: int) -> Job:
    job = await slurm.client.job(job_id)
    assert job is not None
    return job


async def waiting(slurm: Slurm, name: str = "waiting", **options: Any) -> tuple[int, int]:
    """A job that fills the node, and a job that waits for it."""
    full = await running(slurm, "full", cpus_per_task=slurm.place.cpus, time_limit_min=10)
    job_id = await slurm.client.submit(slurm.spec(name, **options))
    await slurm.until(lambda: read(slurm, job_id), lambda job: job.reason == "Resources", within=100)
    return full, job_id


# --- what is known of jobs


async def test_the_list_of_states_has_each_job(slurm: Slurm) -> None:
    full, queued = await waiting(slurm)
    states = await slurm.client.states()
    assert "RUNNING" in states[full]
    assert "PENDING" in states[queued]


async def test_a_job_that_slurm_does_not_know_is_read_as_none(slurm: Slurm) -> None:
    assert await slurm.client.job(UNKNOWN) is None


async def test_what_an_unknown_job_holds_is_not_found(slurm: Slurm) -> None:
    with pytest.raises(NotFound) as caught:
        await slurm.client.grant(UNKNOWN, "alice")
    assert caught.value.number == 2017


async def test_a_waiting_job_holds_nothing(slurm: Slurm) -> None:
    _, queued = await waiting(slurm)
    with pytest.raises(Invalid) as caught:
        await slurm.client.grant(queued, "alice")
    assert caught.value.number == 2085


async def test_a_waiting_job_shows_its_reason_its_expected_start_and_its_planned_nodes(slurm: Slurm) -> None:
    full, queued = await waiting(slurm)
    job = await slurm.until(lambda: read(slurm, queued), lambda job: bool(job.planned_nodes), within=700)
    assert (job.reason, job.planned_nodes, job.nodes) == ("Resources", slurm.place.name, "")
    ends = (await read(slurm, full)).ends
    assert ends is not None
    assert job.starts is not None
    assert abs(job.starts - ends) < 90


async def test_a_job_behind_a_waiting_one_waits_for_its_priority(slurm: Slurm) -> None:
    _, _ = await waiting(slurm)
    behind = await slurm.client.submit(slurm.spec("behind"))
    await slurm.until(lambda: read(slurm, behind), lambda job: job.reason == "Priority", within=100)


# --- changes


async def test_a_nudge_makes_slurm_notice_freed_capacity(slurm: Slurm) -> None:
    full, queued = await waiting(slurm)
    await slurm.end(full)
    await slurm.client.nudge(queued, "alice")
    await slurm.until(lambda: read(slurm, queued), lambda job: "RUNNING" in job.states, within=40)


async def test_a_nudge_changes_nothing_of_the_job(slurm: Slurm) -> None:
    """A nudge writes no field, so it keeps a change that the job's user made a moment before."""
    options: dict[str, Any] = {"comment": "old", "nice": 3, "dependency": SINGLETON, "licenses": ()}
    _, queued = await waiting(slurm, **options)
    comment = slurm.spec("waiting", **options | {"comment": "new"})
    await slurm.client.update(queued, "alice", comment, frozenset({"comment"}))
    before = await read(slurm, queued)
    await slurm.client.nudge(queued, "alice")
    after = await read(slurm, queued)
    assert after.comment == "new"
    fields = (
        "name",
        "user",
        "account",
        "partition",
        "qos",
        "submitted",
        "time_limit_min",
        "excluded_nodes",
        "dependency",
        "tasks",
    )
    assert [getattr(after, each) for each in fields] == [getattr(before, each) for each in fields]


async def test_a_waiting_job_is_changed_in_place_and_keeps_its_age(slurm: Slurm) -> None:
    _, queued = await waiting(slurm)
    before = await read(slurm, queued)
    spec = slurm.spec(
        "renamed", comment="new", time_limit_min=9, partition="main", qos="low", nice=3, cpus_per_task=2, memory_mib=200,
        gres=(("gpu:h100", 1),), dependency="singleton", excluded_nodes="",
    )  # fmt: skip
    changes = frozenset(
        {"name", "comment", "time_limit_min", "partition", "qos", "nice", "cpus_per_task", "memory_mib", "gres", "dependency",
         "excluded_nodes"}
    )  # fmt: skip
    await slurm.client.update(queued, "alice", spec, changes)
    after = await read(slurm, queued)
    assert (after.name, after.comment, after.time_limit_min) == (spec.name, "new", 9)
    assert (after.partition, after.qos, after.excluded_nodes) == ("main", "low", "")
    assert (after.submitted, after.sluid) == (before.submitted, before.sluid)


async def test_an_update_changes_only_what_it_names(slurm: Slurm) -> None:
    _, queued = await waiting(slurm, comment="old", time_limit_min=8)
    before = await read(slurm, queued)
    await slurm.client.update(queued, "alice", slurm.spec("other", comment="new"), frozenset({"comment"}))
    after = await read(slurm, queued)
    assert after.comment == "new"
    assert (after.name, after.time_limit_min, after.excluded_nodes) == (before.name, 8, before.excluded_nodes)


IMPOSSIBLE: dict[str, tuple[Any, int]] = {
    "partition": ("nope", 2000),
    "account": ("teamb", 2045),
    "excluded_nodes": ("no-such-node", 2018),
    "nice": (-5, 2002),
    "licenses": ((("matlab", 99),), 2048),
    "dependency": (f"singleton,afterok:{UNKNOWN}", 2038),
}


@pytest.mark.parametrize("field", IMPOSSIBLE)
async def test_a_change_that_is_not_possible_is_refused(slurm: Slurm, field: str) -> None:
    value, number = IMPOSSIBLE[field]
    _, queued = await waiting(slurm)
    with pytest.raises(Invalid) as caught:
        await slurm.client.update(queued, "alice", slurm.spec("waiting", **{field: value}), frozenset({field}))
    assert caught.value.number == number


async def test_the_time_limit_and_comment_of_a_running_job_can_be_changed_and_its_place_cannot(slurm: Slurm) -> None:
    job_id = await running(slurm, "run", time_limit_min=10)
    spec = slurm.spec("run", time_limit_min=5, comment="shorter", partition="main")
    await slurm.client.update(job_id, "alice", spec, frozenset({"time_limit_min", "comment"}))
    job = await read(slurm, job_id)
    assert (job.time_limit_min, job.comment) == (5, "shorter")
    assert job.starts is not None
    assert job.ends == job.starts + 5 * 60
    with pytest.raises(Invalid) as caught:
        await slurm.client.update(job_id, "alice", spec, frozenset({"partition"}))
    assert caught.value.number == 2073


async def test_the_job_of_another_user_can_neither_be_changed_nor_ended(slurm: Slurm) -> None:
    job_id = await running(slurm, "alices")
    with pytest.raises(Invalid) as changed:
        await slurm.client.nudge(job_id, "bob")
    with pytest.raises(Invalid) as ended:
        await slurm.end(job_id, user="bob")
    assert (changed.value.number, ended.value.number) == (2010, 2002)
    job = await read(slurm, job_id)
    assert "RUNNING" in job.states
    assert job.comment == ""


# --- ends


async def test_a_cancelled_job_is_over_and_frees_what_it_held(slurm: Slurm) -> None:
    job_id = await running(slurm, "over", cpus_per_task=slurm.place.cpus, gres=(("gpu", 4),))
    assert await slurm.end(job_id) is True
    job = await slurm.until(lambda: read(slurm, job_id), lambda job: is_ended(job.states), within=20)
    assert "CANCELLED" in job.states
    assert job.exit_code == 0
    assert await running(slurm, "next", cpus_per_task=slurm.place.cpus, gres=(("gpu", 4),))


async def test_a_waiting_job_can_be_cancelled(slurm: Slurm) -> None:
    _, queued = await waiting(slurm)
    assert await slurm.end(queued) is True
    assert "CANCELLED" in (await read(slurm, queued)).states


async def test_cancelling_an_ended_or_unknown_job_says_that_it_does_not_exist(slurm: Slurm) -> None:
    job_id = await running(slurm, "over")
    await slurm.end(job_id)
    assert await slurm.end(job_id) is False
    assert await slurm.end(UNKNOWN) is False


async def test_an_id_with_the_name_of_another_job_ends_no_job(slurm: Slurm) -> None:
    """A cancel names id and name, so it does not end a job that got the id of a lost job, of the same user either (V6)."""
    job_id = await running(slurm, "its-users-own")
    assert await slurm.client.cancel(job_id, slurm.spec("lost").name, "alice") is False
    assert "RUNNING" in (await read(slurm, job_id)).states


async def test_an_ended_job_holds_nothing_and_cannot_be_changed(slurm: Slurm) -> None:
    job_id = await running(slurm, "over")
    await slurm.end(job_id)
    with pytest.raises(Invalid) as held:
        await slurm.client.grant(job_id, "alice")
    with pytest.raises(Invalid) as changed:
        await slurm.client.nudge(job_id, "alice")
    assert (held.value.number, changed.value.number) == (2085, 2084)


async def test_an_unknown_job_cannot_be_changed(slurm: Slurm) -> None:
    with pytest.raises(NotFound) as caught:
        await slurm.client.nudge(UNKNOWN, "alice")
    assert caught.value.number == 2017


async def test_a_job_ends_at_its_time_limit(slurm: Slurm) -> None:
    job_id = await running(slurm, "short", time_limit_min=10)
    await slurm.client.update(job_id, "alice", slurm.spec("short", time_limit_min=0), frozenset({"time_limit_min"}))
    job = await slurm.until(lambda: read(slurm, job_id), lambda job: is_ended(job.states), within=700)
    assert "TIMEOUT" in job.states


async def test_a_job_on_a_node_that_goes_down_fails_with_it(slurm: Slurm) -> None:
    job_id = await running(slurm, "fails")
    await slurm.admin("POST", f"node/{slurm.place.name}", {"state": ["DOWN"], "reason": "contract suite"})
    try:
        job = await slurm.until(lambda: read(slurm, job_id), lambda job: is_ended(job.states), within=50)
        assert "NODE_FAIL" in job.states
        [node] = [node for node in await slurm.client.nodes() if node.name == slurm.place.name]
        assert "DOWN" in node.states
    finally:
        await slurm.admin("POST", f"node/{slurm.place.name}", {"state": ["RESUME"]})


async def test_a_job_on_a_drained_node_runs_on_and_nothing_new_starts_there(slurm: Slurm) -> None:
    job_id = await running(slurm, "stays")
    await slurm.admin("POST", f"node/{slurm.place.name}", {"state": ["DRAIN"], "reason": "contract suite"})
    try:
        with pytest.raises(Exhausted) as caught:
            await running(slurm, "new")
        assert caught.value.number == 2068
        waits = await slurm.client.submit(slurm.spec("waits"))
        await slurm.until(lambda: read(slurm, waits), lambda job: job.reason == "ReqNodeNotAvail", within=50)
        assert "RUNNING" in (await read(slurm, job_id)).states
        [node] = [node for node in await slurm.client.nodes() if node.name == slurm.place.name]
        assert "DRAIN" in node.states
    finally:
        await slurm.admin("POST", f"node/{slurm.place.name}", {"state": ["RESUME"]})
    await slurm.end(waits)
    assert await running(slurm, "new")


async def test_a_job_of_low_priority_is_preempted(slurm: Slurm) -> None:
    low = await running(slurm, "low", partition="low", cpus_per_task=slurm.place.cpus)
    high = await slurm.client.submit(slurm.spec("high"))
    await slurm.until(lambda: read(slurm, high), lambda job: "RUNNING" in job.states, within=700)
    assert "PREEMPTED" in (await read(slurm, low)).states


async def test_a_job_that_an_admin_holds_waits_and_shows_that(slurm: Slurm) -> None:
    full, queued = await waiting(slurm)
    await slurm.admin("POST", f"job/{queued}", {"hold": True})
    held = await slurm.until(lambda: read(slurm, queued), lambda job: job.reason.startswith("JobHeld"), within=50)
    assert "PENDING" in held.states
    await slurm.end(full)
    await slurm.client.nudge(queued, "alice")
    assert "PENDING" in (await read(slurm, queued)).states
    await slurm.admin("POST", f"job/{queued}", {"hold": False})
    await slurm.until(lambda: read(slurm, queued), lambda job: "RUNNING" in job.states, within=700)


async def test_an_update_of_the_cpus_alone_is_granted(slurm: Slurm) -> None:
    full, queued = await waiting(slurm)
    more = replace(slurm.spec("waiting"), cpus_per_task=3)
    await slurm.client.update(queued, "alice", more, frozenset({"cpus_per_task"}))
    await slurm.end(full)
    await slurm.client.nudge(queued, "alice")
    await slurm.until(lambda: read(slurm, queued), lambda job: "RUNNING" in job.states, within=700)
    [node] = (await slurm.client.grant(queued, "alice")).nodes
    assert node.cpus == 3


async def test_an_update_to_fewer_cpus_is_granted_on_a_node_that_lacks_the_former_number(slurm: Slurm) -> None:
    await running(slurm, "beside", cpus_per_task=slurm.place.cpus - 2, time_limit_min=10)
    queued = await slurm.client.submit(slurm.spec("waiting", cpus_per_task=4))
    await slurm.until(lambda: read(slurm, queued), lambda job: job.reason == "Resources", within=100)
    fewer = replace(slurm.spec("waiting"), cpus_per_task=2)
    await slurm.client.update(queued, "alice", fewer, frozenset({"cpus_per_task"}))
    await slurm.until(lambda: read(slurm, queued), lambda job: "RUNNING" in job.states, within=700)
    [node] = (await slurm.client.grant(queued, "alice")).nodes
    assert node.cpus == 2


async def test_an_updated_spec_is_what_a_new_job_is_granted(slurm: Slurm) -> None:
    full, queued = await waiting(slurm)
    more = replace(slurm.spec("waiting"), cpus_per_task=2, memory_mib=300, gres=(("gpu:h100", 1),))
    await slurm.client.update(queued, "alice", more, frozenset({"cpus_per_task", "memory_mib", "gres"}))
    await slurm.end(full)
    await slurm.client.nudge(queued, "alice")
    await slurm.until(lambda: read(slurm, queued), lambda job: "RUNNING" in job.states, within=700)
    [node] = (await slurm.client.grant(queued, "alice")).nodes
    assert (node.cpus, node.memory_mib, node.gres["gpu"]) == (2, 300, 1)
