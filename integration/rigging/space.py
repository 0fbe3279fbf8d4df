"""The namespaces of a rig, and the process that holds them.

The holder is process 1 of the rig's PID namespace.  It is found by what it is (process 1 of some namespace, with our own
command line that names the rig's folder), not by a number in a file: that cannot go stale, and it works if the program that
started it was killed in between.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from . import places
from .places import Rig
from .shell import SLOW_S, RigError, output, wait

HOLD = "--hold"
NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc")


def holder(rig: Rig) -> int | None:
    """The process that holds the rig's namespaces, or None: the rig is down."""
    for process in _named(rig):
        try:
            status = _status(process)
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        numbers = status["NSpid"].split()  # its number in our PID namespace, and in each below
        if len(numbers) > 1 and numbers[-1] == "1" and not status["State"].startswith("Z"):
            return int(process.name)
    return None


def _named(rig: Rig) -> list[Path]:
    """The holder and its parent, by their command lines."""
    return [folder for folder in Path("/proc").iterdir() if folder.name.isdecimal() and _names(folder, rig)]


def _names(process: Path, rig: Rig) -> bool:
    """True if the command line is that of the rig's holder, or of its parent."""
    try:
        return (process / "cmdline").read_bytes().split(b"\0")[-3:-1] == [HOLD.encode(), os.fsencode(rig.state)]
    except (FileNotFoundError, ProcessLookupError):
        return False  # ended meanwhile


def _status(process: Path) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)


def make(rig: Rig) -> None:
    """Start the holder and wait until it has furnished the namespaces.  Raises RigError."""
    # `slave`: what the machine unmounts later goes in here too, and nothing mounted here comes out.
    unshare = ["unshare", *NAMESPACES, "--propagation", "slave", "--fork", "--kill-child", "--mount-proc", "--"]
    log = rig.log / "holder.log"
    with log.open("wb") as complaints:
        started = subprocess.Popen(
            [*unshare, sys.executable, places.ENTRY, HOLD, rig.state],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # so that Ctrl-C is for us to handle
        )
    assert started.stdout is not None
    if started.stdout.readline() != b"ready\n":
        started.kill()
        started.wait()
        raise RigError(f"The namespaces of rig {rig.name} could not be made.", log)


def hold(rig: Rig) -> None:
    """Be process 1 of the rig: furnish the namespaces, then wait to be killed."""
    _network(rig)
    socket.sethostname(places.HOST)
    _slurm_root(rig)
    # Whatever is orphaned in here becomes our child; nobody is to stay a zombie, or it would look alive.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    while True:
        signal.pause()


def _network(rig: Rig) -> None:
    options = rig.read_options()
    addresses = [places.OWN_ADDRESS, places.API_SERVICE]
    addresses += [places.kubelet_address(i + 1) for i in range(len(options.kubelets))]
    addresses += [places.slurmd_address(i + 1) for i in range(options.slurmd)]
    lines = ["link set lo up", *(f"addr add {address}/32 dev lo" for address in addresses)]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True, stdout=sys.stderr)


def _slurm_root(rig: Rig) -> None:
    """Mount the cached Slurm folder with a writable layer of our own over it, and the rig's state in it as /rig."""
    layer = rig.state / "layer"
    layer.mkdir()
    rig.root.mkdir()
    # In memory: little is written there, and an overlay may not lie on another, which a container's disk often is.
    _mount("-t", "tmpfs", "-o", "mode=755", "layer", layer)
    (layer / "upper").mkdir()
    (layer / "work").mkdir()
    over = f"lowerdir={places.slurm_root()},upperdir={layer}/upper,workdir={layer}/work"
    _mount("-t", "overlay", "-o", over, "slurm", rig.root)
    _mount("-t", "proc", "proc", rig.root / "proc")
    _mount("--bind", "/dev", rig.root / "dev")
    (rig.root / "rig").mkdir()
    _mount("--bind", rig.slurm, rig.root / "rig")


def _mount(*arguments: str | Path) -> None:
    output("Mounting", ["mount", *arguments])


def inside(rig: Rig, *arguments: str) -> int:
    """Run this program again inside the rig's namespaces.  Returns its exit code."""
    return subprocess.run(
        [*_enter(rig, NAMESPACES), sys.executable, str(places.ENTRY), "--inside", rig.name, *arguments], check=False
    ).returncode


def network_of(rig: Rig, argv: Sequence[str]) -> list[str]:
    """The command that runs one in the rig's network namespace alone, with this machine's files and processes."""
    return [*_enter(rig, ["--net"]), *argv]


def _enter(rig: Rig, namespaces: Sequence[str]) -> list[str]:
    first = holder(rig)
    if first is None:
        raise RigError(f"Rig {rig.name} is not up: integration/rig up --name {rig.name}")
    # nsenter and not `ip netns exec`, which would mount a new /sys and hide the cgroups from kubelet.
    return ["nsenter", f"--target={first}", *namespaces, "--"]


def end(rig: Rig) -> None:
    """Kill the holder, and with it everything in the rig; then remove what the kernel does not."""
    first = holder(rig)
    if first is not None:
        with contextlib.suppress(ProcessLookupError):  # somebody else ended it just now
            os.kill(first, signal.SIGKILL)
    # Process 1 is gone only when everything else in there is; then `unshare`, which waits for it, goes too.
    wait(f"the processes of rig {rig.name} to end", lambda: not _named(rig), seconds=SLOW_S)
    for controller in Path("/sys/fs/cgroup").glob(f"*/{rig.cgroup}"):
        wait(f"the cgroup {controller} to empty", partial(_removed, controller), seconds=SLOW_S)


def _removed(cgroup: Path) -> bool:
    """Remove a tree of cgroups, leaves first; False while one of them still has a process that is ending."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            return False
    return True
