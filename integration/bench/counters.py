"""What processes cost, from /proc, and what the bridge says that it called, from its /metrics."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

DAEMONS = (
    "slurmctld",
    "slurmrestd",
    "kube-apiserver",
    "etcd",
    "kwok",
    "kube-controller-manager",
    "slurmdbd",
    "mariadbd",
)
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
KIB_PER_MIB = 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """What one program has used.

    cpu_s     processor time since it started, in seconds
    rss_mib   memory now
    peak_mib  the most since it started, or since `forget_peaks`
    """

    cpu_s: float
    rss_mib: float
    peak_mib: float


@dataclass(slots=True)
class Processes:
    """The daemons of the rig that we are in, and the subjects that are named.

    A daemon of ours is one in our network: other rigs may run beside this one.
    """

    named: dict[str, int] = field(default_factory=dict)

    def usage(self) -> dict[str, Usage]:
        """Of each program."""
        return {name: _usage(pid) for name, pid in self._pids().items()}

    def forget_peaks(self) -> None:
        """Peaks of memory begin anew."""
        for pid in self._pids().values():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def _pids(self) -> dict[str, int]:
        ours = os.readlink("/proc/self/ns/net")
        found = dict(self.named)
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            try:
                command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode()
                program = os.path.basename(command)
                if program in DAEMONS and os.readlink(folder / "ns/net") == ours:
                    found[program] = int(folder.name)
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
        return found


def spent(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, float]:
    """Seconds of processor time between the two, of each program that is in both."""
    return {name: usage.cpu_s - before[name].cpu_s for name, usage in after.items() if name in before}


def _usage(pid: int) -> Usage:
    # After the name, which is in brackets and may hold anything; utime and stime are the 14th and 15th of all.
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    rss, peak = (int(lines[key].split()[0]) / KIB_PER_MIB for key in ("VmRSS", "VmHWM"))
    return Usage((int(numbers[11]) + int(numbers[12])) * TICK_S, rss, peak)


def calls(metrics: str, side: str) -> dict[str, int]:
    """How often each operation was called on that side, whatever came of it."""
    found: dict[str, int] = {}
    for family in text_string_to_metric_families(metrics):  # type: ignore[no-untyped-call]
        if family.name == "slurm_bridge_call_seconds":
            for sample in family.samples:
                if sample.name.endswith("_count") and sample.labels["side"] == side:
                    operation = sample.labels["operation"]
                    found[operation] = found.get(operation, 0) + int(sample.value)
    return found


def difference(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """What came between, without what did not change."""
    return {name: number - before.get(name, 0) for name, number in after.items() if number != before.get(name, 0)}
