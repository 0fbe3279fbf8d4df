"""Pods of manifests, before they exist: `slurm-bridge explain -f` (O4).

A pod is itself; of a workload object its pod template is taken, with the object as the pod's owner, because annotations there
count for its pods too.  Pods of one template are alike, so one of them tells of all; but those of a gang share one job, and
are planned as many as their controller would make.  Whatever makes no pods is named, not passed over silently, and so is what
is not Kubernetes' own: which pods that makes, only its controller knows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from bridge.errors import ConfigError, ContractError
from bridge.kube import codec
from scheduler.model.kubernetes import Owner, OwnerRef, Pod
from scheduler.translate.grouping import MAX_SIZE, Group, group_of

MOST_BYTES = 16 * 2**20
# Path of the pod template in each kind that makes pods.
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
    """The pods that one object of a manifest would create.

    what    "Pod train", "pods of Deployment web"
    pods    alike: the first of them, and where they are of a gang, the others that belong to it
    owners  nearest first, as the bridge would read them
    notes   what else becomes of its pods
    """

    what: str
    pods: tuple[Pod, ...]
    owners: tuple[Owner, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def pod(self) -> Pod:
        """The pod that represents all."""
        return self.pods[0]


@dataclass(frozen=True, slots=True)
class Contents:
    """A file.

    planned   what makes pods
    podless   "Service web": what makes none
    foreign   "JobSet sim": what is not Kubernetes' own
    """

    planned: tuple[Planned, ...] = ()
    podless: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


def read(path: str, namespace: str, now: float) -> Contents:
    """The content of a file ("-": standard input).

    namespace   for objects that name none; an object that names another one is refused, as by kubectl; "": "default"
    Raises ConfigError.
    """
    planned: list[Planned] = []
    podless: list[str] = []
    foreign: list[str] = []
    for number, thing in enumerate(_objects(path), start=1):
        found = _planned(thing, path, number, namespace, now)
        if isinstance(found, Planned):
            planned.append(found)
        else:
            (foreign if _is_foreign(thing) else podless).append(found)
    return Contents(tuple(planned), tuple(podless), tuple(foreign))


def _is_foreign(thing: Mapping[str, Any]) -> bool:
    """Kubernetes' own API groups have no dot in their name, or end in .k8s.io; .x-k8s.io are others'."""
    group = str(thing.get("apiVersion") or "").rpartition("/")[0]
    return "." in group and not group.endswith(".k8s.io")


def _objects(path: str) -> Iterator[dict[str, Any]]:
    try:
        text = sys.stdin.read(MOST_BYTES) if path == "-" else Path(path).read_text(encoding="utf-8")
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}. Name a manifest with -f FILE.") from None
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # ValueError: no text; a date or a number that is none
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
        return Planned(f"Pod {where}/{name}", (_pod(thing, name, where, f"{path}#{number}", now),))
    if kind not in TEMPLATES or _is_foreign(thing):
        return f"{kind} {name}"
    template: Any = thing
    for step in TEMPLATES[kind]:
        template = _mapping(template).get(step)
    if not isinstance(template, dict):
        raise ConfigError(f"{path}: {kind} {name} has no {'.'.join(TEMPLATES[kind])}.")
    owners = _owners(thing, kind, name, f"{path}#{number}")
    pod = _pod(template, f"{name}-…", where, f"{path}#{number}", now, owners[0].ref if owners else None)
    return _with_its_gang(Planned(f"pods of {kind} {where}/{name}", (pod,), owners), kind, _mapping(thing.get("spec")))


# --- how many -------------------------------------------------------------------------------------------------------


def _with_its_gang(planned: Planned, kind: str, spec: Mapping[str, Any]) -> Planned:
    """The pods of one gang, up to its size; further pods are workloads of their own."""
    group, pod = group_of(planned.pod), planned.pod
    if not isinstance(group, Group):
        return planned
    made, notes = _how_many(kind, spec), []
    members = min(made, group.size or MAX_SIZE)
    if made > members:
        notes.append(f"It makes {made} pods, of which {members} are one gang; each of the others has a job of its own.")
    if kind == "StatefulSet" and made < _number(spec, "replicas"):
        notes.append(
            "It makes a pod only when the one before is ready (OrderedReady), so that its gang is never complete: say "
            "podManagementPolicy: Parallel."
        )
    pods = (replace(pod, uid=f"{pod.uid}.{number}") for number in range(members))
    return replace(planned, pods=tuple(pods), notes=tuple(notes))


def _how_many(kind: str, spec: Mapping[str, Any]) -> int:
    """The number of pods that the object has at a time; 1 if it has no pods now or names no number."""
    match kind:
        case "Job":
            found = _at_once(spec)
        case "CronJob":
            found = _at_once(_mapping(_mapping(spec.get("jobTemplate")).get("spec")))
        case "StatefulSet" if spec.get("podManagementPolicy") != "Parallel":
            found = 1
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController":
            found = _number(spec, "replicas")
        case _:
            found = 1
    return max(1, found)


def _at_once(job: Mapping[str, Any]) -> int:
    """The pods of a batch Job."""
    return min(_number(job, "parallelism"), _number(job, "completions", _number(job, "parallelism")))


def _number(spec: Mapping[str, Any], key: str, default: int = 1) -> int:
    return default if (found := _whole(spec.get(key))) is None else found


# --- as the API server would hold it --------------------------------------------------------------------------------


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
    """Add the defaults of the API server that matter here: a resource with a limit and no request is requested."""
    plain: dict[str, Any] = _plain(spec)
    for group in ("containers", "initContainers"):
        for container in plain.get(group) or []:
            asked = _mapping(_mapping(container).get("resources"))
            if limits := _mapping(asked.get("limits")):
                asked["requests"] = {**limits, **_mapping(asked.get("requests"))}
    return plain


def _owners(thing: Mapping[str, Any], kind: str, name: str, uid: str) -> tuple[Owner, ...]:
    """The object; the batch Job that a CronJob would make."""
    meta, spec = _mapping(thing.get("metadata")), _mapping(thing.get("spec"))
    ref = OwnerRef(str(thing.get("apiVersion") or ""), kind, name, f"{uid}.{kind}")
    if kind == "PodTemplate":
        return ()
    if kind == "CronJob":
        job = _mapping(spec.get("jobTemplate"))
        job_ref = OwnerRef("batch/v1", "Job", f"{name}-…", f"{uid}.Job")
        return _job(job_ref, job, ref), Owner(ref, _annotations(meta))
    return (_job(ref, thing) if kind == "Job" else Owner(ref, _annotations(meta)),)


def _job(ref: OwnerRef, job: Mapping[str, Any], owner: OwnerRef | None = None) -> Owner:
    spec = _mapping(job.get("spec"))
    deadline = _whole(spec.get("activeDeadlineSeconds"))
    return Owner(ref, _annotations(_mapping(job.get("metadata"))), owner, deadline, members=_at_once(spec))


def _annotations(meta: Mapping[str, Any]) -> Mapping[str, str]:
    return {str(key): str(value) for key, value in _mapping(meta.get("annotations")).items()}


def _whole(value: Any) -> int | None:
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
