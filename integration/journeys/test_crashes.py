"""The bridge and all servers are killed, frozen and cut off under load; nothing is doubled, left over or wrongly ended (X3).

CYCLES says how many faults: 50 among the other journeys, 500 in `make torture`.  SEED repeats the choices of a run.
TORTURE_ALONE=1 (`make torture` sets it): all must be at rest sooner, because no other suite runs on this machine.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from integration.clusters import BridgeProcess, Kube, Slurm, eventually, rig
from integration.journeys.conftest import POLICY
from integration.torture import IS_ALONE
from integration.torture.churn import Churn
from integration.torture.faults import Wrecker, cycles, torn
from integration.torture.line import Line
from integration.torture.rest import unsettled
from tests.patience import PATIENCE_S

CYCLES = int(os.environ.get("CYCLES") or 50)
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
NS = "alice-crashes"
REST_S = 30  # after the last fault, alone on its machine


@pytest.fixture
def lines(kube: Kube, slurm: Slurm) -> Iterator[tuple[Line, Line]]:
    """Lines to the API server and to slurmrestd."""
    there, rest = urlsplit(kube.api.configuration.host), urlsplit(slurm.url)
    assert there.hostname
    assert rest.hostname
    with Line(there.hostname, there.port or 443) as one, Line(rest.hostname, rest.port or 80) as other:
        yield one, other


@pytest.fixture
def crashing(
    lines: tuple[Line, Line], kube: Kube, slurm: Slurm, tmp_path: Path, no_bridge: None
) -> Iterator[BridgeProcess]:
    """A bridge on these lines."""
    far = yaml.safe_load(Path(kube.kubeconfig).read_text())
    far["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{lines[0].port}"
    (kubeconfig := tmp_path / "kubeconfig").write_text(yaml.safe_dump(far))
    kubeconfig.chmod(0o600)
    settings = {
        "slurm_url": f"http://127.0.0.1:{lines[1].port}",
        "slurm_token_file": slurm.token_file,
        "policy": POLICY,
    }
    process = BridgeProcess(settings, tmp_path, str(kubeconfig))
    process.start()
    yield process
    process.stop()


@pytest.mark.usefixtures("own_rig")
def test_nothing_is_doubled_left_or_wrongly_ended_whatever_crashes(
    crashing: BridgeProcess, lines: tuple[Line, Line], kube: Kube, slurm: Slurm
) -> None:
    print(f"torture: CYCLES={CYCLES} SEED={SEED}", flush=True)
    kube.namespace(NS)
    rig("slurmctld", "stop")  # which saves all that a killed one needs at its start
    rig("slurmctld", "start")
    wrecker, done, began = Wrecker(crashing, *lines), Counter[str](), time.monotonic()
    with Churn(kube, slurm, NS, random.Random(SEED)) as churn, torn():
        for cycle in cycles(CYCLES, random.Random(SEED)):
            print(f"torture: {time.monotonic() - began:.1f} s: {cycle}", flush=True)
            wrecker.wreck(cycle)
            done[f"{cycle.what} {cycle.how}"] += 1
    churn.settle()
    took = time.monotonic() - began
    healed = time.monotonic()
    eventually("nothing is left over, and all pods are bound or say why", lambda: not _unsettled(kube, slurm, crashing))
    rested = time.monotonic() - healed
    print(
        f"torture: {CYCLES} cycles in {took:.0f} s: {dict(done)}; meanwhile {dict(churn.acts)}; at rest after {rested:.0f} s"
    )
    assert rested <= (REST_S if IS_ALONE else PATIENCE_S)
    eventually(
        "some seconds pass in which the checker judges liveness",
        lambda: time.monotonic() > healed + rested + REST_S + 5,
    )
    assert not _unsettled(kube, slurm, crashing)
    assert not churn.foreign_ended()
    assert "Traceback" not in crashing.log.read_text()
    _judged()
    kube.remove(NS)
    for job in churn.foreign:
        slurm.cancel(job)
    eventually("no job is left", lambda: not slurm.live(f"{NS}/"))


def _unsettled(kube: Kube, slurm: Slurm, bridge: BridgeProcess) -> list[str]:
    if not bridge.runs:
        bridge.launch()
    return unsettled(kube, slurm, NS)


def _judged() -> None:
    """The checker reads the logs of this rig."""
    command = [sys.executable, "-m", "integration.checker", os.environ["RIG_NAME"], "--rest", str(REST_S)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
