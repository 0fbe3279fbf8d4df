"""Which rights are used, by an audit log: unused rights are named, and so are missing rights."""

from __future__ import annotations

import json
from typing import Any

from integration import granted
from integration.granted import Right

ME = "system:serviceaccount:slurm-bridge:slurm-bridge"
RULES = [
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list"]},
    {"apiGroups": ["apps", "batch"], "resources": ["jobs"], "verbs": ["get"]},
]
ROLE = {"kind": "ClusterRole", "metadata": {"name": "seer"}, "rules": RULES}


def said(verb: str, resource: str, role: str = "seer", code: int = 200, user: str = ME, **about: str) -> bytes:
    """A line of the audit log; role "": nothing allowed it."""
    by = f'RBAC: allowed by RoleBinding "x/y" of ClusterRole "{role}" to ServiceAccount "a/b"' if role else ""
    entry = {
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": user, "groups": []},
        "objectRef": {"resource": resource, **about},
        "responseStatus": {"code": code},
        "annotations": {"authorization.k8s.io/reason": by},
    }
    return json.dumps(entry).encode()


def judged(*lines: bytes, roles: Any = (ROLE,)) -> granted.Verdict:
    return granted.judged(granted.rights_of(roles), granted.requests_of(ME, lines))


EACH_USED = (
    said("get", "pods", name="a"),
    said("list", "pods"),
    said("get", "nodes", name="x", code=404),  # it may read nodes, and there is none
    said("list", "nodes"),
    said("get", "jobs", apiGroup="batch"),
)
NOT_THERE = said("get", "jobs", apiGroup="apps")


def test_every_pair_of_a_rule_is_a_right_of_its_own() -> None:
    rights = granted.rights_of([ROLE, {"kind": "ServiceAccount", "metadata": {"name": "seer"}}])
    assert len(rights) == 6
    assert Right("ClusterRole seer", "get", "jobs", "apps") in rights


def test_rights_of_which_each_is_used_pass() -> None:
    assert judged(*EACH_USED, NOT_THERE)


def test_a_right_that_is_not_used_is_named() -> None:
    verdict = judged(*EACH_USED)
    assert not verdict
    assert verdict.unused == ("ClusterRole seer: get jobs.apps",)


def test_what_another_user_or_another_role_did_uses_no_right() -> None:
    others = said("get", "jobs", apiGroup="apps", user="admin"), said("get", "jobs", "basic", apiGroup="apps")
    assert judged(*EACH_USED, *others).unused == ("ClusterRole seer: get jobs.apps",)


def test_a_right_that_is_missing_is_named_once_for_each_namespace() -> None:
    no = said("create", "pods", "", 403, subresource="eviction", namespace="hpc", name="a")
    again = said("create", "pods", "", 403, subresource="eviction", namespace="hpc", name="b")
    verdict = judged(*EACH_USED, NOT_THERE, no, again)
    assert not verdict
    assert verdict.refused == ("create pods/eviction in namespace hpc: no role allows it",)


def test_what_admission_forbids_is_distinguished() -> None:
    no = said("get", "pods", code=403, namespace="hpc")
    assert judged(*EACH_USED, NOT_THERE, no).refused == ("get pods in namespace hpc: forbidden by admission",)


def test_a_right_for_one_object_is_used_by_that_object_alone() -> None:
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["own"], "verbs": ["get"]}
    roles = ({"kind": "Role", "metadata": {"name": "keeper"}, "rules": [rule]},)

    def read(name: str) -> bytes:
        line = said("get", "leases", "keeper", apiGroup="coordination.k8s.io", name=name)
        return line.replace(b"of ClusterRole", b"of Role")

    assert judged(read("other"), roles=roles).unused == ("Role keeper: get leases.coordination.k8s.io/own",)
    assert judged(read("own"), roles=roles)
