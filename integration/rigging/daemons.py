"""Starting, stopping and finding the rig's daemons.  All of it happens inside the rig's namespaces.

A daemon is found by its command line among the processes of the rig, so a daemon that re-executes itself (slurmctld does, on
`scontrol reconfigure`) is still found, and no pid file can name another process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .shell import SLOW_S, RigError, wait


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program of the rig, as it is started and recognized.

    argv     the whole command; it stays in the foreground
    program  the base name that its process shows
    sign     an argument that distinguishes it from other processes of that program, or ""
    log      where its output goes
    ready    the condition that says it serves
    seconds  how long that may take
    stop     the signal that ends it
    patience how long it may take to end, in seconds, before it is killed
    """

    name: str
    argv: tuple[str, ...]
    program: str
    log: Path
    ready: Callable[[], bool]
    sign: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    seconds: float = SLOW_S
    stop: signal.Signals = signal.SIGTERM
    patience: float = 30.0


def processes(daemon: Daemon) -> list[int]:
    """The living processes of a daemon, in the rig."""
    return [pid for pid, argv in _commands() if _is(daemon, argv)]


def family(daemon: Daemon) -> list[int]:
    """Its processes and all that they have started: a node with its containers."""
    parents: dict[int, list[int]] = {}
    for pid, _ in _commands():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            # After the name, which is in brackets and may hold anything: state, parent.
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(pid)
    found = processes(daemon)
    for pid in found:  # grows while it is walked
        found += [child for child in parents.get(pid, ()) if child not in found]
    return found


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


def _go_settings() -> dict[str, str]:
    """How often programs in Go collect garbage, if the caller says so: the tests let them use more memory and less CPU."""
    return {name: os.environ[name] for name in ("GOGC",) if name in os.environ}


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
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **_go_settings(), **daemon.env},
            start_new_session=True,
        )

    def settled() -> bool:
        return started.poll() is not None or daemon.ready()

    wait(f"{daemon.name} to serve", settled, seconds=daemon.seconds, log=daemon.log)
    if (code := started.poll()) is not None:
        raise RigError(f"{daemon.name} ended at once, with code {code}.", daemon.log)


def stop(daemon: Daemon, *, how: signal.Signals | None = None) -> None:
    """End it and wait until it is gone; it is killed if it does not follow its signal.  Raises RigError."""
    if not processes(daemon):
        raise RigError(f"{daemon.name} is not running.")
    send(processes(daemon), how or daemon.stop)
    send(family(daemon), signal.SIGCONT)  # a paused one would not hear the first

    def gone() -> bool:
        return not processes(daemon)

    try:
        wait(f"{daemon.name} to end", gone, seconds=daemon.patience)
    except RigError:
        print(f"rig: {daemon.name} did not end within {daemon.patience:.0f} s and is killed", flush=True)
        send(processes(daemon), signal.SIGKILL)
        wait(f"{daemon.name} to end", gone, seconds=SLOW_S)


def pause(daemon: Daemon) -> None:
    """Freeze it, with all that it has started, as a machine that hangs."""
    send(_running(daemon), signal.SIGSTOP)


def resume(daemon: Daemon) -> None:
    """Let it go on."""
    send(_running(daemon), signal.SIGCONT)


def _running(daemon: Daemon) -> list[int]:
    found = family(daemon)
    if not found:
        raise RigError(f"{daemon.name} is not running.")
    return found


def send(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself in between
            os.kill(pid, what)
