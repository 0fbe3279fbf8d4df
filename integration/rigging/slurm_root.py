"""A Debian folder that holds the distribution's own Slurm, MariaDB and a static busybox.

Nothing is ever started from the folder itself: each rig lays its own writable layer over it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from . import packages, places
from .shell import RigError, logged, output

SUITE = "sid"
PACKAGES = [
    "slurmctld",
    "slurmdbd",
    "slurmd",
    "slurmrestd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-jwt-plugin",
    "mariadb-server",
    "busybox-static",  # for the container images
    "ca-certificates",  # these three for scripts that a --slurm-conf may name
    "curl",
    "procps",
]
# In namespaces of its own, and killed with us: whatever happens, nothing stays mounted and nobody goes on writing.
ALONE = [
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--",
]
CHROOT = (
    f'export PATH={packages.PATH}; mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"'
)
# The mirror may serve a frozen snapshot, whose Release file has run out of date.
APT = """\
Acquire::Check-Valid-Until "false";
APT::Install-Recommends "false";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
"""
DPKG = """\
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
"""


def build() -> None:
    """Make the folder if it is not there.  Raises RigError."""
    root = places.slurm_root()
    if root.exists():
        return
    log = places.cache() / "log" / "slurm-root.log"
    log.unlink(missing_ok=True)
    packages.ensure(packages.BUILD, log)
    half = root.with_name(f"{root.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    logged(
        f"Making a Debian {SUITE} folder",
        log,
        [*ALONE, "debootstrap", "--variant=minbase", SUITE, half, mirror()],
    )
    _install(half, log)
    _check_version(half)
    _prepare(half, log)
    half.rename(root)


def in_folder(folder: Path, *argv: str) -> list[str | Path]:
    """The command that runs one in the folder, with what programs expect to find mounted."""
    return [*ALONE, "sh", "-c", CHROOT, folder, *argv]


def mirror() -> str:
    """The archive that this machine's own apt uses."""
    listed = output(
        "Asking apt for its archive", ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    )
    for line in listed.splitlines():
        if line.rstrip("/").endswith("/debian"):
            return line
    raise RigError(
        "No Debian archive is among apt's sources (an address that ends in /debian); add one to /etc/apt/sources.list.d."
    )


def _install(root: Path, log: Path) -> None:
    # Refuse to start services while packages are configured.
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    (root / "etc/apt/apt.conf.d/90rig").write_text(APT)
    (root / "etc/dpkg/dpkg.cfg.d/90rig").write_text(DPKG)
    for file in ("/etc/resolv.conf", "/etc/hosts"):
        if Path(file).exists():
            shutil.copyfile(file, root / file.lstrip("/"))
    _adopt_proxy(root)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    logged("Reading Debian's package lists", log, in_folder(root, "apt-get", "-q", "update"), env=env)
    logged("Installing Slurm", log, in_folder(root, "apt-get", "-q", "install", "-y", *PACKAGES), env=env)
    shutil.rmtree(root / "var/lib/apt/lists")
    shutil.rmtree(root / "var/cache/apt/archives")


def _adopt_proxy(root: Path) -> None:
    """Take over the proxy through which this machine's apt reaches its archive."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
    proxies = [line for line in dump.splitlines() if re.match(r"Acquire::https?::Proxy ", line)]
    (root / "etc/apt/apt.conf.d/91proxy").write_text("".join(f"{line}\n" for line in proxies))


def _check_version(root: Path) -> None:
    """Debian's suite moves on; say so where it no longer, or not yet, holds what the rig needs."""
    said = output("Asking Slurm for its version", in_folder(root, "slurmctld", "-V"))
    found = re.search(r"(\d+)\.(\d+)", said)
    if not found or (int(found[1]), int(found[2])) < places.SLURM_OLDEST:
        raise RigError(
            f"Debian {SUITE} on this machine's mirror has {said.strip()}; external nodes need Slurm 25.11 or newer."
        )


def _prepare(root: Path, log: Path) -> None:
    """Makes once what each rig would otherwise make again: users that Slurm knows, and an empty database."""
    for user, uid in places.USERS.items():
        logged(f"Adding user {user}", log, in_folder(root, "useradd", "-u", str(uid), "-m", user))
    install = [
        "mariadb-install-db",
        "--user=mysql",
        "--datadir=/srv/mysql",
        "--skip-test-db",
        "--innodb-log-file-size=8M",
    ]
    (root / "srv/mysql").mkdir()
    logged("Making an empty database", log, in_folder(root, *install))
