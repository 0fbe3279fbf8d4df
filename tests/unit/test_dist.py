"""What `make dist` builds is whole: the wheel, installed where nothing else is, runs."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from integration.readme import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment that holds the wheel and nothing else."""
    place = tmp_path_factory.mktemp("empty") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    [wheel] = built.glob("*.whl")
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        place / "bin" / "python",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        wheel,
    )
    return place / "bin"


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_there_are_an_sdist_and_a_wheel(built: Path) -> None:
    assert [len(list(built.glob(each))) for each in ("*.tar.gz", "*-py3-none-any.whl")] == [1, 1]


def test_its_command_line_needs_no_dependency(installed: Path, tmp_path: Path) -> None:
    assert "usage: slurm-bridge" in run(installed / "slurm-bridge", "--help", cwd=tmp_path)
    assert run(installed / "slurm-bridge", "--version", cwd=tmp_path).startswith("slurm-bridge ")


def test_with_its_dependencies_it_schedules(installed: Path, tmp_path: Path) -> None:
    """The dependencies are those of the environment of the tests, without the checkout itself."""
    said = run(
        installed / "slurm-bridge", "dev", "--headless", "-o", "json", "--pods", "1",
        cwd=tmp_path, PYTHONPATH=sysconfig.get_path("purelib"),
    )  # fmt: skip
    assert json.loads(said)["bound"] == 1
