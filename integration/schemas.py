"""Objects compared with the JSON schemas of each version of Kubernetes, strictly: an unknown key is a mistake, too.

The schemas are those of the package kubernetes-validate, which are made of the OpenAPI of each version's first release.  It
has none of custom resources.  Schemas cannot express everything (CEL, ports that are named twice), so a journey also sends
the shipped objects to the API server of the rig (integration/journeys/test_installed.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

VERSIONS = tuple(f"1.{minor}" for minor in range(27, 37))
LOWEST_CLAIMED = "1.30"  # docs/versions.md
# The first version that serves these.
SINCE = {
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"): "1.29",
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): "1.30",
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): "1.30",
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"): "1.36",
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"): "1.36",
}
CUSTOM = ("monitoring.coreos.com", "jobset.x-k8s.io", "leaderworkerset.x-k8s.io", "kustomize.config.k8s.io")


def mistakes(version: str, objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """The mistakes in the objects for that version, a sentence for each; custom resources are left out.

    version   "1.30"
    """
    return [said for each in objects if not _is_custom(each) for said in _of_one(version, each)]


def for_kubeconform(version: str, folder: Path) -> str:
    """Write the schemas of that version as kubeconform reads them, and return its option --schema-location.

    The package gives each schema an address on the network, and references name that address.  kubeconform finds a schema by
    its path, so the addresses go and the references become paths.
    """
    for file in _folder(version).iterdir():
        schema = json.loads(file.read_text(encoding="utf-8"))
        schema.pop("$id", None)
        text = json.dumps(schema).replace('"/api/_definitions.json#', '"_definitions.json#')
        (folder / file.name).write_text(text, encoding="utf-8")
    return f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"


def is_served(version: str, given: Mapping[str, Any]) -> bool:
    """False if SINCE says that this version is too old for such an object."""
    since = SINCE.get((given["apiVersion"], given["kind"]))
    return since is None or _number(version) >= _number(since)


def _is_custom(given: Mapping[str, Any]) -> bool:
    return given["apiVersion"].partition("/")[0] in CUSTOM


def _of_one(version: str, given: Mapping[str, Any]) -> Iterator[str]:
    called = f"{given['apiVersion']} {given['kind']} {given['metadata']['name']}"
    validator = _validator(version, given["apiVersion"], given["kind"])
    if validator is None:
        yield f"{called}: Kubernetes {version} has no such kind"
        return
    for error in validator.iter_errors(given):
        yield f"{called}, at {error.json_path}: {error.message[:300]}"


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@cache
def _validator(version: str, api_version: str, kind: str) -> Draft202012Validator | None:
    """None: this version has no such kind."""
    group, _, own = api_version.rpartition("/")
    parts = [kind.lower(), *([group.partition(".")[0]] if group else []), own]
    file = _folder(version) / f"{'-'.join(parts)}.json"
    if not file.is_file():
        return None
    schema = json.loads(file.read_text(encoding="utf-8"))
    return Draft202012Validator(schema, registry=Resource.from_contents(schema) @ _definitions(version))


@cache
def _definitions(version: str) -> Registry[Any]:
    contents = json.loads((_folder(version) / "_definitions.json").read_text(encoding="utf-8"))
    registry: Registry[Any] = Resource.from_contents(contents) @ Registry()
    return registry


def _folder(version: str) -> Any:
    return resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
