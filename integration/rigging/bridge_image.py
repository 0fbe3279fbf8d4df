"""The image of slurm-bridge, built from the Dockerfile as a site builds it, on a machine without a registry.

* The base that FROM names is made of Debian's packages and imported into a storage of our own (the folder `containers` of the
  cache), so that other containers of this machine are left alone.
* Packages are fetched by this machine's pip, with its settings (index, proxy, certificates), and checked against the lock's
  hashes here and once more in the build, which needs no network.
* The archive is named for the contents of what goes into it: an unchanged tree is not built again.  A changed tree reuses the
  layers of its dependencies.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from . import packages, places, slurm_root
from .build import lock
from .shell import logged, output

ROOT = places.HERE.parent.parent
PROGRAMS = {"buildah": "buildah", "debootstrap": "debootstrap"}
NAME = "localhost/slurm-bridge"
REVISION = "org.opencontainers.image.revision"  # the label with the digest of what went into it
LOCKS = ("requirements.txt", "requirements-build.txt")
SOURCES = ("Dockerfile", ".dockerignore", "LICENSE", "README.md", "bridge", "pyproject.toml", "scheduler", *LOCKS)
SUITE, PYTHON = "bookworm", "3.11"
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
# As official slim images are: without what nobody reads in a container.
LEFT_OUT = (
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
)
IN_CONTAINERS = {"proc", "sys", "dev"}
PIP_CONF = "[global]\nno-index = true\nfind-links = /wheels\n"


def build(version: str, name: str = NAME) -> Path:
    """A docker archive with the image NAME:VERSION.  Raises RigError."""
    key = contents(ROOT / source for source in SOURCES)
    called = name.removeprefix("localhost/").replace("/", "-")
    archive = places.image(f"{called}-{version}-{key}")
    logs = places.cache() / "log"
    logs.mkdir(parents=True, exist_ok=True)
    with lock(places.cache() / "image.lock", "another build of the image is under way"):
        if not archive.exists():
            packages.ensure(PROGRAMS, logs / "apt.log")
            _build(f"{name}:{version}", key, archive, logs / "image.log")
            for older in archive.parent.glob(f"{called}-*.tar"):
                if older != archive:
                    older.unlink()
    return archive


def build_again(version: str, checkout: Path, archive: Path) -> None:
    """Write an archive of the same image, built from another checkout of this tree and without any cached layer."""
    logs = places.cache() / "log"
    with lock(places.cache() / "image.lock", "another build of the image is under way"):
        key, tag = contents(ROOT / source for source in SOURCES), f"{NAME}-again:{version}"
        _build(tag, key, archive, logs / "image-again.log", checkout, "--no-cache")
        logged("Removing the second image", logs / "image-again.log", buildah("rmi", tag))


def configuration(archive: Path) -> dict[str, Any]:
    """The configuration of the image in a docker archive, with the digests of its layers."""
    with tarfile.open(archive) as tar:
        [manifest] = json.load(_member(tar, "manifest.json"))
        found: dict[str, Any] = json.load(_member(tar, manifest["Config"]))
        return found


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    found = tar.extractfile(name)
    assert found is not None, name
    return found


def contents(paths: Iterable[Path]) -> str:
    """A short digest of files, and of all files below folders."""
    digest = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{content} {file.relative_to(ROOT)}\n".encode())
    return digest.hexdigest()[:16]


def _build(tag: str, key: str, archive: Path, log: Path, checkout: Path = ROOT, *options: str) -> None:
    log.unlink(missing_ok=True)
    base, wheels = _base(log), _wheels(log)
    conf = wheels.with_suffix(".conf")
    conf.write_text(PIP_CONF)
    command: list[str | Path] = [
        "bud", "--isolation", "chroot", "--format", "docker", "--layers", "--timestamp", "0", "--pull-never",
        "--build-arg", f"BASE={base}", "--build-arg", f"VERSION={tag.rpartition(':')[2]}", "--build-arg", f"REVISION={key}",
        "--secret", f"id=pip.conf,src={conf}", "--volume", f"{wheels}:/wheels:ro", *options, "--tag", tag, checkout,
    ]  # fmt: skip
    logged("Building the image of slurm-bridge", log, buildah(*command))
    archive.parent.mkdir(parents=True, exist_ok=True)
    half = archive.with_suffix(".half")
    half.unlink(missing_ok=True)
    logged("Writing the image of slurm-bridge", log, buildah("push", tag, f"docker-archive:{half}:{tag}"))
    half.rename(archive)


def buildah(*arguments: str | Path) -> list[str | Path]:
    """With a storage of our own; nothing of it outlives the machine's start but what is in the cache."""
    return [
        "buildah",
        "--root",
        places.cache() / "containers",
        "--runroot",
        "/run/slurm-bridge-rig/containers",
        *arguments,
    ]


def _base(log: Path) -> str:
    """The name of the base image, which is in our storage now."""
    key = hashlib.sha256(repr((SUITE, BASE_PACKAGES, LEFT_OUT)).encode()).hexdigest()[:8]
    name = f"localhost/python-{PYTHON}-{SUITE}:{key}"
    if subprocess.run(buildah("inspect", "--type", "image", name), capture_output=True, check=False).returncode == 0:
        return name
    half = places.cache() / "python-base.half"
    shutil.rmtree(half, ignore_errors=True)
    including = f"--include={','.join(BASE_PACKAGES)}"
    mirror = slurm_root.mirror()
    make: list[str | Path] = [*slurm_root.ALONE, "debootstrap", "--variant=minbase", including, SUITE, half, mirror]
    logged(f"Making a Debian {SUITE} folder with Python", log, make)
    for folder in LEFT_OUT:
        _empty(half / folder, keep=lambda file: file.name == "copyright")
    for folder in IN_CONTAINERS:
        _empty(half / folder)
    container = output("Making the base image", buildah("from", "scratch")).strip()
    logged("Making the base image", log, buildah("add", container, half, "/"))
    logged("Making the base image", log, buildah("config", "--cmd", "python3", container))
    logged(
        "Making the base image",
        log,
        buildah("commit", "--rm", "--format", "docker", "--timestamp", "0", container, name),
    )
    shutil.rmtree(half)
    return name


def _empty(folder: Path, keep: Callable[[Path], bool] = lambda _: False) -> None:
    """Remove the files below it, and the folders that are empty then."""
    for at, folders, files in os.walk(folder, topdown=False):
        for file in (Path(at, name) for name in files):
            if not keep(file):
                file.unlink()
        for each in (Path(at, name) for name in folders):
            if each.is_symlink():
                each.unlink()
            elif not any(each.iterdir()):
                each.rmdir()


def _wheels(log: Path) -> Path:
    """A folder with every package of the locks, for the base's Python."""
    folder = places.cache() / f"wheels-{contents(ROOT / name for name in LOCKS)}"
    if folder.exists():
        return folder
    half, pip = folder.with_name("wheels.half"), folder.with_name("wheels-pip.half")
    for each in (half, pip):
        shutil.rmtree(each, ignore_errors=True)
    logged("Making a Python environment", log, [sys.executable, "-m", "venv", pip])
    # For the image's Python, which need not be this machine's.
    fetch: list[str | Path] = [
        pip / "bin/pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps",
        "--only-binary", ":all:", "--implementation", "cp", "--python-version", PYTHON, "--dest", half,
    ]  # fmt: skip
    for name in LOCKS:
        logged(f"Fetching the packages of {name}", log, [*fetch, "--requirement", ROOT / name])
    shutil.rmtree(pip)
    for older in folder.parent.glob("wheels-*"):
        shutil.rmtree(older) if older.is_dir() else older.unlink()
    half.rename(folder)
    return folder
