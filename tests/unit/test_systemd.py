"""The unit that ships: hardened as docs/install.md says, and with options that the bridge has."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess

import pytest

from bridge import __main__ as command_line
from integration.readme import ROOT

UNIT = ROOT / "manifests" / "systemd" / "slurm-bridge.service"
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def unit() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(UNIT.read_text(encoding="utf-8"))
    return parsed


def test_it_runs_a_command_that_the_bridge_has() -> None:
    program, *arguments = shlex.split(unit()["Service"]["ExecStart"])
    assert program.endswith("/bin/slurm-bridge")
    options = command_line._parser().parse_args(arguments)
    assert options.slurm_token_file == "%d/token"
    assert options.kubeconfig == "%d/kubeconfig"


def test_its_exposure_is_what_the_documentation_says() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze on this machine")
    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", UNIT],
        capture_output=True,
        text=True,
        check=False,
    )
    [found] = re.findall(r"Overall exposure level for slurm-bridge.service: ([\d.]+)", said.stdout)
    [documented] = re.findall(r"its exposure ([\d.]+) of 10", INSTALL)
    assert float(found) <= float(documented)
