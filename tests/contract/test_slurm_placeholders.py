"""Placeholders: granted at once, queued, or refused; each refusal with its own number."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import Conflict, Exhausted, Invalid
from bridge.slurm.wire import API_VERSIONS
from scheduler.model.slurm import UNLIMITED, Job
from tests.contract.slurm_subjects import Slurm

_, OLDER = API_VERSIONS


async def granted(slurm: Slurm, name: str, **options: Any) -> int:
    return await slurm.client.allocate_now(slurm.spec(name, **options))


async def read(slurm: Slurm, job_id: int) -> Job:
    job = await slurm.client.job(job_id)
    assert job is not None
    return job


async def test_an_immediate_allocation_is_granted_at_once_and_belongs_to_the_tenant(slurm: Slurm) -> None:
    spec = slurm.spec("now", comment="pod ns/a", time_limit_min=7)
    job = await read(slurm, await slurm.client.allocate_now(spec))
    assert "RUNNING" in job.states
    assert (job.name, job.user, job.account, job.partition) == (spec.name, "alice", "teama", "gpu")
    assert (job.nodes, job.comment, job.time_limit_min) == (slurm.place.name, "pod ns/a", 7)
    assert job.submitted is not None
    assert job.starts is not None
    assert job.ends == job.starts + 7 * 60
    assert job.sluid


async def test_the_grant_is_what_was_asked(slurm: Slurm) -> None:
    job_id = await granted(slurm, "grant", cpus_per_task=3, memory_mib=200, gres=(("gpu:h100", 2),))
    grant = await slurm.client.grant(job_id, "alice")
    [node] = grant.nodes
    assert grant.job_id == job_id
    assert (node.name, node.cpus, node.memory_mib) == (slurm.place.name, 3, 200)
    assert node.gres == {"gpu": 2, "gpu:h100": 2}
    assert node.indices == {"gpu": "0-1", "gpu:h100": "0-1"}


async def test_two_grants_on_a_node_never_share_a_device(slurm: Slurm) -> None:
    first = await slurm.client.grant(await granted(slurm, "a", gres=(("gpu:h100", 1),)), "alice")
    second = await slurm.client.grant(await granted(slurm, "b", gres=(("gpu", 2),)), "alice")
    assert first.nodes[0].indices["gpu"] == "0"
    assert second.nodes[0].indices["gpu"] == "1-2"
    assert second.nodes[0].gres == {"gpu": 2, "gpu:h100": 2}


async def test_an_older_api_version_grants_the_same(slurm: Slurm) -> None:
    client = slurm.other(versions=(OLDER,))
    await client.discover()
    spec = slurm.spec("older", gres=(("gpu:h100", 1),))
    job_id = await client.allocate_now(spec)
    assert await client.grant(job_id, "alice") == await slurm.client.grant(job_id, "alice")
    assert await client.job(job_id) == await slurm.client.job(job_id)
    assert await client.cancel(job_id, spec.name, "alice")


async def test_a_twin_of_a_living_job_is_refused_at_once(slurm: Slurm) -> None:
    first = await granted(slurm, "twin")
    with pytest.raises(Conflict) as caught:
        await granted(slurm, "twin")
    assert caught.value.number == 2038
    assert await slurm.end(first)
    await granted(slurm, "twin")


async def test_a_twin_that_is_submitted_waits_for_the_first_to_end(slurm: Slurm) -> None:
    first = await granted(slurm, "twin")
    second = await slurm.client.submit(slurm.spec("twin"))
    waiting = await slurm.until(lambda: read(slurm, second), lambda job: job.reason == "Dependency", within=100)
    assert "PENDING" in waiting.states
    await slurm.end(first)
    await slurm.until(lambda: read(slurm, second), lambda job: "RUNNING" in job.states, within=700)


async def test_the_same_name_of_another_user_is_no_twin(slurm: Slurm) -> None:
    await granted(slurm, "twin")
    assert await granted(slurm, "twin", user="bob")


async def test_a_submitted_job_runs_when_there_is_room(slurm: Slurm) -> None:
    job_id = await slurm.client.submit(slurm.spec("queued", memory_mib=300))
    job = await slurm.until(lambda: read(slurm, job_id), lambda job: "RUNNING" in job.states, within=700)
    assert job.nodes == slurm.place.name
    assert (await slurm.client.grant(job_id, "alice")).nodes[0].memory_mib == 300


async def test_used_cores_leave_no_room_for_an_immediate_allocation(slurm: Slurm) -> None:
    await granted(slurm, "all", cpus_per_task=slurm.place.cpus)
    with pytest.raises(Exhausted) as caught:
        await granted(slurm, "one")
    assert caught.value.number == 2016


async def test_used_memory_leaves_no_room_for_an_immediate_allocation(slurm: Slurm) -> None:
    await granted(slurm, "all", memory_mib=slurm.place.memory_mib - 50)
    with pytest.raises(Exhausted) as caught:
        await granted(slurm, "one")
    assert caught.value.number == 2016


async def test_used_devices_leave_no_room_for_an_immediate_allocation(slurm: Slurm) -> None:
    await granted(slurm, "all", gres=(("gpu", slurm.place.gres["gpu"]),))
    assert await granted(slurm, "without devices")
    with pytest.raises(Exhausted) as caught:
        await granted(slurm, "one", gres=(("gpu", 1),))
    assert caught.value.number == 2016


async def test_while_a_job_waits_in_the_partition_no_immediate_allocation_is_granted_there(slurm: Slurm) -> None:
    await granted(slurm, "all", cpus_per_task=slurm.place.cpus - 1)
    waiting = await slurm.client.submit(slurm.spec("waiting", cpus_per_task=2))
    await slurm.until(lambda: read(slurm, waiting), lambda job: job.reason == "Resources", within=100)
    with pytest.raises(Exhausted) as caught:
        await granted(slurm, "small enough")
    assert caught.value.number == 2013


REFUSALS = {
    "partition": ({"partition": "nope"}, 2000, "Invalid partition name specified"),
    "account": ({"account": "nope"}, 2045, "Invalid account"),
    "account-of-others": ({"account": "teamb"}, 2045, "Invalid account"),
    "qos": ({"qos": "nope"}, 2066, "Invalid qos"),
    "qos-of-others": ({"qos": "high", "user": "bob"}, 2066, "Invalid qos"),
    "gres": ({"gres": (("foo", 1),)}, 2072, "Invalid generic resource"),
    "feature": ({"constraints": "nope"}, 2029, "Invalid feature specification: no node of Slurm has such a feature"),
    "reservation": ({"reservation": "nope"}, 2053, "reservation is invalid"),
    "license": ({"licenses": (("nope", 1),)}, 2048, "there is no such license, or not that many"),
    "more-licenses-than-there-are": ({"licenses": (("matlab", 99),)}, 2048, "Invalid license specification"),
    "too-many-cpus": ({"cpus_per_task": 99_999}, 2005, "More processors requested"),
    "too-long": ({"partition": "short", "time_limit_min": 60}, 2051, "time limit is invalid"),
    "node-unknown": ({"excluded_nodes": "no-such-node[1-3]"}, 2018, "Invalid node name"),
    "gpus-no-node-has": ({"gres": (("gpu", 99),)}, 2014, "configuration is not available"),
    "gpu-type-no-node-has": ({"gres": (("gpu:nope", 1),)}, 2014, "configuration is not available"),
    "memory-no-node-has": ({"memory_mib": 99_999_999}, 2014, "configuration is not available"),
    "nice": ({"nice": -100}, 2123, "Invalid --nice"),
    "user": ({"user": "nosuchuser"}, 6010, "Slurm does not know the user nosuchuser"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_an_impossible_job_is_refused_with_slurms_number_and_text(slurm: Slurm, case: str) -> None:
    options, number, text = REFUSALS[case]
    with pytest.raises(Invalid, match=text) as caught:
        await slurm.client.submit(slurm.spec("refused", **options))
    assert caught.value.number == number


@pytest.mark.parametrize("case", [case for case in REFUSALS if case != "user"])
async def test_an_impossible_immediate_allocation_is_refused_with_the_same_number(slurm: Slurm, case: str) -> None:
    options, number, _ = REFUSALS[case]
    with pytest.raises(Invalid) as caught:
        await granted(slurm, "refused", **options)
    assert caught.value.number == number


async def test_a_user_over_a_limit_on_resources_waits_and_gets_no_immediate_allocation(slurm: Slurm) -> None:
    await granted(slurm, "four", user="bob", gres=(("gpu", 4),))
    with pytest.raises(Exhausted) as caught:
        await granted(slurm, "one more", user="bob", gres=(("gpu", 1),))
    assert caught.value.number == 2050
    waiting = await slurm.client.submit(slurm.spec("one more", user="bob", gres=(("gpu", 1),)))
    await slurm.until(lambda: read(slurm, waiting), lambda job: job.reason == "AssocGrpGRES", within=100)


async def test_a_user_over_a_limit_on_jobs_is_refused_and_other_users_are_not(slurm: Slurm) -> None:
    await granted(slurm, "all", cpus_per_task=slurm.place.cpus)
    for number in range(50):
        await slurm.client.submit(slurm.spec(f"many-{number}", user="bob"))
    with pytest.raises(Exhausted) as caught:
        await slurm.client.submit(slurm.spec("one too many", user="bob"))
    assert caught.value.number == 2050
    assert await slurm.client.submit(slurm.spec("another's"))


async def test_without_an_account_or_partition_slurms_defaults_are_taken(slurm: Slurm) -> None:
    job = await read(slurm, await slurm.client.submit(slurm.spec("defaults", partition="")))
    assert (job.account, job.partition, job.qos, job.time_limit_min) == ("teama", "main", "normal", 60)


async def test_a_job_without_a_time_limit_is_read_as_unlimited(slurm: Slurm) -> None:
    job = await read(slurm, await granted(slurm, "long", time_limit_min=UNLIMITED))
    assert job.time_limit_min == UNLIMITED


async def test_an_exclusive_job_gets_the_whole_node(slurm: Slurm) -> None:
    [node] = (await slurm.client.grant(await granted(slurm, "alone", exclusive="exclusive"), "alice")).nodes
    assert (node.cpus, node.memory_mib) == (slurm.place.cpus, 100)
    assert node.gres == slurm.place.gres
    with pytest.raises(Exhausted):
        await granted(slurm, "beside")


async def test_a_name_is_kept_as_it_is(slurm: Slurm) -> None:
    spec = slurm.spec("hpc.example/train_0: ü" + "n" * 200)
    assert (await read(slurm, await slurm.client.allocate_now(spec))).name == spec.name


async def test_a_waiting_job_shows_what_was_asked(slurm: Slurm) -> None:
    await granted(slurm, "all", cpus_per_task=slurm.place.cpus)
    spec = slurm.spec("wishes", comment="c", nice=5, qos="low", time_limit_min=30, wckey="", account="teama")
    job = await read(slurm, await slurm.client.submit(spec))
    assert "PENDING" in job.states
    assert (job.comment, job.qos, job.time_limit_min, job.nodes) == ("c", "low", 30, "")
    assert job.excluded_nodes == slurm.others
    assert job.ends is None


async def test_every_call_is_counted_with_its_outcome(slurm: Slurm) -> None:
    slurm.calls.clear()
    spec = slurm.spec("counted")
    await slurm.client.cancel(await slurm.client.allocate_now(spec), spec.name, "alice")
    with pytest.raises(Invalid):
        await granted(slurm, "counted", partition="nope")
    assert slurm.calls == [("allocate", "ok"), ("cancel", "ok"), ("allocate", "invalid")]
