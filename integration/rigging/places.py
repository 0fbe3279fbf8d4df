"""The parts of a rig, and their places: versions, folders, addresses, ports, node names.

Ports are the programs' usual ones, the same in every rig: each has a network of its own.  The addresses come from
198.18.0.0/15, the block that is set aside for test benches (RFC 2544), so they cannot be somebody's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .shell import RigError

KUBERNETES = "1.36.3"
ETCD = "3.6.16"
KWOK = "0.8.0"
HELM = "3.20.2"  # the newest that takes Kubernetes' own versions of what both are made of (kube_programs.py)
KUBECONFORM = "0.8.0"
# What only the compose stack and the suite `monitoring` have (compose_programs.py, collector.py).
COLLECTOR = "0.165.0"  # that of manifests/tracing
JAEGER = "1.76.0"
PROMETHEUS = "3.13.5"
GO = (1, 26)  # what those modules ask for
SLURM_OLDEST = (25, 11)  # the first with external nodes and jobs; Debian sid has 26.05 or newer

HERE = Path(__file__).resolve().parent
ENTRY = HERE.parent / "rig"

CTLD_PORT, DBD_PORT, REST_PORT, SQL_PORT = 6817, 6819, 6820, 3306
SLURMD_PORTS = 7000  # node nI is on port 7000 + I
ETCD_PORT = 2379
# The API server sits on the address and port of its own service, so that pods reach it without a kube-proxy.
API_PORT = 443
API_SERVICE = "10.96.0.1"
SLURM_REST = f"http://127.0.0.1:{REST_PORT}"
API_SERVER = f"https://127.0.0.1:{API_PORT}"

HOST = "rig"  # the host name in there; slurm.conf has to name it
# With 127.0.0.1 alone getaddrinfo finds no address at all (AI_ADDRCONFIG), and Slurm does not start.
OWN_ADDRESS = "198.18.255.1"

IMAGE = "localhost/busybox:rig"
PAUSE = "localhost/pause:rig"

USERS = {"alice": 2001, "bob": 2002, "carol": 2003}


def cache() -> Path:
    """The folder that everything lives in; SLURM_BRIDGE_RIG_CACHE, else slurm-bridge-rig in the user's cache folder."""
    ours = os.environ.get("SLURM_BRIDGE_RIG_CACHE")
    base = Path(ours) if ours else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slurm-bridge-rig"
    if not base.is_absolute() or re.search(r"[\s:,\\]", str(base)):
        raise RigError(
            f"The cache folder {base} must be an absolute path without spaces, colons and commas: it becomes a mount option."
        )
    return base


def slurm_root() -> Path:
    return cache() / "slurm-root"


def programs(project: str, version: str) -> Path:
    """The folder of one project's built programs."""
    return cache() / f"{project}-{version}"


def kubectl() -> str | None:
    """The built one, else the machine's own."""
    return _built_or_own("kubectl")


def helm() -> str | None:
    """The built one, else the machine's own."""
    return _built_or_own("helm")


def _built_or_own(name: str) -> str | None:
    built = program(name)
    return str(built) if built.exists() else shutil.which(name)


def program(name: str) -> Path:
    """The built program of that name."""
    own = {
        "collector": COLLECTOR, "etcd": ETCD, "helm": HELM, "jaeger": JAEGER, "kubeconform": KUBECONFORM, "kwok": KWOK,
        "prometheus": PROMETHEUS, "promtool": PROMETHEUS,
    }  # fmt: skip
    if name in own:
        return programs(name, own[name]) / name
    return programs("kubernetes", KUBERNETES) / name


def image(name: str) -> Path:
    return cache() / "images" / f"{name}.tar"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `rig up`; kept in the rig's folder, so that its daemons can be started again.

    kubelets        names of nodes with a real kubelet
    kwok            how many nodes k1..kN that kwok plays
    slurmd          how many nodes n1..nN with a real slurmd (kwok plays them in Kubernetes)
    fast_scheduler  Slurm schedules at once and looks at its whole queue, instead of as it is shipped
    slurm_conf      lines for slurm.conf
    """

    kubelets: tuple[str, ...] = ("x1", "x2")
    kwok: int = 4
    slurmd: int = 1
    fast_scheduler: bool = False
    slurm_conf: str = ""


@dataclass(frozen=True, slots=True)
class Rig:
    """One rig by name, and where its things are."""

    name: str
    state: Path = field(init=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", self.name):
            raise RigError(f'"{self.name}" is no name for a rig: use small letters, digits and hyphens, at most 32.')
        object.__setattr__(self, "state", cache() / "rigs" / self.name)

    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def slurm(self) -> Path:
        """The folder that Slurm sees as /rig: its configuration, state and keys."""
        return self.state / "slurm"

    @property
    def root(self) -> Path:
        """Slurm's root folder; something is mounted there only inside the rig."""
        return self.state / "root"

    @property
    def kube(self) -> Path:
        return self.state / "kube"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def tokens(self) -> Path:
        return self.state / "tokens"

    @property
    def ready(self) -> Path:
        """Is there when the rig has come up wholly; holds the seconds that took."""
        return self.state / "ready"

    @property
    def cgroup(self) -> str:
        """Kubelets end pods that they do not know in their cgroup, so no two rigs may have the same, in any cache folder."""
        return f"rig-{self.name}-{hashlib.sha256(str(self.state).encode()).hexdigest()[:8]}"

    def write_options(self, options: Options) -> None:
        (self.state / "options.json").write_text(json.dumps(asdict(options), indent=1))

    def read_options(self) -> Options:
        read = json.loads((self.state / "options.json").read_text())
        return Options(**{**read, "kubelets": tuple(read["kubelets"])})


KWOK_PER_NETWORK = 250


def kwok_address(number: int) -> str:
    """Where node k<number> would be; 250 of them share the first three bytes, which one hostlist can say."""
    network, host = divmod(number - 1, KWOK_PER_NETWORK)
    return f"198.19.{network}.{host + 1}"


def slurmd_address(number: int) -> str:
    return f"198.18.200.{number}"


def kubelet_address(number: int) -> str:
    return f"198.18.0.{number}"
