"""The record of the searches for broken invariants: tests/searches.toml, read and counted.

A search has
    kind      what ran (KINDS)
    commits   where it ran; none if that was not recorded
    seeds     ranges [first, last], both included
    what      in words, if seeds do not say it
    unnamed   how many seeds failed without a finding in the record
    held      in words, if it has no seeds
    finding   what it found

A finding has
    seeds       that failed
    invariants  that failed: those that simulations check or the checker judges
    kind        what was wrong (FAULTS)
    what        what happened
    tests       "path::function", the scenarios that it became; or
    no_test     why there is none
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from integration.readme import ROOT

FILE = ROOT / "tests" / "searches.toml"


class Kind(NamedTuple):
    """What a search ran.  is_counted: its seeds are counted in docs/reliability.md."""

    name: str
    is_counted: bool = False


KINDS = {
    "lives": Kind("lives", is_counted=True),
    "replicas": Kind("hours of two replicas", is_counted=True),
    "gangs": Kind("gangs on empty nodes"),
    "histories": Kind("random histories"),
    "logs": Kind("checker of logs"),
    "mutants": Kind("mutation testing"),
    "reading": Kind("reading of the code"),
    "sequences": Kind("generated sequences"),
    "sweep": Kind("crash sweep"),
    "trials": Kind("trials on real clusters"),
}
FAULTS = ("bridge", "check", "life", "simulation")  # docs/findings.md defines them


@dataclass(frozen=True, slots=True)
class Finding:
    """Why one or several seeds failed: see the docstring of the file."""

    kind: str
    what: str
    seeds: Sequence[int] = ()
    invariants: Sequence[str] = ()
    tests: Sequence[str] = ()
    no_test: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """One search: see the docstring of the file."""

    kind: str
    findings: Sequence[Finding]
    commits: Sequence[str] = ()
    seeds: Sequence[tuple[int, int]] = ()
    what: str = ""
    unnamed: int = 0
    held: str = ""

    @property
    def runs(self) -> int:
        """How many seeds it ran."""
        return sum(last - first + 1 for first, last in self.seeds)

    @property
    def failed(self) -> int:
        """How many of its seeds failed."""
        return len({seed for finding in self.findings for seed in finding.seeds}) + self.unnamed


def searches(file: Path = FILE) -> list[Search]:
    """The record, the oldest search first."""
    return [_search(each) for each in tomllib.loads(file.read_text(encoding="utf-8"))["search"]]


def runs_of(kind: str, record: Sequence[Search]) -> int:
    """How many seeds of this kind ran; a seed counts again on another commit, where its run may differ."""
    return sum(search.runs for search in record if search.kind == kind)


def seeds_of(kind: str, record: Sequence[Search]) -> int:
    """How many different seeds of this kind ran."""
    return len({seed for each in record if each.kind == kind for a, b in each.seeds for seed in range(a, b + 1)})


def _search(entry: dict[str, Any]) -> Search:
    findings = [Finding(**each) for each in entry.pop("finding", ())]
    return Search(**entry | {"findings": findings, "seeds": [(a, b) for a, b in entry.get("seeds", ())]})
