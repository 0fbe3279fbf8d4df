"""slurmctld comes back and does not know its newest jobs: no pod is ended for that until an admin confirms (S7, X6)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from integration.clusters import BridgeProcess, Kube, Slurm, back_to, eventually, replica_set, saved_jobs

Space = Callable[[str], str]
KEPT, LOST = 4, 44  # together more than are believed to be gone at once; of the lost more than are ended in a second
TAKEN = "k1"
RATE, AT_ONCE = 20.0, 20
SLACK_S = 0.5


@pytest.mark.usefixtures("own_rig")
def test_what_slurmctld_lost_is_taken_again_or_held_back_until_an_admin_releases_it(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess
) -> None:
    without_these = saved_jobs()
    eventually("slurmctld answers", slurm.responding)
    ns = space("alice")
    kept = _on("k2", kube, ns, "kept", KEPT)
    lost = _on(TAKEN, kube, ns, "lost", LOST)
    before = {pod.metadata.uid: pod.metadata.name for pod in kube.bound(ns)}
    with bridge.paused():
        back_to(without_these)
        eventually("slurmctld answers", slurm.responding)
        node = {"required_nodes": [TAKEN], "shared": ["none"]}
        somebody = eventually("somebody has the node", lambda: slurm.submit("carol", name="native", **node))
        eventually("he has it", lambda: "RUNNING" in slurm.job(somebody)["job_state"])
    try:
        _are_held_back(kube, slurm, ns, bridge, kept, lost)
        assert {pod.metadata.uid for pod in kube.bound(ns)} == before.keys(), "nobody was ended"
        _are_released(kube, ns, bridge, lost)
        left = {pod.metadata.uid for pod in kube.bound(ns)}
        assert set(kept) <= left, "those that have a job again live on"
        assert "RUNNING" in slurm.job(somebody)["job_state"]
    finally:
        slurm.cancel(somebody)
    eventually("the controller's new pods run", lambda: len(kube.bound(ns)) == KEPT + LOST)
    eventually("all is well", bridge.ready)


def _on(node: str, kube: Kube, ns: str, name: str, count: int) -> list[str]:
    """UIDs of so many pods of a controller, running there."""
    where = {"nodeSelector": {"kubernetes.io/hostname": node}}
    kube.apps.create_namespaced_replica_set(ns, replica_set(name, count, spec=where))

    def bound() -> list[Any]:
        there = [pod for pod in kube.bound(ns) if pod.metadata.labels["app"] == name]
        return there if len(there) == count else []

    return [pod.metadata.uid for pod in eventually(f"{name} runs", bound)]


def _are_held_back(kube: Kube, slurm: Slurm, ns: str, bridge: BridgeProcess, kept: list[str], lost: list[str]) -> None:
    """Announced on each pod, in the log, in /readyz and in the metrics; those whose nodes are free have a job again."""
    by_uid = {pod.metadata.uid: f"{ns}/{pod.metadata.name}" for pod in kube.pods(ns)}

    def have_jobs() -> set[str]:
        return {job["name"].partition("~")[0] for job in slurm.live(f"{ns}/")}

    def are_told() -> bool:
        events = kube.core.list_namespaced_event(ns, field_selector="reason=SlurmJobMissing").items
        return set(lost) <= {each.involved_object.uid for each in events}

    eventually("the others are told", are_told)
    eventually("who can be kept is", lambda: have_jobs() == {by_uid[uid] for uid in kept})
    status, why = bridge.ask("readyz")
    assert status == 503
    assert "Slurm no longer lists" in why
    assert "jobs: no pod is ended for it" in why
    assert "no pod is ended for it. If they are gone: slurm-bridge release" in bridge.log.read_text()
    assert re.search(
        r'slurm_bridge_observations_rejected_total\{.*reason="mass absence"\} [1-9]', bridge.ask("metrics")[1]
    )


def _are_released(kube: Kube, ns: str, bridge: BridgeProcess, lost: list[str]) -> None:
    """By the admin's command; no faster than they may be."""
    url = f"http://127.0.0.1:{bridge.port}"
    command = [sys.executable, "-m", "bridge", "release", "--bridge", url]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "jobs count as gone. If Slurm does not grant" in said

    def living() -> set[str]:
        return {pod.metadata.uid for pod in kube.bound(ns) if pod.metadata.deletion_timestamp is None}

    eventually("they are ended", lambda: not living() & set(lost))
    began = _when_it_ended(ns, bridge)
    took = began[-1] - began[0]
    assert len(began) == LOST
    for count, at in enumerate(began, 1):
        assert count <= AT_ONCE + RATE * (at - began[0] + SLACK_S)
    assert took >= (LOST - AT_ONCE) / RATE - SLACK_S
    print(f"release: {LOST} pods were ended within {took:.1f} s")


def _when_it_ended(ns: str, bridge: BridgeProcess) -> list[float]:
    """By the bridge's own log, epoch seconds: what the machine does besides makes these no closer."""
    ended = [line for line in bridge.log.read_text().splitlines() if f" DeletePod {ns}/lost-" in line]
    return [datetime.fromisoformat(line[:23].replace(",", ".")).timestamp() for line in ended]
