"""The score of trials, and the list of survivors that are explained."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import PACKAGE, ROOT, mutants_below
from tests.mutants.mutations import Mutant, mutants_of
from tests.mutants.report import EXPLAINED, Change, Comparison, Report, explained
from tests.mutants.trials import Outcome, Trial

ENTRY = """
[[mutant]]
path = "scheduler/rules/some.py"
function = "f"
before = "return a is None"
after = "return a is not None"
reason = "Both are the same here."
"""
CLASS = """
[[class]]
comparisons = ["scheduler/state/other.py g: a < 1"]
reason = "An order of equal things."
[[class]]
changes = ["scheduler/state/other.py g: return a < 1  →  return a >= 1"]
reason = "Nobody asks for the order."
"""


def mutants(source: str, path: str = "scheduler/rules/some.py") -> tuple[Mutant, ...]:
    return mutants_of(path, source).mutants


ONE = mutants("def f(a):\n    return a is None\n")
TWO = mutants("def g(a):\n    return a < 1\n", "scheduler/state/other.py")


def report(outcomes: list[Outcome], text: str = "") -> Report:
    trials = (Trial(mutant, outcome) for mutant, outcome in zip((*ONE, *TWO), outcomes, strict=True))
    return Report(tuple(trials), explained(text))


def test_the_score_counts_what_tests_notice_of_each_package() -> None:
    found = report([Outcome.KILLED, Outcome.TIMEOUT, Outcome.SAME])
    rules, state, whole = [line.split() for line in found.lines()][1:4]
    assert rules == ["scheduler/rules", "1", "1", "0", "0", "100.0%", "100.0%"]
    assert state == ["scheduler/state", "2", "1", "0", "1", "50.0%", "50.0%"]
    assert whole == ["scheduler", "3", "2", "0", "1", "66.7%", "66.7%"]
    assert [trial.mutant for trial in found.survivors] == [TWO[1]]


def test_an_explained_survivor_is_no_survivor_and_not_in_the_score() -> None:
    found = report([Outcome.SURVIVED, Outcome.KILLED, Outcome.KILLED], ENTRY)
    assert found.survivors == []
    assert found.stale == []
    assert [line.split() for line in found.lines()][1] == ["scheduler/rules", "1", "0", "1", "0", "0.0%", "100.0%"]


def test_an_entry_whose_mutant_is_noticed_is_stale() -> None:
    found = report([Outcome.KILLED] * 3, ENTRY)
    assert [each.function for each in found.stale if isinstance(each, Change)] == ["f"]


def test_a_class_explains_the_changes_and_the_comparisons_that_it_lists() -> None:
    found = report([Outcome.SURVIVED] * 3, CLASS)
    assert [trial.mutant.after for trial in found.survivors] == ["return a is not None"]
    assert found.stale == []


def test_an_entry_of_a_class_is_stale_by_itself() -> None:
    """g has two mutants: `<=`, which the comparison explains, and `>=`."""
    assert TWO[1].boundary
    assert not TWO[0].boundary
    stale = report([Outcome.KILLED, Outcome.SURVIVED, Outcome.KILLED], CLASS).stale
    assert stale == [Comparison("scheduler/state/other.py", "g", "a < 1")]
    assert [type(each) for each in report([Outcome.KILLED] * 3, CLASS).stale] == [Comparison, Change]


def test_an_entry_without_a_reason_or_with_a_key_too_many_or_twice_is_refused() -> None:
    for text in (
        ENTRY.replace("Both are the same here.", " "),
        ENTRY + "line = 7\n",
        ENTRY + ENTRY,
        CLASS + "path = 'a'\n",
        CLASS + CLASS,
    ):
        with pytest.raises(ValueError, match=r"explained twice|an entry needs"):
            explained(text)


def test_an_entry_of_changed_code_has_no_mutant() -> None:
    known = explained(ENTRY + CLASS)
    assert known.without((*ONE, *TWO)) == []
    assert known.without(TWO) == [Change("scheduler/rules/some.py", "f", "return a is None", "return a is not None")]
    assert [each.function for each in known.without(ONE)] == ["g", "g"]


def test_each_explained_mutant_exists() -> None:
    """A change of the code that makes an entry meaningless shows here; `make mutants` shows the entries that tests notice."""
    known = explained(EXPLAINED.read_text())
    assert all((ROOT / path).exists() and path.startswith(f"{PACKAGE}/") for path in known.paths)
    assert known.without(mutants_below(known.paths)) == []
