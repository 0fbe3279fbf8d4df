"""Whatever an object holds, it is read or refused in one way: no other error, and no other object harmed."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import ContractError
from bridge.kube.codec import PODS, Changed, Undecodable
from scheduler.model.kubernetes import Pod

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
POD: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "uid": "u-1",
        "namespace": "hpc",
        "creationTimestamp": "2026-11-21T05:00:00Z",
        "labels": {"app": "a"},
        "annotations": {"slurm-bridge/partition": "main"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": True}
        ],
    },
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "d"}}, {"name": "e", "ephemeral": {}}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "False"}],
        "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 1}}}],
    },
}


def paths(thing: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    return [here, *(path for key, value in inner for path in paths(value, (*here, key)))]


def replaced(thing: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(thing)
    changed[path[0]] = replaced(thing[path[0]], path[1:], value)
    return changed


@settings(max_examples=300)
@given(st.sampled_from(paths(POD)), JSON)
def test_a_pod_with_anything_anywhere_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    line = json.dumps({"type": "ADDED", "object": replaced(POD, path, value)}).encode()
    try:
        change = PODS.line(line)
    except ContractError as refused:
        sentence = str(refused)
    else:
        if isinstance(change, Changed):
            assert isinstance(change.object, Pod)
            return
        assert isinstance(change, Undecodable)
        sentence = change.object.why
    assert "the answer does not match the API" in sentence


@settings(max_examples=200)
@given(st.text(max_size=80))
def test_an_amount_of_any_text_never_harms_the_other_pods(text: str) -> None:
    odd = replaced(POD, ("spec", "containers", 0, "resources", "requests", "cpu"), text)
    page = {"metadata": {"resourceVersion": "7"}, "items": [odd, POD]}
    (first, second), undecoded = PODS.items(PODS.page(json.dumps(page).encode()))
    assert undecoded == []
    assert bool(first.refused_fields) is (first.containers[0].requests == {})
    assert second.refused_fields == ()


@given(st.none() | st.integers(), st.none() | st.integers(), st.booleans())
def test_a_grace_is_never_negative(own_s: int | None, deletion_s: int | None, is_deleted: bool) -> None:
    deletion = {"deletionTimestamp": "2026-11-21T05:00:05Z", "deletionGracePeriodSeconds": deletion_s}
    odd = {
        "metadata": POD["metadata"] | (deletion if is_deleted else {}),
        "spec": POD["spec"] | {"terminationGracePeriodSeconds": own_s},
    }
    page = {"metadata": {"resourceVersion": "7"}, "items": [odd]}
    pods, _ = PODS.items(PODS.page(json.dumps(page).encode()))
    assert all(pod.grace_s >= 0 for pod in pods)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(noise: bytes) -> None:
    for read in (PODS.line, PODS.page, PODS.one):
        try:
            read(noise)
        except ContractError:
            continue
        raise AssertionError(f"{noise!r} was taken for something")
