"""Discovery of Slurm: versions, nodes, partitions; and servers that are not slurmrestd."""

from __future__ import annotations

import pytest

from bridge.errors import ContractError, Unauthorized
from bridge.slurm.token import LiteralToken
from bridge.slurm.wire import API_VERSIONS, ApiVersion
from tests.contract.slurm_subjects import Slurm

FUTURE, NOW, OLDER = ApiVersion("v0.0.99", "99.05"), *API_VERSIONS


async def test_the_newest_version_that_both_know_is_used(slurm: Slurm) -> None:
    found = await slurm.other(versions=(FUTURE, NOW, OLDER)).discover()
    assert (found.api, found.responding, found.accounting) == ("v0.0.45", True, True)
    assert found.version.startswith("26.05")
    assert found.cluster


async def test_an_older_version_is_used_where_the_newer_is_not_served(slurm: Slurm) -> None:
    found = await slurm.other(versions=(FUTURE, OLDER)).discover()
    assert (found.api, found.responding, found.accounting) == ("v0.0.44", True, True)


async def test_a_slurm_that_serves_no_known_version_is_reported_in_a_sentence(slurm: Slurm) -> None:
    with pytest.raises(ContractError, match=r"none of the API versions v0\.0\.99.*older than 99\.05"):
        await slurm.other(versions=(FUTURE,)).discover()


async def test_an_answer_of_another_server_is_not_mistaken_for_one_of_slurm(slurm: Slurm) -> None:
    with pytest.raises(ContractError, match="none of the API versions"):
        await slurm.other(prefix="/elsewhere").discover()


async def test_a_404_that_is_not_of_slurm_does_not_mean_that_a_job_is_gone(slurm: Slurm) -> None:
    client = slurm.other(versions=(NOW,))
    await client.discover()
    client._transport._prefix = "/elsewhere"  # type: ignore[attr-defined]  # from now on an ingress answers
    with pytest.raises(ContractError) as caught:
        await client.job(1)
    assert caught.value.number == 404


async def test_a_token_that_slurm_does_not_accept_is_reported_with_what_to_do(slurm: Slurm) -> None:
    client = slurm.other(tokens=LiteralToken("e30.eyJzdW4iOiJzbHVybSJ9.c2lnbmVkIGJ5IG5vYm9keQ"))
    await client.discover()  # a ping needs no rights
    with pytest.raises(
        Unauthorized, match=r"^Slurm: .*Slurm does not accept it, because .*Make another one: "
    ) as caught:
        await client.states()
    assert caught.value.number == 1007


async def test_an_expired_token_is_reported_with_its_age(slurm: Slurm) -> None:
    client = slurm.other(tokens=LiteralToken("e30.eyJzdW4iOiJzbHVybSIsImV4cCI6MX0.c2lnbmVkIGJ5IG5vYm9keQ"))
    await client.discover()
    with pytest.raises(Unauthorized, match=r"token in SLURM_JWT: expired \d+ days ago\. Renew it"):
        await client.states()


async def test_slurm_shows_if_its_controller_responds(slurm: Slurm) -> None:
    assert (await slurm.client.discover()).responding


async def test_nodes_are_read_with_their_resources(slurm: Slurm) -> None:
    nodes = {node.name: node for node in await slurm.client.nodes()}
    place = nodes[slurm.place.name]
    assert place.external
    assert "IDLE" in place.states
    assert place.cpus >= 4
    assert place.memory_mib >= 1024
    assert place.gres["gpu"] == place.gres["gpu:h100"] >= 4
    assert "gpu" in place.partitions


async def test_partitions_are_read_with_their_longest_time_and_which_is_the_default(slurm: Slurm) -> None:
    partitions = {partition.name: partition for partition in await slurm.client.partitions()}
    assert [name for name, partition in partitions.items() if partition.default] == ["main"]
    assert partitions["main"].max_time_min is None
    assert partitions["short"].max_time_min == 5
    assert partitions["gpu"].up


async def test_an_older_version_shows_the_same_except_the_default_partition(slurm: Slurm) -> None:
    client = slurm.other(versions=(OLDER,))
    await client.discover()
    assert await client.nodes() == await slurm.client.nodes()
    partitions = await client.partitions()
    assert {p.name: p.max_time_min for p in partitions} == {
        p.name: p.max_time_min for p in await slurm.client.partitions()
    }
    assert not any(partition.default for partition in partitions)
