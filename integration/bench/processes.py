"""The cost of processes, from /proc: of the programs of this rig, and of everything else on the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

DAEMONS = frozenset(("slurmctld", "slurmrestd", "kube-apiserver", "etcd"))
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
IDLE, IOWAIT, GUEST = 3, 4, 8  # places in the first line of /proc/stat; guests are counted in user time already
KIB_PER_MIB = 1024


@dataclass(frozen=True, slots=True)
class Spent:
    """The resources that were used while a meter ran.

    seconds    how long that was
    cpu_s      processor time, in seconds, by program
    peak_mib   the most memory that each had since `forget_peaks`
    others     how many cores other programs of the machine used, on average: the noise in all other figures
    """

    seconds: float
    cpu_s: Mapping[str, float]
    peak_mib: Mapping[str, float]
    others: float


@dataclass(frozen=True, slots=True)
class _Moment:
    at: float
    busy_s: float
    ours_s: float
    cpu_s: Mapping[str, float]


@dataclass(slots=True)
class Processes:
    """The daemons of this rig, the measured programs, and this program as "bench".

    A process belongs to this rig if it is in the network of this program; other rigs may be up at the same time.
    """

    _named: dict[str, int] = field(default_factory=lambda: {"bench": os.getpid()})

    @contextmanager
    def watched(self, name: str, pid: int) -> Iterator[None]:
        """This process is one of them meanwhile."""
        self._named[name] = pid
        try:
            yield
        finally:
            del self._named[name]

    def meter(self) -> Meter:
        """Begins to run now."""
        return Meter(self)

    def forget_peaks(self) -> None:
        """Reset the peaks of memory."""
        for pid in self._programs().values():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def moment(self) -> _Moment:
        ours = in_our_network()
        cpu_s = {name: _cpu_s(pid) for name, pid in self._programs(ours).items()}
        return _Moment(time.perf_counter(), _busy_s(), sum(map(_cpu_s, ours)), cpu_s)

    def peak_mib(self) -> dict[str, float]:
        return {name: _peak_mib(pid) for name, pid in self._programs().items()}

    def _programs(self, ours: Mapping[int, str] | None = None) -> dict[str, int]:
        found = in_our_network() if ours is None else ours
        return {program: pid for pid, program in found.items() if program in DAEMONS} | self._named


class Meter:
    """Runs from when it is made."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._began = processes.moment()

    def read(self) -> Spent:
        """The resources used since the meter was started."""
        began, now = self._began, self._processes.moment()
        seconds = now.at - began.at
        others_s = (now.busy_s - began.busy_s) - (now.ours_s - began.ours_s)
        cpu_s = {name: spent - began.cpu_s[name] for name, spent in now.cpu_s.items() if name in began.cpu_s}
        return Spent(seconds, cpu_s, self._processes.peak_mib(), max(0.0, others_s / seconds))


def in_our_network() -> dict[int, str]:
    """Program by process."""
    network = os.readlink("/proc/self/ns/net")
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode()
                if os.readlink(folder / "ns/net") == network:
                    found[int(folder.name)] = os.path.basename(command)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # ended meanwhile, or not ours to look at, so not of our rig
    return found


def _cpu_s(pid: int) -> float:
    """Since it started; 0 where it has ended."""
    try:
        # After the name, which is in brackets and may hold anything; utime and stime are the 14th and 15th of all.
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(numbers[11]) + int(numbers[12])) * TICK_S


def _peak_mib(pid: int) -> float:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / KIB_PER_MIB


def _busy_s() -> float:
    """The busy time of all cores together since the machine started, in seconds."""
    ticks = [int(number) for number in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return sum(number for place, number in enumerate(ticks[:GUEST]) if place not in (IDLE, IOWAIT)) * TICK_S
