"""Which changes the mutants of a function are."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.mutants.mutations import mutants_of


def changed(body: str) -> list[str]:
    """The changed statements of a function with this body, in order."""
    source = "def function(a, b, c):\n" + "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    return [mutant.after for mutant in mutants_of("module.py", source).mutants]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("return a < b", ["return a >= b", "return a <= b"]),
        ("return a == b", ["return a != b"]),
        ("return a not in b", ["return a in b"]),
        ("return a <= b < c", ["return a > b < c", "return a < b < c", "return a <= b >= c", "return a <= b <= c"]),
        ("return a and b", ["return a or b", "return b", "return a"]),
        (
            "return a or b or c",
            ["return a and b and c", "return b or c", "return a or c", "return a or b"],
        ),
        ("return not a", ["return a"]),
        ("return b if a else c", ["return b if not a else c"]),
        ("return [a for a in b if a]", ["return [a for a in b if True]", "return [a for a in b if not a]"]),
        ("return f(a, late=True)", ["return f(a, late=False)"]),
        ("return lambda: a is None", ["return lambda: a is not None"]),
        ("a += b", []),
    ],
)
def test_an_expression_is_changed_in_each_way(statement: str, expected: list[str]) -> None:
    assert changed(statement) == expected


def test_a_guard_is_negated_and_its_early_return_is_dropped() -> None:
    assert changed("if a:\n    return b\nreturn c") == ["if not a:", "if a: pass"]


def test_a_negated_guard_is_one_mutant_though_two_rules_make_it() -> None:
    assert changed("if not a:\n    b()") == ["if a:"]
    assert changed("while a is None:\n    b()") == ["while a is not None:"]


def test_the_last_statement_of_a_function_is_no_early_return() -> None:
    assert changed("a()\nreturn b") == []


def test_what_leaves_a_loop_is_dropped() -> None:
    assert changed("for each in a:\n    if b:\n        continue\n    break") == [
        "if not b:",
        "if b: pass",
        "for each in a: pass",
    ]


def test_the_branch_without_a_condition_is_named_by_its_condition() -> None:
    assert changed("if a:\n    b()\nelse:\n    return c") == ["if not a:", "else of if a: pass"]


def test_a_case_is_never_taken_and_its_guard_is_changed() -> None:
    body = """
        match a:
            case 1 if b:
                c()
            case _:
                assert_never(a)
    """
    assert changed(body) == ["case 1 if False:", "case 1 if not b:"]


def test_assertions_and_what_only_a_defect_reaches_stay() -> None:
    assert changed("assert a < b\nif c:\n    raise AssertionError(a)") == ["if not c:"]
    assert changed("return zip(a, b, strict=True)") == []


def test_a_mutant_names_its_method_its_line_and_its_statement() -> None:
    source = "class A:\n    class B:\n        def method(self):\n            f()\n            return self is None\n"
    [mutant] = mutants_of("package/module.py", source).mutants
    assert (mutant.function, mutant.line) == ("A.B.method", 5)
    assert (mutant.before, mutant.after) == ("return self is None", "return self is not None")
    assert mutant.package == "package/module.py"


def test_a_function_in_a_function_belongs_to_the_outer_one() -> None:
    assert changed("def inner():\n    return a or b\nreturn inner") == ["return a and b", "return b", "return a"]
    source = "def outer():\n    def inner():\n        return 1 in ()\n    return inner\n"
    [mutant] = mutants_of("module.py", source).mutants
    assert mutant.function == "outer"


def test_code_that_runs_at_import_is_counted_and_not_changed() -> None:
    source = "LONG = 1 < 2\nclass A:\n    wide: bool = True\n    def method(self, late=False):\n        return late\n"
    found = mutants_of("module.py", source)
    assert found.mutants == ()
    assert found.at_import == 3


def test_the_tree_is_as_before_when_all_mutants_are_made() -> None:
    source = "def function(a, b):\n    if a and b:\n        return True\n    return [c for c in a if c]\n"
    mutants = mutants_of("module.py", source).mutants
    assert ast.unparse(mutants[0].outermost.node) == source.rstrip()
