"""The check of the coverage fails below its limit, and names what no test runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests import coverage


def judged(
    lines: tuple[int, int],
    branches: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: Mapping[str, object] = MappingProxyType({}),
) -> int:
    """The exit code.  lines, branches: how many are covered, and how many are not; files: the gaps of each"""
    counts = dict(zip(("covered_lines", "missing_lines"), lines, strict=True))
    counts |= zip(("covered_branches", "missing_branches"), branches, strict=True)
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"summary": counts, "files": dict(files)}))
    monkeypatch.setattr("sys.argv", ["coverage", str(report)])
    return coverage.main()


@pytest.mark.parametrize(
    ("lines", "branches", "code"),
    [
        ((9_800, 200), (9_800, 200), 0),
        ((10_000, 0), (9_799, 201), 1),  # untested branches behind tested lines
        ((9_700, 300), (9_800, 200), 1),
        ((10_000, 0), (10_000, 0), 0),
    ],
)
def test_too_few_lines_or_branches_fail_the_check(
    lines: tuple[int, int],
    branches: tuple[int, int],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert judged(lines, branches, tmp_path, monkeypatch) == code
    assert f"{branches[0]:,} of 10,000" in capsys.readouterr().out


def test_it_names_the_lines_and_branches_that_no_test_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = {
        "scheduler/a.py": {"missing_lines": [7], "missing_branches": [[3, 7], [9, 0]]},
        "scheduler/b.py": {"missing_lines": [], "missing_branches": []},
    }
    judged((1, 0), (1, 0), tmp_path, monkeypatch, gaps)
    out = capsys.readouterr().out
    assert "scheduler/a.py: not run: 7, 3->7, 9->exit\n" in out
    assert "scheduler/b.py" not in out
