"""Starting, stopping and finding the rig's daemons.  All of it happens inside the rig's namespaces.

A daemon is found by its command line among the processes of the rig, so one that re-executes itself (slurmctld does, on
`scontrol reconfigure`) is still found, and no pid file can name a stranger.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .shell import RigError, wait

STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program of the rig, as it is started and recognized.

    argv     the whole command; it stays in the foreground
    program  the base name that its process shows
    sign     an argument that tells it from others of that program, or ""
    log      where its output goes
    ready    the condition that says it serves
    seconds  how long that may take
    stop     the signal that ends it
    """

    name: str
    argv: tuple[str, ...]
    program: str
    log: Path
    ready: Callable[[], bool]
    sign: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 60.0
    stop: signal.Signals = signal.SIGTERM


def processes(daemon: Daemon) -> list[int]:
    """The living processes of a daemon, in the rig."""
    return [pid for pid, argv in _commands() if _is(daemon, argv)]


def _is(daemon: Daemon, argv: list[str]) -> bool:
    # "slurmctld: slurmscriptd" is what slurmctld calls its helper.
    program = os.path.basename(argv[0]).split(":")[0]
    return program == daemon.program and (not daemon.sign or daemon.sign in argv)


def _commands() -> list[tuple[int, list[str]]]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                line = (folder / "cmdline").read_bytes().decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
            if line:  # zombies and kernel threads have none
                found.append((int(folder.name), line.rstrip("\0").split("\0")))
    return found


def start(daemon: Daemon) -> None:
    """Start it and wait until it serves.  Raises RigError with the end of its log."""
    if processes(daemon):
        raise RigError(f"{daemon.name} is running already.")
    with daemon.log.open("ab") as log:
        started = subprocess.Popen(
            daemon.argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **daemon.env},
            start_new_session=True,
        )
    deadline = time.monotonic() + daemon.seconds

    def settled() -> bool:
        return started.poll() is not None or daemon.ready()

    try:
        wait(f"{daemon.name} to serve", settled, seconds=deadline - time.monotonic(), log=daemon.log)
    finally:
        code = started.poll()
    if code is not None:
        raise RigError(f"{daemon.name} ended at once, with code {code}.", daemon.log)


def stop(daemon: Daemon, *, how: signal.Signals | None = None) -> None:
    """End it and wait until it is gone; one that does not follow its signal is killed.  Raises RigError."""
    if not processes(daemon):
        raise RigError(f"{daemon.name} is not running.")
    send(daemon, how or daemon.stop)
    send(daemon, signal.SIGCONT)  # a paused one would not hear the first

    def gone() -> bool:
        return not processes(daemon)

    try:
        wait(f"{daemon.name} to end", gone, seconds=STOP_SECONDS)
    except RigError:
        print(f"rig: {daemon.name} did not end within {STOP_SECONDS:.0f} s and is killed", flush=True)
        send(daemon, signal.SIGKILL)
        wait(f"{daemon.name} to end", gone, seconds=STOP_SECONDS)


def send(daemon: Daemon, what: signal.Signals) -> None:
    for pid in processes(daemon):
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself in between
            os.kill(pid, what)
