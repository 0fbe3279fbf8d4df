"""Writes on a pod: changes that are allowed, deletion, conditions and events (Kubernetes facts 2)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from bridge.errors import Conflict, Invalid, NotFound
from bridge.kube.client import KubeClient
from bridge.kube.responses import judged
from bridge.kube.transport import Call
from scheduler import names
from scheduler.actions import (
    BindPod,
    DeletePod,
    EvictPod,
    FailByDeadline,
    SetDeadline,
    SetJobCondition,
    SetPodCondition,
)
from scheduler.model.kubernetes import Condition, Pod
from tests.contract.kube_subjects import MERGE, STRATEGIC, Kube, every_kube  # noqa: F401 -- fixtures

ANOTHER = "00000000-0000-4000-8000-00000000dead"


def evict(pod: Pod, uid: str = "", grace_s: int | None = None) -> DeletePod:
    return DeletePod("key", uid or pod.uid, pod.namespace, pod.name, "Slurm cancelled job 4711", grace_s)


def deadline(pod: Pod, uid: str = "") -> FailByDeadline:
    return FailByDeadline("key", uid or pod.uid, pod.namespace, pod.name, "Slurm cancelled job 4711")


async def conditions(kube: Kube, name: str) -> dict[str, Any]:
    _, pod = await kube.raw("GET", kube.path(name))
    return {condition["type"]: condition for condition in pod["status"].get("conditions") or []}


def waits(pod: Pod, message: str = "Waiting.") -> SetPodCondition:
    return SetPodCondition("key", pod.uid, pod.namespace, pod.name, "SlurmJobPending", message)


# --- conditions ---


async def test_a_condition_says_why_the_pod_waits_and_leaves_others_alone(kube: Kube) -> None:
    pod = await kube.pod("a")
    other = {"type": "example.com/ready", "status": "True", "lastTransitionTime": "2026-11-21T05:00:00Z"}
    await kube.raw("PATCH", f"{kube.path('a')}/status", {"status": {"conditions": [other]}}, STRATEGIC)

    await kube.client.set_condition(waits(pod, "Waiting (Priority)."))
    await kube.client.set_condition(waits(pod, "Waiting (Resources)."))

    assert (await kube.read("a")).scheduled == Condition(False, "SlurmJobPending", "Waiting (Resources).")
    assert (await conditions(kube, "a")).keys() == {"PodScheduled", "example.com/ready"}


async def test_a_condition_is_never_written_on_a_namesake(kube: Kube) -> None:
    pod = await kube.pod("a")
    with pytest.raises(Conflict):
        await kube.client.set_condition(replace(waits(pod), uid=ANOTHER))
    assert (await kube.read("a")).scheduled is None


async def test_a_condition_that_comes_after_the_bind_is_refused(kube: Kube) -> None:
    """It was decided about the pod as it was before: a write of another client, as the bind, changes its version."""
    pod = await kube.pod("a")
    late = replace(waits(pod), version=pod.version)
    await kube.client.bind(BindPod("key", pod.uid, pod.namespace, "a", "contract-n1", 7, {}, "granted"))
    with pytest.raises(Conflict):
        await kube.client.set_condition(late)
    assert (await kube.read("a")).scheduled == Condition(True)


async def test_a_condition_is_written_on_the_version_of_the_pod_that_the_last_condition_made(kube: Kube) -> None:
    pod = await kube.pod("a")
    await kube.client.set_condition(replace(waits(pod), version=pod.version))
    changed = await kube.read("a")
    assert changed.version != pod.version
    await kube.client.set_condition(replace(waits(pod, "Waiting (Resources)."), version=changed.version))
    assert (await kube.read("a")).scheduled == Condition(False, "SlurmJobPending", "Waiting (Resources).")


async def test_a_condition_for_a_pod_that_is_gone_is_not_found(kube: Kube) -> None:
    with pytest.raises(NotFound):
        await kube.client.set_condition(waits(Pod(ANOTHER, kube.namespace, "a")))


# --- the end of a pod ---


async def test_an_eviction_says_why_and_deletes_with_the_grace_of_the_pod(kube: Kube) -> None:
    pod = await kube.pod("a", terminationGracePeriodSeconds=77)
    await kube.bind("a", "contract-n1")

    await kube.client.delete_pod(evict(pod))

    evicted = await kube.read("a")
    assert evicted.disrupted
    assert evicted.deleting_at is not None
    assert evicted.grace_s == 77
    said = (await conditions(kube, "a"))["DisruptionTarget"]
    assert (said["status"], said["reason"], said["message"]) == ("True", "SlurmJobEnded", "Slurm cancelled job 4711")


async def test_an_eviction_can_shorten_the_grace_but_never_lengthen_it(kube: Kube) -> None:
    pod = await kube.pod("a", terminationGracePeriodSeconds=77)
    await kube.bind("a", "contract-n1")
    await kube.client.delete_pod(evict(pod, grace_s=20))
    assert (await kube.read("a")).grace_s == 20
    await kube.client.delete_pod(evict(pod, grace_s=60))
    assert (await kube.read("a")).grace_s == 20


async def test_an_eviction_never_hits_a_namesake(kube: Kube) -> None:
    pod = await kube.pod("a")
    await kube.client.delete_pod(evict(pod, uid=ANOTHER))
    untouched = await kube.read("a")
    assert untouched.deleting_at is None
    assert not untouched.disrupted


async def test_evicting_a_pod_that_is_gone_succeeds(kube: Kube) -> None:
    pod = await kube.pod("a")
    await kube.raw("DELETE", kube.path("a"))
    await kube.client.delete_pod(evict(pod))
    await kube.client.fail_by_deadline(deadline(pod))
    assert await kube.client.read_pod(kube.namespace, "a") is None


async def test_a_pod_that_is_on_no_node_is_deleted_at_once(kube: Kube) -> None:
    pod = await kube.pod("a", terminationGracePeriodSeconds=77)
    await kube.client.delete_pod(evict(pod))
    assert await kube.client.read_pod(kube.namespace, "a") is None


async def test_a_pod_that_has_ended_is_deleted_at_once(kube: Kube) -> None:
    pod = await kube.pod("a", terminationGracePeriodSeconds=77)
    await kube.bind("a", "contract-n1")
    await kube.end("a", "Succeeded")
    await kube.client.delete_pod(evict(pod))
    assert await kube.client.read_pod(kube.namespace, "a") is None


async def test_a_deletion_with_another_uid_is_a_conflict(kube: Kube) -> None:
    await kube.pod("a")
    status, said = await kube.raw("DELETE", kube.path("a"), {"preconditions": {"uid": ANOTHER}})
    assert (status, said["reason"]) == (409, "Conflict")
    assert (await kube.read("a")).deleting_at is None


async def test_a_deadline_ends_the_pod_and_can_only_be_shortened(kube: Kube) -> None:
    pod = await kube.pod("a", activeDeadlineSeconds=600)
    await kube.bind("a", "contract-n1")

    await kube.client.fail_by_deadline(deadline(pod))

    ending = await kube.read("a")
    assert ending.active_deadline_s == 1
    assert ending.disrupted
    status, said = await kube.raw("PATCH", kube.path("a"), {"spec": {"activeDeadlineSeconds": 30}}, MERGE)
    assert (status, said["reason"]) == (422, "Invalid")
    await kube.client.fail_by_deadline(deadline(pod))


async def test_a_deadline_is_never_written_on_a_namesake(kube: Kube) -> None:
    pod = await kube.pod("a")
    await kube.client.fail_by_deadline(deadline(pod, uid=ANOTHER))
    assert (await kube.read("a")).active_deadline_s is None


async def test_the_eviction_api_marks_the_pod_as_disrupted(kube: Kube) -> None:
    await kube.pod("a")
    await kube.bind("a", "contract-n1")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    await kube.make(f"{kube.path('a')}/eviction", eviction)
    evicted = await kube.read("a")
    assert evicted.disrupted
    assert evicted.deleting_at is not None


async def test_a_deadline_of_the_bridge_is_distinguished_from_one_of_the_user(kube: Kube) -> None:
    pod = await kube.pod("a", activeDeadlineSeconds=600)
    client = KubeClient(kube.transport, kube.scheduler, time.time)
    assert (pod.active_deadline_s, pod.set_deadline_s) == (600, None)

    await client.set_deadline(SetDeadline("key", pod.uid, pod.namespace, pod.name, 500, "the time limit is near"))

    handed = await kube.read("a")
    assert (handed.active_deadline_s, handed.set_deadline_s, handed.disrupted) == (None, 500, False)
    with pytest.raises(Invalid):
        await client.set_deadline(SetDeadline("key", pod.uid, pod.namespace, pod.name, 550, "it was put off"))


async def test_another_job_is_written_on_a_bound_pod_and_not_on_a_namesake(kube: Kube) -> None:
    pod = await kube.pod("a")
    await kube.bind("a", "contract-n1")
    client = KubeClient(kube.transport, kube.scheduler, time.time)
    await client.write_annotations(pod.namespace, pod.name, pod.uid, {names.JOB_ID: "30", names.JOB_GPUS: ""})
    shown = (await kube.read("a")).annotations
    assert (shown[names.JOB_ID], shown[names.JOB_GPUS]) == ("30", "")
    with pytest.raises(Conflict):
        await client.write_annotations(pod.namespace, pod.name, ANOTHER, {names.JOB_ID: "31"})
    await client.write_annotations(pod.namespace, pod.name, pod.uid, {names.JOB_ID: "30", names.JOB_GPUS: None})
    shown = (await kube.read("a")).annotations
    assert (shown[names.JOB_ID], names.JOB_GPUS in shown) == ("30", False)


async def test_an_end_that_counts_as_a_failure_is_no_disruption(kube: Kube) -> None:
    pod = await kube.pod("a")
    end = FailByDeadline("key", pod.uid, pod.namespace, pod.name, "Slurm job 17 ended: TIMEOUT", counts=True)
    await KubeClient(kube.transport, kube.scheduler, time.time).fail_by_deadline(end)
    ending = await kube.read("a")
    assert (ending.set_deadline_s, ending.disrupted) == (1, False)


async def test_an_eviction_by_the_api_never_hits_a_namesake(kube: Kube) -> None:
    pod = await kube.pod("a", terminationGracePeriodSeconds=77)
    await kube.bind("a", "contract-n1")
    await kube.client.evict(EvictPod("key", ANOTHER, pod.namespace, pod.name, "the time limit is near"))
    assert (await kube.read("a")).deleting_at is None
    await kube.client.evict(EvictPod("key", pod.uid, pod.namespace, pod.name, "the time limit is near"))
    evicted = await kube.read("a")
    assert (evicted.disrupted, evicted.grace_s) == (True, 77)
    assert evicted.deleting_at is not None


async def test_the_condition_about_the_job_of_a_bound_pod_leaves_that_about_its_bind(kube: Kube) -> None:
    pod = await kube.pod("a")
    await kube.bind("a", "contract-n1")
    said = SetJobCondition("key", pod.uid, pod.namespace, pod.name, names.SUSPENDED, "Suspended.", runs=False)
    await kube.client.set_job_condition(said)
    read = await kube.read("a")
    assert read.job_condition == Condition(False, names.SUSPENDED, "Suspended.")
    assert read.scheduled is not None
    assert read.scheduled.status
    assert read.bound_at is not None


# --- what the rest of the spec allows ---


async def test_scheduler_and_node_selector_of_a_pod_cannot_be_changed(kube: Kube) -> None:
    await kube.pod("a")
    for change in ({"schedulerName": "another"}, {"nodeSelector": {"disk": "fast"}}):
        status, said = await kube.raw("PATCH", kube.path("a"), {"spec": change}, MERGE)
        assert (status, said["reason"]) == (422, "Invalid"), change


async def test_a_gated_pod_may_still_get_a_node_selector(kube: Kube) -> None:
    await kube.pod("a", schedulingGates=[{"name": "example.com/quota"}])
    status, _ = await kube.raw("PATCH", kube.path("a"), {"spec": {"nodeSelector": {"disk": "fast"}}}, MERGE)
    assert status == 200
    assert (await kube.read("a")).node_selector == {"disk": "fast"}


async def test_a_pending_pod_may_get_a_toleration(kube: Kube) -> None:
    _, pod = (await kube.pod("a"), (await kube.raw("GET", kube.path("a")))[1])
    added = [*pod["spec"]["tolerations"], {"key": "slurm-bridge/managed", "operator": "Exists", "effect": "NoSchedule"}]
    status, _ = await kube.raw("PATCH", kube.path("a"), {"spec": {"tolerations": added}}, MERGE)
    assert status == 200
    assert "slurm-bridge/managed" in {t.key for t in (await kube.read("a")).tolerations}


async def test_a_request_follows_from_a_limit_and_amounts_are_read_exactly(kube: Kube) -> None:
    limits = {"cpu": "1500m", "memory": "1.5Gi", "nvidia.com/gpu": "2"}
    container = {"name": "main", "image": "localhost/none", "resources": {"limits": limits}}
    [read] = (await kube.pod("a", containers=[container])).containers
    assert read.limits == {"cpu": 1500, "memory": 3 * 2**29, "nvidia.com/gpu": 2}
    assert read.requests == read.limits


async def test_an_invalid_name_or_amount_is_refused(kube: Kube) -> None:
    path = f"/api/v1/namespaces/{kube.namespace}/pods"
    container = {"name": "main", "image": "localhost/none"}
    status, said = await kube.raw(
        "POST", path, {"metadata": {"name": "Not a name"}, "spec": {"containers": [container]}}
    )
    assert (status, said["reason"]) == (422, "Invalid")
    bad = {**container, "resources": {"requests": {"cpu": "many"}}}
    status, said = await kube.raw("POST", path, {"metadata": {"name": "a"}, "spec": {"containers": [bad]}})
    assert (status, said["reason"]) == (400, "BadRequest")


async def test_a_second_pod_of_the_same_name_is_refused(kube: Kube) -> None:
    await kube.pod("a")
    container = {"name": "main", "image": "localhost/none"}
    thing = {"metadata": {"name": "a"}, "spec": {"containers": [container]}}
    status, said = await kube.raw("POST", f"/api/v1/namespaces/{kube.namespace}/pods", thing)
    assert (status, said["reason"]) == (409, "AlreadyExists")


async def test_nothing_is_created_in_a_namespace_that_does_not_exist(kube: Kube) -> None:
    thing = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "localhost/none"}]}}
    status, said = await kube.raw("POST", "/api/v1/namespaces/contract-nowhere/pods", thing)
    assert (status, said["reason"]) == (404, "NotFound")


# --- events ---


async def events(kube: Kube) -> list[tuple[str, str, str, int]]:
    _, found = await kube.raw("GET", f"/api/v1/namespaces/{kube.namespace}/events")
    return [
        (event["reason"], event["type"], event["message"], event["count"])
        for event in found["items"]
        if event["source"].get("component") == "slurm-bridge"
    ]


async def say(client: KubeClient, pod: Pod, message: str) -> None:
    await client.post_event(pod.namespace, pod.name, pod.uid, "SlurmJobPending", message, time.time())


async def test_a_repeated_event_is_counted_also_after_a_restart(kube: Kube) -> None:
    pod = await kube.pod("a")
    await say(kube.client, pod, "Waiting (Priority).")
    await say(kube.client, pod, "Waiting (Priority).")
    assert await events(kube) == [("SlurmJobPending", "Normal", "Waiting (Priority).", 2)]

    await say(kube.new_client(), pod, "Waiting (Priority).")
    assert await events(kube) == [("SlurmJobPending", "Normal", "Waiting (Priority).", 3)]


async def test_another_message_is_another_event(kube: Kube) -> None:
    pod = await kube.pod("a")
    await say(kube.client, pod, "Waiting (Priority).")
    said = "No such account."
    await kube.client.post_event(pod.namespace, pod.name, pod.uid, "SlurmJobRefused", said, time.time(), warning=True)
    assert sorted(await events(kube)) == [
        ("SlurmJobPending", "Normal", "Waiting (Priority).", 1),
        ("SlurmJobRefused", "Warning", "No such account.", 1),
    ]


async def test_an_event_that_the_server_has_deleted_is_created_again(kube: Kube) -> None:
    pod = await kube.pod("a")
    await say(kube.client, pod, "Waiting (Priority).")
    _, found = await kube.raw("GET", f"/api/v1/namespaces/{kube.namespace}/events")
    for event in found["items"]:
        await kube.raw("DELETE", f"/api/v1/namespaces/{kube.namespace}/events/{event['metadata']['name']}")
    await say(kube.client, pod, "Waiting (Priority).")
    assert await events(kube) == [("SlurmJobPending", "Normal", "Waiting (Priority).", 1)]


async def test_an_event_about_a_pod_that_is_gone_can_still_be_written(kube: Kube) -> None:
    pod = await kube.pod("a")
    await kube.raw("DELETE", kube.path("a"))
    await say(kube.client, pod, "Its job ended.")
    assert await events(kube) == [("SlurmJobPending", "Normal", "Its job ended.", 1)]


async def test_a_patch_of_an_object_that_does_not_exist_is_not_found(kube: Kube) -> None:
    for change in ({"spec": {}}, {"metadata": {"uid": ANOTHER}}):
        status, said = await kube.raw("PATCH", kube.path("a"), change, MERGE)
        assert (status, said["reason"], said["details"]["name"]) == (404, "NotFound", "a")


async def test_a_selector_of_an_unknown_field_is_invalid(kube: Kube) -> None:
    reply = await kube.transport.exchange(
        Call("GET", "/api/v1/pods", params={"fieldSelector": "spec.colour=red"}, deadline_s=10)
    )
    with pytest.raises(Invalid, match="field label not supported"):
        judged("list pods", reply)
