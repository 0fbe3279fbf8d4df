"""Discovery of the simulated API server: the kinds that it serves, and that it validates fields.

As much as kubectl asks before it does anything: discovery in its plain form, and OpenAPI (openapi.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from bridge.simulation.kube.kinds import KINDS, SUBRESOURCES, Kind
from bridge.simulation.kube.openapi import document

Object = dict[str, Any]
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def described(path: str) -> Object | None:
    """The document under that path; None: it is none of discovery's.  The first of OpenAPI takes seconds."""
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
        case ["apis", group, version] if version == _groups().get(group):
            return _resources(group, f"{group}/{version}")
        case ["openapi", "v3"]:
            paths = ["api/v1", *(f"apis/{group}/{version}" for group, version in _groups().items())]
            return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}?hash=0"} for each in paths}}
        case ["openapi", "v3", "api", "v1"]:
            return _openapi("", "/api/v1")
        case ["openapi", "v3", "apis", group, version] if version == _groups().get(group):
            return _openapi(group, f"/apis/{group}/{version}")
    return None


def kind_of(path: str) -> Kind | None:
    """The kind that a path of the API is about; None: none that is served."""
    match path.strip("/").split("/"):
        case ["api", "v1", *rest]:
            group = ""
        case ["apis", group, version, *rest] if version == _groups().get(group):
            pass
        case _:
            return None
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return KINDS.get((group, rest[0])) if rest else None


@cache
def _openapi(group: str, root: str) -> Object:
    return document(root, _kinds(group))


@cache
def _groups() -> Mapping[str, str]:
    """The version of each group; all kinds of a group have one."""
    return {group: kind.api_version.partition("/")[2] for (group, _), kind in sorted(KINDS.items()) if group}


def _group(group: str) -> Object:
    version = {"groupVersion": f"{group}/{_groups()[group]}", "version": _groups()[group]}
    return {"name": group, "versions": [version], "preferredVersion": version}


def _kinds(group: str) -> Mapping[str, Kind]:
    return {plural: kind for (of, plural), kind in KINDS.items() if of == group}


def _resources(group: str, version: str) -> Object:
    listed = [
        _resource(plural, kind, VERBS)
        | {"shortNames": [kind.short] if kind.short else [], "categories": _categories(kind)}
        for plural, kind in sorted(_kinds(group).items())
    ]
    listed += [
        _resource(name, kind, ["create", "get", "patch", "update"]) | _group_version(kind)
        for (of, name), kind in SUBRESOURCES.items()
        if of == group
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}


def _resource(name: str, kind: Kind, verbs: list[str]) -> Object:
    singular = "" if "/" in name else kind.kind.lower()
    return {"name": name, "singularName": singular, "namespaced": kind.namespaced, "kind": kind.kind, "verbs": verbs}


def _categories(kind: Kind) -> list[str]:
    return ["all"] if kind.in_all else []


def _group_version(kind: Kind) -> Object:
    group, _, version = kind.api_version.rpartition("/")
    return {"group": group, "version": version}
