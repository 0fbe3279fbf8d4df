"""`slurm-bridge dev` as a user starts it, and the programs that a user looks at it with."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.browser import Tab, browser
from integration.rigging import places

STOP_S = 60


@dataclass(frozen=True)
class Dev:
    """A running one.  said: what it printed before it began."""

    url: str
    kubeconfig: Path
    said: str


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """Started and ended as by hand; it must leave nothing behind and complain of nothing."""
    complaints = tmp_path_factory.mktemp("dev") / "stderr"
    with complaints.open("wb") as errors:
        command = [sys.executable, "-m", "bridge", "dev", "--seed", "3"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "Ctrl-C" in line:
            break
    url = re.match(r"http://127\.0\.0\.1:\d+/\n", said)
    kubeconfig = re.search(r"^export KUBECONFIG=(\S+)$", said, re.MULTILINE)
    assert url, f"it begins with its URL: {said!r} {complaints.read_text()}"
    assert kubeconfig, f"it names a kubeconfig: {said!r}"
    yield Dev(url[0].strip(), Path(kubeconfig[1]), said)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=STOP_S)
    assert process.returncode == 0
    assert not Path(kubeconfig[1]).parent.exists(), "the kubeconfig is removed"
    assert complaints.read_text() == ""


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    """A browser; its console must have nothing to complain of."""
    async with browser() as opened:
        yield opened
        assert opened.errors == []


@pytest.fixture(scope="session")
def kubectl() -> str:
    """The one that the rig was built with, else the machine's."""
    found = places.kubectl()
    assert found, "there is no kubectl: integration/rig build makes one"
    return found
