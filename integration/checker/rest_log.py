"""slurmrestd's log, read for one question: who cancelled a job of which neither slurmdbd nor slurmctld says it.

After a start of slurmctld its database no longer says who cancelled a job that had ended before.  A bridge cancels a job by
its id and name together, `DELETE …/jobs/` (docs/decisions/0003).  Journeys cancel a job by its id alone, `DELETE …/job/7`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

DELETE = re.compile(r"^\[(?P<at>[-0-9T:.]+)\] .* DELETE /slurm/[^/]+/(?:jobs/|job/(?P<id>\d+))")
# A request takes effect so long after its line: by id and name, and by id alone.  In doubt the bridge did not cancel the job.
SOON_S, LATEST_S = 5.0, 30.0


@dataclass(slots=True)
class RestLog:
    """When jobs were to be cancelled: by id and name together, and by id alone."""

    together: list[float] = field(default_factory=list)
    by_id: dict[int, list[float]] = field(default_factory=dict)

    def a_bridge_cancelled(self, ids: Iterable[int], at: float) -> bool:
        """True if only a bridge can have cancelled the job that has these ids and ended at that time."""
        others = (_any(self.by_id.get(each, []), at - LATEST_S, at) for each in ids)
        return _any(self.together, at - SOON_S, at) and not any(others)


def read(path: Path) -> RestLog:
    """What the file says; nothing if there is no file."""
    found = RestLog()
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        if request := DELETE.match(line):
            at = datetime.fromisoformat(request["at"]).replace(tzinfo=UTC).timestamp()
            (found.by_id.setdefault(int(request["id"]), []) if request["id"] else found.together).append(at)
    return found


def _any(times: list[float], begin: float, end: float) -> bool:
    return bisect_left(times, begin) < bisect_right(times, end)
