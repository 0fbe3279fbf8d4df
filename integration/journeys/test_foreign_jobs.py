"""Foreign jobs are never touched, whatever their names are and whichever pods name them (V6, S10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from integration.checker import journal
from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually, pod

Space = Callable[[str], str]
WATCHED = ("job_state", "name", "comment", "time_limit", "excluded_nodes", "nodes", "priority")


@pytest.fixture
def ours(kube: Kube, slurm: Slurm, space: Space) -> tuple[str, dict[str, Any]]:
    """A namespace of alice with a bound pod, and the name of its job."""
    ns = space("alice")
    kube.run(ns, "mine")
    eventually("mine runs", lambda: kube.bound(ns))
    [job] = slurm.live(f"{ns}/mine~")
    return ns, job


def snapshot(slurm: Slurm, ids: list[int]) -> list[dict[str, object]]:
    return [{key: slurm.job(job_id)[key] for key in WATCHED} for job_id in ids]


def test_foreign_jobs_of_any_name_and_comment_are_untouched_through_a_restart(
    slurm: Slurm, bridge: BridgeProcess, ours: tuple[str, dict[str, Any]], kube: Kube
) -> None:
    ns, mine = ours
    readable, mark = mine["name"].rsplit("~", 1)
    cluster, key = mark.split(".")
    for name in (mine["name"], f"{readable}~{cluster}.0123456789abcdef"):
        journal.breaks("V8", name, "a user outside the policy gives a job such a name")
    foreign = [
        slurm.submit("carol", name=mine["name"], comment="ours, says its name"),  # a user outside the policy
        slurm.submit("carol", name=f"{readable}~{cluster}.0123456789abcdef"),
        slurm.submit("alice", name=f"{readable}~kffffffff.{key}"),  # another Kubernetes cluster's
        slurm.submit("alice", name="train", comment=mine["name"]),
        slurm.submit("bob", name="slurm-bridge", comment='{"pods":["alice/mine"]}'),
        slurm.submit("carol", name="~~..", hold=True),
    ]
    try:
        eventually("they run", lambda: sum("RUNNING" in slurm.job(job)["job_state"] for job in foreign) == 5)
        before = snapshot(slurm, foreign)
        bridge.kill()
        bridge.start()
        kube.run(ns, "other")
        eventually("the bridge works", lambda: len(kube.bound(ns)) == 2)
        # A bridge that took one of them for an orphan of its own would end it once its quiet period is over; so it ends
        # this one, which is.
        orphan = slurm.submit("alice", name=f"{ns}/orphan~{cluster}.fedcba9876543210")
        eventually("an orphan of ours is ended", lambda: "CANCELLED" in slurm.job(orphan)["job_state"])
        assert snapshot(slurm, foreign) == before
        assert len(kube.bound(ns)) == 2
    finally:
        for job_id in foreign:
            slurm.cancel(job_id)


def claim(job_id: str | None) -> dict[str, Any]:
    """A patch of a pod."""
    return {"metadata": {"annotations": {PREFIX + "job-id": job_id}}}


def test_a_foreign_job_that_a_pods_annotation_claims_is_left_alone(
    kube: Kube, slurm: Slurm, space: Space, bridge: BridgeProcess
) -> None:
    ns = space("alice")
    foreign = slurm.submit("carol", name="precious")
    try:
        eventually("it runs", lambda: "RUNNING" in slurm.job(foreign)["job_state"])
        before = snapshot(slurm, [foreign])
        kube.run(ns, "liar", says={"job-id": str(foreign)})
        eventually("the pod is refused", lambda: "SlurmJobRefused" in kube.said(ns, "liar"))
        kube.core.patch_namespaced_pod("liar", ns, claim(None))
        eventually("the pod gets a job of its own", lambda: kube.bound(ns))
        own = kube.pod(ns, "liar").metadata.annotations[PREFIX + "job-id"]
        assert own != str(foreign)
        kube.core.patch_namespaced_pod("liar", ns, claim(str(foreign)))
        eventually(
            "its own job's id is written back",
            lambda: kube.pod(ns, "liar").metadata.annotations[PREFIX + "job-id"] == own,
        )
        claimed = pod("squatter", says={"job-id": str(foreign)})
        claimed["spec"]["nodeName"] = "k1"
        kube.core.create_namespaced_pod(ns, claimed)
        bridge.kill()
        bridge.start()
        kube.core.delete_namespaced_pod("liar", ns)
        kube.core.delete_namespaced_pod("squatter", ns)
        eventually("both pods and their jobs are gone", lambda: not kube.pods(ns) and not slurm.live(f"{ns}/"))
        assert snapshot(slurm, [foreign]) == before
    finally:
        slurm.cancel(foreign)
