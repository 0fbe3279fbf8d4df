"""Groups as their controllers make them: each is one job of Slurm, in the order of its indexes (W2-W8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration import controllers
from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually
from integration.controllers import COMPLETION_INDEX, JOBSET, LWS
from tests.patience import PATIENCE_S

Space = Callable[[str], str]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module", autouse=True)
def started(pool: str, bridge: BridgeProcess) -> Iterator[None]:
    """When the nodes of the pool are there, for which it asks but now and then; and gangs may take as long as they need."""
    with bridge.with_settings(tuning={"gang_bind_deadline_s": PATIENCE_S}):
        yield


def bound(kube: Kube, space: str, count: int) -> list[Any]:
    """That many pods, by rank, once all of them are on nodes."""
    found = eventually(f"{count} pods are bound", lambda: len(pods := kube.bound(space)) == count and pods)
    return sorted(found, key=lambda each: int(says(each, "rank")))


def says(pod: Any, key: str) -> str:
    text: str = pod.metadata.annotations[PREFIX + key]
    return text


def names(pods: list[Any]) -> list[str]:
    return [each.metadata.name for each in pods]


def is_one_job(slurm: Slurm, pods: list[Any], name: str) -> dict[str, Any]:
    """Slurm has one job for them, with a task for each, on their nodes; their ranks have no gaps."""
    [job] = slurm.live(f"{name}~")
    assert {says(each, "job-id") for each in pods} == {str(job["job_id"])}
    assert {says(each, "size") for each in pods} == {str(len(pods))}
    assert [int(says(each, "rank")) for each in pods] == list(range(len(pods)))
    assert job["job_state"] == ["RUNNING"]
    assert job["tasks"]["number"] == len(pods)
    assert job["node_count"]["number"] == len({each.spec.node_name for each in pods})
    return job


# --- our own label --------------------------------------------------------------------------------------------------


def test_a_launcher_and_its_workers_are_one_job_of_two_components(kube: Kube, slurm: Slurm, space: Space) -> None:
    here = space("alice")
    for body in yaml.safe_load_all((EXAMPLES / "mpi.yaml").read_text()):
        if body["kind"] == "Pod":
            kube.core.create_namespaced_pod(here, body)
    launcher, *workers = bound(kube, here, 3)  # Slurm starts such a job by backfill alone
    assert [launcher.metadata.name, *names(workers)] == ["solve-launcher", "solve-worker-0", "solve-worker-1"]

    first, second = sorted(slurm.live(f"{here}/solve~"), key=lambda job: job["het_job_offset"]["number"])
    assert {each["het_job_id"]["number"] for each in (first, second)} == {first["job_id"]}
    assert {says(each, "job-id") for each in (launcher, *workers)} == {str(first["job_id"])}
    assert {says(each, "size") for each in (launcher, *workers)} == {"3"}
    for job, pods, gpus in ((first, [launcher], 0), (second, workers, 2)):
        assert job["tasks"]["number"] == len(pods)
        [(node, held)] = slurm.holds(job["job_id"]).items()
        assert {each.spec.node_name for each in pods} == {node}
        assert held["cores"] == job["cpus"]["number"]
        assert len(held.get("gpu", ())) == gpus
    assert (first["cpus"]["number"], second["cpus"]["number"]) == (1, 8)
    kube.core.delete_namespaced_pod("solve-launcher", here)
    for each in workers:
        kube.core.delete_namespaced_pod(each.metadata.name, here)
    eventually("both components have ended", lambda: slurm.live(f"{here}/solve~") == [])


def ring(space: str, numbers: Iterable[int], size: int, kube: Kube, **options: Any) -> None:
    """Creates members of the gang "ring", one for each number."""
    for number in numbers:
        kube.run(space, f"ring-{number}", labels={PREFIX + "gang": "ring"}, says={"gang-size": str(size)}, **options)


@pytest.mark.parametrize("size", [2, 64, 512])
def test_a_gang_of_any_size_is_bound_wholly_and_packed_in_order(
    size: int, pool: str, kube: Kube, slurm: Slurm, space: Space
) -> None:
    here = space("alice")
    ring(here, range(size), size, kube, spec={"nodeSelector": {pool: "wide"}})
    pods = bound(kube, here, size)
    is_one_job(slurm, pods, f"{here}/ring")
    assert names(pods) == [f"ring-{number}" for number in range(size)]
    nodes = [each.spec.node_name for each in pods]
    assert nodes == sorted(nodes), "neighbours in rank stand side by side"
    assert set(Counter(nodes).values()) == {min(size, 64)}, "as few nodes as need be, and each of them full"


def test_same_named_gangs_of_two_namespaces_wait_and_run_each_for_itself(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    here, there = space("alice"), space("bob")
    ring(here, [0, 1], 3, kube)
    ring(there, [0], 3, kube)
    for namespace, count in ((here, 2), (there, 1)):
        said = eventually(f"{namespace} says who is here", lambda n=namespace: kube.said(n, "ring-0"))  # type: ignore[misc]
        assert f"{count} of 3 pods of gang ring are here in namespace {namespace}." in said
    assert slurm.live(f"{here}/") == slurm.live(f"{there}/") == []
    ring(here, [2], 3, kube)
    jobs = [is_one_job(slurm, bound(kube, here, 3), f"{here}/ring")]
    assert kube.bound(there) == []
    ring(there, [1, 2], 3, kube)
    jobs.append(is_one_job(slurm, bound(kube, there, 3), f"{there}/ring"))
    assert [job["user_name"] for job in jobs] == ["alice", "bob"]


# --- of others' controllers -----------------------------------------------------------------------------------------


def test_each_group_of_a_leader_worker_set_is_one_job_with_its_leader_first(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    here = space("alice")
    with controllers.leader_worker_admission(kube, here, ["serve-0", "serve-1"]):
        kube.apps.create_namespaced_stateful_set(here, controllers.leaders("serve", groups=2, size=3))
        leaders = eventually("both leaders are there", lambda: len(pods := kube.pods(here)) == 2 and pods)
        said = eventually("a leader says whom it waits for", lambda: kube.said(here, "serve-0"))
        assert f"1 of 3 pods of LeaderWorkerSet serve are here in namespace {here}" in said
        assert slurm.live(f"{here}/") == []
        for leader in leaders:
            kube.apps.create_namespaced_stateful_set(here, controllers.workers(leader, size=3))
        eventually("all six are bound", lambda: len(kube.bound(here)) == 6)
    jobs = {job["job_id"]: job for job in slurm.live(f"{here}/serve~")}
    assert len(jobs) == 2
    for leader in ("serve-0", "serve-1"):
        group = [each for each in kube.bound(here) if each.metadata.name.startswith(leader)]
        group.sort(key=lambda each: int(says(each, "rank")))
        assert names(group) == [leader, f"{leader}-1", f"{leader}-2"]
        assert [each.metadata.labels[LWS + "worker-index"] for each in group] == ["0", "1", "2"]
        assert len({says(each, "job-id") for each in group}) == 1
        assert jobs.pop(int(says(group[0], "job-id")))["tasks"]["number"] == 3


def jobs_run(kube: Kube, space: str, uid: str = controllers.UNREAD_UID) -> None:
    """The three Jobs, and five pods, of JobSet train."""
    for job in controllers.jobs_of(space, "train", PARTS, uid):
        kube.batch.create_namespaced_job(space, job)


PARTS = {"driver": (1, 1), "workers": (2, 2)}  # a part's replicas, and how many pods each has
IN_ORDER = ["train-driver-0-0", "train-workers-0-0", "train-workers-0-1", "train-workers-1-0", "train-workers-1-1"]


def without_suffix(pods: list[Any]) -> list[str]:
    return [name.rsplit("-", 1)[0] for name in names(pods)]


def test_where_no_job_set_can_be_read_its_pods_say_what_to_give_and_need_no_more(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    here = space("alice")
    jobs_run(kube, here)
    pods = eventually("the pods are there", lambda: len(pods := kube.pods(here)) == 5 and pods)
    said = eventually("one says what to give", lambda: kube.said(here, names(pods)[0]))
    assert "JobSet train does not show how many pods it has: give it the annotation slurm-bridge/gang-size" in said
    assert slurm.live(f"{here}/") == []
    for name in names(pods):
        kube.core.patch_namespaced_pod(name, here, {"metadata": {"annotations": {PREFIX + "gang-size": "5"}}})
    pods = bound(kube, here, 5)
    is_one_job(slurm, pods, f"{here}/train")
    assert {each.metadata.labels[JOBSET + "jobset-name"] for each in pods} == {"train"}
    assert without_suffix(pods) == IN_ORDER


def test_all_jobs_of_a_job_set_are_one_job_of_as_many_tasks_as_it_shows(kube: Kube, slurm: Slurm, space: Space) -> None:
    here = space("alice")
    # The journey before this one needs a server that does not know the kind: for some time after it was taught one, and
    # forgot it, Kubernetes takes every owner of that kind for deleted.
    with controllers.served(kube, *controllers.JOB_SETS) as objects:
        body = controllers.job_set("train", PARTS)
        made = objects.create_namespaced_custom_object("jobset.x-k8s.io", "v1alpha2", here, "jobsets", body)
        jobs_run(kube, here, made["metadata"]["uid"])
        pods = bound(kube, here, 5)
    is_one_job(slurm, pods, f"{here}/train")
    assert without_suffix(pods) == IN_ORDER


def test_a_kueue_pod_group_is_asked_for_once_kueue_has_admitted_all_of_it(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    here = space("alice")
    group = ["q-xk2pl", "q-b7z9d", "q-m4c8t"]  # generated names say nothing about the order
    with controllers.kept_by_kueue(kube, here):
        for index, name in enumerate(group):
            kube.core.create_namespaced_pod(here, controllers.kueue_pod(name, "sample", 3, index))
        for name in group[1:]:
            controllers.kueue_admits(kube, here, name)
        here_are = "2 of 3 pods of Kueue pod group sample are here"
        eventually("they wait for the gated one", lambda: here_are in kube.said(here, group[1]))
        assert slurm.live(f"{here}/") == []
        assert "SchedulingGated" in kube.said(here, group[0])
        controllers.kueue_admits(kube, here, group[0])
        pods = bound(kube, here, 3)
        job = is_one_job(slurm, pods, f"{here}/sample")
        assert names(pods) == group

        for name in group:
            kube.core.delete_namespaced_pod(name, here)
        eventually("the job ends", lambda: "CANCELLED" in slurm.job(job["job_id"])["job_state"])
        assert len(kube.pods(here)) == 3


# --- a batch Job ----------------------------------------------------------------------------------------------------


def of_one_job(name: str, pods: int, partition: str) -> dict[str, Any]:
    """A batch Job whose pods are a gang, made for preemption: it is no failure, and each index comes back after 10 s.

    Without `backoffLimitPerIndex` Kubernetes waits twice as long for each pod that ended together with others.
    """
    template = controllers.template({PREFIX + "gang": "job"}, {PREFIX + "partition": partition})
    disrupted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    patience = {"backoffLimitPerIndex": 1, "podFailurePolicy": {"rules": [disrupted]}}
    return {"metadata": {"name": name}, "spec": controllers.indexed(pods) | patience | {"template": template}}


def indexes(pods: list[Any]) -> list[int]:
    return [int(each.metadata.labels[COMPLETION_INDEX]) for each in pods]


def test_an_indexed_job_preempted_after_three_of_its_eight_indexes_gathers_the_other_five(
    kube: Kube, slurm: Slurm, space: Space
) -> None:
    here = space("alice")
    kube.batch.create_namespaced_job(here, of_one_job("train", 8, "low"))
    pods = bound(kube, here, 8)
    first = is_one_job(slurm, pods, f"{here}/train")
    assert indexes(pods) == list(range(8))

    for index in (1, 4, 6):
        kube.succeed(here, pods[index].metadata.name)
    eventually("three have succeeded", lambda: kube.batch.read_namespaced_job("train", here).status.succeeded == 3)
    assert "RUNNING" in slurm.job(first["job_id"])["job_state"]
    node = pods[0].spec.node_name
    slurm.submit("carol", name="native", required_nodes=[node], cpus_per_task=64, time_limit=1)
    eventually("it was preempted", lambda: "PREEMPTED" in slurm.job(first["job_id"])["job_state"])

    eventually("its pods are gone", lambda: kube.bound(here) == [])
    pods = bound(kube, here, 5)
    is_one_job(slurm, pods, f"{here}/train")
    assert indexes(pods) == [0, 2, 3, 5, 7]
    assert node not in {each.spec.node_name for each in pods}

    for each in pods:
        kube.succeed(here, each.metadata.name)
    eventually("the job has completed", lambda: kube.batch.read_namespaced_job("train", here).status.completion_time)
    assert kube.batch.read_namespaced_job("train", here).status.succeeded == 8
    eventually("its Slurm job has ended", lambda: not slurm.live(f"{here}/train~"))
