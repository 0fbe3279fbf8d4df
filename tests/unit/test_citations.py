"""Every citation in code, tests, manifests and documents has a definition, and every rule is named by a test.

S4b, W1–W5                 rules and invariants: docs/behaviour.md
rules T, rules K and T     whole sections of it
ARCHITECTURE 4             sections of ARCHITECTURE.md
Slurm facts 4, 5           sections of docs/slurm-facts.md
Kubernetes facts 2         sections of docs/kubernetes-facts.md
docs/decisions/0003        a decision
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest

from bridge.settings import Settings
from bridge.simulation.invariants.violation import INVARIANTS
from integration.readme import ROOT
from scheduler import names
from scheduler.tuning import Tuning

FOLDERS = ("bridge", "scheduler", "tests", "integration", "manifests", "docs", "examples")
TEXTS = frozenset({".py", ".md", ".yaml", ".toml", ".html", ".js", ".css", ".tpl", ".conf", ".txt", ".service", ""})
SELF = "tests/unit/test_citations.py"  # it shows citations that have no definition

# Words that look like a rule's id and are none.
NOT_CITATIONS = {
    "pyproject.toml": {"T20"},  # a rule of ruff
    "bridge/simulation/kube/strict.py": {"V1"},  # the beginning of a class name of the Kubernetes client
    "docs/security.md": {"X1"},  # the name of a node
    "tests/unit/scheduler/test_contested_nodes.py": {"X1"},  # the same
}

# Rules that no test names, each with the reason.
NAMED_BY_NO_TEST: dict[str, str] = {}

RULE = r"[KTGWFQSNIOXVL]\d{1,2}[a-z]?"
LETTER = r"[KTGWFQSNIOX]"
RULES = re.compile(rf"\b{RULE}\b")
RANGES = re.compile(rf"\b({RULE})(?:[–-]| to | … )({RULE})\b")
LETTERS = re.compile(rf"\brules ({LETTER}(?:(?:, | and ){LETTER})*)\b(?!\d)")
NUMBERED = re.compile(r"\b(ARCHITECTURE|Slurm facts|Kubernetes facts)\s(\d+(?:(?:, | and )\d+)*)\b")
DECISIONS = re.compile(r"\bdecisions/(\d{4})\b")

# Citations that do not say which document they mean, or which part of it.
AMBIGUOUS = {
    "another name of a document": re.compile(r"\bBEHAVIOUR\b|\bFACTS\b"),
    "no number": re.compile(r"\bARCHITECTURE\b(?!\.md|\s\d)|\b(?:Slurm|Kubernetes) facts\b(?!\s\d)"),
    "a rule's section without the word `rules`": re.compile(
        rf"\((?:{RULE}, )*{LETTER}(?:, (?:{RULE}|{LETTER}))*(?:[);]|: )"
    ),
}


def _files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".coverage"))
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.is_file() and not path.is_symlink())


@cache
def texts() -> dict[str, str]:
    """Path to content of every file that people write here."""
    found = {}
    for path in _files():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in TEXTS and "/recordings/" not in name and "__pycache__" not in name and name != SELF:
            found[name] = path.read_text(encoding="utf-8")
    return found


def _sections(document: str) -> list[str]:
    return re.findall(r"^## (\d+)\. ", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE)


BEHAVIOUR = (ROOT / "docs" / "behaviour.md").read_text(encoding="utf-8")
DEFINED = re.findall(rf"^\*\*({RULE}) [^*]+\.\*\* ", BEHAVIOUR, re.MULTILINE)  # in the order of the document
SECTIONS = {
    "ARCHITECTURE": _sections("ARCHITECTURE.md"),
    "Slurm facts": _sections("docs/slurm-facts.md"),
    "Kubernetes facts": _sections("docs/kubernetes-facts.md"),
}
RULE_SECTIONS = re.findall(rf"^## ({LETTER})\. ", BEHAVIOUR, re.MULTILINE)


def undefined(text: str, name: str = "") -> list[str]:
    """The citations in this text that lead nowhere."""
    ids = set(RULES.findall(text)) - NOT_CITATIONS.get(name, set()) - set(DEFINED)
    letters = {letter for group in LETTERS.findall(text) for letter in re.findall(LETTER, group)} - set(RULE_SECTIONS)
    numbered = {
        f"{document} {number}"
        for document, numbers in NUMBERED.findall(text)
        for number in re.findall(r"\d+", numbers)
        if number not in SECTIONS[document]
    }
    decisions = {
        f"docs/decisions/{number}"
        for number in DECISIONS.findall(text)
        if not [*(ROOT / "docs" / "decisions").glob(f"{number}-*.md")]
    }
    return sorted(ids | letters | numbered | decisions)


def named(text: str, name: str = "") -> set[str]:
    """The rules that this text names, those within ranges included."""
    found = set(RULES.findall(text)) - NOT_CITATIONS.get(name, set())
    for first, last in RANGES.findall(text):
        if first in DEFINED and last in DEFINED:
            found.update(DEFINED[DEFINED.index(first) : DEFINED.index(last) + 1])
    return found


def test_every_citation_has_a_definition() -> None:
    wrong = {name: missing for name, text in texts().items() if (missing := undefined(text, name))}
    assert wrong == {}


def test_every_citation_says_which_document_it_means() -> None:
    wrong = [
        f"{name}: {text[found.start() : found.start() + 60]!r}: {why}"
        for name, text in texts().items()
        for why, pattern in AMBIGUOUS.items()
        for found in pattern.finditer(text)
    ]
    assert wrong == []


def test_every_rule_is_named_by_a_test() -> None:
    tests = {name: text for name, text in texts().items() if name.startswith(("tests/", "integration/journeys/"))}
    by_tests = set().union(*(named(text, name) for name, text in tests.items()))
    assert set(DEFINED) - by_tests == NAMED_BY_NO_TEST.keys()


def test_words_that_only_look_like_citations_are_still_there() -> None:
    for name, words in NOT_CITATIONS.items():
        assert words <= set(RULES.findall(texts()[name])), name


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("the time limit (S4b, W1–W5), rules K and T", []),
        ("(S4c)", ["S4c"]),
        ("W1–W99", ["W99"]),
        ("ARCHITECTURE 3 and 99", ["ARCHITECTURE 99"]),
        ("Slurm facts 4, 88; Kubernetes facts 77", ["Kubernetes facts 77", "Slurm facts 88"]),
        ("docs/decisions/0001, docs/decisions/9999", ["docs/decisions/9999"]),
        ("W3C, 2038, v0.0.44, N/A", []),
    ],
)
def test_a_citation_without_a_definition_is_found(text: str, missing: list[str]) -> None:
    assert undefined(text) == missing


@pytest.mark.parametrize(
    "text",
    ["(BEHAVIOUR S1)", "FACTS 7", "(K)", "(K, F2)", "(F2, K)", "(K: a key)", "ARCHITECTURE, the core", "Slurm facts"],
)
def test_an_ambiguous_citation_is_found(text: str) -> None:
    assert any(pattern.search(text) for pattern in AMBIGUOUS.values())


def test_a_range_names_what_is_between_its_ends() -> None:
    assert named("S4–S6") == {"S4", "S4b", "S5", "S6"}
    assert {"V1", "V8", "L1", "L4"} <= named("V1 … L4")


# --- the definitions ----------------------------------------------------------------------------------------------


def test_each_rule_is_defined_once_in_its_section() -> None:
    assert len(DEFINED) == len(set(DEFINED))
    assert len(DEFINED) > 90, "rules are found where the document has them"
    for part in re.split(r"^## ", BEHAVIOUR, flags=re.MULTILINE)[1:]:
        letters = set(re.findall(rf"^\*\*({LETTER}|[VL])\d", part, re.MULTILINE))
        assert letters <= set(part.split(". ")[0].split(", ")), part.splitlines()[0]


def test_sections_are_numbered_without_a_gap() -> None:
    for document, numbers in SECTIONS.items():
        assert numbers == [str(number + 1) for number in range(len(numbers))], document
        assert numbers, document


def test_the_invariants_of_the_document_are_those_that_are_checked() -> None:
    assert [each for each in DEFINED if each[0] in "VL"] == [*INVARIANTS]


def test_values_in_the_rules_are_the_defaults() -> None:
    defaults = {**asdict(Tuning()), "default_memory_mib": Settings.model_fields["default_memory_mib"].default}
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    told = re.findall(r"`([a-z_]+)` \((\d+(?:\.\d+)?)", BEHAVIOUR + glossary)
    assert len(told) > 40, "values are found where the documents have them"
    wrong = {name: value for name, value in told if name not in defaults or float(value) != defaults[name]}
    assert wrong == {}


def test_every_key_and_alias_is_in_the_rules() -> None:
    section = BEHAVIOUR.partition("## K. ")[2].partition("\n## ")[0]
    keys = names.JOB_OPTIONS | names.GROUPING | names.WRITTEN_BY_US | names.ALIASES.keys() | names.ALIASES_REFUSED
    nodes = {names.SLURM_NODE_LABEL, names.PARTITIONS, names.MANAGED_TAINT, names.EXTERNAL_NODE_LABEL}
    told = {word.partition("=")[0] for word in re.findall(r"`([a-z=-]+)`", section)}
    assert {*keys, *(key.removeprefix(names.PREFIX) for key in nodes)} - told == set()


# --- the glossary, links ------------------------------------------------------------------------------------------

WORDS = """
    placeholder, grant, workload, gang, external node, managed namespace, policy, rule of the policy, in flight, quiet period,
    settle time, quarantine, breaker, stray, bypass, lease, leader, standby
"""


def test_the_glossary_defines_the_words_that_the_documents_use() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    defined = re.findall(r"\*\*([^*]+)\*\*:", glossary)
    assert {word.strip() for word in WORDS.split(",")} - {*defined} == set()


def test_the_definitions_are_linked_from_where_people_begin() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        links = set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", texts()[name]))
        assert [link for link in links if not (ROOT / link).exists()] == [], name
        assert {"docs/behaviour.md", "docs/glossary.md", "docs/slurm-facts.md", "docs/kubernetes-facts.md"} <= links, (
            name
        )
