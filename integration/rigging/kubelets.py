"""Nodes with a real kubelet and containerd, whose pods really run.

Each node is one kubelet and one containerd, in mount, PID and UTS namespaces of its own inside the rig's.  So killing the
first process of a node ends its pods and its mounts too: that is a power failure, and the only way in which a node stops
here.  Its disk (the folder node-NAME of the rig) stays, and `start` boots it again.

* Images are the rig's two, imported at the start, and what `load` imports; nothing is pulled.
* Nodes have the addresses 198.18.0.N, their pods 198.18.N.0/24 on a bridge in the rig's network.
* Written for cgroup v1; containerd below 2 serves kubelets up to 1.36.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Template

from . import kube, packages, places, rest
from .daemons import Daemon, family, start
from .places import Rig
from .shell import SLOW_S, RigError, output, wait

NODE = "--node"
IMPORT = ("ctr", "-n", "k8s.io", "images", "import")
PORT = 10250  # kubelet's own
CGROUPS = Path("/sys/fs/cgroup")
# Kubelet and the bridge plugin set sysctls of the whole machine; they are let find them set as they want them.
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
    "net/ipv4/ip_forward": "1",
}


def possible() -> bool:
    """True if this machine has the cgroup v1 that they are made for."""
    return not (CGROUPS / "cgroup.controllers").exists()


def up(rig: Rig) -> None:
    """Boot all nodes that have a kubelet.  Raises RigError."""
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(start, all_daemons(rig)):
            pass


def all_daemons(rig: Rig) -> list[Daemon]:
    """One a node, named kubelet-x1 …; it represents the whole node."""
    return [_node(rig, name) for name in rig.read_options().kubelets]


def load(rig: Rig, archive: Path) -> None:
    """Import the image of a docker archive on every node.  Raises RigError."""
    for name in rig.read_options().kubelets:
        daemon = _node(rig, name)
        if not (first := family(daemon)[1:2]):  # after unshare, the first process of the node
            raise RigError(f"{daemon.name} is not running.")
        enter = ["nsenter", f"--target={first[0]}", "--mount", "--pid", "--"]
        output(f"Importing {archive.name} on {name}", [*enter, *IMPORT, archive])


def be_node(rig: Rig, name: str) -> int:
    """Be the first process of a node, in its namespaces: boot it, and end when kubelet or containerd does."""
    node = rig.state / f"node-{name}"
    number = rig.read_options().kubelets.index(name) + 1
    _configure(rig, name, number, node)
    _furnish(name, node)
    containerd = _run(node, "containerd", ["containerd", f"--config={node}/containerd.toml"])
    wait("containerd to serve", _answers, seconds=SLOW_S, log=node / "containerd.log")
    for image in ("pause", "busybox"):
        output(f"Importing {image}", [*IMPORT, places.image(image)])
    kubelet = _run(
        node,
        "kubelet",
        [
            str(places.program("kubelet")),
            f"--config={node}/kubelet.yaml",
            f"--kubeconfig={node}/kubeconfig",
            f"--hostname-override={name}",
            f"--node-ip={places.kubelet_address(number)}",
        ],
    )
    while True:  # whatever is orphaned in here becomes ours to wait for
        ended, status = os.wait()
        if ended in (containerd, kubelet):  # one without the other is no node
            print(
                f"{'kubelet' if ended == kubelet else 'containerd'} ended: {os.waitstatus_to_exitcode(status)}",
                file=sys.stderr,
            )
            return 1


def _node(rig: Rig, name: str) -> Daemon:
    unshare = (
        "unshare",
        "--mount",
        "--propagation",
        "slave",
        "--pid",
        "--mount-proc",
        "--uts",
        "--fork",
        "--kill-child",
        "--",
    )
    return Daemon(
        f"kubelet-{name}",
        (*unshare, sys.executable, str(places.ENTRY), NODE, rig.name, name),
        "unshare",
        rig.log / f"kubelet-{name}.log",
        lambda: _serves(rig, name),
        sign=name,
        env={
            name: value
            for name, value in os.environ.items()
            if name in ("SLURM_BRIDGE_RIG_CACHE", "XDG_CACHE_HOME", "HOME")
        },
        # unshare does not hear a gentle signal, and neither does process 1 of a namespace.
        stop=signal.SIGKILL,
    )


def _serves(rig: Rig, name: str) -> bool:
    """True if this kubelet answers and is known; the Node object alone may be left from its previous boot."""
    number = rig.read_options().kubelets.index(name) + 1
    return rest.listens(PORT, places.kubelet_address(number)) and rest.kubernetes(rig).answers(f"/api/v1/nodes/{name}")


def _run(node: Path, name: str, argv: list[str]) -> int:
    """Start a program of the node; returns its pid."""
    with (node / f"{name}.log").open("ab") as log:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log).pid


def _answers() -> bool:
    return subprocess.run(["ctr", "version"], capture_output=True, check=False).returncode == 0


def _configure(rig: Rig, name: str, number: int, node: Path) -> None:
    """Write the node's configuration, and make its cgroup."""
    (node / "cni").mkdir(parents=True, exist_ok=True)
    bridge = packages.find("/usr/lib/cni/bridge")
    assert bridge is not None, "`up` has installed it"
    cgroup = f"{rig.cgroup}/{name}"
    known = {
        "node": str(node),
        "number": str(number),
        "address": places.kubelet_address(number),
        "pause": places.PAUSE,
        "plugins": str(Path(bridge).parent),
        "cgroup": f"/{cgroup}",
    }
    for template, target in {
        "containerd.toml": "containerd.toml",
        "kubelet.yaml": "kubelet.yaml",
        "cni.conflist": "cni/rig.conflist",
    }.items():
        (node / target).write_text(Template((places.HERE / "conf" / template).read_text()).substitute(known))
    for controller in CGROUPS.iterdir():
        if controller.is_mount():  # beside links, and folders of controllers that nobody has mounted
            (controller / cgroup).mkdir(parents=True, exist_ok=True)
    # As kubelets do, it speaks as system:node:<name>, so that the Node authorizer and NodeRestriction hold.
    kube.write_kubeconfig(rig, node / "kubeconfig", f', as: "system:node:{name}", as-groups: ["system:nodes"]')


def _furnish(name: str, node: Path) -> None:
    """Mount what the node has for itself."""
    for key, value in SYSCTLS.items():
        shown = node / "sysctl" / key
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(f"{value}\n")
        output("Mounting", ["mount", "--bind", shown, f"/proc/sys/{key}"])
    socket.sethostname(name)
    output("Mounting", ["mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run"])
    for folder in ("var/lib/kubelet", "var/lib/containerd", "var/log"):
        (node / folder).mkdir(parents=True, exist_ok=True)
        Path("/", folder).mkdir(parents=True, exist_ok=True)
        output("Mounting", ["mount", "--bind", node / folder, f"/{folder}"])
