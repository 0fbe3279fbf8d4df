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


def element(of: str) -> tuple[bool, str] | None:
    """(is it a list, else a map; the type of its elements), of a model's type; None: it is neither."""
    if several := _LIST.fullmatch(of):
        return True, several[1]
    if named := _MAP.fullmatch(of):
        return False, named[1] or named[2]
    return None


@cache
def field_types(name: str) -> dict[str, str]:
    """Field name to its type, of a model of the package; {} where there is none (a string, a free-form object)."""
    of = model(name)
    return {of.attribute_map[field]: kind for field, kind in of.openapi_types.items()} if of else {}


def model(name: str) -> Any:
    """A class of the package ("V1PodSpec"); None: it has none of that name."""
    from kubernetes import client  # imported late: it holds some 700 models, which only an apply needs

    found: Any = getattr(client, name, None) or getattr(client, f"Core{name}", None)  # the package has two of some
    return found if hasattr(found, "openapi_types") else None


def _unknown(value: Any, kind: str, path: str) -> Iterator[str]:
    if inner := element(kind):
        if inner[0]:
            for number, each in enumerate(value if isinstance(value, list) else ()):
                yield from _unknown(each, inner[1], f"{path}[{number}]")
        else:
            for name, each in value.items() if isinstance(value, dict) else ():
                yield from _unknown(each, inner[1], f"{path}.{name}")
    elif isinstance(value, dict) and (fields := field_types(kind)):
        for name, each in value.items():
            where = f"{path}.{name}".lstrip(".")
            if name in fields:
                yield from _unknown(each, fields[name], where)
            elif not name.startswith("$"):  # a directive of a strategic merge patch
                yield where
