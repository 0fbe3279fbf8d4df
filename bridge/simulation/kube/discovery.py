"""Discovery of the simulated API server: the kinds that it serves, and that it validates fields.

As much as kubectl asks before it does anything: discovery in its plain form, and of OpenAPI the one thing that it looks
for, that a write may carry `fieldValidation` (strict.py implements that).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.simulation.kube.cluster import KINDS, Kind

Object = dict[str, Any]
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
SHORT = {
    "cronjobs": ["cj"],
    "daemonsets": ["ds"],
    "deployments": ["deploy"],
    "events": ["ev"],
    "namespaces": ["ns"],
    "nodes": ["no"],
    "persistentvolumeclaims": ["pvc"],
    "persistentvolumes": ["pv"],
    "pods": ["po"],
    "replicasets": ["rs"],
    "replicationcontrollers": ["rc"],
    "statefulsets": ["sts"],
    "storageclasses": ["sc"],
}
IN_ALL = {"pods", "replicasets", "jobs"}


def described(path: str) -> Object | None:
    """The document under that path; None: it is none of discovery's."""
    parts = path.strip("/").split("/")
    match parts:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(group) for group in _groups()]}
        case ["apis", group] if group in _groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ["api", "v1"]:
            return _resources("", "v1")
        case ["apis", group, "v1"] if group in _groups():
            return _resources(group, f"{group}/v1")
        case ["openapi", "v3"]:
            paths = ["api/v1", *(f"apis/{group}/v1" for group in _groups())]
            return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}?hash=0"} for each in paths}}
        case ["openapi", "v3", "api", "v1"]:
            return _openapi("", "/api/v1")
        case ["openapi", "v3", "apis", group, "v1"] if group in _groups():
            return _openapi(group, f"/apis/{group}/v1")
    return None


def kind_of(path: str) -> Kind | None:
    """The kind that a path of the API is about; None: none that is served."""
    match path.strip("/").split("/"):
        case ["api", "v1", *rest]:
            group = ""
        case ["apis", group, "v1", *rest]:
            pass
        case _:
            return None
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return KINDS.get((group, rest[0])) if rest else None


def _groups() -> list[str]:
    return sorted({group for group, _ in KINDS if group})


def _group(group: str) -> Object:
    version = {"groupVersion": f"{group}/v1", "version": "v1"}
    return {"name": group, "versions": [version], "preferredVersion": version}


def _kinds(group: str) -> Mapping[str, Kind]:
    return {plural: kind for (of, plural), kind in KINDS.items() if of == group}


def _resources(group: str, version: str) -> Object:
    listed = [
        {
            "name": plural,
            "singularName": kind.kind.lower(),
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": VERBS,
            "shortNames": SHORT.get(plural, []),
            "categories": ["all"] if plural in IN_ALL else [],
        }
        for plural, kind in _kinds(group).items()
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}


def _openapi(group: str, root: str) -> Object:
    paths = {}
    for plural, kind in _kinds(group).items():
        scope = "/namespaces/{namespace}" if kind.namespaced else ""
        names = {"group": group, "version": "v1", "kind": kind.kind}
        parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
        operation = {"parameters": [parameter], "x-kubernetes-group-version-kind": names, "responses": {}}
        paths[f"{root}{scope}/{plural}/{{name}}"] = {"patch": operation}
    about = {"title": "simulated Kubernetes", "version": "v1.36.0"}
    return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": {}}}
