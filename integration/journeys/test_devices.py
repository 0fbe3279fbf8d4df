"""A device has one arbiter (rules G): GPUs of external nodes are shared, nodes with a slurmd are taken whole for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration.clusters import PREFIX, BridgeProcess, Kube, Slurm, eventually
from scheduler.model.hostlist import expand

Space = Callable[[str], str]
GPUS = {"tres_per_node": "gres/gpu:2"}
WRITTEN = {"job-id", "job-nodes", "job-gpus", "size", "rank", "local-rank", "traceparent"}


@pytest.fixture
def with_slurmd() -> str:
    """A node that runs a slurmd too."""
    nodes = os.environ.get("RIG_SLURMD", "").split()
    if not nodes:
        pytest.skip("no node with a slurmd here (RIG_SLURMD): `integration/rig up` makes one")
    return nodes[0]


@pytest.fixture
def driver(bridge: BridgeProcess) -> Iterator[None]:
    """The admin declares that the device driver of the nodes follows the annotation job-gpus."""
    with bridge.with_settings(device_driver=True):
        yield


@pytest.fixture
def native(slurm: Slurm, with_slurmd: str) -> Iterator[Callable[..., int]]:
    """native() queues carol's batch job of two cores for that node; what is left of them is ended."""
    made: list[int] = []

    def submit(**options: Any) -> int:
        memory = {"set": True, "number": 100}
        script = "#!/bin/sh\nexec sleep 600\n"
        job = slurm.batch(
            "carol", script, required_nodes=[with_slurmd], cpus_per_task=2, memory_per_node=memory, **options
        )
        made.append(job)
        return job

    yield submit
    for job in made:
        slurm.cancel(job)


def on_node(name: str) -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/hostname": name}}


def state(slurm: Slurm, job_id: int) -> str:
    found: str = slurm.job(job_id)["job_state"][0]
    return found


def job_of(kube: Kube, space: str, name: str) -> int:
    return int(kube.pod(space, name).metadata.annotations[PREFIX + "job-id"])


def test_eight_gpus_of_an_external_node_are_shared_by_four_pods_of_two(kube: Kube, slurm: Slurm, space: Space) -> None:
    ns = space("alice")
    for number in range(4):
        kube.run(ns, f"p{number}", gpu=2, on="", spec=on_node("k1"))
    pods = eventually("all four are bound", lambda: len(found := kube.bound(ns)) == 4 and found)
    held = [slurm.holds(job_of(kube, ns, pod.metadata.name)) for pod in pods]
    assert all(list(each) == ["k1"] for each in held)
    assert [len(each["k1"]["gpu"]) for each in held] == [2] * 4
    assert set().union(*(each["k1"]["gpu"] for each in held)) == set(range(8)), "each device once"
    assert [each["k1"]["cores"] for each in held] == [1] * 4, "nothing is taken whole"
    for pod in pods:  # which devices they are is kubelet's to say (G1)
        assert {key.removeprefix(PREFIX) for key in pod.metadata.annotations if key.startswith(PREFIX)} == WRITTEN

    kube.run(ns, "fifth", gpu=1, on="", spec=on_node("k1"))
    eventually("the fifth waits", lambda: "SlurmJobPending" in kube.said(ns, "fifth"))
    kube.core.delete_namespaced_pod("p2", ns)
    eventually("it takes what is freed", lambda: kube.pod(ns, "fifth").spec.node_name == "k1")
    freed = next(each["k1"]["gpu"] for pod, each in zip(pods, held, strict=True) if pod.metadata.name == "p2")
    assert slurm.holds(job_of(kube, ns, "fifth"))["k1"]["gpu"] < freed


def test_pods_without_devices_share_the_cores_of_a_node_with_slurms_own_jobs(
    kube: Kube, slurm: Slurm, space: Space, with_slurmd: str, native: Callable[..., int]
) -> None:
    ns = space("alice")
    batch = native()
    eventually("Slurm's own job runs", lambda: state(slurm, batch) == "RUNNING")
    for number in range(3):
        kube.run(ns, f"p{number}", cpu="20", on="", spec=on_node(with_slurmd))
    eventually("the pods run beside it", lambda: len(kube.bound(ns)) == 3)
    jobs = [batch, *(job_of(kube, ns, f"p{number}") for number in range(3))]
    assert [slurm.holds(job)[with_slurmd]["cores"] for job in jobs] == [2, 20, 20, 20]
    kube.run(ns, "more", cpu="4", on="", spec=on_node(with_slurmd))
    eventually("2 cores are left, and 4 wait", lambda: "SlurmJobPending" in kube.said(ns, "more"))
    slurm.cancel(batch)
    eventually("they are enough with the two of that job", lambda: kube.pod(ns, "more").spec.node_name == with_slurmd)


def test_a_pod_with_devices_takes_a_node_with_a_slurmd_whole(
    kube: Kube, slurm: Slurm, space: Space, with_slurmd: str, native: Callable[..., int]
) -> None:
    """G2: Slurm gives indices to its own jobs, and kubelet knows nothing of them."""
    ns = space("alice")
    before = native()
    eventually("Slurm's own job runs", lambda: state(slurm, before) == "RUNNING")
    kube.run(ns, "train", gpu=2, on="", spec=on_node(with_slurmd))
    eventually("the pod waits, though six devices are free", lambda: "SlurmJobPending" in kube.said(ns, "train"))
    slurm.cancel(before)
    eventually("it has the node", lambda: kube.pod(ns, "train").spec.node_name == with_slurmd)
    held = slurm.holds(job_of(kube, ns, "train"))[with_slurmd]
    assert (held["cores"], held["gpu"]) == (64, set(range(8)))

    after = native()
    kube.run(ns, "beside", on="", spec=on_node(with_slurmd))
    eventually("a pod beside it waits", lambda: "SlurmJobPending" in kube.said(ns, "beside"))
    assert state(slurm, after) == "PENDING"
    kube.core.delete_namespaced_pod("train", ns)
    eventually("then both have room", lambda: kube.bound(ns) and state(slurm, after) == "RUNNING")


def test_while_external_nodes_may_come_free_devices_of_other_nodes_are_not_asked_for(
    kube: Kube, slurm: Slurm, space: Space, with_slurmd: str, full: Callable[[], None]
) -> None:
    ns = space("alice")
    kube.run(ns, "train", gpu=1)
    [job] = eventually("it waits in Slurm", lambda: slurm.live(f"{ns}/train~"))
    assert with_slurmd in expand(job["excluded_nodes"])
    assert "SlurmJobPending" in eventually("it says so", lambda: kube.said(ns, "train"))
    full()
    eventually("it runs", lambda: kube.pod(ns, "train").spec.node_name)
    assert kube.pod(ns, "train").spec.node_name in kube.external_nodes()


def test_where_the_driver_goes_by_it_pods_get_their_devices_and_share_nodes_with_a_slurmd_too(
    driver: None, kube: Kube, slurm: Slurm, space: Space, with_slurmd: str, native: Callable[..., int]
) -> None:
    ns = space("alice")
    labels, says = {PREFIX + "gang": "ring"}, {"gang-size": "3"}
    for number in range(3):
        kube.run(ns, f"ring-{number}", gpu=2, on="", labels=labels, says=says, spec=on_node("k1"))
    kube.run(ns, "alone", gpu=2, on="", spec=on_node("k1"))
    batch = native(**GPUS)
    kube.run(ns, "beside", gpu=2, on="", spec=on_node(with_slurmd))
    eventually("all are bound", lambda: len(kube.bound(ns)) == 5)
    eventually("Slurm's own job runs", lambda: state(slurm, batch) == "RUNNING")

    shown = {pod.metadata.name: gpus(pod) for pod in kube.bound(ns)}
    ring = [shown[f"ring-{number}"] for number in range(3)]
    assert [len(each) for each in ring] == [2] * 3
    assert set().union(*ring) == slurm.holds(job_of(kube, ns, "ring-0"))["k1"]["gpu"], "all of its job's, each once"
    for name, node in (("alone", "k1"), ("beside", with_slurmd)):
        assert shown[name] == slurm.holds(job_of(kube, ns, name))[node]["gpu"]
    assert len(shown["beside"] | slurm.holds(batch)[with_slurmd]["gpu"]) == 4


def gpus(pod: Any) -> set[int]:
    return set(map(int, pod.metadata.annotations[PREFIX + "job-gpus"].split(",")))
