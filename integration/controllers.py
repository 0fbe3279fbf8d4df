"""Objects as the controllers of LeaderWorkerSet, JobSet and Kueue make them, for clusters where those do not run.

They are made of what Kubernetes itself has (StatefulSets, batch Jobs, pods), so the real kube-controller-manager makes the
pods, with all that it adds.  What their admission webhooks add to each pod comes from an admission policy, or is there from
the start.  Their owners are of kinds that the API server does not serve, unless `served` teaches it one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


def template(labels: Mapping[str, str], annotations: Mapping[str, str], **wishes: Any) -> dict[str, Any]:
    """A pod's template; `annotations` with their whole keys."""
    found = pod("", labels=labels, **wishes)
    del found["metadata"]["name"]
    found["metadata"]["annotations"].update(annotations)
    return found


def digest(*parts: str) -> str:
    return hashlib.sha1("/".join(parts).encode(), usedforsecurity=False).hexdigest()


# --- LeaderWorkerSet ------------------------------------------------------------------------------------------------


def leaders(name: str, groups: int, size: int) -> dict[str, Any]:
    """The StatefulSet of all leaders, owned by the LeaderWorkerSet."""
    labels = {LWS + "name": name, LWS + "worker-index": "0", LWS + "template-revision-hash": "64d8"}
    return _stateful_set(
        name,
        owned_by("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name),
        {"replicas": groups, "selector": {"matchLabels": {LWS + "name": name, LWS + "worker-index": "0"}}},
        template(labels, {LWS + "size": str(size)}),
    )


def workers(leader: Any, size: int) -> dict[str, Any]:
    """The StatefulSet of one leader's workers, owned by that pod."""
    shared = ("group-index", "name", "group-key", "template-revision-hash")
    labels = {LWS + key: leader.metadata.labels[LWS + key] for key in shared}
    notes = {LWS + "size": str(size), LWS + "leader-name": leader.metadata.name}
    return _stateful_set(
        leader.metadata.name,
        owned_by("v1", "Pod", leader.metadata.name, leader.metadata.uid),
        {"replicas": size - 1, "ordinals": {"start": 1}, "selector": {"matchLabels": labels}},
        template(labels, notes),
    )


def _stateful_set(name: str, owner: dict[str, Any], spec: dict[str, Any], pods: dict[str, Any]) -> dict[str, Any]:
    pods["spec"]["restartPolicy"] = "Always"
    return {
        "metadata": {"name": name} | owner,
        "spec": {"serviceName": name, "podManagementPolicy": "Parallel", "template": pods} | spec,
    }


@contextmanager
def leader_worker_admission(kube: Kube, space: str, leader_names: list[str]) -> Iterator[None]:
    """What LeaderWorkerSet's webhook adds to each pod of that namespace: of leaders the group, of workers their index."""
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
        return tried.metadata.labels.get(LWS + "worker-index") == "1"

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
def job_sets_served(kube: Kube) -> Iterator[client.CustomObjectsApi]:
    """The API server knows the kind JobSet, as where JobSet is installed."""
    group, kind = "jobset.x-k8s.io", {"plural": "jobsets", "singular": "jobset", "kind": "JobSet"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "metadata": {"name": f"jobsets.{group}"},
        "spec": {"group": group, "names": kind, "scope": "Namespaced", "versions": [version]},
    }
    api, objects = client.ApiextensionsV1Api(kube.api), client.CustomObjectsApi(kube.api)
    api.create_custom_resource_definition(definition)

    def established() -> bool:
        conditions = api.read_custom_resource_definition(f"jobsets.{group}").status.conditions or []
        return any(each.type == "Established" and each.status == "True" for each in conditions)

    try:
        eventually("JobSets are served", established)
        yield objects
    finally:
        api.delete_custom_resource_definition(f"jobsets.{group}")


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
