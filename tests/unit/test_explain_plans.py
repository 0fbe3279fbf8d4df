"""`slurm-bridge explain -f` of what other controllers make pods of, and of gangs whose size the file says (O4)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge import settings
from bridge.cli.explain import of_manifest
from bridge.cli.explain_text import as_json, as_text
from bridge.errors import ConfigError
from bridge.simulation.kube import objects
from bridge.simulation.slurm.nodes import SlurmSimNode
from integration.readme import ROOT
from tests.unit.doctor.clusters import Both

WIDE = 400
SMALL = {"cpu": "1", "memory": "1Gi"}
Explained = tuple[str, list[Any]]


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Both:
    monkeypatch.delenv("SLURM_JWT", raising=False)
    return Both(tmp_path)


async def told(both: Both, text: str) -> Explained:
    """The answer of `explain -f` as text, on one line, and as JSON."""
    file = both.folder / "m.yaml"
    file.write_text(text)
    async with both.served() as found:
        asked = {**found, "file": str(file), "namespace": "hpc"}
        answers = await of_manifest(settings.load(asked, {}), asked)
    return " ".join(as_text(answers, WIDE, time.time()).split()), json.loads(as_json(answers))


def file(*things: Any) -> str:
    return yaml.safe_dump_all(things)


def template(**options: Any) -> Any:
    made = objects.pod("hpc", "x", **{"requests": SMALL, **options})
    meta = {"labels": made["metadata"]["labels"], "annotations": made["metadata"]["annotations"]}
    return {"metadata": meta, "spec": made["spec"]}


def pod(name: str, **options: Any) -> Any:
    made = objects.pod("hpc", name, **{"requests": SMALL, **options})
    return {"apiVersion": "v1", "kind": "Pod", **made}


def thing(api: str, kind: str, name: str, spec: Any, **meta: Any) -> Any:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def tasks(entry: Any) -> list[tuple[int, int]]:
    """CPUs and number of pods of each component of the job that would be submitted."""
    request = entry["request"]
    parts = request.get("jobs") or [request["job"]]
    return [(part["cpus_per_task"], part.get("tasks", 1)) for part in parts]


# --- JobSet -----------------------------------------------------------------------------------------------------------


def replicated(name: str, replicas: int = 1, pods: int = 1, cpu: str = "1", **more: Any) -> Any:
    spec = {"parallelism": pods, "completions": pods, "template": template(requests={"cpu": cpu, "memory": "1Gi"})}
    labels = {"labels": more.pop("labels", {})}
    return {"name": name, "replicas": replicas, "template": {"metadata": labels, "spec": spec}, **more}


async def test_the_example_of_a_jobset_is_one_job_of_all_its_pods(both: Both) -> None:
    # the driver has one node, and the four workers of 4 CPUs another
    both.add_node("x3", cpu="16")
    both.slurm.nodes["x3"] = SlurmSimNode("x3", cpus=16, memory_mib=40_000, devices={("gpu", "h100"): 4})
    text, [entry] = await told(both, (ROOT / "examples" / "jobset.yaml").read_text(encoding="utf-8"))
    assert entry["title"].startswith("pods of JobSet hpc/sim, as in ")
    assert "Slurm would accept it: " in text
    assert tasks(entry) == [(1, 1), (4, 4)]
    assert "--time=01:00:00" in text, "the annotation of the JobSet counts for its pods"
    assert "This is a plan of the pods that the controller of JobSet makes from these fields." in text


async def test_a_jobset_whose_jobs_start_one_after_the_other_is_a_job_for_each_stage(both: Both) -> None:
    first, second = replicated("load"), replicated("train", pods=3, dependsOn=[{"name": "load", "status": "Complete"}])
    text, entries = await told(
        both, file(thing("jobset.x-k8s.io/v1alpha2", "JobSet", "sim", {"replicatedJobs": [first, second]}))
    )
    assert [tasks(entry) for entry in entries] == [[(1, 1)], [(1, 3)]]
    assert "pods of JobSet hpc/sim, stage train" in text
    assert "each stage is a gang with its own job" in text


@pytest.mark.parametrize(
    ("spec", "why"),
    [({}, "makes 0 pods: from 1 to 10,000 are one gang"), ({"replicatedJobs": 3}, "cannot be used: Expected `array")],
)
async def test_a_jobset_without_pods_is_one_sentence(both: Both, spec: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"JobSet sim {why}"):
        await told(both, file(thing("jobset.x-k8s.io/v1alpha2", "JobSet", "sim", spec)))


# --- LeaderWorkerSet --------------------------------------------------------------------------------------------------


async def test_the_example_of_a_leader_worker_set_is_one_job_a_group(both: Both) -> None:
    text, [entry] = await told(both, (ROOT / "examples" / "leaderworkerset.yaml").read_text(encoding="utf-8"))
    assert tasks(entry) == [(4, 3)]
    assert entry["request"]["job"]["comment"] == "a model on three nodes"
    assert "It makes 2 groups of 3 pods; each group is a job like this one." in text


async def test_leaders_of_another_shape_and_workers_that_come_too_late_are_seen(both: Both) -> None:
    of_pods = {
        "size": 3,
        "leaderTemplate": template(),
        "workerTemplate": template(requests={"cpu": "2", "memory": "1Gi"}),
    }
    spec = {"replicas": 1, "startupPolicy": "LeaderReady", "leaderWorkerTemplate": of_pods}
    text, [entry] = await told(both, file(thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", spec)))
    assert tasks(entry) == [(1, 1), (2, 2)]
    assert "so that the gang is never complete: keep startupPolicy: LeaderCreated." in text


# --- TrainJob ---------------------------------------------------------------------------------------------------------

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def runtime(name: str = "torch") -> Any:
    node = replicated("node", labels={STEP: "trainer"})
    node["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "node"
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node]}}}
    return thing("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", name, spec)


def train_job(**spec: Any) -> Any:
    spec = {"runtimeRef": {"name": "torch"}, **spec}
    return thing("trainer.kubeflow.org/v1alpha1", "TrainJob", "tune", spec, namespace="hpc")


async def test_a_train_job_has_the_pods_of_its_runtime_with_its_own_number_and_resources(both: Both) -> None:
    trainer = {"numNodes": 4, "resourcesPerNode": {"requests": {"cpu": 3, "memory": "2Gi"}}}
    text, [entry] = await told(both, file(runtime(), train_job(trainer=trainer)))
    assert tasks(entry) == [(3, 4)]
    assert entry["title"].startswith("pods of TrainJob hpc/tune, as in ")
    assert "Its runtime is the ClusterTrainingRuntime torch of this file." in text


async def test_a_train_job_whose_override_fits_no_node_says_so(both: Both) -> None:
    override = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"zone": "nowhere"}}}
    text, _ = await told(both, file(runtime(), train_job(podTemplateOverrides=[override])))
    assert "0/2 nodes can run this pod" in text


async def test_a_train_job_without_its_runtime_says_which_command_gives_it(both: Both) -> None:
    with pytest.raises(
        ConfigError, match=r"not in this file\. Add it: kubectl get clustertrainingruntime torch -o yaml"
    ):
        await told(both, file(train_job()))


# --- PodGroups and Workloads ------------------------------------------------------------------------------------------


async def test_a_pod_group_of_the_file_says_how_many_pods_the_gang_has(both: Both) -> None:
    """As the examples of the Go bridge write it."""
    group = thing("scheduling.x-k8s.io/v1alpha1", "PodGroup", "sleep", {"minMember": 2}, namespace="hpc")
    labels = {"scheduling.x-k8s.io/pod-group": "sleep"}
    _, [entry] = await told(both, file(group, pod("a", labels=labels), pod("b", labels=labels)))
    assert tasks(entry) == [(1, 2)]
    text, [entry] = await told(both, file(group, pod("a", labels=labels)))
    assert "1 of 2 pods of PodGroup sleep are here in namespace hpc. " in text
    assert entry["explanation"]["missing"] == 1


def gang(count: int) -> Any:
    return {"schedulingPolicy": {"gang": {"minCount": count}}}


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
async def test_a_pod_group_of_kubernetes_itself_may_take_its_policy_from_a_workload(both: Both, version: str) -> None:
    api = f"scheduling.k8s.io/{version}"
    own = thing(api, "PodGroup", "own", gang(2))
    ref = {"workload": {"workloadName": "training", "podGroupTemplateName": "worker"}}
    taken = thing(api, "PodGroup", "taken", {"podGroupTemplateRef": ref})
    workload = thing(api, "Workload", "training", {"podGroupTemplates": [{"name": "worker", **gang(3)}]})
    pods = [pod(f"{name}-0", schedulingGroup={"podGroupName": name}) for name in ("own", "taken")]
    text, entries = await told(both, file(own, taken, workload, *pods))
    assert [tasks(entry) for entry in entries] == [[(1, 2)], [(1, 3)]]
    assert "left out" not in text


async def test_the_workload_of_a_batch_job_makes_its_pods_a_gang(both: Both) -> None:
    controller = {"apiGroup": "batch", "kind": "Job", "name": "train"}
    spec = {"controllerRef": controller, "podGroupTemplates": [{"name": "worker", **gang(4)}]}
    workload = thing("scheduling.k8s.io/v1alpha2", "Workload", "training", spec)
    job = thing("batch/v1", "Job", "train", {"parallelism": 4, "completions": 4, "template": template()})
    text, [entry] = await told(both, file(workload, job))
    assert tasks(entry) == [(1, 4)]
    assert "Slurm would accept it: " in text


# --- Kubernetes' own controllers --------------------------------------------------------------------------------------


async def test_a_stateful_set_and_a_cron_job_say_that_they_are_plans_and_how_many_pods_there_are(both: Both) -> None:
    stateful = thing("apps/v1", "StatefulSet", "db", {"replicas": 3, "template": template()})
    job = {"spec": {"parallelism": 2, "template": template()}}
    cron = thing("batch/v1", "CronJob", "nightly", {"schedule": "0 2 * * *", "suspend": True, "jobTemplate": job})
    _, [of_set, of_cron] = await told(both, file(stateful, cron))
    assert of_set["notes"] == [
        "This is a plan: the StatefulSet makes a pod of the same name again whenever one has ended.",
        "It makes 3 pods like this one; each has a job of its own.",
    ]
    assert of_cron["notes"] == [
        "This is a plan: such a batch Job is made at each time of its schedule (0 2 * * *).",
        "The CronJob is suspended: it makes no batch Job before it is resumed.",
        "It makes 2 pods like this one; each has a job of its own.",
    ]


async def test_what_makes_no_pods_now_says_so(both: Both) -> None:
    held = thing("batch/v1", "Job", "held", {"suspend": True, "template": template()})
    none = thing("apps/v1", "Deployment", "none", {"replicas": 0, "template": template()})
    _, [of_held, of_none] = await told(both, file(held, none))
    assert of_held["notes"] == ["The Job is suspended: it makes no pods before it is resumed."]
    assert of_none["notes"] == ["It makes 0 pods as it is written. The plan is of one pod."]


async def test_a_stateful_set_that_makes_its_gang_pod_by_pod_is_asked_to_make_them_in_parallel(both: Both) -> None:
    labelled = template(labels={"slurm-bridge/gang": "db"}, annotations={"slurm-bridge/gang-size": "3"})
    text, _ = await told(both, file(thing("apps/v1", "StatefulSet", "db", {"replicas": 3, "template": labelled})))
    assert "say podManagementPolicy: Parallel." in text
