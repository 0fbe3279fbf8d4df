"""The main job: pods become placeholders, placeholders become nodes, and whichever side ends, the other follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from integration.clusters import ENDED, PREFIX, BridgeProcess, Kube, Slurm, eventually, replica_set

Space = Callable[[str], str]


def test_a_real_container_runs_where_slurm_granted_and_its_end_is_the_jobs_end(
    kube: Kube, slurm: Slurm, space: Space, needs_kubelets: None
) -> None:
    ns = space("alice")
    kube.run(ns, "hello", on="kubelet", command="sleep 1; exit 3")
    bound = eventually("hello runs", lambda: kube.pod(ns, "hello").spec.node_name and kube.pod(ns, "hello"))
    job_id = int(bound.metadata.annotations[PREFIX + "job-id"])
    job = slurm.job(job_id)
    assert job["nodes"] == bound.spec.node_name
    assert job["user_name"] == "alice"
    assert job["account"] == "teama"
    assert job["name"].startswith(f"{ns}/hello~k")

    eventually("hello has failed", lambda: kube.pod(ns, "hello").status.phase == "Failed")
    eventually("its job has ended", lambda: ENDED & set(slurm.job(job_id)["job_state"]))
    assert kube.pod(ns, "hello").status.container_statuses[0].state.terminated.exit_code == 3
    account = eventually(
        "accounting knows", lambda: (a := slurm.accounted(job_id)) and f"{ns}/hello" in a["comment"]["job"] and a
    )
    assert account["derived_exit_code"]["return_code"]["number"] == 3


def test_forty_pods_are_bound_within_their_grants(kube: Kube, slurm: Slurm, space: Space) -> None:
    ns = space("alice")
    for number in range(40):
        kube.run(ns, f"p{number}", cpu="2")
    bound = eventually("all 40 are bound", lambda: len(found := kube.bound(ns)) == 40 and found)
    jobs = {job["job_id"]: job for job in slurm.live(f"{ns}/")}
    assert len(jobs) == 40
    claimed = [int(pod.metadata.annotations[PREFIX + "job-id"]) for pod in bound]
    assert sorted(claimed) == sorted(jobs), "each pod has a job of its own, and each job its pod"
    for pod in bound:
        job = jobs[int(pod.metadata.annotations[PREFIX + "job-id"])]
        assert "RUNNING" in job["job_state"]
        assert job["nodes"] == pod.spec.node_name
    assert max(Counter(pod.spec.node_name for pod in bound).values()) <= 32


def test_pods_beyond_capacity_all_wait_in_slurms_queue_and_start_when_it_is_freed(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    ns = space("alice")
    for number in range(8):
        kube.run(ns, f"gpu{number}", gpu=8, says={"time-limit": "60"})
    eventually("each has a job", lambda: len(slurm.live(f"{ns}/")) == 8)
    first = eventually("the four external nodes are taken", lambda: len(found := kube.bound(ns)) == 4 and found)
    assert sum("PENDING" in job["job_state"] for job in slurm.live(f"{ns}/")) == 4

    waiting = [pod.metadata.name for pod in kube.pods(ns) if not pod.spec.node_name]
    for name in waiting:
        said = eventually(f"{name} says why", lambda n=name: "SlurmJobPending" in (s := kube.said(ns, n)) and s)  # type: ignore[misc]
        assert "partition main" in said
        assert "Job " in said
        assert "Unschedulable" not in said

    for pod in first:
        kube.core.delete_namespaced_pod(pod.metadata.name, ns)
    eventually("the others are bound", lambda: {p.metadata.name for p in kube.bound(ns)} == set(waiting))


def test_a_pod_deleted_while_it_waits_leaves_no_job(kube: Kube, slurm: Slurm, space: Space, full: None) -> None:
    ns = space("alice")
    kube.run(ns, "late", gpu=8)
    eventually("it waits in Slurm", lambda: len(slurm.live(f"{ns}/late~")) == 1)
    kube.core.delete_namespaced_pod("late", ns)
    eventually("its job is gone", lambda: not slurm.live(f"{ns}/late~"))


def test_a_deleted_pods_job_ends(kube: Kube, slurm: Slurm, space: Space) -> None:
    ns = space("alice")
    kube.run(ns, "brief")
    eventually("it runs", lambda: kube.bound(ns))
    kube.core.delete_namespaced_pod("brief", ns)
    eventually("its job is gone", lambda: not slurm.live(f"{ns}/brief~"))


def test_a_cancelled_jobs_pod_is_evicted_and_recreated_by_its_replica_set(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    ns = space("alice")
    kube.apps.create_namespaced_replica_set(ns, replica_set("web", 1))
    [before] = eventually("it runs", lambda: kube.bound(ns))
    job_id = int(before.metadata.annotations[PREFIX + "job-id"])
    slurm.cancel(job_id)
    after = eventually(
        "another one runs",
        lambda: [pod for pod in kube.bound(ns) if pod.metadata.uid != before.metadata.uid],
    )[0]
    assert int(after.metadata.annotations[PREFIX + "job-id"]) != job_id
    eventually("the first pod is gone", lambda: len(kube.pods(ns)) == 1)
    eventually("an event says why", lambda: "SlurmJobEnded" in kube.events(ns, before.metadata.name))


def test_two_tenants_have_their_own_user_and_limits(kube: Kube, slurm: Slurm, space: Space) -> None:
    alice, bob = space("alice"), space("bob")
    kube.run(alice, "a", gpu=2)
    kube.run(bob, "b1", gpu=4)
    eventually("both run", lambda: kube.bound(alice) and kube.bound(bob))
    kube.run(bob, "b2", gpu=1)  # bob's limit is 4 GPUs in all
    said = eventually("b2 says which limit", lambda: "AssocGrp" in (s := kube.said(bob, "b2")) and s)
    assert "SlurmJobPending" in said
    assert {job["user_name"] for job in slurm.live(f"{alice}/")} == {"alice"}
    assert {job["user_name"] for job in slurm.live(f"{bob}/")} == {"bob"}

    kube.core.delete_namespaced_pod("b1", bob)
    eventually("b2 goes on by itself", lambda: [p.metadata.name for p in kube.bound(bob)] == ["b2"])


def test_a_namespace_that_is_not_managed_shows_that(kube: Kube, slurm: Slurm, bridge: BridgeProcess) -> None:
    kube.namespace("alice-unmanaged", managed=False)
    try:
        kube.run("alice-unmanaged", "p")
        said = eventually("it says so", lambda: kube.said("alice-unmanaged", "p"))
        assert "NamespaceNotManaged" in said
        assert "slurm-bridge/managed=true" in said
        assert not slurm.live("alice-unmanaged/")
    finally:
        kube.remove("alice-unmanaged")


@pytest.mark.parametrize(
    ("key", "value"), [("cpus-per-task", "foo"), ("time-limit", "-1"), ("memory", "NaN"), ("gang-size", "2")]
)
def test_what_cannot_be_read_is_refused_in_words_while_others_go_on(
    kube: Kube, slurm: Slurm, space: Space, key: str, value: str
) -> None:
    ns = space("alice")
    kube.run(ns, "bad", says={key: value})
    kube.run(ns, "good")
    eventually("the good one runs", lambda: kube.bound(ns))
    said = eventually("the bad one says why", lambda: kube.said(ns, "bad"))
    assert "SlurmJobRefused" in said
    assert key in said
    assert not slurm.live(f"{ns}/bad~")


def test_what_slurm_refuses_is_reported_with_its_words_and_number(kube: Kube, space: Space) -> None:
    ns = space("alice")
    kube.run(ns, "odd", says={"constraints": "nosuchfeature"})
    said = eventually("it says why", lambda: "SlurmJobRefused" in (s := kube.said(ns, "odd")) and s)
    assert "error 2" in said


def test_a_pod_without_a_feasible_node_says_so_in_the_words_of_kube_scheduler(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    ns = space("alice")
    kube.run(ns, "huge", cpu="640")
    said = eventually("it says why", lambda: kube.said(ns, "huge"))
    assert "SlurmNoFeasibleNode" in said
    assert "too little cpu" in said
    assert not slurm.live(f"{ns}/huge~")


def test_health_and_metrics_show_what_happened(kube: Kube, bridge: BridgeProcess, space: Space) -> None:
    ns = space("alice")
    kube.run(ns, "p")
    eventually("it runs", lambda: kube.bound(ns))
    assert bridge.ask("healthz") == (200, "ok\n")
    status, text = bridge.ask("metrics")
    assert status == 200
    for metric in ("create_to_bind_seconds", "grant_to_bind_seconds", "call_seconds", "workloads"):
        assert f"slurm_bridge_{metric}" in text
