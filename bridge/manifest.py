"""Pods as they stand in manifests, before they exist: `slurm-bridge explain -f` (BEHAVIOUR O4).

A pod is itself; of a workload object its pod template is taken, with the object as the pod's owner, because annotations there
count for its pods too.  Whatever makes no pods is named, not passed over silently.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from bridge.errors import ConfigError, ContractError
from bridge.kube import codec
from scheduler.model import Owner, OwnerRef, Pod

MOST_BYTES = 16 * 2**20
# Where the pod template stands in what makes pods.
TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
}


@dataclass(frozen=True, slots=True)
class Planned:
    """One pod that a manifest would make.

    what    "Pod train", "pods of Deployment web"
    owners  nearest first, as the bridge would read them
    """

    what: str
    pod: Pod
    owners: tuple[Owner, ...] = ()


def read(path: str, namespace: str, now: float) -> tuple[list[Planned], list[str]]:
    """The pods of a file ("-": standard input), and the names of the objects that make none.

    namespace   for objects that name none; one that names another is refused, as kubectl does; "": "default" for both
    Raises ConfigError.
    """
    planned, others = [], []
    for number, thing in enumerate(_objects(path), start=1):
        found = _planned(thing, path, number, namespace, now)
        if isinstance(found, str):
            others.append(found)
        else:
            planned.append(found)
    return planned, others


def _objects(path: str) -> Iterator[dict[str, Any]]:
    try:
        text = sys.stdin.read(MOST_BYTES) if path == "-" else Path(path).read_text(encoding="utf-8")
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}. Name a manifest with -f FILE.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(f"{path}: is not YAML{f' in line {mark.line + 1}' if mark else ''}.") from None
    for document in documents:
        items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else [document]
        for item in items or ():
            if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
                raise ConfigError(f"{path}: holds something that is no Kubernetes object (it has no kind).")
            yield item


def _planned(thing: dict[str, Any], path: str, number: int, namespace: str, now: float) -> Planned | str:
    kind, meta = thing["kind"], _mapping(thing.get("metadata"))
    name = str(meta.get("name") or meta.get("generateName") or "")
    where = _namespace(meta, namespace, f"{path}: {kind} {name}")
    if kind == "Pod":
        return Planned(f"Pod {where}/{name}", _pod(thing, name, where, f"{path}#{number}", now))
    if kind not in TEMPLATES:
        return f"{kind} {name}"
    template: Any = thing
    for step in TEMPLATES[kind]:
        template = _mapping(template).get(step)
    if not isinstance(template, dict):
        raise ConfigError(f"{path}: {kind} {name} has no {'.'.join(TEMPLATES[kind])}.")
    owners = _owners(thing, kind, name, f"{path}#{number}")
    pod = _pod(template, f"{name}-…", where, f"{path}#{number}", now, owners[0].ref if owners else None)
    return Planned(f"pods of {kind} {where}/{name}", pod, owners)


def _namespace(meta: Mapping[str, Any], wanted: str, what: str) -> str:
    own = str(meta.get("namespace") or "")
    if own and wanted and own != wanted:
        raise ConfigError(f"{what} names namespace {own}, and -n says {wanted}.")
    return own or wanted or "default"


def _pod(
    thing: Mapping[str, Any], name: str, namespace: str, uid: str, now: float, owner: OwnerRef | None = None
) -> Pod:
    """As the API server would hold it a moment after its creation."""
    meta = {**_mapping(thing.get("metadata")), "name": name, "namespace": namespace, "uid": uid}
    meta |= {"creationTimestamp": _rfc3339(now), "ownerReferences": None}
    if owner is not None:
        reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        meta["ownerReferences"] = [{**reference, "controller": True}]
    spec = _defaulted({"serviceAccountName": "default", **_mapping(thing.get("spec")), "nodeName": ""})
    try:
        return codec.PODS.one(codec.encode({"metadata": meta, "spec": spec}))
    except ContractError as error:
        why = error.message.partition(": ")[2] or error.message
        raise ConfigError(f"{uid.partition('#')[0]}: {name} is no pod that Kubernetes would take: {why}.") from None


def _defaulted(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What the API server would add, as far as it counts here: what is limited and not requested is requested."""
    plain: dict[str, Any] = _plain(spec)
    for group in ("containers", "initContainers"):
        for container in plain.get(group) or []:
            asked = _mapping(_mapping(container).get("resources"))
            if limits := _mapping(asked.get("limits")):
                asked["requests"] = {**limits, **_mapping(asked.get("requests"))}
    return plain


def _owners(thing: Mapping[str, Any], kind: str, name: str, uid: str) -> tuple[Owner, ...]:
    """The object, and the batch Job that a CronJob would make."""
    meta, spec = _mapping(thing.get("metadata")), _mapping(thing.get("spec"))
    ref = OwnerRef(str(thing.get("apiVersion") or ""), kind, name, f"{uid}.{kind}")
    if kind == "PodTemplate":
        return ()
    if kind == "CronJob":
        job = _mapping(spec.get("jobTemplate"))
        job_ref = OwnerRef("batch/v1", "Job", f"{name}-…", f"{uid}.Job")
        deadline = _seconds(_mapping(job.get("spec")).get("activeDeadlineSeconds"))
        inner = Owner(job_ref, _annotations(_mapping(job.get("metadata"))), ref, deadline)
        return inner, Owner(ref, _annotations(meta))
    deadline = _seconds(spec.get("activeDeadlineSeconds")) if kind == "Job" else None
    return (Owner(ref, _annotations(meta), None, deadline),)


def _annotations(meta: Mapping[str, Any]) -> Mapping[str, str]:
    return {str(key): str(value) for key, value in _mapping(meta.get("annotations")).items()}


def _seconds(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _plain(value: Any, inside: str = "") -> Any:
    """YAML's numbers as Kubernetes takes them: quantities may be written as numbers ("cpu: 2"), and are text."""
    if isinstance(value, dict):
        amounts = inside in ("requests", "limits", "overhead")
        return {
            str(key): str(each) if amounts and isinstance(each, int | float) else _plain(each, str(key))
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def _rfc3339(epoch: float) -> str:
    return datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
