"""The nodes of the simulated Slurm: which jobs fit where, and the resources of each job there.

A node counts cores, memory and devices, and allocates devices by index, lowest first, so that a device which is allocated
twice fails an assertion.  Typed devices ("gpu:h100") are requested with their type or without.  layout.py decides
which nodes a job of several tasks gets, and how many tasks each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Gres = tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The resources that a job asks for.

    cpus            of each task
    memory_mib      on each node that it gets, or, with memory_by_cpu, for each CPU that it gets
    gres            on each node: (name, type or "", count)
    task_gres       of each task
    whole           the nodes for itself: all their cores and devices (but memory only as asked)
    tasks_per_node  exactly this number of places on every node of the job, even if some stay empty; None: as many as fit
    min_nodes       the least number of nodes
    max_nodes       the largest number; Slurm takes as many nodes as it may.  None: Slurm takes as few as it can
    """

    cpus: int
    memory_mib: int
    gres: Gres = ()
    features: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    whole: bool = False
    tasks: int = 1
    tasks_per_node: int | None = None
    min_nodes: int = 1
    max_nodes: int | None = 1
    memory_by_cpu: bool = False
    task_gres: Gres = ()

    def devices(self, name: str) -> int:
        """The number of devices of that name that the whole job asks for."""
        a_node = sum(count for known, _, count in self.gres if known == name)
        a_task = sum(count for known, _, count in self.task_gres if known == name)
        return a_node * self.min_nodes + a_task * self.tasks

    def places(self, holding: Holding) -> int:
        """The number of tasks for which the resources granted on one node are enough."""
        held = {kind: len(indices) for kind, indices in holding.devices.items()}
        by_devices = [_count(held, name, kind) // count for name, kind, count in self.task_gres]
        counted = self.memory_by_cpu and holding.memory_mib  # 0: this Slurm does not count memory
        by_memory = [holding.memory_mib // (self.memory_mib * self.cpus)] if counted else []
        return min([holding.cores.bit_count() // self.cpus, *by_devices, *by_memory])


@dataclass(frozen=True, slots=True)
class Holding:
    """The resources that a job holds on one node.

    cores    a bitmap
    devices  (name, type) to the indices held
    """

    node: str
    cores: int
    memory_mib: int
    devices: Mapping[tuple[str, str], tuple[int, ...]]


NOTHING: Mapping[int, Holding] = {}


@dataclass(slots=True)
class SlurmSimNode:
    """One node.

    devices   (name, type) to how many; types of one name are numbered one after the other, as files in a gres.conf
    external  no slurmd: State=EXTERNAL
    dynamic   made by `new/node`
    counts_memory  False: as with SelectTypeParameters=CR_Core, memory is no limit but the node's whole
    address   NodeAddr; "": none was given, and its name is shown instead
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
    counts_memory: bool = True
    address: str = "192.0.2.1"
    free_cores: int = field(init=False)
    free_memory_mib: int = field(init=False)
    free_devices: dict[tuple[str, str], list[int]] = field(init=False)
    lost_devices: dict[tuple[str, str], list[int]] = field(default_factory=dict)
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
        """True if jobs may start there."""
        return not (self.down or self.drained or self.not_responding)

    @property
    def states(self) -> list[str]:
        """As slurmrestd lists them."""
        if self.down:
            base = "DOWN"
        elif not self.jobs:
            base = "MIXED" if self.lost_devices else "IDLE"
        else:
            base = "MIXED" if self.free_cores else "ALLOCATED"
        flags = {
            "EXTERNAL": self.external,
            "DRAIN": self.drained,
            "NOT_RESPONDING": self.not_responding,
            "DYNAMIC_NORM": self.dynamic,
        }
        return [base, *(flag for flag, holds in flags.items() if holds)]

    def room_when_empty(self, wanted: Wanted) -> int:
        """The number of tasks of the job that fit on the empty node, whatever its state."""
        return self._room(wanted, self.cpus, self.memory_mib, self.devices)

    def room(self, wanted: Wanted, freed: Mapping[int, Holding] = NOTHING) -> int:
        """The number of tasks of the job that fit now, or if the resources in `freed` (by job) were free."""
        alone = not self.jobs.difference(freed)
        if not self.in_service or (self.whole_for is not None and self.whole_for not in freed):
            return 0
        if wanted.whole and not alone:
            return 0
        cores, memory = self.free_cores.bit_count(), self.free_memory_mib
        devices = {kind: len(free) for kind, free in self.free_devices.items()}
        for holding in freed.values():
            cores += holding.cores.bit_count()
            memory += holding.memory_mib
            for kind, indices in holding.devices.items():
                devices[kind] += len(indices)
        return self._room(wanted, cores, memory, devices)

    def _room(self, wanted: Wanted, cpus: int, memory_mib: int, devices: Mapping[tuple[str, str], int]) -> int:
        if self.name in wanted.excluded or not wanted.features.issubset(self.features):
            return 0
        tasks = cpus // wanted.cpus
        if wanted.memory_by_cpu and wanted.memory_mib and not wanted.whole:
            tasks = min(tasks, memory_mib // wanted.memory_mib // wanted.cpus)
        elif self._memory(wanted, tasks) > memory_mib:
            return 0
        if not all(_count(devices, name, kind) >= count for name, kind, count in wanted.gres):
            return 0
        tasks = min([tasks, *(_count(devices, name, kind) // count for name, kind, count in wanted.task_gres)])
        if wanted.tasks_per_node is None:
            return tasks
        return wanted.tasks_per_node if tasks >= wanted.tasks_per_node else 0

    def _memory(self, wanted: Wanted, tasks: int) -> int:
        """MiB that this number of tasks is charged; with a whole node, for all of its CPUs."""
        if not wanted.memory_by_cpu:
            return wanted.memory_mib
        return wanted.memory_mib * (self.cpus if wanted.whole else wanted.cpus * tasks)

    def take(self, job_id: int, wanted: Wanted, tasks: int = 1) -> Holding:
        """Allocate what this number of tasks of the job wants; `room` found that the node has it."""
        assert 0 < tasks <= self.room(wanted), f"{self.name} has no room for job {job_id}"
        cores = self.free_cores if wanted.whole else _lowest(self.free_cores, wanted.cpus * tasks)
        devices = self._pick_all() if wanted.whole else self._pick(wanted, tasks)
        if self.external and not self.dynamic and wanted.task_gres:
            # As slurmctld does with external nodes of slurm.conf: the job gets none of them, and no other job ever gets them
            # again.
            for kind, indices in devices.items():
                self.lost_devices.setdefault(kind, []).extend(indices)
            devices = dict.fromkeys(devices, ())
        memory = self._memory(wanted, tasks) if self.counts_memory else 0
        self.free_cores &= ~cores
        self.free_memory_mib -= memory
        self.jobs.add(job_id)
        self.whole_for = job_id if wanted.whole else None
        return Holding(self.name, cores, memory, devices)

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

    def find_devices(self) -> None:
        """Free the lost devices, as a reconfigure does."""
        for kind, indices in self.lost_devices.items():
            self.free_devices[kind] = sorted([*self.free_devices[kind], *indices])
        self.lost_devices.clear()

    def _pick(self, wanted: Wanted, tasks: int) -> dict[tuple[str, str], tuple[int, ...]]:
        picked: dict[tuple[str, str], tuple[int, ...]] = {}
        asked = (*wanted.gres, *((name, kind, count * tasks) for name, kind, count in wanted.task_gres))
        for name, kind, count in asked:
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


def _count(devices: Mapping[tuple[str, str], int], name: str, kind: str) -> int:
    """The number of devices of that name.  kind: their type; "": any."""
    return sum(count for known, count in devices.items() if known[0] == name and kind in ("", known[1]))


def _lowest(bits: int, count: int) -> int:
    """The `count` lowest of the bits that are set."""
    picked = 0
    for _ in range(count):
        bit = bits & -bits
        picked |= bit
        bits ^= bit
    return picked
