"""Each file of manifests/ and examples/ is what each version of Kubernetes takes, by its schemas (rendered: test_chart)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from integration import schemas
from integration.readme import ROOT

NO_OBJECTS = ("kustomization.yaml", "settings.yaml", "sidecar.yaml")  # the last is a patch of a Deployment


def objects(*files: Path) -> list[dict[str, Any]]:
    own = (path for path in sorted(files) if path.name not in NO_OBJECTS and "chart" not in path.parts)
    return [each for path in own for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


SHIPPED = objects(*(ROOT / "manifests").rglob("*.yaml"))
EXAMPLES = objects(*(ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_each_version_takes_what_it_can_know_of_manifests(version: str) -> None:
    known = [each for each in SHIPPED if schemas.is_served(version, each)]
    assert len(known) > 20
    assert schemas.mistakes(version, known) == []


@pytest.mark.parametrize("version", schemas.VERSIONS[schemas.VERSIONS.index(schemas.LOWEST_CLAIMED) :])
def test_each_version_that_is_claimed_takes_every_example(version: str) -> None:
    assert len(EXAMPLES) > 8
    assert schemas.mistakes(version, EXAMPLES) == []


def test_the_versions_that_are_claimed_lack_nothing_but_what_their_overlay_leaves_out() -> None:
    lacking = {each["kind"] for each in SHIPPED if not schemas.is_served(schemas.LOWEST_CLAIMED, each)}
    overlay = yaml.safe_load((ROOT / "manifests/before-1.36/kustomization.yaml").read_text(encoding="utf-8"))
    left_out = {yaml.safe_load(each["patch"])["kind"] for each in overlay["patches"]}
    assert lacking == left_out == {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}


def test_a_kind_that_a_version_lacks_is_a_mistake() -> None:
    for (api_version, kind), since in schemas.SINCE.items():
        given = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}}
        before = f"1.{int(since.split('.')[1]) - 1}"
        assert schemas.mistakes(before, [given]) == [f"{api_version} {kind} x: Kubernetes {before} has no such kind"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"replica": 2}, "'replica' was unexpected"),
        ({"replicas": "two"}, "'two' is not of type 'integer'"),
        ({"strategy": {"rollingUpdate": {"maxSurged": 1}}}, "'maxSurged' was unexpected"),
    ],
)
def test_a_mistake_is_found(change: dict[str, Any], sentence: str) -> None:
    deployment = yaml.safe_load((ROOT / "manifests/base/deployment.yaml").read_text(encoding="utf-8"))
    deployment["spec"] |= change
    said = schemas.mistakes("1.30", [deployment])
    assert any(sentence in each and "Deployment slurm-bridge, at $.spec" in each for each in said), said
