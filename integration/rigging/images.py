"""The two container images of the rig, busybox and the pause container, as docker archives made of a static busybox.

Kubelets must pull nothing, so there is no registry: the archives are imported, and pods say `imagePullPolicy: Never`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping

from . import places

PASSWD = b"root:x:0:0:root:/root:/bin/sh\n"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def build() -> None:
    """Make the archives that are not there; needs the Slurm folder, which holds the busybox."""
    _image("pause", places.PAUSE, {"Entrypoint": ["/bin/tail", "-f", "/dev/null"]})
    _image("busybox", places.IMAGE, {"Cmd": ["/bin/sh"]})


def _image(name: str, tag: str, config: Mapping[str, object]) -> None:
    archive = places.image(name)
    if archive.exists():
        return
    layer = _layer()
    machine = os.uname().machine
    described = {
        "architecture": MACHINES.get(machine, machine),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], **config},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
    archive.parent.mkdir(parents=True, exist_ok=True)
    half = archive.with_suffix(".half")
    with tarfile.open(half, "w") as tar:
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        _add(tar, "config.json", json.dumps(described).encode())
        _add(tar, "layer.tar", layer)
    half.rename(archive)


def _layer() -> bytes:
    """A root folder with busybox under all its names."""
    busybox = places.slurm_root() / "bin/busybox"
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for folder, mode in {"bin": 0o755, "etc": 0o755, "root": 0o700, "tmp": 0o1777}.items():
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        _add(tar, "bin/busybox", busybox.read_bytes(), mode=0o755)
        _add(tar, "etc/passwd", PASSWD)
        for name in names:
            if name != "busybox":
                entry = tarfile.TarInfo(f"bin/{name}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
    return made.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
