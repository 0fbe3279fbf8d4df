"""The nodes of the simulated Slurm: who may be put where, and what each job got there.

A node counts cores, memory and devices, and hands out devices by index, lowest first, so that a device given twice is an
assertion and not an average.  Typed devices ("gpu:h100") are asked for with their type or without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job asks of one node.

    gres    (name, type or "", count)
    whole   the node for itself: all its cores and devices (but memory only as asked)
    """

    cpus: int
    memory_mib: int
    gres: tuple[tuple[str, str, int], ...] = ()
    features: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """What a job holds on one node.

    cores    a bitmap
    devices  (name, type) to the indices held
    """

    node: str
    cores: int
    memory_mib: int
    devices: Mapping[tuple[str, str], tuple[int, ...]]


@dataclass(slots=True)
class SlurmSimNode:
    """One node.

    devices   (name, type) to how many; types of one name are numbered one after the other, as files in a gres.conf
    external  no slurmd: State=EXTERNAL
    dynamic   made by `new/node`
    address   NodeAddr; "": none was given, and its name is told instead
    """

    name: str
    cpus: int = 64
    memory_mib: int = 512_000
    devices: Mapping[tuple[str, str], int] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    external: bool = True
    dynamic: bool = True
    drained: bool = False
    down: bool = False
    not_responding: bool = False
    reason: str = ""
    address: str = "192.0.2.1"
    free_cores: int = field(init=False)
    free_memory_mib: int = field(init=False)
    free_devices: dict[tuple[str, str], list[int]] = field(init=False)
    jobs: set[int] = field(default_factory=set)
    whole_for: int | None = None

    def __post_init__(self) -> None:
        self.free_cores = (1 << self.cpus) - 1
        self.free_memory_mib = self.memory_mib
        self.free_devices = {}
        used: dict[str, int] = {}
        for (name, kind), count in self.devices.items():
            first = used.get(name, 0)
            self.free_devices[name, kind] = list(range(first, first + count))
            used[name] = first + count

    @property
    def in_service(self) -> bool:
        """Whether anything may start there."""
        return not (self.down or self.drained or self.not_responding)

    @property
    def states(self) -> list[str]:
        """As slurmrestd lists them."""
        if self.down:
            base = "DOWN"
        elif not self.jobs:
            base = "IDLE"
        else:
            base = "MIXED" if self.free_cores else "ALLOCATED"
        flags = {
            "EXTERNAL": self.external,
            "DRAIN": self.drained,
            "NOT_RESPONDING": self.not_responding,
            "DYNAMIC_NORM": self.dynamic,
        }
        return [base, *(flag for flag, holds in flags.items() if holds)]

    def could(self, wanted: Wanted) -> bool:
        """Whether the job fits on this node when it is empty, whatever its state."""
        return (
            wanted.cpus <= self.cpus
            and wanted.memory_mib <= self.memory_mib
            and self.name not in wanted.excluded
            and wanted.features.issubset(self.features)
            and all(self._has(name, kind) >= count for name, kind, count in wanted.gres)
        )

    def fits(self, wanted: Wanted) -> bool:
        """Whether the job fits now."""
        if not self.in_service or self.whole_for is not None or not self.could(wanted):
            return False
        if wanted.whole and self.jobs:
            return False
        return (
            wanted.cpus <= self.free_cores.bit_count()
            and wanted.memory_mib <= self.free_memory_mib
            and all(self._free(name, kind) >= count for name, kind, count in wanted.gres)
        )

    def take(self, job_id: int, wanted: Wanted) -> Holding:
        """Give the job what it wants; `fits` said that it can be had."""
        assert self.fits(wanted), f"{self.name} has no room for job {job_id}"
        cores = self.free_cores if wanted.whole else _lowest(self.free_cores, wanted.cpus)
        devices = self._pick_all() if wanted.whole else self._pick(wanted)
        self.free_cores &= ~cores
        self.free_memory_mib -= wanted.memory_mib
        self.jobs.add(job_id)
        self.whole_for = job_id if wanted.whole else None
        return Holding(self.name, cores, wanted.memory_mib, devices)

    def give_back(self, job_id: int, holding: Holding) -> None:
        """The job ended."""
        assert job_id in self.jobs, f"job {job_id} holds nothing on {self.name}"
        assert not self.free_cores & holding.cores, f"cores of {self.name} were given twice"
        self.jobs.remove(job_id)
        self.free_cores |= holding.cores
        self.free_memory_mib += holding.memory_mib
        for kind, indices in holding.devices.items():
            free = self.free_devices[kind]
            assert not set(free) & set(indices), f"devices of {self.name} were given twice"
            self.free_devices[kind] = sorted([*free, *indices])
        if self.whole_for == job_id:
            self.whole_for = None

    def _pick(self, wanted: Wanted) -> dict[tuple[str, str], tuple[int, ...]]:
        picked: dict[tuple[str, str], tuple[int, ...]] = {}
        for name, kind, count in wanted.gres:
            left = count
            for known, free in self.free_devices.items():
                if left and known[0] == name and kind in ("", known[1]):
                    taken, self.free_devices[known] = free[:left], free[left:]
                    left -= len(taken)
                    if taken:
                        picked[known] = (*picked.get(known, ()), *taken)
        return picked

    def _pick_all(self) -> dict[tuple[str, str], tuple[int, ...]]:
        picked = {kind: tuple(free) for kind, free in self.free_devices.items() if free}
        self.free_devices = {kind: [] for kind in self.free_devices}
        return picked

    def _has(self, name: str, kind: str) -> int:
        return sum(count for known, count in self.devices.items() if known[0] == name and kind in ("", known[1]))

    def _free(self, name: str, kind: str) -> int:
        return sum(
            len(free) for known, free in self.free_devices.items() if known[0] == name and kind in ("", known[1])
        )


def _lowest(bits: int, count: int) -> int:
    """The `count` lowest of the bits that are set."""
    picked = 0
    for _ in range(count):
        bit = bits & -bits
        picked |= bit
        bits ^= bit
    return picked
