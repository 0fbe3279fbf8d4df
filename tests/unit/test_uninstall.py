"""`slurm-bridge uninstall` as an admin types it: what it would do, whom it does not fight, and what it says when it ends."""

from __future__ import annotations

import signal
from pathlib import Path

from bridge.simulation.kube import objects
from tests.patience import PATIENCE_S
from tests.unit.doctor.clusters import Both
from tests.unit.processes import create_pod, running, until
from tests.unit.test_starting import Servers, waits

LEASE = {"namespace": "hpc", "name": "slurm-bridge"}


async def is_bound(both: Both, name: str) -> bool:
    """To a node; the pod then runs without end."""
    found = both.kube.store.get("pods", "hpc", name)
    ends = found is None or "deletionTimestamp" in found["metadata"] or "activeDeadlineSeconds" in found["spec"]
    return not ends and bool(found["spec"].get("nodeName"))


async def test_a_dry_run_says_what_would_be_done_and_changes_nothing_beside_a_bridge_that_runs(tmp_path: Path) -> None:
    both = Both(tmp_path)
    async with both.served() as options, running(tmp_path, options) as bridge:
        await until(bridge.is_ready, "the bridge is ready")
        await create_pod(options, objects.pod("hpc", "train"))
        await until(lambda: is_bound(both, "train"), "the pod is bound")
        async with running(tmp_path, options, command=("uninstall", "--dry-run", "--end-pods")) as dry:
            assert await dry.ends(PATIENCE_S) == 0, dry.log
        [job] = both.slurm.jobs.values()
        assert not job.ended
        assert await is_bound(both, "train")
    first, *lines = dry.log.splitlines()
    assert first == "slurm-bridge uninstall would:"
    assert any("end pod hpc/train on node" in line and f"(Slurm job {job.id})" in line for line in lines), dry.log


async def test_a_bridge_that_renews_the_lease_is_not_fought(tmp_path: Path) -> None:
    both = Both(tmp_path)
    async with both.served() as options, running(tmp_path, options, lease={**LEASE, "identity": "a"}) as bridge:
        await until(bridge.is_ready, "the bridge is ready")
        async with running(tmp_path, options, command=("uninstall",), lease={**LEASE, "identity": "a"}) as second:
            assert await second.ends(PATIENCE_S) == 2, second.log
        assert await bridge.is_ready()
    last = second.log.splitlines()[-1]
    assert last == (
        "slurm-bridge: a holds the lease hpc/slurm-bridge and renews it, so a bridge is running. Stop it first: "
        "kubectl --namespace=hpc scale deployment/slurm-bridge --replicas=0"
    )


async def test_clusters_that_are_away_are_waited_for_and_who_stops_it_reads_that_it_is_not_done(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    async with running(tmp_path, servers.options, command=("uninstall",)) as uninstall:
        await waits(uninstall, "slurm_url")
        uninstall.process.send_signal(signal.SIGTERM)
        assert await uninstall.ends(PATIENCE_S) == 1
    assert "slurm-bridge: stopped before everything was removed. Start the command again to continue." in uninstall.log
    assert "Traceback" not in uninstall.log


async def test_where_nothing_was_it_says_so(tmp_path: Path) -> None:
    both = Both(tmp_path)
    how = ("uninstall", "--wait")
    async with both.served() as options, running(tmp_path, options, command=how, lease=LEASE) as uninstall:
        assert await uninstall.ends(PATIENCE_S) == 0, uninstall.log
    assert "Nothing of slurm-bridge is left in Slurm and on the nodes of Kubernetes." in uninstall.log
    assert "may take effect" in uninstall.log, "the quiet period"
    assert "Traceback" not in uninstall.log
