"""Objects as the controllers of LeaderWorkerSet, JobSet and Kueue make them, for clusters without these controllers.

The objects are StatefulSets, batch Jobs and pods, so the real kube-controller-manager makes the pods, with everything that it
adds.  The fields that admission webhooks of these controllers add to each pod come from an admission policy, or are there
from the start.  Their owners are of kinds that the API server does not serve, unless `served` teaches it one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from kubernetes import client

from integration.clusters import Kube, eventually, pod

LWS = "leaderworkerset.sigs.k8s.io/"
JOBSET = "jobset.sigs.k8s.io/"
KUEUE = "kueue.x-k8s.io/"
GATE = KUEUE + "admission"
UNREAD_UID = "5d1c1f2e-7d3c-4d3c-9f58-6c1c9e0a7b11"  # of an owner that nobody can read
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def owned_by(api_version: str, kind: str, name: str, uid: str = UNREAD_UID) -> dict[str, Any]:
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    return {"ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}]}


def template(labels: Mapping[str, str], annotations: Mapping[str, str], **options: Any) -> dict[str, Any]:
    """A pod's template; `annotations` with their whole keys."""
    found = pod("", labels=labels, **options)
    del found["metadata"]["name"]
    found["metadata"]["annotations"].update(annotations)
    return found


def from_template(
    given: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """A user's template for pods, with what a controller adds to it."""
    found: dict[str, Any] = deepcopy(dict(given))
    meta = found.setdefault("metadata", {})
    meta["labels"] = {**meta.get("labels", {}), **labels}
    meta["annotations"] = {**meta.get("annotations", {}), **annotations}
    return found


def digest(*parts: str) -> str:
    return hashlib.sha1("/".join(parts).encode(), usedforsecurity=False).hexdigest()


# --- LeaderWorkerSet ------------------------------------------------------------------------------------------------


def leaders(
    name: str, groups: int, size: int, given: Mapping[str, Any] | None = None, uid: str = UNREAD_UID
) -> dict[str, Any]:
    """The StatefulSet of all leaders, owned by the LeaderWorkerSet.  given: its template for them."""
    labels = {LWS + "name": name, LWS + "worker-index": "0", LWS + "template-revision-hash": "64d8"}
    return _stateful_set(
        name,
        owned_by("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, uid),
        {"replicas": groups, "selector": {"matchLabels": {LWS + "name": name, LWS + "worker-index": "0"}}},
        from_template(given or template({}, {}), labels, {LWS + "size": str(size)}),
    )


def workers(leader: Any, size: int, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The StatefulSet of one leader's workers, owned by that pod.  given: the template for them."""
    shared = ("group-index", "name", "group-key", "template-revision-hash")
    labels = {LWS + key: leader.metadata.labels[LWS + key] for key in shared}
    notes = {LWS + "size": str(size), LWS + "leader-name": leader.metadata.name}
    return _stateful_set(
        leader.metadata.name,
        owned_by("v1", "Pod", leader.metadata.name, leader.metadata.uid),
        {"replicas": size - 1, "ordinals": {"start": 1}, "selector": {"matchLabels": labels}},
        from_template(given or template({}, {}), labels, notes),
    )


@contextmanager
def plays_leader_worker_set(kube: Kube, space: str, given: Mapping[str, Any]) -> Iterator[None]:
    """The pods that a LeaderWorkerSet's controller makes exist within this block, admitted as its webhook admits them.

    The environment that it gives them (LWS_LEADER_ADDRESS and so on) is left out.
    """
    name, spec = given["metadata"]["name"], given["spec"]
    of_pods, groups = spec["leaderWorkerTemplate"], spec["replicas"]
    size = of_pods["size"]
    of_leaders = of_pods.get("leaderTemplate", of_pods["workerTemplate"])
    with leader_worker_admission(kube, space, [f"{name}-{number}" for number in range(groups)]):
        made = leaders(name, groups, size, of_leaders, given["metadata"]["uid"])
        kube.apps.create_namespaced_stateful_set(space, made)
        there = eventually("the leaders are there", lambda: len(pods := kube.pods(space)) == groups and pods)
        for leader in there:
            made = workers(leader, size, of_pods["workerTemplate"])
            kube.apps.create_namespaced_stateful_set(space, made)
        yield


def _stateful_set(name: str, owner: dict[str, Any], spec: dict[str, Any], pods: dict[str, Any]) -> dict[str, Any]:
    pods["spec"]["restartPolicy"] = "Always"
    return {
        "metadata": {"name": name} | owner,
        "spec": {"serviceName": name, "podManagementPolicy": "Parallel", "template": pods} | spec,
    }


@contextmanager
def leader_worker_admission(kube: Kube, space: str, leader_names: list[str]) -> Iterator[None]:
    """Adds to each pod of the namespace what LeaderWorkerSet's webhook adds: the group to leaders, the index to workers."""
    ordinal = "object.metadata.name.substring(object.metadata.name.lastIndexOf('-') + 1)"
    keys = {name: digest(space, name) for name in leader_names}
    leader = f"'{LWS}group-index': {ordinal}, '{LWS}group-key': {keys}[object.metadata.name]"
    worker = f"'{LWS}worker-index': {ordinal}"
    is_leader = f"'{LWS}worker-index' in object.metadata.labels"
    labelled = "Object{{metadata: Object.metadata{{labels: {{{}}}}}}}".format
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    mutation = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": f"{is_leader} ? {labelled(leader)} : {labelled(worker)}"},
    }
    policy = {
        "matchConstraints": {"resourceRules": [pods]},
        "matchConditions": [
            {"name": "of-a-set", "expression": f"'{LWS}name' in object.metadata.?labels.orValue({{}})"}
        ],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [mutation],
    }
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}}}
    api = client.AdmissionregistrationV1Api(kube.api)
    api.create_mutating_admission_policy({"metadata": {"name": space}, "spec": policy})
    binding = {"metadata": {"name": space}, "spec": {"policyName": space, "matchResources": where}}
    api.create_mutating_admission_policy_binding(binding)
    trial = pod(f"{leader_names[0]}-1", labels={LWS + "name": "trial"})

    def at_work() -> bool:
        tried = kube.core.create_namespaced_pod(space, trial, dry_run="All")
        index: str | None = tried.metadata.labels.get(LWS + "worker-index")
        return index == "1"

    try:
        eventually("the admission policy is at work", at_work)
        yield
    finally:
        api.delete_mutating_admission_policy_binding(space)
        api.delete_mutating_admission_policy(space)


# --- JobSet ---------------------------------------------------------------------------------------------------------


def job_set(name: str, parts: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """The JobSet itself; `parts`: name of a replicated Job to its replicas and their parallelism."""
    jobs = [
        {"name": part, "replicas": replicas, "template": {"spec": {"parallelism": pods, "completions": pods}}}
        for part, (replicas, pods) in parts.items()
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": jobs},
    }


def jobs_of(
    space: str, name: str, parts: Mapping[str, tuple[int, int]], uid: str = UNREAD_UID
) -> Iterator[dict[str, Any]]:
    """The batch Jobs that a JobSet makes."""
    total = sum(replicas for replicas, _ in parts.values())
    each = [(part, index, *sizes) for part, sizes in parts.items() for index in range(sizes[0])]
    for number, (part, index, replicas, pods) in enumerate(each):
        job = f"{name}-{part}-{index}"
        shows = {
            JOBSET + "jobset-name": name,
            JOBSET + "jobset-uid": uid,
            JOBSET + "replicatedjob-name": part,
            JOBSET + "replicatedjob-replicas": str(replicas),
            JOBSET + "global-replicas": str(total),
            JOBSET + "job-index": str(index),
            JOBSET + "job-global-index": str(number),
            JOBSET + "job-key": digest(space, job),
            JOBSET + "restart-attempt": "0",
        }
        meta = {"name": job, "labels": shows, "annotations": shows}
        yield {
            "metadata": meta | owned_by("jobset.x-k8s.io/v1alpha2", "JobSet", name, uid),
            "spec": indexed(pods) | {"template": template(shows, shows), "suspend": False},
        }


def indexed(pods: int) -> dict[str, Any]:
    return {"completionMode": "Indexed", "parallelism": pods, "completions": pods}


@contextmanager
def plays_job_set(kube: Kube, space: str, given: Mapping[str, Any]) -> Iterator[None]:
    """The pods that a JobSet's controller makes exist within this block."""
    name, parts = given["metadata"]["name"], {each["name"]: each for each in given["spec"]["replicatedJobs"]}
    sizes = {part: (each["replicas"], each["template"]["spec"]["parallelism"]) for part, each in parts.items()}
    for job in jobs_of(space, name, sizes, given["metadata"]["uid"]):
        shows = job["metadata"]["labels"]
        wanted = parts[shows[JOBSET + "replicatedjob-name"]]["template"]["spec"]
        job["spec"] = {**wanted, "template": from_template(wanted["template"], shows, shows)}
        kube.batch.create_namespaced_job(space, job)
    yield


# --- their kinds --------------------------------------------------------------------------------------------------

JOB_SETS = ("jobset.x-k8s.io", "v1alpha2", "JobSet")
LEADER_WORKER_SETS = ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")


def plural(kind: str) -> str:
    return f"{kind.lower()}s"


@contextmanager
def served(kube: Kube, group: str, version: str, kind: str) -> Iterator[client.CustomObjectsApi]:
    """The API server knows that kind, as where its project is installed."""
    called = {"plural": plural(kind), "singular": kind.lower(), "kind": kind}
    name = f"{plural(kind)}.{group}"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    definition = {
        "metadata": {"name": name},
        "spec": {"group": group, "names": called, "scope": "Namespaced", "versions": versions},
    }
    api, objects = client.ApiextensionsV1Api(kube.api), client.CustomObjectsApi(kube.api)
    api.create_custom_resource_definition(definition)

    def established() -> bool:
        conditions = api.read_custom_resource_definition(name).status.conditions or []
        return any(each.type == "Established" and each.status == "True" for each in conditions)

    try:
        eventually(f"{plural(kind)} are served", established)
        yield objects
    finally:
        api.delete_custom_resource_definition(name)


# --- Kueue ----------------------------------------------------------------------------------------------------------


def kueue_pod(name: str, group: str, size: int, index: int) -> dict[str, Any]:
    """One of a group of plain pods, as Kueue's webhook lets it in: gated, and kept until Kueue has counted its end."""
    labels = {"queue-name": "main", "managed": "true", "pod-group-name": group, "pod-group-pod-index": str(index)}
    found = pod(name, labels={KUEUE + key: value for key, value in labels.items()}, on="")
    found["metadata"]["annotations"] |= {KUEUE + "pod-group-total-count": str(size), KUEUE + "role-hash": "8f14e45f"}
    found["metadata"]["finalizers"] = [KUEUE + "managed"]
    found["spec"]["schedulingGates"] = [{"name": GATE}]
    return found


def kueue_admits(kube: Kube, space: str, name: str) -> None:
    """Kueue lets it start: on nodes of the flavour that it took, and no longer gated."""
    gate = {"name": GATE, "$patch": "delete"}
    spec = {"nodeSelector": {"type": "kwok"}, "schedulingGates": [gate]}
    kube.core.patch_namespaced_pod(name, space, {"spec": spec})


@contextmanager
def kept_by_kueue(kube: Kube, space: str) -> Iterator[None]:
    """Finished pods of that namespace stay; afterwards Kueue has counted them, and lets them go."""
    try:
        yield
    finally:
        for each in kube.pods(space):
            kube.core.patch_namespaced_pod(each.metadata.name, space, {"metadata": {"finalizers": None}})
