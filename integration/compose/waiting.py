"""`podman wait` for podman-compose, in the words of Compose: running, stopped or healthy.

Debian 12's podman 4.3 leaves health checks to systemd's timers, which containers often do not have.  So `--condition=healthy`
runs a container's check itself, every second, until it passes.

podman-compose would wait for ever for a container that ended with an error or does not become healthy.  Both end
podman-compose, and the file `failed` of the stack's folder says why.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

PODMAN = Path(__file__).resolve().parent / "podman"
EVERY_S = 1.0
# The limit of docker-compose.yml, not the patience of tests: start_period, its retries, and some more beside other suites.
HEALTHY_WITHIN_S = 180.0
ENDED = ("exited", "stopped")


def main(arguments: list[str]) -> int:
    """Wait until the condition holds for every container that is named."""
    [condition, *names] = arguments
    began = time.monotonic()
    for name in (name for name in names if not name.startswith("-")):
        while not _holds(condition.partition("=")[2], name, late=time.monotonic() > began + HEALTHY_WITHIN_S):
            time.sleep(EVERY_S)  # between two looks
    return 0


def _holds(condition: str, name: str, *, late: bool) -> bool:
    """True if the container's condition holds.  Gives up if it never will, or if it is late for health."""
    if condition == "healthy" and _podman("healthcheck", "run", name).returncode == 0:
        return True
    state = _state(name)
    status: str = state["Status"]
    ended = status in ENDED
    if ended and (state["ExitCode"] != 0 or condition == "healthy"):
        said = _podman("logs", "--tail=5", name)
        _give_up(f"{name} ended with code {state['ExitCode']}, and said:\n{(said.stdout + said.stderr).decode()}")
    if condition == "healthy" and late:
        outputs = [each["Output"].strip() for each in state["Health"]["Log"]]
        _give_up(
            f"{name} is not healthy after {HEALTHY_WITHIN_S:g} s; its check says: {outputs[-1] if outputs else 'nothing'}"
        )
    return {"healthy": False, "stopped": ended, "running": status == "running"}[condition]


def _give_up(why: str) -> NoReturn:
    (Path(os.environ["PODMAN_STATE"]) / "failed").write_text(why)
    os.kill(os.getppid(), signal.SIGTERM)
    sys.exit(why)


def _state(name: str) -> dict[str, Any]:
    asked = _podman("inspect", "--type=container", "--format={{json .State}}", name)
    asked.check_returncode()
    found: dict[str, Any] = json.loads(asked.stdout)
    return found


def _podman(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([PODMAN, *arguments], capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
