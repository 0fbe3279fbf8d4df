"""A Slurm that counts no memory, and external nodes in slurm.conf (rigging/conf/uncounted.conf)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.clusters import PREFIX, Kube, Slurm, eventually

STATIC = ("s1", "s2")


@pytest.fixture(scope="module")
def static(kube: Kube, slurm: Slurm) -> None:
    """Kubernetes has those nodes, too."""
    assert all("DYNAMIC_NORM" not in slurm.node(name)["state"] for name in STATIC), "they stand in slurm.conf"
    for number, name in enumerate(STATIC):
        devices = {"nvidia.com/gpu": "8"}
        kube.add_node(name, f"198.51.100.{number + 1}", 64, 512_000, {"stands": "slurm.conf"}, **devices)


def test_pods_run_where_slurm_counts_no_memory(kube: Kube, slurm: Slurm, space: Callable[[str], str]) -> None:
    here = space("alice")
    kube.run(here, "hello", cpu="2", memory="3Gi", gpu=1)
    [pod] = eventually("it is bound", lambda: kube.bound(here))
    assert slurm.live(f"{here}/hello~")[0]["job_id"] == int(pod.metadata.annotations[PREFIX + "job-id"])


def test_a_gang_where_slurm_counts_no_memory_is_placed_as_slurm_granted_it(
    kube: Kube, slurm: Slurm, space: Callable[[str], str]
) -> None:
    here = space("alice")
    for number in range(5):
        says = {"gang-size": "5", "min-nodes": "2"}
        kube.run(here, f"ring-{number}", cpu="3", memory="1Gi", labels={PREFIX + "gang": "ring"}, says=says)
    pods = eventually("all of it is bound", lambda: len(found := kube.bound(here)) == 5 and found)
    [job] = slurm.live(f"{here}/ring")
    on = {held["name"]: held["cpus"]["count"] for held in job["job_resources"]["nodes"]["allocation"]}
    assert {node: 3 * [pod.spec.node_name for pod in pods].count(node) for node in on} == on


def test_no_gpu_is_lost_on_external_nodes_of_slurm_conf(
    kube: Kube, slurm: Slurm, space: Callable[[str], str], static: None
) -> None:
    """More gangs, one after the other, than would use up all GPUs if each took its own for ever."""
    here = space("alice")
    for turn in range(3):
        for number in range(12):
            labels, says = {PREFIX + "gang": f"ring{turn}"}, {"gang-size": "12"}
            kube.run(
                here,
                f"ring{turn}-{number}",
                gpu=1,
                labels=labels,
                says=says,
                spec={"nodeSelector": {"stands": "slurm.conf"}},
            )
        pods = eventually("all of it is bound", lambda: len(found := kube.bound(here)) == 12 and found)
        assert {pod.spec.node_name for pod in pods} == set(STATIC)
        for pod in pods:
            kube.core.delete_namespaced_pod(pod.metadata.name, here)
        eventually("its job is gone", lambda: not slurm.live(f"{here}/"))
        eventually("no node counts as used", lambda: all("IDLE" in slurm.node(name)["state"] for name in STATIC))
