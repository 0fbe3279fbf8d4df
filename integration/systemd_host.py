"""A host with systemd as its process 1, in namespaces on this machine: what `manifests/systemd` runs on.

Its root folder is an overlay over this machine's, whose changes are kept in memory and are gone with the host.  It has this
machine's systemd, none of its services, /run, /dev and cgroups of its own, and shares its network.  The Python of the tests
is at PYTHON and their packages at DEPENDENCIES, read-only: units that protect home folders see both there.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S

SYSTEMD = "/usr/lib/systemd/systemd"
PYTHON, DEPENDENCIES = "/opt/python", "/opt/dependencies"
# Units that would change this machine, or need hardware.
LEFT_OUT = (
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-journald-audit.socket",
    "systemd-modules-load.service",
    "systemd-random-seed.service",
    "systemd-remount-fs.service",
    "systemd-sysctl.service",
    "systemd-udevd.service",
    "systemd-update-utmp.service",
)
DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted hierarchy of cgroups.  options: of its mount; group: our own folder in it"""

    mount: Path
    kind: str
    options: str
    group: Path


class Host:
    """A running host.

    process   its first process, as this machine sees it
    since     epoch seconds; `journal` shows nothing older
    """

    def __init__(self, process: int) -> None:
        self.process = process
        self.since = 0.0

    def run(self, *command: str, given: bytes = b"", codes: Sequence[int] = (0,)) -> str:
        """The output of a command, run as root.  Raises AssertionError if its exit code is none of `codes`."""
        enter = ["nsenter", f"--target={self.process}", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--"]
        done = subprocess.run(
            [*enter, "env", "-i", f"PATH={PATH}", *command], input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        said = done.stdout.decode()
        assert done.returncode in codes, f"{shlex.join(command)}: exit code {done.returncode}: {said}"
        return said

    def install(self, content: str | bytes, path: str, mode: str = "0644") -> None:
        """Write a file, as `install -D -m MODE` does."""
        given = content if isinstance(content, bytes) else content.encode()
        self.run("install", "-D", "-m", mode, "/dev/stdin", path, given=given)

    def show(self, unit: str, what: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", unit, f"--property={what}", "--value").strip()

    def journal(self, unit: str) -> str:
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}", f"--since=@{self.since:.6f}")


@contextmanager
def host(folder: Path) -> Iterator[Host]:
    """A host that has started.  folder: an empty one, where its root folder is mounted in its own namespace"""
    hierarchies = list(_hierarchies())
    for each in hierarchies:
        each.group.mkdir()
    (folder / "start").write_text(_script(folder, hierarchies))
    unshare = [
        "unshare",
        "--mount",
        "--propagation=private",
        "--pid",
        "--fork",
        "--kill-child",
        "--uts",
        "--ipc",
        "--cgroup",
    ]
    # The shell enters our cgroups, so that they are the roots of the new namespace.
    joins = "".join(f"echo $$ > {each.group}/cgroup.procs; " for each in hierarchies)
    command = ["sh", "-euc", f'{joins} exec "$@"', "sh", *unshare, "sh", "-eu", str(folder / "start")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        yield _started(process, folder / "log")
    finally:
        process.kill()  # and with it, --kill-child, the first process in there and all others
        process.wait()
        for each in hierarchies:
            _remove(each.group)


def _hierarchies() -> Iterator[Hierarchy]:
    """Every hierarchy of cgroups of this machine in which a new group can have processes at once."""
    ours = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        ours[controllers] = path.lstrip("/")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        mount, (kind, _, options) = Path(before.split()[4]), after.split()
        if kind not in ("cgroup", "cgroup2"):
            continue
        named = [each for each in options.split(",") if each not in ("rw", "ro", "xattr")]
        if "cpuset" in named:  # a new group there has no CPUs
            continue
        chosen = "" if kind == "cgroup2" else ",".join(named)
        base = mount / ours.get(chosen, "")
        group = (base if base.is_dir() else mount) / f"systemd-host-{os.getpid()}"
        yield Hierarchy(mount, kind, f"none,{chosen}" if chosen.startswith("name=") else chosen, group)


def _script(folder: Path, hierarchies: list[Hierarchy]) -> str:
    """What the first process of the namespaces does before it becomes systemd."""
    root = folder / "root"
    lines = [
        f"mount -t tmpfs tmpfs {folder}",
        f"mkdir {folder}/upper {folder}/work {root}",
        f"mount -t overlay overlay -o lowerdir=/,upperdir={folder}/upper,workdir={folder}/work {root}",
        f"cd {root}",
        "mkdir .before",
        *_shown(sys.base_prefix, f"{root}{PYTHON}"),
        *_shown(sysconfig.get_path("purelib"), f"{root}{DEPENDENCIES}"),
        f"echo {PYTHON}/lib > etc/ld.so.conf.d/python.conf",
        "mount -t proc proc proc",
        "mount --bind proc/sys proc/sys",
        "mount -o remount,bind,ro proc/sys",
        "mount -t sysfs -o ro sysfs sys",
        "mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup",
        "mount -t tmpfs -o mode=755 tmpfs run",
        "mount -t tmpfs -o mode=755 tmpfs dev",
        "mkdir dev/shm dev/pts",
        "ln -s /proc/self/fd dev/fd",
        "ln -s pts/ptmx dev/ptmx",  # PrivateDevices looks for it
        *(f"touch dev/{each}; mount --bind /dev/{each} dev/{each}" for each in DEVICES),
        "rm -rf etc/systemd/system etc/slurm-bridge opt/slurm-bridge",
        "mkdir -p etc/systemd/system",
        *(f"ln -s /dev/null etc/systemd/system/{each}" for each in LEFT_OUT),
    ]
    for each in hierarchies:
        place = str(each.mount).lstrip("/")
        option = f"-o {each.options}" if each.options else ""
        lines.append(f"mkdir -p {place}; mount -t {each.kind} {option} cgroup {place}")
    lines += [
        "pivot_root . .before",
        "umount --lazy /.before",
        "mount --make-rshared /",  # credentials are mounted in a namespace that shares its mounts with this one
        "ldconfig",
        f"exec env -i PATH={PATH} container=other {SYSTEMD} --unit=basic.target --log-target=journal",
    ]
    return "\n".join(lines)


def _shown(folder: str, at: str) -> list[str]:
    """Commands that show a folder of this machine at another place, read-only."""
    return [f"mkdir -p {at}", f"mount --bind {folder} {at}", f"mount -o remount,bind,ro {at}"]


def _started(process: subprocess.Popen[bytes], log: Path) -> Host:
    """The host, once systemd says that it has started."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the host did not start: {log.read_text()}"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n":
            started = Host(int(children[0]))
            if started.run("systemctl", "is-system-running", codes=(0, 1)).strip() in ("running", "degraded"):
                return started
        time.sleep(0.1)  # between two questions, not in place of one
    raise AssertionError(f"the host did not start within {PATIENCE_S:g} s: {log.read_text()}")


def _remove(group: Path) -> None:
    """Remove a cgroup and those below it; its processes are gone, or on their way out."""
    deadline = time.monotonic() + PATIENCE_S
    while group.exists():
        try:
            for each in sorted(group.rglob("*"), reverse=True):
                if each.is_dir():
                    each.rmdir()
            group.rmdir()
        except OSError:
            assert time.monotonic() < deadline, f"{group} has processes"
            time.sleep(0.1)  # between two attempts
