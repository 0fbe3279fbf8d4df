"""Job options besides nodes: begin times, dependencies, licenses, no time limit; and later changes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from integration.clusters import PREFIX, Kube, Slurm, eventually, replica_set

Space = Callable[[str], str]
NEW_YEAR = 4_102_444_800  # 2100-01-01
pytestmark = pytest.mark.usefixtures("bridge")


def number(value: int) -> dict[str, Any]:
    return {"set": True, "number": value}


def annotate(kube: Kube, namespace: str, name: str, **says: str | None) -> None:
    annotations = {PREFIX + key.replace("_", "-"): value for key, value in says.items()}
    kube.core.patch_namespaced_pod(name, namespace, {"metadata": {"annotations": annotations}})


def job_of(slurm: Slurm, namespace: str, name: str) -> dict[str, Any]:
    [job] = eventually(f"{name} has its job", lambda: slurm.live(f"{namespace}/{name}~"))
    return job


def waits(kube: Kube, namespace: str, name: str, *words: str) -> str:
    def shown() -> str:
        said = kube.said(namespace, name)
        return said if all(word in said for word in words) else ""

    return eventually(f"{name} says {words}", shown)


def bound(kube: Kube, namespace: str, name: str) -> None:
    eventually(f"{name} is bound", lambda: kube.pod(namespace, name).spec.node_name)


def test_pods_wait_for_what_they_are_asked_to_wait_for(kube: Kube, slurm: Slurm, space: Space) -> None:
    """K: and start soon when it has come, though Slurm as it is shipped looks at its queue every half minute only."""
    ns = space("alice")
    prepare = slurm.submit("bob", name="prepare", partition="main", begin_time=number(NEW_YEAR))
    solver = slurm.submit("carol", name="solver", partition="low", licenses="matlab:9")
    eventually("it runs", lambda: "RUNNING" in slurm.job(solver)["job_state"])
    begin = int(time.time()) + 8
    kube.run(ns, "begins", says={"begin": datetime.fromtimestamp(begin, UTC).isoformat()})
    kube.run(ns, "later", says={"begin": "now+52weeks"})
    kube.run(ns, "after", says={"dependency": f"afterany:{prepare}"})
    kube.run(ns, "licensed", says={"licenses": "matlab:2", "switches": "1@5"})
    kube.run(ns, "greedy", says={"licenses": "matlab:99"})
    kube.run(ns, "lost", says={"dependency": "afterok:99999999"})
    kube.run(ns, "now", says={"partition": "gpu"})
    bound(kube, ns, "now")

    waits(kube, ns, "later", "(BeginTime: waiting for its begin time); expected start 20")
    waits(kube, ns, "after", "(Dependency: waiting for other jobs")
    waits(kube, ns, "licensed", "(Licenses: waiting for licenses)")
    waits(kube, ns, "greedy", "SlurmJobRefused", "there is no such license, or not that many (error 2048).")
    waits(kube, ns, "lost", "SlurmJobRefused", "it does not know a job that this one depends on", "(error 2038).")
    assert {each.metadata.name for each in kube.bound(ns)} <= {"now", "begins"}

    before = job_of(slurm, ns, "later")
    annotate(kube, ns, "later", begin=None)
    annotate(kube, ns, "lost", dependency=None)
    slurm.cancel(prepare)
    slurm.cancel(solver)
    for name in ("later", "after", "licensed", "lost", "begins"):
        bound(kube, ns, name)
    assert job_of(slurm, ns, "later")["job_id"] == before["job_id"], "the same job: it kept its age"
    assert job_of(slurm, ns, "begins")["start_time"]["number"] >= begin
    job = job_of(slurm, ns, "licensed")
    assert (job["licenses_allocated"], job["required_switches"], job["maximum_switch_wait_time"]) == (
        "matlab:2",
        1,
        300,
    )


def test_a_pod_that_waits_is_changed_in_place(kube: Kube, slurm: Slurm, space: Space) -> None:
    """K: by its annotations, and by a resize, which Kubernetes allows before the bind."""
    ns = space("alice")
    kube.run(ns, "train", says={"begin": "now+52weeks"})
    before = job_of(slurm, ns, "train")
    annotate(kube, ns, "train", nice="7", licenses="matlab:1", comment="second thoughts", job_name="bert")
    resources = {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
    resized = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    kube.core.patch_namespaced_pod_resize("train", ns, resized)

    def now() -> dict[str, Any]:
        job = slurm.job(before["job_id"])
        keys = ("nice", "licenses", "comment")
        return {key: job[key] for key in keys} | {
            "cpus": job["cpus_per_task"]["number"],
            "name": job["name"].split("~")[0],
        }

    comment = f"second thoughts; {ns}/train"  # whose it is, since its name no longer says so
    wanted = {"nice": 7, "licenses": "matlab:1", "comment": comment, "cpus": 3, "name": "bert"}
    eventually(f"it is {wanted}", lambda: now() == wanted)
    annotate(kube, ns, "train", exclusive="true")
    waits(
        kube,
        ns,
        "train",
        "Slurm cannot change slurm-bridge/exclusive of a waiting job; recreate the pod to apply it.",
    )


def test_an_edit_after_the_bind_is_reported_and_changes_nothing(kube: Kube, slurm: Slurm, space: Space) -> None:
    """T11, K8."""
    ns = space("alice")
    kube.run(ns, "train")
    bound(kube, ns, "train")
    before = job_of(slurm, ns, "train")
    resources = {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
    resized = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    kube.core.patch_namespaced_pod_resize("train", ns, resized)
    eventually("it is said", lambda: "SlurmChangeIgnored" in kube.events(ns, "train"))
    assert job_of(slurm, ns, "train")["cpus"] == before["cpus"]


@pytest.mark.parametrize(
    ("partition", "limit"),
    [("main", {"set": False, "infinite": True, "number": 0}), ("short", {"set": True, "infinite": False, "number": 5})],
    ids=["main", "short"],
)
def test_a_service_may_run_as_long_as_its_partition_allows(
    kube: Kube, slurm: Slurm, space: Space, partition: str, limit: dict[str, Any]
) -> None:
    """T7."""
    ns = space("alice")
    kube.apps.create_namespaced_replica_set(ns, replica_set("web", 1, says={"partition": partition}))
    eventually("it is bound", lambda: kube.bound(ns))
    [job] = slurm.live(f"{ns}/web")
    assert job["time_limit"] == limit
