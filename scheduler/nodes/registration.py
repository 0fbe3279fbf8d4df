"""Translates a Kubernetes node to the external node to register in Slurm (N1), or returns why that is not possible.

The registered size is the size that kubelet offers to pods, less a reserve that is fixed at registration.  Daemons that are
added later use the reserve, so the registered size stays right.  Slurm counts devices by kind, and kubelet chooses them.

The registration becomes one line of node configuration in Slurm.  Every text of that line is checked here, because a blank in
a name or a feature would begin another option.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from scheduler import names
from scheduler.model.kubernetes import Node
from scheduler.model.refusal import Refusal
from scheduler.model.setting import setting
from scheduler.model.slurm import NodeSpec, Partition, SlurmNode
from scheduler.place.feasible import slurm_name

MIB = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_RESERVED = frozenset({"default", "all", "localhost", "no_name"})  # have a meaning of their own in slurm.conf
MAX_PARTITIONS = 64


@dataclass(frozen=True, slots=True)
class ExternalNodes:
    """Nodes that are registered in Slurm because they carry the label slurm-bridge/external-node=true."""

    reserve_cpus: int = setting(
        1,
        "CPUs of each registered node that Slurm does not get, because daemons use them.\n"
        "Raise it if the DaemonSets on a node request more. A new value applies to nodes that are registered from then on.",
        ge=0,
        le=4096,
    )
    reserve_memory_mib: int = setting(
        1024,
        "Memory of each registered node that Slurm does not get, because daemons use it.\n"
        "Raise it if the DaemonSets on a node request more. A new value applies to nodes that are registered from then on.",
        ge=0,
    )
    feature_labels: tuple[str, ...] = setting(
        (),
        "Keys of node labels. Their values become features of the node in Slurm.\n"
        "Set it if pods select nodes by `slurm-bridge/constraints`, or partitions by a NodeSet of a feature.",
    )
    topology: Mapping[str, str] = setting(
        dict,
        "Maps the name of a topology in topology.yaml to the key of the node label whose value is the unit "
        "(leaf switch, block) of the node in this topology.\n"
        "Set it if Slurm places jobs by topology.",
    )
    taint: bool = setting(
        True,
        "Registered nodes get the taint `slurm-bridge/managed:NoSchedule`, so that other schedulers place "
        "no pods there.\n"
        "Set it to false if another mechanism keeps other pods away.",
    )
    cure: bool = setting(
        False,
        "If an external node of slurm.conf stays NOT_RESPONDING for a minute, the bridge has slurmctld "
        "reconfigure itself, at most once in 10 minutes.\n"
        "Set it to true if signals or preemption with grace leave external nodes NOT_RESPONDING.",
    )


@dataclass(frozen=True, slots=True)
class Size:
    """The resources that a node offers, in Slurm's units."""

    cpus: int
    memory_mib: int
    gres: Mapping[str, int]


def size(node: Node, gres: Mapping[str, str]) -> Size:
    """The size that kubelet offers.  gres: extended resource to GRES name (T5); resources with the same name are added up."""
    devices: dict[str, int] = {}
    for resource, name in sorted(gres.items()):
        if count := node.allocatable.get(resource, 0):
            devices[name] = devices.get(name, 0) + count
    return Size(node.allocatable.get("cpu", 0) // 1000, node.allocatable.get("memory", 0) // MIB, devices)


def registration(
    node: Node,
    settings: ExternalNodes,
    gres: Mapping[str, str],
    partitions: Mapping[str, Partition],
    mark: str,
) -> NodeSpec | Refusal:
    """The specification of this node for Slurm; a Refusal says what is wrong with the node and what to do.

    mark   the feature that shows which cluster registered the node
    """
    name = slurm_name(node)
    offered = size(node, gres)
    cpus, memory_mib = offered.cpus - settings.reserve_cpus, offered.memory_mib - settings.reserve_memory_mib
    wanted = named_partitions(node)
    problem = (
        _bad_name(name)
        or _bad_address(node.address)
        or _bad_partitions(wanted, partitions)
        or _too_small(offered, cpus, memory_mib, settings)
    )
    if problem:
        return Refusal(names.NODE_INVALID, problem)
    labels = (node.labels.get(label, "") for label in settings.feature_labels)
    features = dict.fromkeys([mark, *wanted, *(value for value in labels if _NAME.fullmatch(value))])
    gres_counts = tuple(sorted(offered.gres.items()))
    topology = tuple(_units(node, settings.topology))
    return NodeSpec(name, node.address, cpus, memory_mib, gres_counts, tuple(features), topology)


def _units(node: Node, topology: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, label in sorted(topology.items()):
        if _NAME.fullmatch(unit := node.labels.get(label, "")):
            yield name, unit


def named_partitions(node: Node) -> list[str]:
    """The partitions that the annotation names, each once."""
    return list(dict.fromkeys(name for part in node.partitions.split(",") if (name := part.strip())))


def uncounted(offered: Size, counted: Collection[str]) -> list[str]:
    """Devices that Slurm drops silently, because GresTypes of slurm.conf does not name them: no node of Slurm has them.

    counted   names of all GRES of Slurm's nodes
    """
    return sorted({name.partition(":")[0] for name in offered.gres} - set(counted))


def size_mismatch(known: SlurmNode, offered: Size, counted: Collection[str]) -> str:
    """Why the registered size is wrong now, as part of a sentence; "": it is right, or the node has only grown (N1).

    counted   names of all GRES of Slurm's nodes; a new registration would not change other GRES

    The registered size is less than the offered size by the reserve.  It stays right until the reserve is used up.
    """
    dropped = uncounted(offered, counted)
    gres = {name: count for name, count in offered.gres.items() if name.partition(":")[0] not in dropped}
    if _with_kinds(gres) != known.gres:
        return f"it has {_devices(gres)} now"
    if offered.cpus < known.cpus:
        return f"it has {offered.cpus:,} CPUs now"
    if offered.memory_mib < known.memory_mib:
        return f"it has {offered.memory_mib:,} MiB now"
    return ""


def _with_kinds(gres: Mapping[str, int]) -> dict[str, int]:
    """The counts as Slurm shows them: a typed device counts under its plain name, too."""
    counts: dict[str, int] = {}
    for name, count in gres.items():
        for counted in {name, name.partition(":")[0]}:
            counts[counted] = counts.get(counted, 0) + count
    return counts


def _devices(gres: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(gres.items())) or "no devices"


def _bad_name(name: str) -> str:
    if _NAME.fullmatch(name) and name.lower() not in _RESERVED:
        return ""
    return (
        f'Slurm does not accept a node named "{name[:80]}". Give it another name there with the label '
        f"{names.SLURM_NODE_LABEL} (letters, digits, -, _ and .)."
    )


def _bad_address(address: str) -> str:
    if not address:
        return "The node has no InternalIP, which Slurm needs as its address. Kubelet or the cloud provider reports it."
    shown = "".join(char if char.isprintable() else "\ufffd" for char in address[:80])
    try:
        scope = getattr(ipaddress.ip_address(address), "scope_id", None)
    except ValueError:
        return f'The node\'s InternalIP "{shown}" is not an address.'
    if scope is not None:  # ipaddress takes any text after the % as a scope
        return f'The node\'s InternalIP "{shown}" has a scope (%), which is meaningless on other machines.'
    return ""


def _bad_partitions(wanted: list[str], partitions: Mapping[str, Partition]) -> str:
    unknown = [name for name in wanted if name not in partitions] if partitions else []  # none: not listed yet
    if not unknown and len(wanted) <= MAX_PARTITIONS:
        return ""
    if not unknown:
        return f"The annotation {names.PARTITIONS} names more than {MAX_PARTITIONS} partitions."
    has = ", ".join(sorted(partitions)[:20])
    return f'Slurm has no partition "{unknown[0][:80]}". Correct the annotation {names.PARTITIONS}; Slurm has: {has}.'


def _too_small(offered: Size, cpus: int, memory_mib: int, settings: ExternalNodes) -> str:
    if cpus >= 1 and memory_mib >= 1:
        return ""
    return (
        f"The node offers {offered.cpus:,} CPUs and {offered.memory_mib:,} MiB, and slurm-bridge keeps "
        f"{settings.reserve_cpus:,} CPUs and {settings.reserve_memory_mib:,} MiB of each node for daemons "
        "(settings: external_nodes): nothing is left for Slurm."
    )
