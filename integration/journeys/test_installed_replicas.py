"""Two replicas as docs/operations.md installs them, in two pods on a real kubelet; then `slurm-bridge uninstall`.

Every command of the two sections is typed as it is written.  What stands for the registry, the URL and the scheduler of the
bridge's own pods: test_installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiException

from integration.checker import journal
from integration.clusters import PREFIX, Kube, Slurm, eventually, pod
from integration.documents import DOCS, lines
from integration.journeys.test_installed import INSTALLING, ON_THE_KUBELET, OWN, SPACE, all_namespaces, ready
from integration.journeys.test_installed import terminal as terminal
from integration.journeys.test_uninstall import CORDONED, NOTHING, drained, in_slurm, tainted
from integration.readme import Terminal

pytestmark = pytest.mark.usefixtures("no_bridge")
OPERATIONS = (DOCS / "operations.md").read_text(encoding="utf-8")
TWO_REPLICAS = OPERATIONS.split("\n## Two replicas\n")[1].split("\n## ")[0]
LEASE, PATCH = re.findall(r"^```yaml\n(.*?)^```$", TWO_REPLICAS, re.MULTILINE | re.DOTALL)
[APPLY, READY, HOLDER] = lines("operations.md", "Two replicas")
DRY_RUN, NO_POLICY, UNINSTALL, *FOLLOW, DELETE, UNBIND, UNLABEL, NO_NODES = lines("operations.md", "Uninstall")
REGISTER = lines("nodes.md", "")
NODE = "u1"
# Minutes are seconds, for nodes.
HURRY = "tuning: {node_settle_s: 1, node_retry_s: 5}\nnodes_interval_s: 1\n"


@pytest.fixture(scope="module")
def two(terminal: Terminal, kube: Kube) -> None:
    """An admin has typed every line."""
    eventually("what an earlier journey left is gone", lambda: not {OWN, SPACE} & all_namespaces(kube))
    minimal = terminal.folder / "manifests" / "minimal"
    for name, more in {"settings.yaml": LEASE + HURRY, "kustomization.yaml": PATCH}.items():
        file = minimal / name
        file.write_text(file.read_text() + more)
    for line in INSTALLING:
        terminal.types(line)
    for line in (APPLY, READY):
        terminal.types(line)
    eventually("one leads", lambda: leader(terminal) in ready(kube))


def leader(terminal: Terminal) -> str:
    """The pod that holds the Lease, as kubectl shows it; "": none does."""
    _, row = terminal.types(HOLDER).splitlines()
    _, holder, *_ = row.split()
    return holder


def job_of(kube: Kube, name: str) -> int:
    return int(kube.pod(SPACE, name).metadata.annotations[PREFIX + "job-id"])


def runs(kube: Kube, name: str) -> bool:
    return bool(kube.pod(SPACE, name).status.phase == "Running")


@pytest.fixture(scope="module")
def service(two: None, kube: Kube) -> int:
    """A pod in a real container, which runs while replicas come and go; its job."""
    kube.core.create_namespaced_pod(
        SPACE, pod("service", on="", cpu="500m", spec=ON_THE_KUBELET, command="exec sleep 3600")
    )
    eventually("it runs", lambda: runs(kube, "service"))
    return job_of(kube, "service")


def test_the_leaders_pod_is_deleted_and_the_other_one_binds_the_next_pod(
    terminal: Terminal, kube: Kube, slurm: Slurm, service: int
) -> None:
    before = ready(kube)
    assert len(before) == 2
    leads = leader(terminal)
    [stands_by] = set(before) - {leads}
    terminal.types(f"kubectl --namespace={OWN} delete pod {leads} --wait=false")
    kube.run(SPACE, "next")
    eventually("the next pod is bound", lambda: kube.pod(SPACE, "next").spec.node_name)
    assert leader(terminal) == stands_by
    eventually("there are two again", lambda: len(ready(kube)) == 2)
    assert leader(terminal) == stands_by, "the new one stands by"
    assert (runs(kube, "service"), job_of(kube, "service")) == (True, service)
    assert "RUNNING" in slurm.job(service)["job_state"]


def test_one_pod_at_a_time_may_be_evicted(kube: Kube, service: int) -> None:
    eventually("a disruption is allowed", lambda: budget(kube).disruptions_allowed == 1)
    first, second = ready(kube)
    assert evict(kube, first) == 201
    assert evict(kube, second) == 429, "the budget keeps the one that is left"
    eventually("there are two again", lambda: len(ready(kube)) == 2)
    assert second in ready(kube)
    assert first not in ready(kube)


def budget(kube: Kube) -> Any:
    return kube.policy.read_namespaced_pod_disruption_budget(OWN, OWN).status


def evict(kube: Kube, name: str) -> int:
    """The status of the answer to what `kubectl drain` asks for."""
    try:
        kube.core.create_namespaced_pod_eviction(name, OWN, {"metadata": {"name": name}}, _preload_content=False)
    except ApiException as error:
        return int(error.status)
    return 201


def test_a_rollout_loses_nothing(terminal: Terminal, kube: Kube, slurm: Slurm, service: int) -> None:
    before = ready(kube)
    terminal.types(f"kubectl --namespace={OWN} rollout restart deployment/slurm-bridge")
    made: list[str] = []

    def replaced() -> bool:
        made.append(f"while-{len(made)}")
        kube.run(SPACE, made[-1])
        eventually("it is bound", lambda: kube.pod(SPACE, made[-1]).spec.node_name)
        now = ready(kube)
        return len(now) == 2 and not set(now) & set(before)

    eventually("both are replaced, and pods are bound meanwhile", replaced)
    terminal.types(READY)
    assert (runs(kube, "service"), job_of(kube, "service")) == (True, service)
    jobs = {name: job_of(kube, name) for name in ("service", "next", *made)}
    live = {job["job_id"]: job["name"] for job in slurm.live(f"{SPACE}/")}
    assert sorted(live) == sorted(jobs.values()), "each pod has one job, and no job is without its pod"
    for name in ("next", *made):
        kube.core.delete_namespaced_pod(name, SPACE)
    eventually(
        "their jobs have ended with them", lambda: [job["job_id"] for job in slurm.live(f"{SPACE}/")] == [service]
    )


# --- uninstall ------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_node(terminal: Terminal, two: None, kube: Kube, slurm: Slurm) -> Iterator[str]:
    """A node that the bridge has registered in Slurm, labelled by the lines of docs/nodes.md."""
    kube.add_node(NODE, "192.0.2.77", 8, 16384, {})
    for line in REGISTER:
        terminal.types(line.replace("NODE", NODE).replace("=gpu", "=main"))  # in the rig GPUs make the partition gpu
    eventually("it is in service", lambda: "SlurmNodeInService" in in_slurm(kube, NODE))
    eventually("it is tainted", lambda: tainted(kube, NODE))
    yield NODE
    kube.core.delete_node(NODE)


@pytest.fixture
def cordoned(two: None, kube: Kube, slurm: Slurm) -> Iterator[str]:
    """A node that both clusters have, drained by the bridge since an admin cordoned it."""
    kube.core.patch_node(CORDONED, {"spec": {"unschedulable": True}})
    eventually("it is drained", lambda: slurm.node(CORDONED)["reason"].startswith("slurm-bridge: "))
    yield CORDONED
    kube.core.patch_node(CORDONED, {"spec": {"unschedulable": False}})


def test_an_admin_uninstalls_it_by_every_line_and_nothing_is_left(
    terminal: Terminal, kube: Kube, slurm: Slurm, service: int, own_node: str, cordoned: str
) -> None:
    kube.core.create_namespaced_pod(
        SPACE, pod("batch", on="", cpu="500m", spec=ON_THE_KUBELET, command="until test -e /done; do sleep 0.2; done")
    )
    eventually("it runs", lambda: runs(kube, "batch"))
    kube.run(SPACE, "waits", says={"begin": "now+1day"})
    eventually("it waits in Slurm", lambda: slurm.live(f"{SPACE}/waits~"))

    said = terminal.types(DRY_RUN)
    for step in (f"remove Slurm node {own_node}", f"resume Slurm node {cordoned}", f"pod {SPACE}/service"):
        assert step in said
    assert len(slurm.live(f"{SPACE}/")) == 3, "it changes nothing"

    terminal.types(NO_POLICY)
    terminal.types(UNINSTALL)
    for line in FOLLOW[:-1]:
        terminal.types(line)
    follows = terminal.begins(FOLLOW[-1])
    eventually("the pod that waits is told", lambda: "SlurmBridgeUninstalled" in kube.said(SPACE, "waits"))
    eventually("its job is over", lambda: not slurm.live(f"{SPACE}/waits~"))
    eventually("the node of both is in service again", lambda: not drained(slurm, cordoned))
    eventually("no jobs are given to the bridge's node", lambda: not in_use(slurm, own_node))
    eventually("it says what it waits for", lambda: follows.says(rf"wait until pod {SPACE}/(service|batch)"))
    assert [runs(kube, name) for name in ("service", "batch")] == [True, True], "what runs is let run"
    terminal.types(f"kubectl exec --namespace={SPACE} batch -- touch /done")
    eventually("a pod has ended by itself, and its job", lambda: not slurm.live(f"{SPACE}/batch~"))
    assert kube.pod(SPACE, "batch").status.phase == "Succeeded"
    assert runs(kube, "service")

    journal.breaks("V7", f"{SPACE}/service", "the admin has the bridge end pods whose jobs run")
    terminal.types(UNINSTALL.replace('"uninstall"', '"uninstall", "--end-pods"'))
    eventually("no pod of the bridge runs", lambda: not kube.bound(SPACE))
    eventually("it says that nothing is left", lambda: NOTHING in log(terminal))
    nothing_is_left(kube, slurm, own_node, cordoned)
    for line in (DELETE, UNBIND, UNLABEL, NO_NODES):
        terminal.types(line)
    assert OWN not in kube.namespaces()
    assert all("slurm-bridge" not in each.metadata.name for each in kube.rbac.list_cluster_role().items)


def nothing_is_left(kube: Kube, slurm: Slurm, own_node: str, cordoned: str) -> None:
    """Asserts that neither cluster has a job, node, drain, taint or condition of the bridge."""
    assert slurm.live(f"{SPACE}/") == []
    assert slurm.node(own_node) == {}
    assert not tainted(kube, own_node)
    assert not drained(slurm, cordoned)
    assert [node.metadata.name for node in kube.core.list_node().items if in_slurm(kube, node.metadata.name)] == []
    assert kube.core.read_node(cordoned).spec.unschedulable, "an admin's cordon is his"


def in_use(slurm: Slurm, name: str) -> bool:
    """True if Slurm has that node, and gives it away."""
    return bool(slurm.node(name)) and not drained(slurm, name)


def log(terminal: Terminal) -> str:
    """The log of uninstall, of all its runs until now."""
    return terminal.types(f"kubectl --namespace={OWN} logs deployment/slurm-bridge", codes=(0, 1))
