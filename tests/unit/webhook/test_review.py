"""Every review gets an answer that allows the pod; which pods get the scheduler is a table."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from bridge.webhook.review import Intercept, answer

PATCH = [{"op": "add", "path": "/spec/schedulerName", "value": "slurm-bridge"}]
UNNAMED, ALL = Intercept.UNNAMED, Intercept.ALL


def pod(scheduler: str = "default-scheduler", *owners: dict[str, Any], **annotations: str) -> dict[str, Any]:
    notes = {f"slurm-bridge/{key}": value for key, value in annotations.items()}
    return {
        "metadata": {"name": "x", "annotations": notes, "ownerReferences": list(owners)},
        "spec": {"schedulerName": scheduler, "containers": []},
    }


def review(made: Any, **request: Any) -> dict[str, Any]:
    usual = {"uid": "u1", "operation": "CREATE", "resource": {"group": "", "version": "v1", "resource": "pods"}}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": usual | {"object": made} | request,
    }


def patch(found: dict[str, Any]) -> Any:
    """The patch of an answer; None: it has none.  The answer must allow the pod."""
    response = found["response"]
    assert response["allowed"] is True
    assert ("patch" in response) == (response.get("patchType") == "JSONPatch")
    return json.loads(base64.b64decode(response["patch"])) if "patch" in response else None


DAEMONSET = {"kind": "DaemonSet", "controller": True}
TABLE = {
    "names no scheduler": (pod(), True, True),
    "has an empty name": (pod(""), True, True),
    "names another one": (pod("volcano"), False, True),
    "names the bridge": (pod("slurm-bridge"), False, False),
    "opts out": (pod(intercept="false"), False, False),
    "opts in": (pod(intercept="true"), True, True),
    "has annotations of others": (pod(partition="gpu"), True, True),
    "is of a DaemonSet": (pod("default-scheduler", DAEMONSET), False, False),
    "is of a Job": (pod("default-scheduler", {"kind": "Job", "controller": True}), True, True),
    "refers to a DaemonSet": (pod("default-scheduler", {"kind": "DaemonSet"}), True, True),
    "is of a DaemonSet, second": (pod("default-scheduler", {"kind": "Node"}, DAEMONSET), False, False),
    "has no metadata": ({"spec": {}}, True, True),
    "is bound": ({"spec": {"nodeName": "k1"}}, False, False),
    "has no spec": ({"metadata": {}}, False, False),
    "is no object": (None, False, False),
}


@pytest.mark.parametrize("case", TABLE)
def test_a_pod_gets_the_scheduler_or_is_left_alone(case: str) -> None:
    made, unnamed, everything = TABLE[case]
    assert patch(answer(review(made), UNNAMED)) == (PATCH if unnamed else None)
    assert patch(answer(review(made), ALL)) == (PATCH if everything else None)


@pytest.mark.parametrize(
    "request_says",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE"},
        {"subResource": "binding"},
        {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
        {"resource": {"group": "example.com", "version": "v1", "resource": "pods"}},
    ],
)
def test_what_is_no_creation_of_a_pod_is_left_alone(request_says: dict[str, Any]) -> None:
    assert patch(answer(review(pod(), **request_says), UNNAMED)) is None


def test_the_answer_carries_the_uid_and_nothing_else() -> None:
    assert answer(review(pod("volcano")), UNNAMED) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u1", "allowed": True},
    }


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=3),
    max_leaves=12,
)
KEYS = some.sampled_from(
    ["metadata", "spec", "annotations", "ownerReferences", "schedulerName", "nodeName", "controller"]
)
PODS = some.recursive(JSON, lambda inner: some.dictionaries(KEYS, inner), max_leaves=12)


@given(JSON | PODS.map(review) | some.fixed_dictionaries({"request": some.dictionaries(some.text(), JSON)}))
def test_whatever_is_asked_the_pod_is_allowed(asked: Any) -> None:
    for intercept in Intercept:
        found = msgspec.json.decode(msgspec.json.encode(answer(asked, intercept)))
        assert patch(found) in (None, PATCH)
        assert isinstance(found["response"]["uid"], str)
