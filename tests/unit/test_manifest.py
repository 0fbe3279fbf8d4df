"""Pods read from manifests: as the API server would hold them, and every mistake in one sentence."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bridge.cli.manifest import Contents, read
from bridge.cli.planned_pods import Planned
from bridge.errors import ConfigError
from scheduler.place.fit import needs

NOW = 1_800_000_000.0
POD = """
kind: Pod
apiVersion: v1
metadata: {name: train, annotations: {slurm-bridge/qos: high}}
spec:
  schedulerName: slurm-bridge
  containers:
  - {name: main, image: x, resources: {limits: {cpu: 2, memory: 1Gi}, requests: {memory: 512Mi}}}
"""


def planned(folder: Path, text: str, namespace: str = "hpc") -> Contents:
    file = folder / "m.yaml"
    file.write_text(text)
    return read(str(file), namespace, NOW)


def one(folder: Path, text: str, namespace: str = "hpc") -> Planned:
    [found] = planned(folder, text, namespace).planned
    return found


def refusal(folder: Path, text: str, namespace: str = "hpc") -> str:
    with pytest.raises(ConfigError) as refused:
        planned(folder, text, namespace)
    return str(refused.value).replace(str(folder), "")


def test_a_pod_is_as_the_server_would_hold_it(tmp_path: Path) -> None:
    found = one(tmp_path, POD)
    assert found.what == "Pod hpc/train"
    assert (found.pod.namespace, found.pod.created) == ("hpc", NOW)
    assert found.pod.annotations == {"slurm-bridge/qos": "high"}
    assert (found.pod.service_account, found.pod.restart_policy) == ("default", "Always")


def test_what_is_limited_and_not_requested_is_requested(tmp_path: Path) -> None:
    assert needs(one(tmp_path, POD).pod) == {"cpu": 2000, "memory": 512 * 2**20, "pods": 1}


def test_a_workload_object_is_the_owner_of_its_pods(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        """
        kind: Deployment
        apiVersion: apps/v1
        metadata: {name: web, annotations: {slurm-bridge/account: teama}}
        spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main, image: x}]}}}
        """,
    )
    [owner] = found.owners
    assert found.pod.owner == owner.ref
    assert owner.annotations == {"slurm-bridge/account": "teama"}
    assert found.what == "pods of Deployment hpc/web"


def test_a_batch_job_lends_its_deadline_and_a_cron_job_both_its_annotations(tmp_path: Path) -> None:
    template = "template: {spec: {restartPolicy: Never, containers: [{name: main, image: x}]}}"
    job = one(
        tmp_path,
        f"{{kind: Job, apiVersion: batch/v1, metadata: {{name: j}}, spec: {{activeDeadlineSeconds: 90, {template}}}}}",
    )
    assert [owner.active_deadline_s for owner in job.owners] == [90]
    cron = one(
        tmp_path,
        "{kind: CronJob, apiVersion: batch/v1, metadata: {name: c, annotations: {a: outer}}, spec: {jobTemplate: "
        f"{{metadata: {{annotations: {{a: inner}}}}, spec: {{activeDeadlineSeconds: 60, {template}}}}}}}}}",
    )
    assert [owner.annotations for owner in cron.owners] == [{"a": "inner"}, {"a": "outer"}]
    assert cron.owners[0].owner == cron.owners[1].ref
    assert cron.owners[0].active_deadline_s == 60


def test_documents_of_a_file_that_make_no_pods_are_named(tmp_path: Path) -> None:
    service = "kind: Service\nmetadata: {name: web}\n"
    listed = "kind: List\nitems:\n- {kind: ConfigMap, metadata: {name: c}}\n"
    found = planned(tmp_path, f"{POD}\n---\n{service}---\n---\n{listed}")
    assert [each.what for each in found.planned] == ["Pod hpc/train"]
    assert found.podless == ("Service web", "ConfigMap c")


def test_what_is_not_kubernetes_own_is_distinguished_from_what_makes_no_pods(tmp_path: Path) -> None:
    route = "{kind: Ingress, apiVersion: networking.k8s.io/v1, metadata: {name: i}}"
    spark = "{kind: SparkApplication, apiVersion: example.org/v1, metadata: {name: pi}}"
    found = planned(tmp_path, f"{route}\n---\n{spark}\n---\n{{kind: Job, apiVersion: b.io/v1, metadata: {{name: j}}}}")
    assert (found.podless, found.foreign) == (("Ingress i",), ("SparkApplication pi", "Job j"))


def many(folder: Path, kind: str, spec: str, gang: str = "g") -> Planned:
    labels = f"labels: {{slurm-bridge/gang: {gang}}}, annotations: {{slurm-bridge/gang-size: '4'}}" if gang else ""
    template = f"template: {{metadata: {{{labels}}}, spec: {{containers: [{{name: main, image: x}}]}}}}"
    return one(folder, f"{{kind: {kind}, apiVersion: apps/v1, metadata: {{name: w}}, spec: {{{spec}{template}}}}}")


@pytest.mark.parametrize(
    ("kind", "spec", "pods"),
    [
        ("Job", "", 1),
        ("Job", "parallelism: 4, ", 4),
        ("Job", "parallelism: 4, completions: 3, ", 3),
        ("Job", "parallelism: 9, ", 4),  # the others stand for themselves
        ("Deployment", "replicas: 3, ", 3),
        ("StatefulSet", "replicas: 4, podManagementPolicy: Parallel, ", 4),
        ("StatefulSet", "replicas: 4, ", 1),
        ("DaemonSet", "", 1),
        ("Deployment", "replicas: 0, ", 1),
    ],
)
def test_pods_of_a_gang_are_planned_as_many_as_their_controller_would_make(
    tmp_path: Path, kind: str, spec: str, pods: int
) -> None:
    found = many(tmp_path, kind, spec)
    assert len({pod.uid for pod in found.pods}) == len(found.pods) == pods


def test_pods_that_are_no_gang_are_planned_as_one_of_them(tmp_path: Path) -> None:
    assert len(many(tmp_path, "Deployment", "replicas: 3, ", gang="").pods) == 1


def test_a_stateful_set_that_makes_one_pod_at_a_time_never_completes_its_gang_and_that_is_reported(
    tmp_path: Path,
) -> None:
    [_, note] = many(tmp_path, "StatefulSet", "replicas: 4, ").notes
    assert note.endswith("so that its gang is never complete: say podManagementPolicy: Parallel.")
    assert len(many(tmp_path, "StatefulSet", "replicas: 4, podManagementPolicy: Parallel, ").notes) == 1


def test_standard_input_is_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(POD))
    [found] = read("-", "", NOW).planned
    assert found.pod.full_name == "default/train"


def test_two_namespaces_that_differ_are_refused_as_kubectl_does(tmp_path: Path) -> None:
    text = POD.replace("{name: train,", "{name: train, namespace: other,")
    assert refusal(tmp_path, text) == "/m.yaml: Pod train names namespace other, and -n says hpc."
    assert one(tmp_path, text, "").pod.namespace == "other"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "/m.yaml: is not YAML in line 1."),
        ("a: 0b_", "/m.yaml: is not YAML."),
        ("- 1", "/m.yaml: has an object without a kind, which is not a Kubernetes object."),
        ("kind: List\nitems: 5", "/m.yaml: has a List whose items are not a list."),
        ("{kind: Job, metadata: {name: j}}", "/m.yaml: Job j has no spec.template."),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    assert refusal(tmp_path, text) == sentence


def test_a_key_that_is_given_twice_is_a_mistake(tmp_path: Path) -> None:
    """kubectl takes the last one, and says nothing: the first annotations would have no effect."""
    text = "kind: Pod\nmetadata:\n  name: a\n  annotations: {a: b}\n  annotations: {c: d}\n"
    assert (
        refusal(tmp_path, text)
        == '/m.yaml: "annotations" is given twice, the second time in line 5. Remove one of them.'
    )


def test_what_is_no_pod_is_reported_with_the_place_of_the_mistake(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, POD.replace("slurm-bridge/qos: high", "slurm-bridge/time-limit: 120"))
    assert sentence.startswith("/m.yaml: train is not a pod that Kubernetes accepts: Expected `str`, got `int`")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none: cannot be read: No such file or directory\. Name a manifest with -f"):
        read(str(tmp_path / "none"), "", NOW)
