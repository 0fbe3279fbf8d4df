"""docs/follow-one-pod.md names files and functions: each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"`((?:bridge|scheduler)/[\w/]+\.py)` `([\w.]+)`")
STEPS = STEP.findall((ROOT / "docs/follow-one-pod.md").read_text(encoding="utf-8"))


def test_the_page_names_the_steps_of_a_pod() -> None:
    assert len(STEPS) > 20


@pytest.mark.parametrize(("path", "name"), STEPS)
def test_each_step_is_where_the_page_says(path: str, name: str) -> None:
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = [each for each in body if _name(each) == part]
        assert found, f"{path} defines no {name}"
        body = getattr(found[0], "body", [])


def _name(statement: ast.stmt) -> str:
    return getattr(statement, "name", "")
