"""docker-compose.yml, run by podman-compose in namespaces of its own, so that its networks, ports and processes are its own.

The first process in there holds the namespaces.  When it is killed, the kernel ends every container with it.  The kernel does
not remove the stack's folder and its cgroups; they are removed then.  So nothing stays, however the tests end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from integration.clusters import eventually
from integration.rigging import compose_images, places

NAMESPACES = ("--net", "--mount", "--pid")
# Where podman and its network plugins keep what is the machine's, whatever folder they are given.
PRIVATE = ("/dev/shm", "/run", "/var/lib/cni")
HOLD = f"""
import signal, subprocess
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
for folder in {PRIVATE!r}:
    subprocess.run(["mkdir", "-p", folder], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whatever is orphaned in here becomes our child
print("ready", flush=True)
while True:
    signal.pause()
"""
PODMAN = compose_images.ROOT / "integration" / "compose" / "podman"
SLOW_S = 600.0


@dataclass(frozen=True, slots=True)
class Stack:
    """Commands in the namespaces of one stack.

    first   the process that holds them, by its number out here
    state   the folder of its containers, volumes and networks
    """

    first: int
    state: Path

    def run(self, *argv: str | Path, check: bool = True, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """A command in the stack's network, outside of its containers.  Raises AssertionError if it fails."""
        done = subprocess.run(
            self.inside(argv), env=self._environment(), input=text,
            stdin=subprocess.DEVNULL if text is None else None, capture_output=True, text=True, check=False,
            timeout=SLOW_S,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def compose(self, *arguments: str, check: bool = True) -> str:
        """podman-compose; returns what it printed.  Raises AssertionError, with what PODMAN gave up on."""
        program = compose_images.podman_compose()
        done = self.run(program, "--podman-path", PODMAN, "--file", compose_images.FILE, *arguments, check=False)
        failed = self.state / "failed"
        why = failed.read_text() if failed.exists() else f"{done.stdout}\n{done.stderr}"
        assert not check or done.returncode == 0, f"podman-compose {' '.join(arguments)}: {why}"
        return done.stdout

    def podman(self, *arguments: str) -> str:
        """podman itself; returns what it printed."""
        return self.run(PODMAN, *arguments).stdout

    def inside(self, argv: Sequence[str | Path]) -> list[str]:
        """The command that runs one in the namespaces."""
        return ["nsenter", f"--target={self.first}", *NAMESPACES, "--", *map(str, argv)]

    def _environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "PODMAN_STATE": str(self.state),
            "PODMAN_IMAGES": str(places.cache() / "containers"),
            "PODMAN_PYTHON": sys.executable,
        }


@contextmanager
def namespaces() -> Iterator[Stack]:
    """Make them, and in the end everything in them goes."""
    folder = Path(tempfile.mkdtemp(prefix="compose-stack-", dir=places.cache()))
    unshare = ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, "--propagation", "slave"]
    holder = subprocess.Popen(
        [*unshare, "--fork", "--kill-child", "--mount-proc", "--", sys.executable, "-c", HOLD], stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        [first] = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        (folder / "networks").mkdir()
        yield Stack(int(first), folder)
    finally:
        holder.send_signal(signal.SIGKILL)  # and its child with it, and all that it holds
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()
        eventually("its cgroups are empty", lambda: all(map(_removed, Path("/sys/fs/cgroup").glob(f"*/{folder.name}"))))
        shutil.rmtree(folder)


def _removed(cgroup: Path) -> bool:
    """Remove a tree of cgroups, leaves first; False while a process in one of them is ending."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        with suppress(FileNotFoundError):
            try:
                os.rmdir(folder)
            except OSError:
                return False
    return True
