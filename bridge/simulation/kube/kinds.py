"""The kinds that the simulated API server serves, and how much of each it simulates.

After a change: `python -m integration.protobuf`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind, under its group and plural.

    short   the short name that kubectl takes; "": none
    in_all  `kubectl get all` shows it
    idle    it is stored, and no controller acts on it
    """

    api_version: str
    kind: str
    namespaced: bool = True
    short: str = ""
    in_all: bool = False
    idle: bool = False


KINDS = {
    ("", "pods"): Kind("v1", "Pod", short="po", in_all=True),
    ("", "nodes"): Kind("v1", "Node", namespaced=False, short="no"),
    ("", "namespaces"): Kind("v1", "Namespace", namespaced=False, short="ns"),
    ("", "events"): Kind("v1", "Event", short="ev"),
    ("", "configmaps"): Kind("v1", "ConfigMap", short="cm"),
    ("", "secrets"): Kind("v1", "Secret"),
    ("", "serviceaccounts"): Kind("v1", "ServiceAccount", short="sa"),
    ("", "services"): Kind("v1", "Service", short="svc", in_all=True, idle=True),
    ("", "resourcequotas"): Kind("v1", "ResourceQuota", short="quota", idle=True),
    ("", "persistentvolumeclaims"): Kind("v1", "PersistentVolumeClaim", short="pvc"),
    ("", "persistentvolumes"): Kind("v1", "PersistentVolume", namespaced=False, short="pv"),
    ("", "replicationcontrollers"): Kind("v1", "ReplicationController", short="rc", in_all=True, idle=True),
    ("apps", "replicasets"): Kind("apps/v1", "ReplicaSet", short="rs", in_all=True),
    ("apps", "deployments"): Kind("apps/v1", "Deployment", short="deploy", in_all=True),
    ("apps", "statefulsets"): Kind("apps/v1", "StatefulSet", short="sts", in_all=True, idle=True),
    ("apps", "daemonsets"): Kind("apps/v1", "DaemonSet", short="ds", in_all=True, idle=True),
    ("batch", "jobs"): Kind("batch/v1", "Job", in_all=True),
    ("batch", "cronjobs"): Kind("batch/v1", "CronJob", short="cj", in_all=True, idle=True),
    ("autoscaling", "horizontalpodautoscalers"): Kind(
        "autoscaling/v2", "HorizontalPodAutoscaler", short="hpa", in_all=True, idle=True
    ),
    ("policy", "poddisruptionbudgets"): Kind("policy/v1", "PodDisruptionBudget", short="pdb", idle=True),
    ("storage.k8s.io", "storageclasses"): Kind("storage.k8s.io/v1", "StorageClass", namespaced=False, short="sc"),
    ("coordination.k8s.io", "leases"): Kind("coordination.k8s.io/v1", "Lease"),
}
# Questions: they are answered and not kept.
REVIEWS = {
    ("authorization.k8s.io", "selfsubjectaccessreviews"): Kind(
        "authorization.k8s.io/v1", "SelfSubjectAccessReview", namespaced=False
    ),
    ("authorization.k8s.io", "selfsubjectrulesreviews"): Kind(
        "authorization.k8s.io/v1", "SelfSubjectRulesReview", namespaced=False
    ),
    ("authentication.k8s.io", "selfsubjectreviews"): Kind(
        "authentication.k8s.io/v1", "SelfSubjectReview", namespaced=False
    ),
}
SUBRESOURCES = {
    ("", "pods/binding"): Kind("v1", "Binding"),
    ("", "pods/eviction"): Kind("policy/v1", "Eviction"),
    ("", "pods/ephemeralcontainers"): Kind("v1", "Pod"),
    ("", "pods/status"): Kind("v1", "Pod"),
    ("", "nodes/status"): Kind("v1", "Node", namespaced=False),
    ("", "serviceaccounts/token"): Kind("authentication.k8s.io/v1", "TokenRequest"),
    ("apps", "replicasets/scale"): Kind("autoscaling/v1", "Scale"),
    ("apps", "deployments/scale"): Kind("autoscaling/v1", "Scale"),
}
DELETE_OPTIONS = Kind("v1", "DeleteOptions")


def sent() -> list[Kind]:
    """Every kind that a client may send, each once."""
    return list(dict.fromkeys([*KINDS.values(), *REVIEWS.values(), *SUBRESOURCES.values(), DELETE_OPTIONS]))
