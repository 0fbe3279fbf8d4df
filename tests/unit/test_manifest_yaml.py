"""Files of YAML that no API server would take: one sentence each, in bounded time, and never a traceback."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bridge.cli import manifest_yaml
from bridge.cli.manifest import Contents, read
from bridge.errors import ConfigError

NOW = 1_800_000_000.0
TEMPLATE = "template: {spec: {containers: [{name: main}]}}"
JOBSET = "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: js}\nspec: {replicatedJobs: %s}\n"
TRAIN_JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: r}
spec: {template: {spec: {replicatedJobs: %s}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec: %s
"""
JOBS = f"[{{name: node, template: {{spec: {{{TEMPLATE}}}}}}}]"


def contents(folder: Path, text: str) -> Contents:
    file = folder / "m.yaml"
    file.write_text(text, encoding="utf-8")
    return read(str(file), "hpc", NOW)


def pod(spec: str, meta: str = "name: x") -> str:
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{{meta}}}\nspec: {{{spec}}}\n"


def bomb() -> str:
    lines = [f"x{number}: &x{number} [{', '.join([f'*x{number - 1}'] * 10)}]" for number in range(1, 12)]
    return "\n".join(["x0: &x0 [a]", *lines, pod("containers: [], y: *x11")])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("&a {kind: Pod, spec: *a}", "a value that contains itself"),
        (pod("containers: &a [*a]"), "a value that contains itself"),
        (JOBSET % "&a [{name: x, template: *a}]", "a value that contains itself"),
        (bomb(), "more than 1,000,000 values"),
        (pod(f"containers: [], replicas: 0x{'f' * 5000}"), "a number that is too large"),
        (pod("containers: [], x: .nan"), ".nan"),
        (pod("containers: [], null: 1"), "an empty key"),
        (pod('containers: [], x: "\\ud800"'), "half a character"),
        (pod("containers: [], x: !!set {a}"), "another type"),
    ],
)
def test_what_json_does_not_have_is_refused_in_one_sentence(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        contents(tmp_path, text)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (pod("containers: 5"), "$.spec.containers"),
        (pod("containers: [], initContainers: true"), "$.spec.initContainers"),
        (JOBSET % "5", "$.spec.replicatedJobs"),
        (TRAIN_JOB % ("5", "{runtimeRef: {name: r}}"), "$.spec.replicatedJobs"),
        (TRAIN_JOB % (JOBS, "{runtimeRef: {name: r}, podTemplateOverrides: 5}"), "podTemplateOverrides is not a list"),
        (
            TRAIN_JOB % (JOBS, "{runtimeRef: {name: r}, podTemplateOverrides: [{targetJobs: 5}]}"),
            "targetJobs is not a list",
        ),
        (
            TRAIN_JOB
            % (
                JOBS,
                "{runtimeRef: {name: r}, podTemplateOverrides: [{targetJobs: [{name: node}], spec: {tolerations: 5}}]}",
            ),
            "$.spec.tolerations",
        ),
    ],
)
def test_a_value_where_a_list_belongs_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        contents(tmp_path, text)
    assert why in str(refused.value)


def test_a_billion_jobs_without_pods_take_no_time(tmp_path: Path) -> None:
    empty = f"{{name: a, replicas: 1000000000, template: {{spec: {{parallelism: 0, {TEMPLATE}}}}}}}"
    [found] = contents(tmp_path, JOBSET % f"[{empty}, {{name: b, template: {{spec: {{{TEMPLATE}}}}}}}]").planned
    assert [pod.name for pod in found.pods] == ["js-b-0-0"]


def test_a_negative_number_of_pods_does_not_hide_a_huge_one(tmp_path: Path) -> None:
    many = f"template: {{spec: {{parallelism: 100000000, {TEMPLATE}}}}}"
    with pytest.raises(ConfigError, match="makes 100,000,000,000 pods"):
        contents(tmp_path, JOBSET % f"[{{name: a, replicas: 1000, {many}}}, {{name: b, replicas: -1000, {many}}}]")


def test_times_and_dates_are_text_and_keys_are_named_as_kubectl_names_them(tmp_path: Path) -> None:
    annotations = "annotations: {slurm-bridge/time-limit: 1:30:00, slurm-bridge/begin: 2027-01-02}, 5: x, yes: x"
    [found] = contents(tmp_path, pod("containers: []", f"name: 2027-01-02, {annotations}")).planned
    assert found.pod.name == "2027-01-02"
    assert found.pod.annotations == {"slurm-bridge/time-limit": "1:30:00", "slurm-bridge/begin": "2027-01-02"}


def test_an_alias_is_a_copy_so_that_an_override_of_one_job_leaves_the_other_alone(tmp_path: Path) -> None:
    jobs = f"[{{name: a, template: &t {{spec: {{{TEMPLATE}}}}}}}, {{name: b, template: *t}}]"
    override = "{targetJobs: [{name: a}], spec: {nodeSelector: {only: a}}}"
    text = TRAIN_JOB % (jobs, f"{{runtimeRef: {{name: r}}, podTemplateOverrides: [{override}]}}")
    [found] = contents(tmp_path, text).planned
    assert [(pod.name, dict(pod.node_selector)) for pod in found.pods] == [("t-a-0-0", {"only": "a"}), ("t-b-0-0", {})]


def test_what_is_too_long_is_refused_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_yaml, "MOST_CHARACTERS", 100)
    monkeypatch.setattr("sys.stdin", io.StringIO(pod("containers: []") + "---\n" + pod("containers: []")))
    with pytest.raises(ConfigError, match="longer than 100 characters"):
        read("-", "hpc", NOW)
