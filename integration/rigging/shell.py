"""Running programs, waiting for conditions, and failing in a sentence."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# How long a daemon may take to serve, or to be gone once it is killed: killing and starting an API server took up to a minute
# on two cores at a load of 40.
SLOW_S = 180.0


class RigError(Exception):
    """Something a person has to know: what went wrong, where, what to do, and the end of the log that says more."""

    def __init__(self, sentence: str, log: Path | None = None) -> None:
        super().__init__(sentence if log is None else f"{sentence}\n{tail(log)}\n(the whole of it: {log})")


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, indented."""
    try:
        text = log.read_text(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return "    (no log was written)"
    return "\n".join(f"    {line}" for line in text) or "    (the log is empty)"


def logged(
    what: str, log: Path, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> None:
    """Run a program to its end, its output appended to a log.  Raises RigError with the end of the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=cwd, check=False
        )
    if done.returncode != 0:
        raise RigError(f"{what} failed: {Path(argv[0]).name} ended with code {done.returncode}.", log)


def output(
    what: str, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a program to its end for what it prints.  Raises RigError with what it complained of."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, cwd=cwd, check=False)
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).strip()
        raise RigError(f"{what} failed: {Path(argv[0]).name} ended with code {done.returncode}: {complaint}")
    return done.stdout


def wait(what: str, condition: Callable[[], bool], *, seconds: float, log: Path | None = None) -> None:
    """Look every few milliseconds until the condition holds.  Raises RigError when it does not in that time."""
    deadline = time.monotonic() + seconds
    pause = 0.01
    while True:
        began = time.monotonic()
        if condition():
            return
        if began > deadline:
            raise RigError(f"Waited {seconds:.0f} s in vain: {what}.", log)
        # A look that costs much is taken rarely.
        time.sleep(max(pause, 4 * (time.monotonic() - began)))
        pause = min(pause * 1.5, 0.1)
