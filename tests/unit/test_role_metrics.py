"""Metrics of a bridge that waits for its clusters, leads, and stands by again: what alerts about them see."""

from __future__ import annotations

import re
from pathlib import Path

from bridge.kube.lease import PROCESS
from tests.unit.doctor.clusters import Both
from tests.unit.processes import Process, running, until
from tests.unit.test_starting import Servers, waits

LEASE = {"namespace": "hpc", "name": "slurm-bridge", "identity": "a"}
OF_A_LEADER = {"slurm_bridge_policy_rejected", "slurm_bridge_namespaces_lacking_rights", "slurm_bridge_jobs_held_back"}


async def shown(bridge: Process) -> dict[str, float]:
    """The value of each metric that has one series."""
    _, text = await bridge.get("/metrics")
    found = re.findall(r"^(slurm_bridge_\w+)(?:\{otel_[^}]*\})? ([\d.e+-]+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


async def test_a_bridge_that_waits_for_its_clusters_shows_that_nobody_leads(tmp_path: Path) -> None:
    """SlurmBridgeNoLeader compares with 0, so it did not see a bridge without the series; no other alert saw it either."""
    servers = Servers(tmp_path)
    async with running(tmp_path, servers.options) as bridge:
        await waits(bridge, "slurm_url")
        assert (await shown(bridge))["slurm_bridge_leader"] == 0
        async with servers.slurm(), servers.kubernetes():
            await until(bridge.is_ready, "the bridge is ready")
            assert (await shown(bridge))["slurm_bridge_leader"] == 1


async def test_a_replica_that_stands_by_again_shows_nothing_that_only_a_leader_keeps_up_to_date(tmp_path: Path) -> None:
    """Its settings file was wrong while it led, and was mended later: the alert about the file would never have ended."""
    both = Both(tmp_path)
    async with both.served() as options, running(tmp_path, options, lease=LEASE) as bridge:
        await until(bridge.is_ready, "the bridge is ready")
        settings = tmp_path / "run.yaml"
        settings.write_text(settings.read_text().replace("user: alice", "user: 7 8"))

        async def is_rejected() -> bool:
            return (await shown(bridge)).get("slurm_bridge_policy_rejected") == 1

        await until(is_rejected, "the file is rejected")
        assert (await shown(bridge)).keys() >= OF_A_LEADER
        _takes_the_lease(both)

        async def stands_by() -> bool:
            return "standby, b leads" in (await bridge.get("/readyz"))[1]

        await until(stands_by, "it stands by")
        values = await shown(bridge)
        assert values["slurm_bridge_leader"] == 0
        assert values.keys() & OF_A_LEADER == set()


def _takes_the_lease(both: Both) -> None:
    lease = both.kube.store.get("leases", "hpc", "slurm-bridge")
    assert lease is not None
    metadata = {**lease["metadata"], "annotations": {PROCESS: "of-b"}}
    spec = {**lease["spec"], "holderIdentity": "b", "leaseDurationSeconds": 60}
    both.kube.store.put("leases", {**lease, "metadata": metadata, "spec": spec})
