"""`slurm-bridge dev` as a user starts it, for tests."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STOP_S = 60


@dataclass(frozen=True)
class Dev:
    """A running one.  said: what it printed before it began."""

    url: str
    kubeconfig: Path
    said: str


@contextmanager
def running(complaints: Path, *options: str) -> Iterator[Dev]:
    """Started and ended as by hand; it must leave nothing behind and complain of nothing.  complaints: a file for them"""
    with complaints.open("wb") as errors:
        command = [sys.executable, "-m", "bridge", "dev", *options]
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
    try:
        yield Dev(url[0].strip(), Path(kubeconfig[1]), said)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=STOP_S)
    assert process.returncode == 0
    assert not Path(kubeconfig[1]).parent.exists(), "the kubeconfig is removed"
    assert complaints.read_text() == ""
