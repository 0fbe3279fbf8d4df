"""Debian packages that the rig, and the tests of the page, need on the machine itself.

What is looked for is the program, not the package: a machine that has it from elsewhere keeps its own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from .shell import RigError, logged

BUILD = {"debootstrap": "debootstrap"}
RUN = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "openssl": "openssl",
    "zsh": "zsh",  # a journey completes commands in it
    "/usr/lib/systemd/systemd": "systemd",  # integration/systemd_host.py starts it in namespaces
}
KUBELET = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
BROWSER = {"chromium": "chromium"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{PATH}")


def ensure(programs: dict[str, str], log: Path) -> None:
    """Install the packages of those programs that are missing.  Raises RigError."""
    if not _missing(programs):
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with (log.parent / "apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # suites start side by side, and apt-get fails beside another apt-get
        if missing := _missing(programs):
            _install(missing, log)


def _missing(programs: dict[str, str]) -> list[str]:
    return sorted({package for program, package in programs.items() if not find(program)})


def _install(packages: list[str], log: Path) -> None:
    names = " ".join(packages)
    if not find("apt-get"):
        raise RigError(
            f"These Debian packages are missing, and this machine has no apt-get: {names}. Install what they hold."
        )
    print(f"rig: installing {names}", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    with log.open("ab") as out:
        first = subprocess.run(install, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, check=False)
    if first.returncode != 0:  # as a rule the package lists are old or not there at all
        logged("Reading the package lists", log, ["apt-get", "update", "-q"], env=env)
        logged(f"Installing {names}", log, install, env=env)
