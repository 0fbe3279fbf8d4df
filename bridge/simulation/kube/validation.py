"""What the simulated API server refuses of an object: names, labels, and the specs of pods.

It has only the rules that a client of pods can break.  Status and field are the real server's; the texts are similar.
"""

from __future__ import annotations

import re
from typing import Any

from scheduler.model.quantity import amount

Object = dict[str, Any]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[+-]?[0-9.]+([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
LONGEST_WORD, LONGEST_DEADLINE_S = 63, 2**31 - 1


class Refusal(Exception):
    """The server refuses the request.  The answer is a Status."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details


def invalid(kind: str, name: str, field: str, message: str) -> Refusal:
    """A value that its field does not take."""
    causes = [{"reason": "FieldValueInvalid", "message": message, "field": field}]
    sentence = f'{kind} "{name}" is invalid: {field}: {message}'
    return Refusal(422, "Invalid", sentence, name=name, kind=kind, causes=causes)


def check_metadata(kind: str, meta: Object) -> None:
    """Raise Refusal if a name, a label, the key of an annotation, a finalizer or an owner is not valid."""
    name = str(meta.get("name") or "")
    if not _NAME.fullmatch(name):
        raise invalid(kind, name, "metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 subdomain')
    for key, value in (meta.get("labels") or {}).items():
        if not _is_qualified(key) or (value and not _is_word(value)):
            raise invalid(kind, name, "metadata.labels", f'Invalid value: "{key}={value}"')
    for key in meta.get("annotations") or ():
        if not _is_qualified(key.lower()):
            raise invalid(kind, name, "metadata.annotations", f'Invalid value: "{key}"')
    for finalizer in meta.get("finalizers") or ():
        if not _is_qualified(finalizer) or "/" not in finalizer:
            raise invalid(kind, name, "metadata.finalizers", f'Invalid value: "{finalizer}": it needs a prefix')
    for owner in meta.get("ownerReferences") or ():
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                raise invalid(kind, name, f"metadata.ownerReferences.{field}", "Required value")


def check_identity(kind: str, before: Object, after: Object) -> None:
    """Raise Refusal if the metadata is that of another object."""
    for field in ("name", "namespace"):
        if after.get(field) != before.get(field):
            message = f"the {field} of the object ({after.get(field)}) does not match the {field} on the URL"
            raise Refusal(400, "BadRequest", message)
    if after.get("uid") != before["uid"]:
        message = f'Invalid value: "{after.get("uid")}": field is immutable'
        raise invalid(kind, before["name"], "metadata.uid", message)


def check_metadata_update(kind: str, before: Object, after: Object) -> None:
    """Raise Refusal if the metadata may not become this."""
    name = before["name"]
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if after.get(field) != before.get(field):
            raise invalid(kind, name, f"metadata.{field}", "Invalid value: field is immutable")
    added = set(after.get("finalizers") or ()).difference(before.get("finalizers") or ())
    if added and before.get("deletionTimestamp"):
        message = f"Forbidden: no new finalizers can be added if the object is being deleted, found {sorted(added)}"
        raise invalid(kind, name, "metadata.finalizers", message)
    check_metadata(kind, after)


def _is_word(text: str) -> bool:
    return len(text) <= LONGEST_WORD and bool(_WORD.fullmatch(text))


def _is_qualified(key: str) -> bool:
    """A word, or a DNS name, a slash and a word."""
    prefix, slash, word = key.rpartition("/")
    return _is_word(word) and (not slash or bool(_NAME.fullmatch(prefix)))


def check_pod(name: str, spec: Object) -> None:
    """Raise Refusal if the spec of a pod is not valid."""
    if not spec.get("containers"):
        raise invalid("Pod", name, "spec.containers", "Required value")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= LONGEST_DEADLINE_S:
        message = f"Invalid value: {deadline}: must be between 1 and {LONGEST_DEADLINE_S}, inclusive"
        raise invalid("Pod", name, "spec.activeDeadlineSeconds", message)
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        asked = container.get("resources") or {}
        for resource, request in (asked.get("requests") or {}).items():
            limit = (asked.get("limits") or {}).get(resource)
            if limit is not None and _amount(resource, request) > _amount(resource, limit):
                message = f"Invalid value: {request}: must be less than or equal to {resource} limit of {limit}"
                raise invalid("Pod", name, "spec.containers.resources.requests", message)


def _amount(resource: str, text: object) -> int:
    return amount(resource, str(text), round_up=True)


def check_amounts(container: Object) -> None:
    """Raise Refusal for an amount that cannot be read."""
    asked = container.get("resources") or {}
    for text in (text for amounts in asked.values() if isinstance(amounts, dict) for text in amounts.values()):
        if not _QUANTITY.fullmatch(str(text)):
            message = f'Pod in version "v1" cannot be handled as a Pod: quantities must match: "{text}"'
            raise Refusal(400, "BadRequest", message)


def check_pod_update(name: str, before: Object, after: Object) -> None:
    """Check the change of an existing pod's spec.  Raises Refusal if a field differs that may not change."""
    deadline, sooner = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if deadline is not None and (sooner is None or sooner > deadline):
        message = f"Invalid value: {sooner}: must be less than or equal to previous value"
        raise invalid("Pod", name, "spec.activeDeadlineSeconds", message)
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if before.get("schedulingGates"):
        free |= {"nodeSelector", "affinity"}
    tolerations = after.get("tolerations") or []
    gates = [gate["name"] for gate in before.get("schedulingGates") or []]
    grown = any(toleration not in tolerations for toleration in before.get("tolerations") or [])
    gated = any(gate["name"] not in gates for gate in after.get("schedulingGates") or [])
    changed = {f for f in before.keys() | after.keys() if before.get(f) != after.get(f)}
    if grown or gated or changed - free - _image_changes(before, after):
        raise invalid("Pod", name, "spec", "Forbidden: pod updates may not change fields other than a few")


def _image_changes(before: Object, after: Object) -> set[str]:
    """The container lists that differ in nothing but images."""

    def bare(spec: Object, field: str) -> list[Object]:
        return [{**container, "image": ""} for container in spec.get(field) or []]

    return {field for field in ("containers", "initContainers") if bare(before, field) == bare(after, field)}
