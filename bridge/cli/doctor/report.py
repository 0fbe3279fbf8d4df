"""Findings for people, as a table that fits a terminal, and for programs, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from bridge.cli.doctor.findings import Finding, Level, exit_code
from bridge.cli.paragraphs import wrapped
from bridge.cli.terminal import printable

MARKS = {Level.OK: "ok", Level.UNKNOWN: "-", Level.WARNING: "WARN", Level.ERROR: "ERROR"}
MARK_WIDTH = max(map(len, MARKS.values()))
NARROWEST = 60


def as_text(found: Sequence[Finding], width: int) -> str:
    """The findings as text, grouped and aligned, each with its advice below.  width: columns of the terminal"""
    names = max((len(finding.check) for finding in found), default=0)
    lines: list[str] = []
    for group, members in groupby(found, key=lambda finding: finding.group):
        lines += [*([""] if lines else []), group, *_rows(list(members), names, max(width, NARROWEST))]
    return "\n".join(map(printable, [*lines, "", _summary(found)]))


def _rows(found: list[Finding], names: int, width: int) -> Iterator[str]:
    before = ""
    for finding in found:
        if finding.unchecked:
            continue
        name = finding.check if finding.check != before else ""
        before = finding.check
        margin = f"  {MARKS[finding.level]:<{MARK_WIDTH}}  {name:<{names}}  "
        indent = " " * len(margin)
        yield from wrapped(finding.sentence, width, first=margin, indent=indent)
        if finding.do:
            yield from wrapped(finding.do, width, first=f"{indent}→ ", indent=f"{indent}  ")
    yield from _skipped_rows(found, width)


def _skipped_rows(found: list[Finding], width: int) -> Iterator[str]:
    """One row for each reason, with all checks that it prevented."""
    reasons: dict[str, list[str]] = {}
    for finding in found:
        if finding.unchecked:
            reasons.setdefault(finding.unchecked.rstrip("."), []).append(finding.check)
    margin = f"  {MARKS[Level.UNKNOWN]:<{MARK_WIDTH}}  "
    for reason, checks in reasons.items():
        sentence = f"not checked, since {reason}: {', '.join(checks)}"
        yield from wrapped(sentence, width, first=margin, indent=" " * len(margin))


def _summary(found: Sequence[Finding]) -> str:
    counts = {level: sum(finding.level is level for finding in found) for level in Level}
    said = [
        f"{counts[level]} {word}{'' if counts[level] == 1 else 's'}"
        for level, word in ((Level.ERROR, "error"), (Level.WARNING, "warning"))
        if counts[level]
    ]
    suggestions = sum(bool(finding.do) for finding in found if finding.level is Level.OK)
    rest = f"{counts[Level.OK]} ok" + (f", {suggestions} of them with a suggestion (→)" if suggestions else "")
    rest += f", {counts[Level.UNKNOWN]} not checked" if counts[Level.UNKNOWN] else ""
    return f"{', '.join(said) or 'Nothing to do'}; {rest}."


def as_json(found: Sequence[Finding]) -> str:
    """One object: `exit_code`, and `findings` with group, check, level (ok, unknown, warning, error), sentence, do."""
    listed = [
        {
            "group": finding.group,
            "check": finding.check,
            "level": finding.level.value,
            "sentence": finding.sentence,
            "do": finding.do,
        }
        for finding in found
    ]
    # ASCII has no character that controls a terminal.
    return json.dumps({"exit_code": exit_code(found), "findings": listed}, indent=2)
