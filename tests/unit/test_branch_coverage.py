"""The check of branch coverage fails below its limit."""

from __future__ import annotations

import io
import json

import pytest

from tests import branch_coverage


@pytest.mark.parametrize(("covered", "code"), [(9_800, 0), (9_799, 1), (10_000, 0)])
def test_too_few_branches_fail_the_check(
    covered: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = {"totals": {"covered_branches": covered, "num_branches": 10_000}}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(report)))
    assert branch_coverage.main() == code
    assert f"{covered:,} of 10,000" in capsys.readouterr().out
