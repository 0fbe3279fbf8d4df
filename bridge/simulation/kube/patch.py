"""Patches: JSON patch, JSON merge patch, and the part of strategic merge patch that pods and nodes need.

All are pure: the old object stays as it was.  The merge patches differ in lists.  A merge patch replaces a list; a strategic
one merges the lists that have a key, as the API's types declare it for each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

Object = dict[str, Any]


class BadPatch(ValueError):
    """A patch that cannot be applied to this object; str() is a sentence."""


# The lists of core/v1 with a patchMergeKey, by field name; taints, tolerations and statuses have none and are replaced.
MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "schedulingGates": "name",
    "addresses": "type",
    "ownerReferences": "uid",
}

# The lists of plain values that a strategic patch adds to, and the directive that takes values out of one.
PRIMITIVES = frozenset({"finalizers"})
REMOVE_FROM = "$deleteFromPrimitiveList"


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    return strategically_merged(target, patch, keys={})


def strategically_merged(target: Any, patch: Any, field: str = "", keys: Mapping[str, str] = MERGE_KEYS) -> Any:
    """As `merged`, but lists with a merge key merge by it; an item with `$patch: delete` is removed."""
    if isinstance(patch, list) and field in keys:
        return _merged_list(target or [], patch, keys[field])
    if isinstance(patch, list) and field in PRIMITIVES and keys:
        return [*patch, *(each for each in target or () if each not in patch)]
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        directive, _, of = name.partition("/")
        if directive == REMOVE_FROM and keys:
            result[of] = [each for each in result.get(of) or () if each not in value]
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = strategically_merged(result.get(name), value, name, keys)
            if keys and result[name] == []:
                del result[name]  # the last item went
    return result


def _merged_list(target: list[Object], patch: list[Object], key: str) -> list[Object]:
    result = {item[key]: item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            result.pop(item[key], None)
        else:
            result[item[key]] = strategically_merged(result.get(item[key]), item)
    return list(result.values())


def changed(target: Object, operations: Any) -> Object:
    """RFC 6902: the operations of a JSON patch, in order.  Raises BadPatch."""
    result = copy.deepcopy(target)
    for each in operations if isinstance(operations, list) else [operations]:
        try:
            _OPERATIONS[each["op"]](result, each)
        except (KeyError, IndexError, TypeError, ValueError):
            raise BadPatch(f"the operation {each} of the JSON patch cannot be applied to this object") from None
    return result


def _add(result: Object, operation: Object) -> None:
    parent, last = _place(result, operation["path"])
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else int(last), operation["value"])
    else:
        parent[last] = operation["value"]


def _remove(result: Object, operation: Object) -> None:
    parent, last = _place(result, operation["path"])
    del parent[int(last) if isinstance(parent, list) else last]


def _replace(result: Object, operation: Object) -> None:
    parent, last = _place(result, operation["path"])
    parent[int(last) if isinstance(parent, list) else last] = operation["value"]  # in a map it need not be there


def _test(result: Object, operation: Object) -> None:
    if _at(result, operation["path"]) != operation["value"]:
        raise ValueError


def _copy(result: Object, operation: Object) -> None:
    _add(result, {"path": operation["path"], "value": copy.deepcopy(_at(result, operation["from"]))})


def _move(result: Object, operation: Object) -> None:
    moved = _at(result, operation["from"])
    _remove(result, {"path": operation["from"]})
    _add(result, {"path": operation["path"], "value": moved})


_OPERATIONS: dict[str, Callable[[Object, Object], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "test": _test,
    "copy": _copy,
    "move": _move,
}


def _place(result: Object, pointer: str) -> tuple[Any, str]:
    """What holds the value that a JSON pointer names, and the name or index of the value in it."""
    way, _, last = pointer.rpartition("/")
    return _at(result, way), last.replace("~1", "/").replace("~0", "~")


def _at(result: Object, pointer: str) -> Any:
    if not pointer:
        return result
    parent, last = _place(result, pointer)
    return parent[int(last) if isinstance(parent, list) else last]
