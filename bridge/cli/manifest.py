"""Pods of manifests, before they exist: `slurm-bridge explain -f` (O4).

A Pod is planned as it is.  For a workload object, its pod template is planned, with the object as the owner of the pod: the
annotations of an owner count for its pods, too.  The pods of one template are alike, so one pod is planned for all of them.
The pods of a gang share one job, so all of them are planned.  manifest_controllers.py plans the pods of JobSets,
LeaderWorkerSets and TrainJobs, and manifest_groups.py reads the sizes of gangs.  The output names objects that make no pods,
and objects whose pods only their own controllers know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bridge.cli.manifest_controllers import Source, is_runtime, of_foreign
from bridge.cli.manifest_groups import FileGroup, groups, is_group, is_workload, with_group
from bridge.cli.manifest_yaml import documents
from bridge.cli.planned_pods import Planned, annotations_of, at_once, job_owner, made_pod, mapping, number_of
from bridge.errors import ConfigError
from scheduler.model.kubernetes import Owner, OwnerRef
from scheduler.translate.grouping import MAX_SIZE, Group, group_of

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
class Contents:
    """The content of a file.

    planned   the plans for objects that make pods
    podless   kind and name ("Service web") of each object that makes no pods
    foreign   the same of each object whose kind is neither of Kubernetes itself nor planned here ("SparkApplication pi")
    groups    PodGroups, also PodGroups that Kubernetes would make of Workloads
    """

    planned: tuple[Planned, ...] = ()
    podless: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    groups: tuple[FileGroup, ...] = ()


def read(path: str, namespace: str, now: float, *, usual: str = "default") -> Contents:
    """The content of a file ("-": standard input).

    namespace   the user named it: an object that names another one is refused, as by kubectl; "": none was named
    usual       the namespace of objects that name none, if the user named none either
    Raises ConfigError.
    """
    things = [_in_namespace(thing, namespace or usual) for thing in _objects(path)]
    planned: list[Planned] = []
    podless: list[str] = []
    foreign: list[str] = []
    for number, thing in enumerate(things, start=1):
        found = _planned(thing, things, path, number, namespace, now)
        if isinstance(found, tuple):
            planned.extend(found)
        elif not (is_group(thing) or is_workload(thing) or is_runtime(thing)):
            (foreign if _is_foreign(thing) else podless).append(found)
    return Contents(tuple(planned), tuple(podless), tuple(foreign), groups(things, namespace, path))


def _in_namespace(thing: dict[str, Any], namespace: str) -> dict[str, Any]:
    meta = thing.get("metadata")
    if not isinstance(meta, dict) or meta.get("namespace"):
        return thing
    return {**thing, "metadata": {**meta, "namespace": namespace}}


def _is_foreign(thing: Mapping[str, Any]) -> bool:
    """True unless the kind is of Kubernetes itself: its API groups have no dot, or end in .k8s.io (but not in .x-k8s.io)."""
    group = str(thing.get("apiVersion") or "").rpartition("/")[0]
    return "." in group and not group.endswith(".k8s.io")


def _objects(path: str) -> Iterator[dict[str, Any]]:
    for document in documents(path):
        items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else [document]
        if not isinstance(items or [], list):
            raise ConfigError(f"{path}: has a List whose items are not a list.")
        for item in items or ():
            if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
                raise ConfigError(f"{path}: has an object without a kind, which is not a Kubernetes object.")
            yield item


def _planned(
    thing: dict[str, Any], things: Sequence[dict[str, Any]], path: str, number: int, namespace: str, now: float
) -> tuple[Planned, ...] | str:
    """The plans for one object; its kind and name if it makes no pods, or unknown ones."""
    kind, meta = thing["kind"], mapping(thing.get("metadata"))
    name = str(meta.get("name") or meta.get("generateName") or "")
    uid = f"{path}#{number}"
    where = _namespace(meta, namespace, f"{path}: {kind} {name}")
    if kind == "Pod":
        return (Planned(f"Pod {where}/{name}", (made_pod(thing, name, where, uid, now, path=path),)),)
    if _is_foreign(thing):
        return of_foreign(thing, things, Source(path, uid, where, now)) or f"{kind} {name}"
    if kind not in TEMPLATES:
        return f"{kind} {name}"
    template: Any = thing
    for step in TEMPLATES[kind]:
        template = mapping(template).get(step)
    if not isinstance(template, dict):
        raise ConfigError(f"{path}: {kind} {name} has no {'.'.join(TEMPLATES[kind])}.")
    template = with_group(thing, template, things, namespace)
    owners = _owners(thing, kind, name, uid)
    pod = made_pod(template, f"{name}-…", where, uid, now, owners[0].ref if owners else None, path=path)
    return (
        _with_its_gang(Planned(f"pods of {kind} {where}/{name}", (pod,), owners), kind, mapping(thing.get("spec"))),
    )


# --- how many -------------------------------------------------------------------------------------------------------


def _with_its_gang(planned: Planned, kind: str, spec: Mapping[str, Any]) -> Planned:
    """The pods of one gang, up to its size; further pods are workloads of their own."""
    group, pod = group_of(planned.pod), planned.pod
    made, notes = max(1, _how_many(kind, spec)), list(_of_controller(kind, spec))
    if not isinstance(group, Group):
        if made > 1:
            notes.append(f"It makes {made:,} pods like this one; each has a job of its own.")
        return replace(planned, notes=tuple(notes))
    wanted = made
    if kind == "StatefulSet" and spec.get("podManagementPolicy") != "Parallel":
        made = 1
    members = min(made, group.size or MAX_SIZE)
    if made > members:
        notes.append(
            f"It makes {made:,} pods, of which {members:,} are one gang; each of the others has a job of its own."
        )
    if made < wanted:
        notes.append(
            "It makes a pod only when the one before is ready (OrderedReady), so that its gang is never complete: say "
            "podManagementPolicy: Parallel."
        )
    pods = (replace(pod, uid=f"{pod.uid}.{number}") for number in range(members))
    return replace(planned, pods=tuple(pods), notes=tuple(notes))


def _of_controller(kind: str, spec: Mapping[str, Any]) -> Iterator[str]:
    """What a controller does with its pods over time."""
    if kind == "CronJob":
        yield f"This is a plan: such a batch Job is made at each time of its schedule ({spec.get('schedule')})."
        if spec.get("suspend"):
            yield "The CronJob is suspended: it makes no batch Job before it is resumed."
    if kind == "Job" and spec.get("suspend"):
        yield "The Job is suspended: it makes no pods before it is resumed."
    if _how_many(kind, spec) < 1:
        yield "It makes 0 pods as it is written. The plan is of one pod."
    if kind == "StatefulSet":
        yield "This is a plan: the StatefulSet makes a pod of the same name again whenever one has ended."


def _how_many(kind: str, spec: Mapping[str, Any]) -> int:
    """The number of pods that the object has at a time; 1 if it names no number."""
    match kind:
        case "Job":
            return at_once(spec)
        case "CronJob":
            return at_once(mapping(mapping(spec.get("jobTemplate")).get("spec")))
        case "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController":
            return number_of(spec, "replicas")
        case _:
            return 1


# --- what an object of a file says ------------------------------------------------------------------------------------


def _namespace(meta: Mapping[str, Any], wanted: str, subject: str) -> str:
    own = str(meta.get("namespace") or "")
    if own and wanted and own != wanted:
        raise ConfigError(f"{subject} names namespace {own}, and -n says {wanted}.")
    return own or wanted or "default"


def _owners(thing: Mapping[str, Any], kind: str, name: str, uid: str) -> tuple[Owner, ...]:
    """The object; the batch Job that a CronJob would make."""
    meta, spec = mapping(thing.get("metadata")), mapping(thing.get("spec"))
    ref = OwnerRef(str(thing.get("apiVersion") or ""), kind, name, f"{uid}.{kind}")
    if kind == "PodTemplate":
        return ()
    if kind == "CronJob":
        job = mapping(spec.get("jobTemplate"))
        job_ref = OwnerRef("batch/v1", "Job", f"{name}-…", f"{uid}.Job")
        return job_owner(job_ref, job, ref), Owner(ref, annotations_of(meta))
    return (job_owner(ref, thing) if kind == "Job" else Owner(ref, annotations_of(meta)),)
