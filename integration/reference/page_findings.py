"""docs/findings.md: every search for broken invariants, and what it found."""

from __future__ import annotations

from collections.abc import Sequence

from integration.reference.markdown import code, table
from integration.reference.searches import FAULTS, KINDS, Finding, Search, searches

INTRO = """\
# What searches found

<!-- Generated from tests/searches.toml by `make reference`. -->

[reliability.md](reliability.md) says how the invariants are tested. This page lists each finding of a search, the newest
first, and then each search. A finding is a defect of the bridge (**bridge**), a check or the text of an invariant that
was wrong (**check**), a simulated life that did what no cluster does (**life**), or a simulated cluster that answered
otherwise than the real one (**simulation**). The cause of each was mended, for all cases of its kind. A seed *held* if no
check failed. On one commit a seed always gives the same run. On another commit the run may differ. The
[glossary](glossary.md#tests) explains the words.

## How many, by search

"""


def text() -> str:
    """The page."""
    record = searches()[::-1]
    paragraphs = [_paragraph(finding, search) for search in record for finding in search.findings[::-1]]
    rows = [(_commits(each), _what(each), _held(each), _found(each)) for each in record]
    heads = ("commit", "search", "held", "found")
    return (
        f"{INTRO}{_totals(record)}\n## Findings\n\n"
        + "\n".join(paragraphs)
        + "\n## Searches, the newest first\n\n"
        + table(heads, rows)
    )


def _totals(record: Sequence[Search]) -> str:
    """The table of how many findings each kind of search has."""
    by_kind = {kind: [each for search in record if search.kind == kind for each in search.findings] for kind in KINDS}
    rows = [(KINDS[kind].name, *_counts(found)) for kind, found in by_kind.items() if found]
    return table(("", *FAULTS), [*rows, ("all", *_counts([each for found in by_kind.values() for each in found]))])


def _counts(findings: Sequence[Finding]) -> list[str]:
    return [str(sum(each.kind == fault for each in findings)) for fault in FAULTS]


def _paragraph(finding: Finding, search: Search) -> str:
    """One finding: where, what happened, and which test has its story."""
    label = ", ".join([finding.kind, *finding.invariants])
    told = [f"{code(path)}: *{_words(name)}*" for path, _, name in (each.partition("::") for each in finding.tests)]
    tests = f"Test: {'; '.join(told)}." if told else f"No test of its own: {finding.no_test}."
    return f"**{_where(finding, search)}** ({label}): {' '.join(finding.what.split())} {tests}\n"


def _where(finding: Finding, search: Search) -> str:
    """ "1386 at 4464b1d" of a seed; otherwise what was searched."""
    seeds = ", ".join(str(seed) for seed in finding.seeds)
    if not seeds:
        return KINDS[search.kind].name
    return f"{seeds} at {_commits(search)}" if search.commits else seeds


def _words(function: str) -> str:
    return function.removeprefix("test_").replace("_", " ")


def _commits(search: Search) -> str:
    return ", ".join(search.commits)


def _what(search: Search) -> str:
    """ "lives 0–999 and 5,000–5,999", and what else the record says of it."""
    ranges = ", ".join(f"{first:,}–{last:,}" for first, last in search.seeds)
    return ", ".join(part for part in (f"{KINDS[search.kind].name} {ranges}" if ranges else "", search.what) if part)


def _held(search: Search) -> str:
    if not search.runs:
        return search.held
    return f"all {search.runs:,}" if not search.failed else f"{search.runs - search.failed:,} of {search.runs:,}"


def _found(search: Search) -> str:
    counts = {fault: sum(finding.kind == fault for finding in search.findings) for fault in FAULTS}
    return ", ".join(f"{count} {fault}" for fault, count in counts.items() if count)


def by_invariant(record: Sequence[Search], invariant: str) -> tuple[str, str]:
    """ "defects of the bridge / wrong checks" of an invariant, and where the last of these defects was found."""
    found = [(each, search) for search in record for each in search.findings if invariant in each.invariants]
    counts = " / ".join(str(sum(each.kind == kind for each, _ in found)) for kind in ("bridge", "check"))
    last = [_where(each, search) for each, search in found if each.kind == "bridge"]
    return counts, last[-1] if last else ""
