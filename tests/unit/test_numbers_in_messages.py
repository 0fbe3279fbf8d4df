"""Numbers in messages have one form: thousands are separated, and no number has an exponent."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from integration.readme import ROOT

# An amount of things: its form matters from a thousand on.
AMOUNT = re.compile(r"len\(.*\)|sum\(.*\)|count|number of .*|total|waiting|members", re.DOTALL)
# Texts that servers and programs read.
NOT_FOR_PEOPLE = ("bridge/simulation/", "bridge/slurm/connection.py", "bridge/webhook/")


def sentences() -> Iterator[tuple[str, ast.JoinedStr]]:
    """The f-strings with a blank, and where each is."""
    for path in sorted((*ROOT.glob("bridge/**/*.py"), *ROOT.glob("scheduler/**/*.py"))):
        where = str(path.relative_to(ROOT))
        if where.startswith(NOT_FOR_PEOPLE):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr) and any(
                isinstance(part, ast.Constant) and " " in str(part.value) for part in node.values
            ):
                yield f"{where}:{node.lineno}", node


def test_an_amount_in_a_sentence_has_thousands_separated() -> None:
    """The log, the page and `doctor` wrote "10000 jobs" beside "10,000 pods"."""
    wrong = [
        f"{where}: {ast.unparse(part.value)}"
        for where, sentence in sentences()
        for part in sentence.values
        if isinstance(part, ast.FormattedValue) and part.format_spec is None
        if AMOUNT.fullmatch(ast.unparse(part.value)) and not ast.unparse(part.value).startswith("'")
    ]
    assert wrong == []


def test_no_sentence_has_a_number_with_an_exponent() -> None:
    """`kubectl slurm nodes` wrote 5e+04Gi: the format `g` has so many digits at most."""
    wrong = [
        where
        for path in sorted((*ROOT.glob("bridge/**/*.py"), *ROOT.glob("scheduler/**/*.py")))
        for where in formats_with_exponent(path)
    ]
    assert wrong == []


def formats_with_exponent(path: Path) -> list[str]:
    """Where a format with fewer than ten digits is; a constant of some seconds may have it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for number, text in enumerate(lines, 1)
        if re.search(r"(?<!_S):,?(\.\d)?g\}", text)
    ]
