"""Faults: the bridge is killed, slurmctld stops.  Nothing is lost or doubled, and the bridge recovers by itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually, frozen, stopped

Space = Callable[[str], str]


def test_killed_in_the_middle_of_a_burst_no_pod_is_lost_and_no_job_doubled_or_leaked(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess
) -> None:
    ns = space("alice")
    for number in range(60):
        kube.run(ns, f"p{number}")
        if number == 30:
            eventually("some have jobs, so it is in the middle", lambda: slurm.live(f"{ns}/"))
            bridge.kill()
    bridge.start()
    bound = eventually("all 60 are bound", lambda: len(found := kube.bound(ns)) == 60 and found)

    def settled() -> bool:
        names = Counter(job["name"] for job in slurm.live(f"{ns}/"))
        return len(names) == 60 and set(names.values()) == {1}

    eventually("one live job a pod", settled)
    live = {job["job_id"]: job for job in slurm.live(f"{ns}/")}
    for pod in bound:
        job = live[int(pod.metadata.annotations[PREFIX + "job-id"])]
        assert job["nodes"] == pod.spec.node_name
        assert "RUNNING" in job["job_state"]


def test_a_restart_leaves_running_pods_in_peace(kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess) -> None:
    ns = space("alice")
    for number in range(5):
        kube.run(ns, f"p{number}")
    eventually("all run", lambda: len(kube.bound(ns)) == 5)
    before = {pod.metadata.uid for pod in kube.bound(ns)}
    bridge.kill()
    kube.core.delete_namespaced_pod("p0", ns)  # ends while nobody watches
    bridge.start()
    eventually("the job of the one that ended is gone", lambda: len(slurm.live(f"{ns}/")) == 4)
    after = {pod.metadata.uid for pod in kube.bound(ns)}
    assert len(after) == 4
    assert after < before


def test_slurmctld_stopped_for_half_a_minute(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess, own_rig: None
) -> None:
    ns = space("alice")
    for number in range(4):
        kube.run(ns, f"before{number}")
    eventually("they run", lambda: len(kube.bound(ns)) == 4)
    uids = {pod.metadata.uid for pod in kube.bound(ns)}
    with stopped("slurmctld"):
        eventually("the bridge says so", lambda: bridge.ask("readyz")[0] == 503)
        kube.run(ns, "meanwhile")
        said = eventually("the waiting pod says so", lambda: kube.said(ns, "meanwhile"))
        assert "SlurmUnavailable" in said
        kube.core.delete_namespaced_pod("before0", ns)
        down_until = time.monotonic() + 30
        eventually("half a minute has passed", lambda: time.monotonic() > down_until)
        assert {pod.metadata.uid for pod in kube.bound(ns)} < uids, "nobody else was harmed"
    eventually("slurmctld answers", slurm.responding)
    eventually("what waited is bound", lambda: "meanwhile" in {p.metadata.name for p in kube.bound(ns)})
    eventually("what ended meanwhile has no job", lambda: not slurm.live(f"{ns}/before0~"))
    assert len(kube.bound(ns)) == 4
    assert len(slurm.live(f"{ns}/")) == 4
    assert bridge.ready()


@pytest.mark.parametrize(
    "outage", [lambda: stopped("slurmdbd"), lambda: frozen("mariadb")], ids=["slurmdbd is stopped", "MariaDB is frozen"]
)
def test_slurmdbd_away_for_a_minute_under_work_and_at_a_start(
    outage: Callable[[], AbstractContextManager[None]],
    kube: Kube,
    slurm: Slurm,
    space: Space,
    bridge: BridgeProcess,
    own_rig: None,
) -> None:
    """Pods come, run and end as ever; accounting learns of their ends when slurmdbd is back.

    While its database is frozen, slurmdbd accepts connections and does not answer.
    """
    ns = space("alice")
    kube.run(ns, "stays")
    kube.run(ns, "ends-meanwhile")
    eventually("they run", lambda: len(kube.bound(ns)) == 2)
    ended = slurm.live(f"{ns}/ends-meanwhile~")[0]["job_id"]
    with outage():
        away_until = time.monotonic() + 60
        eventually("the bridge says so and is ready", lambda: _says_that_accounting_is_away(bridge), within_s=45)
        kube.core.delete_namespaced_pod("ends-meanwhile", ns)
        eventually("its job has ended", lambda: not slurm.live(f"{ns}/ends-meanwhile~"))
        kube.run(ns, "comes-meanwhile")
        eventually("it is bound", lambda: "comes-meanwhile" in {pod.metadata.name for pod in kube.bound(ns)})
        bridge.kill()
        bridge.start()
        eventually("the next process says so, too", lambda: _says_that_accounting_is_away(bridge))
        kube.run(ns, "comes-to-the-next-process")
        eventually("it is bound", lambda: "comes-to-the-next-process" in {pod.metadata.name for pod in kube.bound(ns)})
        last = slurm.live(f"{ns}/comes-meanwhile~")[0]["job_id"]
        eventually("it acts on what it finds", lambda: bridge.ask("readyz")[0] == 200)
        kube.core.delete_namespaced_pod("comes-meanwhile", ns)
        eventually("that job has ended, too", lambda: not slurm.live(f"{ns}/comes-meanwhile~"))
        eventually("a minute has passed", lambda: time.monotonic() > away_until)
        assert "stays" in {pod.metadata.name for pod in kube.bound(ns)}
    eventually("all is well", lambda: bridge.ask("readyz") == (200, "ok\n"))
    eventually(
        "accounting learns what it had not been told",
        lambda: (record := slurm.accounted(last)) and f"{ns}/comes-meanwhile" in record["comment"]["job"],
        within_s=60,
    )
    assert slurm.accounted(ended), "slurmctld itself told of that one"


def _says_that_accounting_is_away(bridge: BridgeProcess) -> bool:
    status, said = bridge.ask("readyz")
    return status == 200 and "slurmdbd does not answer" in said
