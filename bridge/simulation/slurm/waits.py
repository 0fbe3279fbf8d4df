"""Dependencies and licenses in the simulated Slurm.

Conditions are judged as measured on slurmctld.  A condition that is fulfilled is dropped.  A condition that can never be
fulfilled stays, and the job shows that.  If a job is not known (any more), afterok and afternotok on it are refused; the
other conditions on it are fulfilled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from bridge.simulation.slurm.jobs import Condition, SimJob

SINGLETON = "singleton"
KINDS = frozenset({"after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok"})
_BY_EXIT = frozenset({"afternotok", "afterok"})
_JOB = re.compile(r"([1-9][0-9]{0,9})(?:_(?:[0-9]+|\*))?(?:\+([0-9]+))?", re.ASCII)
_LICENSE = re.compile(r"([\w.@-]+)(?::([0-9]+))?", re.ASCII)


def conditions(text: str, jobs: Mapping[int, SimJob]) -> tuple[Condition, ...]:
    """All conditions that --dependency names.  Raises ValueError."""
    found: list[Condition] = []
    for item in filter(None, text.lower().split(",")):
        kind, *ids = item.split(":")
        if kind == SINGLETON and not ids:
            found.append(Condition(SINGLETON))
            continue
        if kind not in KINDS or not ids:
            raise ValueError(item)
        for each in ids:
            match = _JOB.fullmatch(each)
            if match is None or (match[2] and kind != "after") or (kind in _BY_EXIT and int(match[1]) not in jobs):
                raise ValueError(item)
            found.append(Condition(kind, int(match[1]), int(match[2] or 0)))
    return tuple(found)


def open_conditions(job: SimJob, jobs: Mapping[int, SimJob], twin: SimJob | None, now: float) -> tuple[Condition, ...]:
    """The conditions of the job that do not hold now.  Singleton is among them only while a job of that name exists."""
    left: list[Condition] = []
    for condition in job.dependency:
        if condition.kind == SINGLETON:
            left += [condition] if twin else []
        elif condition.failed:
            left.append(condition)
        elif (other := jobs.get(condition.job_id)) is not None and not _holds(condition, other, now):
            left.append(replace(condition, failed=other.ended and condition.kind not in ("after", "afterany")))
    return tuple(left)


def _holds(condition: Condition, other: SimJob, now: float) -> bool:
    well = other.state == "COMPLETED" and other.exit_code == 0
    match condition.kind:
        case "after":
            return other.ended or (other.holds and now >= other.starts + condition.delay_min * 60)
        case "afterok" | "aftercorr":
            return well
        case "afternotok":
            return other.ended and not well
        case _:
            return other.ended


def licenses(text: str) -> dict[str, int]:
    """ "matlab:2,ansys" -> {"matlab": 2, "ansys": 1}.  Raises ValueError."""
    counts: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        match = _LICENSE.fullmatch(item)
        if match is None:
            raise ValueError(item)
        counts[match[1]] = counts.get(match[1], 0) + int(match[2] or 1)
    return counts
