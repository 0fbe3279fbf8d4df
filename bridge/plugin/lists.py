"""`queue` and `history`: the pods of a selection as squeue and sacct list jobs, as tables and as JSON.

`history` lists ended pods that still exist in Kubernetes.  Only Slurm's accounting has the jobs of deleted pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.plugin.pods import Seen, briefly, state_of, why
from bridge.plugin.table import Screen, age, table
from scheduler import names
from scheduler.model.kubernetes import Pod
from scheduler.model.text import dated, decimal
from scheduler.translate.grouping import MAX_SIZE
from scheduler.translate.job_spec import is_extended, peak

GIB = 2**30
MIB = 2**20
Row = tuple[str, ...]
Entry = dict[str, Any]  # for programs


@dataclass(frozen=True, slots=True)
class View:
    """One list.

    heads, wide   names of the columns, and of the columns that `-o wide` adds
    shown         True for the pods that the list has
    row, more     the cells of a pod for `heads` at a time (epoch seconds), and for `wide`
    order         the sort key
    state         the number of the column with the state
    empty         what is printed if there is no pod

    The cells for `wide` come before the last column, which may be long.
    """

    heads: Row
    wide: Row
    shown: Callable[[Seen], bool]
    row: Callable[[Seen, float], Row]
    more: Callable[[Seen], Row]
    order: Callable[[Seen], Any]
    state: int
    empty: str

    def pods(self, found: Iterable[Seen]) -> list[Seen]:
        """The pods that the list has, in its order."""
        return sorted(filter(self.shown, found), key=self.order)

    def lines(self, pods: Sequence[Seen], now: float, screen: Screen, *, spaces: bool, wide: bool) -> list[str]:
        """The table.  spaces: with the column of the namespace"""
        heads, state = (
            self._with(self.heads, self.wide if wide else (), "NAMESPACE" if spaces else ""),
            self.state + spaces,
        )
        rows = [
            self._with(self.row(seen, now), self.more(seen) if wide else (), seen.pod.namespace if spaces else "")
            for seen in pods
        ]
        return table(heads, rows, screen, coloured=state)

    @staticmethod
    def _with(row: Row, more: Row, space: str) -> Row:
        return (*((space,) if space else ()), *row[:-1], *more, row[-1])


def _has_not_ended(seen: Seen) -> bool:
    return not seen.pod.finished


def _queue_row(seen: Seen, now: float) -> Row:
    pod = seen.pod
    since = now - (pod.bound_at or pod.created)
    said = briefly(seen)
    where = " ".join(filter(None, (pod.node, f"({said})" if said else "")))
    return str(seen.job or "-"), pod.name, state_of(seen), age(since), where


def _queue_more(seen: Seen) -> Row:
    gang = f"{seen.gang} {_rank(seen.pod)}".strip() if seen.gang else "-"
    return gang, *asked_for(seen.pod), *(_option(seen.pod, key) for key in ("partition", "qos"))


def _rank(pod: Pod) -> str:
    rank, size = pod.annotations.get(names.RANK, ""), pod.annotations.get(names.SIZE, "")
    return f"{rank}/{size}" if rank and size else ""


def _option(pod: Pod, option: str) -> str:
    return pod.annotations.get(names.PREFIX + option, "-")


def asked_for(pod: Pod) -> Row:
    """The CPUs, memory and devices that the containers of the pod request."""
    amounts = peak(pod)
    cpus, memory = amounts.get("cpu", 0), amounts.get("memory", 0)
    devices = [
        f"{count:,} {name.partition('/')[2]}" for name, count in sorted(amounts.items()) if is_extended(name) and count
    ]
    return decimal(cpus / 1000, 6), _memory(memory), " ".join(devices) or "-"


def _memory(amount: int) -> str:
    return f"{decimal(amount / GIB, 3)}Gi" if amount >= GIB else f"{-(-amount // MIB)}Mi" if amount else "-"


def _history_row(seen: Seen, now: float) -> Row:
    pod, ended = seen.pod, seen.ended
    code = "-" if pod.exit_code is None or not pod.finished else str(pod.exit_code)
    waited = age(pod.bound_at - pod.created) if pod.bound_at is not None else "-"
    until = ended if pod.finished else now
    ran = age(until - pod.bound_at) if pod.bound_at is not None and until is not None else "-"
    end = dated(ended, "%Y-%m-%d %H:%M:%S") if ended else "-"
    return str(seen.job or "-"), pod.name, state_of(seen), code, waited, ran, end, pod.node or "-"


def _history_more(seen: Seen) -> Row:
    reason = seen.pod.end_reason if seen.pod.finished else ""
    return seen.gang or "-", *asked_for(seen.pod), reason or "-"


QUEUE = View(
    heads=("JOB", "POD", "STATE", "TIME", "NODE (REASON)"),
    wide=("GANG", "CPUS", "MEMORY", "DEVICES", "PARTITION", "QOS"),
    shown=_has_not_ended,
    row=_queue_row,
    more=_queue_more,
    order=lambda seen: (not seen.pod.node, seen.pod.created, seen.pod.name),
    state=2,
    empty="No pods of slurm-bridge wait or run {where}. kubectl slurm history lists ended pods.",
)
HISTORY = View(
    heads=("JOB", "POD", "STATE", "EXIT", "WAITED", "RAN", "ENDED (UTC)", "NODE"),
    wide=("GANG", "CPUS", "MEMORY", "DEVICES", "REASON"),
    shown=lambda seen: seen.pod.finished,
    row=_history_row,
    more=_history_more,
    order=lambda seen: (seen.pod.bound_at or seen.pod.created, seen.pod.name),
    state=2,
    empty=(
        "Kubernetes has no pods of slurm-bridge that ended {where}. Pods that were deleted are in Slurm's accounting: "
        "sacct --format=JobID,JobName,State,Elapsed,Comment."
    ),
)


def entry(seen: Seen) -> Entry:
    """One pod for programs, with everything that `-o wide` shows.  Times are epoch seconds; null: not yet, or not known."""
    pod, amounts = seen.pod, peak(seen.pod)
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": pod.uid,
        "state": state_of(seen),
        "reason": pod.scheduled.reason if pod.scheduled is not None and not (pod.node or seen.never_ran) else "",
        "message": why(seen),
        "job": seen.job,
        "gang": seen.gang or None,
        "rank": _number(pod.annotations.get(names.RANK, "")),
        "size": _number(pod.annotations.get(names.SIZE, "")),
        "cpus": amounts.get("cpu", 0) / 1000,
        "memory_mib": -(-amounts.get("memory", 0) // MIB),
        "devices": {name: count for name, count in sorted(amounts.items()) if is_extended(name) and count},
        "partition": pod.annotations.get(names.PREFIX + "partition"),
        "qos": pod.annotations.get(names.PREFIX + "qos"),
        "node": pod.node or None,
        "created": pod.created,
        "bound": pod.bound_at,
        "started": min((run.began for run in seen.runs if run.began is not None and not run.initial), default=None),
        "ended": seen.ended,
        "exit_code": pod.exit_code if pod.finished else None,
    }


def _number(text: str) -> int | None:
    """The number in an annotation; None: the text is no number, or has too many digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_SIZE)) else None
