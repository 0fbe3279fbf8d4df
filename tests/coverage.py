"""Fails if the unit tests run too few of the lines or branches of scheduler/.

Lines and branches are judged together, and branches alone, because untested branches hide behind tested lines.

    python -m slipcover --dont-wrap-pytest --out .coverage.json -m pytest tests/unit/scheduler
    python -m tests.coverage .coverage.json

Without --dont-wrap-pytest SlipCover prepares to measure the tests, too, and warns that it does not know this pytest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LEAST_PERCENT = 98.0
END = 0  # where a branch leads that leaves the function


def main() -> int:
    """Reads the JSON report of SlipCover from the named file.  Returns the exit code: 1 if the coverage is too low."""
    report = json.loads(Path(sys.argv[1]).read_text())
    for gap in gaps(report["files"]):
        print(gap)
    totals = report["summary"]
    lines, branches = ((totals[f"covered_{what}"], totals[f"missing_{what}"]) for what in ("lines", "branches"))
    both = lines[0] + branches[0], lines[1] + branches[1]
    checked = [_is_enough("Lines and branches", *both), _is_enough("Branches", *branches)]
    return 0 if all(checked) else 1


def gaps(files: Mapping[str, Any]) -> Iterator[str]:
    """A line for each file with lines or branches that no test runs."""
    for path, found in sorted(files.items()):
        lines = [str(line) for line in found["missing_lines"]]
        branches = [f"{line}->{'exit' if to == END else to}" for line, to in found["missing_branches"]]
        if lines or branches:
            yield f"{path}: not run: {', '.join(lines + branches)}"


def _is_enough(what: str, covered: int, missing: int) -> bool:
    found = percent(covered, covered + missing)
    print(
        f"{what} of scheduler/ that its unit tests run: {covered:,} of {covered + missing:,}, {found} % "
        f"(at least {LEAST_PERCENT:g} %)."
    )
    return found >= LEAST_PERCENT


def percent(covered: int, of: int) -> float:
    """Rounded down to a hundredth: 97.999 is not 98."""
    return covered * 10_000 // of / 100


if __name__ == "__main__":
    sys.exit(main())
