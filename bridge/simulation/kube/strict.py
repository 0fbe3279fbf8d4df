"""Strict field validation: a field that Kubernetes does not know is refused, as `kubectl apply` expects.

The fields are those of the `kubernetes` package's models, which are made from Kubernetes' own description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

Object = dict[str, Any]
_LIST = re.compile(r"(?:list|List)\[(.+)\]")
_MAP = re.compile(r"(?:dict|Dict)\([^,]+, ?(.+)\)|(?:dict|Dict)\[[^,]+, ?(.+)\]")


def unknown_fields(thing: Object, kind: str) -> list[str]:
    """Paths of the fields that this kind, of a version v1, does not have ("spec.containres"); a patch is looked at too."""
    return list(_unknown(thing, f"V1{kind}", ""))


def _unknown(value: Any, kind: str, path: str) -> Iterator[str]:
    if several := _LIST.fullmatch(kind):
        for number, each in enumerate(value if isinstance(value, list) else ()):
            yield from _unknown(each, several[1], f"{path}[{number}]")
    elif named := _MAP.fullmatch(kind):
        for name, each in value.items() if isinstance(value, dict) else ():
            yield from _unknown(each, named[1] or named[2], f"{path}.{name}")
    elif isinstance(value, dict) and (fields := _fields(kind)):
        for name, each in value.items():
            where = f"{path}.{name}".lstrip(".")
            if name in fields:
                yield from _unknown(each, fields[name], where)
            elif not name.startswith("$"):  # a directive of a strategic merge patch
                yield where


@cache
def _fields(kind: str) -> dict[str, str]:
    """Field name to its type, of a model of the package; {} where there is none (a string, a free-form object)."""
    from kubernetes import client  # imported late: it holds some 700 models, which only an apply needs

    model: Any = getattr(client, kind, None)
    if not hasattr(model, "openapi_types"):
        return {}
    return {model.attribute_map[name]: of for name, of in model.openapi_types.items()}
