"""The OpenAPI document of one group of kinds: what `kubectl explain` shows, and that a write may carry `fieldValidation`.

Fields, types and descriptions are those of the models of the `kubernetes` package, which are made from Kubernetes' OpenAPI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from bridge.simulation.kube.kinds import Kind
from bridge.simulation.kube.strict import element, field_types, model

Object = dict[str, Any]
PREFIX = "io.k8s."
_SCALARS: dict[str, Object] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
}


def document(root: str, kinds: Mapping[str, Kind]) -> Object:
    """The document of the kinds (by plural) whose paths begin with *root*, as OpenAPI 3."""
    paths: Object = {}
    schemas: Object = {}
    for plural, kind in kinds.items():
        scope = "/namespaces/{namespace}" if kind.namespaced else ""
        group, _, version = kind.api_version.rpartition("/")
        names = {"group": group, "version": version, "kind": kind.kind}
        parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
        operation = {"parameters": [parameter], "x-kubernetes-group-version-kind": names, "responses": {}}
        paths[f"{root}{scope}/{plural}"] = {"get": operation}
        paths[f"{root}{scope}/{plural}/{{name}}"] = {"get": operation, "patch": operation}
        name = f"V1{kind.kind}"
        schemas |= _schemas(name)
        schemas[_called(name)] = {**schemas[_called(name)], "x-kubernetes-group-version-kind": [names]}
    about = {"title": "simulated Kubernetes", "version": "v1.36.0"}
    return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": schemas}}


def _schemas(root: str) -> Object:
    """The schema of a model and of all models that it names."""
    found: Object = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if _called(name) not in found:
            found[_called(name)] = _schema(name)
            waiting += _named(field_types(name).values())
    return found


def _named(types: Iterable[str]) -> list[str]:
    return [inner for each in types if field_types(inner := _innermost(each))]


def _innermost(of: str) -> str:
    found = element(of)
    return _innermost(found[1]) if found else of


def _called(name: str) -> str:
    return PREFIX + name.removeprefix("Core").removeprefix("V1")


@cache
def _schema(name: str) -> Object:
    made = model(name)
    if made is None:
        return {"type": "object"}
    # A field whose name Python or the package needs ("exec") has its own as an alias.
    fields = {field.alias if isinstance(field.alias, str) else name: field for name, field in made.model_fields.items()}
    properties, required = {}, []
    for attribute, of in made.openapi_types.items():
        shown, field = made.attribute_map[attribute], fields[attribute]
        properties[shown] = _of(of) | ({"description": field.description} if field.description else {})
        if field.is_required():
            required.append(shown)
    about = (made.__doc__ or "").partition("Attributes:")[0].strip()
    return {"type": "object", "description": about, "properties": properties, "required": required}


def _of(of: str) -> Object:
    if found := element(of):
        listed, inner = found
        return (
            {"type": "array", "items": _of(inner)} if listed else {"type": "object", "additionalProperties": _of(inner)}
        )
    if field_types(of):
        return {"allOf": [{"$ref": f"#/components/schemas/{_called(of)}"}]}
    return _SCALARS.get(of, {"type": "object"})
