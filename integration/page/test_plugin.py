"""kubectl finds the plugin in PATH, runs its commands on `slurm-bridge dev`, and completes the names of pods by it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from integration.clusters import eventually
from integration.demo import Dev
from integration.plugin import environment, installed
from tests.patience import PATIENCE_S


@pytest.fixture
def run(dev: Dev, kubectl: str, tmp_path: Path) -> object:
    """Runs kubectl with the two programs in PATH, as an installation of the package puts them there."""
    installed(tmp_path)
    as_user = environment(tmp_path, dev.kubeconfig, {"SLURM_BRIDGE_URL": dev.url})

    def asked(*arguments: str) -> str:
        command = [kubectl, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=as_user)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return asked


def test_kubectl_runs_the_plugin_and_completes_by_it(run: object) -> None:
    assert callable(run)
    run("run", "kept", "-n", "hpc", "--image=any", "--restart=Never", "--", "sleep", "3600")
    eventually(
        "it runs",
        lambda: [each for each in json.loads(run("slurm", "queue", "-n", "hpc", "-o", "json"))
                 if (each["pod"], each["state"]) == ("kept", "Running")],
    )  # fmt: skip
    assert "kept" not in run("slurm", "history", "-n", "hpc"), "it has not ended"
    assert "container kept" in run("slurm", "trace", "kept", "-n", "hpc")
    assert "hpc/kept" in run("slurm", "why", "kept", "-n", "hpc")
    # Equal nodes share a row; the demo's load changes.
    rows = [line.split() for line in run("slurm", "nodes").splitlines()[1:]]
    assert sum(int(row[1]) for row in rows) == 4
    assert all(row[0].startswith("x") and row[2] == "Ready" for row in rows)
    assert "main*" in run("slurm", "free")
    assert "kept" in run("__complete", "slurm", "why", "-n", "hpc", "").splitlines()
