"""Fails if the unit tests run too few of the branches of scheduler/.

`fail_under` of coverage.py counts lines and branches together, so untested branches hide behind tested lines.

    coverage json -q --fail-under=0 -o - | python -m tests.branch_coverage
"""

from __future__ import annotations

import json
import sys

LEAST_PERCENT = 98.0


def percent(covered: int, branches: int) -> float:
    """Covered branches in percent, rounded down to a hundredth: 97.999 is not 98."""
    return covered * 10_000 // branches / 100


def main() -> int:
    """Reads the JSON report of coverage.py from standard input.  Returns the exit code: 1 if the coverage is too low."""
    totals = json.load(sys.stdin)["totals"]
    found = percent(totals["covered_branches"], totals["num_branches"])
    sys.stdout.write(
        f"Branches of scheduler/ that its unit tests run: {totals['covered_branches']:,} of {totals['num_branches']:,}, "
        f"{found} % (at least {LEAST_PERCENT:g} %). `coverage report` lists the others.\n"
    )
    return 0 if found >= LEAST_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
