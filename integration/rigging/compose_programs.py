"""Jaeger and Prometheus, built from their published Go modules, with less than their images have.

The compose stack has both; Prometheus also tests the rules and dashboards of manifests/monitoring.

Both are built in their own module, by their own go.sum, as their projects build them; what they leave out is what costs time:

* Jaeger's all-in-one without the storages that are other servers (Cassandra, Elasticsearch, …): 731 packages instead of 1707.
  Its factory of storages is edited before the build, by lines; nothing of its source is kept here.
* Prometheus and promtool with the build tag `remove_all_sd`, their own: without service discovery in clouds and Kubernetes.

Neither module holds the pages that a browser shows, which npm makes: these programs answer their APIs alone.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import places
from .build import lock
from .kube_programs import Builder, build_missing
from .shell import RigError, logged, output

JAEGER, PROMETHEUS = "github.com/jaegertracing/jaeger", "github.com/prometheus/prometheus"
FACTORY = Path("internal/storage/v1/factory/factory.go")
LEFT_OUT = ("badger", "cassandra", "elasticsearch", "grpc", "kafka")


# Modules of a repository list the repository's other modules in a go.work, and do not hold them.
ALONE = {"GOWORK": "off"}


def build() -> None:
    """Build what the compose stack needs and is not there.  Raises RigError."""
    build_missing({places.programs("jaeger", places.JAEGER): _build_jaeger}, ALONE)
    build_prometheus()


def build_prometheus() -> None:
    """Build Prometheus and promtool if they are not there.  Raises RigError."""
    wanted: dict[Path, Builder] = {
        places.programs("prometheus", places.PROMETHEUS): _build_prometheus,
        # A folder of its own: a cache that has Prometheus alone gets it, too.
        places.programs("promtool", places.PROMETHEUS): _build_promtool,
    }
    (places.cache() / "log").mkdir(parents=True, exist_ok=True)
    with lock(places.cache() / "prometheus.lock", "another build of Prometheus is under way"):
        build_missing(wanted, ALONE)


def without_storages(factory: str) -> str:
    """Jaeger's factory of storages, without those that are other servers.  Raises RigError if it looks otherwise."""
    for name in LEFT_OUT:
        factory, imports = re.subn(rf'(?m)^\t(?:\w+ )?"[^"]*/storage/v1/{name}"\n', "", factory)
        factory, cases = re.subn(rf"(?m)^\tcase {name}StorageType[^:]*:\n\t\treturn .*\n", "", factory)
        if imports != 1 or cases == 0:
            raise RigError(f"Jaeger {places.JAEGER} makes its storage {name} in another way than {__name__} expects.")
    return factory


def _build_jaeger(go: str, env: Mapping[str, str], folder: Path) -> None:
    source = folder / "source"  # a copy, because Go builds nothing from a cache that was changed
    shutil.copytree(_module(go, env, folder, f"{JAEGER}@v{places.JAEGER}"), source, copy_function=shutil.copyfile)
    for each in (source, *source.rglob("*/")):
        each.chmod(0o755)
    factory = source / FACTORY
    factory.write_text(without_storages(factory.read_text()))
    say = f"-X {JAEGER}/internal/version.latestVersion=v{places.JAEGER}"
    _compile(go, env, source, folder / "jaeger", "./cmd/all-in-one", [], say)
    shutil.rmtree(source)


def _build_prometheus(go: str, env: Mapping[str, str], folder: Path) -> None:
    _build_of_prometheus(go, env, folder, "prometheus")


def _build_promtool(go: str, env: Mapping[str, str], folder: Path) -> None:
    """After Prometheus: Go's build cache then has most of it compiled."""
    _build_of_prometheus(go, env, folder, "promtool")


def _build_of_prometheus(go: str, env: Mapping[str, str], folder: Path, name: str) -> None:
    minor, patch = places.PROMETHEUS.split(".")[1:]
    source = _module(go, env, folder, f"{PROMETHEUS}@v0.3{minor}.{patch}")  # 3.13.5 is the module's v0.313.5
    say = f"-X github.com/prometheus/common/version.Version={places.PROMETHEUS}"
    _compile(go, env, source, folder / name, f"./cmd/{name}", ["-tags", "remove_all_sd"], say)


def _module(go: str, env: Mapping[str, str], folder: Path, module: str) -> Path:
    """The folder of a module's source, in Go's cache; its hash is checked there."""
    return Path(
        json.loads(output(f"Downloading {module}", [go, "mod", "download", "-json", module], env=env, cwd=folder))[
            "Dir"
        ]
    )


def _compile(
    go: str, env: Mapping[str, str], source: Path, program: Path, package: str, options: Sequence[str], link: str
) -> None:
    log = places.cache() / "log" / f"{program.parent.name}.log"
    log.unlink(missing_ok=True)
    flags = ["-mod=readonly", "-trimpath", "-ldflags", f"-s -w {link}", *options]
    # Other suites run meanwhile.
    build = ["nice", "-n", "10", go, "build", *flags, "-o", str(program), package]
    logged(f"Building {program.name}", log, build, env=env, cwd=source)
