"""V3: a forged log in which a node is given more than it has room for is found; what is uncertain counts for the bridge."""

from __future__ import annotations

from typing import Any

import pytest

from integration.checker.quantities import requests
from tests.unit.checker.forged import Run


@pytest.fixture
def run() -> Run:
    """A node with 2 CPUs, and a pod on one of them."""
    run = Run()
    run.node(0.5, "k1", cpu="2")
    _placed(run, 1, "first")
    return run


def _placed(run: Run, at: float, name: str, **wants: Any) -> None:
    """A pod is created, and bound to k1 for a job of its own."""
    number = 7 + len(run.states)
    run.submit(at + 0.1, number, run.pod(at, name, **wants))
    run.grant(at + 0.2, number, "k1", "cpu=64,mem=1T,gres/gpu=8,node=1")
    run.bind(at + 0.3, name, "k1", number)


def test_a_node_with_room_for_its_pods_breaks_nothing(run: Run) -> None:
    _placed(run, 3, "second")
    verdict = run.verdict()
    assert (verdict.broken, verdict.judged["V3"]) == ([], 2)


def test_a_pod_beyond_the_room_of_its_node_is_found(run: Run) -> None:
    _placed(run, 3, "second", cpu="1500m")
    [sentence] = run.broken()
    assert sentence == (
        "V3: pod alice-x/second was bound to k1 at 08:00:03.300 (audit.log:10) and requests 1.5 cpu; "
        "1 pods there requested 1 of 2"
    )


def test_a_resource_that_the_node_lacks_is_no_room(run: Run) -> None:
    _placed(run, 3, "second", gpu=1)
    assert [each[:2] for each in run.broken()] == ["V3"]


def test_the_number_of_pods_is_room_too() -> None:
    run = Run()
    run.node(0.5, "k1", pods="1")
    _placed(run, 1, "first")
    _placed(run, 3, "second")
    [sentence] = run.broken()
    assert sentence.endswith("requests 1 pods; 1 pods there requested 1 of 1")


def test_a_pod_that_has_ended_leaves_its_room(run: Run) -> None:
    run.phase(2, "first", "Succeeded")
    _placed(run, 3, "second", cpu="2")
    assert [each[:2] for each in run.broken(20)] == []


def test_a_pod_that_terminates_still_has_its_room(run: Run) -> None:
    run.delete(2, "first", by="test")
    _placed(run, 3, "second", cpu="2")
    run.delete(9, "first", by="kwok", gone=True)
    assert [each[:2] for each in run.broken(20)] == ["V3"]


@pytest.mark.parametrize(("at", "found"), [(20, []), (60, ["V3"])])
def test_a_pod_of_another_scheduler_counts_once_it_can_be_known(run: Run, at: float, found: list[str]) -> None:
    run.pod(10, "stranger", scheduler="other")
    run.bind(11, "stranger", "k1", 0, by="other-scheduler")
    _placed(run, at, "second")
    assert [each[:2] for each in run.broken(70)] == found


@pytest.mark.parametrize(
    "shrunk",
    [{"status": {"allocatable": {"cpu": "1"}}}, [{"op": "replace", "path": "/status/allocatable/cpu", "value": "1"}]],
)
@pytest.mark.parametrize(("at", "found"), [(20, []), (60, ["V3"])])
def test_a_node_that_became_smaller_has_less_room_once_that_can_be_known(
    run: Run, shrunk: Any, at: float, found: list[str]
) -> None:
    run.node_patch(10, "k1", shrunk)
    _placed(run, at, "second")
    assert [each[:2] for each in run.broken(70)] == found


def test_a_node_that_became_larger_has_more_room(run: Run) -> None:
    run.node_patch(2, "k1", {"status": {"allocatable": {"cpu": "8"}}})
    _placed(run, 3, "second", cpu="7")
    assert run.broken() == []


def test_a_deleted_node_has_no_room(run: Run) -> None:
    run.entry(5, "delete", "nodes", None, None, ref={"name": "k1"})
    _placed(run, 50, "second")
    assert [each[:2] for each in run.broken(60)] == ["V3"]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, ["V3"]),
        ({"hostPort": 80}, {"hostPort": 81}, []),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, []),
        ({"hostPort": 80, "hostIP": "192.0.2.1"}, {"hostPort": 80, "hostIP": "192.0.2.2"}, []),
        ({"hostPort": 80, "hostIP": "192.0.2.1"}, {"hostPort": 80}, ["V3"]),
        ({"containerPort": 80}, {"containerPort": 80}, []),
    ],
)
def test_a_host_port_that_another_pod_has_is_no_room(first: Any, second: Any, found: list[str]) -> None:
    run = Run()
    run.node(0.5, "k1")
    for at, name, port in ((1, "first", first), (3, "second", second)):
        _placed(run, at, name, containers=[{"ports": [port]}])
    assert [each[:2] for each in run.broken()] == found


def test_a_bind_to_a_node_that_the_log_does_not_show_is_not_judged() -> None:
    run = Run()
    _placed(run, 1, "first", cpu="999")
    assert run.verdict().judged["V3"] == 0


def test_a_pod_that_was_resized_counts_with_the_least_that_it_requested(run: Run) -> None:
    spec = {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "64Mi"}}}]}
    run.entry(2, "patch", "pods/resize", {}, {"spec": spec}, ref={"namespace": "alice-x", "name": "first"})
    _placed(run, 3, "second", cpu="1500m")
    assert run.broken() == []


def _container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpus"),
    [
        ({}, 3),
        ({"initContainers": [_container("2")]}, 3),
        ({"initContainers": [_container("5")]}, 5),
        ({"initContainers": [_container("1", restartPolicy="Always"), _container("5")]}, 6),
        ({"initContainers": [_container("5"), _container("1", restartPolicy="Always")]}, 5),
        ({"initContainers": [_container("1", restartPolicy="Always")]}, 4),
        ({"resources": {"requests": {"cpu": "10"}}}, 10),
        ({"overhead": {"cpu": "250m"}}, 3.25),
    ],
)
def test_a_pod_requests_what_kubernetes_counts(spec: dict[str, Any], cpus: float) -> None:
    """T1: containers and sidecars together, or the largest init container with the sidecars before it."""
    assert requests({"containers": [_container("1"), _container("2")], **spec}) == {"cpu": cpus, "pods": 1}
