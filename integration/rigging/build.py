"""Everything that is slow to get, brought into the cache once."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from . import images, kube_programs, packages, places, slurm_root
from .shell import RigError


def build(*, kubelets: bool) -> None:
    """Bring the cache up to date; returns at once when it is.  Raises RigError."""
    if os.geteuid() != 0:
        raise RigError("The rig makes namespaces and Debian folders, which takes root: run it with sudo.")
    logs = places.cache() / "log"
    logs.mkdir(parents=True, exist_ok=True)
    with lock(places.cache() / "build.lock", "another build is under way"):
        packages.ensure({**packages.RUN, **(packages.KUBELET if kubelets else {})}, logs / "apt.log")
        # Side by side: one mostly downloads and unpacks, the other mostly compiles.
        with ThreadPoolExecutor(2) as pool:
            root = pool.submit(_told, "a Debian folder with Slurm", places.slurm_root(), slurm_root.build)
            programs = pool.submit(
                _told, "Kubernetes, etcd, kwok, helm and kubeconform", places.program("kubectl"), kube_programs.build
            )
            root.result()
            images.build()
            programs.result()


def _told(what: str, result: Path, make: Callable[[], None]) -> None:
    """Make a thing of the cache, and say so if it takes time."""
    if result.exists():
        make()
        return
    began = time.monotonic()
    print(f"rig: making {what} …", flush=True)
    make()
    print(f"rig: made {what} in {time.monotonic() - began:.0f} s", flush=True)


@contextmanager
def lock(path: Path, why: str) -> Iterator[None]:
    """Hold a lock file; says why when that means waiting.  The kernel frees it however this process ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"rig: waiting, {why}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
