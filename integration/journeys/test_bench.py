"""The benchmark measures: one tiny repeat of what is short, so that it does not rot.  What it measures is not judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from integration.bench.figures import Measured

pytestmark = pytest.mark.usefixtures("no_bridge")


def measured(folder: Path, scenario: str, *arguments: str) -> dict[str, float]:
    """Value by figure."""
    out = folder / "figures.json"
    command = (sys.executable, "-m", "integration.bench.inside", scenario, str(out), "--brief", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = msgspec.json.decode(out.read_bytes(), type=Measured).figures
    return {figure.name: figure.values[0] for figure in figures}


@pytest.mark.usefixtures("own_rig")
def test_pods_one_by_one_are_timed(tmp_path: Path) -> None:
    found = measured(tmp_path, "one", "--pods", "5")
    assert 0 < found["create → bind, p50"] <= found["create → bind, max"] < 30_000
    assert found["bridge: CPU a pod"] > 0


@pytest.mark.usefixtures("own_rig")
def test_the_relay_the_audit_log_and_the_bridge_count_the_same(tmp_path: Path) -> None:
    found = measured(tmp_path, "burst", "--pods", "20") | measured(tmp_path, "burst", "--pods", "20", "--counted")
    assert found["pods bound a second"] > 0
    assert found["pod writes a pod"] >= 1  # its binding
    assert found["Slurm calls a pod"] >= 2  # allocate, and what was granted
    assert found["calls missing in /metrics"] == 0


@pytest.mark.usefixtures("own_rig")
def test_bursts_with_and_without_metrics_and_traces_are_compared(tmp_path: Path) -> None:
    found = measured(tmp_path, "metered", "--pods", "20")
    assert found["pods bound a second, with metrics"] > 0
    assert found["pods bound a second, also with traces"] > 0


@pytest.mark.usefixtures("own_rig")
def test_ends_are_followed_both_ways(tmp_path: Path) -> None:
    found = measured(tmp_path, "ends", "--pods", "100")
    for what in ("pod end → job end, p50", "job end → deletion, p50", "200 jobs end a second: p50"):
        assert 0 < found[what] < 30
    assert 0 < found["polls a second"] <= 2
    assert 50 < found["a poll, for each job"] < 120


def test_help_is_timed(tmp_path: Path) -> None:
    assert 0 < measured(tmp_path, "help")["slurm-bridge --help"] < 30
