"""slurmdbd's records of jobs, as sacct prints them: what each job was, and who cancelled it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

FIELDS = (
    "JobIDRaw", "JobID", "User", "UID", "Account", "Partition", "QOS", "State", "Submit", "Start", "NodeList", "AllocTRES",
    "Timelimit", "JobName",
)  # fmt: skip
SACCT = ("sacct", "-n", "-P", "-D", "-a", "-X", "--delimiter=\x1f", "-S", "now-30days", "-o", ",".join(FIELDS))
UNITS_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a job.  A job that was requeued has several.

    uid        of its user
    ended_by   UID of who cancelled it; None: nobody did
    tres       what it was given: "cpu", "mem" in MiB, "gres/gpu"; {} if slurmdbd does not say
    limit_s    its time limit in seconds; None: none
    """

    id: int
    name: str
    user: str
    uid: int
    account: str
    partition: str
    qos: str
    state: str
    ended_by: int | None
    submitted: float
    started: float | None
    nodes: frozenset[str]
    tres: Mapping[str, float]
    limit_s: float | None


def parse(printed: str) -> list[Record]:
    """The records that `SACCT` printed, in UTC."""
    return [_record(line.split("\x1f", len(FIELDS) - 1)) for line in printed.splitlines() if "\x1f" in line]


def _record(cells: list[str]) -> Record:
    raw, _, user, uid, account, partition, qos, state, submit, start, nodes, tres, limit, name = cells
    by = re.fullmatch(r"CANCELLED by (\d+)", state)
    return Record(
        id=int(raw),
        name=name,
        user=user,
        uid=int(uid),
        account=account,
        partition=partition,
        qos=qos,
        state=state.partition(" ")[0],
        ended_by=int(by[1]) if by else None,
        submitted=_time(submit) or 0.0,
        started=_time(start),
        nodes=frozenset(hosts(nodes)) if nodes != "None assigned" else frozenset(),
        # A slurmctld that lost the grant, because it was killed, writes part of the request here: no node, memory and GPUs.
        tres=_tres(tres) if "node=" in tres else {},
        limit_s=_seconds(limit),
    )


def hosts(shown: str) -> Iterator[str]:
    """The names in a host list: "k[1-3,7],n1" -> k1, k2, k3, k7, n1."""
    for prefix, inside, suffix in re.findall(r"([^,\[]+)(?:\[([^\]]*)\]([^,\[]*))?", shown):
        for part in inside.split(",") if inside else ():
            first, _, last = part.partition("-")
            width = len(first) if first.startswith("0") else 0
            yield from (f"{prefix}{number:0{width}d}{suffix}" for number in range(int(first), int(last or first) + 1))
        if not inside:
            yield prefix


def _tres(shown: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in shown.split(",") if shown else ():
        kind, _, amount = part.partition("=")
        if kind == "mem":
            found[kind] = float(amount[:-1]) * UNITS_MIB[amount[-1]]
        elif kind in ("cpu", "gres/gpu"):
            found[kind] = float(amount)
    return found


def _time(shown: str) -> float | None:
    try:
        return datetime.fromisoformat(shown).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None  # "Unknown", "None"


def _seconds(shown: str) -> float | None:
    """ "1-02:03:04" -> 93784; None for "UNLIMITED" and "Partition_Limit"."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", shown)
    if not found:
        return None
    days, hours, minutes, rest = (int(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest
