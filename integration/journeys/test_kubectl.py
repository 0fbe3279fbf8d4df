"""The kubectl commands that people use most do the same on `slurm-bridge dev` as on a real API server, up to named limits."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.clusters import IMAGE, BridgeProcess, Kube, Slurm, eventually
from integration.clusters import kubectl as as_admin
from integration.demo import running
from integration.kubectl_commands import COMMANDS, Command
from integration.rigging import places
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
INTERCEPT = ROOT / "manifests" / "admission" / "intercept.yaml"
SPACE = "alice-kubectl"  # a namespace of alice's, by the policy of the journeys
SETTINGS = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  a: b\n"
LIST = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: listed}}\n"


@dataclass(frozen=True)
class Output:
    """The result of a command.  output: both streams, without the parts that differ between any two clusters"""

    code: int
    output: str


class Kubectl:
    """kubectl as a person calls it, in one namespace of one cluster."""

    def __init__(self, kubeconfig: str, space: str, folder: Path) -> None:
        self._kubeconfig, self._space, self._folder = kubeconfig, space, folder
        folder.mkdir()
        pod = (ROOT / "examples" / "pod.yaml").read_text()
        (folder / "pod.yaml").write_text(pod)
        (folder / "misspelt.yaml").write_text(pod.replace("containers:", "contianers:"))
        (folder / "settings.yaml").write_text(SETTINGS)
        (folder / "list.yaml").write_text(LIST)
        self.node = ""

    def __call__(self, line: str) -> Output:
        filled = line.format(image=IMAGE, node=self.node, folder=self._folder, space=self._space)
        ends = ["--kubeconfig", self._kubeconfig, "--namespace", self._space]
        command = [str(places.kubectl()), *ends, *shlex.split(filled)]
        environment = os.environ | {"EDITOR": "true", "KUBECACHEDIR": str(self._folder / "cache")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
        return Output(done.returncode, self._normal(done.stdout + done.stderr))

    def _normal(self, text: str) -> str:
        for what, shown in (
            (r"\x1b\[[0-9;]*m", ""),
            # `kubectl wait` may log that its own watch ended when it was done.
            (r'(?m)^E\d{4} .* "Failed to watch" .*: context canceled" .*\n', ""),
            (re.escape(str(self._folder)), "FOLDER"),
            (rf"\b{re.escape(self._space)}\b", "SPACE"),
            (rf"\b{re.escape(self.node)}\b" if self.node else r"(?!)", "NODE"),
            (r"https?://\S+(?=\n)", "URL"),
            (r"\b\d+/\d+\b", "N/M"),  # kwok's pods have no container statuses
            (r"(?<= )(\d+[smhd])+\b", "AGE"),
            (r" +", " "),
        ):
            text = re.sub(what, shown, text)
        return text

    def find_node(self) -> None:
        """The node of pod `one` is {node} from now on."""
        self.node = self("get pod one -o jsonpath='{{.spec.nodeName}}'").output.strip()


def _all(kubectl: Kubectl, is_run: Callable[[Command], bool]) -> dict[int, Output]:
    """The result of each command, by its place in COMMANDS."""
    found = {}
    for place, command in enumerate(COMMANDS):
        if not is_run(command):
            continue
        found[place] = kubectl(command.line)
        if command.line.startswith("wait --for=condition=Ready"):
            kubectl.find_node()
    return found


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Output]:
    """The result of each command on the simulated API server."""
    folder = tmp_path_factory.mktemp("dev")
    with running(folder / "stderr", "--seed", "3", "--pods", "1") as started:
        return _all(Kubectl(str(started.kubeconfig), "hpc", folder / "files"), lambda _command: True)


@pytest.fixture(scope="module")
def real(
    bridge: BridgeProcess, kube: Kube, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, Output]]:
    """The same on a real API server where the bridge is installed with its policy, but for commands that `dev` refuses."""
    as_admin("apply", "-f", str(INTERCEPT))
    kube.namespace(SPACE)
    user = Kubectl(kube.kubeconfig, SPACE, tmp_path_factory.mktemp("real") / "files")
    named = "run probe --image={image} --dry-run=server -o jsonpath={{.spec.schedulerName}}"
    eventually("the policy is in force", lambda: user(named).output == "slurm-bridge")
    try:
        yield _all(user, lambda command: not command.refused)
    finally:
        kube.remove(SPACE)
        as_admin("delete", "-f", str(INTERCEPT))
        eventually("no job is left", lambda: not slurm.live(f"{SPACE}/"))


def _called(place: int) -> str:
    return f"{place:02d} {COMMANDS[place].line}"


@pytest.mark.parametrize("place", [n for n, each in enumerate(COMMANDS) if not each.refused], ids=_called)
def test_a_command_does_the_same(place: int, dev: dict[int, Output], real: dict[int, Output]) -> None:
    command, here, there = COMMANDS[place], dev[place], real[place]
    if command.limit:
        warning = f"Warning: {command.limit}\n"
        assert warning in here.output
        here = Output(here.code, here.output.replace(warning, ""))
    assert (here.code, command.shown(here.output)) == (there.code, command.shown(there.output))


@pytest.mark.parametrize("place", [n for n, each in enumerate(COMMANDS) if each.refused], ids=_called)
def test_a_command_is_refused_in_a_sentence(place: int, dev: dict[int, Output]) -> None:
    found = dev[place]
    assert found.code == 1, found.output
    assert COMMANDS[place].limit in found.output
