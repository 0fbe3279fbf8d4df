"""`slurm-bridge dev` from the terminal: plain kubectl works on it, and the headless run says what a machine wants to know."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.clusters import eventually
from integration.demo import Dev
from tests.patience import PATIENCE_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "pod.yaml"


class Kubectl:
    """kubectl with the kubeconfig that was printed."""

    def __init__(self, program: str, kubeconfig: Path) -> None:
        self._command = [program, "--kubeconfig", str(kubeconfig)]

    def __call__(self, *arguments: str, check: bool = True, stdin: str = "") -> str:
        done = subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (done.returncode == 0) is check, done.stdout + done.stderr
        return done.stdout + done.stderr

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*self._command, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def user(dev: Dev, kubectl: str) -> Kubectl:
    return Kubectl(kubectl, dev.kubeconfig)


def test_the_kubeconfig_is_its_owners_alone(dev: Dev) -> None:
    assert stat.S_IMODE(dev.kubeconfig.stat().st_mode) == 0o600
    assert f"apply -f {os.path.relpath(EXAMPLE)}" in dev.said


def test_kubectl_applies_a_pod_sees_it_run_and_deletes_it(user: Kubectl) -> None:
    with user.begin("get", "pods", "-w", "-o", "wide") as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline().split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert user("apply", "-f", str(EXAMPLE)) == "pod/hello created\n"
        row = next(line.split() for line in watch.stdout if line.startswith("hello ") and "Running" in line)
        watch.terminate()
    assert row[1] == "1/1"
    [node] = user("get", "pod", "hello", "-o", "jsonpath={.spec.nodeName}").split()
    assert node in row
    described = user("describe", "pod", "hello")
    assert "slurm-bridge/job-id:" in described
    assert user("apply", "-f", str(EXAMPLE)) == "pod/hello unchanged\n"
    edited = EXAMPLE.read_text().replace("my first one", "my second one")
    assert user("apply", "-f", "-", stdin=edited) == "pod/hello configured\n"
    assert "deleted" in user("delete", "pod", "hello")
    assert "NotFound" in user("get", "pod", "hello", check=False)


def test_kubectl_shows_a_misspelt_field(user: Kubectl) -> None:
    misspelt = EXAMPLE.read_text().replace("hello", "typo").replace("containers:", "contianers:")
    assert 'unknown field "spec.contianers"' in user("apply", "-f", "-", check=False, stdin=misspelt)


def test_kubectl_shows_nodes_and_a_replica_set_that_is_scaled_by_apply(user: Kubectl) -> None:
    nodes = [line.split()[:2] for line in user("get", "nodes", "--no-headers").splitlines()]
    assert nodes == [[f"x{number}", "Ready"] for number in range(1, 5)]
    eventually("the service runs", lambda: user("get", "pods", "-l", "app=serve").count("Running") == 2)
    assert user("get", "rs", "serve", "--no-headers").split()[:3] == ["serve", "2", "2"]


def test_a_pod_of_another_scheduler_is_left_alone(user: Kubectl) -> None:
    other = (
        EXAMPLE.read_text().replace("hello", "not-ours").replace("schedulerName: slurm-bridge", "schedulerName: other")
    )
    user("apply", "-f", "-", stdin=other)
    eventually("ours come and go meanwhile", lambda: "Completed" in user("get", "pods"), within_s=PATIENCE_S)
    said = json.loads(user("get", "pod", "not-ours", "-o", "json"))
    assert said["spec"]["schedulerName"] == "other"
    assert "nodeName" not in said["spec"]
    user("delete", "pod", "not-ours")


# --- our own commands on it ---------------------------------------------------------------------------------------


def looks(dev: Dev, what: str, *arguments: str) -> str:
    """`doctor` or `explain` with the settings that it printed, and nothing of this shell's."""
    printed = re.search(rf"^  (?:\S*/)?slurm-bridge {what} .*--config (\S+)$", dev.said, re.MULTILINE)
    assert printed, dev.said
    command = [sys.executable, "-m", "bridge", what, *arguments, "--config", printed[1]]
    environment = {name: value for name, value in os.environ.items() if name not in ("SLURM_JWT", "KUBECONFIG")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def test_doctor_has_nothing_to_say_against_the_demo(dev: Dev) -> None:
    output = looks(dev, "doctor")
    assert "Nothing to do" in output
    assert f"the bridge at {dev.url.removeprefix('http://').rstrip('/')} is ready" in output


def test_explain_asks_the_bridge_of_the_demo(dev: Dev, user: Kubectl) -> None:
    eventually("the service runs", lambda: user("get", "pods", "-l", "app=serve").count("Running") == 2)
    name = user("get", "pods", "-l", "app=serve", "-o", "jsonpath={.items[0].metadata.name}")
    output = looks(dev, "explain", f"hpc/{name}")
    assert "for Slurm job" in output
    assert f"pod hpc/{name} created" in output
    assert "No bridge answers" not in output


def test_release_asks_the_bridge_of_the_demo(dev: Dev) -> None:
    command = [sys.executable, "-m", "bridge", "release", "--config", str(dev.kubeconfig.parent / "settings.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Nothing is held back.\n", "")


def test_the_token_of_the_demo_is_its_owners_alone_and_nowhere_else(dev: Dev) -> None:
    folder = dev.kubeconfig.parent
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    token = (folder / "token").read_text()
    assert token not in dev.said
    assert token not in (folder / "settings.yaml").read_text()


# --- headless -----------------------------------------------------------------------------------------------------


def headless(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bridge", "dev", "--headless", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "SLURM_JWT"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def test_the_headless_run_is_one_json_object() -> None:
    done = headless("-o", "json", "--pods", "12", "--seed", "5")
    assert (done.returncode, done.stderr) == (0, "")
    output: dict[str, Any] = json.loads(done.stdout)
    assert [output[key] for key in ("pods", "bound", "ended", "failed", "violations")] == [12, 12, 12, 0, 0]
    for invariant in ("V1", "V2", "V3", "V5", "V8"):
        assert output["checked"][invariant] >= 12
    at_once, every = output["create_to_bind_ms"]["at_once"], output["create_to_bind_ms"]["all"]
    assert every["n"] == 12
    assert 0 < at_once["n"] < 12, "some had to wait in Slurm's queue"
    assert 0 < at_once["p50"] <= at_once["p90"] <= at_once["p99"] <= at_once["max"] < every["max"]


def test_the_headless_run_prints_a_story() -> None:
    done = headless("--pods", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 of 2 pods bound, 0 failed; all invariants held" in done.stdout
    assert "one of its jobs is cancelled in Slurm" in done.stdout
    assert "bound to x1, Slurm job 1" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--slurm-url", "http://127.0.0.1:1"), "no Slurm token is named. Name a file with --slurm-token-file"),
        (("--slurm-url", "http://far.example"), "unencrypted"),
        (("--kubeconfig", "/nowhere/kubeconfig"), "/nowhere/kubeconfig"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], said: str) -> None:
    done = headless(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("slurm-bridge: ")
    assert said in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_ends_it_as_well_and_it_leaves_nothing_behind(number: signal.Signals) -> None:
    heard = ["env", "--default-signal=HUP"]  # under nohup the signal is ignored, and the command would inherit that
    command = [*heard, sys.executable, "-m", "bridge", "dev"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        export = next(line for line in process.stdout if line.startswith("export KUBECONFIG="))
        folder = Path(export.strip().partition("=")[2]).parent
        assert folder.exists()
        process.send_signal(number)
        process.send_signal(number)  # a shell that is hung up signals its jobs once more
        try:
            _, complaints = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, complaints) == (0, "")
    assert not folder.exists()


def test_a_port_that_is_taken_is_one_line(dev: Dev) -> None:
    port = dev.url.rstrip("/").rpartition(":")[2]
    command = [sys.executable, "-m", "bridge", "dev", "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert done.stderr == f"slurm-bridge: port {port}: Address already in use. Choose another one with --port.\n"
