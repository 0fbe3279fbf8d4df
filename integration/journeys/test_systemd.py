"""The units of manifests/systemd under a real systemd, with the files that their comments name, between real clusters."""

from __future__ import annotations

import base64
import itertools
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from integration import own_account
from integration.clusters import Kube, Slurm, eventually, free_port, kubectl
from integration.journeys.conftest import POLICY
from integration.journeys.test_installed_mint import READER, on_slurmctlds_host
from integration.readme import ROOT
from integration.systemd_host import DEPENDENCIES, PYTHON, Host, host

pytestmark = pytest.mark.usefixtures("no_bridge", "own_rig")
UNITS = ROOT / "manifests" / "systemd"
UNIT, MINT = "slurm-bridge.service", "slurm-bridge-mint.service"
ETC, OPT = "/etc/slurm-bridge", "/opt/slurm-bridge"
GROUP = "slurm-bridge-tokens"
NUMBERS = itertools.count(1)
# What the mint's unit says of `systemctl edit slurm-bridge`.
DROP_IN = re.findall(r"^#     (\[.*|\w+=.*)$", (UNITS / MINT).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with the wheel in /opt/slurm-bridge and both units, none of which has started."""
    folder = tmp_path_factory.mktemp("machine")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist"], cwd=ROOT, check=True
    )
    [wheel] = (folder / "dist").iterdir()
    (folder / "root").mkdir()
    with host(folder / "root") as started:
        python = f"{PYTHON}/bin/python3"
        started.run(python, "-m", "venv", "--without-pip", OPT)
        started.install(wheel.read_bytes(), f"/opt/{wheel.name}")
        pip = ("env", f"PYTHONPATH={DEPENDENCIES}", python, "-m", "pip", "--python", f"{OPT}/bin/python", "install")
        started.run(*pip, "--quiet", "--no-index", "--no-deps", f"/opt/{wheel.name}")
        [site] = started.run("sh", "-c", f"ls -d {OPT}/lib/python3*/site-packages").split()
        started.install(f"{DEPENDENCIES}\n", f"{site}/dependencies.pth")
        for unit in (UNIT, MINT):
            started.install((UNITS / unit).read_bytes(), f"/etc/systemd/system/{unit}")
        started.run("systemctl", "daemon-reload")
        yield started


@pytest.fixture(scope="module")
def kubeconfig(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The kubeconfig of the bridge's own account, in which no file is named: ProtectHome hides root's."""
    path, ends = tmp_path_factory.mktemp("account") / "kubeconfig", kube.api.configuration
    own_account.write_kubeconfig(kubectl, ends.host, ends.ssl_ca_cert, path)
    content = yaml.safe_load(path.read_text())
    cluster = content["clusters"][0]["cluster"]
    authority = Path(cluster.pop("certificate-authority")).read_bytes()
    cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    yield yaml.safe_dump(content)
    own_account.only_where_bound(kubectl)


@pytest.fixture
def port(machine: Host, kubeconfig: str, slurm: Slurm) -> Iterator[int]:
    """The files of the unit's comment are there.  Returns the port of `http`.  Afterwards nothing runs."""
    listens, machine.since = free_port(), time.time()
    settings(machine, slurm, listens)
    machine.install(Path(slurm.token_file).read_bytes(), f"{ETC}/token", "0600")
    machine.install(kubeconfig, f"{ETC}/kubeconfig", "0600")
    yield listens
    machine.run("systemctl", "stop", UNIT, MINT)
    machine.run("systemctl", "reset-failed", codes=(0, 1))


def settings(machine: Host, slurm: Slurm, port: int, **changed: object) -> None:
    written = {"slurm_url": slurm.url, "policy": POLICY, "http": f"127.0.0.1:{port}"} | changed
    machine.install(yaml.safe_dump(written), f"{ETC}/settings.yaml")


def is_active(machine: Host, unit: str = UNIT) -> str:
    return machine.run("systemctl", "is-active", unit, codes=(0, 3)).strip()


def schedules(kube: Kube, slurm: Slurm) -> None:
    """A pod is bound to a node of Slurm, and its job ends with it."""
    name = f"alice-systemd-{next(NUMBERS)}"
    kube.namespace(name)
    kube.run(name, "train")
    eventually("it is bound", lambda: kube.bound(name))
    kube.remove(name)
    eventually("its job has ended", lambda: not slurm.live(f"{name}/"))


def test_the_start_returns_when_the_bridge_is_ready_and_the_stop_is_clean(
    machine: Host, port: int, kube: Kube, slurm: Slurm
) -> None:
    machine.run("systemctl", "start", UNIT)
    assert is_active(machine) == "active"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
        assert answer.read() == b"ok\n", "READY was no promise"
    schedules(kube, slurm)
    main = machine.show(UNIT, "MainPID")
    machine.run("systemctl", "stop", UNIT)
    assert is_active(machine) == "inactive"
    assert [machine.show(UNIT, what) for what in ("Result", "ExecMainStatus", "NRestarts")] == ["success", "0", "0"]
    said = machine.journal(UNIT)
    assert "Traceback" not in said
    assert Path(slurm.token_file).read_text().strip() not in said
    machine.run("test", "!", "-e", f"/proc/{main}")


def test_it_runs_as_a_dynamic_user_without_rights_and_its_credentials_are_its_own(machine: Host, port: int) -> None:
    machine.run("systemctl", "start", UNIT)
    main = machine.show(UNIT, "MainPID")
    status = dict(line.split(":", 1) for line in machine.run("cat", f"/proc/{main}/status").splitlines())
    user = status["Uid"].split()[0]
    assert 61184 <= int(user) <= 65519, "the range of dynamic users: systemd.exec(5)"
    assert (status["CapEff"].strip("\t0"), status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("", "1", "2")
    assert machine.run("getent", "passwd", user, codes=(0, 2)).split(":")[:1] in (["slurm-bridge"], [""])
    folder = f"/run/credentials/{UNIT}"
    assert machine.run("stat", "--format=%a", f"{folder}/token").strip() in ("400", "440")
    for path in (f"{folder}/token", f"{ETC}/token", f"{ETC}/kubeconfig"):
        machine.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", path, codes=(1,))
    token = machine.run("cat", f"{ETC}/token").strip()
    shown = machine.run("cat", f"/proc/{main}/environ", f"/proc/{main}/cmdline")
    assert token not in shown


def test_until_slurm_answers_the_unit_is_activating(machine: Host, port: int, slurm: Slurm) -> None:
    settings(machine, slurm, port, slurm_url=f"http://127.0.0.1:{free_port()}")
    machine.run("systemctl", "start", "--no-block", UNIT)
    eventually("it waits for Slurm", lambda: "waiting for Slurm" in machine.journal(UNIT))
    assert is_active(machine) == "activating"


def test_a_mistake_in_the_settings_is_its_last_word_and_it_is_not_started_again(
    machine: Host, port: int, slurm: Slurm
) -> None:
    settings(machine, slurm, port, log_level="loud")
    machine.run("systemctl", "start", UNIT, codes=(1,))
    assert is_active(machine) == "failed"
    assert [machine.show(UNIT, what) for what in ("ExecMainStatus", "NRestarts")] == ["2", "0"]
    assert "log_level" in machine.journal(UNIT)


def test_a_killed_bridge_is_started_again(machine: Host, port: int) -> None:
    machine.run("systemctl", "start", UNIT)
    machine.run("systemctl", "kill", "--signal=SIGKILL", UNIT)
    eventually("it is started again", lambda: machine.show(UNIT, "NRestarts") == "1")
    eventually("it is ready", lambda: is_active(machine) == "active")


def test_the_mint_makes_the_tokens_that_the_bridge_runs_with(
    machine: Host, port: int, kube: Kube, slurm: Slurm
) -> None:
    """As the comments of the mint's unit say.  The bridge has no token of its own then."""
    settings(machine, slurm, port, slurm_user_token_dir=f"/run/{GROUP}")
    machine.run("useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin", GROUP, codes=(0, 9))
    machine.install("alice\nbob\n", f"{ETC}/users")
    key = Path(os.environ["RIG_STATE"], "slurm", "etc", "jwt_hs256.key").read_bytes()
    machine.install(key, "/etc/slurm/jwt_hs256.key", "0600")
    machine.run("rm", f"{ETC}/token")
    edited = f"/etc/systemd/system/{UNIT}.d"
    machine.install("\n".join(DROP_IN), f"{edited}/override.conf")
    machine.run("systemctl", "daemon-reload")
    on_slurmctlds_host("useradd", "--system", READER)
    try:
        machine.run("systemctl", "start", UNIT)
        assert [is_active(machine, each) for each in (UNIT, MINT)] == ["active", "active"]
        schedules(kube, slurm)
        made = machine.run("stat", "--format=%n %U %a", *(f"/run/{GROUP}/{user}" for user in (READER, "alice", "bob")))
        assert {line.split(maxsplit=1)[1] for line in made.splitlines()} == {f"{GROUP} 640"}
        folder = f"/run/credentials/{UNIT}"
        assert machine.run("ls", folder).split() == ["kubeconfig"]
        for unit in (UNIT, MINT):
            assert "Traceback" not in machine.journal(unit)
        machine.run("systemctl", "stop", UNIT, MINT)
        assert [machine.show(each, "Result") for each in (UNIT, MINT)] == ["success", "success"]
    finally:
        on_slurmctlds_host("userdel", READER)
        machine.run("rm", "-r", edited)
        machine.run("systemctl", "daemon-reload")
