"""Pod → amounts of a job: BEHAVIOUR T1 to T5 line by line, exact input and exact output."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.jobspec import Translation, needs, peak, shape_of
from scheduler.model import Container, Pod, Shape
from scheduler.wishes import Wishes
from tests.builders import MIB, amounts

GRES = Translation(
    gres={"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu", "nvidia.com/mig-1g.10gb": "gpu:1g.10gb"},
    default_memory_mib=1024,
)


def c(*, sidecar: bool = False, limits: dict[str, int] | None = None, **wants: int) -> Container:
    return Container("c", requests=amounts(**wants), limits=limits or {}, sidecar=sidecar)


def pod_of(*containers: Container, **fields: Any) -> Pod:
    return Pod("uid", "hpc", "p", containers=containers, **fields)


def shape(pod: Pod, **asked: Any) -> Shape:
    return shape_of(pod, Wishes(**asked), GRES)


@pytest.mark.parametrize(
    ("pod", "cpu", "memory_mib"),
    [
        pytest.param(pod_of(c(cpu=1000, memory=10)), 1000, 10, id="one container"),
        pytest.param(pod_of(c(cpu=1000), c(cpu=500, memory=3)), 1500, 3, id="containers add up"),
        pytest.param(pod_of(c(cpu=1000), init_containers=(c(cpu=4000),)), 4000, 0, id="init container is larger"),
        pytest.param(pod_of(c(cpu=5000), init_containers=(c(cpu=4000),)), 5000, 0, id="init container is smaller"),
        pytest.param(
            pod_of(c(cpu=1000), init_containers=(c(cpu=3000), c(cpu=2000))), 3000, 0, id="init containers do not add up"
        ),
        pytest.param(
            pod_of(c(cpu=1000), init_containers=(c(cpu=500, sidecar=True),)), 1500, 0, id="a sidecar runs beside"
        ),
        pytest.param(
            pod_of(c(cpu=100), init_containers=(c(cpu=500, sidecar=True), c(cpu=2000))),
            2500,
            0,
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            pod_of(c(cpu=100), init_containers=(c(cpu=2000), c(cpu=500, sidecar=True))),
            2000,
            0,
            id="but not beside those after it",
        ),
        pytest.param(
            pod_of(init_containers=(c(cpu=500, sidecar=True), c(cpu=700, sidecar=True))), 1200, 0, id="sidecars alone"
        ),
        pytest.param(pod_of(c(cpu=1000), overhead=amounts(cpu=250, memory=5)), 1250, 5, id="overhead comes on top"),
        pytest.param(
            pod_of(c(cpu=1000, memory=10), pod_requests=amounts(cpu=3000)), 3000, 10, id="pod level wins where set"
        ),
        pytest.param(
            pod_of(c(cpu=1000), pod_requests=amounts(cpu=3000), overhead=amounts(cpu=250)),
            3250,
            0,
            id="overhead on top of pod level",
        ),
        pytest.param(pod_of(c(cpu=1000, limits=amounts(cpu=9000))), 1000, 0, id="kubernetes counts requests"),
    ],
)
def test_needs_are_counted_as_kubernetes_counts_them(pod: Pod, cpu: int, memory_mib: int) -> None:
    """T1; and the pod itself is one of the node's `pods`."""
    counted = needs(pod)
    assert counted.get("cpu", 0) == cpu
    assert counted.get("memory", 0) == memory_mib * MIB
    assert counted["pods"] == 1


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        pytest.param(pod_of(c(cpu=1000, limits=amounts(cpu=2500))), 2500, id="limit above request"),
        pytest.param(pod_of(c(cpu=3000, limits=amounts(cpu=2500))), 3000, id="request above limit"),
        pytest.param(pod_of(c(limits=amounts(cpu=2500))), 2500, id="limit without request"),
        pytest.param(pod_of(c(cpu=1000, limits=amounts(memory=1))), 1000, id="a limit of something else"),
        pytest.param(pod_of(c(cpu=1000, limits=amounts(cpu=2000)), c(cpu=1000)), 3000, id="container by container"),
        pytest.param(
            pod_of(c(cpu=1000), pod_requests=amounts(cpu=2000), pod_limits=amounts(cpu=6000)), 6000, id="pod level"
        ),
    ],
)
def test_slurm_is_asked_for_the_larger_of_request_and_limit(pod: Pod, cpu: int) -> None:
    """T2: a pod may use up to its limit."""
    assert peak(pod)["cpu"] == cpu


@pytest.mark.parametrize(
    ("pod", "cpus"),
    [
        pytest.param(pod_of(c()), 1, id="none asked"),
        pytest.param(pod_of(c(cpu=1)), 1, id="1m"),
        pytest.param(pod_of(c(cpu=100)), 1, id="100m"),
        pytest.param(pod_of(c(cpu=1000)), 1, id="1"),
        pytest.param(pod_of(c(cpu=1001)), 2, id="1001m"),
        pytest.param(pod_of(c(cpu=1500)), 2, id="1.5"),
        pytest.param(pod_of(c(cpu=1000), init_containers=(c(cpu=4000),)), 4, id="init 4 beside app 1"),
        pytest.param(pod_of(c(cpu=1000), overhead=amounts(cpu=250)), 2, id="overhead 250m + 1"),
    ],
)
def test_cpus_round_up_to_whole_ones_and_are_at_least_one(pod: Pod, cpus: int) -> None:
    """T3."""
    assert shape(pod).cpus == cpus


@pytest.mark.parametrize(
    ("bytes_asked", "mib"),
    [(0, 1024), (1, 1), (512 * 1024, 1), (MIB, 1), (MIB + 1, 2), (10**9, 954), (100 * MIB, 100)],
)
def test_memory_rounds_up_to_mib_and_is_always_sent(bytes_asked: int, mib: int) -> None:
    """T4: unset would take the whole node's memory, and 0 means all of it."""
    assert shape(pod_of(Container("c", requests={"memory": bytes_asked}))).memory_mib == mib


@pytest.mark.parametrize(
    ("resources", "gres"),
    [
        ({}, ()),
        ({"nvidia.com/gpu": 2}, (("gpu", 2),)),
        ({"nvidia.com/gpu": 0}, ()),
        ({"amd.com/gpu": 1}, (("gpu", 1),)),
        ({"nvidia.com/mig-1g.10gb": 3}, (("gpu:1g.10gb", 3),)),
        ({"nvidia.com/gpu": 1, "amd.com/gpu": 1}, (("gpu", 2),)),
        ({"example.org/fpga": 1}, ()),
        ({"nvidia.com/mig-1g.10gb": 1, "nvidia.com/gpu": 2}, (("gpu", 2), ("gpu:1g.10gb", 1))),
    ],
)
def test_extended_resources_become_gres(resources: dict[str, int], gres: tuple[tuple[str, int], ...]) -> None:
    """T5: by the setting; one that is not mapped is not asked of Slurm."""
    assert shape(pod_of(Container("c", requests=resources))).gres == gres


def test_devices_of_all_containers_add_up() -> None:
    """T5."""
    two = pod_of(c(gpu=1), c(gpu=2), init_containers=(c(gpu=1, sidecar=True),))
    assert shape(two).gres == (("gpu", 4),)


def test_an_unmapped_resource_still_limits_the_nodes() -> None:
    """T5, F."""
    assert needs(pod_of(Container("c", requests={"example.org/fpga": 1})))["example.org/fpga"] == 1


def test_what_is_said_wins_over_what_is_derived() -> None:
    """T6; gres that is said to be empty of counts takes the derived devices away."""
    wants = pod_of(c(cpu=1500, memory=100, gpu=2))
    assert shape(wants) == Shape(2, 100, (("gpu", 2),))
    assert shape(wants, cpus_per_task=7, memory=5, gres=(("gpu:h100", 1),)) == Shape(7, 5, (("gpu:h100", 1),))
    assert shape(wants, gres=()).gres == ()
