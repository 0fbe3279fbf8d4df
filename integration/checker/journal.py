"""What a run did on purpose, for the checker to read: a line of JSON each, in the rig's folder.

Clusters without a folder (given by KUBECONFIG and SLURM_REST) are not checked, so nothing is written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

FILE = "journal.jsonl"
BRIDGE = "slurm-bridge"  # its schedulerName unless a setting says otherwise
Interval = tuple[float, float]


def note(kind: str, **what: Any) -> None:
    """Adds a line.  kind: "policy", "breaks", "holds", "disturbed" or "calm"."""
    if state := os.environ.get("RIG_STATE"):
        with Path(state, FILE).open("a") as journal:
            journal.write(json.dumps({"at": time.time(), "kind": kind, **what}) + "\n")


def breaks(invariant: str, about: str, why: str) -> None:
    """The run violates this invariant on purpose from now on.

    about   the pod (namespace/name) or the name of the job; shell patterns
    """
    note("breaks", invariant=invariant, about=about, why=why)


@contextmanager
def breaking(invariant: str, about: str, why: str) -> Iterator[None]:
    """The same, within this block alone."""
    breaks(invariant, about, why)
    try:
        yield
    finally:
        note("holds", invariant=invariant, about=about)


def policy(says: Mapping[str, Any], *, scheduler: str = BRIDGE, tuning: Mapping[str, Any] | None = None) -> None:
    """The bridge of that schedulerName has this policy, and this setting `tuning`, from now on."""
    note("policy", policy=says, scheduler=scheduler, tuning=tuning or {})


@contextmanager
def disturbed(what: str) -> Iterator[None]:
    """A fault lasts within this block: liveness (L2, L3, L4) is not judged meanwhile."""
    note("disturbed", what=what)
    try:
        yield
    finally:
        note("calm", what=what)


@dataclass(slots=True)
class Breach:
    """One intended violation, between two times.  used: the checker found it."""

    at: float
    invariant: str
    about: str
    why: str
    used: bool = False
    until: float = float("inf")

    def excuses(self, invariant: str, about: str, at: float) -> bool:
        return invariant == self.invariant and self.at <= at <= self.until and fnmatch(about, self.about)


@dataclass(slots=True)
class Journal:
    """The journal of one run.

    policies    the policies of each bridge that was started or reconfigured, by schedulerName, and since when
    tunings     the setting `tuning` of each, likewise
    faults      when something was stopped, frozen or broken on purpose
    """

    policies: dict[str, list[tuple[float, Mapping[str, Any]]]] = field(default_factory=dict)
    tunings: dict[str, list[tuple[float, Mapping[str, Any]]]] = field(default_factory=dict)
    breaches: list[Breach] = field(default_factory=list)
    faults: list[Interval] = field(default_factory=list)


def read(path: Path) -> Journal:
    """The journal in that file; an empty one if there is no file."""
    found = Journal()
    begun: dict[str, float] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(line)
        at, kind = entry["at"], entry["kind"]
        if kind == "policy":
            found.policies.setdefault(entry["scheduler"], []).append((at, entry["policy"]))
            found.tunings.setdefault(entry["scheduler"], []).append((at, entry.get("tuning") or {}))
        elif kind == "breaks":
            found.breaches.append(Breach(at, entry["invariant"], entry["about"], entry["why"]))
        elif kind == "holds":
            of = (
                each for each in found.breaches if (each.invariant, each.about) == (entry["invariant"], entry["about"])
            )
            next(each for each in of if each.until == float("inf")).until = at
        elif kind == "disturbed":
            begun.setdefault(entry["what"], at)
        elif entry["what"] in begun:
            found.faults.append((begun.pop(entry["what"]), at))
    found.faults += [(at, float("inf")) for at in begun.values()]
    return found


def without(whole: list[Interval], holes: list[Interval]) -> list[Interval]:
    """The parts of the intervals outside all holes."""
    left = whole
    for begin, end in holes:
        left = [
            part
            for one in left
            for part in ((one[0], min(one[1], begin)), (max(one[0], end), one[1]))
            if part[0] < part[1]
        ]
    return left


def longest(since: float, until: float, calm: list[Interval]) -> float:
    """The longest time without a fault between the two, in seconds."""
    return max((min(until, end) - max(since, begin) for begin, end in calm), default=0.0)
