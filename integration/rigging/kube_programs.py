"""etcd, Kubernetes, kwok, helm and kubeconform, built from their published Go modules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from . import packages, places
from .shell import RigError, logged, output

KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kubelet", "kubectl")
GO = f"{places.GO[0]}.{places.GO[1]}"
Builder = Callable[[str, Mapping[str, str], Path], None]  # the Go program, its environment, the folder to fill


def build() -> None:
    """Build what is not there.  Raises RigError."""
    wanted: dict[Path, Builder] = {
        places.programs("etcd", places.ETCD): _build_etcd,
        places.programs("kwok", places.KWOK): _build_kwok,
        places.programs("kubernetes", places.KUBERNETES): _build_kubernetes,
        places.programs("helm", places.HELM): _build_helm,
        places.programs("kubeconform", places.KUBECONFORM): _build_kubeconform,
    }
    build_missing(wanted, {})


def build_missing(wanted: Mapping[Path, Builder], settings: Mapping[str, str]) -> None:
    """Build the folders of the cache that do not exist yet.  settings: further environment of Go.  Raises RigError."""
    missing = {folder: how for folder, how in wanted.items() if not folder.exists()}
    if not missing:
        return
    go, env = go_program()
    env = {**env, **settings}
    for folder, how in missing.items():
        half = folder.with_name(f"{folder.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        how(go, env, half)
        half.rename(folder)


def _build_etcd(go: str, env: Mapping[str, str], folder: Path) -> None:
    _compile(go, env, folder, f"v{places.ETCD}", {"etcd": "go.etcd.io/etcd/server/v3"})


def _build_kwok(go: str, env: Mapping[str, str], folder: Path) -> None:
    _compile(go, env, folder, f"v{places.KWOK}", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"})


def _build_kubeconform(go: str, env: Mapping[str, str], folder: Path) -> None:
    _compile(go, env, folder, f"v{places.KUBECONFORM}", {"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"})


def _build_kubernetes(go: str, env: Mapping[str, str], folder: Path) -> None:
    version = places.KUBERNETES
    # Clients refuse a server that does not say its version.
    at = "k8s.io/component-base/version"
    say = f"-X {at}.gitVersion=v{version} -X {at}.gitMajor=1 -X {at}.gitMinor={version.split('.')[1]}"
    _compile(
        go,
        env,
        folder,
        f"v{version}",
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_PROGRAMS},
        _sisters(_kubernetes_module(go, env, folder)),
        say,
    )


def _build_helm(go: str, env: Mapping[str, str], folder: Path) -> None:
    """After Kubernetes, and of the same packages in the same versions: Go's build cache then has most of it compiled."""
    described = _kubernetes_module(go, env, folder)
    shared = re.findall(r"(?m)^\s+(\S+) (v\S+)(?: // indirect)?$", described)
    same = [f"{module} => {module} {version}" for module, version in shared if version != "v0.0.0"]
    at, (major, minor, _) = "helm.sh/helm/v3", places.KUBERNETES.split(".")
    say = [f"-X {at}/internal/version.version=v{places.HELM}"]
    # The version of Kubernetes for which `helm template` and `helm lint` make and judge objects.
    for package in ("chartutil", "lint/rules"):
        say += [
            f"-X {at}/pkg/{package}.k8sVersionMajor={major}",
            f"-X {at}/pkg/{package}.k8sVersionMinor={minor}",
        ]
    _compile(
        go, env, folder, f"v{places.HELM}", {"helm": f"{at}/cmd/helm"}, [*_sisters(described), *same], " ".join(say)
    )


def _kubernetes_module(go: str, env: Mapping[str, str], folder: Path) -> str:
    """The text of the go.mod of k8s.io/kubernetes."""
    module = f"k8s.io/kubernetes@v{places.KUBERNETES}"
    described = json.loads(
        output(f"Downloading {module}", [go, "mod", "download", "-json", module], env=env, cwd=folder)
    )
    return Path(described["GoMod"]).read_text()


def _sisters(described: str) -> list[str]:
    """Replacements of its sister modules.

    It names them as v0.0.0 and replaces them by folders of its own repository; as a dependency it needs them named by their
    published versions instead.
    """
    own = re.findall(r"(?m)^\s*(k8s\.io/[a-z-]+) => \./staging", described)
    return [f"{sister} => {sister} v0.{places.KUBERNETES.split('.', 1)[1]}" for sister in sorted(set(own))]


def _compile(
    go: str,
    env: Mapping[str, str],
    folder: Path,
    version: str,
    programs: Mapping[str, str],
    replace: Sequence[str] = (),
    link: str = "",
) -> None:
    """Build programs (name -> Go package) of one module into the folder."""
    log = places.cache() / "log" / f"{folder.name}.log"
    log.unlink(missing_ok=True)
    source = folder / "source"
    source.mkdir()
    lines = ["module rig", "", f"go {GO}", *([f"replace ({chr(10)}", *replace, ")"] if replace else [])]
    (source / "go.mod").write_text("\n".join(lines) + "\n")
    env = {**env, "GOFLAGS": f"{env.get('GOFLAGS', '')} -mod=mod".strip()}
    names = ", ".join(programs)
    logged(
        f"Downloading {names}",
        log,
        [go, "get", "-tool", *(f"{p}@{version}" for p in programs.values())],
        env=env,
        cwd=source,
    )
    flags = ["-trimpath", "-ldflags", f"-s -w {link}".strip()]
    for name, package in programs.items():
        logged(f"Building {name}", log, [go, "build", *flags, "-o", folder / name, package], env=env, cwd=source)
    shutil.rmtree(source)


def go_program() -> tuple[str, Mapping[str, str]]:
    """A Go that is new enough, and the environment to call it in."""
    env = {**os.environ, "CGO_ENABLED": "0"}
    go = packages.find("go") or shutil.which("go", path="/usr/local/go/bin")
    if not go:
        packages.ensure({"go": "golang-go"}, places.cache() / "log" / "apt.log")
        go = packages.find("go")
    if not go:
        raise RigError(
            f"Go {GO} or newer is missing, and the package golang-go did not bring it; put `go` on the PATH."
        )
    if _version(go, env) >= places.GO:
        return go, env
    # Go 1.21 and newer can fetch a newer Go by itself, as a module.
    env["GOTOOLCHAIN"] = f"go{GO}.0"
    if _version(go, env) >= places.GO:
        return go, env
    raise RigError(
        f"{go} is older than {GO} and cannot fetch a newer Go by itself; install Go {GO} or newer and put it on the PATH."
    )


def _version(go: str, env: Mapping[str, str]) -> tuple[int, int]:
    """(1, 26), or (0, 0) where this Go cannot be run in that environment."""
    said = subprocess.run([go, "version"], capture_output=True, text=True, env=env, check=False)
    found = re.search(r"go(\d+)\.(\d+)", said.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
