"""The record of the searches (tests/searches.toml): its sums are right, its tests exist, and nothing is counted twice."""

from __future__ import annotations

import ast
from itertools import combinations

import pytest

from integration.checker import verdict
from integration.readme import ROOT
from integration.reference.blocks import with_block
from integration.reference.page_findings import by_invariant
from integration.reference.page_reliability import PAGE, ROW
from integration.reference.searches import FAULTS, KINDS, Finding, Search, runs_of, searches, seeds_of

RECORD = searches()
FINDINGS = [finding for search in RECORD for finding in search.findings]


def overlapping(record: list[Search]) -> list[tuple[int, int]]:
    """The ranges that a search repeats: of the same kind, with the same words, on one of the same commits."""
    twice = []
    ranges = [(each, seeds) for each in record for seeds in each.seeds]
    for (one, (first, last)), (other, (begin, end)) in combinations(ranges, 2):
        at_one_commit = bool({*one.commits} & {*other.commits}) or not (one.commits or other.commits)
        if one.kind == other.kind and one.what == other.what and at_one_commit and first <= end and begin <= last:
            twice.append((begin, end))
    return twice


def test_no_range_is_counted_twice() -> None:
    assert overlapping(RECORD) == []


def test_a_range_that_is_counted_twice_is_found() -> None:
    one = Search("lives", [], commits=["a"], seeds=[(0, 9)])
    assert overlapping([one, Search("lives", [], commits=["a", "b"], seeds=[(9, 12)])]) == [(9, 12)]
    assert overlapping([one, Search("lives", [], commits=["b"], seeds=[(9, 12)])]) == []
    assert overlapping([Search("lives", [], commits=["a"], seeds=[(0, 9), (5, 7)])]) == [(5, 7)]


def test_seeds_are_summed_and_different_seeds_are_counted_once() -> None:
    record = [Search("lives", [], seeds=[(0, 9), (20, 20)]), Search("lives", [], commits=["a"], seeds=[(5, 14)])]
    assert runs_of("lives", record) == 21
    assert seeds_of("lives", record) == 16
    assert runs_of("replicas", record) == 0


def test_the_findings_about_an_invariant_are_counted_and_the_last_defect_of_the_bridge_is_named() -> None:
    record = [
        Search("lives", [Finding("bridge", "one", seeds=[7], invariants=["V1"])], commits=["a"]),
        Search("lives", [Finding("check", "two", seeds=[8], invariants=["V1", "V7"])], commits=["b"]),
    ]
    assert by_invariant(record, "V1") == ("1 / 1", "7 at a")
    assert by_invariant(record, "V7") == ("0 / 1", "")


def test_each_search_has_a_known_kind_and_says_what_ran() -> None:
    assert len(RECORD) > 30
    for search in RECORD:
        assert search.kind in KINDS, search
        assert search.seeds or search.what, search
        assert all(first <= last for first, last in search.seeds), search


def test_each_seed_that_failed_is_one_that_the_search_ran() -> None:
    for search in RECORD:
        seeds = [seed for finding in search.findings for seed in finding.seeds]
        assert len(seeds) == len(set(seeds)), search
        if search.seeds:
            assert all(any(first <= seed <= last for first, last in search.seeds) for seed in seeds), search


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: str(list(finding.seeds) or finding.what.strip()[:20]))
def test_each_finding_names_its_tests_or_says_why_it_has_none(finding: Finding) -> None:
    assert finding.kind in FAULTS
    assert {*finding.invariants} <= verdict.LACKS.keys()
    assert finding.what.strip().endswith(".")
    assert bool(finding.tests) != bool(finding.no_test)
    for each in finding.tests:
        path, _, name = each.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}, (
            each
        )


def test_each_invariant_that_a_finding_may_name_has_a_row_with_its_findings() -> None:
    assert {row[1] for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))} == verdict.LACKS.keys()


def test_a_part_of_a_page_is_replaced_and_a_page_without_it_is_refused() -> None:
    page = "a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb\n"
    assert with_block(page, "x", "new\n") == page.replace("old", "new")
    with pytest.raises(ValueError, match="0 parts"):
        with_block(page, "y", "new\n")
