"""One bridge for all journeys, a namespace of its own for each of them, and what must be true after all of them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.clusters import BridgeProcess, Kube, Slurm, eventually
from integration.rigging.nodes import mebibytes

# alice and bob are in the policy; carol is a Slurm user outside it.
NUMBERS = itertools.count(1)
SHORT = 60  # lines
ONE_GPU = "count=1,name=gpu,type=h100,file=/dev/nvidia0"
POLICY = {
    "rules": [
        {
            "namespaces": ["alice-*"],
            "user": "alice",
            "account": {"default": "teama", "allowed": ["teama-dev"]},
            "partition": {"allowed": ["main", "gpu", "short", "low", "lowgrace"]},
            "qos": {"allowed": ["high", "low"]},
        },
        {"namespaces": ["bob-*"], "user": "bob", "partition": {"allowed": ["main", "gpu"]}},
    ]
}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A journey that fails shows what both clusters and the bridge said then: elsewhere it may not fail again."""
    report = yield
    if report.failed:
        there: dict[str, Any] = getattr(item, "funcargs", {})
        report.sections += [
            (f"{side} then", _in_short(there[side])) for side in ("kube", "slurm", "one_bridge") if side in there
        ]
    return report


def _in_short(side: Kube | Slurm | BridgeProcess) -> str:
    try:
        return "\n".join(side.in_short()[-SHORT:])
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not hide why the journey failed
        return f"nothing to be had: {error!r}"


@pytest.fixture(scope="session")
def slurm() -> Slurm:
    return Slurm(os.environ["SLURM_REST"], os.environ["SLURM_TOKEN_FILE"])


@pytest.fixture(scope="session")
def kube() -> Kube:
    return Kube(os.environ["KUBECONFIG"])


@pytest.fixture(scope="session")
def one_bridge(slurm: Slurm, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    """The one bridge of all journeys, because a bridge cancels nothing for some seconds after its start.

    It must not have said anything like a traceback or a token when it stops.
    """
    folder: Path = tmp_path_factory.mktemp("bridge")
    settings = {"slurm_url": slurm.url, "slurm_token_file": slurm.token_file, "policy": POLICY}
    process = BridgeProcess(settings, folder, kube.kubeconfig)
    yield process
    code = process.stop() if process.runs else 0
    said = process.log.read_text() if process.log.exists() else ""
    assert code == 0, said[-3000:]
    assert "Traceback" not in said
    assert Path(slurm.token_file).read_text().strip() not in said


@pytest.fixture(scope="module")
def bridge(one_bridge: BridgeProcess) -> BridgeProcess:
    """A running bridge."""
    if not one_bridge.runs:
        one_bridge.start()
    return one_bridge


@pytest.fixture(scope="module")
def no_bridge(one_bridge: BridgeProcess) -> None:
    """Ours does not run: the journey starts one as its user would."""
    if one_bridge.runs:
        assert one_bridge.stop() == 0


@pytest.fixture
def space(
    request: pytest.FixtureRequest, kube: Kube, slurm: Slurm, bridge: BridgeProcess
) -> Iterator[Callable[[str], str]]:
    """space("alice") makes a managed namespace of hers; afterwards nothing of it may be left in Slurm (L2)."""
    made: list[str] = []

    def make(user: str) -> str:
        test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[5:45].strip("-")
        name = f"{user}-{test}-{next(NUMBERS)}"  # the namespace of an earlier journey may still be terminating
        kube.namespace(name)
        made.append(name)
        return name

    yield make
    for name in made:
        kube.remove(name)
        eventually(f"no job of {name} is left", lambda n=name: not slurm.live(f"{n}/"))  # type: ignore[misc]


@pytest.fixture(scope="session")
def needs_kubelets() -> None:
    """The one thing that a machine may lack (cgroup v2): named in the summary, never silent."""
    if not os.environ.get("RIG_KUBELETS"):
        pytest.skip("no real kubelets here: the rig says why")


@pytest.fixture
def full(slurm: Slurm, kube: Kube) -> Iterator[Callable[[], None]]:
    """Every GPU of the nodes k1..kN is held by foreign jobs, until full() ends them."""
    nodes = kube.external_nodes()
    taken = [slurm.submit("carol", name="native", required_nodes=[name], tres_per_node="gres/gpu:8") for name in nodes]
    eventually("they run", lambda: all("RUNNING" in slurm.job(job)["job_state"] for job in taken))

    def free() -> None:
        while taken:
            slurm.cancel(taken.pop())

    yield free
    free()


@pytest.fixture(scope="module")
def roomy(slurm: Slurm, kube: Kube) -> Iterator[list[str]]:
    """The nodes with a kubelet; Slurm gives away 16 CPUs and a GPU of each, so that many small pods share a node."""
    names = os.environ.get("RIG_KUBELETS", "").split()
    sizes = {name: _size(kube, name) for name in names}
    try:
        for name, (address, _, memory) in sizes.items():
            _resize(slurm, name, address, 16, memory, "Gres=gpu:h100:1 GresConf=" + ONE_GPU)
            _offer(kube, name, "1")
        yield names
    finally:
        for name, size in sizes.items():
            _resize(slurm, name, *size)
            _offer(kube, name, None)


def _size(kube: Kube, name: str) -> tuple[str, int, int]:
    """Address, CPUs, MiB."""
    status = kube.core.read_node(name).status
    [address] = [each.address for each in status.addresses if each.type == "InternalIP"]
    return address, int(status.allocatable["cpu"]), mebibytes(status.allocatable["memory"])


def _resize(slurm: Slurm, name: str, address: str, cpus: int, memory_mib: int, devices: str = "") -> None:
    eventually(f"Slurm lets {name} go", lambda: slurm.remove_node(name))
    slurm.add_node(name, address, cpus, memory_mib, f"Feature=kubelet {devices}")


def _offer(kube: Kube, name: str, gpus: str | None) -> None:
    """As an administrator advertises an extended resource; its kubelet keeps it."""
    kube.core.patch_node_status(
        name, {"status": {key: {"nvidia.com/gpu": gpus} for key in ("capacity", "allocatable")}}
    )


@pytest.fixture(scope="module")
def pool(slurm: Slurm, kube: Kube) -> Iterator[str]:
    """The label of nine more nodes of 64 CPUs each, which are there for these journeys alone."""
    label, names = "slurm-bridge-journey/pool", [f"p{number}" for number in range(1, 10)]
    for number, name in enumerate(names, 1):
        kube.add_node(name, f"192.0.2.{number}", 64, 64 * 1024, {label: "wide"})
        slurm.add_node(name, f"192.0.2.{number}", 64, 64 * 1024)
    yield label
    for name in names:
        kube.core.delete_node(name)
        eventually(f"Slurm lets {name} go", lambda n=name: slurm.remove_node(n))  # type: ignore[misc]


@pytest.fixture(scope="session")
def own_rig() -> None:
    """Daemons can be stopped only where they are ours; clusters that were given are left as they are."""
    if not os.environ.get("RIG_NAME"):
        pytest.skip("these clusters were given (KUBECONFIG, SLURM_REST): their daemons are not ours to stop")
