"""Two bridges of one Kubernetes cluster on one Slurm, each with a schedulerName of its own (docs/scale.md).

Neither touches what is the other's: jobs, pods, nodes that the other registered.  What both share, nodes that both clusters
have anyway, they keep in the same state without overwriting each other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, condition, eventually
from integration.journeys.conftest import POLICY
from scheduler import names

Space = Callable[[str], str]
FIRST, SECOND = names.SCHEDULER_NAME, "second-bridge"
PODS, RING = 30, 4  # of each bridge
POLLS = 5
QUICK = {"nodes_interval_s": 1, "tuning": {"node_settle_s": 1, "node_gone_s": 2, "node_retry_s": 5}}


@pytest.fixture(scope="module")
def both(
    slurm: Slurm, kube: Kube, bridge: BridgeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, BridgeProcess]]:
    """Both bridges, by schedulerName."""
    settings = {
        "slurm_url": slurm.url,
        "slurm_token_file": slurm.token_file,
        "policy": POLICY,
        "scheduler_name": SECOND,
    }
    second = BridgeProcess(settings | QUICK, tmp_path_factory.mktemp("second"), kube.kubeconfig)
    with bridge.with_settings(**QUICK):
        second.start()
        yield {FIRST: bridge, SECOND: second}
        assert second.stop() == 0
    assert "Another slurm-bridge" not in second.log.read_text() + bridge.log.read_text()


def test_under_load_each_bridge_has_its_own_jobs_and_pods(
    kube: Kube, slurm: Slurm, space: Space, both: dict[str, BridgeProcess]
) -> None:
    ns = space("alice")
    for number in range(PODS):
        for scheduler in (FIRST, SECOND):
            kube.run(ns, f"{scheduler}-{number}", cpu="1", scheduler=scheduler)
    for scheduler in (FIRST, SECOND):
        for number in range(RING):
            ring = {"labels": {PREFIX + "gang": f"ring-{scheduler}"}, "says": {"gang-size": str(RING)}}
            kube.run(ns, f"{scheduler}-ring-{number}", scheduler=scheduler, **ring)
    eventually("all are bound", lambda: len(kube.bound(ns)) == 2 * (PODS + RING))
    each_has_its_own(kube, slurm, ns)

    second = both[SECOND]
    second.kill()
    theirs = {f"{SECOND}-{number}": job_of(kube, ns, f"{SECOND}-{number}") for number in range(4)}
    over, orphaned = list(theirs)[:2], list(theirs)[2:]
    for name in over:
        kube.succeed(ns, name)
    for name in orphaned:
        slurm.cancel(theirs[name])
    # What the first one does about pods and jobs of its own that end afterwards shows that it has seen those ends.
    mine = [job_of(kube, ns, f"{FIRST}-{number}") for number in range(2)]
    kube.succeed(ns, f"{FIRST}-0")
    slurm.cancel(mine[1])
    eventually("the first one's job ends", lambda: "CANCELLED" in slurm.job(mine[0])["job_state"])
    eventually("the first one's pod is ended", lambda: is_ended(kube, ns, f"{FIRST}-1"))
    assert all("RUNNING" in slurm.job(theirs[name])["job_state"] for name in over)
    assert not any(is_ended(kube, ns, name) for name in orphaned)
    second.start()
    eventually("jobs of its pods that are over end", lambda: not any(alive(slurm, theirs[name]) for name in over))
    eventually("pods whose jobs are over end", lambda: all(is_ended(kube, ns, name) for name in orphaned))
    each_has_its_own(kube, slurm, ns)


def test_each_node_is_registered_and_shown_by_one_of_two_bridges(
    kube: Kube, slurm: Slurm, both: dict[str, BridgeProcess]
) -> None:
    name = "two1"
    kube.add_node(name, "192.0.2.77", 8, 16384, {PREFIX + "external-node": "true"})
    try:
        eventually("it is in service", lambda: shown(kube, name) == "True")
        marks = [each for each in slurm.node(name)["features"] if each.startswith(names.NODE_MARK)]
        assert len(marks) == 1
        assert_quiet(both)
        kube.core.patch_node(name, {"spec": {"unschedulable": True}})
        eventually("it is drained", lambda: shown(kube, name) == "False" and "DRAIN" in slurm.node(name)["state"])
        assert_quiet(both)
        kube.core.patch_node(name, {"metadata": {"labels": {PREFIX + "external-node": None}}})
        eventually("Slurm has it no more", lambda: name not in {each["name"] for each in slurm.nodes()})
        eventually("neither condition nor taint is left", lambda: shown(kube, name) == "" and not tainted(kube, name))
    finally:
        kube.core.delete_node(name)


def test_a_node_that_both_clusters_have_is_drained_once_and_shown_by_one_of_two_bridges(
    kube: Kube, slurm: Slurm, both: dict[str, BridgeProcess]
) -> None:
    [name, *_] = kube.external_nodes()
    eventually("it is shown", lambda: shown(kube, name) == "True")
    assert_quiet(both)
    kube.core.patch_node(name, {"spec": {"unschedulable": True}})
    try:
        eventually("it is drained", lambda: shown(kube, name) == "False" and "DRAIN" in slurm.node(name)["state"])
        assert_quiet(both)
    finally:
        kube.core.patch_node(name, {"spec": {"unschedulable": None}})
    eventually("it is in service", lambda: shown(kube, name) == "True" and "DRAIN" not in slurm.node(name)["state"])
    assert_quiet(both)


def each_has_its_own(kube: Kube, slurm: Slurm, ns: str) -> None:
    """Each bound pod runs in a job of its bridge, and no job is of two workloads or of none."""
    uid = kube.core.read_namespace("kube-system").metadata.uid
    jobs = {job["job_id"]: job for job in slurm.live(f"{ns}/")}
    workloads: Counter[tuple[int, str]] = Counter()
    for each in kube.bound(ns):
        if each.metadata.deletion_timestamp or int(each.metadata.annotations[names.JOB_ID]) not in jobs:
            continue  # its end is under way
        job = jobs[int(each.metadata.annotations[names.JOB_ID])]
        assert names.parse_job_name(job["name"])[0] == names.cluster_id(uid, each.spec.scheduler_name), job["name"]  # type: ignore[index]
        workloads[job["job_id"], (each.metadata.labels or {}).get(PREFIX + "gang", each.metadata.name)] += 1
    assert len({job_id for job_id, _ in workloads}) == len(workloads), "a job of two workloads"


def job_of(kube: Kube, ns: str, name: str) -> int:
    return int(kube.pod(ns, name).metadata.annotations[names.JOB_ID])


def alive(slurm: Slurm, job_id: int) -> bool:
    return "RUNNING" in slurm.job(job_id)["job_state"]


def is_ended(kube: Kube, ns: str, name: str) -> bool:
    found: dict[str, Any] = {each.metadata.name: each for each in kube.pods(ns)}
    each = found.get(name)
    return each is None or each.status.phase == "Failed" or condition(each, "DisruptionTarget") is not None


def shown(kube: Kube, node: str) -> str:
    """The status of the bridge's condition of the node; "": it has none."""
    found = condition(kube.core.read_node(node), names.IN_SLURM)
    return found.status if found is not None else ""


def tainted(kube: Kube, node: str) -> bool:
    return any(taint.key == names.MANAGED_TAINT for taint in kube.core.read_node(node).spec.taints or [])


def calls(process: BridgeProcess, operation: str) -> int:
    """The number of calls of that operation since the bridge started."""
    counts = re.findall(
        rf'slurm_bridge_call_seconds_count{{.*operation="{operation}".*}} (\S+)', process.ask("metrics")[1]
    )
    return int(sum(map(float, counts)))


def assert_quiet(both: dict[str, BridgeProcess]) -> None:
    """Neither bridge writes to a node while each polls Slurm's nodes a few times; the last writes may still be under way."""

    def writes() -> tuple[int, ...]:
        kinds = ("show node", "change_node", "register_node", "remove_node")
        return tuple(calls(process, kind) for process in both.values() for kind in kinds)

    def polls() -> list[int]:
        return [calls(process, "nodes") for process in both.values()]

    def stays() -> bool:
        before, polled = writes(), polls()
        eventually("both poll", lambda: all(now >= then + POLLS for now, then in zip(polls(), polled, strict=True)))
        return writes() == before

    assert stays() or stays(), "the bridges go on writing to nodes"
