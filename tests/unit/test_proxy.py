"""The proxy of the torture journeys sends the faults that its table names, and the client classifies each as it should."""

from __future__ import annotations

import time

import pytest

from bridge.errors import ContractError, RemoteError, Unanswered
from bridge.simulation.http import serve_slurm
from bridge.simulation.slurm.cluster import SlurmCluster
from bridge.slurm.client import SlurmClient
from bridge.slurm.pool import HttpPool
from bridge.slurm.token import LiteralToken
from integration.proxy import FAULTS, FaultProxy
from scheduler.model.slurm import JobSpec

IDS = {1, 2, 3, 4}
EXPECTED: dict[str, set[int] | type[RemoteError]] = {
    "": IDS,
    "404 for everything": ContractError,
    "500 for everything": Unanswered,
    "no job at all": set(),
    "half of the jobs": {1, 3},
    "no answer": Unanswered,
    "every answer twice": IDS,
}


async def test_each_fault_is_what_its_name_says_and_passes_when_it_is_over() -> None:
    cluster = SlurmCluster.example(external=2, slurmd=0, stock=False, started=time.time())
    tokens = LiteralToken(cluster.token("slurm"))
    assert EXPECTED.keys() == FAULTS.keys() | {""}
    async with serve_slurm(cluster, time.time) as url:
        with FaultProxy(url) as proxy:
            unsolicited: list[str] = []
            async with HttpPool(proxy.url, on_unsolicited=lambda: unsolicited.append(proxy.fault)) as pool:
                client = SlurmClient(pool, tokens, deadline_s=1.0)
                await client.discover()
                for number in IDS:
                    await client.submit(JobSpec(f"ns/p{number}~k.k", "alice", 1, 100))
                for fault, expected in EXPECTED.items():
                    proxy.fault = fault
                    if isinstance(expected, set):
                        assert set(await client.states()) == expected, fault
                        assert set(await client.states()) == expected, fault
                    else:
                        with pytest.raises(expected):
                            await client.states()
                    proxy.fault = ""
                    assert set(await client.states()) == IDS, fault
            assert set(unsolicited) == {"every answer twice"}
