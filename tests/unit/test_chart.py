"""The Helm chart says what the code and the kustomize files say.  A journey renders and installs it; this needs no helm."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from bridge.policy_file import RELOADED
from bridge.settings import ENVIRONMENT, Settings
from integration import chart
from integration.chart import CHART
from integration.readme import ROOT

MANIFESTS = ROOT / "manifests"
LINKS = ("base", "admission", "monitoring", "namespace", "webhook")
TEMPLATES = "".join(path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir()))


def read(name: str) -> Any:
    return yaml.safe_load((MANIFESTS / name).read_text(encoding="utf-8"))


def test_the_schema_is_that_of_the_settings() -> None:
    assert chart.FILE.read_text(encoding="utf-8") == chart.text(), "make chart-schema writes it"


def test_every_value_is_in_the_schema_and_has_a_default() -> None:
    def keys(values: Any, schema: Any) -> None:
        if not isinstance(values, dict) or schema.get("additionalProperties") is not False or not values:
            return
        assert values.keys() == schema["properties"].keys() - {"global"}
        for key, value in values.items():
            keys(value, schema["properties"][key])

    keys(read("chart/values.yaml"), chart.schema())


def test_every_key_of_the_settings_is_in_the_schema_except_keys_that_the_pod_sets() -> None:
    written = chart.schema()["properties"]["settings"]["properties"].keys()
    assert written == Settings.model_fields.keys() - set(chart.SET_BY_THE_POD)
    deployment = read("base/deployment.yaml")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    given = {each["name"].removeprefix(ENVIRONMENT).lower() for each in container["env"]}
    assert set(chart.SET_BY_THE_POD) == (given & Settings.model_fields.keys()) | {"kubeconfig"}


def test_its_version_is_that_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    said = read("chart/Chart.yaml")
    assert (said["version"], said["appVersion"]) == (version, version)


def test_it_takes_the_kustomize_files_themselves() -> None:
    for name in LINKS:
        assert (CHART / name).is_symlink()
        assert (CHART / name).resolve() == (MANIFESTS / name).resolve()
    copies = [path.name for path in CHART.iterdir() if path.is_dir() and not path.is_symlink()]
    assert copies == ["templates"]


def test_it_knows_all_that_a_kustomization_does() -> None:
    """The templates read the lists of files; labels they add themselves, and folders they take as the values say."""
    known = {"apiVersion", "kind", "resources", "labels"}
    folders = {"base": {"../admission"}, "admission": set(), "monitoring": {"../minimal"}, "webhook": {"../minimal"}}
    # The image, and which policy the webhook stands in for: a journey compares what both make.
    # Dashboards are made from the same list of files, by a template of their own.
    more = {"webhook": {"components", "replacements"}, "monitoring": {"configMapGenerator"}}
    for name, others in folders.items():
        kustomization = read(f"{name}/kustomization.yaml")
        assert kustomization.keys() - known == more.get(name, set())
        assert {each for each in kustomization["resources"] if not each.endswith(".yaml")} == others


def test_the_bridge_is_restarted_for_all_settings_except_those_that_it_reads_again() -> None:
    [left_out] = re.findall(r'omit \(include "slurm-bridge\.settings" .*?\)((?: "\w+")+) \| toJson', TEMPLATES)
    assert set(re.findall(r'"(\w+)"', left_out)) == RELOADED
