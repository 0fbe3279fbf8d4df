"""The load: a table of kinds, sized to what is there, in an order that follows from the seed."""

from __future__ import annotations

from collections import Counter

from bridge.dev.backends import Size
from bridge.dev.headless import percentiles
from bridge.dev.load import KINDS, SERVICES, Load, fitted
from bridge.dev.workload_client import PodHistory

SMALL = (Size("n1", cpus=2, memory_mib=4096, gpus=0), Size("n2", cpus=4, memory_mib=8192, gpus=0))


def test_a_gang_comes_whole_or_not_at_all() -> None:
    load = Load([kind for kind in KINDS if kind.pods > 1] + [KINDS[0]], "slurm-bridge", 3)
    pods = [load.next_pod(most=30 - made)[0]["metadata"] for made in range(30)]
    gangs = Counter(pod["labels"]["slurm-bridge/gang"] for pod in pods if "labels" in pod)
    assert gangs
    assert set(gangs.values()) == {4}
    sizes = {pod["annotations"]["slurm-bridge/gang-size"] for pod in pods if "labels" in pod}
    assert sizes == {"4"}


def test_no_kind_is_larger_than_half_of_the_largest_node() -> None:
    for kind in fitted(KINDS, SMALL):
        assert 1 <= kind.cpus <= 2
        assert 1 <= kind.gib <= 4
        assert kind.gpus == 0
    assert fitted(KINDS, [Size("big", cpus=128, memory_mib=10**6, gpus=8)]) == list(KINDS)


def test_the_same_seed_makes_the_same_pods() -> None:
    one, other, third = (Load(list(KINDS), "slurm-bridge", seed) for seed in (7, 7, 8))
    first = [one.next_pod() for _ in range(20)]
    assert first == [other.next_pod() for _ in range(20)]
    assert first != [third.next_pod() for _ in range(20)]


def test_a_pod_names_its_scheduler_and_has_a_time_limit() -> None:
    pod, seconds = Load(list(KINDS), "other-scheduler", 1).next_pod(runs_s=(3, 3))
    assert pod["spec"]["schedulerName"] == "other-scheduler"
    assert pod["spec"]["containers"][0]["command"] == ["sleep", str(seconds)] == ["sleep", "3"]
    assert pod["metadata"]["annotations"]["slurm-bridge/time-limit"] == "5"


def test_a_service_is_a_replica_set_of_nameless_pods() -> None:
    made = Load(list(KINDS), "slurm-bridge", 1).service(SERVICES[0])
    template = made["spec"]["template"]
    assert template["metadata"]["labels"] == made["spec"]["selector"]["matchLabels"]
    assert "name" not in template["metadata"]
    assert template["spec"]["restartPolicy"] == "Always"


def test_percentiles_of_few_and_of_many() -> None:
    assert percentiles([]) == {"n": 0}
    assert percentiles([5.0]) == {"n": 1, "p50": 5.0, "p90": 5.0, "p99": 5.0, "max": 5.0}
    many = percentiles([float(number) for number in range(101)])
    assert many == {"n": 101, "p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}


def test_what_was_seen_of_a_pod() -> None:
    waiting = {"metadata": {}, "spec": {}, "status": {"conditions": [
        {"type": "PodScheduled", "status": "False", "message": "Waiting in Slurm"}]}}  # fmt: skip
    history = PodHistory("train", waiting)
    assert (history.phase, history.node, history.job, history.says) == ("Pending", "", None, "Waiting in Slurm")
    annotations = {"slurm-bridge/job-id": "17"}
    bound = {"metadata": {"annotations": annotations}, "spec": {"nodeName": "x1"}, "status": {"phase": "Running"}}
    history.last = bound
    assert (history.phase, history.node, history.job, history.says) == ("Running", "x1", 17, "")
