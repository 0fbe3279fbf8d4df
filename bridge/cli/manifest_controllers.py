"""Plans the pods that a JobSet, a LeaderWorkerSet or a TrainJob of a file would have (O4).

The plan has the properties that matter for the job in Slurm: numbers, resources, owners, and the labels that show the gang
(Kubernetes facts 4).  A TrainJob becomes a JobSet from the template in its runtime, with the number of nodes, resources and
overrides of the TrainJob.  The runtime must be in the same file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from bridge.cli.planned_pods import (
    Planned,
    annotations_of,
    at_once,
    file_namespace,
    items_of,
    job_owner,
    made_pod,
    mapping,
    number_of,
    owner_of,
)
from bridge.errors import ConfigError
from scheduler import names
from scheduler.model.kubernetes import Owner, OwnerRef, Pod
from scheduler.translate.grouping import (
    COMPLETION_INDEX,
    JOBSET,
    JOBSET_ATTEMPT,
    JOBSET_JOB,
    JOBSET_PART,
    JOBSET_UID,
    LWS_GROUP,
    LWS_NAME,
    LWS_RANK,
    LWS_SIZE,
    MAX_SIZE,
)

Object = Mapping[str, Any]
JOBSET_API = "jobset.x-k8s.io/v1alpha2"
LWS_API = "leaderworkerset.x-k8s.io/v1"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"  # a label of the runtime's Jobs
NODE = "node"  # the container that gets the TrainJob's resources
OVERRIDDEN = ("nodeSelector", "affinity", "serviceAccountName")  # of podTemplateOverrides, besides lists
PLAN = "This is a plan of the pods that the controller of {kind} makes from these fields. Other tools may change them."


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of an object.  path: its file; uid: prefix of the UIDs of objects made from it; now: epoch seconds."""

    path: str
    uid: str
    namespace: str
    now: float


def of_foreign(thing: Object, things: Sequence[Object], source: Source) -> tuple[Planned, ...] | None:
    """The plan for an object of another API than Kubernetes' own; None: its kind is not known.  Raises ConfigError."""
    group, kind = str(thing.get("apiVersion") or "").rpartition("/")[0], thing.get("kind")
    match group, kind:
        case "jobset.x-k8s.io", "JobSet":
            return _of_jobset(thing, "JobSet", source, ())
        case "leaderworkerset.x-k8s.io", "LeaderWorkerSet":
            return (_of_leader_worker_set(thing, source),)
        case "trainer.kubeflow.org", "TrainJob":
            return _of_train_job(thing, things, source)
    return None


def is_runtime(thing: Object) -> bool:
    """True for a runtime of TrainJobs, which makes no pods by itself."""
    return str(thing.get("apiVersion") or "").startswith("trainer.kubeflow.org/") and thing.get("kind") in (
        "TrainingRuntime",
        "ClusterTrainingRuntime",
    )


# --- JobSet -----------------------------------------------------------------------------------------------------------


def _of_jobset(jobset: Object, kind: str, source: Source, notes: Sequence[str]) -> tuple[Planned, ...]:
    """One plan for each set of Jobs that start together."""
    name, spec = _name(jobset), mapping(jobset.get("spec"))
    ref = OwnerRef(JOBSET_API, "JobSet", name, f"{source.uid}.JobSet")
    owner = owner_of(jobset, ref, source.path)
    if not 1 <= (made := owner.members or 0) <= MAX_SIZE:
        raise ConfigError(f"{source.path}: {kind} {name} makes {made:,} pods: from 1 to {MAX_SIZE:,} are one gang.")
    jobs = list(_jobs(jobset, source))
    pods = [(part, pod) for part, job, template in jobs for pod in _pods_of(template, part, job, ref, source)]
    owners = (*(job_owner(job, template, ref) for _, job, template in jobs), owner)
    stages = [(f", stage {stage.name}", stage.jobs) for stage in owner.stages] or [
        ("", tuple(part for part, _ in pods))
    ]
    all_notes = [PLAN.format(kind=kind), *notes]
    if spec.get("suspend"):
        all_notes.append(f"The {kind} is suspended: it makes no pods before it is resumed.")
    if len(stages) > 1:
        all_notes.append("Its Jobs start one after the other: each stage is a gang with its own job.")
    return tuple(
        Planned(
            f"pods of {kind} {source.namespace}/{name}{title}",
            tuple(pod for part, pod in pods if part in parts),
            owners,
            tuple(all_notes),
        )
        for title, parts in stages
        if any(part in parts for part, _ in pods)
    )


def _jobs(jobset: Object, source: Source) -> Iterator[tuple[str, OwnerRef, dict[str, Any]]]:
    """Name of the replicated Job, the batch Job, and its template."""
    for replicated in map(mapping, items_of(mapping(jobset.get("spec")).get("replicatedJobs"))):
        part, template = str(replicated.get("name") or ""), mapping(replicated.get("template"))
        has_pods = at_once(mapping(template.get("spec"))) > 0  # without pods there may be any number of Jobs
        for index in range(number_of(replicated, "replicas") if has_pods else 0):
            name = f"{_name(jobset)}-{part}-{index}"
            yield part, OwnerRef("batch/v1", "Job", name, f"{source.uid}.{name}"), template


def _pods_of(job_template: Object, part: str, job: OwnerRef, jobset: OwnerRef, source: Source) -> Iterator[Pod]:
    index = job.name.rpartition("-")[2]
    spec = mapping(job_template.get("spec"))
    shown = {
        JOBSET: jobset.name,
        JOBSET_UID: jobset.uid,
        JOBSET_PART: part,
        JOBSET_JOB: index,
        JOBSET_ATTEMPT: "0",
    }
    for number in range(at_once(spec)):
        pod = _shown(mapping(spec.get("template")), shown | {COMPLETION_INDEX: str(number)}, {})
        name = f"{job.name}-{number}"
        yield made_pod(pod, name, source.namespace, f"{source.uid}.{name}", source.now, job, path=source.path)


# --- LeaderWorkerSet --------------------------------------------------------------------------------------------------


def _of_leader_worker_set(thing: Object, source: Source) -> Planned:
    """The plan for one group, because all groups are alike."""
    name, spec = _name(thing), mapping(thing.get("spec"))
    of_pods = mapping(spec.get("leaderWorkerTemplate"))
    groups, size = number_of(spec, "replicas"), number_of(of_pods, "size")
    if not 1 <= size <= MAX_SIZE:
        raise ConfigError(
            f"{source.path}: LeaderWorkerSet {name} has the size {size:,}: from 1 to {MAX_SIZE:,} pods are one gang."
        )
    ref = OwnerRef(LWS_API, "LeaderWorkerSet", name, f"{source.uid}.LeaderWorkerSet")
    leaders = OwnerRef("apps/v1", "StatefulSet", name, f"{source.uid}.leaders")
    workers = OwnerRef("apps/v1", "StatefulSet", f"{name}-0", f"{source.uid}.workers")
    own = annotations_of(mapping(thing.get("metadata")))
    pods = []
    for index in range(size):
        template = mapping(of_pods.get("workerTemplate"))
        if index == 0:
            template = mapping(of_pods.get("leaderTemplate")) or template
        labels = {LWS_NAME: name, LWS_GROUP: f"{source.namespace}.{name}-0", LWS_RANK: str(index)}
        pod, pod_name = _shown(template, labels, {LWS_SIZE: str(size)}), f"{name}-0" + (f"-{index}" if index else "")
        owner = workers if index else leaders
        uid = f"{source.uid}.{pod_name}"
        pods.append(made_pod(pod, pod_name, source.namespace, uid, source.now, owner, path=source.path))
    notes = [PLAN.format(kind="LeaderWorkerSet")]
    if groups != 1:
        notes.append(f"It makes {groups:,} groups of {size:,} pods; each group is a job like this one.")
    if spec.get("startupPolicy") == "LeaderReady":
        notes.append(
            "It makes the workers only when the leader is ready (LeaderReady), so that the gang is never complete: keep "
            "startupPolicy: LeaderCreated."
        )
    if any(key.startswith((names.PREFIX, names.ALIAS_PREFIX)) for key in own):
        notes.append(
            "Its own annotations count only for leaders, because a Pod controls the workers: write them in the templates."
        )
    owners = (Owner(leaders, owner=ref), Owner(workers), Owner(ref, own))
    return Planned(f"pods of LeaderWorkerSet {source.namespace}/{name}, one group", tuple(pods), owners, tuple(notes))


# --- TrainJob ---------------------------------------------------------------------------------------------------------


def _of_train_job(thing: Object, things: Sequence[Object], source: Source) -> tuple[Planned, ...]:
    """The plan for the JobSet that Kubeflow Trainer makes from the TrainJob."""
    name, spec = _name(thing), mapping(thing.get("spec"))
    runtime = _runtime(thing, things, source)
    made = mapping(mapping(runtime.get("spec")).get("template"))
    jobset: dict[str, Any] = deepcopy({"metadata": mapping(made.get("metadata")), "spec": mapping(made.get("spec"))})
    annotations = mapping(jobset["metadata"].get("annotations")) | mapping(spec.get("annotations"))
    jobset["metadata"] = {"name": name, "annotations": annotations}
    jobset["spec"]["suspend"] = spec.get("suspend")
    trainer = mapping(spec.get("trainer"))
    policy = mapping(mapping(runtime.get("spec")).get("mlPolicy"))
    nodes = number_of(trainer, "numNodes", number_of(policy, "numNodes"))
    overrides = [mapping(override) for override in _list(spec, "podTemplateOverrides", name, source)]
    for job in map(mapping, items_of(jobset["spec"].get("replicatedJobs"))):
        _fill(job, nodes, mapping(trainer.get("resourcesPerNode")))
        for override in overrides:
            targets = _list(override, "targetJobs", name, source)
            if str(job.get("name")) in [str(mapping(target).get("name")) for target in targets]:
                _override(job, mapping(override.get("spec")))
    notes = [f"Its runtime is the {runtime['kind']} {_name(runtime)} of this file."]
    if spec.get("runtimePatches"):
        notes.append("runtimePatches are not applied in this plan.")
    return _of_jobset(jobset, "TrainJob", source, notes)


def _list(spec: Object, key: str, name: str, source: Source) -> list[Any]:
    found = spec.get(key) or []
    if not isinstance(found, list):
        raise ConfigError(f"{source.path}: TrainJob {name}: {key} is not a list.")
    return found


def _runtime(thing: Object, things: Sequence[Object], source: Source) -> Object:
    ref = mapping(mapping(thing.get("spec")).get("runtimeRef"))
    kind, name = str(ref.get("kind") or "ClusterTrainingRuntime"), str(ref.get("name") or "")
    for runtime in filter(is_runtime, things):
        here = kind == "ClusterTrainingRuntime" or file_namespace(runtime, source.namespace) == source.namespace
        if here and (runtime.get("kind"), _name(runtime)) == (kind, name):
            return runtime
    raise ConfigError(
        f"{source.path}: TrainJob {_name(thing)} gets its pods from the {kind} {name}, which is not in this file.",
        f"Add it: kubectl get {kind.lower()} {name} -o yaml.",
    )


def _fill(job: dict[str, Any], nodes: int, resources: Object) -> None:
    """Set the fields that Trainer sets in a replicated Job: one replica, the number of nodes, and their resources."""
    template = mapping(job.get("template"))
    step = mapping(mapping(template.get("metadata")).get("labels")).get(STEP)
    spec = mapping(template.get("spec"))
    if step is not None:
        job["replicas"] = 1
    if step == "trainer":
        spec["parallelism"] = spec["completions"] = nodes
    for container in map(mapping, items_of(_pod_spec(spec).get("containers"))):
        if container.get("name") == NODE and (resources.get("limits") or resources.get("requests")):
            container["resources"] = {key: resources[key] for key in ("limits", "requests") if resources.get(key)}


def _override(job: dict[str, Any], spec: Object) -> None:
    """Apply the fields of one podTemplateOverride of the TrainJob that matter for scheduling."""
    pod = _pod_spec(mapping(mapping(job.get("template")).get("spec")))
    for key in OVERRIDDEN:
        if isinstance(spec.get(key), dict):
            pod[key] = mapping(pod.get(key)) | spec[key]
        elif spec.get(key):
            pod[key] = spec[key]
    for key in ("tolerations", "schedulingGates"):
        if added := spec.get(key):
            # A value that is not a list is refused with the pod.
            pod[key] = [*items_of(pod.get(key)), *added] if isinstance(added, list) else added


def _pod_spec(job_spec: Object) -> dict[str, Any]:
    return mapping(mapping(job_spec.get("template")).get("spec"))


# --- all --------------------------------------------------------------------------------------------------------------


def _shown(template: Object, labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    """A pod of the template, with the metadata that a controller adds."""
    meta = mapping(template.get("metadata"))
    meta = {
        **meta,
        "labels": {**mapping(meta.get("labels")), **labels},
        "annotations": {**mapping(meta.get("annotations")), **annotations},
    }
    return {**template, "metadata": meta}


def _name(thing: Object) -> str:
    return str(mapping(thing.get("metadata")).get("name") or "")
