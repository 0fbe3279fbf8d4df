"""The images of docker-compose.yml, under the names that it gives, on a machine that can pull none.

Images that their projects publish are stood in for: one layer with the program that this rig built, at the path and with the
user of the published image, and nothing else, so what needs a shell there fails here, too.  Images that docker-compose.yml
builds are built from the same Dockerfiles: slurm-bridge's as `rig image` does it, Slurm's on the rig's Debian folder, which
has the packages.

They are in the storage of bridge_image.py.  A stack uses it read-only and keeps its containers elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from . import bridge_image, build, compose_programs, packages, places
from .shell import RigError, logged, output

ROOT = places.HERE.parent.parent
FILE = ROOT / "docker-compose.yml"
TOOLS = ROOT / "compose" / "requirements.txt"
PROGRAMS = {
    **bridge_image.PROGRAMS,
    "podman": "podman",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "curl": "curl",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/usr/lib/cni/dnsname": "golang-github-containernetworking-plugin-dnsname",
}
SLURM_BASE = "localhost/debian-with-slurm"
KEY = "slurm-bridge.rig.key"
# Of the rig's Debian folder: nothing reads these in a container.
LEFT_OUT = ("dev", "proc", "sys", "rig", "srv", "var/cache", "var/lib/mysql", "var/lib/apt")


@dataclass(frozen=True, slots=True)
class StandIn:
    """A published image, stood in for.

    programs  path in the image to the program of this machine
    config    lines of its Dockerfile
    folders   path in the image to the owner of an empty folder
    """

    programs: Mapping[str, Path]
    config: tuple[str, ...]
    folders: Mapping[str, int] = field(default_factory=dict)


def stand_ins() -> dict[str, StandIn]:
    """By their names; the versions are those of places.py."""
    program = places.program

    def kubernetes(name: str, folder: str = "usr/local/bin") -> StandIn:
        return StandIn({f"{folder}/{name}": program(name)}, ())

    return {
        f"quay.io/coreos/etcd:v{places.ETCD}": StandIn({"usr/local/bin/etcd": program("etcd")}, ()),
        f"registry.k8s.io/kube-apiserver:v{places.KUBERNETES}": kubernetes("kube-apiserver"),
        f"registry.k8s.io/kube-controller-manager:v{places.KUBERNETES}": kubernetes("kube-controller-manager"),
        f"registry.k8s.io/kubectl:v{places.KUBERNETES}": kubernetes("kubectl", "bin"),
        f"registry.k8s.io/kwok/kwok:v{places.KWOK}": StandIn({"usr/local/bin/kwok": program("kwok")}, ()),
        f"docker.io/prom/prometheus:v{places.PROMETHEUS}": StandIn(
            {"bin/prometheus": program("prometheus")},
            ("USER 65534:65534", "WORKDIR /prometheus", 'ENTRYPOINT ["/bin/prometheus"]'),
            {"prometheus": 65534, "etc/prometheus": 0},
        ),
        f"docker.io/jaegertracing/all-in-one:{places.JAEGER}": StandIn(
            {"go/bin/all-in-one-linux": program("jaeger")},
            ("USER 10001:10001", 'ENTRYPOINT ["/go/bin/all-in-one-linux"]'),
        ),
    }


def make() -> None:
    """Bring everything that a stack needs into the cache; returns at once when it is there.  Raises RigError."""
    build.build(kubelets=False)
    log = places.cache() / "log" / "compose.log"
    with build.lock(places.cache() / "compose.lock", "another build of the compose stack's images is under way"):
        packages.ensure(PROGRAMS, log)
        compose_programs.build()
        _tool(log)
        _own(log)
        _slurm(log)
        for name, image in stand_ins().items():
            _stand_in(name, image, log)


def podman_compose() -> Path:
    """The program, in an environment of its own; the project does not depend on it."""
    return (
        places.cache() / f"podman-compose-{hashlib.sha256(TOOLS.read_bytes()).hexdigest()[:8]}" / "bin/podman-compose"
    )


def services() -> dict[str, dict[str, object]]:
    """The services of docker-compose.yml."""
    found: dict[str, dict[str, object]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    return found


def _tool(log: Path) -> None:
    folder = podman_compose().parent.parent
    if folder.exists():
        return
    for older in folder.parent.glob("podman-compose-*"):
        shutil.rmtree(older)
    try:
        logged("Making a Python environment for podman-compose", log, [sys.executable, "-m", "venv", folder])
        install = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--requirement", str(TOOLS)]
        logged("Installing podman-compose", log, [folder / "bin/pip", *install])
    except RigError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _own(log: Path) -> None:
    """slurm-bridge's own, as `rig image` builds it; read in again where the storage was emptied since."""
    name = str(services()["bridge"]["image"])
    archive = bridge_image.build(name.rpartition(":")[2])
    if not _has(name, bridge_image.REVISION, archive.stem.rpartition("-")[2]):
        logged(f"Reading {archive.name}", log, _buildah("pull", f"docker-archive:{archive}"))


def _slurm(log: Path) -> None:
    name, context = str(services()["slurmctld"]["image"]), ROOT / "compose" / "slurm"
    root = places.slurm_root()
    key = hashlib.sha256((context / "Dockerfile").read_bytes() + _stamp(root)).hexdigest()[:16]
    if _has(name, KEY, key):
        return
    with _folder() as folder:
        # An archive, because COPY would give all its files to root.
        archive = str(folder / "root.tar")
        pack = ["tar", "-C", str(root), *(f"--exclude=./{each}/*" for each in LEFT_OUT), "-cf", archive, "."]
        logged("Packing Debian with Slurm", log, pack)
        (folder / "Dockerfile").write_text("FROM scratch\nADD root.tar /\n")
        logged("Making the base of Slurm's image", log, [*_bud(), "--tag", SLURM_BASE, folder])
    build_arg = ["--build-arg", f"BASE={SLURM_BASE}"]
    logged("Building the image of Slurm", log, [*_bud(), *build_arg, "--label", f"{KEY}={key}", "--tag", name, context])


def _stand_in(name: str, image: StandIn, log: Path) -> None:
    lines = ["FROM scratch", "ADD root.tar /", *image.config]
    digest = hashlib.sha256(repr((lines, image.folders)).encode())
    for path, program in sorted(image.programs.items()):
        digest.update(path.encode() + _stamp(program))
    key = digest.hexdigest()[:16]
    if _has(name, KEY, key):
        return
    with _folder() as folder:
        (folder / "Dockerfile").write_text("\n".join([*lines, ""]))
        root = folder / "root"
        for path in ("etc", "tmp", *image.folders):
            (root / path).mkdir(parents=True, exist_ok=True)
            os.chown(root / path, image.folders.get(path, 0), image.folders.get(path, 0))
        (root / "tmp").chmod(0o1777)
        (root / "etc/passwd").write_text("root:x:0:0:root:/:/none\nnobody:x:65534:65534:nobody:/:/none\n")
        for path, program in image.programs.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            os.link(program, root / path)
        # An archive, because COPY would give everything to root, and there is no chown in there.
        logged("Packing an image", log, ["tar", "-C", root, "-cf", folder / "root.tar", "."])
        logged(f"Making the image {name}", log, [*_bud(), "--label", f"{KEY}={key}", "--tag", name, folder])


@contextmanager
def _folder() -> Iterator[Path]:
    folder = places.cache() / "compose-image.half"  # beside the programs, so that they can be linked
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def _stamp(path: Path) -> bytes:
    found = path.stat()
    return f"{path.name} {found.st_size} {found.st_mtime_ns}".encode()


def _has(name: str, label: str, value: str) -> bool:
    """True if the storage has that image, with that label.  Raises RigError if buildah does not say."""
    filters = ("--filter", f"reference={name}", "--filter", f"label={label}={value}")
    return bool(output(f"Looking for the image {name}", _buildah("images", "--quiet", *filters)).strip())


def _buildah(*arguments: str | Path) -> list[str | Path]:
    return ["nice", "-n", "10", *bridge_image.buildah(*arguments)]


def _bud() -> list[str | Path]:
    return _buildah("bud", "--isolation", "chroot", "--format", "docker", "--pull-never")
