"""The answer to one AdmissionReview: every pod is allowed, and some get `schedulerName: slurm-bridge`.

The rules are the same as in manifests/admission/intercept.yaml, which Kubernetes 1.36 evaluates itself.  A pod is
left alone if

    it names another scheduler          the API server writes "default-scheduler" before admission where a pod names none, so
                                        an explicit "default-scheduler" looks the same as none; with `intercept: all` such
                                        pods are not left alone
    it has a node at its creation       for example a mirror pod of a kubelet
    its controller is a DaemonSet
    it has the annotation slurm-bridge/intercept: "false"

The namespaceSelector of the MutatingWebhookConfiguration selects the managed namespaces, and the API server sends no pods of
other namespaces.

`answer` never refuses a pod and never raises.  The answer to a malformed review changes nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from scheduler.names import INTERCEPT, PREFIX, SCHEDULER_NAME

API = "admission.k8s.io/v1"
OPT_OUT = PREFIX + INTERCEPT
UNNAMED = ("", "default-scheduler")
_PATCH = msgspec.json.encode([{"op": "add", "path": "/spec/schedulerName", "value": SCHEDULER_NAME}])


class Intercept(StrEnum):
    """Which pods of a managed namespace get the scheduler."""

    UNNAMED = "unnamed"  # pods that name no scheduler
    ALL = "all"  # pods that name another scheduler, too


def answer(review: object, intercept: Intercept) -> dict[str, Any]:
    """The AdmissionReview to send back for any decoded JSON.  It allows the pod, with a patch if the pod is intercepted."""
    request = _mapping(_mapping(review).get("request"))
    uid = request.get("uid")
    response: dict[str, Any] = {"uid": uid if isinstance(uid, str) else "", "allowed": True}
    if _creates_a_pod(request) and is_intercepted(_mapping(request.get("object")), intercept):
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(_PATCH).decode()}
    return {"apiVersion": API, "kind": "AdmissionReview", "response": response}


def is_intercepted(pod: Mapping[str, Any], intercept: Intercept) -> bool:
    """True if this new pod of a managed namespace gets the scheduler."""
    spec, metadata = pod.get("spec"), _mapping(pod.get("metadata"))
    if not isinstance(spec, dict) or spec.get("nodeName"):
        return False
    scheduler = spec.get("schedulerName") or ""
    if scheduler == SCHEDULER_NAME or (intercept is Intercept.UNNAMED and scheduler not in UNNAMED):
        return False
    if _mapping(metadata.get("annotations")).get(OPT_OUT) == "false":
        return False
    owners = metadata.get("ownerReferences")
    return not any(_is_daemonset(_mapping(owner)) for owner in (owners if isinstance(owners, list) else ()))


def _is_daemonset(owner: Mapping[str, Any]) -> bool:
    return owner.get("kind") == "DaemonSet" and owner.get("controller") is True


def _creates_a_pod(request: Mapping[str, Any]) -> bool:
    resource = _mapping(request.get("resource"))
    created = (resource.get("group", ""), resource.get("resource"), request.get("subResource") or "")
    return request.get("operation") == "CREATE" and created == ("", "pods", "")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
