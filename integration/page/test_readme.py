"""The commands of README, "Try it", as written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from integration import readme
from integration.clusters import eventually
from integration.readme import ROOT, RUNS_ALL_TESTS, Lasting, Terminal

LOOK_HERE = r"^(http://127\.0\.0\.1:\d+/)$(?s:.*)^export KUBECONFIG=(\S+)$"


@pytest.fixture
def terminal(tmp_path: Path, kubectl: str) -> Iterator[Terminal]:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    opened = Terminal(tmp_path, kubectl, {})
    yield opened
    opened.close()


def test_a_newcomer_types_every_line_and_sees_it_work(terminal: Terminal) -> None:
    demo: list[Lasting] = []
    for line in readme.lines_for(__file__):
        if line == "make demo":
            demo.append(terminal.begins(line))
            printed = eventually("it says where to look", lambda: demo[0].says(LOOK_HERE))
            assert "<table" in requests.get(printed[1], timeout=10).text
            terminal.environment["KUBECONFIG"] = printed[2]
        elif line.startswith("kubectl apply "):
            assert terminal.types(line) == "pod/hello created\n"
            asked = "kubectl get pod hello -o jsonpath={.spec.nodeName}"
            eventually("its pod is bound", lambda typed=asked: terminal.types(typed))  # type: ignore[misc]
        elif line.startswith("slurm-bridge dev --headless -o json"):
            assert json.loads(terminal.types(line))["violations"] == 0
        elif line != RUNS_ALL_TESTS:
            terminal.types(line)

    kubeconfig = Path(terminal.environment["KUBECONFIG"])
    assert kubeconfig.exists()
    demo[0].interrupt()
    demo[0].ends()
    assert not kubeconfig.exists(), "Ctrl-C leaves nothing behind"
    assert "Traceback" not in demo[0].log.read_text()
