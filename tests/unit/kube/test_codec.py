"""What the API server says, as nouns: every field that decisions read, and every odd shape that must not hurt."""

from __future__ import annotations

import json
import sys
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from bridge.errors import ContractError
from bridge.kube.codec import NAMESPACES, NODES, PODS, Bookmark, Changed, Failed, Undecodable, owner_codec
from bridge.kube.transport import Cut
from scheduler.model.kubernetes import (
    Condition,
    Container,
    HostPort,
    Namespace,
    Node,
    NodeTerm,
    OwnerRef,
    Pod,
    PodPhase,
    PodTerm,
    Requirement,
    Taint,
    Toleration,
    Undecoded,
)
from scheduler.model.refusal import Refusal
from scheduler.translate.job_options import job_options


def read(metadata: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    meta = {"name": "a", "namespace": "hpc", "uid": "u-1", **(metadata or {})}
    return PODS.one(json.dumps({"metadata": meta, "spec": spec, "status": status or {}}).encode())


def ended(name: str, code: int, reason: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason, **more}}}


def test_the_smallest_pod_has_the_defaults_of_the_api() -> None:
    assert read() == Pod("u-1", "hpc", "a")


def test_null_is_the_same_as_missing() -> None:
    nothing = {"labels": None, "annotations": None, "ownerReferences": None, "creationTimestamp": None}
    spec = {"containers": None, "initContainers": None, "tolerations": None, "volumes": None, "affinity": None}
    assert read(nothing, {"conditions": None, "containerStatuses": None}, **spec) == Pod("u-1", "hpc", "a")


def test_identity_times_and_owner_are_read() -> None:
    owners = [
        {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "o-0"},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o-1", "controller": True},
    ]
    pod = read(
        {
            "creationTimestamp": "2026-11-21T05:00:00Z",
            "labels": {"app": "web"},
            "annotations": {"slurm-bridge/partition": "main", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "ownerReferences": owners,
        },
        schedulerName="slurm-bridge",
        serviceAccountName="trainer",
        nodeName="x1",
        restartPolicy="Never",
        activeDeadlineSeconds=600,
        schedulingGates=[{"name": "g"}],
    )
    assert pod.created == 1_795_237_200.0
    assert pod.labels == {"app": "web"}
    assert pod.annotations == {"slurm-bridge/partition": "main"}
    assert pod.owner == OwnerRef("apps/v1", "ReplicaSet", "web", "o-1")
    assert (pod.scheduler_name, pod.service_account, pod.node) == ("slurm-bridge", "trainer", "x1")
    assert (pod.restart_policy, pod.active_deadline_s, pod.gated) == ("Never", 600, True)


@pytest.mark.parametrize(
    ("manager", "deadlines"), [("slurm-bridge", (None, 600)), ("kubectl", (600, None)), (None, (600, None))]
)
def test_a_deadline_is_of_the_bridge_if_its_field_manager_wrote_it(
    manager: str | None, deadlines: tuple[int | None, int | None]
) -> None:
    wrote = {"f:spec": {"f:activeDeadlineSeconds": {}}}
    fields = [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}, {"manager": manager or "", "fieldsV1": wrote}]
    meta = {"managedFields": fields if manager else None}
    pod = read(meta, schedulerName="slurm-bridge", activeDeadlineSeconds=600)
    assert (pod.active_deadline_s, pod.set_deadline_s) == deadlines


PENDING = {
    "type": "PodResizePending",
    "status": "True",
    "reason": "Infeasible",
    "message": "Node didn't have enough capacity",
}


@pytest.mark.parametrize(
    ("resize", "node", "counts"),
    [
        (PENDING, "x1", (1000, 2000, 500)),
        (PENDING | {"reason": "Deferred"}, "x1", (64000, 64000, 32000)),
        ({"type": "Ready", "status": "True"}, "x1", (64000, 64000, 32000)),
        (PENDING, "", (64000, 64000, 32000)),
    ],
    ids=["refused for good", "waits for room", "done", "no node"],
)
def test_a_pod_whose_resize_kubelet_refused_for_good_counts_with_what_it_has(
    resize: dict[str, str], node: str, counts: tuple[int, int, int]
) -> None:
    """As for kube-scheduler and kubelet.  The whole node seemed to be in use, for as long as the pod ran."""
    asks = {"requests": {"cpu": "64", "nvidia.com/gpu": "1"}, "limits": {"cpu": "64"}}
    pod = read(
        status={
            "conditions": [resize],
            "containerStatuses": [
                {"name": "main", "allocatedResources": {"cpu": "1"}, "resources": {"limits": {"cpu": "2"}}},
                {"name": "new"},
            ],
            "initContainerStatuses": [{"name": "proxy", "resources": {"requests": {"cpu": "500m"}}}],
        },
        nodeName=node,
        containers=[{"name": "main", "resources": asks}, {"name": "new", "resources": {"requests": {"cpu": "3"}}}],
        initContainers=[{"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "32"}}}],
    )
    (main, new), [proxy] = pod.containers, pod.init_containers
    assert (main.requests["cpu"], main.limits["cpu"], proxy.requests["cpu"]) == counts
    assert (main.requests["nvidia.com/gpu"], new.requests) == (1, {"cpu": 3000})


PULLS = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no\nsuch image"}}}
TURN = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
BOUND = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T05:00:00Z"}


@pytest.mark.parametrize(
    ("init", "main", "waits", "since"),
    [
        ([], PULLS, "container main: ImagePullBackOff, no such image", 1_795_237_200.0),
        ([], TURN, "", None),
        ([], {"name": "main", "state": {"running": {"startedAt": "2026-11-21T05:00:09Z"}}}, "", None),
        ([{"name": "setup", "state": {"running": {}}}], TURN, "", None),
        ([TURN | {"name": "setup"}], TURN, "container setup: PodInitializing", None),  # a volume, a secret, the network
        ([{"name": "proxy", "state": {"running": {}}}], PULLS, "container main: ImagePullBackOff, no such image", None),
        (
            [{"name": "setup", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
            TURN,
            "container setup: CrashLoopBackOff",
            1_795_237_200.0,
        ),
        (
            [ended("setup", 0, finishedAt="2026-11-21T06:00:00Z")],
            TURN,
            "container main: PodInitializing",  # its image, of as many gigabytes as it has
            1_795_240_800.0,
        ),
        (
            [ended("setup", 0, finishedAt="2026-11-21T06:00:00Z")],
            PULLS,
            "container main: ImagePullBackOff, no such image",
            1_795_240_800.0,
        ),
    ],
    ids=[
        "image",
        "in turn",
        "runs",
        "initialises",
        "nothing came yet",
        "beside a sidecar",
        "init fails",
        "pulls after a long init",
        "after a long init",
    ],
)
def test_the_reason_why_a_bound_pod_does_not_start_is_that_of_its_kubelet(
    init: list[dict[str, Any]], main: dict[str, Any], waits: str, since: float | None
) -> None:
    status = {
        "phase": "Pending",
        "startTime": "2026-11-21T05:00:01Z",
        "conditions": [BOUND],
        "containerStatuses": [main],
        "initContainerStatuses": init,
    }
    pod = read(None, status, initContainers=[{"name": "proxy", "restartPolicy": "Always"}, {"name": "setup"}])
    assert pod.waits == waits
    assert since is None or pod.waits_since == since
    assert (pod.bound_at, pod.started) == (1_795_237_200.0, 1_795_237_201.0)


RUNS = {"name": "other", "state": {"running": {"startedAt": "2026-11-21T05:00:09Z"}}}


@pytest.mark.parametrize(("other", "in_part"), [([], False), ([RUNS], True), ([ended("other", 0)], False)])
def test_while_a_container_does_not_start_others_may_run(other: list[dict[str, Any]], in_part: bool) -> None:
    """Kubelet reports a pod as Pending until each of its containers has started."""
    pod = read(None, {"phase": "Pending", "containerStatuses": [PULLS, *other]})
    assert (pod.waits, pod.runs_in_part) == ("container main: ImagePullBackOff, no such image", in_part)


COLLECTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}


@pytest.mark.parametrize(
    ("phase", "condition", "container", "outlives"),
    [
        ("Failed", COLLECTED, RUNS, True),
        ("Failed", COLLECTED, ended("main", 1), False),
        ("Failed", COLLECTED | {"reason": "TerminationByKubelet"}, RUNS, False),
        ("Running", COLLECTED, RUNS, False),
    ],
    ids=["its node is gone", "kubelet had ended it", "kubelet ends it", "it runs"],
)
def test_containers_may_outlive_the_phase_of_a_pod_whose_node_is_gone(
    phase: str, condition: dict[str, str], container: dict[str, Any], outlives: bool
) -> None:
    pod = read(None, {"phase": phase, "conditions": [condition], "containerStatuses": [container]})
    assert pod.outlives_phase is outlives


@pytest.mark.parametrize(
    ("state", "last", "crashes"),
    [
        ({"running": {}}, {"terminated": {"exitCode": 1, "reason": "Error"}}, ""),
        (
            {"waiting": {"reason": "CrashLoopBackOff"}},
            {"terminated": {"exitCode": 1, "reason": "Error"}},
            "container main, which ended with exit code 1 (Error)",
        ),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, {}, "container main"),
    ],
    ids=["between two", "waits for the next start", "kubelet has forgotten how"],
)
def test_a_container_that_restarts_again_and_again_is_reported_with_its_last_end(
    state: dict[str, Any], last: dict[str, Any], crashes: str
) -> None:
    pod = read(None, {"phase": "Running", "containerStatuses": [{"name": "main", "state": state, "lastState": last}]})
    assert pod.crashes == crashes
    assert pod.waits == ""


def test_a_sidecar_that_restarts_again_and_again_is_reported_too() -> None:
    crashes = {"waiting": {"reason": "CrashLoopBackOff"}}
    main = {"name": "main", "state": {"running": {}}}
    statuses = {"initContainerStatuses": [{"name": "proxy", "state": crashes}], "containerStatuses": [main]}
    assert read(None, {"phase": "Running", **statuses}).crashes == "container proxy"


def test_grace_is_the_pods_own_until_it_is_being_deleted() -> None:
    assert read(terminationGracePeriodSeconds=0).grace_s == 0
    assert read(terminationGracePeriodSeconds=77).grace_s == 77
    deleting = {"deletionTimestamp": "2026-11-21T05:00:05Z", "deletionGracePeriodSeconds": 5}
    pod = read(deleting, terminationGracePeriodSeconds=77)
    assert (pod.deleting_at, pod.grace_s) == (1_795_237_205.0, 5)


@pytest.mark.parametrize("negative", [-1, -30, -(10**12)])
def test_a_negative_grace_is_one_second(negative: int) -> None:
    assert read(terminationGracePeriodSeconds=negative).grace_s == 1
    deleting = {"deletionTimestamp": "2026-11-21T05:00:05Z"}
    assert read(deleting, terminationGracePeriodSeconds=negative).grace_s == 1
    assert read({**deleting, "deletionGracePeriodSeconds": negative}, terminationGracePeriodSeconds=77).grace_s == 1


@pytest.mark.parametrize(
    ("grace_s", "refused"),
    [
        (3600, ()),
        (86_400, ()),
        (86_401, ("terminationGracePeriodSeconds 86401 (at most 86400)",)),
    ],
)
def test_a_pod_with_a_grace_of_more_than_a_day_is_refused(grace_s: int, refused: tuple[str, ...]) -> None:
    assert read(terminationGracePeriodSeconds=grace_s).refused_fields == refused
    deleting = {"deletionTimestamp": "2026-11-21T05:00:05Z", "deletionGracePeriodSeconds": 10**9}
    assert read(deleting, terminationGracePeriodSeconds=30).refused_fields == (), "whoever deletes it chooses that"


def test_amounts_are_rounded_up_and_sidecars_are_distinguished() -> None:
    pod = read(
        containers=[
            {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "1.5"}, "limits": {"x.com/gpu": "1"}}}
        ],
        initContainers=[{"name": "proxy", "restartPolicy": "Always"}, {"name": "setup", "resources": {}}],
        overhead={"cpu": "250m"},
        resources={"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}},
    )
    assert pod.containers == (Container("main", {"cpu": 100, "memory": 2}, {"x.com/gpu": 1}),)
    assert pod.init_containers == (Container("proxy", sidecar=True), Container("setup"))
    assert pod.overhead == {"cpu": 250}
    assert (pod.pod_requests, pod.pod_limits) == ({"cpu": 2000}, {"memory": 2**30})


def test_an_amount_that_cannot_be_read_refuses_the_pod_and_no_other() -> None:
    bad = {
        "metadata": {"name": "bad"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1e99"}}}]},
    }
    good = {"metadata": {"name": "good"}, "spec": {}}
    page = PODS.page(json.dumps({"metadata": {"resourceVersion": "7"}, "items": [bad, good]}).encode())
    pods, undecoded = PODS.items(page)
    assert [pod.name for pod in pods] == ["bad", "good"]
    assert undecoded == []
    assert (page.metadata.resource_version, page.metadata.continue_) == ("7", "")
    assert pods[0].refused_fields == ('limits of container c: "1e99" has an exponent beyond 24',)
    assert pods[1].refused_fields == ()


def test_the_nodes_where_a_pod_may_run_are_read() -> None:
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x9"]}]},
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
        }
    }
    pod = read(
        affinity=affinity,
        nodeSelector={"zone": "a"},
        tolerations=[
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            {"operator": "Exists"},
            {"key": "k", "value": "v"},
        ],
    )
    assert pod.node_affinity == (
        NodeTerm((Requirement("disk", "In", ("ssd", "nvme")),)),
        NodeTerm((), (Requirement("metadata.name", "NotIn", ("x9",)),)),
    )
    assert pod.node_selector == {"zone": "a"}
    assert pod.tolerations == (
        Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute"),
        Toleration("", "Exists"),
        Toleration("k", "Equal", "v"),
    )
    assert pod.refused_fields == ()


def test_the_host_ports_and_the_claims_of_a_pod_are_read() -> None:
    pod = read(
        containers=[
            {"name": "c", "ports": [{"containerPort": 80}, {"hostPort": 8080, "protocol": "UDP", "hostIP": "::1"}]}
        ],
        volumes=[
            {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "e", "emptyDir": {}},
        ],
    )
    assert pod.host_ports == (HostPort(8080, "UDP", "::1"),)
    assert pod.claims == ("data", "a-scratch")
    assert pod.refused_fields == ()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims (dynamic resource allocation)"),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}}},
            'required pod affinity on "z" (only kubernetes.io/hostname)',
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}}
                        ]
                    }
                }
            },
            "required pod anti-affinity by namespaceSelector or matchLabelKeys",
        ),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints with DoNotSchedule",
        ),
    ],
)
def test_a_demand_that_is_not_honoured_is_named(spec: dict[str, Any], words: str) -> None:
    assert read(**spec).refused_fields == (words,)


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
    ],
)
def test_a_preference_refuses_nothing(spec: dict[str, Any]) -> None:
    assert read(**spec).refused_fields == ()


def test_terms_on_hostname_are_read_with_their_selectors_and_namespaces() -> None:
    selector = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}
    here = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    there = {**here, "namespaces": ["x", "y"]}
    nobody = {"topologyKey": "kubernetes.io/hostname"}
    needs = "requiredDuringSchedulingIgnoredDuringExecution"
    pod = read(affinity={"podAntiAffinity": {needs: [here, nobody]}, "podAffinity": {needs: [there]}})
    said = (Requirement("app", "In", ("a",)), Requirement("tier", "Exists"))
    assert pod.anti_affinity == (PodTerm(said, frozenset({pod.namespace})),)
    assert pod.affinity == (PodTerm(said, frozenset({"x", "y"})),)
    assert pod.refused_fields == ()


def test_required_affinity_without_a_selector_is_refused_because_it_selects_no_pod() -> None:
    term = {"topologyKey": "kubernetes.io/hostname"}
    pod = read(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    assert pod.refused_fields == ("required pod affinity without labelSelector",)


def test_the_conditions_that_matter_are_read() -> None:
    pod = read(
        status={
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "SlurmJobPending", "message": "Waiting."},
                {"type": "DisruptionTarget", "status": "True"},
                {"type": "Ready", "status": "False"},
            ],
        }
    )
    assert pod.phase is PodPhase.RUNNING
    assert pod.scheduled == Condition(False, "SlurmJobPending", "Waiting.")
    assert pod.disrupted
    assert not read(status={"conditions": [{"type": "DisruptionTarget", "status": "False"}]}).disrupted


@pytest.mark.parametrize(
    ("statuses", "code", "reason"),
    [
        ([], None, ""),
        ([{"name": "c", "state": {"running": {}}}], None, ""),
        ([{"name": "c"}], None, ""),
        ([ended("c", 0, "Completed")], 0, "Completed"),
        ([ended("c", 3, "Error"), ended("d", 0, "Completed")], 3, "Error"),
        ([ended("c", 137, "OOMKilled"), ended("d", 1, "Error")], 137, "OOMKilled"),
        ([ended("c", 0, "Error", signal=9)], 137, "Error"),
    ],
)
def test_the_end_is_that_of_the_worst_container(statuses: list[dict[str, Any]], code: int | None, reason: str) -> None:
    pod = read(status={"containerStatuses": statuses})
    assert (pod.exit_code, pod.end_reason) == (code, reason)


def test_a_failed_init_container_is_the_end_but_a_sidecar_never_is() -> None:
    init = [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}]
    pod = read(
        initContainers=init,
        status={"initContainerStatuses": [ended("setup", 2, "Error"), ended("proxy", 137, "Error")]},
    )
    assert pod.exit_code == 2


def test_a_container_that_was_never_made_has_no_exit_code_whatever_its_kubelet_says_last() -> None:
    unknown = ended("c", 137, "ContainerStatusUnknown")
    status = {"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": [unknown]}
    assert (read(status=status).exit_code, read(status=status).end_reason) == (None, "DeadlineExceeded")
    unknown["containerID"] = "containerd://a9639951"
    assert read(status=status).exit_code == 137, "it ran, and its kubelet has lost it"


def test_the_reason_of_the_pod_comes_before_that_of_its_container() -> None:
    status = {"reason": "DeadlineExceeded", "containerStatuses": [ended("c", 137, "Error")]}
    assert read(status=status).end_reason == "DeadlineExceeded"


def test_a_phase_that_is_not_known_is_unknown() -> None:
    assert read(status={"phase": "Dreaming"}).phase is PodPhase.UNKNOWN


def test_resources_of_a_node_are_rounded_down_and_it_is_ready_only_with_a_true_condition() -> None:
    thing = {
        "metadata": {"name": "x1", "labels": {"zone": "a"}},
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "1500500u", "memory": "1.5", "pods": "110", "odd": "1e99"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    offered = {"cpu": 1500, "memory": 1, "pods": 110, "odd": 0}
    assert NODES.one(json.dumps(thing).encode()) == Node(
        "x1", {"zone": "a"}, True, True, (Taint("k", "", "NoSchedule"),), offered
    )
    for said in ([], [{"type": "Ready", "status": "Unknown"}], [{"type": "Ready", "status": "False"}]):
        node = NODES.one(json.dumps({"metadata": {"name": "x1"}, "status": {"conditions": said}}).encode())
        assert not node.ready
        assert not node.unschedulable


def test_a_node_is_silent_since_its_condition_became_unknown_and_not_while_it_is_false() -> None:
    for status, silent in (("Unknown", 1795237200.0), ("False", None), ("True", None)):
        said = [{"type": "Ready", "status": status, "lastTransitionTime": "2026-11-21T05:00:00Z"}]
        node = NODES.one(json.dumps({"metadata": {"name": "x1"}, "status": {"conditions": said}}).encode())
        assert node.kubelet_silent_since == silent


def test_a_namespace_is_name_uid_and_labels() -> None:
    thing = {"metadata": {"name": "hpc", "uid": "n-1", "labels": {"slurm-bridge/managed": "true"}}}
    assert NAMESPACES.one(json.dumps(thing).encode()) == Namespace("hpc", "n-1", {"slurm-bridge/managed": "true"})


def test_the_lines_of_a_watch_are_changes_bookmarks_and_failures() -> None:
    def line(kind: str, thing: dict[str, Any]) -> Any:
        return NAMESPACES.line(json.dumps({"type": kind, "object": thing}).encode())

    thing = {"metadata": {"name": "hpc", "uid": "n-1", "resourceVersion": "8"}}
    hpc = Namespace("hpc", "n-1")
    assert line("ADDED", thing) == line("MODIFIED", thing) == Changed(hpc, "8", gone=False)
    assert line("DELETED", thing) == Changed(hpc, "8", gone=True)
    assert line("BOOKMARK", {"metadata": {"resourceVersion": "9"}}) == Bookmark("9")
    assert line("ERROR", {"kind": "Status", "code": 410, "message": "too old"}) == Failed(410, "too old")


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"null", b"[]", b"{}", b"<html>", b'{"type":"ADDED"}', b'{"type":"ADDED","object":null}', b"\xff\xfe"),
        *(b'{"type":"ADDED","object":{"metadata":{}}}', b'{"type":"SUNG","object":{}}', b'{"type":"ADDED","object":{'),
        b'{"type":"ADDED","object":{"metadata":{"name":7},"spec":{}}}',
    ],
)
def test_a_line_that_is_not_an_event_is_a_contract_error(text: bytes) -> None:
    with pytest.raises(ContractError):
        PODS.line(text)


@pytest.mark.parametrize("text", [b"", b"{}", b"<html>", b'{"items":[]}', b'{"metadata":{},"items":{}}'])
def test_an_answer_that_is_not_a_list_is_a_contract_error(text: bytes) -> None:
    with pytest.raises(ContractError):
        PODS.items(PODS.page(text))


# --- what a tenant or a kubelet can write -----------------------------------------------------------------------------


def nested(depth: int) -> bytes:
    """A pod whose managedFields are that deep, as a list item; everything else of it is in order."""
    fields = b'{"f:a":' * depth + b"{}" + b"}" * depth
    meta = b'{"name":"deep","namespace":"hpc","uid":"u-1","resourceVersion":"5","managedFields":[{"manager":"x","fieldsV1":'
    return b'{"metadata":' + meta + fields + b'}]},"spec":{"nodeName":"x1"}}'


@pytest.mark.parametrize("depth", [900, 1_200, *([9_000, 9_990] if sys.version_info < (3, 12) else [])])
def test_managed_fields_of_any_depth_that_an_api_server_takes_do_not_harm_the_pod(depth: int) -> None:
    expected = Pod("u-1", "hpc", "deep", node="x1")
    assert PODS.one(nested(depth)) == expected
    assert PODS.line(b'{"type":"MODIFIED","object":' + nested(depth) + b"}") == Changed(expected, "5", gone=False)
    page = b'{"metadata":{"resourceVersion":"7"},"items":[' + nested(depth) + b',{"metadata":{"name":"b"},"spec":{}}]}'
    pods, undecoded = PODS.items(PODS.page(page))
    assert ([pod.name for pod in pods], undecoded) == (["deep", "b"], [])


def test_a_pod_that_is_nested_deeper_than_python_decodes_is_left_out_by_its_name_and_harms_no_other() -> None:
    """Python >= 3.12 decodes 1,500 or 10,000 levels, and an API server takes 10,000."""
    deep = nested(200_000)
    page = b'{"metadata":{"resourceVersion":"7"},"items":[' + deep + b',{"metadata":{"name":"b"},"spec":{}}]}'
    pods, undecoded = PODS.items(PODS.page(page))
    assert [pod.name for pod in pods] == ["b"]
    assert [(each.namespace, each.name, each.uid) for each in undecoded] == [("hpc", "deep", "u-1")]
    change = PODS.line(b'{"type":"MODIFIED","object":' + deep + b"}")
    assert isinstance(change, Undecodable)
    assert (change.object.name, change.version, change.gone) == ("deep", "5", False)


def test_the_recursion_limit_is_as_before_whether_a_deep_text_was_decoded_or_not() -> None:
    before = sys.getrecursionlimit()
    PODS.one(nested(1_200))
    with pytest.raises(ContractError, match="nested too deep"):
        PODS.one(nested(200_000))
    assert sys.getrecursionlimit() == before


def test_an_item_that_cannot_be_decoded_is_reported_with_its_name_and_harms_no_other() -> None:
    odd = {"metadata": {"name": "odd", "namespace": "hpc", "uid": "u-9", "labels": 7}, "spec": {}}
    page = {"metadata": {"resourceVersion": "7"}, "items": [odd, {"metadata": {"name": "b"}, "spec": {}}, 5]}
    pods, undecoded = PODS.items(PODS.page(json.dumps(page).encode()))
    assert [pod.name for pod in pods] == ["b"]
    assert [(each.namespace, each.name, each.uid) for each in undecoded] == [("hpc", "odd", "u-9"), ("", "", "")]
    assert undecoded[0].why == (
        "the answer does not match the API: Expected `object | null`, got `int` - at `$.metadata.labels`"
    )


def test_a_change_that_cannot_be_decoded_is_reported_with_its_name_and_version() -> None:
    meta = {"name": "odd", "namespace": "hpc", "uid": "u-9", "resourceVersion": "8", "labels": 7}
    for kind, gone in (("MODIFIED", False), ("DELETED", True)):
        change = PODS.line(json.dumps({"type": kind, "object": {"metadata": meta, "spec": {}}}).encode())
        assert isinstance(change, Undecodable)
        assert change.object == Undecoded("pod", "hpc", "odd", "u-9", change.object.why)
        assert (change.version, change.gone) == ("8", gone)


def test_the_first_bytes_of_a_line_that_is_too_long_identify_its_object() -> None:
    """What its annotations hold is not taken for its name, wherever the text was cut."""
    trap = json.dumps({"metadata": {"name": "victim", "namespace": "kube-system", "uid": "v"}})
    thing = {"metadata": {"annotations": {"a": trap, "b": trap}, "name": "odd", "namespace": "hpc", "uid": "u-9"}}
    line = json.dumps({"type": "MODIFIED", "object": thing}).encode()
    for length in range(len(line)):
        try:
            change = PODS.line(Cut(line[:length]))
        except ContractError:
            continue
        assert isinstance(change, Undecodable)
        assert change.object == Undecoded("pod", change.object.namespace, "odd", change.object.uid, change.object.why)
        assert change.object.why == "it is longer than 16 MiB"
        assert (change.object.namespace, change.object.uid) in (("", ""), ("hpc", ""), ("hpc", "u-9"))


@pytest.mark.parametrize(
    "time",
    [
        "0000-01-01T00:00:00Z",
        "-0001-12-31T10:00:00Z",
        "0001-01-01T00:00:00",
        "0001-01-01T00:00:00+14:00",
        "10000-01-01T13:59:59Z",
        "9999-12-31T23:59:59-14:00",
        "yesterday",
        "",
        "2026-13-01T00:00:00Z",
        "9" * 5000,
    ],
)
def test_a_time_that_no_cluster_means_is_none(time: str) -> None:
    conditions = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": time}]
    node = NODES.one(json.dumps({"metadata": {"name": "x1"}, "status": {"conditions": conditions}}).encode())
    assert (node.ready, node.kubelet_silent_since) == (False, None)
    scheduled = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": time}]
    pod = read({"creationTimestamp": time}, {"startTime": time, "conditions": scheduled})
    assert (pod.created, pod.started, pod.bound_at) == (0.0, None, None)


def test_times_with_an_offset_or_a_fraction_are_read() -> None:
    for time in ("2026-11-21T05:00:00Z", "2026-11-21T06:00:00+01:00", "2026-11-21T05:00:00.000000Z"):
        assert read({"creationTimestamp": time}).created == 1_795_237_200.0


# --- memory -----------------------------------------------------------------------------------------------------------


def test_only_annotations_that_are_read_are_kept() -> None:
    kept = {
        "slurm-bridge/partition": "main",
        "slurmjob.slinky.slurm.net/partition": "main",
        "leaderworkerset.sigs.k8s.io/size": "2",
        "kueue.x-k8s.io/pod-group-total-count": "2",
        "batch.kubernetes.io/job-completion-index": "1",
    }
    foreign = {
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "example.com/notes": "x",
        "slurm-bridges/x": "",
    }
    assert read({"annotations": kept | foreign}).annotations == kept


def test_a_value_longer_than_any_that_is_accepted_is_cut_and_still_refused() -> None:
    said = {"slurm-bridge/memory": "5" + " " * 250_000 + "G", "slurm-bridge/comment": "x" * 250_000}
    pod = read({"annotations": said})
    assert sum(map(len, pod.annotations.values())) < 4096
    for key, text in pod.annotations.items():
        refused = job_options(replace(pod, annotations={key: text}))
        assert isinstance(refused, Refusal)


def test_a_pod_with_more_labels_than_are_kept_is_refused_in_words_and_keeps_those_that_are_read() -> None:
    labels = {f"a{number}": "x" for number in range(5000)} | {
        "slurm-bridge/gang": "g",
        "kueue.x-k8s.io/pod-group-name": "k",
    }
    pod = read({"labels": labels})
    assert len(pod.labels) == 128
    assert pod.labels["slurm-bridge/gang"] == "g"
    assert pod.labels["kueue.x-k8s.io/pod-group-name"] == "k"
    assert pod.refused_fields == ("5,002 labels (at most 128 are read)",)


def test_a_thousand_objects_with_large_foreign_annotations_cost_little_memory() -> None:
    ref = OwnerRef("batch/v1", "Job", "a", "u")

    def thing(number: int) -> bytes:
        foreign = {"kubectl.kubernetes.io/last-applied-configuration": str(number) + "x" * 250_000}
        meta = {"name": f"a{number}", "uid": f"u{number}", "namespace": "hpc", "annotations": foreign}
        return json.dumps({"metadata": meta, "spec": {}}).encode()

    for one in (PODS.one, NODES.one, NAMESPACES.one, owner_codec(ref).one):
        tracemalloc.start()
        kept = [one(thing(number)) for number in range(1000)]
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(kept) == 1000
        assert size < 5 * 2**20


def test_a_container_that_needs_a_person_gives_the_reason_why_the_pod_does_not_start() -> None:
    slow = {"name": "model", "state": {"waiting": {"reason": "ContainerCreating"}}}
    bad = {"name": "main", "state": {"waiting": {"reason": "ErrImageNeverPull"}}}
    for statuses, waits in (
        ([slow], "container model: ContainerCreating"),
        ([slow, bad], "container main: ErrImageNeverPull"),
    ):
        assert read(None, {"phase": "Pending", "containerStatuses": statuses}).waits == waits
