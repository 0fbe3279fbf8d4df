"""Binding: its effect, and the answers to a bind that fails (Kubernetes facts 1)."""

from __future__ import annotations

import dataclasses

import pytest

from bridge.errors import Conflict, NotFound
from scheduler.actions import BindPod, SetPodCondition
from scheduler.model.kubernetes import Condition, Pod
from tests.contract.kube_subjects import MERGE, Kube, every_kube  # noqa: F401 -- fixtures


def binding(pod: Pod, node: str = "contract-n1", job_id: int = 4711) -> BindPod:
    annotations = {"slurm-bridge/job-id": str(job_id), "slurm-bridge/job-nodes": node}
    return BindPod("key", pod.uid, pod.namespace, pod.name, node, job_id, annotations, f"granted by job {job_id}")


async def test_a_bind_writes_node_annotations_and_condition_at_once(kube: Kube) -> None:
    pod = await kube.pod("a", metadata={"annotations": {"slurm-bridge/partition": "main"}})
    assert pod.node == ""

    await kube.client.bind(binding(pod))

    bound = await kube.read("a")
    assert bound.node == "contract-n1"
    assert bound.annotations == {
        "slurm-bridge/partition": "main",
        "slurm-bridge/job-id": "4711",
        "slurm-bridge/job-nodes": "contract-n1",
    }
    assert bound.scheduled == Condition(True)


async def test_a_bind_clears_the_reason_why_the_pod_was_waiting(kube: Kube) -> None:
    pod = await kube.pod("a")
    waits = SetPodCondition("key", pod.uid, pod.namespace, "a", "SlurmJobPending", "Waiting in partition main.")
    await kube.client.set_condition(waits)
    await kube.client.bind(binding(pod))
    assert (await kube.read("a")).scheduled == Condition(True)


async def test_a_bind_that_is_sent_twice_happens_once_without_an_error(kube: Kube) -> None:
    pod = await kube.pod("a")
    await kube.client.bind(binding(pod))
    await kube.client.bind(binding(pod))
    assert (await kube.read("a")).node == "contract-n1"


async def test_a_bind_of_a_pod_that_is_on_another_node_is_a_conflict(kube: Kube) -> None:
    pod = await kube.pod("a")
    await kube.bind("a", "contract-n2")
    with pytest.raises(Conflict, match="already assigned to node"):
        await kube.client.bind(binding(pod))
    assert (await kube.read("a")).node == "contract-n2"


async def test_a_bind_never_hits_a_namesake_with_another_uid(kube: Kube) -> None:
    pod = await kube.pod("a")
    former = dataclasses.replace(pod, uid="00000000-0000-4000-8000-00000000dead")
    with pytest.raises(Conflict):
        await kube.client.bind(binding(former))
    assert (await kube.read("a")).node == ""


async def test_a_bind_of_a_pod_that_is_gone_is_not_found(kube: Kube) -> None:
    pod = await kube.pod("a")
    gone = dataclasses.replace(pod, name="b")
    with pytest.raises(NotFound):
        await kube.client.bind(binding(gone))


async def test_a_gated_pod_cannot_be_bound_until_its_gates_are_gone(kube: Kube) -> None:
    pod = await kube.pod("a", schedulingGates=[{"name": "example.com/quota"}])
    assert pod.gated
    assert pod.scheduled is not None
    assert pod.scheduled.reason == "SchedulingGated"
    with pytest.raises(Conflict, match="schedulingGates"):
        await kube.client.bind(binding(pod))

    status, _ = await kube.raw("PATCH", kube.path("a"), {"spec": {"schedulingGates": None}}, MERGE)
    assert status == 200
    assert not (await kube.read("a")).gated
    await kube.client.bind(binding(pod))


async def test_a_pod_that_is_being_deleted_cannot_be_bound(kube: Kube) -> None:
    pod = await kube.pod("a", metadata={"finalizers": ["example.com/held"]})
    status, _ = await kube.raw("DELETE", kube.path("a"))
    assert status == 200
    with pytest.raises(Conflict, match="being deleted"):
        await kube.client.bind(binding(pod))

    status, _ = await kube.raw("PATCH", kube.path("a"), {"metadata": {"finalizers": None}}, MERGE)
    assert status == 200
    assert await kube.client.read_pod(kube.namespace, "a") is None


async def test_the_server_does_not_check_that_the_node_exists(kube: Kube) -> None:
    pod = await kube.pod("a", nodeSelector={"no": "such-label"})
    await kube.client.bind(binding(pod, "contract-no-such-node"))
    assert (await kube.read("a")).node == "contract-no-such-node"
