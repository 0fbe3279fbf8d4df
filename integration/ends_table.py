"""docs/ends.md as its tables: what simulated clusters, and real ones, are made to do row by row."""

from __future__ import annotations

from integration.readme import ROOT

TEXT = (ROOT / "docs" / "ends.md").read_text(encoding="utf-8")


def table(heading: str) -> dict[str, list[str]]:
    """First cell to the others, of the table under that heading."""
    part = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in part.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows[2:]}
