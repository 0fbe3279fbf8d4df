"""docs/reliability.md: people write it; what the searches found of each invariant, and how many seeds ran, are computed."""

from __future__ import annotations

import re

from integration.readme import ROOT
from integration.reference.blocks import with_block
from integration.reference.markdown import table
from integration.reference.page_findings import by_invariant
from integration.reference.searches import KINDS, runs_of, searches, seeds_of

PAGE = ROOT / "docs" / "reliability.md"
ROW = re.compile(r"^\| ([KVL]\d) \|(.*)\|[^|\n]*\|[^|\n]*\|$", re.MULTILINE)
AIM = re.compile(r"^(\| 200,000 lives searched \|)[^|\n]*\|$", re.MULTILINE)


def text() -> str:
    """The page with the computed cells and the computed table."""
    record = searches()
    page = ROW.sub(lambda row: _row(row[1], row[2], *by_invariant(record, row[1])), PAGE.read_text(encoding="utf-8"))
    runs, seeds = runs_of("lives", record), seeds_of("lives", record)
    page = AIM.sub(rf"\1 {runs:,} so far, of {seeds:,} different seeds |", page)
    counted = [kind for kind in KINDS if KINDS[kind].is_counted]
    rows = [(KINDS[kind].name, f"{runs_of(kind, record):,}", f"{seeds_of(kind, record):,}") for kind in counted]
    return with_block(page, "totals", table(("searched", "runs", "different seeds"), rows))


def _row(invariant: str, cells: str, found: str, last: str) -> str:
    return f"| {invariant} |{cells}| {found} | {last} |"
