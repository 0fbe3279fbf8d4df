"""A line of node configuration, as `new/node` takes it, to a node of the simulated Slurm."""

from __future__ import annotations

from collections.abc import Collection

from bridge.simulation.slurm.error_numbers import SlurmRefusal
from bridge.simulation.slurm.nodes import SlurmSimNode

_KNOWN = frozenset(
    {
        "nodename", "nodeaddr", "sockets", "corespersocket", "threadspercore", "cpus", "realmemory", "gres", "gresconf",
        "feature", "features", "state", "topology",
    }
)  # fmt: skip


def node_of(line: str, gres_names: Collection[str]) -> SlurmSimNode:
    """The node that this line makes.  Raises SlurmRefusal.

    gres_names  what GresTypes names
    """
    words = dict(word.partition("=")[::2] for word in line.split())
    said = {key.lower(): value for key, value in words.items()}
    if not said.get("nodename") or not said.keys() <= _KNOWN or "" in said.values():
        raise SlurmRefusal(22)
    if said["nodename"].upper() == "DEFAULT" or "[" in said["nodename"]:  # several at once: not simulated
        raise SlurmRefusal(2018)
    if any(place.partition(":")[0] != "default" for place in filter(None, said.get("topology", "").split(","))):
        raise SlurmRefusal(2178)  # it has no topology.yaml
    devices = _devices(said.get("gres", ""), gres_names)
    files = _files(said.get("gresconf", ""))
    if {device: count for device, count in files.items() if device[0] in gres_names} != devices:
        raise SlurmRefusal(22)  # "Ignoring file-less GPU"
    cores = int(said.get("sockets", "1")) * int(said.get("corespersocket", "1")) * int(said.get("threadspercore", "1"))
    return SlurmSimNode(
        said["nodename"],
        cpus=int(said.get("cpus", cores)),
        memory_mib=int(said.get("realmemory", "1")),
        devices=devices,
        features=tuple(filter(None, said.get("feature", said.get("features", "")).split(","))),
        external=said.get("state", "").upper() == "EXTERNAL",
        address=said.get("nodeaddr", ""),
    )


def _devices(text: str, gres_names: Collection[str]) -> dict[tuple[str, str], int]:
    found = {}
    for item in filter(None, text.split(",")):
        name, *kind, count = item.split(":")
        if len(kind) > 1:
            raise SlurmRefusal(2072)
        if name not in gres_names:
            continue  # Slurm makes the node, without them and without a word
        found[name, kind[0] if kind else ""] = int(count)
    return found


def _files(text: str) -> dict[tuple[str, str], int]:
    """The devices of `GresConf`, if it names as many files."""
    found = {}
    for item in filter(None, text.split("+")):
        said = dict(part.partition("=")[::2] for part in item.split(","))
        first, _, last = said.get("file", "").partition("[")[2].rstrip("]").partition("-")
        files = int(last) - int(first) + 1 if last else 1
        if files == int(said.get("count", "0")) and said.get("file"):
            found[said["name"], said.get("type", "")] = files
    return found
