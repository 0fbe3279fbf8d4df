"""A probe leaves a function as it is, and tells which of its mutants would do something else."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mutants.mutations import mutants_of
from tests.mutants.probes import Probes, probed


@pytest.fixture
def probes() -> Iterator[Probes]:
    before = set(vars(builtins))
    yield Probes()
    for name in vars(builtins).keys() - before:
        delattr(builtins, name)


def differing(probes: Probes, source: str, *arguments: object) -> tuple[object, list[str]]:
    """What the function f of the source returns, and the texts of its mutants that differ."""
    mutants = mutants_of("some/code.py", source).mutants
    [code] = [code for code in probed(mutants[0].outermost, list(enumerate(mutants)), "code.py") if code.co_name == "f"]
    names: dict[str, Any] = {}
    exec(source, names)
    names["f"].__code__ = code
    result = names["f"](*arguments)
    return result, [mutants[place].after.removeprefix("return ") for place in probes.taken()]


@pytest.mark.parametrize(
    ("expression", "a", "b", "differ"),
    [
        ("a < b", 1, 2, ["a >= b"]),
        ("a < b", 2, 2, ["a >= b", "a <= b"]),
        ("a and b", 1, 1, []),
        ("a and b", 1, 0, ["a or b", "a"]),
        ("a and b", 0, 1, ["a or b", "b"]),
        ("a and b", 0, 0, []),
        ("a or b", 1, 1, []),
        ("a or b", 0, 2, ["a and b", "a"]),
        ("a or b", None, {}, ["a", "a and b"]),
        ("a is None or a.x", None, 0, ["a is None and a.x", "a.x", "a is not None or a.x"]),
        ("not a", 1, 0, ["a"]),
        ("[x for x in (a, b) if x]", 1, 2, ["[x for x in (a, b) if not x]"]),
        ("[x for x in (a, b) if x]", 0, 2, ["[x for x in (a, b) if True]", "[x for x in (a, b) if not x]"]),
        ("(c := a) and (d := b) and (c, d)", 1, 2, ["(c := a) or (d := b) or (c, d)"]),
    ],
)
def test_the_mutants_that_have_another_value_are_recorded(
    probes: Probes, expression: str, a: object, b: object, differ: list[str]
) -> None:
    result, found = differing(probes, f"def f(a, b):\n    return {expression}\n", a, b)
    assert result == eval(expression, {"a": a, "b": b})
    assert set(differ) <= set(found)
    if ":=" not in expression:  # such operands stay in their place, so the mutants count as different
        assert set(differ) == set(found)


def test_a_statement_that_is_not_reached_and_a_case_that_does_not_match_make_no_difference(probes: Probes) -> None:
    source = """
def f(a):
    match a:
        case 1:
            return "one"
        case int() if a > 5:
            return "many"
    return "few"
"""
    assert differing(probes, source, 2) == ("few", ["case int() if False:", "case int() if a <= 5:"])
    result, found = differing(probes, source, 1)
    assert result == "one"
    assert found == ["case 1 if False:", "case 1: pass"]


def test_an_operand_that_python_skips_records_nothing(probes: Probes) -> None:
    result, found = differing(probes, "def f(a):\n    return a is None or a.x == 1\n", None)
    assert result is True
    assert "a is None or a.x != 1" not in found
