"""The client's answers to "did it happen?" where the server cannot be made to give them; the rest is in the contract."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bridge.errors import (
    Conflict,
    ContractError,
    Exhausted,
    Invalid,
    RemoteError,
    Unanswered,
    Unauthorized,
    Unreachable,
)
from bridge.kube.client import EVENTS_REMEMBERED, KubeClient
from bridge.kube.transport import Reply
from scheduler.actions import BindPod, DeletePod, EvictPod, FailByDeadline
from scheduler.model.kubernetes import Claim, NodeTerm, OwnerRef, Requirement, Stage
from tests.unit.kube.fakes import FakeTransport, no, pod, reply

BIND = BindPod("key", "u-1", "hpc", "a", "x1", 4711, {"slurm-bridge/job-id": "4711"}, "granted")
EVICT = DeletePod("key", "u-1", "hpc", "a", "Slurm cancelled job 4711")
END = FailByDeadline("key", "u-1", "hpc", "a", "Slurm cancelled job 4711")
DONE = reply({"kind": "Status", "status": "Success", "code": 201}, 201)
POD = reply(pod())


def client(transport: FakeTransport) -> KubeClient:
    return KubeClient(transport, "slurm-bridge", lambda: 1_795_237_200.0)


async def test_a_bind_is_one_write_with_uid_and_annotations() -> None:
    far = FakeTransport(DONE)
    await client(far).bind(BIND)
    [(method, path, _, body)] = far.asked
    assert (method, path) == ("POST", "/api/v1/namespaces/hpc/pods/a/binding")
    assert body["metadata"] == {"name": "a", "uid": "u-1", "annotations": {"slurm-bridge/job-id": "4711"}}
    assert body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "x1"}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (no(500, "InternalError"), Unanswered),
        (Reply(504, {}, b"upstream request timeout"), Unanswered),
        (Reply(201, {}, b"<html>welcome</html>"), ContractError),
        (Reply(404, {}, b"404 page not found"), ContractError),
        (Reply(403, {}, b"<html>Forbidden by the gateway</html>"), ContractError),
        (no(429, "TooManyRequests"), Exhausted),
        (no(403, "Forbidden"), Unauthorized),
        (Unreachable("post", "Kubernetes", "no connection"), Unreachable),
        (Unanswered("post", "Kubernetes", "closed"), Unanswered),
    ],
)
async def test_a_failed_bind_raises_the_error_that_shows_its_outcome(
    answer: Reply | RemoteError, kind: type[RemoteError]
) -> None:
    with pytest.raises(kind) as failed:
        await client(FakeTransport(answer)).bind(BIND)
    assert type(failed.value) is kind
    assert failed.value.operation == "bind"


async def test_a_conflict_that_cannot_be_looked_into_is_unanswered() -> None:
    far = FakeTransport(no(409, "Conflict"), Unreachable("get", "Kubernetes", "no connection"))
    with pytest.raises(Unanswered):
        await client(far).bind(BIND)


async def test_a_conflict_with_a_namesake_on_the_same_node_is_a_conflict() -> None:
    far = FakeTransport(no(409, "Conflict", "already assigned"), reply(pod(uid="u-2", nodeName="x1")))
    with pytest.raises(Conflict, match="already assigned"):
        await client(far).bind(BIND)


async def test_a_bind_to_the_same_node_by_another_client_is_a_conflict() -> None:
    far = FakeTransport(no(409, "Conflict", "already assigned"), reply(pod(nodeName="x1")))
    with pytest.raises(Conflict, match="already assigned"):
        await client(far).bind(BIND)


async def test_an_eviction_without_a_grace_uses_the_grace_of_the_pod() -> None:
    far = FakeTransport(POD, POD)
    await client(far).delete_pod(EVICT)
    assert [asked[0] for asked in far.asked] == ["PATCH", "DELETE"]
    assert far.asked[1][3] == {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u-1"}}


async def test_an_eviction_with_a_grace_sends_it() -> None:
    far = FakeTransport(POD, POD)
    await client(far).delete_pod(dataclasses.replace(EVICT, grace_s=0))
    assert far.asked[1][3]["gracePeriodSeconds"] == 0


async def test_a_write_that_lost_against_others_is_no_proof_that_the_pod_is_gone() -> None:
    lost = no(409, "Conflict", "the object has been modified")
    with pytest.raises(Conflict, match="has been modified"):
        await client(FakeTransport(lost, POD)).delete_pod(EVICT)
    with pytest.raises(Conflict, match="has been modified"):
        await client(FakeTransport(POD, lost, POD)).delete_pod(EVICT)
    with pytest.raises(Conflict, match="has been modified"):
        await client(FakeTransport(POD, lost, POD)).fail_by_deadline(END)


async def test_a_404_of_another_program_does_not_confirm_an_eviction() -> None:
    with pytest.raises(ContractError):
        await client(FakeTransport(Reply(404, {}, b"not here"))).delete_pod(EVICT)


async def test_an_eviction_that_a_budget_refuses_may_be_asked_again() -> None:
    ask = EvictPod("key", "u-1", "hpc", "a", "the time limit is near")
    far = FakeTransport(no(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."))
    with pytest.raises(Exhausted, match="disruption budget"):
        await client(far).evict(ask)


@pytest.mark.parametrize(
    "read", [no(403, "Forbidden"), Unreachable("get", "Kubernetes", "no connection")], ids=["refused", "not sent"]
)
async def test_an_eviction_whose_answer_is_lost_is_unknown_even_if_the_pod_cannot_be_read(
    read: Reply | RemoteError,
) -> None:
    ask = EvictPod("key", "u-1", "hpc", "a", "the time limit is near")
    with pytest.raises(Unanswered, match="closed"):
        await client(FakeTransport(Unanswered("post", "Kubernetes", "closed"), read)).evict(ask)


async def test_a_deadline_that_the_server_refuses_is_reported() -> None:
    with pytest.raises(Invalid):
        await client(FakeTransport(POD, no(422, "Invalid"), POD)).fail_by_deadline(END)


async def test_a_disruption_condition_is_removed_if_the_server_refuses_the_end_for_good() -> None:
    far = FakeTransport(POD, no(403, "Forbidden", "may not delete pods"), POD)
    with pytest.raises(Unauthorized):
        await client(far).delete_pod(EVICT)
    assert [asked[0] for asked in far.asked] == ["PATCH", "DELETE", "PATCH"]
    said, taken_back = (far.asked[each][3]["status"]["conditions"][0] for each in (0, 2))
    assert (said["type"], said["status"]) == ("DisruptionTarget", "True")
    assert taken_back == {"type": "DisruptionTarget", "$patch": "delete"}


async def test_a_disruption_whose_answer_is_lost_stays_announced() -> None:
    far = FakeTransport(POD, Unanswered("delete", "Kubernetes", "no answer"))
    with pytest.raises(Unanswered):
        await client(far).delete_pod(EVICT)
    assert len(far.asked) == 2


async def test_a_403_of_another_program_is_no_word_about_the_owner() -> None:
    """Otherwise the pod would be scheduled without the account and the gang that its owner gives."""
    ref = OwnerRef("batch/v1", "Job", "train", "o-1")
    with pytest.raises(ContractError, match="not from a Kubernetes API server"):
        await client(FakeTransport(Reply(403, {}, b"<html>Forbidden by the gateway</html>"))).read_owner(ref, "hpc")


async def test_an_owner_that_the_bridge_may_not_read_is_none() -> None:
    ref = OwnerRef("apps/v1", "ReplicaSet", "web", "o-1")
    assert await client(FakeTransport(no(403, "Forbidden"))).read_owner(ref, "hpc") is None
    with pytest.raises(Unanswered):
        await client(FakeTransport(no(500, "InternalError"))).read_owner(ref, "hpc")


async def test_an_owner_is_not_taken_for_absent_while_the_credentials_are_not_accepted() -> None:
    """Without the annotations of its owner, a pod would be submitted with other options than its user wrote."""
    ref = OwnerRef("apps/v1", "ReplicaSet", "web", "o-1")
    with pytest.raises(Unauthorized):
        await client(FakeTransport(no(401, "Unauthorized"))).read_owner(ref, "hpc")


@pytest.mark.parametrize(
    ("ref", "path", "spec", "status", "members"),
    [
        (OwnerRef("batch/v1", "Job", "a", "o-1"), "batch/v1/namespaces/hpc/jobs/a", {"parallelism": 8}, {}, 8),
        (
            OwnerRef("batch/v1", "Job", "a", "o-1"),
            "batch/v1/namespaces/hpc/jobs/a",
            {"parallelism": 8, "completions": 8},
            {"succeeded": 3},
            5,
        ),
        (
            OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "a", "o-1"),
            "jobset.x-k8s.io/v1alpha2/namespaces/hpc/jobsets/a",
            {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 3}}}, {"template": {"spec": {}}}]},
            {},
            7,
        ),
        (
            OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "a", "o-1"),
            "jobset.x-k8s.io/v1alpha2/namespaces/hpc/jobsets/a",
            {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 1}}}]},
            {},
            2,
        ),
        (
            OwnerRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", "a", "scheduling.x-k8s.io/v1alpha1/hpc/a"),
            "scheduling.x-k8s.io/v1alpha1/namespaces/hpc/podgroups/a",
            {"minMember": 4},
            {},
            4,
        ),
        (
            OwnerRef("scheduling.k8s.io/v1alpha2", "PodGroup", "a", "scheduling.k8s.io/v1alpha2/hpc/a"),
            "scheduling.k8s.io/v1alpha2/namespaces/hpc/podgroups/a",
            {"schedulingPolicy": {"gang": {"minCount": 6}}},
            {},
            6,
        ),
        (
            OwnerRef("scheduling.k8s.io/v1alpha2", "PodGroup", "a", "scheduling.k8s.io/v1alpha2/hpc/a"),
            "scheduling.k8s.io/v1alpha2/namespaces/hpc/podgroups/a",
            {"schedulingPolicy": {"basic": {}}},
            {},
            1,
        ),
        (OwnerRef("apps/v1", "ReplicaSet", "a", "o-1"), "apps/v1/namespaces/hpc/replicasets/a", {}, {}, None),
    ],
)
async def test_the_number_of_pods_is_read_from_the_object_that_makes_them(
    ref: OwnerRef, path: str, spec: dict[str, Any], status: dict[str, Any], members: int | None
) -> None:
    far = FakeTransport(reply({"metadata": {"name": "a", "uid": "o-1"}, "spec": spec, "status": status}))
    owner = await client(far).read_owner(ref, "hpc")
    assert owner is not None
    assert (owner.members, far.asked[0][1]) == (members, f"/apis/{path}")


async def test_a_group_of_a_kind_that_this_cluster_does_not_serve_is_none() -> None:
    ref = OwnerRef("scheduling.x-k8s.io/v1alpha1", "PodGroup", "a", "scheduling.x-k8s.io/v1alpha1/hpc/a")
    assert await client(FakeTransport(Reply(404, {}, b"404 page not found"))).read_owner(ref, "hpc") is None


async def test_a_name_from_elsewhere_cannot_leave_its_place_in_the_path() -> None:
    far = FakeTransport(no(404, "NotFound", name="x"))
    await client(far).read_owner(OwnerRef("apps/v1", "ReplicaSet", "../../secrets/x?y", "o-1"), "hpc")
    assert far.asked[0][1] == "/apis/apps/v1/namespaces/hpc/replicasets/..%2F..%2Fsecrets%2Fx%3Fy"


async def test_every_call_is_reported_with_its_outcome() -> None:
    told: list[tuple[str, str]] = []
    far = FakeTransport(DONE, no(403, "Forbidden"), Unreachable("get", "Kubernetes", "no connection"))
    made = client(far)
    made.on_call = lambda operation, _seconds, outcome: told.append((operation, outcome))
    await made.bind(BIND)
    for _ in range(2):
        with pytest.raises(RemoteError):
            await made.read_pod("hpc", "a")
    assert told == [("bind", "ok"), ("read pod", "unauthorized"), ("read pod", "unreachable")]


async def test_the_memory_for_events_is_bounded() -> None:
    far = FakeTransport()
    made = client(far)
    for number in range(EVENTS_REMEMBERED + 10):
        far.answers.append(DONE)
        await made.post_event("hpc", "a", "u-1", "SlurmJobPending", f"Waiting, number {number}.", 5.0)
    assert len(made._events) == EVENTS_REMEMBERED
    assert far.answers == []


async def test_the_name_of_an_event_is_valid_wherever_the_name_of_the_pod_is_cut() -> None:
    far = FakeTransport(DONE)
    await client(far).post_event("hpc", "a" * 199 + "-" + "b" * 20, "u-1", "SlurmJobPending", "Waiting.", 5.0)
    name = far.asked[0][3]["metadata"]["name"]
    assert all(part and not part.startswith("-") and not part.endswith("-") for part in name.split("."))


async def test_a_long_event_is_cut_and_keeps_its_name() -> None:
    far = FakeTransport(DONE, POD)
    made = client(far)
    for _ in range(2):
        await made.post_event("hpc", "a" * 253, "u-1", "SlurmJobPending", "x" * 5000, 5.0)
    (_, _, _, posted), (method, _, _, counted) = far.asked
    assert len(posted["message"]) == 1024
    assert len(posted["metadata"]["name"]) <= 253
    assert (method, counted["count"]) == ("PATCH", 2)


JOBSET = OwnerRef("jobset.x-k8s.io/v1alpha2", "JobSet", "a", "o-1")
COMPLETE = [{"name": "data", "status": "Complete"}, {"name": "model", "status": "Complete"}]


@pytest.mark.parametrize(
    ("spec", "stages"),
    [
        (
            {
                "replicatedJobs": [
                    {"name": "data"},
                    {"name": "model", "replicas": 2},
                    {"name": "node", "template": {"spec": {"parallelism": 4}}, "dependsOn": COMPLETE},
                    {"name": "watch", "dependsOn": COMPLETE[::-1]},
                ]
            },
            (Stage("data", ("data", "model"), 3), Stage("node", ("node", "watch"), 5)),
        ),
        (
            {
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
                "replicatedJobs": [{"name": "driver"}, {"name": "worker", "replicas": 3}],
            },
            (Stage("driver", ("driver",), 1), Stage("worker", ("worker",), 3)),
        ),
        ({"startupPolicy": {"startupPolicyOrder": "AnyOrder"}, "replicatedJobs": [{"name": "a"}, {"name": "b"}]}, ()),
        ({"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": [{"name": "a"}]}, ()),
    ],
    ids=["dependsOn", "in order", "any order", "one alone"],
)
async def test_which_jobs_of_a_job_set_are_made_together(spec: dict[str, Any], stages: tuple[Stage, ...]) -> None:
    far = FakeTransport(reply({"metadata": {"name": "a", "uid": "o-1"}, "spec": spec}))
    owner = await client(far).read_owner(JOBSET, "hpc")
    assert owner is not None
    assert owner.stages == stages


async def test_the_startup_policy_of_a_leader_worker_set_is_a_word() -> None:
    ref = OwnerRef("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "a", "o-1")
    far = FakeTransport(reply({"metadata": {"name": "a", "uid": "o-1"}, "spec": {"startupPolicy": "LeaderReady"}}))
    owner = await client(far).read_owner(ref, "hpc")
    assert owner is not None
    assert owner.stages == ()


# --- rights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [no(403, "Forbidden"), no(401, "Unauthorized")], ids=["403", "401"])
@pytest.mark.parametrize("namespace", ["hpc", "a%2Fb"])
async def test_a_request_that_lacks_a_right_is_reported_with_its_namespace(namespace: str, refusal: Reply) -> None:
    told: list[str] = []
    asks = dataclasses.replace(client(FakeTransport(refusal)), on_forbidden=told.append)
    with pytest.raises(Unauthorized):
        await asks.read_pod(namespace, "a")
    assert told == [namespace]


async def test_a_missing_right_for_an_object_without_a_namespace_is_reported_without_one_and_other_refusals_are_not() -> (
    None
):
    told: list[str] = []
    answers = no(403, "Forbidden"), no(403, "Forbidden"), no(409, "Conflict")
    asks = dataclasses.replace(client(FakeTransport(*answers)), on_forbidden=told.append)
    for _ in range(2):
        with pytest.raises(Unauthorized):
            await asks.taint_node("x1", "u-1")
    with pytest.raises(Conflict):
        await asks.read_pod("hpc", "a")
    assert told == ["", ""]


@pytest.mark.parametrize(
    ("allowed", "affinity"),
    [
        (None, None),
        ([], None),
        (
            [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}, {"key": "rack", "values": ["1"]}]}, {}],
            (NodeTerm((Requirement("zone", "In", ("a", "b")), Requirement("rack", "In", ("1",)))), NodeTerm()),
        ),
    ],
)
async def test_a_volume_that_is_still_to_be_made_may_be_used_where_its_storage_class_makes_it(
    allowed: list[dict[str, Any]] | None, affinity: tuple[NodeTerm, ...] | None
) -> None:
    """F1: a node elsewhere was granted again and again, and no volume was ever made there."""
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "zonal"}, "status": {"phase": "Pending"}}
    zonal = {"provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer"}
    far = FakeTransport(reply(claim), reply(zonal | ({} if allowed is None else {"allowedTopologies": allowed})))
    [read] = await client(far).read_claims("hpc", ["data"])
    assert read == Claim("data", bound=False, affinity=affinity, waits=True)


@pytest.mark.parametrize(
    ("modes", "one_pod"), [(["ReadWriteOncePod"], True), (["ReadWriteOnce"], False), (None, False)]
)
async def test_a_claim_shows_if_only_one_pod_at_a_time_may_use_it(modes: list[str] | None, one_pod: bool) -> None:
    spec = {"storageClassName": "fast", "accessModes": modes}
    unbound = {"metadata": {"name": "data"}, "spec": spec, "status": {"phase": "Pending"}}
    bound = {"metadata": {"name": "data"}, "spec": spec | {"volumeName": "v"}, "status": {"phase": "Bound"}}
    fast = {"provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer"}
    for claim, behind in ((unbound, fast), (bound, {"metadata": {"name": "v"}})):
        [read] = await client(FakeTransport(reply(claim), reply(behind))).read_claims("hpc", ["data"])
        assert read.one_pod == one_pod
