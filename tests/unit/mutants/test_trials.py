"""Mutants of a small package are tried by its tests, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CODE = """
def limit(count, most):
    if count > most:
        return most
    if count == 7:
        return 0
    return count

def halves(count):
    while count > 1:
        count //= 2

def unused(a):
    return a is None
"""
TESTS = """
from small.code import halves, limit

def test_below():
    assert limit(2, 3) == 2

def test_above():
    assert limit(5, 3) == 3

def test_equal():
    assert limit(3, 3) == 3

def test_halves():
    halves(8)
    halves(0)
"""
TRY = """
import sys
from pathlib import Path
import pytest
from tests.mutants.mutations import mutants_of
from tests.mutants.trials import Trials

root = Path(sys.argv[1])
mutants = mutants_of("small/code.py", (root / "small/code.py").read_text()).mutants
trials = []
plugin = Trials(root, "small", mutants, tried=range(len(mutants)), budget_s=9, jobs=2, told=trials.append)
code = pytest.main(["-q", "-s", "-p", "no:cacheprovider", f"--rootdir={root}", str(root / "test_small.py")], plugins=[plugin])
for trial in sorted(trials, key=lambda trial: (trial.mutant.line, trial.mutant.after)):
    print(trial.outcome.name, trial.mutant.after, trial.test.partition("::test_")[2], sep=" | ")
sys.exit(code)
"""


def tried(root: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (root / "small").mkdir()
    (root / "small/code.py").write_text(CODE)
    (root / "test_small.py").write_text(tests)
    (root / "pytest.ini").write_text(f"[pytest]\npythonpath = {root} {ROOT}\n")
    return subprocess.run(
        [sys.executable, "-c", TRY, str(root)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_mutant_is_killed_or_does_not_end_or_survives_or_makes_no_difference(tmp_path: Path) -> None:
    run = tried(tmp_path, TESTS)
    assert run.returncode == 0, run.stdout + run.stderr
    shown = [line for line in run.stdout.splitlines() if " | " in line]
    assert shown == [
        "KILLED | if count <= most: | above",
        "SURVIVED | if count >= most: | ",
        "KILLED | if count > most: pass | above",
        "KILLED | if count != 7: | equal",
        "SAME | if count == 7: pass | ",
        "TIMEOUT | while count <= 1: | ",
        "SURVIVED | while count >= 1: | ",
        "SAME | return a is not None | ",
    ]


def test_where_a_test_fails_without_a_mutant_nothing_is_tried(tmp_path: Path) -> None:
    run = tried(tmp_path, TESTS.replace("== 3", "== 4"))
    assert run.returncode != 0
    assert "test_small.py::test_halves" not in run.stdout, "a test after one that fails"
    assert "fail without a mutant: test_small.py::test_above" in run.stdout
    assert " | " not in run.stdout


@pytest.mark.parametrize("broken", ["import nothing_of_this_name", "def test_x(:"])
def test_where_tests_cannot_be_collected_nothing_is_tried(tmp_path: Path, broken: str) -> None:
    run = tried(tmp_path, broken)
    assert run.returncode != 0
    assert " | " not in run.stdout
