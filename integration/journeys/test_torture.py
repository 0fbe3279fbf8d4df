"""Slurm's side answers wrongly for a while, and the bridge is killed in the middle of it: nobody is harmed (V7, X1, X5, X6).

TORTURE_S says for how many seconds each fault lasts: 8 among the other journeys, a minute in `make torture`.  TORTURE_ALONE=1
(`make torture` sets it): the bridge has to be back sooner, because no other suite runs on this machine.  What a fault leaves
behind is what the next one finds: the same pods stand through all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration.clusters import ENDED, PREFIX, BridgeProcess, Kube, Slurm, eventually, pod, replica_set
from integration.proxy import FAULTS, FaultProxy
from integration.torture import IS_ALONE

LASTS_S = float(os.environ.get("TORTURE_S", "8"))
ALONE, OF_A_BATCH_JOB, OF_A_SERVICE = 4, 5, 5
PODS = ALONE + OF_A_BATCH_JOB + OF_A_SERVICE
NS = "alice-torture"
# Alone on its machine the bridge has to be back within these times; among all other suites it has to be back.
RECOVERS_S, STARTS_S = (5.0, 5.0) if IS_ALONE else (60.0, 0.0)

Stand = dict[str, tuple[str, str]]  # pod UID to its node and its job


@pytest.fixture(scope="module")
def proxy(slurm: Slurm, bridge: BridgeProcess) -> Iterator[FaultProxy]:
    """A proxy between the bridge and slurmrestd, for all tests of this file."""
    with FaultProxy(slurm.url) as between, bridge.with_settings(slurm_url=between.url):
        yield between


@pytest.fixture(scope="module")
def crowd(kube: Kube, slurm: Slurm, proxy: FaultProxy) -> Iterator[None]:
    """Pods of all three kinds: those that have a controller are the ones that would be deleted."""
    kube.namespace(NS)
    for number in range(ALONE):
        kube.run(NS, f"alone{number}")
    kube.batch.create_namespaced_job(NS, _batch_job("batch", OF_A_BATCH_JOB))
    kube.apps.create_namespaced_replica_set(NS, replica_set("service", OF_A_SERVICE))
    eventually("all run", lambda: len(_stand(kube)) == PODS)
    yield
    kube.remove(NS)
    eventually("no job of theirs is left", lambda: not slurm.live(f"{NS}/"))


@pytest.fixture
def foreign(slurm: Slurm) -> Iterator[list[int]]:
    """Jobs of a stranger, and of a user of ours by his own hand."""
    jobs = [slurm.submit("carol", name="native"), slurm.submit("alice", name="interactive")]
    yield jobs
    for job in jobs:
        slurm.cancel(job)


@pytest.mark.usefixtures("crowd")
@pytest.mark.parametrize("fault", FAULTS)
def test_no_pod_or_job_is_ended_by_a_faulty_answer_and_new_pods_are_bound_soon_after(
    fault: str, proxy: FaultProxy, kube: Kube, slurm: Slurm, bridge: BridgeProcess, foreign: list[int]
) -> None:
    before = _stand(kube)
    assert len(before) >= PODS, "more than are believed to be gone at once"

    def unharmed() -> None:
        if not bridge.runs:  # it may say at its start that this is no Slurm, and end: its supervisor starts it again
            bridge.launch()
        _assert_unharmed(kube, slurm, before, foreign)

    def goes_on_with(name: str, within_s: float) -> float:
        """The seconds from the end of the fault until a new pod is bound."""
        healed = time.monotonic()
        kube.run(NS, name)

        def is_bound() -> bool:
            unharmed()
            return bool(kube.pod(NS, name).spec.node_name)

        eventually("a new pod is bound", is_bound, within_s=within_s)
        return time.monotonic() - healed

    met, number = proxy.seen, list(FAULTS).index(fault)
    with proxy.broken(fault):
        _for_a_while(LASTS_S / 2, unharmed)
    took = goes_on_with(f"after-{number}", RECOVERS_S)
    with proxy.broken(fault):
        bridge.kill()
        bridge.launch()
        _for_a_while(LASTS_S / 2, unharmed)
    again = goes_on_with(f"again-{number}", STARTS_S + RECOVERS_S)
    print(
        f"torture: {fault}, {LASTS_S:g} s: {proxy.seen - met} requests met it; a new pod is bound {took:.1f} s after it, "
        f"and {again:.1f} s where the bridge was killed meanwhile"
    )
    eventually("the bridge says that it is ready", bridge.ready)
    _assert_unharmed(kube, slurm, before, foreign)
    names = [job["name"] for job in slurm.live(f"{NS}/")]
    assert len(set(names)) == len(names) >= len(before) + 2, "each has one job, and nobody has two"


def _batch_job(name: str, parallelism: int) -> dict[str, Any]:
    template = pod(name)
    del template["metadata"]["name"]
    return {"metadata": {"name": name}, "spec": {"parallelism": parallelism, "template": template, "backoffLimit": 0}}


def _stand(kube: Kube) -> Stand:
    """The node and the job of each running pod."""
    return {
        each.metadata.uid: (each.spec.node_name, each.metadata.annotations[PREFIX + "job-id"])
        for each in kube.bound(NS)
        if each.status.phase == "Running"
    }


def _assert_unharmed(kube: Kube, slurm: Slurm, before: Stand, foreign: list[int]) -> None:
    """The same pods on the same nodes in the same jobs, none of them on its way out; the jobs of others live."""
    now = {each.metadata.uid: each for each in kube.pods(NS)}
    assert before.keys() <= now.keys(), "no pod is deleted"
    states = {job["job_id"]: set(job["job_state"]) for job in slurm.jobs()}
    for uid, (node, job) in before.items():
        assert now[uid].spec.node_name == node
        assert now[uid].status.phase == "Running"
        assert now[uid].metadata.deletion_timestamp is None
        assert now[uid].spec.active_deadline_seconds is None
        assert "RUNNING" in states[int(job)]
    for job_id in foreign:
        assert not ENDED & states[job_id]


def _for_a_while(seconds: float, still: Callable[[], None]) -> None:
    """Asserts *still* again and again for some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        still()
        time.sleep(0.5)  # how often it is looked at, not how long it takes
