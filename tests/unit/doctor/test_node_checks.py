"""The doctor on labelled nodes: what Slurm lacks before it can take them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bridge.cli.doctor import cross_checks, node_checks
from bridge.cli.doctor.findings import Level, findings
from bridge.cli.doctor.views import Observations, Observed
from bridge.slurm.admin_reads import Configuration, NodeDetails, PartitionDetails
from scheduler import names
from scheduler.model.slurm import SlurmNode
from tests.builders import node
from tests.unit.doctor.clusters import Both, said, troubles


@pytest.fixture
def both(tmp_path: Path) -> Both:
    """x1 and x2 are known to Slurm, x3 is not; the two first are labelled."""
    both = Both(tmp_path)
    both.add_node("x3")
    for name in ("x1", "x3"):
        found = both.kube.store.get("nodes", "", name)
        assert found is not None
        labels = {**found["metadata"]["labels"], names.EXTERNAL_NODE_LABEL: "true"}
        annotations = {names.PARTITIONS: "main"}
        meta = {**found["metadata"], "labels": labels, "annotations": annotations}
        both.kube.store.put("nodes", {**found, "metadata": meta})
    return both


async def test_a_slurm_with_all_that_the_bridge_needs_has_no_warning(both: Both) -> None:
    found = await both.findings()
    assert troubles(found) == []
    assert said(found, "labelled nodes", Level.OK) == ["2 labelled nodes, 1 of them known to Slurm"]
    assert said(found, "their partitions", Level.OK) == ["partitions that they name: main"]


async def test_a_token_of_a_user_who_may_not_create_nodes_is_a_warning(both: Both) -> None:
    both.slurm.slurm_conf["SlurmUser"] = "slurmadmin"
    [sentence] = said(await both.findings(), "labelled nodes", Level.WARNING)
    assert sentence == "Nodes are made by SlurmUser (slurmadmin) and by Slurm's administrators; the token is of slurm."


async def test_no_room_for_more_nodes_is_an_error(both: Both) -> None:
    both.slurm.slurm_conf["MaxNodeCount"] = 2
    [sentence] = said(await both.findings(), "labelled nodes", Level.ERROR)
    assert sentence == "Slurm has 2 nodes, and room for 2 (MaxNodeCount): x3 cannot be registered."


async def test_devices_that_slurm_does_not_count_are_an_error(both: Both) -> None:
    both.slurm.slurm_conf["GresTypes"] = ["shard"]
    found = await both.findings()
    [error] = [each for each in found if (each.check, each.level) == ("labelled nodes", Level.ERROR)]
    assert error.sentence == "Labelled nodes have gpu, which GresTypes does not name: Slurm counts none of them."
    assert error.do.startswith("GresTypes=gpu,shard in slurm.conf")


def test_partitions_that_are_not_there_or_that_have_no_nodeset_for_it_are_errors() -> None:
    label = {names.EXTERNAL_NODE_LABEL: "true"}
    here = [
        node("x1", labels=label, partitions="gpu,nope"),
        node("x2", labels=label, partitions="fat"),
        node("x3", partitions="nobody-asks"),
    ]
    known = NodeDetails(SlurmNode("x1", frozenset({"IDLE", "EXTERNAL"}), ("main",)), "192.0.2.1")
    seen = Observations(now=0.0)
    seen.nodes, seen.slurm_nodes = Observed(tuple(here)), Observed((known,))
    seen.partition_details = Observed(
        {each.name: each for each in (PartitionDetails("gpu", node_sets="others"), PartitionDetails("fat"))}
    )
    found = list(findings((("Both", node_checks.CHECKS[1:]),), seen))
    assert said(found, "their partitions", Level.ERROR) == [
        "Annotations slurm-bridge/partitions name no partition of Slurm: nope; such nodes are not registered.",
        "No NodeSet of feature fat brings labelled nodes into partition fat.",
        "No NodeSet of feature gpu brings labelled nodes into partition gpu. x1 is outside of it.",
    ]


@pytest.mark.parametrize(
    ("of_cluster", "of_partition", "at_risk"),
    [
        (math.inf, 60, "60 s (SuspendTime): x1."),
        (600, math.inf, "600 s (SuspendTime): x2."),
        (600, None, "600 s (SuspendTime): x1, x2."),
    ],
)
def test_a_partition_with_a_suspend_time_of_its_own_decides_if_slurm_powers_its_nodes_down(
    of_cluster: float, of_partition: float | None, at_risk: str
) -> None:
    external = frozenset({"IDLE", "EXTERNAL"})
    known = [
        NodeDetails(SlurmNode(f"x{n}", external, ("main", name)), "192.0.2.1") for n, name in ((1, "gpu"), (2, "main"))
    ]
    seen = Observations(now=0.0)
    seen.slurm_nodes = Observed(tuple(known))
    seen.configuration = Observed(Configuration(saves_power=True, suspend_time_s=of_cluster))
    seen.partition_details = Observed(
        {"main": PartitionDetails("main"), "gpu": PartitionDetails("gpu", suspend_time_s=of_partition)}
    )
    checks = tuple(check for check in cross_checks.CHECKS if check.name == "power saving")
    [sentence] = said(list(findings((("Both", checks),), seen)), "power saving", Level.ERROR)
    assert f"Slurm powers down external nodes that are idle for {at_risk}" in sentence


@pytest.mark.parametrize(
    ("oversubscribe", "warns"), [("FORCE:4", True), ("FORCE:1", False), ("YES:4", False), ("", False)]
)
def test_a_partition_that_gives_a_cpu_to_several_jobs_is_a_warning(oversubscribe: str, warns: bool) -> None:
    """Kubernetes gives the CPU to one pod alone: each further grant is released, again and again."""
    known = NodeDetails(SlurmNode("x1", frozenset({"IDLE"}), ("main",)), "192.0.2.1")
    seen = Observations(now=0.0)
    seen.nodes, seen.slurm_nodes = Observed((node("x1"),)), Observed((known,))
    seen.partition_details = Observed(
        {
            "main": PartitionDetails("main", oversubscribe=oversubscribe),
            "without-pods": PartitionDetails("without-pods", oversubscribe="FORCE:4"),
        }
    )
    checks = tuple(check for check in cross_checks.CHECKS if check.name == "oversubscription")
    sentences = said(list(findings((("Both", checks),), seen)), "oversubscription", Level.WARNING)
    assert [sentence[:47] for sentence in sentences] == (
        ["Slurm gives each CPU of partition main to sever"] if warns else []
    )
