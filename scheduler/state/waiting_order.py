"""The bridge's waiting jobs of each partition in the order in which Slurm considers them: by priority, then by id (Q2).

The priority is from the last read of the job.  A job that was not read yet is behind the other jobs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """The place of a waiting job.  number: from 1; of: how many jobs of the bridge wait in the partition."""

    number: int
    of: int


Rank = tuple[float, int, str]  # negative priority, job id, workload key


@dataclass(slots=True)
class WaitingOrder:
    """See the module."""

    _rank: dict[str, tuple[str, Rank]] = field(default_factory=dict)
    _ranks: dict[str, list[Rank]] = field(default_factory=dict)

    def put(self, key: str, partition: str, priority: int | None, job_id: int) -> None:
        """Note that the job of the workload *key* waits in the partition.  priority: None: the job was not read yet"""
        entry = (partition, (-priority if priority is not None else 1.0, job_id, key))
        if self._rank.get(key) == entry:
            return
        self.drop(key)
        self._rank[key] = entry
        insort(self._ranks.setdefault(partition, []), entry[1])

    def drop(self, key: str) -> None:
        """Note that no job of the workload waits."""
        entry = self._rank.pop(key, None)
        if entry is None:
            return
        partition, rank = entry
        ranks = self._ranks[partition]
        del ranks[bisect_left(ranks, rank)]
        if not ranks:
            del self._ranks[partition]

    def place(self, key: str) -> Place | None:
        """The place of the job of the workload; None: no job of the workload waits."""
        entry = self._rank.get(key)
        if entry is None:
            return None
        ranks = self._ranks[entry[0]]
        return Place(bisect_left(ranks, entry[1]) + 1, len(ranks))

    def waiting(self, partition: str) -> int:
        """How many jobs of the bridge wait in the partition."""
        return len(self._ranks.get(partition, ()))
