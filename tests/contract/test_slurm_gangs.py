"""Jobs of several tasks: on which nodes, with how much of each; all of it or none."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import Conflict, Exhausted, Invalid
from bridge.slurm.wire import API_VERSIONS
from scheduler.model.slurm import Grant, Job
from tests.contract.slurm_subjects import Slurm

_, OLDER = API_VERSIONS


async def granted(slurm: Slurm, name: str, tasks: int, **options: Any) -> Grant:
    return await slurm.client.grant(await slurm.client.allocate_now(slurm.gang(name, tasks, **options)), "alice")


async def read(slurm: Slurm, job_id: int) -> Job:
    job = await slurm.client.job(job_id)
    assert job is not None
    return job


def cpus(grant: Grant, slurm: Slurm) -> list[int]:
    """CPUs on each of the three nodes, in Slurm's order, which the grant must keep."""
    held = {node.name: node.cpus for node in grant.nodes}
    known = [node.name for node in slurm.places]
    assert list(held) == [name for name in known if name in held]
    return [held.get(name, 0) for name in known]


async def test_tasks_fill_as_few_nodes_as_possible_in_slurms_order(slurm: Slurm) -> None:
    a_node = slurm.place.cpus
    grant = await granted(slurm, "gang", 12, cpus_per_task=a_node // 8)
    assert cpus(grant, slurm) == [a_node, a_node // 2, 0]
    assert [node.memory_mib for node in grant.nodes] == [13 * a_node, 13 * a_node // 2]  # 100 MiB by 8 CPUs, rounded up


async def test_a_task_is_never_on_two_nodes(slurm: Slurm) -> None:
    share = 3 * slurm.place.cpus // 8
    assert cpus(await granted(slurm, "gang", 5, cpus_per_task=share), slurm) == [2 * share, 2 * share, share]


async def test_memory_limits_how_many_tasks_a_node_takes(slurm: Slurm) -> None:
    grant = await granted(slurm, "gang", 3, cpus_per_task=4, memory_mib=slurm.place.memory_mib // 2 + 1000)
    assert cpus(grant, slurm) == [4, 4, 4]
    assert all(node.memory_mib >= slurm.place.memory_mib // 2 + 1000 for node in grant.nodes)


async def test_devices_are_counted_for_each_task_and_shown_by_index(slurm: Slurm) -> None:
    grant = await granted(slurm, "gang", 5, gres=(("gpu:h100", 3),))
    assert [(node.name, node.cpus, node.gres["gpu"], node.indices["gpu"]) for node in grant.nodes] == [
        (slurm.places[0].name, 2, 6, "0-5"),
        (slurm.places[1].name, 2, 6, "0-5"),
        (slurm.places[2].name, 1, 3, "0-2"),
    ]


async def test_an_older_api_version_grants_a_gang_the_same(slurm: Slurm) -> None:
    client = slurm.other(versions=(OLDER,))
    await client.discover()
    job_id = await client.allocate_now(slurm.gang("older", 9, gres=(("gpu", 1),)))
    assert await client.grant(job_id, "alice") == await slurm.client.grant(job_id, "alice")
    assert await client.job(job_id) == await slurm.client.job(job_id)


async def test_one_task_a_node_spreads_the_tasks(slurm: Slurm) -> None:
    grant = await granted(slurm, "gang", 3, tasks_per_node=1, memory_mib=300, gres=(("gpu", 2),))
    assert [(node.name, node.cpus, node.memory_mib, node.gres["gpu"]) for node in grant.nodes] == [
        (place.name, 1, 300, 2) for place in slurm.places
    ]


async def test_a_number_of_tasks_a_node_is_held_on_each_node_even_if_fewer_tasks_are_left(slurm: Slurm) -> None:
    grant = await granted(slurm, "gang", 3, tasks_per_node=2, cpus_per_task=2, memory_mib=150, gres=(("gpu", 1),))
    assert cpus(grant, slurm) == [4, 4, 0]
    assert [(node.memory_mib, node.gres["gpu"]) for node in grant.nodes] == [(300, 2), (300, 2)]


async def test_with_a_number_of_nodes_the_first_node_gets_all_but_one_task_for_each_other(slurm: Slurm) -> None:
    assert cpus(await granted(slurm, "at least", 8, min_nodes=2), slurm) == [7, 1, 0]
    assert cpus(await granted(slurm, "at most", 8, max_nodes=3), slurm) == [6, 1, 1]


async def test_a_gang_that_may_have_more_nodes_than_exist_gets_those_that_exist(slurm: Slurm) -> None:
    assert cpus(await granted(slurm, "gang", 8, max_nodes=7), slurm) == [6, 1, 1]


async def test_a_gang_that_fits_a_node_gets_the_node_with_the_least_room(slurm: Slurm) -> None:
    but_the_second = f"{slurm.beside},{slurm.places[0].name},{slurm.places[2].name}"
    await slurm.client.allocate_now(
        slurm.spec("big", cpus_per_task=slurm.place.cpus - 4, excluded_nodes=but_the_second)
    )
    assert cpus(await granted(slurm, "gang", 4), slurm) == [0, 4, 0]


async def test_an_exclusive_gang_gets_its_nodes_whole(slurm: Slurm) -> None:
    options = {"exclusive": "exclusive", "cpus_per_task": slurm.place.cpus // 2, "memory_mib": 3200}
    grant = await granted(slurm, "gang", 3, **options)
    assert cpus(grant, slurm) == [slurm.place.cpus, slurm.place.cpus, 0]
    assert [node.gres for node in grant.nodes] == [slurm.place.gres] * 2
    by_cpu = -(-3200 // (slurm.place.cpus // 2))
    assert [node.memory_mib for node in grant.nodes] == [by_cpu * slurm.place.cpus] * 2
    with pytest.raises(Exhausted):
        await granted(slurm, "beside", 2, tasks_per_node=1)


async def test_an_exclusive_gang_is_charged_for_the_memory_of_idle_cpus_unless_it_sets_tasks_a_node(
    slurm: Slurm,
) -> None:
    options = {"exclusive": "exclusive", "memory_mib": slurm.place.memory_mib // 4}
    with pytest.raises(Invalid) as caught:
        await granted(slurm, "packed", 2, **options)
    assert caught.value.number == 2014
    grant = await granted(slurm, "spread", 2, tasks_per_node=1, **options)
    assert [node.memory_mib for node in grant.nodes] == [slurm.place.memory_mib // 4] * 2
    [node] = (await granted(slurm, "pair", 2, tasks_per_node=2, **options)).nodes
    assert (node.cpus, node.memory_mib) == (slurm.place.cpus, slurm.place.memory_mib // 2)


async def test_a_gang_is_one_job_that_shows_its_tasks_and_has_no_twin(slurm: Slurm) -> None:
    job_id = await slurm.client.allocate_now(slurm.gang("gang", 4))
    job = await read(slurm, job_id)
    assert (job.tasks, job.het_id, job.het_offset, job.parts) == (4, None, None, ())
    with pytest.raises(Conflict) as caught:
        await granted(slurm, "gang", 4)
    assert caught.value.number == 2038


async def test_a_gang_that_is_larger_than_what_is_free_holds_nothing_and_starts_when_it_fits(slurm: Slurm) -> None:
    a_node = slurm.place.cpus
    full = await slurm.client.allocate_now(slurm.spec("full", cpus_per_task=a_node))
    with pytest.raises(Exhausted) as caught:
        await granted(slurm, "at once", 3, tasks_per_node=1)
    assert caught.value.number == 2016
    gang = await slurm.client.submit(slurm.gang("gang", 3, cpus_per_task=a_node))
    job = await slurm.until(lambda: read(slurm, gang), lambda job: job.reason == "Resources", within=100)
    assert (job.nodes, "PENDING" in job.states) == ("", True)
    await slurm.end(full)
    await slurm.client.nudge(gang, "alice")
    await slurm.until(lambda: read(slurm, gang), lambda job: "RUNNING" in job.states, within=100)
    assert cpus(await slurm.client.grant(gang, "alice"), slurm) == [a_node] * 3


async def test_a_waiting_gang_gets_its_changed_cpus_memory_and_devices(slurm: Slurm) -> None:
    full = await slurm.client.allocate_now(slurm.gang("full", 3, tasks_per_node=1, cpus_per_task=slurm.place.cpus))
    gang = await slurm.client.submit(slurm.gang("gang", 4, gres=(("gpu", 1),)))
    await slurm.until(lambda: read(slurm, gang), lambda job: job.reason == "Resources", within=100)
    changed = slurm.gang("gang", 4, cpus_per_task=3, memory_mib=301, gres=(("gpu:h100", 2),))
    await slurm.client.update(gang, "alice", changed, frozenset({"cpus_per_task", "gres", "memory_mib"}))
    await slurm.end(full)
    await slurm.client.nudge(gang, "alice")
    await slurm.until(lambda: read(slurm, gang), lambda job: "RUNNING" in job.states, within=100)
    [node] = (await slurm.client.grant(gang, "alice")).nodes
    assert (node.cpus, node.memory_mib, node.gres["gpu"]) == (12, 12 * 101, 8)


EACH_NODE_TWO = {"tasks_per_node": 2, "min_nodes": 3, "max_nodes": 3}
# Tasks and layout of the gang, the CPUs of each pod before and after the change, the CPUs that are granted on each node.
CHANGED_CPUS: dict[str, tuple[int, dict[str, int], int, int, list[int]]] = {
    "more": (3, {}, 4, 20, [60, 0, 0]),
    "fewer": (3, {}, 20, 4, [12, 0, 0]),
    "fewer-on-each-node": (6, EACH_NODE_TWO, 20, 4, [8, 8, 8]),
    "more-on-each-node": (6, EACH_NODE_TWO, 4, 20, [40, 40, 40]),
}


@pytest.mark.parametrize("change", CHANGED_CPUS)
async def test_a_waiting_gang_gets_its_changed_cpus_alone(slurm: Slurm, change: str) -> None:
    """As many as a new job with the same numbers."""
    tasks, options, before, after, granted_cpus = CHANGED_CPUS[change]
    full = await slurm.client.allocate_now(slurm.gang("full", 3, tasks_per_node=1, cpus_per_task=slurm.place.cpus))
    gang = await slurm.client.submit(slurm.gang("gang", tasks, cpus_per_task=before, **options))
    await slurm.until(lambda: read(slurm, gang), lambda job: job.reason == "Resources", within=100)
    changed = slurm.gang("gang", tasks, cpus_per_task=after, **options)
    await slurm.client.update(gang, "alice", changed, frozenset({"cpus_per_task"}))
    await slurm.end(full)
    await slurm.client.nudge(gang, "alice")
    await slurm.until(lambda: read(slurm, gang), lambda job: "RUNNING" in job.states, within=100)
    assert cpus(await slurm.client.grant(gang, "alice"), slurm) == granted_cpus


async def test_a_failed_node_ends_the_whole_gang(slurm: Slurm) -> None:
    gang = await slurm.client.allocate_now(slurm.gang("gang", 3, tasks_per_node=1))
    await slurm.admin("POST", f"node/{slurm.places[1].name}", {"state": ["DOWN"], "reason": "contract"})
    try:
        job = await slurm.until(lambda: read(slurm, gang), lambda job: "NODE_FAIL" in job.states, within=100)
        assert "RUNNING" not in job.states
    finally:
        await slurm.admin("POST", f"node/{slurm.places[1].name}", {"state": ["RESUME"]})


REFUSALS = {
    "more-than-the-nodes-have": ({"tasks": 4, "tasks_per_node": 1}, 2014, "configuration is not available"),
    "a-task-wider-than-a-node": ({"tasks": 2, "cpus_per_task": 65}, 2014, "configuration is not available"),
    "devices-no-node-has": ({"tasks": 2, "gres": (("gpu", 9),)}, 2014, "configuration is not available"),
    "more-than-the-cluster-has": ({"tasks": 512, "cpus_per_task": 60}, 2005, "More processors requested"),
    "fewer-tasks-than-nodes": ({"tasks": 2, "min_nodes": 3}, 2025, "Task count specification invalid"),
    "gres-unknown": ({"tasks": 2, "gres": (("foo", 1),)}, 2072, "Invalid generic resource"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_an_impossible_gang_is_refused_with_slurms_number_and_text(slurm: Slurm, case: str) -> None:
    options, number, text = REFUSALS[case]
    with pytest.raises(Invalid, match=text) as caught:
        await slurm.client.submit(slurm.gang("refused", **options))
    assert caught.value.number == number


async def test_exactly_the_nodes_that_are_required_are_granted_or_none(slurm: Slurm) -> None:
    """After slurmctld has lost a job, the bridge requires exactly the nodes on which its pods run (S7)."""
    _, second, third = (place.name for place in slurm.places)
    grant = await granted(slurm, "one", 1, required_nodes=third)
    assert [node.name for node in grant.nodes] == [third]
    two = {"required_nodes": f"{second},{third}", "min_nodes": 2, "max_nodes": 2}
    grant = await granted(slurm, "two", 3, **two)
    assert [node.name for node in grant.nodes] == [second, third]
    await granted(slurm, "full", 1, required_nodes=second, cpus_per_task=slurm.place.cpus - 2)
    with pytest.raises(Exhausted):
        await granted(slurm, "no room", 1, required_nodes=second, cpus_per_task=2)


async def test_a_node_that_slurm_does_not_know_cannot_be_required(slurm: Slurm) -> None:
    with pytest.raises(Invalid) as caught:
        await granted(slurm, "gone", 1, required_nodes="nowhere")
    assert caught.value.number == 2018
