"""Slurm's side answers wrongly for a while, and the bridge is killed in the middle of it: nobody is harmed (V7, X1, X5, X6).

`make torture` alone runs these, on a rig of their own; TORTURE_S says for how many seconds each fault lasts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from integration.clusters import BridgeProcess, Kube, Slurm, eventually
from integration.proxy import FAULTS, FaultProxy

Space = Callable[[str], str]
LASTS_S = float(os.environ.get("TORTURE_S", "20"))
PODS = 14  # more than are believed to be gone at once
RECOVERS_S = 5.0


@pytest.fixture(scope="module")
def proxy(slurm: Slurm, bridge: BridgeProcess) -> Iterator[FaultProxy]:
    """It stands between the bridge and slurmrestd for all of these."""
    with FaultProxy(slurm.url) as between, bridge.with_settings(slurm_url=between.url):
        yield between
        between.fault = ""


@pytest.mark.parametrize("fault", FAULTS)
def test_nobody_is_harmed_and_all_goes_on_within_seconds(
    fault: str, proxy: FaultProxy, kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess
) -> None:
    ns = space("alice")
    for number in range(PODS):
        kube.run(ns, f"p{number}")
    before = {pod.metadata.uid: pod.spec.node_name for pod in eventually("all run", lambda: _all_bound(kube, ns))}
    jobs = {job["job_id"] for job in slurm.live(f"{ns}/")}
    foreign = [slurm.submit("carol", name="native"), slurm.submit("alice", name="interactive")]
    try:
        met, proxy.fault = proxy.seen, fault
        _for_a_while(LASTS_S / 2, lambda: _unharmed(kube, slurm, ns, before, foreign))
        bridge.kill()
        bridge.launch()  # one that looks at such a Slurm at its start may say so and end: somebody starts it again
        _for_a_while(LASTS_S / 2, lambda: _unharmed(kube, slurm, ns, before, foreign))
        assert proxy.seen > met, "the bridge asked meanwhile"
        proxy.fault = ""
        if not bridge.runs:
            bridge.start()
        kube.run(ns, "after")
        eventually("it goes on", lambda: len(kube.bound(ns)) == PODS + 1, within_s=RECOVERS_S)
        _unharmed(kube, slurm, ns, before, foreign)
        assert {job["job_id"] for job in slurm.live(f"{ns}/")} > jobs, "each runs in the job that it had"
    finally:
        proxy.fault = ""
        for job in foreign:
            slurm.cancel(job)
        if not bridge.runs:
            bridge.start()


def _all_bound(kube: Kube, ns: str) -> list[object]:
    bound = kube.bound(ns)
    return bound if len(bound) == PODS else []


def _unharmed(kube: Kube, slurm: Slurm, ns: str, before: dict[str, str], foreign: list[int]) -> None:
    """The same pods on the same nodes, none of them on its way out; the jobs of others live."""
    now = {pod.metadata.uid: pod for pod in kube.pods(ns)}
    assert before.keys() <= now.keys(), "no pod is deleted"
    for uid, node in before.items():
        assert now[uid].spec.node_name == node
        assert now[uid].metadata.deletion_timestamp is None
        assert now[uid].spec.active_deadline_seconds is None
    for job in foreign:
        assert {"RUNNING", "PENDING"} & set(slurm.job(job)["job_state"])


def _for_a_while(seconds: float, still: Callable[[], None]) -> None:
    """It holds all the while."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        still()
        time.sleep(0.5)  # how often it is looked at, not how long it takes
