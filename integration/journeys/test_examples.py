"""Every manifest of examples/, applied as its reader does it, runs.

LeaderWorkerSet and JobSet are not installed here: the API server is taught their kinds, and what their controllers make of
the example is made by `integration.controllers`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from integration import controllers
from integration.clusters import PREFIX, Kube, Slurm, eventually

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# How many pods run at a time, and how many jobs Slurm has for them; a heterogeneous one counts once.
RUNS = {
    "deployment.yaml": (3, 3),
    "job.yaml": (3, 3),
    "jobset.yaml": (5, 1),
    "leaderworkerset.yaml": (6, 2),
    "mig-notebook.yaml": (1, 1),
    "mpi.yaml": (3, 1),
    "notebook.yaml": (1, 1),
    "pod.yaml": (1, 1),
    "torchrun.yaml": (4, 1),
    "traced.yaml": (1, 1),
}
OF_OTHERS = {
    "JobSet": (controllers.JOB_SETS, controllers.plays_job_set),
    "LeaderWorkerSet": (controllers.LEADER_WORKER_SETS, controllers.plays_leader_worker_set),
}
SLICES = "Gres=gpu:1g.10gb:7 GresConf=count=7,name=gpu,type=1g.10gb,file=/dev/mig[0-6]"


@pytest.fixture(scope="module", autouse=True)
def sliced(slurm: Slurm, kube: Kube) -> Iterator[None]:
    """A node whose GPU is seven slices, there before the bridge asks for Slurm's nodes."""
    name, address = "mig1", "192.0.2.101"
    kube.add_node(name, address, 16, 64 * 1024, {}, **{"nvidia.com/mig-1g.10gb": "7"})
    slurm.add_node(name, address, 16, 64 * 1024, SLICES)
    yield
    kube.core.delete_node(name)
    eventually("Slurm lets it go", lambda: slurm.remove_node(name))


def test_all_of_them_are_known_here() -> None:
    assert RUNS.keys() == {path.name for path in EXAMPLES.glob("*.yaml")}


def test_the_examples_run(kube: Kube, slurm: Slurm, space: Callable[[str], str]) -> None:
    """Side by side: Slurm starts heterogeneous jobs by backfill alone, up to half a minute later."""
    spaces = {name: space("alice") for name in RUNS}
    with ExitStack() as stack:
        for kind, _ in OF_OTHERS.values():
            stack.enter_context(controllers.served(kube, *kind))
        for name, here in spaces.items():
            stack.enter_context(applied(kube, here, name))
        for name, here in spaces.items():
            for each in of_others(name):
                stack.enter_context(played(kube, here, each["kind"], each["metadata"]["name"]))
        for name, here in spaces.items():
            is_bound(name, here, kube, slurm)


def is_bound(name: str, space: str, kube: Kube, slurm: Slurm) -> None:
    pods, jobs = RUNS[name]
    bound = eventually(f"all of {name} runs", lambda: len(found := kube.bound(space)) == pods and found)
    assert len({each.metadata.annotations[PREFIX + "job-id"] for each in bound}) == jobs
    if name == "mig-notebook.yaml":
        [pod] = bound
        [held] = slurm.holds(int(pod.metadata.annotations[PREFIX + "job-id"])).values()
        assert (pod.spec.node_name, len(held["gpu"])) == ("mig1", 1)


def of_others(name: str) -> Iterator[dict[str, Any]]:
    """The objects of an example for which the rig has no controller."""
    for each in yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")):
        if each["kind"] in OF_OTHERS:
            yield each


@contextmanager
def played(kube: Kube, space: str, kind: str, name: str) -> Iterator[None]:
    """The pods that the controller of the object makes exist within this block."""
    (group, version, _), play = OF_OTHERS[kind]
    api = client.CustomObjectsApi(kube.api)
    given = api.get_namespaced_custom_object(group, version, space, controllers.plural(kind), name)
    with play(kube, space, given):
        yield


@contextmanager
def applied(kube: Kube, space: str, name: str) -> Iterator[None]:
    command = ["kubectl", "--kubeconfig", kube.kubeconfig, "-n", space]
    subprocess.run([*command, "apply", "-f", str(EXAMPLES / name)], check=True, capture_output=True, timeout=120)
    yield
    subprocess.run([*command, "delete", "--wait=false", "-f", str(EXAMPLES / name)], check=True, timeout=120)
