"""The objects of a file that say how many pods are one gang: PodGroups, and Workloads of Kubernetes itself (O4).

A PodGroup of the file counts as if it were read from the cluster.  A PodGroup without a policy has that of the template of
the Workload that it names.  For a batch Job with a Workload, Kubernetes makes a PodGroup of the Workload's only template; the
plan has one with a name of its own, because the real name is not known before the object exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.cli.planned_pods import file_namespace, mapping, owner_of
from scheduler.model.kubernetes import Owner, OwnerRef

# The version that a reference of a pod names, of each API group with PodGroups that the bridge reads (W2).
VERSIONS = {"scheduling.x-k8s.io": "scheduling.x-k8s.io/v1alpha1", "scheduling.k8s.io": "scheduling.k8s.io/v1alpha2"}
KUBERNETES = "scheduling.k8s.io"
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """One group.  ref: as pods refer to it"""

    ref: OwnerRef
    owner: Owner
    namespace: str


def groups(things: Sequence[Object], namespace: str, path: str) -> tuple[FileGroup, ...]:
    """The groups of a file.  namespace: of objects that name none.  Raises ConfigError."""
    found = [_group(thing, things, namespace, path) for thing in things if is_group(thing)]
    for job in things:
        if (workload := _workload_of(job, things, namespace)) is not None:
            here = file_namespace(job, namespace)
            name = _made_name(workload)
            spec = {"schedulingPolicy": _templates(workload)[0].get("schedulingPolicy")}
            found.append(_made({"metadata": {"name": name}, "spec": spec}, KUBERNETES, here, path))
    return tuple(found)


def is_group(thing: Object) -> bool:
    """True for a PodGroup that the bridge reads."""
    return thing.get("kind") == "PodGroup" and _group_of(thing) in VERSIONS


def is_workload(thing: Object) -> bool:
    """True for a Workload of Kubernetes itself, in a version that has templates of PodGroups."""
    return thing.get("kind") == "Workload" and _group_of(thing) == KUBERNETES and bool(_templates(thing))


def with_group(job: Object, template: dict[str, Any], things: Sequence[Object], namespace: str) -> dict[str, Any]:
    """The pod template of a batch Job, with the PodGroup that Kubernetes makes of the Job's Workload."""
    workload = _workload_of(job, things, namespace)
    if workload is None:
        return template
    return {
        **template,
        "spec": {**mapping(template.get("spec")), "schedulingGroup": {"podGroupName": _made_name(workload)}},
    }


def _group(thing: Object, things: Sequence[Object], namespace: str, path: str) -> FileGroup:
    group, here, spec = _group_of(thing), file_namespace(thing, namespace), mapping(thing.get("spec"))
    named = mapping(mapping(spec.get("podGroupTemplateRef")).get("workload"))
    if group == KUBERNETES and "schedulingPolicy" not in spec:
        for workload in filter(is_workload, things):
            if (_name(workload), file_namespace(workload, namespace)) == (named.get("workloadName"), here):
                for template in _templates(workload):
                    if template.get("name") == named.get("podGroupTemplateName"):
                        spec = {**spec, "schedulingPolicy": template.get("schedulingPolicy")}
    return _made({**thing, "spec": spec}, group, here, path)


def _made(thing: Object, group: str, namespace: str, path: str) -> FileGroup:
    version, name = VERSIONS[group], _name(thing)
    ref = OwnerRef(version, "PodGroup", name, f"{version}/{namespace}/{name}")
    return FileGroup(ref, owner_of(thing, ref, path), namespace)


def _workload_of(job: Object, things: Sequence[Object], namespace: str) -> Object | None:
    """The Workload whose controller the batch Job is, if it has one template; None: there is none in the file."""
    if job.get("kind") != "Job" or _group_of(job) != "batch":
        return None
    spec = mapping(mapping(mapping(job.get("spec")).get("template")).get("spec"))
    for candidate in filter(is_workload, things) if "schedulingGroup" not in spec else ():
        ref = mapping(mapping(candidate.get("spec")).get("controllerRef"))
        same = file_namespace(candidate, namespace) == file_namespace(job, namespace)
        if same and (ref.get("kind"), ref.get("name")) == ("Job", _name(job)) and len(_templates(candidate)) == 1:
            return candidate
    return None


def _templates(workload: Object) -> list[dict[str, Any]]:
    found = mapping(workload.get("spec")).get("podGroupTemplates")
    return [mapping(item) for item in found] if isinstance(found, list) else []


def _made_name(workload: Object) -> str:
    return f"{_name(workload)}-{_templates(workload)[0].get('name') or ''}"


def _name(thing: Object) -> str:
    return str(mapping(thing.get("metadata")).get("name") or "")


def _group_of(thing: Object) -> str:
    return str(thing.get("apiVersion") or "").rpartition("/")[0]
