"""The unit that ships: hardened as docs/install.md says, and with options that the bridge has."""

from __future__ import annotations

import asyncio
import base64
import configparser
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from bridge import __main__ as command_line
from bridge.kube.auth import load
from integration.readme import ROOT
from tests.unit.kube.certificates import make

UNITS = ROOT / "manifests" / "systemd"
UNIT = UNITS / "slurm-bridge.service"
MINT = UNITS / "slurm-bridge-mint.service"
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def unit(path: Path = UNIT) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str
    parsed.read_string(path.read_text(encoding="utf-8"))
    return parsed


def test_it_runs_a_command_that_the_bridge_has() -> None:
    program, *arguments = shlex.split(unit()["Service"]["ExecStart"])
    assert program.endswith("/bin/slurm-bridge")
    options = command_line._parser().parse_args(arguments)
    assert options.slurm_token_file == "%d/token"
    assert options.kubeconfig == "%d/kubeconfig"


def test_the_mint_is_called_with_options_that_it_has_and_writes_where_it_may() -> None:
    service = unit(MINT)["Service"]
    _, *arguments = shlex.split(service["ExecStart"])
    options = command_line._parser().parse_args(arguments)
    assert options.key == "%d/key"
    assert service["LoadCredential"].startswith("key:")
    assert options.out == f"/run/{service['RuntimeDirectory']}"
    assert options.group == service["Group"], "a file of that group needs no chown, which the unit denies"


@pytest.mark.parametrize("path", [UNIT, MINT], ids=lambda path: path.name)
def test_its_exposure_is_what_the_documentation_says(path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        assert os.environ.get("CI") != "true", "no systemd-analyze here, which .ci/run installs"
        pytest.skip("there is no systemd-analyze on this machine")
    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", path],
        capture_output=True,
        text=True,
        check=False,
    )
    [found] = re.findall(rf"Overall exposure level for {path.name}: ([\d.]+)", said.stdout)
    documented = dict(zip((UNIT, MINT), re.findall(r"its exposure ([\d.]+) of 10", INSTALL), strict=True))
    assert float(found) <= float(documented[path])


KUBECTL = """#!/bin/sh
case "$*" in
    "config view "*cluster.server}*) echo "https://[::1]:6443" ;;
    "config view "*cluster.certificate-authority-data}*) printf %s "$AUTHORITY" ;;
    "create token slurm-bridge --namespace=slurm-bridge --duration=2160h") echo e30.e30.c2lnbmF0dXJl ;;
    "--kubeconfig=kubeconfig auth can-i list pods --all-namespaces") echo yes ;;
    *) exit 1 ;;
esac
"""


@pytest.mark.parametrize("has_authority", [True, False], ids=["own authority", "an authority that the machine knows"])
def test_the_kubeconfig_that_install_md_writes_can_be_used(tmp_path: Path, has_authority: bool) -> None:
    [block] = [block for block in re.findall(r"```sh\n(.*?)```", INSTALL, re.DOTALL) if "> kubeconfig" in block]
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    authority = base64.b64encode(make(tmp_path).authority.read_bytes()).decode() if has_authority else ""
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "AUTHORITY": authority}
    done = subprocess.run(
        ["sh", "-e", "-c", block], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "yes\n", "")
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o777 == 0o600
    access = asyncio.run(load(str(tmp_path / "kubeconfig")))
    assert access.server == "https://[::1]:6443"
    credentials = asyncio.run(access.credentials())
    assert ("Authorization", "Bearer e30.e30.c2lnbmF0dXJl") in credentials.headers
