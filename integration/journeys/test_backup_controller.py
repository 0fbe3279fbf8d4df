"""Two slurmctlds (rigging/conf/uncounted.conf): the second one takes over when the first one is away, and gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually, rig, saved_jobs, slurm_says

WITHIN_S = 180.0  # SlurmctldTimeout, and what requests to the first one wait for


@pytest.fixture
def backup(own_rig: None) -> Iterator[None]:
    """A second slurmctld stands by; afterwards the first one acts again."""
    saved_jobs()  # the second one takes over only from what is saved
    rig("slurmctld-backup", "start")
    yield
    if "(primary) at rig is DOWN" in slurm_says("scontrol", "ping"):
        rig("slurmctld", "start")
    rig("slurmctld-backup", "stop")


@pytest.mark.usefixtures("backup")
def test_pods_run_on_while_a_backup_slurmctld_takes_over_and_gives_back(
    kube: Kube, slurm: Slurm, space: Callable[[str], str], bridge: BridgeProcess
) -> None:
    ns = space("alice")

    def jobs() -> dict[str, int]:
        return {pod.metadata.name: int(pod.metadata.annotations[PREFIX + "job-id"]) for pod in kube.bound(ns)}

    def bound(*names: str) -> dict[str, int]:
        for name in names:
            if name not in jobs():
                kube.run(ns, name)
        return eventually(f"{names} are bound", lambda: set(found := jobs()) == set(names) and found, within_s=WITHIN_S)

    first = bound("stays", "ends")
    saved_jobs()
    rig("slurmctld", "kill")
    second = bound("stays", "ends", "meanwhile")
    assert second.items() >= first.items()
    assert "(backup) at rig2 is UP" in slurm_says("scontrol", "ping")
    kube.succeed(ns, "ends")
    eventually("its job ends", lambda: second["ends"] not in {job["job_id"] for job in slurm.live(f"{ns}/")})
    kube.core.delete_namespaced_pod("ends", ns)
    eventually("the pod is gone", lambda: "ends" not in jobs())
    rig("slurmctld", "start")
    third = bound("stays", "meanwhile", "after")
    assert {name: third[name] for name in ("stays", "meanwhile")} == {
        name: second[name] for name in ("stays", "meanwhile")
    }
    eventually("the bridge is ready", bridge.ready)
    assert {job["job_id"] for job in slurm.live(f"{ns}/")} == set(third.values())
