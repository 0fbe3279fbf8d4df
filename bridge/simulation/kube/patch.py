"""Patches: JSON merge patch, and the part of strategic merge patch that pods and nodes need.

Both are pure: the old object stays as it was, and the new one shares what did not change.  They differ in lists.  A merge
patch replaces a list; a strategic one merges the lists that have a key, as the API's types declare it for each.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

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


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def strategically_merged(target: Any, patch: Any, field: str = "") -> Any:
    """As `merged`, but lists with a merge key merge by it; an item with `$patch: delete` is removed."""
    if isinstance(patch, list) and field in MERGE_KEYS:
        return _merged_list(target or [], patch, MERGE_KEYS[field])
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = strategically_merged(result.get(name), value, name)
    return result


def _merged_list(target: list[Object], patch: list[Object], key: str) -> list[Object]:
    result = {item[key]: item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            result.pop(item[key], None)
        else:
            result[item[key]] = strategically_merged(result.get(item[key]), item)
    return list(result.values())
