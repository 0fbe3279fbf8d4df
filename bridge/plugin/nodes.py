"""`nodes` and `free`: the nodes of both clusters as sinfo lists them, and what could start now, by partition.

A line of `nodes` shows one node, or a group of equal nodes as sinfo does.  The amounts of a group are sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from bridge.node_survey import Amount, NodeItem, PartitionItem, Survey
from bridge.plugin.lists import Entry, Row
from bridge.plugin.table import Screen, table
from scheduler.model.hostlist import folded, is_name
from scheduler.model.text import decimal
from scheduler.translate.grouping import natural

GIB = 1024  # MiB
DAY_MIN = 24 * 60
MOST_NAMED = 20  # so many partitions are named in a sentence
BASES = ("DOWN", "ERROR", "FUTURE", "UNKNOWN", "ALLOCATED", "MIXED", "IDLE")
# Flags of a node, and sinfo's word for each.  If a node has several flags, the first in this order counts.
WORDS = {
    "MAINTENANCE": "maint",
    "RESERVED": "reserved",
    "FAIL": "fail",
    "REBOOT_ISSUED": "reboot",
    "POWERED_DOWN": "powered_down",
    "POWERING_DOWN": "powering_down",
    "POWERING_UP": "powering_up",
    "COMPLETING": "completing",
    "PLANNED": "planned",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A list of nodes or partitions as a table.

    heads, rows   the table; rows by their first cell
    state         the number of the column with the state
    entries       for programs, by the name of the node or partition
    empty         what is printed if there is no row
    """

    heads: Row
    rows: Mapping[str, Row]
    state: int
    entries: Mapping[str, Entry]
    empty: str

    def lines(self, screen: Screen, only: Collection[str] | None = None) -> list[str]:
        """The lines of the table.  only: these rows, without the head; None: the head and all rows"""
        head, *rows = table(self.heads, list(self.rows.values()), screen, coloured=self.state)
        if only is None:
            return [head, *rows]
        return [row for key, row in zip(self.rows, rows, strict=True) if key in only]


# --- nodes --------------------------------------------------------------------------------------------------------------


def nodes(survey: Survey, partition: str, *, wide: bool, each: bool) -> Shown:
    """The table of `nodes`.

    partition   only nodes of this partition; "": all nodes
    each        a line for each node, instead of a line for each group
    """
    found = [node for node in survey.nodes if partition in ("", *node.partitions)]
    groups: dict[tuple[object, ...], list[NodeItem]] = {}
    for node in found:
        groups.setdefault((node.name,) if each else _alike(node), []).append(node)
    heads = ("NODES", "COUNT", "KUBERNETES", "SLURM", "PARTITIONS", "CPUS HELD/ALL", "MEMORY", "DEVICES", "REASON")
    more = ("BRIDGE'S PODS", "OTHER PODS", "TAINTS")
    rows = [_node_row(group) if not wide else _wide(_node_row(group), _node_more(group)) for group in groups.values()]
    return Shown(
        heads=_wide(heads, more) if wide else heads,
        rows={row[0]: row for row in sorted(rows, key=lambda row: natural(row[0]))},
        state=3,
        entries={node.name: msgspec.to_builtins(node) | {"polled": survey.polled} for node in found},
        empty=f"The bridge knows no nodes{f' in partition {partition}.{_others(survey)}' if partition else '.'}",
    )


def _others(survey: Survey) -> str:
    """Which partitions have nodes, as a sentence that begins with a space; "": none has."""
    known = sorted({name for node in survey.nodes for name in node.partitions})
    more = f" and {len(known) - MOST_NAMED:,} more" if len(known) > MOST_NAMED else ""
    return f" Partitions with nodes: {', '.join(known[:MOST_NAMED])}{more}." if known else ""


def _wide(row: Row, more: Row) -> Row:
    return (*row[:-1], *more, row[-1])


def _alike(node: NodeItem) -> tuple[object, ...]:
    sizes = tuple((name, amount.total) for name, amount in sorted(node.devices.items()))
    sides = (node.kubernetes, _state(node), node.reason or node.closed, *node.partitions)
    return (*sides, node.cpus.total, node.memory_mib.total, sizes, *node.taints)


def _node_row(group: Sequence[NodeItem]) -> Row:
    first = group[0]
    kinds = sorted({kind for node in group for kind in node.devices})
    devices = [f"{_ratio(_sum(group, _device(kind)))} {kind}" for kind in kinds]
    return (
        _hostlist([node.name for node in group]),
        f"{len(group):,}",
        first.kubernetes or "-",
        _state(first),
        ",".join(first.partitions) or "-",
        _ratio(_sum(group, lambda node: node.cpus)),
        _ratio(_sum(group, lambda node: node.memory_mib), GIB) + "Gi",
        ", ".join(devices) or "-",
        first.reason or first.closed or "-",
    )


def _node_more(group: Sequence[NodeItem]) -> Row:
    bridge = _pods(group, sum(node.pods.bridge for node in group), lambda amount: amount.bridge)
    others = _pods(group, sum(node.pods.others for node in group), lambda amount: amount.others)
    return bridge, others, ",".join(group[0].taints) or "-"


def _state(node: NodeItem) -> str:
    """The state of a node in sinfo's words: mixed, drained, down*; "-": Slurm does not have the node."""
    if not node.slurm:
        return "-"
    states = set(node.slurm)
    base = next((state.lower() for state in BASES if state in states), "unknown")
    if "DRAIN" in states:
        word = "draining" if states & {"ALLOCATED", "MIXED", "COMPLETING"} else "drained"
    else:
        word = next((word for flag, word in WORDS.items() if flag in states), base)
    return word + ("*" if "NOT_RESPONDING" in states else "")


def _device(kind: str) -> Callable[[NodeItem], Amount]:
    return lambda node: node.devices.get(kind, Amount())


def _sum(group: Iterable[NodeItem], of: Callable[[NodeItem], Amount]) -> tuple[int, int]:
    """The held amount and the total of a group."""
    amounts = [of(node) for node in group]
    return sum(amount.held for amount in amounts), sum(amount.total for amount in amounts)


def _ratio(amounts: tuple[int, int], unit: int = 1) -> str:
    return "/".join(decimal(amount / unit) for amount in amounts)


def _pods(group: Sequence[NodeItem], count: int, part: Callable[[Amount], float]) -> str:
    if not count:
        return "-"
    devices: Counter[str] = Counter()
    for node in group:
        devices.update({kind: int(part(amount)) for kind, amount in node.devices.items()})
    cpus, memory = sum(part(node.cpus) for node in group), sum(part(node.memory_mib) for node in group)
    return f"{count:,}: {_amounts(cpus, memory, devices)}"


def _amounts(cpus: float, memory_mib: float, devices: Mapping[str, int]) -> str:
    memory = f"{decimal(memory_mib / GIB)}Gi" if memory_mib >= GIB else f"{memory_mib:.0f}Mi"
    return ", ".join(
        [f"{decimal(cpus, 6)} CPU{'s' if cpus != 1 else ''}", memory]
        + [f"{count:,} {kind}" for kind, count in sorted(devices.items()) if count]
    )


# --- free ---------------------------------------------------------------------------------------------------------------


def free(survey: Survey, partition: str, *, wide: bool) -> Shown:
    """The table of `free`.  partition: only this one; "": every partition with a node that both clusters have"""
    members: dict[str, list[NodeItem]] = {}
    for node in survey.nodes:
        for name in set(node.partitions) if node.kubernetes is not None else ():
            members.setdefault(name, []).append(node)
    entries = {}
    for name in sorted(members):
        if partition in ("", name):
            entries[name] = _free(name, survey.partitions.get(name), members[name]) | {"polled": survey.polled}
    heads = ("PARTITION", "STATE", "NODES", "CPUS FREE/ALL", "MEMORY", "DEVICES", "ROOM ON ONE NODE", "TIME LIMIT")
    more = ("FREE NODES", "CLOSED NODES")
    rows = {name: _free_row(entry) for name, entry in entries.items()}
    if wide:
        rows = {name: _wide(row, _free_more(entries[name])) for name, row in rows.items()}
    where = f"Partition {partition} has no node" if partition else "Slurm has no partition with nodes"
    empty = f"{where} of this Kubernetes cluster.{_others(survey)}"
    return Shown(_wide(heads, more) if wide else heads, rows, 1, entries, empty)


def _free(name: str, known: PartitionItem | None, members: Sequence[NodeItem]) -> Entry:
    up = known is None or known.up
    roomy = [node for node in members if up and node.cpus.free and node.memory_mib.free]  # a pod needs some of both
    largest = max(roomy, key=_room, default=None)
    kinds = sorted({kind for node in members for kind in node.devices})
    return {
        "partition": name,
        "up": up,
        "default": known is not None and known.default,
        "max_time_min": known.max_time_min if known is not None else None,
        "nodes": {"free": len(roomy), "total": len(members)},
        "cpus": _free_of(roomy, members, lambda node: node.cpus),
        "memory_mib": _free_of(roomy, members, lambda node: node.memory_mib),
        "devices": {kind: _free_of(roomy, members, _device(kind)) for kind in kinds},
        "largest": _largest(largest) if largest is not None else None,
        "free_nodes": [node.name for node in roomy],
        "closed": dict(Counter(node.closed for node in members if node.closed)),
    }


def _room(node: NodeItem) -> tuple[int, int, int]:
    return sum(amount.free for amount in node.devices.values()), node.cpus.free, node.memory_mib.free


def _free_of(
    roomy: Iterable[NodeItem], members: Iterable[NodeItem], of: Callable[[NodeItem], Amount]
) -> dict[str, int]:
    return {"free": sum(of(node).free for node in roomy), "total": sum(of(node).total for node in members)}


def _largest(node: NodeItem) -> Entry:
    devices = {kind: amount.free for kind, amount in node.devices.items() if amount.free}
    return {"node": node.name, "cpus": node.cpus.free, "memory_mib": node.memory_mib.free, "devices": devices}


def _free_row(entry: Entry) -> Row:
    devices = [f"{_share(amounts)} {kind}" for kind, amounts in entry["devices"].items()]
    largest = entry["largest"]
    return (
        entry["partition"] + ("*" if entry["default"] else ""),
        "up" if entry["up"] else "down",
        _share(entry["nodes"]),
        _share(entry["cpus"]),
        _share(entry["memory_mib"], GIB) + "Gi",
        ", ".join(devices) or "-",
        _amounts(largest["cpus"], largest["memory_mib"], largest["devices"]) if largest is not None else "-",
        _limit(entry["max_time_min"]),
    )


def _free_more(entry: Entry) -> Row:
    closed = [f"{count:,} {why}" for why, count in sorted(entry["closed"].items())]
    return _hostlist(entry["free_nodes"]) or "-", "; ".join(closed) or "-"


def _hostlist(names: Sequence[str]) -> str:
    """These names as a hostlist, as sinfo writes it.  Names that no node of Slurm can have follow unchanged."""
    odd = sorted(name for name in names if not is_name(name))
    return ",".join(filter(None, [folded(names), *odd]))


def _share(amounts: Mapping[str, int], unit: int = 1) -> str:
    return _ratio((amounts["free"], amounts["total"]), unit)


def _limit(minutes: int | None) -> str:
    """The time limit as sinfo writes it."""
    if minutes is None:
        return "infinite"
    days, rest = divmod(minutes, DAY_MIN)
    return (f"{days}-" if days else "") + f"{rest // 60:02d}:{rest % 60:02d}:00"
