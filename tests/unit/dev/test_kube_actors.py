"""The simulated cluster's own life: kubelets, controllers, garbage.  No loop, no waiting: the test sets the time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.simulation.kube import objects
from bridge.simulation.kube.actors import SOME_S
from bridge.simulation.kube.cluster import KubeCluster
from bridge.simulation.kube.objects import EXIT_CODE, RUN_S, START_S, STOP_S
from bridge.simulation.kube.store import selection
from bridge.simulation.kube.validation import Refusal
from tests.batch_job import batch_job

START = 1_800_000_000.0
ROOT = Path(__file__).parents[3]
Object = dict[str, Any]


class Cluster:
    """A cluster with one namespace and one node, and a hand on its clock."""

    def __init__(self, seed: int = 3, **node: Any) -> None:
        self.kube = KubeCluster(seed)
        self.now = START
        self.kube.create(START, "namespaces", objects.namespace("hpc"))
        self.kube.create(START, "nodes", objects.node("x1", **node))

    def pass_time(self, seconds: float) -> None:
        """Everything that is due within it happens when it is due."""
        end = self.now + seconds
        while (due := self.kube.next_due()) is not None and due <= end:
            self.now = max(self.now, due)
            self.kube.tick(self.now)
        self.now = end

    def pod(self, name: str, *, node: str = "x1", **told: Any) -> None:
        """A pod that is on a node."""
        self.kube.create(self.now, "pods", objects.pod("hpc", name, nodeName=node, **told))

    def phase(self, name: str) -> str | None:
        pod = self.kube.store.get("pods", "hpc", name)
        return None if pod is None else str(pod["status"]["phase"])

    def read(self, name: str) -> Object:
        pod = self.kube.store.get("pods", "hpc", name)
        assert pod is not None
        return pod

    def phases(self) -> list[str]:
        return [pod["status"]["phase"] for pod in self.kube.store.all("pods")]

    def delete(self, name: str, grace_s: int | None = None) -> None:
        self.kube.remove(self.now, "pods", self.read(name), grace_s)


def ended(pod: Object) -> Object:
    terminated: Object = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return terminated


def test_a_bound_pod_starts_soon_runs_its_time_and_ends_as_its_annotations_say() -> None:
    cluster = Cluster()
    cluster.pod("good", annotations={RUN_S: "60"})
    cluster.pod("bad", annotations={RUN_S: "60", EXIT_CODE: "3"})
    assert cluster.phases() == ["Pending", "Pending"]
    cluster.pass_time(1)
    assert cluster.phases() == ["Running", "Running"]
    cluster.pass_time(58)
    assert cluster.phases() == ["Running", "Running"]
    cluster.pass_time(2)
    assert (cluster.phase("good"), cluster.phase("bad")) == ("Succeeded", "Failed")
    assert (ended(cluster.read("good"))["exitCode"], ended(cluster.read("bad"))["exitCode"]) == (0, 3)


def running(*command: str, policy: str = "Never") -> Object:
    told = objects.pod("hpc", "a", nodeName="x1", restart_policy=policy)
    told["spec"]["containers"][0] |= {"command": list(command)}
    return told


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        (("sleep", "30"), 30),
        (("sh", "-c", "echo one of the sweep; sleep 5"), 5),
        (("sh", "-c", "sleep 2; echo half; /bin/sleep 0.1m"), 8),
        (("./solve", "--exactly"), SOME_S),
        (("sh", "-c", "echo sleep well"), SOME_S),
    ],
)
def test_a_pod_ends_when_its_command_would(command: tuple[str, ...], seconds: float) -> None:
    cluster = Cluster()
    cluster.kube.create(START, "pods", running(*command))
    cluster.pass_time(seconds - 0.1)
    assert cluster.phase("a") == "Running"
    cluster.pass_time(1.5)
    assert cluster.phase("a") == "Succeeded"


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(running("sleep", "infinity"), id="it sleeps for ever"),
        pytest.param(running("nginx", "-g", "daemon off;", policy="Always"), id="a service"),
        pytest.param(running(), id="what its image knows"),
    ],
)
def test_a_pod_that_would_not_end_runs_on(told: Object) -> None:
    cluster = Cluster()
    cluster.kube.create(START, "pods", told)
    cluster.pass_time(86400)
    assert cluster.phase("a") == "Running"


def test_the_example_of_a_job_comes_to_its_end() -> None:
    cluster = Cluster()
    template = yaml.safe_load((ROOT / "examples" / "job.yaml").read_text(encoding="utf-8"))["spec"]["template"]
    [container] = template["spec"]["containers"]
    cluster.kube.create(START, "pods", running(*container["command"], policy=template["spec"]["restartPolicy"]))
    cluster.pass_time(10)
    assert cluster.phase("a") == "Succeeded"


def test_a_pod_on_no_node_waits_for_ever() -> None:
    cluster = Cluster()
    cluster.kube.create(START, "pods", objects.pod("hpc", "a"))
    cluster.pass_time(86400)
    assert cluster.phase("a") == "Pending"


def test_a_pod_that_restarts_runs_again() -> None:
    cluster = Cluster()
    cluster.pod("always", restart_policy="Always", annotations={RUN_S: "10"})
    cluster.pod("failing", restart_policy="OnFailure", annotations={RUN_S: "10", EXIT_CODE: "1"})
    cluster.pod("done", restart_policy="OnFailure", annotations={RUN_S: "10"})
    cluster.pass_time(25)
    assert [cluster.phase(name) for name in ("always", "failing", "done")] == ["Running", "Running", "Succeeded"]
    assert cluster.read("always")["status"]["containerStatuses"][0]["restartCount"] == 2


def test_a_deleted_pod_gets_its_term_and_goes_when_its_containers_do() -> None:
    cluster = Cluster()
    cluster.pod("a", annotations={STOP_S: "5"})
    cluster.pass_time(1)
    cluster.delete("a")
    cluster.pass_time(4)
    assert cluster.phase("a") == "Running"
    cluster.pass_time(2)
    assert cluster.phase("a") is None


def test_containers_that_do_not_stop_are_killed_at_the_end_of_their_grace() -> None:
    cluster = Cluster()
    cluster.pod("a", annotations={STOP_S: "600"}, grace_s=30)
    cluster.pass_time(1)
    cluster.delete("a")
    cluster.pass_time(29)
    assert cluster.phase("a") == "Running"
    cluster.pass_time(2)
    assert cluster.phase("a") is None


def test_a_grace_that_is_shortened_counts_from_the_first_term() -> None:
    cluster = Cluster()
    cluster.pod("a", annotations={STOP_S: "600"}, grace_s=300)
    cluster.pass_time(1)
    cluster.delete("a")
    cluster.pass_time(20)
    cluster.delete("a", grace_s=10)
    cluster.pass_time(0.1)
    assert cluster.phase("a") is None


@pytest.mark.parametrize("deleted_with", [None, -30])
def test_a_negative_grace_is_one_second(deleted_with: int | None) -> None:
    cluster = Cluster()
    cluster.pod("a", annotations={STOP_S: "600"}, grace_s=-100 if deleted_with is None else 300)
    cluster.pass_time(1)
    cluster.delete("a", grace_s=deleted_with)
    cluster.pass_time(0.9)
    assert cluster.phase("a") == "Running"
    cluster.pass_time(0.2)
    assert cluster.phase("a") is None


def test_a_deadline_that_comes_while_it_runs_fails_the_pod_and_keeps_it() -> None:
    cluster = Cluster()
    cluster.pod("a", restart_policy="Always")
    cluster.pass_time(10)
    pod = cluster.read("a")
    cluster.kube.store.put("pods", {**pod, "spec": {**pod["spec"], "activeDeadlineSeconds": 1}})
    cluster.pass_time(1)
    assert cluster.phase("a") == "Failed"
    assert cluster.read("a")["status"]["reason"] == "DeadlineExceeded"
    assert ended(cluster.read("a"))["exitCode"] == 143


@pytest.mark.parametrize(
    ("requests", "reason"),
    [({"cpu": "5"}, "OutOfcpu"), ({"memory": "9Gi"}, "OutOfmemory"), ({}, "OutOfpods"), ({"cpu": "1"}, "OutOfpods")],
)
def test_what_does_not_fit_fails_at_the_kubelet(requests: dict[str, str], reason: str) -> None:
    cluster = Cluster(cpu="8", memory="16Gi", pods=1 if reason == "OutOfpods" else 10)
    cluster.pod("first", requests={"cpu": "4", "memory": "8Gi"}, annotations={START_S: "0"})
    cluster.pass_time(0.1)
    cluster.pod("second", requests=requests)
    cluster.pass_time(1)
    assert cluster.phase("second") == "Failed"
    assert cluster.read("second")["status"]["reason"] == reason


def test_a_pod_whose_host_port_another_listens_on_fails_at_the_kubelet() -> None:
    cluster = Cluster()
    cluster.pod("first", host_port=8080, annotations={START_S: "0"})
    cluster.pass_time(0.1)
    cluster.pod("second", host_port=8080)
    cluster.pod("elsewhere", host_port=9090)
    cluster.pass_time(1)
    assert cluster.read("second")["status"]["reason"] == "NodePorts"
    assert cluster.phase("elsewhere") == "Running"


def test_a_terminating_pod_still_takes_its_room() -> None:
    cluster = Cluster(cpu="4")
    cluster.pod("old", requests={"cpu": "4"}, annotations={STOP_S: "20", START_S: "0"})
    cluster.pass_time(1)
    cluster.delete("old")
    cluster.pod("new", requests={"cpu": "4"})
    cluster.pass_time(1)
    assert cluster.phase("new") == "Failed"


def test_a_selector_that_the_node_does_not_match_fails_at_the_kubelet() -> None:
    cluster = Cluster()
    cluster.pod("a", nodeSelector={"disk": "fast"})
    cluster.pass_time(1)
    assert cluster.read("a")["status"]["reason"] == "NodeAffinity"


def test_on_a_silent_node_nothing_happens_and_it_is_not_ready_after_a_while() -> None:
    def ready() -> str:
        node = cluster.kube.store.get("nodes", "", "x1")
        assert node is not None
        return str(next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"))

    cluster = Cluster()
    cluster.pod("a", annotations={RUN_S: "10"})
    cluster.pass_time(1)
    cluster.kube.actors.stop_kubelet(cluster.now, "x1")
    cluster.delete("a")
    cluster.pass_time(39)
    assert ready() == "True"
    cluster.pass_time(60)
    assert ready() == "Unknown"
    assert cluster.phase("a") == "Running"
    cluster.kube.actors.start_kubelet(cluster.now, "x1")
    cluster.pass_time(1)
    assert ready() == "True"
    assert cluster.phase("a") is None


def test_a_pod_on_a_node_that_does_not_exist_is_collected() -> None:
    cluster = Cluster()
    cluster.pod("a", node="x9")
    cluster.pass_time(30)
    assert cluster.phase("a") == "Pending"
    cluster.pass_time(30)
    assert cluster.phase("a") is None


def test_a_replica_set_replaces_ended_pods_and_deletes_surplus_pods() -> None:
    cluster = Cluster()
    made = cluster.kube.create(START, "replicasets", objects.replica_set("hpc", "web", 3, objects.pod("hpc", "x")))
    cluster.pass_time(1)
    pods = list(cluster.kube.store.all("pods"))
    assert len(pods) == 3
    assert all(pod["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"] for pod in pods)
    cluster.kube.remove(cluster.now, "pods", pods[0])
    cluster.pass_time(1)
    assert len(list(cluster.kube.store.all("pods"))) == 3

    now = cluster.kube.store.get("replicasets", "hpc", "web")
    assert now is not None
    cluster.kube.store.put("replicasets", {**now, "spec": {**now["spec"], "replicas": 1}})
    cluster.pass_time(1)
    assert len(list(cluster.kube.store.all("pods"))) == 1
    now = cluster.kube.store.get("replicasets", "hpc", "web")
    assert now is not None
    cluster.kube.remove(cluster.now, "replicasets", now)
    cluster.pass_time(1)
    assert list(cluster.kube.store.all("pods")) == []


def run_bound(cluster: Cluster, seconds: int) -> None:
    """Let time pass, and bind every pod that waits."""
    for _ in range(seconds):
        for pod in list(cluster.kube.store.all("pods")):
            if not pod["spec"].get("nodeName"):
                cluster.kube.store.put("pods", {**pod, "spec": {**pod["spec"], "nodeName": "x1"}})
        cluster.pass_time(1)


def test_an_indexed_batch_job_runs_each_index_once_and_completes() -> None:
    cluster = Cluster()
    template = objects.pod("hpc", "x", annotations={RUN_S: "5"})
    job = batch_job("hpc", "train", template, completions=4, parallelism=2, completionMode="Indexed")
    cluster.kube.create(START, "jobs", job)
    cluster.pass_time(0.5)
    assert len(cluster.phases()) == 2
    run_bound(cluster, 30)
    indices = [
        pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in cluster.kube.store.all("pods")
    ]
    assert sorted(indices) == ["0", "1", "2", "3"]
    done = cluster.kube.store.get("jobs", "hpc", "train")
    assert done is not None
    assert done["status"]["conditions"][0]["type"] == "Complete"
    assert done["status"]["succeeded"] == 4


def test_a_batch_job_gives_up_after_its_backoff_limit() -> None:
    cluster = Cluster()
    template = objects.pod("hpc", "x", annotations={RUN_S: "1", EXIT_CODE: "1"})
    cluster.kube.create(START, "jobs", batch_job("hpc", "train", template, backoffLimit=2))
    run_bound(cluster, 30)
    assert cluster.phases() == ["Failed"] * 3
    done = cluster.kube.store.get("jobs", "hpc", "train")
    assert done is not None
    assert done["status"]["conditions"][0]["type"] == "Failed"


def test_a_namespace_goes_once_its_last_pod_has_gone_and_takes_nothing_new_meanwhile() -> None:
    cluster = Cluster()
    cluster.pod("a", annotations={STOP_S: "5"})
    cluster.pass_time(1)
    namespace = cluster.kube.store.get("namespaces", "", "hpc")
    assert namespace is not None
    cluster.kube.remove(cluster.now, "namespaces", namespace)
    with pytest.raises(Refusal, match="being terminated"):
        cluster.pod("b")
    cluster.pass_time(10)
    assert cluster.kube.store.get("namespaces", "", "hpc") is None


def test_events_are_forgotten_after_an_hour() -> None:
    cluster = Cluster()
    event = {"metadata": {"namespace": "hpc", "name": "e"}, "lastTimestamp": objects.rfc3339(START)}
    cluster.kube.create(START, "events", event)
    cluster.pass_time(3599)
    assert cluster.kube.store.get("events", "hpc", "e") is not None
    cluster.pass_time(2)
    assert cluster.kube.store.get("events", "hpc", "e") is None


def test_the_same_seed_is_the_same_life() -> None:
    def life(seed: int) -> list[bytes]:
        cluster = Cluster(seed)
        cluster.kube.create(START, "replicasets", objects.replica_set("hpc", "web", 5, objects.pod("hpc", "x")))
        run_bound(cluster, 20)
        lines, _, _ = cluster.kube.changes_after(1, selection("pods", "", {}))
        return lines

    assert life(5) == life(5)
    assert life(5) != life(6)


# --- deployments --------------------------------------------------------------------------------------------------


def _deployment(replicas: int, image: str) -> Object:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"nodeName": "x1", "containers": [{"name": "main", "image": image}]},
    }
    return {"metadata": {"namespace": "hpc", "name": "web"}, "spec": {"replicas": replicas, "template": template}}


def test_a_deployment_replaces_its_pods_after_the_new_ones_are_ready_and_takes_all_with_it() -> None:
    cluster = Cluster()
    cluster.kube.create(START, "deployments", _deployment(2, "first"))
    cluster.pass_time(5)
    assert cluster.phases() == ["Running", "Running"]
    [old] = cluster.kube.store.all("replicasets")

    made = cluster.kube.store.get("deployments", "hpc", "web")
    assert made
    assert made["status"]["availableReplicas"] == 2
    cluster.kube.store.put(
        "deployments", {**made, "spec": {**made["spec"], "template": _deployment(2, "second")["spec"]["template"]}}
    )
    cluster.pass_time(0.15)
    assert len(cluster.phases()) == 4, "the old pods stay until the new ones are ready"
    cluster.pass_time(5)
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.kube.store.all("pods")} == {"second"}
    assert {each["spec"]["replicas"] for each in cluster.kube.store.all("replicasets")} == {0, 2}
    assert cluster.kube.store.get("replicasets", "hpc", old["metadata"]["name"])

    made = cluster.kube.store.get("deployments", "hpc", "web")
    assert made
    cluster.kube.remove(cluster.now, "deployments", made)
    cluster.pass_time(5)
    assert list(cluster.kube.store.all("replicasets")) == []
    assert cluster.phases() == []


CONTAINER = {"name": "main", "image": "none"}
JOBS, DEPLOYMENTS = "/apis/batch/v1/namespaces/hpc/jobs", "/apis/apps/v1/namespaces/hpc/deployments"


def answer(cluster: Cluster, path: str, thing: Object) -> tuple[int, str]:
    """Status of the answer, and its message; the controllers act on what was created."""
    status, _, body = cluster.kube.handle(cluster.now, "POST", path, {}, json.dumps(thing).encode())
    cluster.pass_time(5)
    return status, json.loads(body).get("message", "")


@pytest.mark.parametrize("path", [JOBS, DEPLOYMENTS])
@pytest.mark.parametrize(
    ("template", "why"),
    [
        ({}, "spec.containers: Required value"),
        ({"spec": {"containers": []}}, "spec.containers: Required value"),
        ({"spec": {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "abc"}}}]}}, 'must match: "abc"'),
    ],
)
def test_an_object_whose_pods_could_not_be_created_is_refused_and_stops_no_controller(
    path: str, template: Object, why: str
) -> None:
    cluster = Cluster()
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    status, message = answer(cluster, path, {"metadata": {"name": "a"}, "spec": spec})
    assert (status, why in message) == (422, True), message
    assert cluster.phases() == []


def test_a_field_that_is_null_counts_as_not_given() -> None:
    cluster = Cluster()
    spec = {"completions": None, "parallelism": None, "template": {"spec": {"containers": [CONTAINER]}}}
    assert answer(cluster, JOBS, {"metadata": {"name": "a", "labels": None}, "spec": spec}) == (201, "")
    assert len(cluster.phases()) == 1


def test_an_owner_without_a_kind_is_refused() -> None:
    cluster = Cluster()
    owner = {"apiVersion": "v1", "name": "a", "uid": "1"}
    pod = {"metadata": {"name": "a", "ownerReferences": [owner]}, "spec": {"containers": [CONTAINER]}}
    status, message = answer(cluster, "/api/v1/namespaces/hpc/pods", pod)
    assert (status, message) == (422, 'Pod "a" is invalid: metadata.ownerReferences.kind: Required value')
