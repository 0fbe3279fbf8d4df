"""A pod that does not exist, as the API server would hold it a moment after its creation, and its controllers (O4).

The objects are parsed YAML.  A wrong value is a ConfigError; a missing value has the default of the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bridge.errors import ConfigError, ContractError
from bridge.kube import codec
from scheduler.model.kubernetes import Owner, OwnerRef, Pod


@dataclass(frozen=True, slots=True)
class Planned:
    """The pods that one object of a manifest would create.

    what    "Pod train", "pods of Deployment web"
    pods    the first of equal pods; of a gang, all of its pods
    owners  nearest first, as the bridge would read them
    notes   sentences about the pods that the plan does not show
    """

    what: str
    pods: tuple[Pod, ...]
    owners: tuple[Owner, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def pod(self) -> Pod:
        """The pod that represents all."""
        return self.pods[0]


def made_pod(
    thing: Mapping[str, Any],
    name: str,
    namespace: str,
    uid: str,
    now: float,
    owner: OwnerRef | None = None,
    *,
    path: str,
) -> Pod:
    """A pod a moment after its creation.  path: the file that it is of.  Raises ConfigError."""
    meta = {**mapping(thing.get("metadata")), "name": name, "namespace": namespace, "uid": uid}
    meta |= {"creationTimestamp": _rfc3339(now), "ownerReferences": None}
    if owner is not None:
        reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        meta["ownerReferences"] = [{**reference, "controller": True}]
    spec = _defaulted({"serviceAccountName": "default", **mapping(thing.get("spec")), "nodeName": ""})
    try:
        return codec.PODS.one(codec.encode({"metadata": meta, "spec": spec}))
    except ContractError as error:
        why = error.message.partition(": ")[2] or error.message
        raise ConfigError(f"{path}: {name} is not a pod that Kubernetes accepts: {why}.") from None


def _defaulted(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of the API server that matter here: a resource with a limit and no request is requested."""
    plain: dict[str, Any] = _plain(spec)
    for group in ("containers", "initContainers"):
        for container in items_of(plain.get(group)):
            asked = mapping(mapping(container).get("resources"))
            if limits := mapping(asked.get("limits")):
                asked["requests"] = {**limits, **mapping(asked.get("requests"))}
    return plain


def owner_of(thing: Mapping[str, Any], ref: OwnerRef, path: str) -> Owner:
    """A controller or a group as the bridge would read it.  path: the file that it is of.  Raises ConfigError."""
    meta = {"name": ref.name, "uid": ref.uid, "annotations": dict(annotations_of(mapping(thing.get("metadata"))))}
    try:
        return codec.owner_codec(ref).one(codec.encode({"metadata": meta, "spec": mapping(thing.get("spec"))}))
    except ContractError as error:
        why = error.message.partition(": ")[2] or error.message
        raise ConfigError(f"{path}: {ref.kind} {ref.name} cannot be used: {why}.") from None


def file_namespace(thing: Mapping[str, Any], namespace: str) -> str:
    """The namespace of an object of a file.  namespace: if it names none"""
    return str(mapping(thing.get("metadata")).get("namespace") or namespace or "default")


def job_owner(ref: OwnerRef, job: Mapping[str, Any], owner: OwnerRef | None = None) -> Owner:
    spec = mapping(job.get("spec"))
    deadline = _whole(spec.get("activeDeadlineSeconds"))
    return Owner(ref, annotations_of(mapping(job.get("metadata"))), owner, deadline, members=at_once(spec))


def annotations_of(meta: Mapping[str, Any]) -> Mapping[str, str]:
    return {str(key): str(value) for key, value in mapping(meta.get("annotations")).items()}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def items_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _plain(value: Any, inside: str = "") -> Any:
    """YAML's numbers as Kubernetes takes them: quantities may be written as numbers ("cpu: 2"), and are text."""
    if isinstance(value, dict):
        amounts = inside in ("requests", "limits", "overhead")
        return {
            str(key): str(item) if amounts and isinstance(item, int | float) else _plain(item, str(key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _rfc3339(epoch: float) -> str:
    return datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def at_once(job: Mapping[str, Any]) -> int:
    """The number of pods that a batch Job runs at once."""
    return min(number_of(job, "parallelism"), number_of(job, "completions", number_of(job, "parallelism")))


def number_of(spec: Mapping[str, Any], key: str, default: int = 1) -> int:
    """A number of pods; a negative one makes none."""
    return default if (found := _whole(spec.get(key))) is None else max(0, found)
